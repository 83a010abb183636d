"""B3 on FedEgo: fresh noise on the same mash every round averages out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from secure_fedgraph.attacks.attack import Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.mashes.labels import ACROSS, RELEASED, MashAttack, Mashed, noise_of
from secure_fedgraph.attacks.weights import ALL
from secure_fedgraph.protocol import View

NOISED = "mashes under repeated noise"
ROUNDS = (1, 2, 5, 10, 20, 50)
NONE = 1e-4
"""A standard deviation below this is rounding."""


class MashAverage(MashAttack):
    """B3: mashes under noise, as the mean over the rounds that sent them.

    The mean of T releases of one value with fresh noise has a variance of sigma^2 / T. With a frozen
    reduction and kept batches every round releases the same mash; where the reduction is trained, its labels
    at least stay the same.
    """

    id = "b3-mash-average"
    title = "mashes without the noise that was drawn afresh every round"
    subject = "mashes without their repeated noise"
    summary = "mashes without their fresh noise, as the mean over rounds"
    cost = "one mean"
    also_reads = (ACROSS,)
    first_rounds = 50
    stops: ClassVar[Mapping[str, str]] = {
        "server": "one release used again (mash_rounds), or a budget over all rounds"
    }
    controls = (
        Control(
            "fifty noised rounds",
            {
                **RELEASED,
                "policy": "local_dp",
                "protection.norm": 1000.0,  # beyond every upload: the noise is measured, not the clip
                "protection.multiplier": 3e-4,
                "training.batch": 32,
                "training.reduction": "frozen",
                "rounds": 50,
            },
        ),
    )

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """For each client ``[prefixes, mashes, width + classes]`` means over the first 1, 2, 5 ... rounds."""
        by_client = self.client_mashes(view)
        values = {client: self._means(view, rounds) for client, rounds in by_client.items()}
        return Guess(NOISED, values, {c: (c,) for c in values}, sum(len(r) for r in by_client.values()))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The same of the opened sums."""
        rounds = self.summed_mashes(view)
        return Guess(NOISED, {ALL: self._means(view, rounds)}, {ALL: rounds[0].clients}, len(rounds))

    def _means(self, view: View, rounds: Sequence[Mashed]) -> np.ndarray:
        if not self.fixed(view):
            raise Blind(f"{self.id}: batches are drawn afresh, so that no two rounds send the same mash")
        if noise_of(rounds) < NONE:
            raise Blind(f"{self.id}: there is no noise to average away")
        if len(rounds) < 2:
            raise Blind(f"{self.id}: mashes were released in one round only: there is nothing to average")
        centres = np.stack([np.concatenate([r.rows[:, 0], r.labels[:, 0]], axis=1) for r in rounds])
        means = np.cumsum(centres, axis=0) / np.arange(1, len(rounds) + 1)[:, None, None]
        chosen: np.ndarray = means[[t - 1 for t in prefixes(len(rounds))]]
        return chosen


def prefixes(rounds: int) -> list[int]:
    """After how many rounds a mean is taken."""
    return [t for t in ROUNDS if t <= rounds]
