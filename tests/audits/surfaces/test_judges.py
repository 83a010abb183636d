"""The judges of guesses: what they refuse, what they count, and facts that are not the audited run's."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from attacked import guessed, made, score_of

from secure_fedgraph.attacks import ATTACKS, Attack, Guess, Knowledge
from secure_fedgraph.attacks.class_shares import CLASS_SHARES, SHADOW_OWNERS
from secure_fedgraph.attacks.ownership import OWNERS_OF_NODES
from secure_fedgraph.attacks.payoffs import QUALITY
from secure_fedgraph.attacks.released import (
    ANSWERS,
    CANDIDATES,
    EMBEDDED,
    SERVICE,
    Answers,
    Embedded,
    Service,
)
from secure_fedgraph.attacks.vertical.labels import COMPLETED, GROUPS
from secure_fedgraph.attacks.weights.graph_structure import TRAINED_GRAPHS, GraphStructure, Molecule
from secure_fedgraph.audits import intervals, scoring
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.surfaces.fairgraphfl import concordance
from secure_fedgraph.audits.surfaces.links import Pairs
from secure_fedgraph.audits.surfaces.registry import MAKERS
from secure_fedgraph.audits.surfaces.released import shadows
from secure_fedgraph.audits.surfaces.trained_graphs import training_graphs

GENERATED: dict[str, Any] = {"data": "synthetic-citation", "dataset": {"nodes": 300, "features": 100}}
LEARNED = ("rounds=5", "training.learning_rate=0.01")


@cache
def fedsage(*changes: str) -> FinishedRun:
    return made(GENERATED, "plaintext", *LEARNED, *changes)


def judged_with(case: FinishedRun, attack: Attack, facts: dict[str, Any], aim: str = "run") -> scoring.Score:
    """With other facts than the audit's."""
    view = case.transcript.view(*case.parties("outsider"))
    return score_of(getattr(attack, aim)(view, Knowledge(attack.grants, facts)), case)


def test_g1_negative_answers_about_other_data_are_at_chance() -> None:
    """The same attack with what a model of another graph answers about that graph's nodes."""
    case, told = fedsage(), MAKERS[ANSWERS](fedsage("seed=1"))
    served, alone = (
        np.concatenate([getattr(one, part) for one in told.values()])
        for part in ("with_links", "without_links")
    )
    sizes = {owner: graph.num_nodes for owner, graph in case.federation.owners.items()}
    facts = {ANSWERS: {owner: Answers(served[:size], alone[:size]) for owner, size in sizes.items()}}
    for aim in ("run", "residual"):
        score = judged_with(case, ATTACKS["g1-link-stealing"](), facts, aim)
        assert score.low < 0.5 < score.high
        assert not score.leaks


def test_g2_negative_embeddings_of_other_data_say_nothing() -> None:
    """The same attack on another graph's embeddings, with the decoder that fits them."""
    case, told = fedsage(), MAKERS[EMBEDDED](fedsage("seed=1"))
    others = [one for owner, one in told.items() if owner]
    rows, logs = (np.concatenate([getattr(one, p) for one in others]) for p in ("embeddings", "answers"))
    sizes = {owner: int(graph.train_mask.sum()) for owner, graph in case.federation.owners.items()}
    mine = {owner: Embedded(rows[:size], logs[:size]) for owner, size in sizes.items()}
    score = judged_with(case, ATTACKS["g2-embedding-inversion"](), {EMBEDDED: {**mine, "": told[""]}})
    assert not score.leaks
    assert score.details["own_node_is_nearest"] < 3 * score.details["by_chance"]


