"""``secure-fedgraph plan``, and ``--algorithm auto``: what is chosen, said, and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import call, held

DATA = ["--data", "synthetic-citation", "--set", "dataset.nodes=120", "--set", "dataset.features=16"]
PUBMED = ["--data", "synthetic-citation", "--clients", "10"]
PUBMED += [f"--set=dataset.{key}" for key in ("nodes=1000", "features=500", "classes=3")]
"""As many features and classes as PubMed has, and a twentieth of its nodes."""


def plan(*arguments: str) -> dict[str, Any]:
    result = call("plan", "--policy", "distributed_dp", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_the_choice_on_data_like_pubmed() -> None:
    found = plan(*PUBMED, "--unit", "node", "--epsilon", "8")
    assert found["recommended"] == found["chosen"]["algorithm"] == "fedridge"
    assert found["chosen"]["noise_to_signal"] < 1 < found["no_learning_above"]
    names = [one["algorithm"] for one in found["candidates"]]
    assert names == sorted(names) and {"fedavg", "fedsage", "fedridge"} <= set(names)


def test_a_budget_of_nothing_is_no_learning() -> None:
    found = plan(*PUBMED, "--unit", "node", "--epsilon", "0.01")
    assert found["chosen"] is None and found["recommended"] == "local"
    assert "no learning" in found["why"] and "more owners (10 now)" in found["why"]


@pytest.mark.filterwarnings("ignore:fedridge takes the form")
def test_the_table_and_the_sentences(tmp_path: Path) -> None:
    text = call("plan", *DATA, "--unit", "node", "--epsilon", "4", "--policy", "distributed_dp").stdout
    assert "noise-to-signal" in text and "second_moments=all" in text and "graphfl is not compared: " in text
    assert "Recommended: fedridge under policy distributed_dp, training.second_moments=all" in text
    run = text.partition("To run it: secure-fedgraph ")[2].partition("\n")[0].split()
    assert all(one in run for one in DATA) and "--algorithm fedridge --policy" in " ".join(run)
    # what it prints runs, on the same data
    ran = call(*run, "--json", "--out", str(tmp_path / "run"))
    assert ran.exit_code == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert result["config"]["data"] == DATA[1] and result["budget"]["epsilon"] == 4.0
    text = call("plan", *DATA, "--unit", "client", "--epsilon", "0.1").stdout
    assert "Recommended: every owner alone (local)" in text and "noise exceeds any signal" in text


def test_noise_of_the_server_holds_against_peers() -> None:
    text = call("plan", *DATA, "--unit", "node", "--epsilon", "4", "--policy", "central_dp").stdout
    assert "--policy central_dp --epsilon 4 --unit node --against peers" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--unit", "node", "--epsilon", "-1"], "epsilon = -1.0"),
        (["--unit", "node", "--epsilon", "4", "--clients", "500"], "owners is 500"),
        (["--unit", "edge", "--epsilon", "4"], "plan with --unit node"),
        (["--unit", "node", "--epsilon", "4", "--data", "nope"], "unknown dataset 'nope'"),
        (["--unit", "node"], "--epsilon"),
        (["--unit", "node", "--epsilon", "4", "--delta", "2"], "delta = 2.0"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], words: str) -> None:
    result = call("plan", *DATA, *arguments)
    assert result.exit_code == 2 and words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


IN_ITS_FORM = pytest.mark.filterwarnings("ignore:fedridge takes the form")
AUTO = ["--algorithm", "auto", *DATA, "--unit", "node"]


@IN_ITS_FORM
def test_auto_runs_what_the_planner_chooses(tmp_path: Path) -> None:
    out = tmp_path / "run"
    ran = call("run", *AUTO, "--policy", "distributed_dp", "--epsilon", "4", "--out", str(out))
    assert ran.exit_code == 0, ran.stderr
    first = ran.stdout.splitlines()[0]
    assert first.startswith("fedridge on synthetic-citation") and "chosen by auto: fedridge under" in first
    result = held(out / "result.json")
    assert result["config"]["algorithm"] == "fedridge" and result["config"]["policy"] == "distributed_dp"
    assert result["form"] == {"second_moments": "all", "target_norm": 1.0}
    assert result["budget"]["epsilon"] == 4.0


@IN_ITS_FORM
def test_auto_in_a_file_and_by_set(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text('algorithm = "auto"\ndata = "synthetic-citation"\nunit = "node"\npolicy = "local_dp"\n')
    sizes = ["--set", "dataset.nodes=120", "--epsilon", "8", "--json"]
    for arguments in ([str(file)], [str(file), "--set", "algorithm=auto"]):
        ran = call("run", *arguments, *sizes, "--out", str(tmp_path / str(len(arguments))))
        assert ran.exit_code == 0, ran.stderr
        assert json.loads(ran.stdout)["config"]["algorithm"] == "fedridge"


def test_auto_without_a_budget_or_with_too_little_is_refused(tmp_path: Path) -> None:
    for given, words in (
        ([], "no epsilon: the planner chooses by the noise that a budget needs; give --epsilon 4"),
        (["--epsilon", "0.0001", "--policy", "distributed_dp"], "give a larger epsilon or more owners"),
    ):
        refused = call("run", *AUTO, *given, "--out", str(tmp_path / "run"))
        assert refused.exit_code == 2 and words in refused.stderr
        assert not (tmp_path / "run").exists()


def test_a_comparison_names_what_it_compares(tmp_path: Path) -> None:
    refused = call("compare", *AUTO, "--epsilon", "4", "--out", str(tmp_path / "c"))
    assert refused.exit_code == 2 and "name what is compared" in refused.stderr


def test_an_option_that_is_missing_is_one_line_with_its_choices() -> None:
    result = call("plan", "--epsilon", "4")
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert (
        "'--unit'" in result.stderr
        and "node, graph, client, edge" in result.stderr
        and "?" not in result.stderr
    )
