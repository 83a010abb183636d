"""Attacks on weight updates, one a module; the names that others import stand here."""

from __future__ import annotations

from secure_fedgraph.attacks.weights.updates import (
    ALL,
    LABEL_SHARES,
    STOPS,
    VOCABULARY,
    LabelCounts,
    VocabularySupport,
    update_unit,
)

__all__ = [
    "ALL",
    "LABEL_SHARES",
    "STOPS",
    "VOCABULARY",
    "LabelCounts",
    "VocabularySupport",
    "update_unit",
]
