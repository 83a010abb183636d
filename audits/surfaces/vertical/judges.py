"""Judges of attacks on data split by columns: links among all pairs, rows, labels of nodes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.stats import rankdata

from secure_fedgraph.attacks.attack import Guess
from secure_fedgraph.attacks.vertical.labels import CLUSTERS, NODE_LABELS
from secure_fedgraph.attacks.vertical.lists import LINKS
from secure_fedgraph.attacks.vertical.rows import ALIKE, ROWS
from secure_fedgraph.audits import intervals
from secure_fedgraph.audits.empirical_dp.neighbourhoods import around
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.judgement import Judge, Judgement
from secure_fedgraph.audits.scoring import Score, ScoreKind
from secure_fedgraph.audits.surfaces.vertical.knowledge import begun

SAME = 1e-6
"""The error of an exact entry, at most, relative to the largest entry of the true rows."""
SHOWN = 12


class Pairs:
    """All pairs that one guess has a score for, with the truth.

    Args:
        scores: ``[nodes, nodes]``, symmetric, NaN where nothing was guessed.
        linked: ``[nodes, nodes]`` booleans.
        alike: name -> features ``[nodes, words]``, whose cosines are a trivial guess.
    """

    def __init__(self, scores: np.ndarray, linked: np.ndarray, alike: Mapping[str, np.ndarray]) -> None:
        row, column = np.triu_indices(len(scores), 1)
        known = ~np.isnan(scores[row, column])
        row, column = row[known], column[known]
        self.row, self.column = row, column
        self.scores, self.linked = scores[row, column], linked[row, column]
        self.all_links = int(linked.sum()) // 2
        self.trivial = {name: _cosine(x)[row, column] for name, x in alike.items()}

    @property
    def links(self) -> int:
        """How many of these pairs are linked."""
        return int(self.linked.sum())

    @property
    def scored(self) -> intervals.Scored:
        """For the intervals."""
        return intervals.Scored(self.row, self.column, self.linked, self.scores)

    def hit(self, scores: np.ndarray) -> np.ndarray:
        """For each link whether it is among the ``links`` best pairs, ties broken by chance."""
        tie = np.random.default_rng(0).random(len(scores))
        best = np.zeros(len(scores), dtype=bool)
        best[np.lexsort((tie, -scores))[: self.links]] = True
        hits: np.ndarray = best[self.linked]
        return hits

    def hits(self, scores: np.ndarray) -> int:
        """How many links are among the ``links`` best pairs: F1 at |E|, times |E|."""
        return int(self.hit(scores).sum())

    def placed(self, scores: np.ndarray) -> np.ndarray:
        """For each link the share of pairs without one that score lower; their mean is the AUC."""
        ranks = rankdata(scores)
        lower = ranks[self.linked] - rankdata(scores[self.linked])
        shares: np.ndarray = lower / max(len(scores) - self.links, 1)
        return shares


def links(guess: Guess, finished: FinishedRun) -> Judgement:
    """F1 of the best |E| pairs, among all pairs that the guess has a score for; precision equals recall then.

    In the interval pairs at one node count together, whichever owner has them.
    """
    pairs = _pairs(guess, finished)
    of = sum(one.links for one in pairs.values())
    right = sum(one.hits(one.scores) for one in pairs.values())
    hit = [(one.scored, one.hit(one.scores)) for one in pairs.values()]
    trivial = {n: sum(one.hits(one.trivial[n]) for one in pairs.values()) / max(of, 1) for n in _names(pairs)}
    density = of / max(sum(len(one.scores) for one in pairs.values()), 1)
    details = {
        "auc": _auc(pairs),
        "links": float(of),
        "pairs": float(sum(len(one.scores) for one in pairs.values())),
        "share_of_links_in_these_pairs": of / max(sum(one.all_links for one in pairs.values()), 1),
    }
    score = Score(
        "f1 at |E|",
        right / max(of, 1),
        kind=ScoreKind.MEAN,
        **intervals.bounds(lambda error: intervals.hits_interval(hit, shared=True, error=error)),
        baselines={**trivial, "random pairs": density},
        details=details,
    )
    return _judgement(score, pairs)


def alike(guess: Guess, finished: FinishedRun) -> Judgement:
    """AUC of the pairs' scores, linked against not linked.

    In the interval pairs at one node count together.
    """
    pairs = _pairs(guess, finished)
    placed = np.concatenate([one.placed(one.scores) for one in pairs.values()])
    scored = [one.scored for one in pairs.values()]
    trivial = {
        n: float(np.concatenate([one.placed(one.trivial[n]) for one in pairs.values()]).mean())
        for n in _names(pairs)
    }
    of = sum(one.links for one in pairs.values())
    hits = sum(one.hits(one.scores) for one in pairs.values()) / max(of, 1)
    details = {"f1_at_links": hits, "links": float(of)}
    baselines = {**trivial, "random pairs": 0.5}
    score = Score(
        "link auc",
        float(placed.mean()),
        kind=ScoreKind.RANK,
        **intervals.bounds(lambda error: intervals.auc_interval(scored, shared=True, error=error)),
        baselines=baselines,
        details=details,
    )
    return _judgement(score, pairs)


def rows(guess: Guess, finished: FinishedRun) -> Judgement:
    """Rows of the first iteration: the share of entries that are exact to a millionth of the largest.

    The truth of a guess about several owners is their mean. Trivial: zeros. In the interval a node's entries
    count together.
    """
    made = begun(finished).rows
    true = {t: np.mean([made[o] for o in owners], axis=0) for t, owners in guess.targets.items()}
    off = {t: np.abs(guess.values[t] - true[t]) for t in true}
    scale = max(float(np.abs(value).max()) for value in true.values())
    all_off = np.concatenate([value.ravel() for value in off.values()])
    whole = np.concatenate([value.ravel() for value in true.values()])
    exact = all_off <= SAME * scale
    nodes = np.concatenate([np.repeat(np.arange(len(value)), value.shape[1]) for value in off.values()])
    single = {
        f"largest_error_about_{owner}": float(np.abs(guess.values[t] - made[owner]).max())
        for t, owners in guess.targets.items()
        if len(owners) > 1
        for owner in owners
    }
    score = Score(
        "exact entries",
        int(exact.sum()) / len(all_off),
        kind=ScoreKind.MEAN,
        **intervals.bounds(lambda error: intervals.clustered_share(exact, nodes, error)),
        baselines={"zeros": float((np.abs(whole) <= SAME * scale).mean())},
        details={"largest_error": float(all_off.max()), "largest_entry": scale, **single},
    )
    few = {t: np.round(value[:4], 4) for t, value in true.items()}
    return Judgement(score, few, {t: np.round(guess.values[t][:4], 4) for t in few})


def node_labels(guess: Guess, finished: FinishedRun) -> Judgement:
    """The share of right classes among the nodes whose class was guessed."""
    return _labels(guess, finished, named=True)


def clusters(guess: Guess, finished: FinishedRun) -> Judgement:
    """Purity: the share of nodes whose cluster's commonest class is theirs."""
    return _labels(guess, finished, named=False)


