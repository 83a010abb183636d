"""Intervals of terms that go together cover as often as they say; those of independent terms would not."""

from __future__ import annotations

import numpy as np
import pytest

from audits import intervals
from audits.scoring import hold, label_shares, recovered_rows


def covered(found: list[tuple[float, float]], truth: float) -> float:
    return float(np.mean([low <= truth <= high for low, high in found]))


def test_a_cluster_counts_as_one_term_where_it_is_all_or_nothing():
    rng, clustered, plain = np.random.default_rng(0), [], []
    for _ in range(300):
        hits = np.repeat(rng.random(30) < 0.4, 20)
        clustered.append(intervals.clustered_share(hits, np.repeat(np.arange(30), 20)))
        plain.append(intervals.share(float(hits.sum()), len(hits)))
    assert covered(clustered, 0.4) >= 0.92
    assert covered(plain, 0.4) < 0.5


def test_single_terms_have_clopper_and_pearsons_interval():
    hits = np.arange(200) < 90
    low, high = intervals.clustered_share(hits, np.arange(200))
    assert (low, high) == pytest.approx(intervals.share(90, 200), abs=2e-3)


def test_where_all_agree_each_cluster_is_one_term():
    low, high = intervals.clustered_share(np.ones(1000, dtype=bool), np.arange(1000) // 100)
    assert (low, high) == intervals.share(10, 10) and low < 0.75
    assert intervals.clustered_share(np.zeros(0, dtype=bool), np.zeros(0)) == (0.0, 1.0)


def drawn(rng: np.random.Generator, nodes: int = 40) -> intervals.Scored:
    """Pairs whose scores are a matter of their nodes: a hub's pairs are high or low together."""
    of_node = rng.normal(size=nodes)
    row, column = np.triu_indices(nodes, 1)
    linked = rng.random(len(row)) < 0.1
    scores = of_node[row] + of_node[column] + 0.5 * rng.normal(size=len(row)) + 1.0 * linked
    return intervals.Scored(row, column, linked, scores)


def test_pairs_at_one_node_are_not_independent():
    rng, found, plain, areas = np.random.default_rng(1), [], [], []
    for _ in range(200):
        one = drawn(rng)
        found.append(intervals.auc_interval([one], shared=True))
        ranks = np.argsort(np.argsort(one.scores))
        placed = [np.mean(ranks[~one.linked] < r) for r in ranks[one.linked]]
        areas.append(np.mean(placed))
        error = 1.96 * np.std(placed) / len(placed) ** 0.5
        plain.append((areas[-1] - error, areas[-1] + error))
    truth = float(np.mean(areas))
    assert covered(found, truth) >= 0.9
    assert all(low <= area <= high for area, (low, high) in zip(areas, found, strict=True))


def test_a_link_that_several_owners_hold_is_one():
    one = drawn(np.random.default_rng(2))
    alone = intervals.auc_interval([one], shared=True)
    same = intervals.auc_interval([one, one, one], shared=True)
    other = intervals.auc_interval([one, one, one], shared=False)
    assert same == pytest.approx(alone)
    assert other[1] - other[0] == pytest.approx((alone[1] - alone[0]) / 3**0.5)
    hit = one.scores[one.linked] > np.median(one.scores)
    assert intervals.hits_interval([(one, hit)] * 3, shared=True) == pytest.approx(
        intervals.hits_interval([(one, hit)], shared=True), abs=0.02
    )


def test_one_histogram_has_an_interval_and_no_point():
    score = label_shares({"all": np.array([0.55, 0.45])}, {"all": np.array([60.0, 40.0])})
    assert score.value == pytest.approx(0.95)
    assert score.low < 0.91 and score.high > 0.97


def test_rows_of_one_node_are_one_term_and_what_was_not_found_is_missed():
    nodes = np.eye(4)
    guess = np.concatenate([np.repeat(nodes[:1], 30, axis=0), np.full((30, 4), np.nan)])
    held = {"a": hold(guess, nodes), "b": hold(nodes[[2, 2]], nodes)}
    score = recovered_rows(held, {"a": 4, "b": 4}, nodes)
    assert score.value == 32 / 62
    plain = intervals.share(32, 62)
    assert score.low < plain[0] and score.high >= plain[1]
    assert score.details["nodes"] == 4 and score.details["by_any_node_of_the_data"] == 1.0
