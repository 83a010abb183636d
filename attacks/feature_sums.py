"""C7: which known nodes are in sums of features by class: FedSage+'s, and those of forms under a budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from secure_fedgraph.attacks.attack import CLIENT, Attack, Blind, Guess, Knowledge
from secure_fedgraph.attacks.mashes.pool import GRANT, POOL, TRAINING_NODES
from secure_fedgraph.attacks.weights import ALL
from secure_fedgraph.models.neighgen.mixture import COUNT
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import SERVER

MOST = 800
"""Candidates that one class is solved for, those that fit its sum best."""
STEPS = 600
"""Of the solution of one system."""
LEAST = 0.5
"""The noised count below which a class is taken to have nobody."""
CENTRED = {"class_sums": 1.0, "moments": 0.5}
"""Channels with sums of directions times centred classes, and how long these are by default."""


class SummedMembers(Attack):
    """C7: a sum of few nodes' features is a mixture with few parts, which a pool of candidates solves for.

    Each class is one system: a value for each feature, and each candidate in it with a share of 0 or 1.
    Least squares with shares from 0 to 1 is solved for it; a candidate is scored by its largest share, and
    beneath that by how well it fits the sum.

    Sums for a regression have a share of all classes' sum taken off. Features are 0 or more and words are in
    few classes, so the least entry of a feature over the classes is what was taken off.

    References:
        Carlini et al., Is Private Learning Possible with Instance Encoding?, S&P 2021, for mixtures and a
        pool; Beck and Teboulle, A Fast Iterative Shrinkage-Thresholding Algorithm, 2009, for the solution.
    """

    id = "c7-summed-members"
    title = "which known nodes are in the sums of features"
    subject = "members of feature sums"
    family = "feature-sums"
    summary = "which nodes of a known pool an owner trains on, from feature sums by class"
    adversaries: ClassVar[tuple[str, ...]] = (SERVER, CLIENT)
    channel = "feature_sums"
    also_reads: ClassVar[tuple[str, ...]] = ("pretrain", *CENTRED)
    first_rounds = 1
    grants: ClassVar[tuple[str, ...]] = (GRANT,)
    needs: ClassVar[tuple[str, ...]] = (POOL,)
    cost = "one least-squares problem a class and owner, seconds each"
    depends_on: ClassVar[tuple[str, ...]] = ("training.anonymity",)
    stops: ClassVar[Mapping[str, str]] = {
        SERVER: "noise for a node's epsilon (distributed_dp, local_dp); masks leave the sum of all",
        CLIENT: "noise for a node's epsilon: every owner reads the sum",
    }

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """Scores of all candidates for each owner whose own sums can be read."""
        name = self._sums_in(view, knowledge)
        seen = view.uploads(name)
        if not seen:
            raise Blind(f"{self.id}: {view.why_unreadable(name)}")
        values = {one.clients[0]: self._scores(view, one.values, knowledge) for one in seen}
        return Guess(TRAINING_NODES, values, {name: (name,) for name in values}, len(seen))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The same for all owners together, from the opened sums, or from what was handed to an owner."""
        name = self._sums_in(view, knowledge)
        sums = view.sums(name)
        if sums:
            values = self._scores(view, sums[0].values, knowledge)
            return Guess(TRAINING_NODES, {ALL: values}, {ALL: sums[0].clients}, len(sums))
        handed = view.asked("pretrain") if name == self.channel else []
        if not handed:
            raise Blind(f"{self.id}: no sum of channel {name!r} was opened or handed out in this view")
        owners = tuple(view.public["clients"])
        return Guess(TRAINING_NODES, {ALL: self._of_means(handed[0], knowledge)}, {ALL: owners}, len(handed))

    def _sums_in(self, view: View, knowledge: Knowledge) -> str:
        """The channel that sums of features are sent on; Blind where there is none, or no candidate."""
        names = [one for one in (self.channel, *CENTRED) if one in view.public.get("channels", {})]
        if not names:
            raise Blind(f"{self.id}: {view.why_unreadable(self.channel)}")
        if not len(knowledge.facts[POOL]):
            raise Blind(f"{self.id}: channel {names[0]!r} has no sums of nodes' features, so no candidates")
        return names[0]

    def _scores(self, view: View, values: Mapping[str, Any], knowledge: Knowledge) -> np.ndarray:
        settings = view.public["settings"]
        sums = np.asarray(values["classes"], dtype=np.float64)
        sums = sums.reshape(-1, *sums.shape[-2:])[0].T * float(settings["records"])
        name = self._sums_in(view, knowledge)
        if name == self.channel:
            return self._solved(sums[:, :-1] / np.sqrt(1 - COUNT**2), knowledge)
        sums *= np.sqrt(1 - 1 / len(sums)) / (settings.get("target_norm") or CENTRED[name])
        return self._solved(sums - sums.min(0), knowledge)

    def _of_means(self, handed: Any, knowledge: Knowledge) -> np.ndarray:
        rows, counts = (
            np.asarray(handed.values[f"prototypes.{key}"], dtype=np.float64) for key in ("rows", "counts")
        )
        return self._solved(rows * counts[:, None], knowledge)

    def _solved(self, sums: np.ndarray, knowledge: Knowledge) -> np.ndarray:
        """Scores ``[candidates]``, of sums of directions ``[classes, features]``."""
        pool = np.asarray(knowledge.facts[POOL], dtype=np.float64)
        if pool.shape[1] != sums.shape[1]:
            raise Blind(f"{self.id}: the sums are of a public map of features, which no candidate is")
        lengths = np.linalg.norm(pool, axis=1, keepdims=True)
        pool = np.divide(pool, lengths, out=np.zeros_like(pool), where=lengths > 0)
        best = np.zeros(len(pool))
        for total in sums:
            length = float(np.linalg.norm(total))
            if length < LEAST:
                continue
            fit = pool @ total / length
            # a node is in a sum of features that are 0 or more only if the sum has all of its words
            beyond = np.clip(pool - np.clip(total, 0, None), 0, None).sum(1)
            likely = np.argsort(beyond - 1e-3 * fit, kind="stable")[:MOST]
            shares = np.zeros(len(pool))
            shares[likely] = shares_in(total, pool[likely])
            best = np.maximum(best, shares + 1e-3 * fit)
        return best


def shares_in(total: np.ndarray, rows: np.ndarray, steps: int = STEPS) -> np.ndarray:
    """The shares from 0 to 1 with which rows add up to a total, nearly: least squares by accelerated steps.

    Args:
        total: ``[d]``.
        rows: ``[n, d]``.

    >>> shares_in(np.array([1.0, 0.0, 1.0]), np.eye(3)).round(3).tolist()
    [1.0, 0.0, 1.0]
    """
    products, aim = rows @ rows.T, rows @ total
    rate = 1 / max(float(np.linalg.norm(products, 2)), 1e-12)
    shares, ahead, weight = np.zeros(len(rows)), np.zeros(len(rows)), 1.0
    for _ in range(steps):
        moved = np.clip(ahead - rate * (products @ ahead - aim), 0, 1)
        after = (1 + np.sqrt(1 + 4 * weight**2)) / 2
        ahead = moved + (weight - 1) / after * (moved - shares)
        shares, weight = moved, after
    return shares
