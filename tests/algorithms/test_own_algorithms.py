"""``--algorithm module:Class``: an own algorithm runs, is audited, and is refused where it cheats."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from class_means import MEANS
from click.testing import CliRunner, Result

from secure_fedgraph.algorithms.plugins import algorithm_named
from secure_fedgraph.cli import own_algorithm
from secure_fedgraph.cli.main import main
from secure_fedgraph.errors import Refused
from secure_fedgraph.experiment.config import load

BASE = (
    MEANS
    + '''
PEERS = {}

class ReadsAPeer(Means):
    """Every answer looks at what the others' answers left in a shared place."""
    name = "reads-a-peer"
    GRAB = sfg.Channel("grab", sfg.Reveal.SUM)

    def round(self, round, state):
        round.reduce(self.GRAB)
        return super().round(round, state)

    @GRAB.answer
    def grab(self, client, given):
        PEERS[client.name] = client.graph.x.sum()
        return sfg.Upload({"all": torch.stack([sum(PEERS.values())]) / 1e4})

class SendsAside(Means):
    """The server's half takes what an answer left on the class, which has no copy for each client."""
    name = "sends-aside"

    def round(self, round, state):
        state = super().round(round, state)
        return {"means": state["means"] + SendsAside.stolen.mean(0)}

    @Means.STATISTICS.answer
    def statistics(self, client, given):
        SendsAside.stolen = client.graph.x
        return Means.statistics(self, client, given)

class AsksUndeclared(Means):
    """A verb that the channel does not declare."""
    name = "asks-undeclared"

    def round(self, round, state):
        round.gather(self.STATISTICS)
        return state

class Draws(Means):
    """What it answers is drawn from the operating system, so two runs differ, rightly."""
    name = "draws"

    @Means.STATISTICS.answer
    def statistics(self, client, given):
        upload = Means.statistics(self, client, given)
        first = client.secret_order(len(upload.values["nodes"]))[:1].float()
        return sfg.Upload({**upload.values, "nodes": upload.values["nodes"] + first / 1e3})

class ByClass(Means):
    """An honest mistake: tensors of the classes that the owner has, and of no others."""
    name = "by-class"
    EACH = sfg.Channel("each_class", sfg.Reveal.EACH)

    def round(self, round, state):
        round.gather(self.EACH)
        return state

    @EACH.answer
    def each_class(self, client, given):
        y, x = client.graph.y, client.graph.x
        return sfg.Upload({f"class_{c}": x[y == c].mean(0) for c in sorted(set(y.tolist()))})

LEFT = []

class SharesAList(Means):
    """The server's half takes what answers left in a list of the module."""
    name = "shares-a-list"

    def round(self, round, state):
        state = super().round(round, state)
        return {"means": state["means"] + sum(float(x.sum()) for x in LEFT)}

    @Means.STATISTICS.answer
    def statistics(self, client, given):
        LEFT.append(client.graph.x)
        return Means.statistics(self, client, given)

class TrainsOnTests(Means):
    """What the referee reads is kept in the class, past the copy that the referee has, and trained on."""
    name = "trains-on-tests"
    TESTS = sfg.Channel("tests", sfg.Reveal.EACH, to="referee")
    read = []

    def round(self, round, state):
        state = super().round(round, state)
        return {"means": state["means"] + sum(float(y.sum()) for y in self.read)}

    @TESTS.answer
    def tests(self, client, given):
        return sfg.Upload({"y": client.graph.y.float()})

    def predictions(self, state, round, inputs, schema):
        self.read.extend(found["y"] for found in round.gather(self.TESTS).values())
        return super().predictions(state, round, inputs, schema)

class NumbersTheState(Means):
    """A state whose key is no text."""
    name = "numbers-the-state"

    def round(self, round, state):
        return {1: super().round(round, {})["means"]}

class NoAlgorithm:
    pass
