"""Owners that lie: what they send, what it costs the others, and what buckets save."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.attacks import Blind, Knowledge
from secure_fedgraph.attacks.active.lies import (
    Backdoor,
    FlippedLabels,
    FreeRider,
    ReplacedModel,
    ReversedUpdate,
)
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.grid.choices import choose, played_by
from secure_fedgraph.audits.surfaces.lies import _held_out
from secure_fedgraph.audits.surfaces.registry import judge_of
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import execute, run_result
from secure_fedgraph.protocol.transcript import everything

OWNERS = 9
LIES = (ReversedUpdate, FlippedLabels, ReplacedModel, Backdoor, FreeRider)
pytestmark = pytest.mark.filterwarnings("ignore")


def config(**training):
    dataset = {"nodes": 450, "features": 40}
    return Experiment(
        algorithm="fedsage", data="synthetic-citation", clients=OWNERS, dataset=dataset, rounds=8,
        policy="plaintext", allow_plaintext=True, training={"learning_rate": 0.05, **training},
    )  # fmt: skip


def scored(kind, **training):
    experiment = config(**training)
    run = execute(experiment, None, keep=lambda channel, round: round == 1, plays=kind.plays)
    finished = FinishedRun.of(run, 0, run_result(run, experiment))
    attack = kind()
    guess = attack.run(finished.transcript.view("owner-0"), Knowledge())
    return judge_of(kind, guess)(guess, finished).score


@pytest.fixture(scope="module")
def federation():
    return sfg.federate("synthetic-citation", clients=OWNERS, nodes=200, features=12, seed=0)


def uploads(federation, kind=sfg.FedSage):
    run = sfg.train(kind(), federation, "plaintext", rounds=1, seed=0, keep=everything)
    return {seen.clients[0]: seen.values for seen in run.transcript.view("server").uploads("update")}


@pytest.mark.parametrize("lie", LIES)
def test_a_liar_sends_something_else_and_nobody_but_the_liar_does(federation, lie):
    honest, lied = uploads(federation), uploads(federation, lie.plays(sfg.FedSage))
    changed = {o for o in honest if any(not np.array_equal(honest[o][n], lied[o][n]) for n in honest[o])}
    assert changed == {min(federation.names)}
    one, other = honest["owner-0"], lied["owner-0"]
    assert one.keys() == other.keys()
    if lie is ReversedUpdate:
        assert all(np.allclose(other[name], -10 * one[name]) for name in one)
    if lie is FreeRider:
        assert all(np.isclose(np.linalg.norm(one[n]), np.linalg.norm(other[n])) for n in one)


def test_a_tenth_of_many_owners_lies_and_the_owners_data_stay_as_they_are():
    many = sfg.federate("synthetic-citation", clients=20, nodes=200, features=12, seed=0)
    before = {name: graph.clone() for name, graph in many.owners.items()}
    honest, lied = uploads(many), uploads(many, Backdoor.plays(sfg.FedSage))
    changed = {o for o in honest if any(not np.array_equal(honest[o][n], lied[o][n]) for n in honest[o])}
    assert changed == {"owner-00", "owner-01"}
    for name, graph in before.items():
        assert torch.equal(graph.x, many.owners[name].x) and torch.equal(graph.y, many.owners[name].y)


def test_a_reversed_update_costs_most_of_the_accuracy_and_with_buckets_little():
    without, within = scored(ReversedUpdate), scored(ReversedUpdate, bucket=3)
    assert without.metric == "accuracy lost" and without.leaks and without.value > 0.4
    assert within.value < 0.15
    assert without.details["honest"] - without.details["with liars"] == pytest.approx(without.value)


def test_a_trigger_turns_nodes_in_the_liars_model_alone():
    assert (score := scored(Backdoor)).value > score.baseline + 0.3


def test_where_only_owners_hold_test_nodes_a_trigger_is_tried_on_theirs(federation):
    assert len(_held_out(federation)) == 1
    referee = replace(federation.referee, test_set=replace(federation.referee.test_set, tests={}))
    tried = _held_out(replace(federation, referee=referee))
    assert [int(graph.test_mask.sum()) for graph in federation.owners.values()] == [
        len(n) for _, n, _ in tried
    ]


def test_an_honest_run_has_no_liar_to_judge():
    experiment = config()
    run = execute(experiment.model_copy(update={"rounds": 1}), None)
    finished = FinishedRun.of(run, 0, run_result(run, experiment))
    guess = ReversedUpdate().run(finished.transcript.view("owner-0"), Knowledge())
    with pytest.raises(Blind, match="honest"):
        judge_of(ReversedUpdate, guess)(guess, finished)


def test_lies_are_asked_for_by_name_and_not_among_all_that_learn_something():
    assert choose(["lies"]) == list(LIES)
    assert not set(choose(["all"])) & set(LIES)
    assert played_by(choose(["lies"]), "malicious-client") == list(LIES)
