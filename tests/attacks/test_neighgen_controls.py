"""The three controls of C1 and C2 on FedSage+, at small widths: the answers carry raw features."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from attacked import guessed, judged

from secure_fedgraph.attacks import (
    Attack,
    Blind,
    GeneratorBatch,
    GeneratorColumns,
    GeneratorSingle,
)
from secure_fedgraph.attacks import neighgen as module
from secure_fedgraph.attacks.attack import Control
from secure_fedgraph.attacks.weights import ALL
from secure_fedgraph.audits import intervals, scoring
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.grid import choices, grid
from secure_fedgraph.audits.grid.attacked import KeepReadChannels
from secure_fedgraph.experiment.config import Experiment, load
from secure_fedgraph.experiment.results import execute
from secure_fedgraph.experiment.schema.score_verdict import RESIDUAL, SINGLE_OWNERS

SMALL: dict[str, Any] = {
    "algorithm": "fedsage+",
    "data": "synthetic-citation",
    "dataset": {"nodes": 120, "features": 80},
    "rounds": 1,
    "training": {
        "generator_hidden": [16, 256],
        "hidden": [8, 4],
        "encoder": [8, 16],
        "generator_epochs": 2,
        "federated_epochs": 2,
        "minimum_batch": 1,
        "exchange_batch": 8,
    },
}
SENTENCE = r"every upload of channel 'feedback' is sealed under policy masked, sealed"


@pytest.fixture(autouse=True)
def nothing_solved_before() -> None:
    module._SOLVED.clear()


def experiment(policy: str, *changes: str) -> Experiment:
    return load(None, {**SMALL, "policy": policy}, changes)


def go(policy: str, *changes: str) -> FinishedRun:
    kept = KeepReadChannels([GeneratorSingle, GeneratorBatch])
    return FinishedRun.of(execute(experiment(policy, *changes), None, keep=kept), 0)


@pytest.fixture(scope="module")
def runs() -> dict[tuple[str, int], FinishedRun]:
    """One exchange under each policy, of one node and of eight."""
    return {
        (policy, nodes): go(policy, f"training.exchange_batch={nodes}")
        for policy in ("plaintext", "strictest")
        for nodes in (1, 8)
    }


@pytest.mark.parametrize("party", ["server", "client"])
@pytest.mark.parametrize("kind", [GeneratorSingle, GeneratorBatch])
def test_positive_one_node_is_exact(kind: type[Attack], party: str, runs: dict[Any, FinishedRun]) -> None:
    run = runs["plaintext", 1]
    assert set(guessed(run, kind(), party).targets) == {"owner-1", "owner-2"}  # the first offer is owner-0's
    score = judged(run, kind(), party)
    assert (score.value, score.verdict) == (1.0, "exact")
    assert score.baseline < 0.2
    assert score.details["exact_rows"] == score.details["asked_for"] > 0


@pytest.mark.parametrize("party", ["server", "client"])
@pytest.mark.parametrize("kind", [GeneratorBatch, GeneratorColumns])
def test_positive_a_batch_of_eight_is_exact(
    kind: type[Attack], party: str, runs: dict[Any, FinishedRun]
) -> None:
    score = judged(runs["plaintext", 8], kind(), party)
    assert score.value == 1.0
    assert score.leaks
    assert 1 <= score.details["distinct_nodes"] <= score.details["exact_rows"]


@pytest.mark.parametrize(("kind", "nodes"), [(GeneratorSingle, 1), (GeneratorBatch, 1), (GeneratorBatch, 8)])
def test_positive_dense_rows_are_as_exact(kind: type[Attack], nodes: int) -> None:
    run = go("plaintext", "dataset.values=dense", f"training.exchange_batch={nodes}")
    score = judged(run, kind(), "server")
    assert score.value == 1.0
    assert set(score.baselines) == {"the mean node", "random values of each column"}
    assert score.baseline == 0.0


def test_small_dense_features_are_not_rounded_to_bags_without_words() -> None:
    small = np.random.default_rng(0).normal(0, 0.1, (6, 40))
    assert module._binary_rows(small) is small
    words = (np.random.default_rng(0).random((6, 40)) < 0.2) + 0.01
    assert set(np.unique(module._binary_rows(words))) == {0.0, 1.0}


def test_one_nodes_formula_fails_on_a_batch(runs: dict[Any, FinishedRun]) -> None:
    assert judged(runs["plaintext", 8], GeneratorSingle(), "server").value < 0.2


@pytest.mark.parametrize("kind", [GeneratorSingle, GeneratorBatch, GeneratorColumns])
@pytest.mark.parametrize("nodes", [1, 8])
def test_negative_the_server_is_blind_where_answers_are_sealed(
    kind: type[Attack], nodes: int, runs: dict[Any, FinishedRun]
) -> None:
    run = runs["strictest", nodes]
    with pytest.raises(Blind, match=rf"{kind.id}: {SENTENCE}"):
        guessed(run, kind(), "server")
    with pytest.raises(Blind, match="no sum of channel 'feedback' was opened in this view"):
        guessed(run, kind(), "server", "residual")
    with pytest.raises(Blind, match=SENTENCE):  # masks under the seal: no single answer for the asker either
        guessed(run, kind(), "client")


@pytest.mark.parametrize("policy", ["plaintext", "strictest"])
@pytest.mark.parametrize("nodes", [1, 8])
def test_residual_the_asking_owner_reads_every_node_from_the_masked_sum(
    nodes: int, policy: str, runs: dict[Any, FinishedRun]
) -> None:
    run = runs[policy, nodes]
    guess = guessed(run, GeneratorBatch(), "client", "residual")
    assert guess.targets == {ALL: ("owner-1", "owner-2")}
    score = judged(run, GeneratorBatch(), "client", "residual")
    assert score.value == 1.0  # J owners draw their own noise: a batch of n * J
    view = run.transcript.view("owner-0")
    offer = view.offer("feedback", view.sums("feedback")[0].exchange)
    assert offer is not None
    assert offer.clients == ("owner-0",)
    assert score.details["asked_for"] == 2 * offer.values["counts"].sum()


def test_masks_do_stop_the_formula_for_one_node(runs: dict[Any, FinishedRun]) -> None:
    # two owners' outer products: a mixture, of which C2 finds both
    assert judged(runs["strictest", 1], GeneratorSingle(), "client", "residual").value < 1.0


def test_nobody_else_has_the_offer_or_the_answers(runs: dict[Any, FinishedRun]) -> None:
    sealed = runs["strictest", 8].transcript
    asked = sealed.view("owner-0").sums("feedback")[0].exchange
    assert sealed.view("server").offer("feedback", asked) is None
    assert sealed.view("server").delivered("feedback") == []
    assert sealed.view("owner-0").delivered("feedback") == []
    plain = runs["plaintext", 8].transcript
    assert {s.clients[0] for s in plain.view("owner-0").delivered("feedback")} == {"owner-1", "owner-2"}
    passed = plain.view("server").offer("feedback", plain.view("owner-0").sums("feedback")[0].exchange)
    assert passed is not None
    assert passed.clients == ("owner-0",)


def test_a_seal_with_nothing_under_it_shows_the_asker_every_answer() -> None:
    run = go("local_dp", "training.federated_epochs=1", "protection.norm=1.0", "protection.multiplier=10.0")
    guess = guessed(run, GeneratorSingle(), "client")  # not blind: it holds the key
    assert set(guess.targets) == {"owner-1", "owner-2"}
    assert not judged(run, GeneratorSingle(), "client").leaks  # the noise: ten times the clip
    with pytest.raises(Blind, match="sealed under policy local_dp, sealed"):
        guessed(run, GeneratorSingle(), "server")


def test_an_algorithm_without_the_channel_is_blind_and_needs_no_controls() -> None:
    chosen = load(
        None, {**SMALL, "algorithm": "fedsage", "training": {"hidden": [8, 4]}}, ["policy=plaintext"]
    )
    attacks = [GeneratorSingle, GeneratorBatch]
    assert [v.name for v in choices.variants(chosen, attacks)] == ["as configured"]
    found = grid.audit(chosen, ["plaintext"], attacks, [0])
    assert {c["outcome"] for c in found.cells} == {"blind"}
    assert all(
        "the algorithm has no channel 'feedback'" in c["reason"] or "no sum" in c["reason"]
        for c in found.cells
    )


def test_only_the_first_exchange_is_kept() -> None:
    run = go("plaintext")
    kept = {(s.channel, s.round) for s in run.transcript.sent if s.kept}
    assert {place for place in kept if place[0] in ("generator", "feedback")} == {
        ("generator", 2),
        ("feedback", 2),
    }
    # of every other channel its first round, which conformance reads
    others = [channel for channel, _ in kept - {("generator", 2), ("feedback", 2)}]
    assert sorted(others) == sorted(set(others))


def test_the_grid_has_a_row_for_each_adversary(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Control("exchange batch 1", {"training.exchange_batch": 1, "rounds": 1})
    eight = Control("exchange batch 8", {"training.exchange_batch": 8})
    monkeypatch.setattr(GeneratorBatch, "controls", (one, eight))
    chosen = experiment("plaintext", "training.federated_epochs=1")
    # the configured run is the control of eight already
    assert [v.name for v in choices.variants(chosen, [GeneratorBatch])] == [
        "as configured",
        "exchange batch 1",
    ]
    found = grid.audit(chosen, ["plaintext", "strictest"], [GeneratorBatch], [0])
    cells = {
        (c["policy"], c["adversary"], c["settings"]["aim"], c["settings"]["training.exchange_batch"]): c
        for c in found.cells
    }
    assert len(cells) == len(found.cells) == 2 * 2 * 2 * 2
    for nodes in (1, 8):
        assert cells["plaintext", "server", SINGLE_OWNERS, nodes]["verdict"] == "exact"
        assert cells["strictest", "server", SINGLE_OWNERS, nodes]["outcome"] == "blind"
        left = cells["strictest", "client", RESIDUAL, nodes]
        assert left["leaks"] and left["score"] == 1.0
        assert "training.feedback=prototypes" in left["stops"]
    only = grid.audit(chosen, ["strictest"], [GeneratorBatch], [0], adversary="server")
    assert {c["adversary"] for c in only.cells} == {"server"}


def test_a_search_without_a_find_is_given_up(
    monkeypatch: pytest.MonkeyPatch, runs: dict[Any, FinishedRun]
) -> None:
    monkeypatch.setattr(GeneratorBatch, "patience", -1.0)

    def nothing(*arguments: Any, progress: Any, **others: Any) -> None:
        progress(0, 8)
        raise AssertionError("not given up")

    monkeypatch.setattr(module, "batch", nothing)
    guess = guessed(runs["plaintext", 8], GeneratorBatch(), "server")
    assert all(np.isnan(rows).all() for rows in guess.values.values())


# The judge, with literal numbers

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


@pytest.mark.slow
@pytest.mark.needs_data("planetoid")
@pytest.mark.skipif(not os.environ.get("SECURE_FEDGRAPH_DATA"), reason="needs Cora")
def test_on_cora_the_asking_owner_reads_the_masked_sum() -> None:
    settings = {"exchange_batch": 8, "minimum_batch": 1, "generator_epochs": 2, "federated_epochs": 1}
    cora = load(None, {"algorithm": "fedsage+", "data": "cora", "rounds": 1, "training": settings}, [])
    run = execute(cora, None, keep=KeepReadChannels([GeneratorBatch]))
    assert judged(FinishedRun.of(run, 0), GeneratorBatch(), "client", "residual").value == 1.0
