"""Attacks: each reads a View and nothing else. Scores are made in ``audits``, where the truth is."""

from __future__ import annotations

from attacks.attack import Attack, Blind, Guess, Knowledge
from attacks.weights import LabelCounts, VocabularySupport

ATTACKS: dict[str, type[Attack]] = {kind.id: kind for kind in (VocabularySupport, LabelCounts)}
FAMILIES = sorted({kind.family for kind in ATTACKS.values()})

__all__ = ["ATTACKS", "FAMILIES", "Attack", "Blind", "Guess", "Knowledge", "LabelCounts", "VocabularySupport"]
