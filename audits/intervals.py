"""Intervals of shares, means and ranks, where terms of one owner, node, message or mash are dependent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np
from scipy.stats import beta, norm, rankdata
from scipy.stats import t as student

EITHER_END = 0.025
"""How often the truth may be beyond either end of an interval: 95 % intervals."""
ACCUSATION = 1e-4
"""How often a bound may be wrong by which code is said to break its claim: an audit has hundreds of cells."""


class Bounds(TypedDict):
    """What a score keeps of its interval."""

    low: float
    high: float
    surely_at_least: float


def bounds(interval: Callable[[float], tuple[float, float]]) -> Bounds:
    """The 95 % interval, and the lower end that a ceiling is held against.

    Args:
        interval: how often either end may be wrong -> both ends.
    """
    (low, high), (surely, _) = interval(EITHER_END), interval(ACCUSATION)
    return {"low": low, "high": high, "surely_at_least": surely}


def share(right: float, of: float, error: float = EITHER_END) -> tuple[float, float]:
    """Clopper and Pearson's interval, of independent terms.

    >>> [round(end, 3) for end in share(3, 5)]
    [0.147, 0.947]
    """
    low = float(beta.ppf(error, right, of - right + 1)) if right > 0 else 0.0
    return low, float(beta.ppf(1 - error, right + 1, of - right)) if right < of else 1.0


def clustered_share(hits: np.ndarray, clusters: np.ndarray, error: float = EITHER_END) -> tuple[float, float]:
    """The same of terms in clusters: it is that of as many independent terms as have this variance.

    Where all terms agree, their variance is of no use, and each cluster counts as one term.

    References:
        Korn and Graubard, Confidence intervals for proportions with small expected number of positive counts
        estimated from survey data, Survey Methodology 24, 1998.

    Args:
        hits: ``[terms]`` booleans.
        clusters: ``[terms]`` which cluster each is in.
    """
    if not len(hits):
        return 0.0, 1.0
    variance, many = _between(hits, clusters)
    return _effective(float(hits.mean()), variance, len(hits), many, error)


def mean_share(
    shares: np.ndarray, clusters: np.ndarray, terms: float, error: float = EITHER_END
) -> tuple[float, float]:
    """The same of a mean of shares, each of several terms; never narrower than if all were independent.

    So shares that agree by chance still have a variance. One cluster shows none: its interval is all of [0,
    1].

    Args:
        shares: ``[shares]``.
        clusters: ``[shares]`` which cluster each is in.
        terms: of how many terms they are, together.
    """
    variance, many = _between(shares, clusters)
    if many < 2:
        return 0.0, 1.0
    mean = float(np.mean(shares))
    size = min(terms, mean * (1 - mean) / max(variance, 1e-300)) if 0 < mean < 1 else terms
    size *= _worth(many, error)
    return share(mean * size, size, error)


def f1(guess: np.ndarray, truth: np.ndarray, error: float = EITHER_END) -> tuple[float, float]:
    """The same of an F1 over owners' words, a word with all owners being a cluster.

    F1 is a ratio of sums over words; its variance is that of the ratio's linear part.

    Args:
        guess, truth: ``[owners, words]`` booleans.
    """
    hits, of = 2.0 * (guess & truth).sum(0), (guess.sum(0) + truth.sum(0)).astype(float)
    words, whole = len(of), max(float(of.sum()), 1.0)
    value = float(hits.sum()) / whole
    variance = float(np.square(hits - value * of).sum()) / whole**2 * words / max(words - 1, 1)
    return _effective(value, variance, int((guess | truth).sum()), words, error)


def mean(values: Sequence[float] | np.ndarray, error: float = EITHER_END) -> tuple[float, float]:
    """Student's interval of the mean of independent values; of one value it has no ends."""
    middle, many = float(np.mean(values)), len(values)
    if many < 2:
        return -np.inf, np.inf
    far = float(student.ppf(1 - error, many - 1)) * float(np.std(values, ddof=1)) / many**0.5
    return middle - far, middle + far


def mean_cosine(values: Sequence[float] | np.ndarray, error: float = EITHER_END) -> tuple[float, float]:
    """The same of cosines, which are between -1 and 1."""
    low, high = mean(values, error)
    return max(-1.0, low), min(1.0, high)


def area(
    value: float,
    variance: float,
    terms: int,
    of_groups: Sequence[float],
    error: float = EITHER_END,
    by_coins: bool = False,
) -> tuple[float, float]:
    """The wider of an AUC's own normal interval and Student's over the groups' AUCs.

    Args:
        terms: how many are of the rarer kind; where the area is exact they are terms that all agree.
        of_groups: the groups' own areas, of which the value is about the mean.
        by_coins: independent coins decided who is of which kind. Then the AUC's own interval is right where
            nothing leaks, and the groups' spread is taken as if it were known.
    """
    if min(value, 1 - value) < 1e-9:
        return share(round(value) * terms, terms, error)
    normal, many = float(norm.ppf(1 - error)), len(of_groups)
    far = normal * variance**0.5
    if many > 1:
        quantile = normal if by_coins else float(student.ppf(1 - error, many - 1))
        far = max(far, quantile * float(np.std(of_groups, ddof=1)) / many**0.5)
    return max(0.0, value - far), min(1.0, value + far)


