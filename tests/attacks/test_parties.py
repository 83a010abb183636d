"""What attackers get and what they do not, and what honest parties do about those who play against them."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attacked import guessed, judged, made, score_of

import secure_fedgraph as sfg
from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.attacks import ATTACKS, Attack, Blind, Knowledge
from secure_fedgraph.attacks.active.models import FASTER, LeaningCompletion
from secure_fedgraph.attacks.active.oracle import GeneratorOracle
from secure_fedgraph.attacks.active.planted_units import PlantedUnits, playing
from secure_fedgraph.attacks.attack import ALL, LAST
from secure_fedgraph.attacks.mashes.pool import MIXING, POOL, MashMixing
from secure_fedgraph.attacks.neighgen import GeneratorBatch
from secure_fedgraph.attacks.rounds import CohortDifferencing, RedrawnNoise
from secure_fedgraph.attacks.vertical.labels import BlindGroups, ModelCompletion
from secure_fedgraph.attacks.vertical.links import AlikeRows
from secure_fedgraph.attacks.weights.updates import VocabularySupport
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.grid import grid
from secure_fedgraph.audits.grid.attacked import KeepReadChannels
from secure_fedgraph.audits.surfaces.mashes import candidates, drawn
from secure_fedgraph.audits.surfaces.registry import knowledge
from secure_fedgraph.core.carriers.plain import Plain
from secure_fedgraph.core.carriers.secagg.server import Masked
from secure_fedgraph.core.errors import BadInput, HostileMessage, Refused
from secure_fedgraph.core.protection.binding import Protection
from secure_fedgraph.core.protection.gaussian import Clip, Gaussian
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.experiment.config import load
from secure_fedgraph.experiment.results import execute
from secure_fedgraph.experiment.schema.score_verdict import SINGLE_OWNERS
from secure_fedgraph.privacy.broadcasts import BroadcastLimits
from secure_fedgraph.privacy.policy import Policy
from secure_fedgraph.protocol.dropouts import Dropouts
from secure_fedgraph.protocol.transcript import Transcript, everything

GENERATED: dict[str, Any] = {"data": "synthetic-citation", "dataset": {"nodes": 300, "features": 100}}
A1 = VocabularySupport()


# A view is all there is


def test_attacks_run_on_a_transcript_from_disk_in_another_process(tmp_path: Path) -> None:
    run = execute(
        load(None, {**GENERATED, "rounds": 1, "policy": "plaintext"}, []), tmp_path, keep=everything
    )
    program = """
import sys
from pathlib import Path
import numpy as np
from secure_fedgraph.attacks import ATTACKS, Knowledge
from secure_fedgraph.protocol.transcript import Transcript
view = Transcript.load(Path("transcript")).view("server")
for kind in (kind for kind in ATTACKS.values() if kind.family == "weights" and not kind.needs):
    np.savez(kind.id, **kind().run(view, Knowledge(kind.grants)).values)