def test_the_coins_are_fair_and_what_is_out_is_out_with_its_links() -> None:
    case = fedsage()
    for owner, coin in shadows.coins(case).items():
        graph = case.federation.owners[owner]
        held = shadows.held(graph, torch.from_numpy(coin))
        out = graph.train_mask.numpy() & ~coin
        assert 0.3 < coin[graph.train_mask.numpy()].mean() < 0.7
        assert not held.train_mask.numpy()[out].any()
        assert not np.isin(held.edge_index.numpy(), np.flatnonzero(out)).any()
        among = ~np.isin(graph.edge_index.numpy(), np.flatnonzero(out)).any(0)
        assert held.edge_index.shape[1] == among.sum()
    for one in MAKERS[CANDIDATES](case).values():
        assert (one.inside.sum(0) == shadows.SHADOWS // 2).all()


def test_a7_negative_uploads_of_other_owners_say_nothing_about_these() -> None:
    case = fedsage()
    guess = guessed(case, ATTACKS["a7-class-shares"]())
    names = list(guess.values)
    moved = dict(zip(names, [guess.values[n] for n in (*names[1:], names[0])], strict=True))
    assert not score_of(Guess(CLASS_SHARES, moved, guess.targets, 0), case).leaks


def test_a7_shadow_owners_hold_no_node_of_an_owners_training_data() -> None:
    case = fedsage()
    shadows = MAKERS[SHADOW_OWNERS](case)
    assert shadows.shares.shape == (60, case.federation.schema.classes)
    assert np.allclose(shadows.shares.sum(1), 1)
    assert shadows.shares.std(0).min() > 0.05  # drawn, and not the data's own


def test_the_judge_of_owners_counts_the_right_ones() -> None:
    case = fedsage()
    owners = case.federation.owners
    sizes = {name: int(graph.train_mask.sum()) for name, graph in owners.items()}
    exact = {
        name: np.concatenate([np.full(size, float(other == name)) for other, size in sizes.items()])
        for name in owners
    }
    targets = {name: (name,) for name in owners}
    assert score_of(Guess(OWNERS_OF_NODES, exact, targets, 0), case).value == 1
    names = list(owners)
    wrong = dict(zip(names, [exact[n] for n in (*names[1:], names[0])], strict=True))
    assert score_of(Guess(OWNERS_OF_NODES, wrong, targets, 0), case).value == 0


def test_g7_negative_a_service_without_the_owners_links_is_at_chance() -> None:
    case = fedsage()
    alone = {
        owner: Service(lambda x, one=one: one.ask(x * 0) + 0 * x.sum(), one.features)
        for owner, one in MAKERS[SERVICE](case).items()
    }
    score = judged_with(case, ATTACKS["g7-link-teller"](), {SERVICE: alone})
    assert score.value == 0.5
    assert not score.leaks


MOLECULES = {"algorithm": "apflgate", "data": "synthetic-molecules", "dataset": {"graphs": 60}, "clients": 3}


def test_the_judge_of_graphs_refuses_a_moved_link_and_takes_nodes_in_another_order() -> None:
    settings = {f"training.{k}": v for k, v in (("network", "gin"), ("local_steps", 1), ("batch", 1))}
    case = made({**MOLECULES, "rounds": 1}, "plaintext", *(f"{k}={v}" for k, v in settings.items()))
    owner, graphs = next(iter(training_graphs(case).items()))
    graph = max(graphs, key=lambda one: len(one.names))
    order = np.random.default_rng(0).permutation(len(graph.names))
    place = np.argsort(order)
    links = place[graph.links]
    held = {tuple(sorted(pair)) for pair in links.T.tolist()}
    nodes = range(len(order))
    moved = links.copy()
    moved[:, 0] = next((a, b) for a in nodes for b in nodes if a < b and (a, b) not in held)
    for ends, value in ((links, 1.0), (moved, 0.0)):
        one = np.empty(1, dtype=object)
        one[0] = Molecule(graph.features[order], ends)
        assert score_of(Guess(TRAINED_GRAPHS, {owner: one}, {owner: (owner,)}, 1), case).value == value
    stopped = guessed(case, GraphStructure(1e-9))  # without time it says that it stopped
    assert set(stopped.stopped) == set(stopped.values)


@pytest.mark.needs_data("tu")
@pytest.mark.filterwarnings("ignore::secure_fedgraph.privacy.policy.PlaintextWarning")
def test_the_judge_of_singletons_does_not_take_other_prototypes_for_embeddings() -> None:
    base = {"algorithm": "fairgraphfl", "data": "proteins", "allow_plaintext": True, "rounds": 1}
    settings = ("training.hidden=16", "training.layers=2", "training.prototypes=each", "training.idf=global")
    case = made(base, "plaintext", *settings)
    guess = guessed(case, ATTACKS["e1-singleton-motif"]())
    moved = {owner: rows * 1.001 for owner, rows in guess.values.items()}
    assert score_of(Guess(guess.about, moved, guess.targets, guess.messages), case).value == 0.0


def test_e6_the_judge_reads_equal_payoffs_as_a_coin_and_reversed_ones_as_wrong() -> None:
    base = {"algorithm": "dw", "data": "synthetic-molecules", "rounds": 1, "clients": 30}
    case = made(base, "plaintext", "split.perturbed=true", "training.hidden=8", "training.layers=2")
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


def test_the_judge_of_pairs_by_hand() -> None:
    linked = np.zeros((4, 4), dtype=bool)
    linked[[0, 1, 2, 3], [1, 0, 3, 2]] = True
    scores = np.full((4, 4), np.nan)
    for (a, b), value in {(0, 1): 3.0, (2, 3): 1.0, (0, 2): 2.0}.items():
        scores[a, b] = scores[b, a] = value
    pairs = Pairs(scores, linked, {"x": np.eye(4)})
    assert (pairs.links, pairs.hits(pairs.scores)) == (2, 1)
    assert pairs.placed(pairs.scores).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("about", [GROUPS, COMPLETED])
def test_the_judges_of_labels_leave_out_what_was_not_guessed(about: str) -> None:
    base = {**GENERATED, "algorithm": "glasu-one-label-holder", "rounds": 1, "split": {"labels": "one"}}
    case = made(base, "plaintext", "training.steps=1", "training.hidden=8")
    graph, everybody = case.federation.owners["owner-0"], {"all": case.federation.names}
    y, trains = graph.y.numpy(), graph.train_mask.numpy()
    shifted = np.where(trains, (y + 1) % (y.max() + 1), -1)
    assert score_of(Guess(about, {"all": shifted}, everybody, 0), case).value == (about == GROUPS)
    for values in ({}, {"all": np.zeros(0, dtype=int)}, {"all": np.full(graph.num_nodes, -1)}):
        score = score_of(Guess(about, values, everybody if values else {}, 0), case)
        assert (score.value, score.low, score.high, score.leaks) == (0, 0, 1, False)


NODES = np.array([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0]])


