"""B4, B5 and B6: which nodes of a public pool of candidates are in a mash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import nnls
from scipy.sparse import csr_matrix
from scipy.spatial.distance import cdist

from secure_fedgraph.attacks.attack import ALL, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.mashes.labels import RELEASED, MashAttack, Mashed, noise_of, spread
from secure_fedgraph.protocol import View

MASH_MEMBERS, FILTERED_MEMBERS = "members of mashes", "membership in mashes"
TRAINING_NODES = "training nodes"
POOL, IDENTITIES, MIXING = "candidates", "who each training node is", "mixing"
GRANT = (
    "a public pool of candidates: the features of every node of the data set, the owners' own among them, "
    "and nobody's ownership"
)
# 162 nodes in eleven batches reach full rank after 17 rounds; in batches of 32 nodes only after 33
SEEDED = {**RELEASED, "training.batching": "seeded", "training.batch": 16, "rounds": 20}


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
        return Guess.of_owners(self._about(view), values, messages)

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
            n = int(view.public["settings"]["batch"]) * contributors
            return self._kept(reduced, centres, n, noise_of(rounds) ** 2)
        return self._fresh(view, rounds, x, contributors)

    def _kept(self, reduced: np.ndarray, centres: np.ndarray, n: int, variance: float) -> np.ndarray:
        """``[mashes, candidates]``, from all rounds side by side.

        Args:
            n: how many each mash mixes.
            variance: of the noise on it.
        """
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
    subject = "members of mashes among all candidates"
    summary = "which nodes of a public pool are in a mash, or train with a client (fresh batches)"
    coordinates = 640
    members = MASH_MEMBERS

    def _kept(self, reduced: np.ndarray, centres: np.ndarray, n: int, variance: float) -> np.ndarray:
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
    subject = "membership of single nodes in mashes"
    summary = "whether a known node is in a mash, or trains with a client (fresh batches)"
    coordinates = 1280
    members = FILTERED_MEMBERS

    def _kept(self, reduced: np.ndarray, centres: np.ndarray, n: int, variance: float) -> np.ndarray:
        return filtered(reduced, centres, n, variance)

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
    return np.asarray((mashes - mean) @ solved - (q.T * solved).sum(0) / 2)


class MashMixing(MashAttack):
    """B6: every training node's reduced features, and from these its identity, where batches are known.

    Let ``A`` be the 0-1 matrix of which node is in which batch; then ``A R = n Y``. This is solvable for
    every node once A has as many independent rows as the client has training nodes, which T rounds of B
    batches reach when ``T (B - 1) + 1 >= N``. Each row of R is looked up in the public pool. Training changes
    the reduction from round to round, so R stands for the mean over rounds; the change of each identified
    node's features is then subtracted from Y, and the system is solved again.

    References:
        Carlini et al., S&P 2021, for demixing once the mixing is known.
    """

    id = "b6-mash-mixing"
    subject = "identities of training nodes behind known batches"
    summary = "who each of a client's training nodes is, from the known seed of its batches"
    grants = ("the seed of the loaders: by number, which training nodes each batch mixes", GRANT)
    needs: ClassVar[tuple[str, ...]] = (MIXING, POOL)
    depends_on = ("training.batching", "training.batch", "rounds", "training.reduction")
    stops = "batches that only the client knows: the default"
    controls = (Control("seeded batches", SEEDED),)
    turns: ClassVar[int] = 12

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """For each client ``[training nodes]`` places in the pool."""
        by_client = self.client_mashes(view)
        mixing, x = self._known(knowledge)
        values = {c: self._solved(rounds, [mixing[c]], x) for c, rounds in by_client.items()}
        return Guess.of_owners(IDENTITIES, values, sum(len(r) for r in by_client.values()))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """All owners' training nodes, in the order of their names, from the sums."""
        rounds = self.summed_mashes(view)
        mixing, x = self._known(knowledge)
        owners = tuple(sorted(rounds[0].clients))
        values = {ALL: self._solved(rounds, [mixing[owner] for owner in owners], x)}
        return Guess(IDENTITIES, values, {ALL: owners}, len(rounds))

    def _known(self, knowledge: Knowledge) -> tuple[Mapping[str, Any], Any]:
        mixing = knowledge.facts[MIXING]
        if not mixing:
            raise Blind(f"{self.id}: batches are secret: no seed tells which nodes a mash mixes")
        return mixing, csr_matrix(knowledge.facts[POOL])

    def _solved(self, rounds: Sequence[Mashed], mixing: Sequence[Mapping[int, Any]], x: Any) -> np.ndarray:
        shares = [np.concatenate([shares_of(*of[one.round]) for of in mixing], 1) for one in rounds]
        shares = [share / len(mixing) for share in shares]
        reduced = np.stack([one.reduced(x) for one in rounds])
        return identified(shares, [one.rows[:, 0] for one in rounds], reduced, self.turns)


def shares_of(numbers: np.ndarray, size: int) -> np.ndarray:
    """``[mashes, size]``: the share of each training node in a mash.

    Args:
        numbers: ``[mashes, n]``, -1 where a batch is short.
    """
    members = np.zeros((len(numbers), size))
    mash, place = np.nonzero(numbers >= 0)
    members[mash, numbers[mash, place]] = 1
    return np.asarray(members / members.sum(1, keepdims=True))


def identified(
    shares: Sequence[np.ndarray], mashes: Sequence[np.ndarray], reduced: np.ndarray, turns: int
) -> np.ndarray:
    """``[nodes]``: which candidate each mixed node is.

    Args:
        shares: for each round ``[mashes, nodes]``.
        mashes: for each round ``[mashes, width]``.
        reduced: ``[rounds, candidates, width]``.
        turns: how often the change of the candidates' features is subtracted, at most.
    """
    mean = reduced.mean(0)
    turned = reduced - mean
    matrix = np.concatenate(shares)
    inverse = np.linalg.pinv(matrix, rcond=1e-6)
    guess = np.zeros(matrix.shape[1], dtype=int)
    drift: Any = [0.0] * len(shares)
    for _ in range(turns):
        sides = np.concatenate([y - d for y, d in zip(mashes, drift, strict=True)])
        nearest = cdist(inverse @ sides, mean).argmin(1)
        if np.array_equal(nearest, guess):
            break
        guess = nearest
        drift = [share @ turned[t][guess] for t, share in enumerate(shares)]
    return guess