"""
    # the transcript and the public package are all that the other process has: no owner's graph, no seed
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for kind in (kind for kind in ATTACKS.values() if kind.family == "weights" and not kind.needs):
        here = guessed(FinishedRun.of(run, 0), kind())
        elsewhere = np.load(tmp_path / f"{kind.id}.npz")
        assert set(elsewhere) == set(here.values)
        for owner, value in here.values.items():
            assert np.array_equal(elsewhere[owner], value, equal_nan=True)


def test_an_attack_gets_no_federation() -> None:
    for kind in ATTACKS.values():
        for aim in ("run", "residual"):
            assert list(inspect.signature(getattr(kind, aim)).parameters) == ["self", "view", "knowledge"]
    view = Transcript().view("server")
    assert not {"federation", "owners", "graph", "state"} & set(vars(view))


def test_what_is_blind_stays_blind_from_disk_and_a_client_reads_only_its_own(tmp_path: Path) -> None:
    execute(load(None, {**GENERATED, "rounds": 1, "policy": "masked"}, []), tmp_path, keep=everything)
    view = Transcript.load(tmp_path / "transcript").view("server")
    with pytest.raises(Blind):
        A1.run(view, Knowledge())
    assert (A1.residual(view, Knowledge()).values[ALL] > 0).any()
    own = made(GENERATED, "plaintext", "rounds=1").transcript.view("owner-0")
    assert set(A1.run(own, Knowledge()).values) == {"owner-0"}
    with pytest.raises(Blind, match="no sum"):
        A1.residual(own, Knowledge())
    with pytest.raises(Blind, match="no upload of channel 'update' was kept"):
        guessed(made(GENERATED, "plaintext", "rounds=1", keep=None), A1)


class Static(sfg.Algorithm):
    """Every owner sends the same statistic in every round: updates that do not drift."""

    name = "static"
    UPDATE = sfg.Channel("update", sfg.Reveal.SUM)

    def init(self, schema: Any, seed: int) -> dict[str, torch.Tensor]:
        return {"w": torch.zeros(schema.features)}

    def round(self, round: Any, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"w": round.reduce(self.UPDATE).mean["w"]}

    @UPDATE.answer
    def update(self, client: Any, given: dict[str, torch.Tensor]) -> sfg.Upload:
        return sfg.Upload({"w": client.graph.x[client.graph.train_mask].mean(0)})

    def predict(self, params: dict[str, torch.Tensor], graph: Any, schema: Any) -> torch.Tensor:
        return torch.zeros(len(graph.x), schema.classes)


def static(rounds: int, seed: int = 0, share: float = 0.1, policy: Any = None) -> FinishedRun:
    federation = sfg.federate("synthetic-citation", clients=10, nodes=300, features=50, seed=0)
    left = Dropouts(share, seed) if share else None
    run = sfg.train(
        Static(),
        federation,
        policy or sfg.policies.masked(),
        rounds=rounds,
        seed=seed,
        dropouts=left,
        keep=everything,
    )
    return FinishedRun.of(run, seed)


def test_a_view_holds_its_own_uploads_and_nobody_elses(tmp_path: Any) -> None:
    federation = sfg.federate("synthetic-citation", clients=3, nodes=60, features=16, seed=0)
    run = sfg.train(Static(), federation, sfg.policies.masked(), rounds=1, keep=everything, out=tmp_path)
    for transcript in (run.transcript, Transcript.load(tmp_path / "transcript")):
        assert transcript.view("server").own_uploads("update") == []
        (own,) = transcript.view("owner-1").own_uploads("update")
        graph = federation.owners["owner-1"]
        assert own.clients == ("owner-1",)
        assert np.allclose(own.values["w"], graph.x[graph.train_mask].mean(0).numpy())
        assert transcript.view("owner-1").uploads("update") == []
        assert len(transcript.view("owner-0", "owner-2").own_uploads("update")) == 2
        assert transcript.view("owner-1").opened == ()


def test_an_outsider_reads_no_message() -> None:
    case = made(GENERATED, "plaintext", "rounds=1")
    view = case.transcript.view(*case.parties("outsider"))
    assert (view.sent, view.opened) == ((), ())


NEIGHGEN = {
    "algorithm": "fedsage+",
    "data": "synthetic-citation",
    "dataset": {"nodes": 120, "features": 80},
    "rounds": 1,
    "training": {"generator_hidden": [16, 256], "hidden": [8, 4], "encoder": [8, 16], "generator_epochs": 2,
                 "federated_epochs": 2, "minimum_batch": 1, "exchange_batch": 8},
}  # fmt: skip


def neighgen(policy: str) -> FinishedRun:
    kept = KeepReadChannels([GeneratorBatch])
    return FinishedRun.of(execute(load(None, {**NEIGHGEN, "policy": policy}, []), None, keep=kept), 0)


def test_nobody_else_has_the_offer_or_the_answers_and_only_the_first_exchange_is_kept() -> None:
    sealed, plain = neighgen("strictest").transcript, neighgen("plaintext").transcript
    asked = sealed.view("owner-0").sums("feedback")[0].exchange
    assert sealed.view("server").offer("feedback", asked) is None
    assert sealed.view("server").delivered("feedback") == sealed.view("owner-0").delivered("feedback") == []
    assert {s.clients[0] for s in plain.view("owner-0").delivered("feedback")} == {"owner-1", "owner-2"}
    passed = plain.view("server").offer("feedback", plain.view("owner-0").sums("feedback")[0].exchange)
    assert passed is not None and passed.clients == ("owner-0",)
    kept = {(s.channel, s.round) for s in plain.sent if s.kept and s.channel in ("generator", "feedback")}
    assert kept == {("generator", 2), ("feedback", 2)}


def test_a_search_without_a_find_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*arguments: Any, progress: Any, **others: Any) -> None:
        progress(0, 8)
        raise AssertionError("not given up")

    monkeypatch.setattr(GeneratorBatch, "patience", -1.0)
    monkeypatch.setattr("secure_fedgraph.attacks.neighgen.batch", nothing)
    monkeypatch.setattr("secure_fedgraph.attacks.neighgen._SOLVED", {})
    guess = guessed(neighgen("plaintext"), GeneratorBatch(), "server")
    assert all(np.isnan(rows).all() for rows in guess.values.values())


# What is granted, and whose code gives nodes away


MASHES = {**GENERATED, "algorithm": "fedego-released", "partition": "random", "clients": 3, "rounds": 2,
          "training": {"hidden": [32, 32], "epochs": 1, "batch": 16, "batching": "seeded"}}  # fmt: skip


def test_batches_that_give_nodes_away_are_another_algorithms() -> None:
    for batching in ("released", "seeded", "secret"):
        with pytest.raises(BadInput, match="batching"):
            sfg.FedEgo(batching=batching)
    for words in (str(sfg.FedEgoReleased.__doc__), sfg.FedEgoReleased.summary):
        assert "gives nodes away" in words
        assert "audits only" in words


def test_what_is_granted_says_nothing_of_who_owns_whom() -> None:
    case = made(MASHES, "plaintext")
    facts, pool = knowledge(MashMixing(), case).facts, candidates(case)
    assert set(facts) == {POOL, MIXING} and np.array_equal(pool, facts[POOL])
    everybody = case.federation.pool.x.numpy()  # type: ignore[union-attr]
    assert {r.tobytes() for r in pool} == {r.tobytes() for r in everybody}
    assert not np.array_equal(pool[:50], np.unique(everybody, axis=0)[:50])
    first, second = (drawn(case, "owner-0", t) for t in (1, 2))
    assert sorted(first.flatten()) == sorted(second.flatten()) == [-1] * 4 + list(range(60))
    assert not np.array_equal(first, second)
    kept = made(MASHES, "plaintext", "training.batching=released")
    assert np.array_equal(drawn(kept, "owner-0", 1), drawn(kept, "owner-0", 2))
    secret = made(MASHES, "plaintext", "training.batching=secret")
    assert knowledge(MashMixing(), secret).facts[MIXING] == {}


def test_masks_refuse_lists_of_sampled_nodes() -> None:
    base = {**GENERATED, "algorithm": "glasu", "rounds": 1, "training": {"sampler": "paper"}}
    with pytest.raises(Refused, match="channel 'sample'"):
        made(base, "masked")


@pytest.mark.parametrize("sends", ["columns", "labels", "nothing"])
def test_what_owners_who_learn_at_home_are_handed(sends: str) -> None:
    federation = sfg.federate(
        "synthetic-citation", clients=3, seed=0, partition="vertical", nodes=200, features=60
    )
    algorithm = ALGORITHMS["glasu-at-home"](sends=sends, width=60)
    case = FinishedRun.of(sfg.train(algorithm, federation, "masked", keep=everything), 0)
    if sends == "nothing":
        for attack, aim in (
            (ModelCompletion(), "run"),
            (BlindGroups(), "residual"),
            (AlikeRows(), "residual"),
        ):
            with pytest.raises(Blind):
                judged(case, attack, "server", aim)
        return
    completed = judged(case, ModelCompletion(), LAST)
    assert (completed.value > 0.95) == (sends == "labels")  # these are what travels
    # the system draws which columns a node shows: their groups are .4 to .66 right
    groups = judged(case, BlindGroups(), "server", "residual")
    assert (groups.value > 0.9) == (sends == "labels")
    alike = judged(case, AlikeRows(), "server", "residual")
    assert (alike.value > 0.75) == (sends == "labels")  # labels have travelled over links, columns have not


GATED: dict[str, Any] = {"local_steps": 3, "hidden": (8, 8), "learning_rate": 0.05, "dropout": 0.2}


def uploads(kind: type[sfg.ApflGate], **settings: Any) -> dict[tuple[str, str, int], Any]:
    """Everything that any owner sent in three rounds, as the server reads it in plaintext."""
    federation = sfg.federate("synthetic-molecules", clients=3, seed=0, partition="dirichlet", graphs=60)
    run = sfg.train(
        kind(**{**GATED, **settings}), federation, sfg.policies.plaintext(), rounds=3,
        keep=lambda channel, round: True,
    )  # fmt: skip
    view = run.transcript.view("server")
    return {
        (seen.clients[0], channel, seen.exchange): seen.values
        for channel in view.public["channels"]
        for seen in view.uploads(channel)
    }


def same(one: Any, other: Any) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(torch.as_tensor(one[sent][name]), torch.as_tensor(other[sent][name]))
        for sent in one
        for name in one[sent]
    )


@pytest.mark.parametrize("kind", [sfg.ApflGate, sfg.Apfl])
def test_uploads_are_the_same_bit_for_bit_whatever_the_gates_are(kind: type[sfg.ApflGate]) -> None:
    little = uploads(kind, alpha=0.1)
    assert little
    assert same(little, uploads(kind, alpha=0.9))
    assert same(little, uploads(kind, alpha="adaptive", alpha_rate=10.0))


def test_what_does_touch_the_shared_model_shows_in_uploads() -> None:
    """So the comparison can fail."""
    assert not same(uploads(sfg.ApflGate, alpha=0.1), uploads(sfg.ApflGate, alpha=0.1, local_steps=2))


# Sums over rounds, and noise that can be drawn again


def test_f1_updates_that_do_not_drift_are_exact_and_whole_batches_leave_their_sums() -> None:
    score = judged(static(8), CohortDifferencing())
    assert score.details["updates"] >= 2
    assert score.details["largest_relative_error"] < 1e-5  # the grid of masked sums
    case = static(8, policy=sfg.policies.masked(batch=2))
    with pytest.raises(Blind, match="single nobody out"):
        guessed(case, CohortDifferencing())
    guess = guessed(case, CohortDifferencing(), aim="residual")
    assert {len(owners) for owners in guess.targets.values()} & {2}
    assert score_of(guess, case).verdict == "exact"


@dataclass(frozen=True)
class SeededGaussian(Gaussian):
    """Noise that everybody can draw again: what no policy may do."""

    def _draw(self, shape: tuple[int, ...], keys: tuple[bytes, ...] = ()) -> np.ndarray:
        rng = np.random.default_rng(0)
        found: np.ndarray = np.rint(self.sigma * rng.standard_normal(shape)).astype(np.int64)
        return found


def seeded_noise_for_tests_only(by: str = "client", multiplier: float = 1.0) -> Policy:
    """A policy that is broken on purpose; its name says so."""
    stages = (Clip(1.0, whole=True), SeededGaussian(multiplier, by, colluders=0.1))
    carrier = Plain() if by == "client" else Masked()
    protection = Protection(carrier, stages, 1 if by == "client" else 3, "seeded_noise_for_tests_only")
    return Policy("seeded_noise_for_tests_only", lambda channel: protection)


def noised(policy: Policy) -> FinishedRun:
    federation = sfg.federate("synthetic-citation", clients=3, nodes=120, features=30, seed=0)
    run = sfg.train(sfg.FedSage(hidden=(8, 4)), federation, policy, rounds=1, keep=everything)
    return FinishedRun.of(run, 0)


@pytest.mark.parametrize("by", ["client", "shares"])
def test_f8_positive_seeded_noise_is_taken_off_exactly(by: str) -> None:
    case, attack = noised(seeded_noise_for_tests_only(by)), RedrawnNoise()
    aim = "run" if by == "client" else "residual"
    guess = guessed(case, attack, aim=aim)
    score = score_of(guess, case)
    stage = case.policy["update"].stages[1] if case.policy else None
    assert isinstance(stage, Gaussian)
    truth: dict[tuple[str, ...], np.ndarray] = {}
    for seen in case.transcript.view(*case.federation.names).own_uploads("update"):
        values = np.concatenate([np.asarray(v, dtype=float).reshape(-1) for v in seen.values.values()])
        truth[seen.clients] = values * min(1.0, 1.0 / np.linalg.norm(values))
    for target, found in guess.values.items():
        whole = np.sum([truth[(owner,)] for owner in guess.targets[target]], axis=0)
        steps = np.abs(found - whole) / stage.step
        assert steps.max() < len(guess.targets[target]) * 1.01  # what is left is the rounding of the grid
    assert score.value > 0.99 > 0.2 > score.baseline
    assert score.leaks


# Honest parties beside one that plays


SMALL: dict[str, Any] = {
    "generator_hidden": (16, 96), "hidden": (8, 4), "encoder": (8, 16), "generator_epochs": 1,
    "federated_epochs": 2,
}  # fmt: skip
Oracle: Any = GeneratorOracle.plays(sfg.FedSagePlus)


def oracle(kind: Any = Oracle, **settings: Any) -> sfg.Run:
    federation = sfg.federate("synthetic-citation", clients=3, nodes=120, features=80, seed=0)
    algorithm = kind(**{**SMALL, **settings})
    return sfg.train(algorithm, federation, sfg.policies.plaintext(), rounds=1, keep=everything)


@pytest.mark.parametrize("name", ["fedsage", "fedsage+", "fedgcn"])
@pytest.mark.parametrize("attack", [one for one in ATTACKS.own.values() if hasattr(one, "plays")])
def test_what_owners_take_is_what_they_take_of_an_honest_party(attack: type[Attack], name: str) -> None:
    honest: Algorithm = ALGORITHMS[name]()
    played: Algorithm = attack.plays(ALGORITHMS[name])()  # type: ignore[attr-defined]
    about = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=60, features=20).schema
    for channel in honest.channel_names():
        forms, same = honest.expected(channel, about), played.expected(channel, about)
        assert (forms is None) == (same is None), channel
        assert [sorted(one) for one in forms or ()] == [sorted(one) for one in same or ()]


def test_owners_answer_for_no_more_and_no_fewer_rows_than_are_agreed_on() -> None:
    class Greedy(Oracle):  # type: ignore[misc]
        def made_up(self, client: Any, honest: Upload) -> Upload:
            made = super().made_up(client, honest)
            more = {
                k: (v.repeat(6, *[1] * (v.dim() - 1)) if k in ("z", "counts") else v)
                for k, v in made.values.items()
            }
            return Upload(more)

    with pytest.raises(HostileMessage, match="asked about 384 nodes at once, and 64 are agreed on"):
        oracle(Greedy)
    with pytest.raises(HostileMessage, match="owner-0"):  # small generators light few units
        oracle(generator_hidden=(16, 8), exchange_batch=64, minimum_batch=64)
    view = oracle(exchange_batch=4 * 96, federated_epochs=1).transcript.view("server")
    offers = [view.offer("feedback", seen.exchange) for seen in view.uploads("feedback")]
    assert max(len(seen.values["z"]) for seen in offers if seen is not None) == 4 * 96


def test_the_grid_plays_an_owner_that_does_not_spoil_its_own_offer(tmp_path: Path) -> None:
    training = {**SMALL, "federated_epochs": 1}
    base = {"algorithm": "fedsage+", "data": "synthetic-citation", "clients": 3, "rounds": 1}
    base |= {"dataset": {"nodes": 120, "features": 80}, "training": training, "policy": "local_dp"}
    for multiplier, stopped in ((1e-7, False), (1.0, True)):
        noise = {"norm": 1.0, "multiplier": multiplier}
        chosen = load(None, {**base, "protection": noise}, [])
        found = grid.audit(chosen, ["local_dp"], [GeneratorOracle], [0], controls=())
        (cell,) = (c for c in found.cells if c["settings"]["aim"] == SINGLE_OWNERS)
        assert cell["outcome"] == "score"
        assert (cell["score"] == 0.0) is stopped
    # under a budget too: what a dishonest party plays keeps none
    chosen = load(None, {**base, "epsilon": 8.0}, [])
    found = grid.audit(chosen, ["local_dp"], [GeneratorOracle], [0], controls=())
    assert {c["outcome"] for c in found.cells if c["settings"]["aim"] == SINGLE_OWNERS} == {"score"}
    # nor does it end in a ledger that other runs share
    shared = tmp_path / "shared.jsonl"
    execute(chosen.model_copy(update={"ledger": shared}), None, plays=GeneratorOracle.plays)
    assert not shared.exists() or not shared.read_text()


@pytest.mark.parametrize("limits", [{"change": 2.0}, {"units": 0.05}])
def test_owners_that_limit_broadcasts_refuse_planted_weights(limits: dict[str, float]) -> None:
    with pytest.raises(HostileMessage, match="update"):
        planted(playing(sfg.FedSage), 3, BroadcastLimits(**limits))


def test_a_server_that_knows_the_limits_plants_within_them() -> None:
    case = planted(
        playing(sfg.FedSage, 6.0, 4),
        6,
        BroadcastLimits(change=6.0, units=0.05),
        optimizer="sgd",
        learning_rate=1.0,
    )
    score = judged(case, PlantedUnits(), aim="residual")
    assert score.details["rows_named"] >= 5
    assert score.details["share_that_are_nodes"] >= 0.95


def planted(kind: type[Algorithm], rounds: int, limits: BroadcastLimits, **settings: Any) -> FinishedRun:
    federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=600, features=300)
    policy = replace(sfg.policies.masked(), broadcasts=limits)
    algorithm = kind(hidden=(128, 32), epochs=1, **settings)
    return FinishedRun.of(sfg.train(algorithm, federation, policy, rounds=rounds, seed=0, keep=everything), 0)


def test_planting_leaves_training_and_a_standing_model_every_broadcast_as_it_was() -> None:
    base, name = {**GENERATED, "evaluation": "in_band", "rounds": 3}, "head.bias"
    honest, answers, stands = (
        made(base, "plaintext", plays=None if played is None else ATTACKS[played].plays)  # type: ignore[attr-defined]
        for played in (None, "i2-constant-answers", "h5-standing-model")
    )
    sent = [[s.values[name].tolist() for s in one.transcript.view("server").asked("update")]
            for one in (honest, answers, stands)]  # fmt: skip
    assert sent[0] == sent[1]
    assert all(one == sent[2][0] for one in sent[2]) and sent[0][-1] != sent[0][0]


@cache
def leaning(
    policy: str = "plaintext", rounds: int = 1, rate: float = 0.05, leans: bool = False
) -> FinishedRun:
    federation = sfg.federate(
        "synthetic-citation", clients=3, seed=0, partition="vertical", split={"labels": "one"},
        nodes=200, features=60,
    )  # fmt: skip
    kind = ALGORITHMS["glasu-one-label-holder"]
    algorithm = (LeaningCompletion.plays(kind) if leans else kind)(
        sampler="public", public_nodes=200, hidden=16, steps=20, learning_rate=rate, dropout=0.0
    )
    chosen = getattr(sfg.policies, policy)()
    run = sfg.train(algorithm, federation, chosen, rounds=rounds, keep=everything)
    return FinishedRun.of(run, 0)


def test_two_rounds_of_a_faster_owner_complete_more_labels_and_only_the_last_trains_faster() -> None:
    honest = judged(leaning(rounds=2), ModelCompletion(), LAST)
    faster = judged(leaning(rounds=2, leans=True), LeaningCompletion(), LAST)
    assert faster.value > honest.value
    assert faster.value > faster.baselines["own features"]

    @dataclass
    class Client:
        name: str
        clients = ("owner-0", "owner-1")
        round = 1

    played: Any = LeaningCompletion.plays(ALGORITHMS["glasu-one-label-holder"])
    rates = [played(learning_rate=0.5).rate(Client(name)) for name in Client.clients]
    assert rates == [0.5, 0.5 * FASTER]