def test_the_judge_counts_what_was_not_found_as_missed() -> None:
    guess = np.array([NODES[0], NODES[0], NODES[1], [1.0, 1.0, 1.0, 1.0], [np.nan] * 4])
    held = scoring.match_rows(guess, NODES)
    assert held.exact.tolist() == [True, True, True, False]
    score = scoring.recovered_rows({"a": held}, {"a": 4}, NODES)
    assert score.metric == "exact rows"
    assert score.value == pytest.approx(3 / 5)
    # Clopper and Pearson for 3 of 5 are [0.1466, 0.9473]: two of the rows are of one node, so it is wider.
    # Clusters (2 right), (1), (1 wrong), (1 wrong): variance (0.8^2 + 0.4^2 + 2 * 0.6^2) / 25 * 4/3 = 0.0811,
    # which 0.24 / 0.0811 = 2.961 independent rows have, each worth (1.960 / 3.182)^2: four clusters are few
    size = 2.9605 * (1.959964 / 3.182446) ** 2
    low, high = intervals.share(0.6 * size, size)
    assert (score.low, score.high) == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))
    assert score.low < 0.1466 and score.high > 0.9473
    assert score.details["found"] == 4
    assert score.details["distinct_nodes"] == 2
    assert score.details["coverage"] == 0.5


def test_the_judge_of_an_exact_and_of_an_empty_guess() -> None:
    exact = scoring.recovered_rows({"a": scoring.match_rows(NODES, NODES)}, {"a": 4}, NODES)
    assert (exact.value, exact.high, exact.details["mean_cosine"]) == (1.0, 1.0, pytest.approx(1.0))
    assert exact.low == pytest.approx(0.025 ** (1 / 4))
    none = scoring.recovered_rows({"a": scoring.match_rows(np.full((2, 4), np.nan), NODES)}, {"a": 4}, NODES)
    assert (none.value, none.low, none.leaks) == (0.0, 0.0, False)


def test_one_wrong_word_is_not_exact_and_another_owners_node_neither() -> None:
    near = NODES[:1].copy()
    near[0, 3] = 1.0
    assert not scoring.match_rows(near, NODES).exact.any()
    assert not scoring.match_rows(NODES[:1], NODES[1:]).exact.any()
    assert scoring.match_rows(NODES[:1] + 0.005, NODES).exact.all()


def test_trivial_guesses_stand_beside() -> None:
    sparse = np.zeros((10, 6))
    sparse[0, 0] = 1.0
    score = scoring.recovered_rows({"a": scoring.match_rows(sparse[:1], sparse)}, {"a": 10}, sparse)
    assert score.baselines["the mean node, rounded"] == 0.9  # nine of ten nodes are empty: nothing to learn
    assert not score.value > 1 and score.baseline >= 0.9
