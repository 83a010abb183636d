"""What a judge says: a score, and what was true beside what was guessed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from attacks.attack import Guess
from audits import scoring
from audits.case import Case


@dataclass(frozen=True)
class Judgement:
    """A score, and true against guessed values of each target, for pictures."""

    score: scoring.Score
    true: Mapping[str, np.ndarray]
    guessed: Mapping[str, np.ndarray]

    def targets(self) -> list[dict[str, Any]]:
        """As ``audit.json`` keeps them."""
        return [
            {"owner": target, "true": values.tolist(), "guess": self.guessed[target].tolist()}
            for target, values in self.true.items()
        ]


Judge = Callable[[Guess, Case], Judgement]
