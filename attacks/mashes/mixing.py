"""B6 on FedEgo: an attacker that knows the batches solves the mashes of some rounds for single nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_matrix
from scipy.spatial.distance import cdist

from secure_fedgraph.attacks.attack import Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.mashes.labels import RELEASED, MashAttack, Mashed
from secure_fedgraph.attacks.mashes.pool import GRANT, POOL
from secure_fedgraph.attacks.weights import ALL
from secure_fedgraph.protocol import View

IDENTITIES, MIXING = "who each training node is", "mixing"
# 162 nodes in eleven batches reach full rank after 17 rounds; in batches of 32 nodes only after 33
SEEDED = {**RELEASED, "training.batching": "seeded", "training.batch": 16, "rounds": 20}


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
    title = "who each training node of a client is, where the batches are known"
    subject = "identities of training nodes behind known batches"
    summary = "who each of a client's training nodes is, from the known seed of its batches"
    grants = ("the seed of the loaders: by number, which training nodes each batch mixes", GRANT)
    needs: ClassVar[tuple[str, ...]] = (MIXING, POOL)
    cost = "a least-squares problem a client, of as many unknowns as it has training nodes"
    depends_on = ("training.batching", "training.batch", "rounds", "training.reduction")
    stops: ClassVar[Mapping[str, str]] = {"server": "batches that only the client knows: the default"}
    controls = (Control("seeded batches", SEEDED),)
    turns: ClassVar[int] = 12

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """For each client ``[training nodes]`` places in the pool."""
        by_client = self.client_mashes(view)
        mixing, x = self._known(knowledge)
        values = {c: self._solved(rounds, [mixing[c]], x) for c, rounds in by_client.items()}
        return Guess(IDENTITIES, values, {c: (c,) for c in values}, sum(len(r) for r in by_client.values()))

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
    shares: np.ndarray = members / members.sum(1, keepdims=True)
    return shares


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
