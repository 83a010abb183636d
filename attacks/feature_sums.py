"""C6 and C7: features of a node alone in a sum of neighbours, and which known nodes are in sums by class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from secure_fedgraph.attacks.attack import ALL, CLIENT, FEATURES, SERVER, Attack, Blind, Guess, Knowledge
from secure_fedgraph.attacks.mashes.pool import GRANT, POOL, TRAINING_NODES
from secure_fedgraph.models.neighgen.mixture import COUNT
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import Seen

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
    subject = "members of feature sums"
    family = "feature-sums"
    summary = "which nodes of a known pool an owner trains on, from feature sums by class"
    adversaries: ClassVar[tuple[str, ...]] = (SERVER, CLIENT)
    channel = "feature_sums"
    also_reads: ClassVar[tuple[str, ...]] = ("pretrain", *CENTRED)
    first_rounds = 1
    grants: ClassVar[tuple[str, ...]] = (GRANT,)
    needs: ClassVar[tuple[str, ...]] = (POOL,)
    depends_on: ClassVar[tuple[str, ...]] = ("training.anonymity",)
    stops: ClassVar[Mapping[str, str]] = {
        SERVER: "noise for a node's epsilon (distributed_dp, local_dp); masks leave the sum of all",
        CLIENT: "noise for a node's epsilon: every owner reads the sum",
    }

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """Scores of all candidates for each owner whose own sums can be read."""
        seen = self.single_uploads(view, self._sums_in(view, knowledge))
        values = {one.clients[0]: self._scores(view, one.values, knowledge) for one in seen}
        return Guess.of_owners(TRAINING_NODES, values, len(seen))

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


class NeighbourSums(Attack):
    """C6: a sum with one term is that term: a node's features over the square root of its degree.

    The count that comes with a sum says where that is so. The unknown degree is one factor of the whole row:
    rows are brought to a largest value of 1, which makes words (0 or 1) exact.

    References:
        Yao et al., NeurIPS 2023, section 4, which assumes that sums have several terms.
    """

    id = "c6-neighbour-sums"
    subject = "features from neighbour sums"
    family = "neighbour-sums"
    summary = "features of the only neighbour in a sum, and whose sum it is"
    adversaries: ClassVar[tuple[str, ...]] = (SERVER, CLIENT)
    channel = "neighbour_sums"
    first_rounds = 1
    depends_on = ("training.hops",)
    stops: ClassVar[Mapping[str, str]] = {
        SERVER: "sealed messages: masked, homomorphic, strictest",
        CLIENT: "training.hops=0 alone: masks add up owners, not nodes",
    }

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """Rows of single owners' answers, of one term each."""
        known = self.channel in view.public.get("channels", {})
        seen = [*view.uploads(self.channel), *view.delivered(self.channel)] if known else []
        rows: dict[str, list[np.ndarray]] = {}
        for one in seen:
            if one.clients[0] not in view.parties:
                rows.setdefault(one.clients[0], []).append(_single_terms(one))
        found = {owner: np.concatenate(parts) for owner, parts in rows.items()}
        found = {owner: values for owner, values in sorted(found.items()) if len(values)}
        if not found:
            why = "no sum in it has a single term" if rows else view.why_unreadable(self.channel)
            raise Blind(f"{self.id}: {why}")
        return Guess.of_owners(FEATURES, found, len(seen))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """Rows of the opened sums over all other owners, of one term each."""
        sums = self.opened_sums(view)
        values = np.concatenate([_single_terms(seen) for seen in sums])
        if not len(values):
            raise Blind(f"{self.id}: no sum that was opened has a single term")
        owners = tuple(sorted({name for seen in sums for name in seen.clients}))
        return Guess(FEATURES, {ALL: values}, {ALL: owners}, len(sums))


def _single_terms(seen: Seen) -> np.ndarray:
    """The rows of sums with one term, ``[rows, features]``."""
    counts, sums = (np.asarray(seen.values[key], dtype=np.float64) for key in ("counts", "sums"))
    unit = counts[counts > 0].min(initial=np.inf)  # what one term counts: the least that any sum holds
    rows: np.ndarray = sums[np.abs(counts - unit) < unit / 4] if np.isfinite(unit) else sums[:0]
    largest = np.abs(rows).max(axis=1, initial=0.0)
    rows = rows[largest > 0] / largest[largest > 0, None]
    return rows.astype(np.float32)
