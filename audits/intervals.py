"""95 % intervals of shares and ranks whose terms are not independent: of one node, message or mash."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import beta, rankdata


def share(right: float, of: float) -> tuple[float, float]:
    """Clopper and Pearson's, of independent terms.

    >>> [round(end, 3) for end in share(3, 5)]
    [0.147, 0.947]
    """
    low = float(beta.ppf(0.025, right, of - right + 1)) if right > 0 else 0.0
    return low, float(beta.ppf(0.975, right + 1, of - right)) if right < of else 1.0


def clustered_share(hits: np.ndarray, clusters: np.ndarray) -> tuple[float, float]:
    """The same of terms that come in clusters: for as many independent terms as have this variance.

    Where all terms agree their variance says nothing, and each cluster counts as one term.

    References:
        Korn and Graubard, Confidence intervals for proportions with small expected number of positive counts
        estimated from survey data, Survey Methodology 24, 1998.

    Args:
        hits: ``[terms]`` booleans.
        clusters: ``[terms]`` which cluster each is in.
    """
    if not len(hits):
        return 0.0, 1.0
    _, of = np.unique(clusters, return_inverse=True)
    many, right = int(of.max()) + 1, float(hits.mean())
    sums = np.bincount(of, weights=hits - right)
    variance = float(np.square(sums).sum()) / len(hits) ** 2 * many / max(many - 1, 1)
    return _effective(right, variance, len(hits), many)


def _effective(right: float, variance: float, terms: int, clusters: int) -> tuple[float, float]:
    if right in (0.0, 1.0) or clusters < 2:
        size = float(clusters)
    else:
        size = min(float(terms), right * (1 - right) / max(variance, 1e-300))
    return share(right * size, size)


@dataclass(frozen=True)
class Scored:
    """The pairs of one owner that a guess has a score for.

    Args:
        row, column: ``[pairs]`` the nodes.
        linked: ``[pairs]`` booleans.
        scores: ``[pairs]``.
    """

    row: np.ndarray = field(repr=False)
    column: np.ndarray = field(repr=False)
    linked: np.ndarray = field(repr=False)
    scores: np.ndarray = field(repr=False)


def hits_interval(owners: Iterable[tuple[Scored, np.ndarray]], shared: bool) -> tuple[float, float]:
    """Of the share of links that are hit; links at one node are not independent.

    Args:
        owners: the pairs of each, and ``[links]`` which of the linked ones are hit.
        shared: whether owners share nodes by number, so that a link of two owners is one.
    """
    owners = list(owners)
    hits = np.concatenate([hit for _, hit in owners]) if owners else np.zeros(0)
    if not len(hits):
        return 0.0, 1.0
    right = float(hits.mean())
    terms = [(one.row[one.linked], one.column[one.linked], (hit - right) / len(hits)) for one, hit in owners]
    ends = np.concatenate([np.concatenate([r, c]) + k * 10**9 for k, (r, c, _) in _numbered(terms, shared)])
    return _effective(right, _at_nodes(terms, shared), len(hits), max(1, len(np.unique(ends)) // 2))


def auc_interval(owners: Iterable[Scored], shared: bool) -> tuple[float, float]:
    """Of the mean over all links of the share of other pairs that score lower; pairs at one node go together.

    The influence of every pair is added up at its nodes (DeLong's terms, with Aronow, Samii and Assenova's
    variance of dyads, Political Analysis 23, 2015).

    Args:
        owners: the pairs of each.
        shared: as :func:`hits_interval`'s.
    """
    owners = [one for one in owners if one.linked.any() and not one.linked.all()]
    links = sum(int(one.linked.sum()) for one in owners)
    if not links:
        return 0.0, 1.0
    terms, value = [], 0.0
    for one in owners:
        mine, others = int(one.linked.sum()), int((~one.linked).sum())
        ranks = rankdata(one.scores)
        below = (ranks[one.linked] - rankdata(one.scores[one.linked])) / others
        above = 1 - (ranks[~one.linked] - rankdata(one.scores[~one.linked])) / mine
        area = float(below.mean())
        influence = np.empty(len(one.scores))
        influence[one.linked] = (below - area) / links
        influence[~one.linked] = (above - area) * mine / links / others
        value += area * mine / links
        terms.append((one.row, one.column, influence))
    error = 1.96 * float(np.sqrt(_at_nodes(terms, shared)))
    return max(0.0, value - error), min(1.0, value + error)


Term = tuple[np.ndarray, np.ndarray, np.ndarray]


def _numbered(terms: list[Term], shared: bool) -> list[tuple[int, Term]]:
    return [(0 if shared else number, term) for number, term in enumerate(terms)]


def _at_nodes(terms: list[Term], shared: bool) -> float:
    """The variance of the sum of all pairs' terms: pairs without a common node are independent."""
    found, alone = 0.0, 0.0
    for group in [terms] if shared else [[term] for term in terms]:
        nodes = 1 + max((int(max(r.max(initial=0), c.max(initial=0))) for r, c, _ in group), default=0)
        of_pairs = np.zeros((nodes, nodes))
        for row, column, value in group:
            of_pairs[np.minimum(row, column), np.maximum(row, column)] += value  # each once an owner
        at = of_pairs.sum(0) + of_pairs.sum(1)
        squares = float(np.square(of_pairs).sum())
        found += float(np.square(at).sum()) - squares
        alone += squares
    return max(found, alone)
