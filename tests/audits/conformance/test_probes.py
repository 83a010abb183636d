"""Probes of a run's own algorithm and protections: each catches what it is for, and lets right code pass."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from result_parts import conformance
from scipy.stats import binom
from scripts import script

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import FedRidge
from secure_fedgraph.audits.conformance import door
from secure_fedgraph.audits.conformance.added_noise import Noise, beyond, likenesses, noises, widths
from secure_fedgraph.audits.conformance.dependence import other_data, randomised_data, trained_channels
from secure_fedgraph.audits.conformance.door import answer_alone, any_answer, behaviour
from secure_fedgraph.audits.conformance.rehearsal import OutOfTime, Rehearsal
from secure_fedgraph.audits.conformance.rows import SAYS, probe_rows
from secure_fedgraph.audits.conformance.steps import steps_of
from secure_fedgraph.audits.conformance.twins import NoTwins, same_in_two_copies
from secure_fedgraph.audits.empirical_dp.worst_cases import client_rows
from secure_fedgraph.core.channel import Channel, Reveal, UnitContribution
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.upload import ContributionRows, Upload
from secure_fedgraph.privacy import dp_sgd
from secure_fedgraph.privacy.dp_sgd import PrivateSteps
from secure_fedgraph.report.sections.audit_page import conformance_section

mutants = script("mutants")
P = sfg.policies
SHAPES = {"layer.weight": (8, 16), "layer.bias": (8,)}
HOW = PrivateSteps(2.0, rate=0.2, steps=3)


def standard(rounds: int = 20, width: int = 60, seed: int = 0, channel: str = "update") -> Noise:
    values = np.random.default_rng(seed).standard_normal((rounds, width))
    return Noise(channel, "owner-0", values, (("weight", 0, width - 4), ("bias", width - 4, width)))


def changed(change: Callable[[np.ndarray], None], noise: Noise) -> Noise:
    values = noise.values.copy()
    change(values)
    return replace(noise, values=values)


def checks(found: list[Any]) -> set[str]:
    return {one.check for one in found}


# --- noise, coordinate by coordinate


def quiet_coordinate(values: np.ndarray) -> None:
    values[:, -3] = 0


def quiet_tensor(values: np.ndarray) -> None:
    values[:, :-4] *= 0.8


def late_rounds(values: np.ndarray) -> None:
    values[12:] *= 0.5


@pytest.mark.parametrize(
    ("change", "what"),
    [(quiet_coordinate, "bias[1]"), (quiet_tensor, "weight"), (late_rounds, "round 13")],
)
def test_less_noise_is_seen_where_it_is(change: Callable[[np.ndarray], None], what: str):
    assert widths(standard(width=300)) == []
    found = widths(changed(change, standard(width=300)))
    assert checks(found) == {"width"} and any(what in one.what for one in found)


def test_more_noise_than_is_claimed_is_no_lack_and_more_than_the_upload():
    wide = changed(lambda values: np.multiply(values, 1.5, out=values), standard())
    assert widths(wide) == []
    assert beyond(standard()) == [] and checks(beyond(wide)) == {"clip"}


def taken_back(values: np.ndarray) -> None:
    values[1::2] = -values[::2]


def repeated_later(values: np.ndarray) -> None:
    values[17] = values[3]


def mirrored(values: np.ndarray) -> None:
    values[:, 30:] = values[:, :30][:, ::-1]


@pytest.mark.parametrize(("change", "width"), [(taken_back, 60), (repeated_later, 2_000), (mirrored, 60)])
def test_noise_like_other_noise_is_seen(change: Callable[[np.ndarray], None], width: int):
    assert likenesses([standard(width=width)]) == []
    assert checks(likenesses([changed(change, standard(width=width))])) == {"correlation"}


def test_channels_with_one_draw_are_seen():
    one, other = standard(), standard(width=30, seed=1, channel="means")
    assert likenesses([one, other]) == []
    shared = replace(other, values=one.values[:, :30])
    assert {found.where for found in likenesses([one, shared])} == {"update and means"}


@pytest.mark.parametrize("check", [widths, beyond, lambda noise, level: likenesses([noise], level)])
def test_right_noise_is_accused_no_more_often_than_the_level(check: Any):
    level, trials = 0.1, 100
    accused = sum(bool(check(standard(seed=seed), level)) for seed in range(trials))
    assert accused <= binom.isf(1e-6, trials, level)


def test_what_is_sent_is_the_clipped_upload_and_noise(monkeypatch: pytest.MonkeyPatch):
    update = P.local_dp(1.0, 2.0).bind((Channel("update", Reveal.SUM),), ("a", "b"))["update"]
    rows = {"a": Upload({"w": torch.zeros(20), "b": torch.zeros(2)})}
    channel = Channel("sums", Reveal.SUM, unit=Unit.NODE, unit_contribution=UnitContribution(1, 1.0))
    sums = P.local_dp(1.0, 2.0).bind((channel,), ("a", "b"))["sums"]
    parts = {"a": ContributionRows({"w": torch.zeros(5, 20)}, torch.ones(5, 3, dtype=torch.bool))}
    for bound, examples in ((update, rows), (sums, parts)):
        (noise,) = noises(bound, examples, 40, units=600)
        assert widths(noise) == beyond(noise) == [] == likenesses([noise])
    mutants.first_chunk(monkeypatch.setattr)
    (noise,) = noises(sums, parts, 40, units=600)
    assert checks(beyond(noise)) == {"clip"}


@pytest.mark.parametrize("policy", [P.central_dp(1.0, 2.0), P.distributed_dp(1.0, 2.0, quorum=3)])
def test_noise_by_others_is_taken_apart_too(policy: Any):
    clients = ("a", "b", "c", "d")
    bound = policy.bind((Channel("update", Reveal.SUM),), clients)["update"]
    example = client_rows(bound, 1.0, 4, 16).present["a"]
    found = list(noises(bound, dict.fromkeys(clients, example), 30))
    assert len(found) == (1 if policy.name == "central_dp" else 4)
    assert [one for noise in found for one in (*widths(noise), *beyond(noise))] == []


# --- copies of a process


def test_only_the_system_s_randomness_differs_between_copies():
    own = np.random.default_rng()  # seeded by the system, once, and kept

    def sample() -> dict[str, np.ndarray]:
        return {
            "coins of the system": np.frombuffer(os.urandom(64), np.uint8),
            "noise of a kept generator": own.standard_normal(64),
            "noise of a seed": np.random.default_rng(3).standard_normal(64),
        }

    found = {one.where for one in same_in_two_copies(sample)}
    assert found == {"noise of a kept generator", "noise of a seed"}


def test_a_copy_that_fails_is_no_pass():
    def sample() -> dict[str, np.ndarray]:
        raise ValueError

    with pytest.raises(NoTwins):
        same_in_two_copies(sample)


# --- noisy steps


def test_right_steps_pass():
    assert steps_of(HOW, SHAPES) == []


@pytest.mark.parametrize(
    ("wrong", "check"),
    [
        (mutants.bias_without_noise, "width"),
        (mutants.gradient_in_the_rate, "width"),
        (lambda set_: set_(dp_sgd, "factors", lambda norms, clip: np.ones_like(norms)), "pull"),
        (mutants.last_step, "rate"),
    ],
)
def test_wrong_steps_are_seen(wrong: Any, check: str, monkeypatch: pytest.MonkeyPatch):
    wrong(monkeypatch.setattr)
    assert check in checks(steps_of(HOW, SHAPES))


# --- small federations


def rehearsal(scene: str) -> Rehearsal:
    one = mutants.SCENES[scene]
    federation = sfg.federate("synthetic-citation", clients=3, nodes=90, features=16, seed=0)
    return Rehearsal(one.algorithm(hidden=(8, 8), fanout=(2, 2)), federation, one.policy())


def test_other_data_keep_their_public_shape():
    graph = rehearsal("noised updates").federation.owners["owner-0"]
    other = other_data(graph, 7, 1)
    assert other.num_nodes == graph.num_nodes and torch.equal(other.train_mask, graph.train_mask)
    assert other.edge_index.shape == graph.edge_index.shape
    assert not torch.equal(other.x.sum(0), graph.x.sum(0)) and not torch.equal(other.y, graph.y)


def test_channels_that_steps_pay_for_carry_steps_alone(monkeypatch: pytest.MonkeyPatch):
    one = rehearsal("noisy steps and means")
    found, shapes = trained_channels(one)
    assert found == [] and any(name.endswith("bias") for name in shapes)
    mutants.raw_mean(monkeypatch.setattr)
    assert {(f.check, f.where) for f in trained_channels(one.fresh())[0]} == {("trained", "means")}


@pytest.mark.parametrize("wrong", [mutants.true_labels, mutants.labels_drawn_again])
def test_randomised_labels_are_drawn_once_and_used(wrong: Any, monkeypatch: pytest.MonkeyPatch):
    one = rehearsal("randomised labels")
    assert randomised_data(one) == []
    wrong(monkeypatch.setattr)
    assert checks(randomised_data(one.fresh())) == {"randomised data"}


@pytest.mark.parametrize("wrong", [mutants.previous_upload, mutants.lowest_bits])
def test_what_leaves_follows_from_the_answer(wrong: Any, monkeypatch: pytest.MonkeyPatch):
    one = rehearsal("noised updates")
    assert one.answers  # before anything is wrong
    wrong(monkeypatch.setattr)
    assert checks(answer_alone(one.fresh())) == {"answer alone"}


@pytest.mark.parametrize("policy", [P.local_dp(1.0, 2.0), P.distributed_dp(1.0, 2.0, quorum=3), P.masked()])
def test_the_door_shows_the_answer_alone(policy: Any):
    one = replace(rehearsal("noised updates"), policy=policy)
    assert one.answers  # before anything is wrong
    assert answer_alone(one.fresh()) == []
    assert any_answer(one.fresh()) == behaviour(one.fresh()) == []


@pytest.mark.parametrize(
    ("scene", "wrong", "check"),
    [
        ("single class means", mutants.length_by_data, "behaviour"),
        ("updates within a wide clip", mutants.refusal_by_data, "any answer"),
    ],
)
def test_data_decide_neither_whether_nor_how_much_is_sent(
    scene: str, wrong: Any, check: str, monkeypatch: pytest.MonkeyPatch
):
    one = rehearsal(scene)
    assert one.answers  # before anything is wrong
    wrong(monkeypatch.setattr)
    assert checks([*any_answer(one.fresh()), *behaviour(one.fresh())]) == {check}


def test_a_rehearsal_has_its_time(monkeypatch: pytest.MonkeyPatch):
    one = rehearsal("noised updates")
    monkeypatch.setattr("secure_fedgraph.audits.conformance.rehearsal.SECONDS", 0.0)
    with pytest.raises(OutOfTime):
        one.play(1)


# --- rows


def test_rows_are_of_the_probes_that_a_run_needs():
    run = mutants.SCENES["randomised labels"].run()
    found = {row["check"]: row["outcome"] for row in probe_rows(run)}
    assert found == {"randomised data": "passed"} and set(found) < set(SAYS)


def test_what_cannot_be_probed_says_why_and_does_not_pass(monkeypatch: pytest.MonkeyPatch):
    run = mutants.SCENES["noised updates"].run()

    def broken(*_: Any) -> Any:
        raise OutOfTime("it takes too long")

    monkeypatch.setattr("secure_fedgraph.audits.conformance.rows.rounds_for", broken)
    (row,) = probe_rows(run, only=("width",))
    assert (row["outcome"], row["reason"]) == ("nothing to check", "it takes too long")
    page = conformance_section(conformance([{**row, "policy": "local_dp"}]), several=False)
    assert page is not None and page["findings"][0]["lines"] == ["it takes too long"]
    monkeypatch.setattr("secure_fedgraph.audits.conformance.rows.Rehearsal.of", broken)
    assert {row["outcome"] for row in probe_rows(run)} == {"nothing to check"}


# --- the mutants of docs/audits.md


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scene", mutants.SCENES)
def test_scenes_without_a_mutant_pass_the_whole_audit(scene: str):
    assert mutants.complaints(scene) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_every_mutant_is_caught_by_name(name: str):
    mutant = mutants.MUTANTS[name]
    with mutants.in_the_code(mutant.wrong):
        assert mutant.check in mutants.complaints(mutant.scene)


def test_the_docs_have_every_mutant():
    page = (Path(__file__).resolve().parents[3] / "docs" / "audits.md").read_text()
    for mutant in mutants.MUTANTS.values():
        breaks = mutant.breaks[0].lower() + mutant.breaks[1:].rstrip(".")
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {breaks} |")]
        assert f"`{mutant.check}`" in line


OWN = '''
import secure_fedgraph as sfg

class Peeking(sfg.FedSage):
    """FedSage that sends a mean of raw features and says that noisy steps made it."""
    name = "peeking"
    MEANS = sfg.Channel("means", sfg.Reveal.SUM, trained=True)

    def round(self, round, state):
        state = super().round(round, state)
        round.reduce(self.MEANS)
        return state

    @MEANS.answer
    def means(self, client, given):
        return sfg.Upload({"mean": client.graph.x.mean(0)})
'''


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_user_s_own_algorithm_is_probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import json

    from click.testing import CliRunner

    from secure_fedgraph.cli.main import main

    (tmp_path / "peeking_algorithms.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    command = ["audit", "--algorithm", "peeking_algorithms:Peeking", "--data", "synthetic-citation"]
    command += ["--policy", "masked", "--unit", "node", "--epsilon", "8", "--rounds", "1", "--attack", "a1"]
    command += ["--set", "training.hidden=[8,8]", "--set", "training.fanout=[2,2]", "--workers", "1"]
    done = CliRunner().invoke(main, [*command, "--quiet", "--out", str(tmp_path / "out")])
    assert done.exit_code == 4, done.output
    rows = json.loads((tmp_path / "out" / "audit.json").read_text())["conformance"]
    assert [row["check"] for row in rows if row["outcome"] == "failed"] == ["trained"]
    assert {"steps", "width"} & {row["check"] for row in rows}


@pytest.mark.parametrize(("equal_runs", "findings"), [(["one", "one", "one", "other"], 0), (["one"] * 20, 1)])
def test_coins_that_fall_alike_twice_are_no_finding(
    monkeypatch: pytest.MonkeyPatch, equal_runs: list[str], findings: int
) -> None:
    """Who opens a homomorphic sum is drawn: of three owners, two equal runs often draw the same one."""
    left = iter(equal_runs)

    def play(kind: str) -> dict[Any, Any]:
        sender = "other" if kind == "changed" else next(left)
        return {(1, "update", sender, 1): door.Shown(8, "", 0)}

    bound = SimpleNamespace(carrier=SimpleNamespace(gives=SimpleNamespace(readable=False)), stages=())
    rehearsal = SimpleNamespace(bound=SimpleNamespace(bounds={"update": bound}))
    monkeypatch.setattr(door, "_trace", lambda run: run)
    found = door._changes("behaviour", "data with {}", rehearsal, play, ("changed",))
    assert len(found) == findings


def test_a_row_of_noise_names_the_channels_that_it_says_nothing_of():
    federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=90, features=6)
    run = sfg.train(
        FedRidge(second_moments="all"), federation, P.distributed_dp(1.0, 4.0), evaluation="in_band"
    )
    (row,) = probe_rows(run, ("width",))
    assert row["outcome"] == "nothing to check" or "not of moments" in row["reason"]
    assert "moments have no value" in row["reason"]
