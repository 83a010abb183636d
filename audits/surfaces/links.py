"""Judges of guesses about links: among all pairs of nodes that have a score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.stats import rankdata
from torch_geometric.data import Data

from secure_fedgraph.audits import intervals
from secure_fedgraph.audits.empirical_dp.neighbourhoods import around, best
from secure_fedgraph.audits.judgement import Judgement
from secure_fedgraph.audits.scoring import Score, ScoreKind


def linked_nodes(graph: Data) -> np.ndarray:
    """``[nodes, nodes]`` booleans, symmetric: which two nodes are linked."""
    linked = np.zeros((int(graph.num_nodes or 0),) * 2, dtype=bool)
    row, column = graph.edge_index.numpy()
    linked[row, column] = linked[column, row] = True
    return linked


@dataclass(frozen=True)
class Pairs:
    """All pairs of nodes that one guess has a score for, with the truth.

    Args:
        matrix: ``[nodes, nodes]`` scores, symmetric, NaN where nothing was guessed.
        truth: ``[nodes, nodes]`` booleans.
        features: name -> ``[nodes, words]``, whose cosines are a trivial guess.
        names: ``[nodes]`` their numbers in the graph; counted from 0 where None.
    """

    matrix: np.ndarray = field(repr=False)
    truth: np.ndarray = field(repr=False)
    features: Mapping[str, np.ndarray] = field(repr=False)
    names: np.ndarray | None = field(default=None, repr=False)

    @cached_property
    def at(self) -> tuple[np.ndarray, np.ndarray]:
        """The two nodes of each pair."""
        row, column = np.triu_indices(len(self.matrix), 1)
        known = ~np.isnan(self.matrix[row, column])
        return row[known], column[known]

    @cached_property
    def scores(self) -> np.ndarray:
        """``[pairs]``."""
        return np.asarray(self.matrix[self.at])

    @cached_property
    def linked(self) -> np.ndarray:
        """``[pairs]`` booleans."""
        return np.asarray(self.truth[self.at])

    @cached_property
    def trivial(self) -> dict[str, np.ndarray]:
        """Name -> ``[pairs]`` what features say."""
        return {name: _cosines(x)[self.at] for name, x in self.features.items()}

    @property
    def links(self) -> int:
        """How many of these pairs are linked."""
        return int(self.linked.sum())

    @property
    def scored(self) -> intervals.Scored:
        """For the intervals."""
        return intervals.Scored(*self.at, self.linked, self.scores)

    def hit(self, scores: np.ndarray) -> np.ndarray:
        """For each link whether it is among the ``links`` best pairs, ties broken by chance."""
        return np.asarray(best(scores, self.links)[self.linked])

    def hits(self, scores: np.ndarray) -> int:
        """How many links are among the ``links`` best pairs: F1 at |E|, times |E|."""
        return int(self.hit(scores).sum())

    def placed(self, scores: np.ndarray) -> np.ndarray:
        """For each link the share of pairs without one that score lower; their mean is the AUC."""
        lower = rankdata(scores)[self.linked] - rankdata(scores[self.linked])
        return np.asarray(lower / max(len(scores) - self.links, 1))

    def drawn(self) -> Mapping[str, object]:
        """A node with its true and its guessed neighbours, for pictures."""
        row, column = self.at if self.names is None else (self.names[end] for end in self.at)
        return around(row, column, self.scores, self.linked)


def f1_at_links(pairs: Mapping[str, Pairs]) -> Judgement:
    """F1 of the best |E| pairs, among all pairs that the guess has a score for; precision equals recall then.

    In the interval pairs at one node count together, whichever owner has them.
    """
    hit = [(one.scored, one.hit(one.scores)) for one in pairs.values()]
    right, of = (sum(map(int, many)) for many in ([h.sum() for _, h in hit], [len(h) for _, h in hit]))
    names, scored = next(iter(pairs.values())).features, sum(len(one.scores) for one in pairs.values())
    trivial = {n: sum(one.hits(one.trivial[n]) for one in pairs.values()) / max(of, 1) for n in names}
    all_links = sum(int(one.truth.sum()) // 2 for one in pairs.values())
    score = Score(
        "f1 at |E|",
        right / max(of, 1),
        kind=ScoreKind.MEAN,
        **intervals.bounds(lambda error: intervals.hits_interval(hit, shared=True, error=error)),
        baselines={**trivial, "random pairs": of / max(scored, 1)},
        details={
            "auc": _auc([one.placed(one.scores) for one in pairs.values()]),
            "links": float(of),
            "pairs": float(scored),
            "share_of_links_in_these_pairs": of / max(all_links, 1),
        },
    )
    return Judgement(score, graphs={target: one.drawn() for target, one in pairs.items()})


def auc(pairs: Mapping[str, Pairs], shared: bool) -> Judgement:
    """AUC of the pairs' scores, linked against not linked; in the interval pairs at one node count together.

    Args:
        shared: whether owners share nodes by number.
    """
    names, of = next(iter(pairs.values())).features, sum(one.links for one in pairs.values())
    trivial = {n: _auc([one.placed(one.trivial[n]) for one in pairs.values()]) for n in names}
    scored = [one.scored for one in pairs.values()]
    score = Score(
        "link auc",
        _auc([one.placed(one.scores) for one in pairs.values()]),
        kind=ScoreKind.RANK,
        **intervals.bounds(lambda error: intervals.auc_interval(scored, shared=shared, error=error)),
        baselines={**trivial, "random pairs": 0.5},
        details={
            "f1_at_links": sum(one.hits(one.scores) for one in pairs.values()) / max(of, 1),
            "links": float(of),
        },
    )
    return Judgement(score, graphs={target: one.drawn() for target, one in pairs.items()})


def _auc(placed: list[np.ndarray]) -> float:
    shares = np.concatenate(placed)
    return float(shares.mean()) if len(shares) else 0.5


def _cosines(x: np.ndarray) -> np.ndarray:
    unit = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    return np.asarray(unit @ unit.T)
