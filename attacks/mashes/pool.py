"""B4 and B5 on FedEgo: which of many known nodes are in a mash, with a public pool of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import nnls
from scipy.sparse import csr_matrix

from secure_fedgraph.attacks.attack import Control, Guess, Knowledge
from secure_fedgraph.attacks.mashes.labels import RELEASED, MashAttack, Mashed, noise_of, spread
from secure_fedgraph.attacks.weights import ALL
from secure_fedgraph.protocol import View

MASH_MEMBERS, FILTERED_MEMBERS = "members of mashes", "membership in mashes"
TRAINING_NODES = "training nodes"
POOL = "candidates"
GRANT = (
    "a public pool of candidates: the features of every node of the data set, the owners' own among them, "
    "and nobody's ownership"
)


class _Pool(MashAttack):
    """What B4 and B5 share: candidates whose reduced features are known in every round."""

    grants = (GRANT,)
    needs: ClassVar[tuple[str, ...]] = (POOL,)
    controls = (Control("kept batches of 32", {**RELEASED, "training.batch": 32}),)
    owners: ClassVar[int] = 3
    """How many clients are attacked, the first by name."""
    mashes: ClassVar[int] = 5
    """How many mashes of each client are solved, where batches are kept; the first ones."""
    coordinates: ClassVar[int]
    """The most reduced features that are solved together: rounds times width."""
    members: ClassVar[str]

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """Scores of all candidates, for each client."""
        by_client = dict(sorted(self.client_mashes(view).items())[: self.owners])
        x = csr_matrix(knowledge.facts[POOL])
        values = {c: self._scores(view, rounds, x, 1) for c, rounds in by_client.items()}
        messages = sum(len(rounds) for rounds in by_client.values())
        return Guess(self._about(view), values, {c: (c,) for c in values}, messages)

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The same from the sums: which candidates are in any owner's mashes."""
        rounds = self.summed_mashes(view)
        x = csr_matrix(knowledge.facts[POOL])
        values = {ALL: self._scores(view, rounds, x, len(rounds[0].clients))}
        return Guess(self._about(view), values, {ALL: rounds[0].clients}, len(rounds))

    def _about(self, view: View) -> str:
        return self.members if self.fixed(view) else TRAINING_NODES

    def _scores(self, view: View, rounds: Sequence[Mashed], x: Any, contributors: int) -> np.ndarray:
        if self.fixed(view):
            rounds = spread(rounds, self.coordinates)
            reduced = np.concatenate([one.reduced(x) for one in rounds], axis=1)
            sizes = self.sizes(view, rounds[0])
            # the last mash mixes the remaining nodes, so it may have another size
            whole = len(sizes) - (len(sizes) > 1 and sizes[-1] != int(view.public["settings"]["batch"]))
            centres = np.concatenate([one.rows[: min(whole, self.mashes), 0] for one in rounds], axis=1)
            return self._kept(view, reduced, centres, rounds, contributors)
        return self._fresh(view, rounds, x, contributors)

    def _kept(
        self,
        view: View,
        reduced: np.ndarray,
        centres: np.ndarray,
        rounds: Sequence[Mashed],
        contributors: int,
    ) -> np.ndarray:
        """``[mashes, candidates]``, from all rounds side by side."""
        raise NotImplementedError

    def _fresh(self, view: View, rounds: Sequence[Mashed], x: Any, contributors: int) -> np.ndarray:
        """``[candidates]``, of rounds that mix the same nodes in other batches."""
        raise NotImplementedError


