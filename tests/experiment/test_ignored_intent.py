"""Whatever a user asks for is done, or refused with status 2 by a sentence that names the key."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from secure_fedgraph.cli import main, running
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.config import Experiment, load, read_values
from secure_fedgraph.experiment.intent import RULES, check_intent, given_keys

SMALL = ["--data", "synthetic-citation", "--rounds", "1", "--set", "training.hidden=[8,4]"]
SMALL += ["--set", "dataset.nodes=90", "--set", "dataset.features=16"]
NOISE = ["--norm", "1", "--multiplier", "2"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main.main, list(arguments))


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


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["--epsilon", "1,2", "--policy", "plaintext"], "--epsilon"),
        (["--epsilon", "1,2", "--policy", "masked", "--unit", "client"], "--epsilon"),
        (["--epsilon", ","], "--epsilon"),
        (["--epsilon", ""], "--epsilon"),
        (["--epsilon", "1,,2"], "--epsilon"),
        (["--against", "outsider", "--policy", "masked"], "--against"),
        (["--policy", "masked,homomorphic", "--norm", "1"], "protection.norm"),
        (["--set", "checkpoint_every=5"], "checkpoint_every"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_comparison_refuses_what_it_would_ignore(arguments: list[str], key: str) -> None:
    refused(call("compare", *SMALL, *arguments, "--out", "out"), key)


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["--policy", "plaintext,masked", "--norm", "1"], "protection.norm"),
        (["--policy", "plaintext", "--epsilon", "8"], "--epsilon"),
        (["--policy", "masked", "--unit", "node"], "--unit"),
        (["--set", "checkpoint_every=5"], "checkpoint_every"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_audit_refuses_what_it_would_ignore(arguments: list[str], key: str) -> None:
    refused(call("audit", *SMALL, *arguments, "--attack", "a1", "--out", "out"), key)


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


@pytest.mark.parametrize(
    "arguments",
    [
        ["--policy", "masked", "--set", "dropouts=0.3"],
        ["--policy", "local_dp", "--norm", "1", "--multiplier", "1", "--delta", "1e-6"],
        ["--policy", "strictest", "--norm", "1", "--multiplier", "1"],
        ["--norm", "1", "--epsilon", "8", "--unit", "client", "--policy", "distributed_dp"],
        ["--unit", "node", "--epsilon", "8", "--set", "steps.clip=2"],
        ["--set", "delta=1e-5", "--set", "dropouts=0.0", "--unit", "client", "--relation", "zero-out"],
        ["--policy", "masked", "--set", "protection.dropouts=0.3"],
    ],
    ids=" ".join,
)
def test_what_is_used_is_no_mistake(arguments: list[str]) -> None:
    flags = dict(zip(arguments[::2], arguments[1::2], strict=True))
    sets = [value for flag, value in zip(arguments[::2], arguments[1::2], strict=True) if flag == "--set"]
    clip = [f"protection.{key}={flags[f'--{key}']}" for key in ("norm", "multiplier") if f"--{key}" in flags]
    named = {
        k.removeprefix("--"): v for k, v in flags.items() if k not in ("--set", "--norm", "--multiplier")
    }
    experiment = load(None, named, [*clip, *sets])
    check_intent(given_keys(read_values(None, named, [*clip, *sets])), [experiment])


def test_of_several_policies_one_that_uses_a_key_is_enough() -> None:
    given = {"protection.norm": 1.0, "protection.multiplier": 1.0}
    noised = {"protection": {"norm": 1.0, "multiplier": 1.0}}
    check_intent(given, [Experiment(policy="masked", **noised), Experiment(policy="local_dp", **noised)])
    with pytest.raises(BadInput, match=r"protection\.norm"):
        check_intent(given, [Experiment(policy="masked", **noised)])


def test_every_rule_is_of_a_key_that_there_is() -> None:
    assert set(RULES) <= Experiment.model_fields.keys()


# Finished runs, and folders that held something else


def test_a_finished_run_takes_no_budget_any_more() -> None:
    assert call("run", *SMALL, "--quiet", "--out", "out").exit_code == 0
    for epsilon in ("-3", "9"):
        done = call("resume", "out", "--epsilon", epsilon)
        assert (done.exit_code, done.stdout) == (2, ""), done.output
        assert "--epsilon" in done.stderr
    assert call("resume", "out").exit_code == 0


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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--algorithm", "glasu", "--data", "proteins"], "data = 'proteins'.*glasu learns from kind node"),
        (["--algorithm", "apflgate", "--partition", "louvain"], "apflgate runs on dirichlet, random$"),
        (["--set", "training.lr=0.1"], "did you mean 'training.learning_rate'"),
        (["--data", "coar"], "unknown dataset 'coar': did you mean 'cora'"),
        (["--clients", "4000", "--data", "synthetic-citation"], "4000"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_told_what_works_and_leaves_no_folder(arguments: list[str], words: str) -> None:
    done = call("run", *arguments, "--out", "out")
    assert done.exit_code == 2, done.output
    assert re.search(words, done.stderr.strip()), done.stderr
    assert not Path("out").exists()


def test_names_are_taken_in_any_case() -> None:
    done = call("run", *SMALL, "--algorithm", "FedSage", "--policy", "Masked", "--json", "--out", "out")
    assert done.exit_code == 0, done.output
    config = json.loads(done.stdout)["config"]
    assert (config["algorithm"], config["policy"]) == ("fedsage", "masked")
    assert call("list", "Policies", "--json").exit_code == 0


@pytest.mark.parametrize(
    ("stopped", "status", "words"),
    [
        (KeyboardInterrupt(), 130, "interrupted; go on with: secure-fedgraph resume out"),
        (OSError(28, "No space left on device"), 1, "No space left on device.*secure-fedgraph resume out"),
    ],
    ids=["interrupt", "full"],
)
def test_what_stops_a_run_says_how_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, stopped: BaseException, status: int, words: str
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise stopped

    with monkeypatch.context() as patched:
        patched.setattr(running, "run_result", stop)
        done = call("run", *SMALL, "--out", "out", "--quiet")
    assert done.exit_code == status
    assert re.search(words, done.stderr), done.stderr
    assert call("resume", "out", "--quiet").exit_code == 0


def test_a_reader_that_leaves_early_stops_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("secure_fedgraph.cli.screen.click.echo", broken)
    done = call("run", *SMALL, "--out", "out")  # the first line finds nobody reading
    assert done.exit_code == 0, done.output
    assert Path("out/result.json").is_file()
