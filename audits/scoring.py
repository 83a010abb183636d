"""Judges: pure functions of a guess and the truth, with intervals and the trivial baselines beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from scipy.spatial.distance import cdist

from secure_fedgraph.audits import intervals
from secure_fedgraph.evaluation import roc_auc
from secure_fedgraph.experiment.schema.score_verdict import ScoreVerdict, beats_trivial, verdict_on

RESAMPLES = 1000
NO_LABEL = 0.01
"""Labels that a histogram may be off through the fixed-point grid alone; smaller errors count as this one."""
SAME = 0.01
"""A recovered row is exact where no feature is further than this from the node's."""


class ScoreKind(StrEnum):
    """What a score is made of.

    :mod:`~secure_fedgraph.audits.dp_bounds` takes a claimed epsilon's bound from the kind, never from the
    metric's name.
    """

    MEAN = "mean"
    """A mean of scores about single units, each between 0 and 1."""
    ROWS = "rows"
    """The share of rows that are right, where a row may be any node's; ``details["nodes"]`` is how many."""
    COSINE = "cosine"
    """A mean of cosines about single units, between -1 and 1."""
    JOINT = "joint"
    """One score of all targets taken together."""
    RANK = "rank"
    """How well scores separate units that are in from units that are not."""
    UNBOUNDED = "unbounded"
    """No epsilon bounds it: a share of what the guess chose to claim, or of what everybody holds anyway."""


@dataclass(frozen=True)
class Score:
    """How good a guess is.

    Args:
        metric: its name, for people alone; 1 is exact.
        kind: what it is made of.
        value: the score.
        low, high: a 95 % interval.
        baselines: what trivial guesses reach, by name.
        details: further figures.
        surely_at_least: a lower bound that is wrong once in ten thousand times, for ceilings; None of metrics
            that have none.
    """

    metric: str
    value: float
    low: float
    high: float
    baselines: Mapping[str, float]
    details: Mapping[str, float] = field(default_factory=dict)
    surely_at_least: float | None = None
    kind: ScoreKind = field(kw_only=True)

    @property
    def baseline(self) -> float:
        """The best of the trivial guesses."""
        return max(self.baselines.values())

    @property
    def leaks(self) -> bool:
        """Whether the guess is beyond the best trivial one: all of the interval is."""
        return beats_trivial(self.low, self.baseline)

    @property
    def verdict(self) -> ScoreVerdict:
        """In words: exact, a leak, or nothing beyond the trivial guess."""
        return verdict_on(self.value, self.baseline, self.leaks)


def share_right(
    metric: str,
    hits: Sequence[np.ndarray],
    terms: Sequence[np.ndarray],
    baselines: Mapping[str, float],
    details: Mapping[str, float],
    kind: ScoreKind = ScoreKind.UNBOUNDED,
) -> Score:
    """The share of guesses that are right; those of one term of the interval are dependent.

    Args:
        hits: by target ``[guesses]`` booleans; none where nothing was guessed.
        terms: by target ``[guesses]`` which term of the interval each is in.
    """
    hit = np.concatenate([np.zeros(0, dtype=bool), *hits])
    term = np.concatenate([np.zeros(0, dtype=int), *terms])
    return Score(
        metric,
        int(hit.sum()) / max(len(hit), 1),
        kind=kind,
        **intervals.bounds(lambda error: intervals.clustered_share(hit, term, error)),
        baselines=baselines,
        details=details,
    )


def independent(
    metric: str,
    right: float,
    of: float,
    baselines: Mapping[str, float],
    details: Mapping[str, float],
    kind: ScoreKind = ScoreKind.MEAN,
) -> Score:
    """The share of guesses that are right, which are independent of each other."""
    ends = intervals.bounds(lambda error: intervals.share(right, of, error))
    return Score(metric, right / max(of, 1), kind=kind, **ends, baselines=baselines, details=details)


def vocabulary(guesses: Mapping[str, np.ndarray], truths: Mapping[str, np.ndarray]) -> Score:
    """F1 of the guessed words over all owners; a word is guessed where its score is not zero.

    The baselines: every word; as many words as are true, drawn at random.

    Args:
        guesses: owner -> scores ``[words]``.
        truths: owner -> booleans ``[words]``.

    >>> truth = np.array([True, False, True, False])
    >>> vocabulary({"a": np.array([2.0, 0.0, 0.1, 0.0])}, {"a": truth}).value
    1.0
    """
    guess = np.concatenate([guesses[owner] > 0 for owner in truths])
    truth = np.concatenate([truths[owner] for owner in truths])
    scores = np.concatenate([guesses[owner] for owner in truths])
    guessed, true = np.stack([guesses[owner] > 0 for owner in truths]), np.stack(list(truths.values()))
    share = float(truth.mean())
    return Score(
        metric="f1",
        kind=ScoreKind.JOINT,
        value=float(_f1(guess, truth)),
        **intervals.bounds(lambda error: intervals.f1(guessed, true, error)),
        # a random guess that is right as often as words are true has precision and recall of that share
        baselines={"every word": float(_f1(np.ones_like(truth), truth)), "random words": share},
        details={
            "precision": float((guess & truth).sum() / max(guess.sum(), 1)),
            "recall": float((guess & truth).sum() / max(truth.sum(), 1)),
            # undefined, and left out, where every word is true or none is
            **({} if truth.all() or not truth.any() else {"auc": roc_auc(scores, truth)}),
            "words": float(truth.sum()),
        },
    )