'''
)
FLAGS = ["--data", "synthetic-citation", "--set=dataset.nodes=90", "--set=dataset.features=16"]
FLAGS += ["--policy", "masked", "--rounds", "1", "--clients", "2"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "own_means.py").write_text(BASE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("own_means", None)


def call(command: str, name: str, *more: str) -> Result:
    return CliRunner().invoke(
        main, [command, "--algorithm", f"own_means:{name}", *FLAGS, *more, "--out", "out"]
    )


def test_it_runs_and_is_audited():
    done = call("run", "Means", "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["config"]["algorithm"] == "own_means:Means"
    assert result["channels"][0]["name"] == "statistics" and result["accuracy"]["global"] > 0.3
    done = CliRunner().invoke(
        main,
        ["audit", "--algorithm", "own_means:Means", *FLAGS, "--attack", "a1", "--json", "--out", "audited"],
    )
    assert done.exit_code == 0, done.output
    audit = json.loads(done.stdout)
    assert {row["outcome"] for row in audit["conformance"]} <= {"passed", "nothing to check"}
    assert {row["check"] for row in audit["conformance"]} >= {
        "domains",
        "uniform",
        "data",
        "secrets",
        "ledger",
    }
    assert {cell["outcome"] for cell in audit["cells"]} == {"blind"}  # none of the attacks reads its channel


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ReadsAPeer", "'own_means:ReadsAPeer' breaks the protocol: .*owner-[01]'s answer on channel 'grab'"),
        ("SendsAside", "'own_means:SendsAside' breaks the protocol: it runs in one process and not with its"),
        ("AsksUndeclared", "channel 'statistics' declares sum: use reduce, not gather"),
        ("SharesAList", "'own_means:SharesAList' breaks the protocol: .*server's half .* sends outside"),
        ("TrainsOnTests", "'own_means:TrainsOnTests' breaks the protocol: .* no referee examines it"),
    ],
)
def test_one_that_breaks_the_protocol_is_named_and_refused(name: str, words: str):
    rounds = ["--rounds=2"] if name == "TrainsOnTests" else []
    done = call("audit" if name == "SendsAside" else "run", name, *rounds)
    assert done.exit_code == 3, done.output
    assert re.search(words, done.output), done.output
    assert not Path("out").exists()


def test_names_of_tensors_that_depend_on_data_are_refused_under_noise_and_may_be_read_in_plaintext():
    noise = ["--policy=local_dp", "--norm=1", "--multiplier=4"]
    done = call("run", "ByClass", *noise)
    assert done.exit_code == 3 and "'each_class'" in done.output, done.output
    assert not Path("out").exists()
    assert call("run", "ByClass", "--policy=plaintext", "--quiet").exit_code == 0


def test_a_state_of_another_type_is_named_as_in_python():
    done = call("run", "NumbersTheState")
    assert done.exit_code == 2, done.output
    assert "numbers-the-state: round returns a dict from names" in done.stderr, done.output


def test_one_of_another_package_is_tried_once_a_command(monkeypatch: pytest.MonkeyPatch):
    """However it is named: a class behind an entry point is no class of this package."""
    tried: list[str] = []
    monkeypatch.setattr(own_algorithm, "_check", lambda short, _: tried.append(short.algorithm))
    runs = [load(None, {"algorithm": "fedsage", "policy": policy}, []) for policy in ("masked", "plaintext")]
    own_algorithm.check_own(*runs)
    assert not tried
    monkeypatch.setattr(own_algorithm, "algorithm_named", lambda name: algorithm_named("own_means:Means"))
    own_algorithm.check_own(*runs)
    assert tried == ["fedsage"]


def test_coins_that_agree_by_chance_accuse_nobody(monkeypatch: pytest.MonkeyPatch):
    """One run with clients apart may come out as another did, where little is drawn."""
    runs = iter(["a", "b", "b", "c"])  # together, apart, apart by chance the same, apart
    tried = own_algorithm._Tried
    monkeypatch.setattr(own_algorithm, "_fresh", lambda *_: (None, tried({}, next(runs)), None))
    monkeypatch.setattr(own_algorithm, "_apart", lambda *_: tried({}, next(runs)))
    own_algorithm.check_own(load(None, {"algorithm": "own_means:Draws", "policy": "masked"}, []))
    runs = iter(["a", *"bbbb"])
    with pytest.raises(Refused, match="breaks the protocol"):
        own_algorithm.check_own(load(None, {"algorithm": "own_means:Draws", "policy": "masked"}, []))


def test_one_that_draws_from_the_operating_system_is_left_alone():
    assert call("run", "Draws", "--quiet").exit_code == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("own_means:Nobody", "cannot be imported"),
        ("nowhere_to_be_found:Means", "cannot be imported"),
        ("own_means:NoAlgorithm", "is no subclass of secure_fedgraph.Algorithm"),
    ],
)
def test_a_name_that_nothing_answers_to(name: str, words: str):
    done = CliRunner().invoke(main, ["run", "--algorithm", name, *FLAGS, "--out", "out"])
    assert done.exit_code == 2 and words in done.output
