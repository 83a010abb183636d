"""Attacks: each reads a View and nothing else. Scores are made in ``audits``, where the truth is."""

from __future__ import annotations

from attacks.attack import Attack, Blind, Control, Guess, Knowledge
from attacks.neighgen import GeneratorBatch, GeneratorColumns, GeneratorSingle
from attacks.weights import LabelCounts, VocabularySupport

ATTACKS: dict[str, type[Attack]] = {
    kind.id: kind
    for kind in (VocabularySupport, LabelCounts, GeneratorSingle, GeneratorBatch, GeneratorColumns)
}
FAMILIES = sorted({kind.family for kind in ATTACKS.values()})

__all__ = [
    "ATTACKS",
    "FAMILIES",
    "Attack",
    "Blind",
    "Control",
    "GeneratorBatch",
    "GeneratorColumns",
    "GeneratorSingle",
    "Guess",
    "Knowledge",
    "LabelCounts",
    "VocabularySupport",
]
