"""The controls of E5 and E6: what payoffs and motif lists say about an agent's graphs."""

from __future__ import annotations

from functools import cache
from typing import Any

import attacked
import numpy as np
import pytest
from attacked import guessed, judged, score_of

from secure_fedgraph.attacks import Blind, Guess, ListedMembers, PayoffQuality, PayoffSizes
from secure_fedgraph.attacks.motif_lists import likelihoods
from secure_fedgraph.attacks.payoffs import QUALITY
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.grid import choices
from secure_fedgraph.audits.surfaces.payoffs import concordance
from secure_fedgraph.experiment.config import load

KEPT = ("reward", "motifs", "motif_presence", "valued_lists", "vocabulary")
SMALL: dict[str, Any] = {"data": "synthetic-molecules", "rounds": 1, "training": {"hidden": 8, "layers": 2}}


@cache
def made(algorithm: str, policy: str = "plaintext", *changes: str) -> FinishedRun:
    return attacked.made(
        {**SMALL, "algorithm": algorithm}, policy, *changes, keep=lambda channel, round: channel in KEPT
    )


# E6: quality


@pytest.mark.needs_data("tu")
def test_e6_positive_shared_diversity_pays_the_spoilt_agents_less() -> None:
    settings = ("data=proteins", "clients=30", "split.perturbed=true", "training.diversity=shared")
    score = judged(made("fairgraphfl", "plaintext", *settings, "training.prototypes=none"), PayoffQuality())
    assert score.value > 0.95
    assert score.leaks


def test_e6_negative_payoffs_by_size_do_not_follow_quality() -> None:
    case = made("dw", "plaintext", "clients=30", "split.perturbed=true")
    assert not judged(case, PayoffQuality()).leaks


def test_e6_negative_agents_of_one_quality_have_nothing_to_rank() -> None:
    with pytest.raises(Blind, match="all of one quality"):
        guessed(made("dw"), PayoffQuality())
    with pytest.raises(Blind, match="the budget, which everybody knows"):
        guessed(made("dw"), PayoffQuality(), "server", "residual")


def test_e6_the_judge_reads_equal_payoffs_as_a_coin_and_reversed_ones_as_wrong() -> None:
    case = made("dw", "plaintext", "clients=30", "split.perturbed=true")
    names = case.federation.names
    everybody = {name: (name,) for name in names}
    equal = Guess(QUALITY, {name: np.array([1.0]) for name in names}, everybody, 0)
    assert score_of(equal, case).value == 0.5
    # groups stand in the agents' order, the worst first
    reversed_ = Guess(QUALITY, {n: np.array([-float(i)]) for i, n in enumerate(names)}, everybody, 0)
    assert score_of(reversed_, case).value == 0.0


def test_concordance_counts_ties_half_and_leaves_equals_out() -> None:
    assert concordance(np.array([1.0, 1.0, 2.0]), np.array([0, 1, 1])) == 0.75
    assert np.isnan(concordance(np.array([1.0, 2.0]), np.array([1, 1])))


# E6: sizes


def test_e6_positive_ones_own_payoff_says_how_many_graphs_the_other_has() -> None:
    case = made("dw", "plaintext", "clients=2", "partition=dirichlet")
    score = judged(case, PayoffSizes(), "client")
    assert score.value == 1
    assert score.details["trivial_off_by"] > 1
    assert score.leaks
    assert score.details["off_by"] < 1e-6


def test_e6_residual_of_more_agents_the_others_total_is_exact() -> None:
    case = made("dw", "plaintext", "clients=5")
    with pytest.raises(Blind, match="4 agents share"):
        guessed(case, PayoffSizes(), "client")
    assert judged(case, PayoffSizes(), "client", "residual").details["off_by"] < 1e-6


def test_e6_negative_payoffs_by_agreement_say_no_size() -> None:
    for aim in ("run", "residual"):
        with pytest.raises(Blind, match="not paid by size"):
            guessed(made("eu", "plaintext", "clients=2"), PayoffSizes(), "client", aim)


# E5

MANY_KINDS = ("data=proteins", "clients=30", "training.rings=8", "training.prototypes=none")


@pytest.mark.needs_data("tu")
def test_e5_positive_motifs_that_are_not_listed_rule_graphs_out() -> None:
    case = made("fairgraphfl", "plaintext", *MANY_KINDS)
    score = judged(case, ListedMembers())
    assert score.value > 0.55
    assert score.leaks


@pytest.mark.needs_data("tu")
def test_e5_negative_lists_that_are_not_the_agents_say_nothing() -> None:
    case = made("fairgraphfl", "plaintext", *MANY_KINDS)
    guess = guessed(case, ListedMembers())
    rng = np.random.default_rng(0)
    shuffled = {owner: rng.permutation(scores) for owner, scores in guess.values.items()}
    assert not score_of(Guess(guess.about, shuffled, guess.targets, 0), case).leaks


@pytest.mark.needs_data("tu")
def test_e5_negative_lists_that_nobody_reads_are_blind_and_leave_their_union() -> None:
    unread = ("data=proteins", "clients=4", "training.vocabulary=public", "training.lists=valued")
    case = made("fairgraphfl", "homomorphic", *unread, "training.valuation=encrypted")
    with pytest.raises(Blind):
        guessed(case, ListedMembers())
    assert not judged(case, ListedMembers(), "server", "residual").leaks


def test_e5_negative_an_agent_reads_no_list_and_no_algorithm_without_motifs_has_any() -> None:
    with pytest.raises(Blind, match="e5-listed-members"):
        guessed(made("fairgraphfl", "plaintext", "clients=4"), ListedMembers(), "client")
    with pytest.raises(Blind, match="nobody has motifs"):
        guessed(made("dw"), ListedMembers())


def test_likelihoods_by_hand_a_rare_listed_motif_counts_for_and_a_missing_one_against() -> None:
    holds = np.array([[True, False, False], [False, True, False], [False, False, True], [False] * 3])
    others = np.array([[False, True, False], [False, True, False]])
    rare, common, missing, none = likelihoods(holds, np.array([True, True, False]), others)
    assert rare > common > none > missing
    assert none == 0


def test_the_grid_runs_them_where_payoffs_are_made() -> None:
    chosen = choices.choose(["payoffs"])
    assert {one.id for one in chosen} == {"e5-listed-members", "e6-payoff-quality", "e6-payoff-sizes"}
    assert choices.readers(load(None, {"algorithm": "cgsv", "policy": "plaintext"}, []), chosen)
    assert not choices.readers(load(None, {"algorithm": "fedsage", "policy": "plaintext"}, []), chosen)
