"""Whatever a user asks for is done, or refused with status 2 by a sentence that names the key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from command_line import call

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.config import Experiment, load, read_values
from secure_fedgraph.experiment.intent import RULES, check_intent, given_keys

SMALL = ["--data", "synthetic-citation", "--rounds", "1", "--set", "training.hidden=[8,4]"]
SMALL += ["--set", "dataset.nodes=90", "--set", "dataset.features=16"]
NOISE = ["--norm", "1", "--multiplier", "2"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(result: Result, key: str) -> None:
    """Status 2, one line that names the key, and nothing left on disk."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    assert key in result.stderr, result.stderr
    assert not Path("out").exists() and not Path("runs").exists()


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        # nothing is clipped, nothing is noised
        (["--norm", "1"], "protection.norm"),
        (["--policy", "masked", "--norm", "1"], "protection.norm"),
        (["--policy", "plaintext", "--multiplier", "2"], "protection.multiplier"),
        (["--policy", "plaintext", "--norm", "1", "--multiplier", "2"], "protection.norm"),
        (["--policy", "masked", "--delta", "1e-6"], "--delta"),
        (["--policy", "homomorphic", "--relation", "replace"], "--relation"),
        # nothing has a budget
        (["--unit", "node"], "--unit"),
        (["--against", "outsider"], "--against"),
        (["--set", "budget.update=2"], "budget.update"),
        (["--policy", "local_dp", "--norm", "1", "--multiplier", "2", "--unit", "node"], "--unit"),
        (["--policy", "local_dp", *NOISE, "--epsilon", "8", "--set", "budget.update=2"],
         "budget.update"),
        # settings of training that count under noisy steps alone, or without them alone
        (["--policy", "plaintext", "--set", "training.crowd=7"], "training.crowd"),
        (["--policy", "masked", "--set", "training.places=7"], "training.places"),
        # nodes that are trained on alone have no neighbours to limit
        (["--policy", "masked", "--unit", "node", "--epsilon", "8", "--set", "training.fanout=[0,0]",
          "--set", "training.crowd=7"], "training.crowd"),
        (["--algorithm", "fedavg", "--policy", "masked", "--set", "training.heaviest=50"],
         "training.heaviest"),
        (["--policy", "masked", "--epsilon", "8", "--unit", "node", "--set", "training.batch=8"],
         "training.batch"),
        (["--policy", "masked", "--epsilon", "8", "--unit", "node", "--set", "training.epochs=3"],
         "training.epochs"),
        # nobody may drop out
        (["--policy", "homomorphic", "--set", "dropouts=0.3"], "dropouts"),
        (["--policy", "plaintext", "--set", "dropouts=0.3"], "dropouts"),
        # settings of another policy
        (["--policy", "homomorphic", "--set", "protection.dropouts=0.3"], "protection.dropouts"),
        (["--policy", "masked", "--set", "protection.scheme=ckks"], "protection.scheme"),
        (["--policy", "plaintext", "--set", "protection.limit=4"], "protection.limit"),
        # nothing is drawn
        (["--set", "feature_range=[0,2]"], "feature_range"),
        # switches for numbers
        (["--set", "clients=true"], "clients"),
        (["--set", "training.epochs=true"], "epochs"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_a_run_refuses_what_it_would_ignore(arguments: list[str], key: str) -> None:
    refused(call("run", *SMALL, *arguments, "--out", "out"), key)


AUDIT = ("audit", "--attack", "a1")


@pytest.mark.parametrize(
    ("command", "arguments", "key"),
    [
        (["compare"], ["--epsilon", "1,2", "--policy", "plaintext"], "--epsilon"),
        (["compare"], ["--epsilon", "1,2", "--policy", "masked", "--unit", "client"], "--epsilon"),
        (["compare"], ["--epsilon", ","], "--epsilon"),
        (["compare"], ["--epsilon", ""], "--epsilon"),
        (["compare"], ["--epsilon", "1,,2"], "--epsilon"),
        (["compare"], ["--against", "outsider", "--policy", "masked"], "--against"),
        (["compare"], ["--policy", "masked,homomorphic", "--norm", "1"], "protection.norm"),
        (["compare"], ["--set", "checkpoint_every=5"], "checkpoint_every"),
        (AUDIT, ["--policy", "plaintext,masked", "--norm", "1"], "protection.norm"),
        (AUDIT, ["--policy", "plaintext", "--epsilon", "8"], "--epsilon"),
        (AUDIT, ["--policy", "masked", "--unit", "node"], "--unit"),
        (AUDIT, ["--set", "checkpoint_every=5"], "checkpoint_every"),
    ],
)
def test_so_do_a_comparison_and_an_audit(command: list[str], arguments: list[str], key: str) -> None:
    refused(call(*command, *SMALL, *arguments, "--out", "out"), key)


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        ("e.toml", "rounds = true", "rounds"),
        ("e.toml", "epsilon = true\npolicy = 'local_dp'", "epsilon"),
        ("e.toml", "rounds = 1\nrounds = 2", "e.toml"),
        ("e.toml", "[protection]\nnorm = 2.0", "protection.norm"),
        ("e.toml", "unit = 'edge'", "--unit"),
    ],
)
def test_a_file_is_held_to_the_same(name: str, text: str, key: str) -> None:
    Path(name).write_text(text)
    refused(call("run", name, "--data", "synthetic-citation", "--out", "out"), key)