def label_shares(
    guesses: Mapping[str, np.ndarray],
    truths: Mapping[str, np.ndarray],
    *,
    whole_counts: bool = True,
    whose: Mapping[str, str] | None = None,
) -> Score:
    """The share of labels that a guessed histogram puts in the right class, mean over owners.

    ``1 - L1 / 2`` of the histograms. The baselines: equal classes; the mean of the other owners' true shares,
    which is what somebody without a transcript could know.

    The interval is over owners (:func:`~secure_fedgraph.audits.intervals.mean_share`), unless the guess is
    nearer than chance allows: then the score itself is both ends.

    Args:
        guesses: owner -> estimated class shares ``[classes]``.
        truths: owner -> true counts ``[classes]``.
        whole_counts: round the guess to whole labels first, as the truth is; not for a mean of owners.
        whose: histogram -> owner, where owners have several; those of one owner count together.
    """
    right, equal, others, missed, taken = [], [], [], 0.0, 0.0
    for owner, counts in truths.items():
        size = counts.sum()
        guess = np.clip(guesses[owner], 0, None)
        guess = np.rint(guess * size) if whole_counts else guess * size
        right.append(1 - min(np.abs(guess - counts).sum() / size / 2, 1.0))
        equal.append(1 - np.abs(1 / counts.size - counts / size).sum() / 2)
        rest = [c / c.sum() for name, c in truths.items() if name != owner]
        if rest:
            others.append(1 - np.abs(np.mean(rest, axis=0) - counts / size).sum() / 2)
        missed += float(np.abs(guess - counts).sum())
        taken += float(size)
    value, near = float(np.mean(right)), _so_near_by_chance(guesses, truths)
    owners = np.array([whose[name] if whose else name for name in truths])

    def interval(error: float) -> tuple[float, float]:
        if near <= error:
            return value, value
        return intervals.mean_share(np.array(right), owners, taken, error)

    baselines = {"equal classes": float(np.mean(equal))}
    if others:
        baselines["the other owners' mean"] = float(np.mean(others))
    return Score(
        metric="labels placed right",
        kind=ScoreKind.MEAN,
        value=value,
        **intervals.bounds(interval),
        baselines=baselines,
        details={"l1_labels": missed, "labels": taken},
    )


def _so_near_by_chance(guesses: Mapping[str, np.ndarray], truths: Mapping[str, np.ndarray]) -> float:
    """At most how often a random guess is as near as this; it is spread over a label or more in each class.

    A histogram with a known sum has one free number less than classes. Those that are within ``off`` labels
    of the truth fill a volume of at most ``off ** free``. Where a guess is in whole labels, each number is
    right at most every other time. A class that is exactly zero in the guess (as after a clip) does not
    count.
    """
    off, free, whole = 0.0, 0, True
    for owner, counts in truths.items():
        guess = np.asarray(guesses[owner], dtype=np.float64) * counts.sum()  # neither clipped nor rounded
        off += float(np.abs(guess - counts).sum())
        free += max(int(np.count_nonzero(guess)) - 1, 0)
        whole = whole and bool((np.abs(guess - np.rint(guess)) < 1e-9).all())
    least = 0.5 if whole else NO_LABEL
    return float(max(off, least) ** free) if off < 1 else 1.0


@dataclass(frozen=True)
class MatchedRows:
    """Recovered rows compared with an owner's nodes.

    Args:
        rows: ``[recovered, words]``; rows that were not recovered are left out.
        expected: how many were asked for.
        nearest: for each row the nearest node.
        exact: for each row whether it is that node's, in every word.
        cosine: for each row that with the nearest node's.
    """

    rows: np.ndarray = field(repr=False)
    expected: int
    nearest: np.ndarray = field(repr=False)
    exact: np.ndarray = field(repr=False)
    cosine: np.ndarray = field(repr=False)

    def distinct(self) -> np.ndarray:
        """The first row of each node that was recovered, exact ones first."""
        order = np.argsort(~self.exact, kind="stable")
        _, first = np.unique(self.nearest[order], return_index=True)
        return order[np.sort(first)]


def match_rows(guess: np.ndarray, nodes: np.ndarray) -> MatchedRows:
    """Finds the nearest node of each recovered row.

    Args:
        guess: ``[asked for, words]``, NaN in rows that were not recovered.
        nodes: ``[nodes, words]``, of the owners that the guess is about.

    >>> held = match_rows(np.array([[1.0, 0.0], [np.nan, np.nan]]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> held.exact.tolist(), held.nearest.tolist(), held.expected
    ([True], [1], 2)
    """
    rows = guess[~np.isnan(guess).any(1)].astype(np.float64)
    if not len(rows):
        none = np.zeros(0)
        return MatchedRows(rows, len(guess), none.astype(int), none.astype(bool), none)
    nearest = cdist(rows, nodes).argmin(1)
    matched = nodes[nearest].astype(np.float64)
    return MatchedRows(rows, len(guess), nearest, np.abs(rows - matched).max(1) < SAME, cosine(rows, matched))


