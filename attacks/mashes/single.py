"""B1 on FedEgo: the features behind a mash of one ego-graph, by a linear programme over some rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from scipy.optimize import linprog

from secure_fedgraph.attacks.attack import FEATURES, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.mashes.labels import RELEASED, MashAttack, Mashed, spread
from secure_fedgraph.protocol import View

TOLERANCE = 2e-6
"""The error of a value that was computed in single precision."""
CERTAIN = 0.005
"""The largest error (three standard errors of its equations) at which a dense feature is still claimed."""


class MashSingle(MashAttack):
    """B1: the raw features of single nodes, from a mash that mixes one ego-graph.

    The reduction of every round is known, so ``r_t = ReLU(W_t'x + b_t)`` gives an equation for each unit that
    is on and an inequality for each that is off. For bags of words the sparsest solution is the node, once
    some rounds give enough conditions:

        min 1'x   s.t.  W_on'x = r_on - b_on,  W_off'x <= -b_off,  0 <= x <= 1,  all rounds together.

    Dense features are neither sparse nor between 0 and 1. Where the programme gives no row of 0 and 1, the
    equations of all rounds are solved without it; the solution is claimed where they determine every feature
    and agree with each other.

    References:
        Basis pursuit; Fredrikson et al., CCS 2015, for inversion by a known model.
    """

    id = "b1-mash-single"
    subject = "raw features from mashes of one ego-graph"
    summary = "raw features of the nodes of an ego-graph mashed alone"
    controls = (Control("a remainder of one", {**RELEASED, "training.batch": 23}),)
    nodes: ClassVar[int] = 24
    """Distinct places that are solved for, over all owners: the centres first."""
    coordinates: ClassVar[int] = 640
    """The most reduced features in one programme: ten rounds of 64 units, or one of 512."""

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """Rows of each owner that sent a mash of one."""
        by_client = self.client_mashes(view)
        all_singles = {c: np.flatnonzero(self.sizes(view, rounds[0]) == 1) for c, rounds in by_client.items()}
        singles = {client: mashes for client, mashes in all_singles.items() if len(mashes)}
        share = max(1, self.nodes // max(1, sum(len(mashes) for mashes in singles.values())))
        values: dict[str, np.ndarray] = {}
        for client, mashes in singles.items():
            # only batches that are kept show the same node again
            rounds = spread(
                by_client[client] if self.fixed(view) else by_client[client][:1], self.coordinates
            )
            all_rounds = by_client[client] if self.fixed(view) else rounds
            rows = [_rows(rounds, all_rounds, int(mash), share) for mash in mashes]
            if sum(map(len, rows)):
                values[client] = np.concatenate(rows)
        if singles and not values:
            raise Blind(
                f"{self.id}: some mashes look like one ego-graph, but no features between 0 and 1 explain "
                "any of them: each mixes several nodes of one class, or features are no bags of words, and "
                "the units that are on are too few, or too alike, to determine each feature"
            )
        if not values:
            raise Blind(f"{self.id}: no mash is of one ego-graph alone: each mixes several, or is noised")
        return Guess.of_owners(FEATURES, values, sum(len(by_client[c]) for c in values))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """Blind: a sum over owners always mixes several ego-graphs."""
        self.summed_mashes(view)
        raise Blind(f"{self.id}: a sum over owners is of several ego-graphs; nothing of one is left in it")


def _rows(rounds: Sequence[Mashed], all_rounds: Sequence[Mashed], mash: int, places: int) -> np.ndarray:
    """``[places, features]``; none where no features explain the centre: then several nodes were mixed."""
    centre, *others = _places(rounds, mash)[:places]
    first, solve = inverted(rounds, mash, centre), inverted
    if not np.isin(first, (0, 1)).all():
        dense = determined(all_rounds, mash, centre)
        if not np.isnan(dense).any():
            first, solve, rounds = dense, determined, all_rounds
    if np.isnan(first).any():
        return first[:0]
    return np.concatenate([first, *(solve(rounds, mash, place) for place in others)])


def _places(rounds: Sequence[Mashed], mash: int) -> list[int]:
    """One place of each distinct node, the centre first; empty slots have no label."""
    first = rounds[0]
    filled = np.flatnonzero(first.labels[mash].sum(1) > 0.5)
    stacked = np.concatenate([r.rows[mash, filled] for r in rounds], axis=1)
    _, order = np.unique(np.round(stacked, 5), axis=0, return_index=True)
    return [int(filled[i]) for i in np.sort(order)]


def inverted(rounds: Sequence[Mashed], mash: int, place: int) -> np.ndarray:
    """``[1, features]``: the sparsest features that every round's reduced ones allow; NaN where none do."""
    a, y, off, limit = _conditions(rounds, mash, place)
    upper = np.concatenate([a, -a, off])
    bound = np.concatenate([y + TOLERANCE, TOLERANCE - y, limit + TOLERANCE])
    solved = linprog(np.ones(a.shape[1]), A_ub=upper, b_ub=bound, bounds=(0, 1), method="highs")
    features = solved.x if solved.status == 0 else np.full(a.shape[1], np.nan)
    near = np.abs(features - np.rint(features))
    # a bag of words is rounded; any other solution stays as it is, and counts as no node
    return (np.rint(features) if (near < 0.25).all() else features)[None]


def determined(rounds: Sequence[Mashed], mash: int, place: int) -> np.ndarray:
    """``[1, features]``: the real features that the units that are on determine over all rounds; NaN where
    they fit several solutions or none."""
    a, y, off, limit = _conditions(rounds, mash, place)
    none = np.full((1, a.shape[1]), np.nan)
    if len(a) <= a.shape[1]:
        return none
    left, sizes, right = np.linalg.svd(a, full_matrices=False)
    features = right.T @ (left.T @ y / sizes)
    residuals = a @ features - y
    spread = np.sqrt(np.square(residuals).sum() / (len(a) - a.shape[1]))
    error = 3 * spread * np.sqrt(np.square(right / sizes[:, None]).sum(0).max())  # least squares' own
    agrees = np.abs(residuals).max() < TOLERANCE and (off @ features < limit + 10 * TOLERANCE).all()
    return features[None] if agrees and error < CERTAIN else none


def _conditions(
    rounds: Sequence[Mashed], mash: int, place: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """``A, y, B, l`` of ``A x = y`` and ``B x <= l``: a row for each unit and round."""
    on_rows, right, off_rows, limits = [], [], [], []
    for one in rounds:
        if one.weight is None or one.bias is None:
            raise Blind("the reduction layers that made the mashes cannot be read in this view")
        on = one.rows[mash, place] > 0
        on_rows.append(one.weight.T[on])
        right.append((one.rows[mash, place] - one.bias)[on])
        off_rows.append(one.weight.T[~on])
        limits.append(-one.bias[~on])
    a, y, off, limit = (
        np.concatenate(part).astype(np.float64) for part in (on_rows, right, off_rows, limits)
    )
    return a, y, off, limit