NOISED = ["protection.norm=1", "protection.multiplier=1"]


@pytest.mark.parametrize(
    ("flags", "assignments"),
    [
        ({"policy": "masked"}, ["dropouts=0.3"]),
        ({"policy": "local_dp", "delta": 1e-6}, NOISED),
        ({"policy": "strictest"}, NOISED),
        ({"policy": "distributed_dp", "epsilon": 8.0, "unit": "client"}, ["protection.norm=1"]),
        ({"unit": "node", "epsilon": 8.0}, ["steps.clip=2"]),
        ({"unit": "client", "relation": "zero-out"}, ["delta=1e-5", "dropouts=0.0"]),
        ({"policy": "masked"}, ["protection.dropouts=0.3"]),
    ],
)
def test_what_is_used_is_no_mistake(flags: dict[str, object], assignments: list[str]) -> None:
    check_intent(given_keys(read_values(None, flags, assignments)), [load(None, flags, assignments)])


def test_of_several_policies_one_that_uses_a_key_is_enough() -> None:
    given = {"protection.norm": 1.0, "protection.multiplier": 1.0}
    noised = {"protection": {"norm": 1.0, "multiplier": 1.0}}
    check_intent(given, [Experiment(policy="masked", **noised), Experiment(policy="local_dp", **noised)])
    with pytest.raises(BadInput, match=r"protection\.norm"):
        check_intent(given, [Experiment(policy="masked", **noised)])


def test_every_rule_is_of_a_key_that_there_is() -> None:
    assert set(RULES) <= Experiment.model_fields.keys()


# Finished runs, and folders that held something else


def test_overwriting_a_comparison_leaves_none_of_its_files() -> None:
    done = call("compare", *SMALL, "--policy", "plaintext", "--workers", "1", "--quiet", "--out", "out")
    assert done.exit_code == 0, done.output
    assert {"compare.json", "compare.csv", "runs"} <= {p.name for p in Path("out").iterdir()}
    Path("out/mine.txt").write_text("kept")
    done = call("run", *SMALL, "--policy", "plaintext", "--quiet", "--out", "out", "--overwrite")
    assert done.exit_code == 0, done.output
    left = {path.name for path in Path("out").iterdir()}
    assert {"result.json", "report.html", "mine.txt"} <= left
    assert not {"compare.json", "compare.csv", "runs"} & left
    # and the other way round
    done = call(
        "compare", *SMALL, "--policy", "plaintext", "--workers", "1", "--quiet", "--out", "out", "--overwrite"
    )
    assert done.exit_code == 0, done.output
    assert not {"result.json", "ledger.jsonl", "transcript"} & {p.name for p in Path("out").iterdir()}


# Words and folders


def test_names_are_taken_in_any_case() -> None:
    done = call("run", *SMALL, "--algorithm", "FedSage", "--policy", "Masked", "--json", "--out", "out")
    assert done.exit_code == 0, done.output
    config = json.loads(done.stdout)["config"]
    assert (config["algorithm"], config["policy"]) == ("fedsage", "masked")
    assert call("list", "Policies", "--json").exit_code == 0


def test_a_reader_that_leaves_early_stops_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("secure_fedgraph.cli.screen.click.echo", broken)
    done = call("run", *SMALL, "--out", "out")  # the first line finds nobody reading
    assert done.exit_code == 0, done.output
    assert Path("out/result.json").is_file()
