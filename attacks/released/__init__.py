"""Attacks on a released or a personal model, one kind a module; the names that others import stand here."""

from __future__ import annotations

from secure_fedgraph.attacks.released.answers import (
    ANSWERS,
    EMBEDDED,
    LINKS,
    WORDS,
    Answers,
    Embedded,
    EmbeddingInversion,
    LinkStealing,
)
from secure_fedgraph.attacks.released.membership import (
    CANDIDATES,
    MEMBERS,
    Candidates,
    NodeLikelihoodRatio,
    NodeMembership,
)

__all__ = [
    "ANSWERS",
    "CANDIDATES",
    "EMBEDDED",
    "LINKS",
    "MEMBERS",
    "WORDS",
    "Answers",
    "Candidates",
    "Embedded",
    "EmbeddingInversion",
    "LinkStealing",
    "NodeLikelihoodRatio",
    "NodeMembership",
]