def delong(inside: np.ndarray, outside: np.ndarray) -> tuple[float, float]:
    """The AUC of two lists of scores and its variance, by DeLong, DeLong and Clarke-Pearson (1988)."""
    yes, no = np.sort(inside), np.sort(outside)
    above = (np.searchsorted(no, inside) + np.searchsorted(no, inside, "right")) / 2 / len(no)
    below = 1 - (np.searchsorted(yes, outside) + np.searchsorted(yes, outside, "right")) / 2 / len(yes)
    return float(above.mean()), float(above.var() / len(yes) + below.var() / len(no))


def _between(values: np.ndarray, clusters: np.ndarray) -> tuple[float, int]:
    """The variance of the values' mean by the differences between clusters, and the number of clusters."""
    _, of = np.unique(clusters, return_inverse=True)
    many = int(of.max()) + 1
    sums = np.bincount(of, weights=values - np.mean(values))
    return float(np.square(sums).sum()) / len(values) ** 2 * many / max(many - 1, 1), many


def _worth(clusters: int, error: float) -> float:
    """What a term is worth where the variance is known from few clusters: Korn and Graubard's factor."""
    return float((norm.ppf(1 - error) / student.ppf(1 - error, clusters - 1)) ** 2)


def _effective(right: float, variance: float, terms: int, clusters: int, error: float) -> tuple[float, float]:
    if right in (0.0, 1.0) or clusters < 2:
        size = float(clusters)
    else:
        size = min(float(terms), right * (1 - right) / max(variance, 1e-300)) * _worth(clusters, error)
    return share(right * size, size, error)


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


def hits_interval(
    owners: Iterable[tuple[Scored, np.ndarray]], shared: bool, error: float = EITHER_END
) -> tuple[float, float]:
    """The interval of the share of links that are hit; links at one node are not independent.

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
    return _effective(right, _at_nodes(terms, shared), len(hits), _apart(terms, shared), error)


def auc_interval(owners: Iterable[Scored], shared: bool, error: float = EITHER_END) -> tuple[float, float]:
    """The interval of an AUC: the mean over all links of the share of other pairs that score lower.

    Pairs at one node count together: the influence of every pair is added up at its nodes (DeLong's terms,
    with Aronow, Samii and Assenova's variance of dyads, Political Analysis 23, 2015).

    Args:
        owners: the pairs of each.
        shared: as :func:`hits_interval`'s.
    """
    owners = [one for one in owners if one.linked.any() and not one.linked.all()]
    links = sum(int(one.linked.sum()) for one in owners)
    if not links:
        return 0.0, 1.0
    terms, value, linked = [], 0.0, []
    for one in owners:
        mine, others = int(one.linked.sum()), int((~one.linked).sum())
        ranks = rankdata(one.scores)
        below = (ranks[one.linked] - rankdata(one.scores[one.linked])) / others
        above = 1 - (ranks[~one.linked] - rankdata(one.scores[~one.linked])) / mine
        of_one = float(below.mean())
        influence = np.empty(len(one.scores))
        influence[one.linked] = (below - of_one) / links
        influence[~one.linked] = (above - of_one) * mine / links / others
        value += of_one * mine / links
        terms.append((one.row, one.column, influence))
        linked.append((one.row[one.linked], one.column[one.linked], influence[one.linked]))
    return area(value, _at_nodes(terms, shared), _apart(linked, shared), (), error)


Term = tuple[np.ndarray, np.ndarray, np.ndarray]


def _apart(links: list[Term], shared: bool) -> int:
    """How many links so many nodes would have if no two links shared a node."""
    step = 0 if shared else 10**9
    ends = np.concatenate([np.concatenate([r, c]) + k * step for k, (r, c, _) in enumerate(links)])
    return max(1, len(np.unique(ends)) // 2)


def _at_nodes(terms: list[Term], shared: bool) -> float:
    """The variance of the sum of all pairs' terms: pairs without a common node are independent."""
    joint, alone = 0.0, 0.0
    for group in [terms] if shared else [[term] for term in terms]:
        nodes = 1 + max((int(max(r.max(initial=0), c.max(initial=0))) for r, c, _ in group), default=0)
        of_pairs = np.zeros((nodes, nodes))
        for row, column, value in group:
            of_pairs[np.minimum(row, column), np.maximum(row, column)] += value  # each once an owner
        at = of_pairs.sum(0) + of_pairs.sum(1)
        squares = float(np.square(of_pairs).sum())
        joint += float(np.square(at).sum()) - squares
        alone += squares
    return max(joint, alone)
