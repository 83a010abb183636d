"""What a run leaves on disk: every key of the contract, whole files, folders that are not overwritten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import held

import secure_fedgraph as sfg
from secure_fedgraph.core.accounting import epsilon
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import (
    begin,
    execute,
    fresh_folder,
    mean_result,
    read_json,
    run_result,
    write_json,
)
from secure_fedgraph.experiment.schema import RunResult
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.privacy.spent import number

SMALL: dict[str, Any] = {
    "data": "synthetic-citation",
    "rounds": 2,
    "dataset": {"nodes": 90, "features": 16},
    "training": {"hidden": [8, 4]},
}


def result_of(**changes: Any) -> tuple[sfg.Run, dict[str, Any]]:
    experiment = Experiment(**{**SMALL, "policy": "plaintext", **changes})
    run = execute(experiment, None)
    return run, run_result(run, experiment, "secure-fedgraph run")


@pytest.fixture(scope="module")
def plain() -> tuple[sfg.Run, dict[str, Any]]:
    return result_of()


def test_the_keys_of_the_contract(plain: tuple[sfg.Run, dict[str, Any]]) -> None:
    _, result = plain
    assert result["schema"] == "secure-fedgraph/run/1"
    wanted = {"config", "seed", "versions", "accuracy", "privacy", "bytes", "channels", "seconds", "rounds"}
    assert wanted <= result.keys()
    assert {"global", "local", "best_by_validation", "best_on_test"} <= result["accuracy"].keys()
    assert {"up", "down"} <= result["bytes"].keys()
    claim = ["epsilon", "delta", "against", "relation", "accountant", "holders", "computational", "readers"]
    assert all({*claim} <= entry.keys() for entry in result["privacy"].values())
    channel = ["name", "reveal", "unit", "policy", "bytes_up", "messages", "epsilon", "excess"]
    assert all({*channel} <= row.keys() for row in result["channels"])
    assert result.keys() <= {field.alias or name for name, field in RunResult.model_fields.items()}
    assert [row["round"] for row in result["rounds"]] == [1, 2]
    assert all({"round", "loss", "accuracy"} <= row.keys() for row in result["rounds"])


def test_the_configuration_is_resolved(plain: tuple[sfg.Run, dict[str, Any]]) -> None:
    config = result_of(rounds=1)[1]["config"]
    assert config["rounds"] == 1
    assert config["training"]["learning_rate"] == 0.001  # a default, written out
    assert config["training"]["hidden"] == [8, 4]
    assert Experiment(**config).make_algorithm().settings.hidden == (8, 4)  # it can be run again


def test_a_result_says_its_data_and_where_its_test_data_stood(plain: tuple[sfg.Run, dict[str, Any]]) -> None:
    _, result = plain
    assert len(result["data"]["digest"]) == 64
    assert result["data"]["source"] == f"generated with seed {sub_seed(0, 'data')}"
    assert "outside the guarantee" in result["evaluation"]["note"]
    assert result["versions"]["torch"] and result["versions"]["python"]


def test_bytes_are_those_of_the_messages(plain: tuple[sfg.Run, dict[str, Any]]) -> None:
    run, result = plain
    sent = run.transcript.sent
    assert result["bytes"]["up"] == sum(s.bytes for s in sent if s.recipient == "server") > 0
    (row,) = result["channels"]
    assert row["bytes_up"] == result["bytes"]["up"]
    assert row["bytes_up"] + row["bytes_down"] == sum(s.bytes for s in sent)
    assert row["messages"] == len(sent) == 2 * 2 * 3
    assert row["uploads"] == row["read_singly"] == 2 * 3


@pytest.mark.parametrize(("policy", "read"), [("masked", 0), ("homomorphic", 0), ("plaintext", 6)])
def test_uploads_that_the_server_reads_one_by_one_are_counted(policy: str, read: int) -> None:
    (row,) = result_of(policy=policy)[1]["channels"]
    assert (row["uploads"], row["read_singly"]) == (2 * 3, read)


def test_carriers_are_counted_apart_and_all_bytes_are_somewhere() -> None:
    run, result = result_of(policy="masked")
    channels = sum(row["bytes_up"] + row["bytes_down"] for row in result["channels"])
    carriers = sum(row["bytes"] for row in result["carriers"])
    assert carriers > 0
    assert channels + carriers == result["bytes"]["up"] + result["bytes"]["down"]
    assert channels + carriers == sum(s.bytes for s in run.transcript.sent)


def test_an_unprotected_unit_is_the_string_inf_and_json_holds_it(
    plain: tuple[sfg.Run, dict[str, Any]],
) -> None:
    _, result = plain
    assert result["privacy"]["client"]["epsilon"] == "inf"
    assert result["privacy"]["node"]["epsilon"] == "inf"
    assert result["channels"][0]["epsilon"] == "inf"
    json.dumps(result, allow_nan=False)


def test_local_noise_is_finite_at_every_level_and_central_noise_not_against_the_server() -> None:
    noise = {"norm": 1.0, "multiplier": 2.0}
    run, result = result_of(policy="local_dp", protection=noise)
    local = result["privacy"]
    central = result_of(policy="central_dp", protection=noise)[1]["privacy"]
    events = run.charges[0].releases["server"]
    # two releases with multiplier 2 are one with 2 / sqrt(2): mu = 0.7071, 2.90 if the noise were continuous
    assert local["client"]["epsilon"] == number(epsilon.epsilon(events * 2, 1e-5).epsilon)
    assert local["client"]["epsilon"] == pytest.approx(2.9, abs=0.05)
    assert local["client"]["accountant"] == "exact-gaussian"
    # a node is one of its client's alone: the upload moves from u to u' within the clip, twice the way
    halved = epsilon.epsilon([epsilon.GaussianRelease(1.0)] * 2, 1e-5).epsilon
    assert local["node"]["epsilon"] == pytest.approx(halved, abs=2e-4)
    assert local["edge"]["epsilon"] == local["node"]["epsilon"] > 2 * local["client"]["epsilon"]
    for unit in ("client", "node", "edge"):
        assert set(local[unit]["readers"].values()) == {local[unit]["epsilon"]}
    assert result["channels"][0]["epsilon"] == local["client"]["epsilon"]
    assert central["client"]["epsilon"] == central["node"]["epsilon"] == "inf"
    assert central["client"]["against"] == "server"
    assert central["client"]["readers"]["outsider"] == local["client"]["epsilon"]


def test_best_by_validation_and_best_on_test_are_not_mixed() -> None:
    _, result = result_of(rounds=6, training={"hidden": [8, 4], "learning_rate": 0.05})
    rows = result["rounds"]
    chosen = max(rows, key=lambda row: row["accuracy"]["validation"])
    accuracy = result["accuracy"]
    assert accuracy["global"] == rows[-1]["accuracy"]["global"]
    assert accuracy["best_by_validation"] == {
        "round": chosen["round"],
        "global": chosen["accuracy"]["global"],
        "local": chosen["accuracy"]["local"],
    }
    assert accuracy["best_on_test"]["global"] == max(row["accuracy"]["global"] for row in rows)


def test_the_mean_over_seeds_by_hand() -> None:
    results = [result_of(seed=seed)[1] for seed in (0, 1)]
    scores = [r["accuracy"]["global"] for r in results]
    mean = mean_result(results)
    assert mean["seed"] == [0, 1]
    assert mean["accuracy"]["global"] == pytest.approx(sum(scores) / 2)
    assert mean["accuracy"]["std"]["global"] == pytest.approx(abs(scores[0] - scores[1]) / 2**0.5)
    assert [row["seed"] for row in mean["seeds"]] == [0, 1]
    assert mean["seeds"][1]["accuracy"] == results[1]["accuracy"]
    json.dumps(mean, allow_nan=False)


def test_over_seeds_the_largest_epsilon_is_printed() -> None:
    results = [result_of(seed=seed)[1] for seed in (0, 1)]
    budget = {"epsilon": 8.0, "delta": 1e-5, "unit": "client", "against": "server", "holders": 1,
              "adaptive": False, "relation": "zero-out", "planned": True}  # fmt: skip
    note = {"round": 1, "channel": "c", "step": "s", "reason": "r"}
    for one, (most, outsider) in zip(results, ((2.0, 5.0), ("inf", 1.0)), strict=True):
        readers = {"server": most, "outsider": outsider}
        one["privacy"]["client"] |= {"epsilon": most, "readers": readers, "holders": one["seed"] + 1}
        one["channels"][0]["epsilon"] = most
        one["budget"] = {**budget, "spent": most}
        one["left_out"] = [{**note, "client": str(one["seed"])}]
    mean = mean_result(results)
    claim = mean["privacy"]["client"]
    assert (claim["epsilon"], claim["holders"]) == ("inf", 2)
    assert claim["readers"] == {"server": "inf", "outsider": 5.0}
    assert mean["channels"][0]["epsilon"] == mean["budget"]["spent"] == "inf"
    assert [(row["seed"], row["client"]) for row in mean["left_out"]] == [(0, "0"), (1, "1")]


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "result.json"
    write_json(path, {"schema": "secure-fedgraph/run/1", "a": 1})
    with pytest.raises(ValueError, match=r"JSON|nan"):
        write_json(path, {"a": float("nan")})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert held(path)["a"] == 1
    assert [p.name for p in path.parent.iterdir()] == ["result.json"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "holds no result.json"),
        ("{", "is not JSON"),
        ("[]", "has schema None"),
        ('{"schema": "secure-fedgraph/audit/1"}', "not secure-fedgraph/run/1"),
    ],
)
def test_a_file_that_is_no_result(text: str | None, words: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "result.json").write_text(text)
    with pytest.raises(BadInput, match=words):
        read_json(tmp_path / "result.json", "run")


def test_a_run_that_was_stopped_is_no_result_and_names_resume(tmp_path: Path) -> None:
    experiment = Experiment(**{**SMALL, "policy": "masked"})
    begin(tmp_path, experiment, [0], "secure-fedgraph run")
    with pytest.raises(BadInput, match=r"no result\.json: .*secure-fedgraph resume"):
        read_json(tmp_path / "result.json", "run")


def test_an_earlier_result_stands_unless_somebody_says_so(tmp_path: Path) -> None:
    for name in ("result.json", "ledger.jsonl"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(BadInput, match=r"result\.json.*--out.*--overwrite"):
        fresh_folder(tmp_path, False)
    assert fresh_folder(tmp_path, True) == tmp_path
    assert list(tmp_path.iterdir()) == []
    assert fresh_folder(tmp_path / "new" / "deep", False).is_dir()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(BadInput, match="is a file: give a folder"):
        fresh_folder(tmp_path / "out", False)


def test_what_an_earlier_command_made_goes_and_nothing_else(tmp_path: Path) -> None:
    own = ("seed-0/ledger.jsonl", "runs/plaintext/result.json", "runs/a/seed-1/key.json", "transcript/x")
    others = ("seed-notes/x", "runs/precious/x", "runs/another/result.json", "runs/another/report.html")
    for name in (*own, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}\n")
    (tmp_path / "result.json").write_text("{}")
    fresh_folder(tmp_path, True)
    assert not any((tmp_path / name).parent.exists() for name in own)
    assert all((tmp_path / name).exists() for name in others)


def test_what_is_released_without_noise_is_listed(plain):
    """Every key that a result has of the data, and no epsilon covers, is named."""
    _, result = plain
    said = " ".join(one.split(":")[0] for one in result["released_exactly"]).replace(",", "").split()
    for key in ("rounds", "accuracy", "data", "bytes", "channels", "seconds", "weights"):
        assert key in result and key in said
    assert {name.split(".")[0] for name in said} <= result.keys()
    assert "protected training row" in result["released_exactly"][0]


@pytest.mark.parametrize("unit", ["node", "client"])
def test_scores_that_the_ledger_charges_are_not_said_to_be_exact(unit: str) -> None:
    """Where the scores are uploads with noise, an epsilon covers them."""
    noised = {"policy": "distributed_dp", "unit": unit, "epsilon": 8.0}
    for changes, exact in ((noised, False), ({}, True)):
        _, result = result_of(evaluation="in_band", **changes)
        assert any(one.startswith("rounds, accuracy:") for one in result["released_exactly"]) == exact
