"""Intervals of terms that go together cover as often as they say; those of independent terms would not."""

from __future__ import annotations

import numpy as np
import pytest

from secure_fedgraph.audits import intervals
from secure_fedgraph.audits.dp_bounds import most
from secure_fedgraph.audits.scoring import label_shares, match_rows, recovered_rows


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


def test_one_histogram_may_be_right_by_chance():
    score = label_shares({"all": np.array([0.55, 0.45])}, {"all": np.array([60.0, 40.0])})
    assert score.value == pytest.approx(0.95)
    assert (score.low, score.high) == (0.0, 1.0)


@pytest.mark.parametrize("owners", [1, 2, 3, 5, 10])
def test_guesses_without_a_transcript_are_no_leaks_and_refute_nothing(owners: int):
    """Truths and guesses are drawn from one population; the guess is a mean of as many as the trivial one."""
    rng, prior = np.random.default_rng(owners), np.array([6.0, 4.0, 3.0, 3.0, 2.0, 1.0, 1.0])
    leaks, above, repeats = 0, 0, 300
    for _ in range(repeats):
        drawn = rng.multinomial(60, rng.dirichlet(prior, (owners, max(owners, 2)))).astype(float)
        truths = {f"owner-{i}": counts[0] for i, counts in enumerate(drawn)}
        guesses = {f"owner-{i}": counts[1:].mean(0) / 60 for i, counts in enumerate(drawn)}
        score = label_shares(guesses, truths)
        assert score.surely_at_least is not None and score.surely_at_least <= score.low
        leaks += score.leaks
        above += score.surely_at_least > most(score.baseline, ((0.01, 1e-5),))
    assert leaks <= intervals.EITHER_END * repeats
    assert above == 0


def test_what_a_transcript_gives_is_still_a_leak_of_three_owners():
    rng = np.random.default_rng(0)
    shares = ([0.6, 0.2, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.2, 0.1, 0.1, 0.6])
    truths = {f"owner-{i}": rng.multinomial(60, share).astype(float) for i, share in enumerate(shares)}
    off = {owner: (counts + rng.normal(0, 1, 4)) / 60 for owner, counts in truths.items()}
    blurred = label_shares(off, truths)
    assert blurred.value < 1 and blurred.low > blurred.baseline + 0.05
    near = label_shares({o: (counts + rng.normal(0, 1e-4, 4)) / 60 for o, counts in truths.items()}, truths)
    assert (near.low, near.surely_at_least) == (1.0, 1.0)


def test_the_histograms_of_one_owner_are_one_term():
    rng = np.random.default_rng(0)
    truths = {f"{owner}{i}": np.array([10.0, 6.0, 4.0]) for owner in "ab" for i in range(8)}
    off = {"a": np.array([0.0, 1.0, -1.0]), "b": np.array([5.0, -2.0, -3.0])}
    guesses = {name: (v + off[name[0]] + rng.normal(0, 0.1, 3)) / 20 for name, v in truths.items()}
    alone = label_shares(guesses, truths)
    together = label_shares(guesses, truths, whose={name: name[0] for name in truths})
    assert together.value == alone.value
    assert together.low < alone.low - 0.3


def test_few_clusters_say_little_of_their_variance():
    rng, found = np.random.default_rng(0), []
    for _ in range(400):
        of_each = rng.beta(6, 4, 4)
        hits = rng.random((4, 50)) < of_each[:, None]
        found.append(intervals.clustered_share(hits.ravel(), np.repeat(np.arange(4), 50)))
    assert covered(found, 0.6) >= 0.95


def test_an_f1_has_the_spread_of_its_words():
    rng, found, values = np.random.default_rng(0), [], []
    for _ in range(300):
        truth = rng.random((3, 80)) < 0.3
        guess = np.where(rng.random(80) < 0.8, truth, ~truth)  # a word is right of all owners, or of none
        found.append(intervals.f1(guess, truth))
        values.append(2 * (guess & truth).sum() / (guess.sum() + truth.sum()))
    assert 0.93 <= covered(found, float(np.mean(values))) <= 0.995


def test_an_exact_area_of_few_is_no_certainty():
    low, high = intervals.area(1.0, 0.0, 3, ())
    assert (low, high) == (pytest.approx(0.025 ** (1 / 3)), 1.0)
    wide = intervals.area(0.8, 1e-6, 100, (0.7, 0.8, 0.9))
    assert wide == (pytest.approx(0.8 - 4.302653 * 0.1 / 3**0.5), 1.0)  # Student's of two degrees
    coins = intervals.area(0.8, 1e-6, 100, (0.7, 0.8, 0.9), by_coins=True)
    assert coins[0] == pytest.approx(0.8 - 1.959964 * 0.1 / 3**0.5)
    alone = intervals.area(0.8, 1e-4, 100, (0.8,))
    assert alone == (pytest.approx(0.8 - 0.0196, abs=1e-5), pytest.approx(0.8 + 0.0196, abs=1e-5))


def test_ceilings_are_held_against_a_bound_that_is_wrong_once_in_ten_thousand():
    made = intervals.bounds(lambda error: intervals.share(90, 100, error))
    assert (made["low"], made["high"]) == intervals.share(90, 100)
    assert made["surely_at_least"] == intervals.share(90, 100, 1e-4)[0] < made["low"]


def test_rows_of_one_node_are_one_term_and_what_was_not_found_is_missed():
    nodes = np.eye(4)
    guess = np.concatenate([np.repeat(nodes[:1], 30, axis=0), np.full((30, 4), np.nan)])
    held = {"a": match_rows(guess, nodes), "b": match_rows(nodes[[2, 2]], nodes)}
    score = recovered_rows(held, {"a": 4, "b": 4}, nodes)
    assert score.value == 32 / 62
    plain = intervals.share(32, 62)
    assert score.low < plain[0] and score.high >= plain[1]
    assert score.details["nodes"] == 4 and score.details["by_any_node_of_the_data"] == 1.0