def recovered_rows(targets: Mapping[str, MatchedRows], sizes: Mapping[str, int], public: np.ndarray) -> Score:
    """The share of the rows asked for that were recovered in every word; a row that was not counts as wrong.

    The interval is Clopper and Pearson's, where rows that are nearest to one node are one term. The
    baselines: :func:`trivial_rows`. One node may be nearest to many rows, so the details also have the number
    of distinct nodes, and which share of the owners' nodes they are.

    Args:
        targets: target -> recovered rows.
        sizes: target -> how many nodes the owners of a target have.
        public: ``[nodes, words]``, of which the trivial guesses know the base rates.
    """
    asked = sum(held.expected for held in targets.values())
    right = sum(int(held.exact.sum()) for held in targets.values())
    recovered = sum(len(held.rows) for held in targets.values())
    distinct = sum(len(np.unique(held.nearest[held.exact])) for held in targets.values())
    hits, nodes = _of_nodes(targets.values())
    rates = public.mean(0)
    cosines = np.concatenate([held.cosine for held in targets.values()])
    mean = cosine(np.broadcast_to(rates, public.shape), public.astype(np.float64)).mean()
    return Score(
        metric="exact rows",
        kind=ScoreKind.ROWS,
        value=right / asked if asked else 0.0,
        **intervals.bounds(lambda error: intervals.clustered_share(hits, nodes, error)),
        baselines=trivial_rows(public),
        details={
            "exact_rows": float(right),
            "found": float(recovered),
            "asked_for": float(asked),
            "distinct_nodes": float(distinct),
            "coverage": distinct / max(sum(sizes.values()), 1),
            "nodes": float(max(sizes.values(), default=0)),  # that a row may be
            # the score of a node drawn from a pool of everybody's: no attack is granted such a pool
            "by_any_node_of_the_data": max(sizes.values(), default=0) / max(len(public), 1),
            "mean_cosine": float(cosines.mean()) if len(cosines) else 0.0,
            "cosine_of_the_mean_node": float(mean),
        },
    )


def _of_nodes(targets: Iterable[MatchedRows]) -> tuple[np.ndarray, np.ndarray]:
    """Whether each row is exact, and its node; a row that was not recovered has a node of its own."""
    hits, of, start = [np.zeros(0, dtype=bool)], [np.zeros(0, dtype=int)], 0
    for held in targets:
        missing = held.expected - len(held.rows)
        hits += [held.exact, np.zeros(missing, dtype=bool)]
        nearest = np.concatenate([held.nearest, held.nearest.max(initial=-1) + 1 + np.arange(missing)])
        of.append(start + nearest.astype(int))
        start = int(of[-1].max(initial=start)) + 1
    return np.concatenate(hits), np.concatenate(of)


def trivial_rows(public: np.ndarray) -> dict[str, float]:
    """How often rows are exact that are guessed from the data's base rates alone.

    Of words: the mean node, rounded, and words drawn at their rates. Of other features: the mean node as it
    is, and a node whose features are drawn from each column by itself.

    >>> trivial_rows(np.array([[0.5, 2.0], [0.5, 2.0]]))
    {'the mean node': 1.0, 'random values of each column': 1.0}
    """
    rates, rng = public.mean(0), np.random.default_rng(0)
    if words_only(public):
        known = {row.tobytes() for row in np.packbits(public > 0, axis=1)}
        drawn = rng.random((RESAMPLES, len(rates))) < rates
        return {
            "the mean node, rounded": float((np.abs(public - rates.round()).max(1) < SAME).mean()),
            "random words at their rates": float(
                np.mean([row.tobytes() in known for row in np.packbits(drawn, axis=1)])
            ),
        }
    made = drawn_rows(public, RESAMPLES, rng)
    return {
        "the mean node": float((np.abs(public - rates).max(1) < SAME).mean()),
        "random values of each column": float((cdist(made, public, "chebyshev").min(1) < SAME).mean()),
    }


def words_only(public: np.ndarray) -> bool:
    """Whether all features are 0 or 1."""
    return bool(((public == 0) | (public == 1)).all())


def drawn_rows(public: np.ndarray, rows: int, rng: np.random.Generator) -> np.ndarray:
    """``[rows, features]``: each feature is drawn from its column by itself."""
    return rng.permuted(public[rng.integers(0, len(public), rows)], axis=0)


def cosine(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The cosine of each row of one with the same row of the other; 0 where either is zero."""
    size = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.asarray((one * other).sum(1) / np.maximum(size, 1e-12))


def _f1(guess: np.ndarray, truth: np.ndarray) -> np.ndarray:
    hits = (guess & truth).sum(-1)
    return np.asarray(2 * hits / np.maximum(guess.sum(-1) + truth.sum(-1), 1))