def _labels(guess: Guess, finished: FinishedRun, *, named: bool) -> Judgement:
    common, chance, true, guessed = 0, 0, {}, {}
    hits, nodes = [np.zeros(0, dtype=bool)], [np.zeros(0, dtype=int)]
    classes = finished.federation.schema.classes
    rng = np.random.default_rng(0)
    for target, owners in guess.targets.items():
        labels = finished.federation.owners[owners[0]].y.numpy()
        nodes_guessed = np.flatnonzero(guess.values[target] >= 0)
        y, predicted = labels[nodes_guessed], guess.values[target][nodes_guessed].astype(int)
        if not named:
            shuffled = rng.permutation(predicted)
            chance += int((_commonest(shuffled, y, classes)[shuffled] == y).sum())
            predicted = _commonest(predicted, y, classes)[predicted]
        hits.append(predicted == y)
        nodes.append(nodes_guessed)
        common += int(np.bincount(y, minlength=classes).max()) if len(y) else 0
        true[target], guessed[target] = y[:SHOWN], predicted[:SHOWN]
    # owners share nodes and labels: guesses about one node of several owners are one term of the interval
    hit, node = np.concatenate(hits), np.concatenate(nodes)
    right, of = int(hit.sum()), len(hit)
    baselines = {"the commonest class": common / max(of, 1)}
    if not named:
        baselines["clusters drawn by chance"] = chance / max(of, 1)
    score = Score(
        "labels right" if named else "purity",
        right / max(of, 1),
        kind=ScoreKind.UNBOUNDED,
        **intervals.bounds(lambda error: intervals.clustered_share(hit, node, error)),
        baselines=baselines,
        details={"nodes": float(of)},
    )
    return Judgement(score, true, guessed)


def _commonest(answers: np.ndarray, y: np.ndarray, classes: int) -> np.ndarray:
    table = np.zeros((answers.max(initial=0) + 1, classes), dtype=int)
    np.add.at(table, (answers, y), 1)
    labels: np.ndarray = table.argmax(1)
    return labels


def _pairs(guess: Guess, finished: FinishedRun) -> dict[str, Pairs]:
    owners, pairs = finished.federation.owners, {}
    for target, about in guess.targets.items():
        nodes = int(owners[about[0]].num_nodes)
        scores = np.full((nodes, nodes), np.nan, dtype=np.float32)
        given = guess.values[target]
        scores[: len(given), : len(given)] = given
        linked = np.zeros((nodes, nodes), dtype=bool)
        for owner in about:
            row, column = owners[owner].edge_index.numpy()
            linked[row, column] = True
        np.fill_diagonal(linked, False)
        of_target = np.concatenate([owners[o].x.numpy() for o in about], axis=1)
        everything = np.concatenate([graph.x.numpy() for graph in owners.values()], axis=1)
        trivial = {"cosine of the owner's features": of_target, "cosine of all features": everything}
        pairs[target] = Pairs(scores, linked, trivial)
    return pairs


def _names(pairs: Mapping[str, Pairs]) -> list[str]:
    return list(next(iter(pairs.values())).trivial)


def _auc(pairs: Mapping[str, Pairs]) -> float:
    return float(np.concatenate([one.placed(one.scores) for one in pairs.values()]).mean())


def _cosine(x: np.ndarray) -> np.ndarray:
    unit = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    cosines: np.ndarray = unit @ unit.T
    return cosines


def _judgement(score: Score, pairs: Mapping[str, Pairs]) -> Judgement:
    """The best pairs of each target: whether they are linked, beside the guess, which says that all are."""
    true, guessed = {}, {}
    for target, one in pairs.items():
        best = np.argsort(-one.scores)[:SHOWN]
        true[target] = one.linked[best].astype(int)
        guessed[target] = np.ones(len(best), dtype=int)
    graphs = {t: around(one.row, one.column, one.scores, one.linked) for t, one in pairs.items()}
    return Judgement(score, true, guessed, graphs)


JUDGES: Mapping[str, Judge] = {
    LINKS: links,
    ALIKE: alike,
    ROWS: rows,
    NODE_LABELS: node_labels,
    CLUSTERS: clusters,
}