class MashDictionary(_Pool):
    """B4: the members of a mash, as the few candidates whose reduced features add up to it.

        min_{w >= 0}  sum_t |Y_t - w D_t|^2,   D_t = ReLU(X W_t + b_t) of all candidates.

    A mash of kept batches is solved from all rounds together. Where batches are drawn afresh, each mash is
    solved alone, and a candidate's score adds up its largest weight of each round: that is enough where the
    reduction is wide.

    References:
        Non-negative least squares; Lawson and Hanson 1974.
    """

    id = "b4-mash-dictionary"
    title = "which nodes of a public pool a client mashed"
    subject = "members of mashes among all candidates"
    summary = "which nodes of a public pool are in a mash, or train with a client (fresh batches)"
    cost = "a non-negative least-squares problem a mash: a second each at five rounds of 64 units"
    coordinates = 640
    members = MASH_MEMBERS

    def _kept(
        self,
        view: View,
        reduced: np.ndarray,
        centres: np.ndarray,
        rounds: Sequence[Mashed],
        contributors: int,
    ) -> np.ndarray:
        return np.stack([nnls(reduced.T, side, maxiter=10 * len(reduced))[0] for side in centres])

    def _fresh(self, view: View, rounds: Sequence[Mashed], x: Any, contributors: int) -> np.ndarray:
        scores = np.zeros(x.shape[0])
        for one in spread(rounds, self.coordinates):
            dictionary = one.reduced(x).T
            scores += np.max([nnls(dictionary, side, maxiter=30000)[0] for side in one.rows[:, 0]], axis=0)
        return scores


class MashFilter(_Pool):
    """B5: whether one candidate is in a mash, by a matched filter.

    A mash of n nodes without the candidate is about Gaussian around the pool's mean, with the pool's
    covariance over n, so the evidence for ``q = (r(x) - mu) / n`` in it is

        q' S^-1 (Y - mu) - q' S^-1 q / 2,   S = Cov(r) / n + noise.

    For a kept batch, r and Y are those of all rounds side by side: training changes the reduction, and a
    candidate that fits all rounds is a member. For fresh batches the score adds up the best mash of each
    round. It tests one candidate at a time: beside this candidate's features it needs only a sample of other
    features for mu and Cov, and the size of the noise.
    """

    id = "b5-mash-filter"
    title = "whether one known node is among those that a client mashed"
    subject = "membership of single nodes in mashes"
    summary = "whether a known node is in a mash, or trains with a client (fresh batches)"
    cost = "some matrix products"
    coordinates = 1280
    members = FILTERED_MEMBERS

    def _kept(
        self,
        view: View,
        reduced: np.ndarray,
        centres: np.ndarray,
        rounds: Sequence[Mashed],
        contributors: int,
    ) -> np.ndarray:
        n = int(view.public["settings"]["batch"]) * contributors
        return filtered(reduced, centres, n, noise_of(rounds) ** 2)

    def _fresh(self, view: View, rounds: Sequence[Mashed], x: Any, contributors: int) -> np.ndarray:
        batch, variance = int(view.public["settings"]["batch"]), noise_of(rounds) ** 2
        scores = np.zeros(x.shape[0])
        for one in rounds:
            sizes = self.sizes(view, one)
            whole = one.rows[:, 0][sizes != sizes[-1]] if 0 < sizes[-1] < batch else one.rows[:, 0]
            scores += filtered(one.reduced(x), whole, batch * contributors, variance).max(0)
        return scores


def filtered(reduced: np.ndarray, mashes: np.ndarray, n: int, variance: float) -> np.ndarray:
    """``[mashes, candidates]``: the log-likelihood ratio of each candidate's presence.

    Args:
        reduced: ``[candidates, width]``.
        mashes: ``[mashes, width]``, each a mean over ``n``.
        variance: of the noise on a mash.
    """
    mean = reduced.mean(0)
    spread = np.cov(reduced.T) / n
    # a floor at single precision, so that the system can be solved
    spread += (variance + 1e-13 * np.trace(spread) / len(spread)) * np.eye(len(spread))
    q = (reduced - mean) / n
    solved = np.linalg.solve(spread, q.T)
    ratios: np.ndarray = (mashes - mean) @ solved - (q.T * solved).sum(0) / 2
    return ratios
