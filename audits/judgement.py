"""The result of a judge: a score, and the true values beside the guessed ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from secure_fedgraph.attacks.attack import Guess
from secure_fedgraph.audits import scoring
from secure_fedgraph.audits.finished_run import FinishedRun


@dataclass(frozen=True)
class Judgement:
    """A score, and true against guessed values of some targets, where a report draws them.

    Args:
        graphs: of guesses about links, what ``neighbourhoods.around`` says of each target.
    """

    score: scoring.Score
    true: Mapping[str, np.ndarray] = field(default_factory=dict)
    guessed: Mapping[str, np.ndarray] = field(default_factory=dict)
    graphs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def targets(self) -> list[dict[str, Any]]:
        """As ``audit.json`` keeps them."""
        none = np.zeros(0)
        return [
            {
                "owner": target,
                "true": self.true.get(target, none).tolist(),
                "guess": self.guessed.get(target, none).tolist(),
                **({"graph": dict(self.graphs[target])} if self.graphs.get(target) else {}),
            }
            for target in {**self.true, **self.graphs}
        ]


Judge = Callable[[Guess, FinishedRun], Judgement]
"""Compares a guess with what was true."""
Maker = Callable[[FinishedRun], Any]
"""Makes one fact that an attacker is granted."""
