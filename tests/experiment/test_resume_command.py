"""``resume`` on the command line: what it goes on with, what it says is finished, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import call, held

from secure_fedgraph.cli import running
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import begin, begun, execute
from secure_fedgraph.storage.party_store import read_json, write_json

SMALL = ["--data", "synthetic-citation", "--set", "dataset.nodes=60", "--set", "dataset.features=16",
         "--set", "training.hidden=[8,8]", "--policy", "masked", "--rounds", "3"]  # fmt: skip


def result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = held(folder / "result.json")
    return found


def stop(out: Path, after: int, *more: str) -> str:
    """A run that dies after that many scored rounds, over all seeds."""
    left = [after]

    def dying(one: Any, folder: Any, on_round: Any, **rest: Any) -> Any:
        def count(row: Any) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            on_round(row)

        return execute(one, folder, on_round=count, **rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "execute", dying)
        stopped = call("run", *SMALL, *more, "--out", out)
    assert stopped.exit_code == 130
    return stopped.stderr


def test_a_stopped_run_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    assert call("run", *SMALL, "--out", tmp_path / "whole").exit_code == 0
    stop(tmp_path / "run", 2)
    refused = call("run", *SMALL, "--out", tmp_path / "run")
    assert refused.exit_code == 2
    assert "go on with 'resume" in refused.stderr
    done = call("resume", tmp_path / "run", "--json")
    assert done.exit_code == 0, done.stderr
    found, whole = result(tmp_path / "run"), result(tmp_path / "whole")
    assert json.loads(done.stdout) == found
    for key in ("accuracy", "weights", "rounds", "config", "privacy"):
        assert found[key] == whole[key], key
    assert found["bytes"]["up"] > whole["bytes"]["up"]  # the interrupted round went out, and counts
    assert (tmp_path / "run" / "report.html").exists()
    kept = {path.name for path in (tmp_path / "run" / "checkpoint").iterdir()}
    assert kept == {"experiment.json", "exchange.json", "lock"}


def test_a_finished_run_says_so(tmp_path: Path) -> None:
    assert call("run", *SMALL, "--out", tmp_path).exit_code == 0
    before = (tmp_path / "result.json").read_bytes()
    done = call("resume", tmp_path)
    assert done.exit_code == 0
    assert "is finished: nothing to resume" in done.stdout
    assert json.loads(call("resume", tmp_path, "--json").stdout) == json.loads(before)
    assert (tmp_path / "result.json").read_bytes() == before
    for typed in (("--silo", "bank-a=elsewhere.pt"), ("--epsilon", 9), ("--device", "cpu")):
        refused = call("resume", tmp_path, *typed)
        assert refused.exit_code == 2 and f"{typed[0]} {typed[1]}".split("=")[0] in refused.stderr


@pytest.mark.parametrize("left", ["released.model", "report.html"])
def test_a_finished_run_of_which_little_is_left_is_not_trained_again(left: str, tmp_path: Path) -> None:
    assert call("run", *SMALL, "--out", tmp_path).exit_code == 0
    kept = {tmp_path / left, tmp_path / "checkpoint" / "experiment.json"}
    for path in sorted(tmp_path.rglob("*"), reverse=True):
        if path.is_file() and path not in kept:
            path.unlink()
    refused = call("resume", tmp_path)
    assert refused.exit_code == 2 and "charged again" in refused.stderr, refused.output
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == kept


@pytest.mark.parametrize(
    "without",
    [
        ("ledger.jsonl", "checkpoint/exchange.json"),
        ("transcript/notes.jsonl", "checkpoint/exchange.json"),
        ("ledger.jsonl", "transcript/notes.jsonl"),
    ],
)
@pytest.mark.parametrize("seeds", [(), ("--seeds", "2")])
def test_a_run_whose_result_and_checkpoint_are_gone_is_not_made_and_charged_again(
    without: tuple[str, ...], seeds: tuple[str, ...], tmp_path: Path
) -> None:
    noise = ("--policy", "distributed_dp", "--norm", "1", "--multiplier", "2")
    assert call("run", *SMALL, *noise, *seeds, "--out", tmp_path / "run").exit_code == 0
    run = tmp_path / "run" / ("seed-1" if seeds else ".")
    for folder in {tmp_path / "run", run.resolve()}:
        (folder / "result.json").unlink()
    for lost in without:
        (run / lost).unlink()
    ledgers = {path: path.read_bytes() for path in tmp_path.rglob("ledger.jsonl")}
    refused = call("resume", tmp_path / "run")
    assert refused.exit_code == 2, refused.output
    assert "result.json" in refused.stderr
    assert "checkpoint.json" in refused.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("ledger.jsonl")} == ledgers


def test_several_seeds_go_on_with_the_one_that_was_stopped(tmp_path: Path) -> None:
    assert call("run", *SMALL, "--seeds", 3, "--out", tmp_path / "whole").exit_code == 0
    stop(tmp_path / "run", 4, "--seeds", "3")
    assert call("run", *SMALL, "--seeds", 3, "--out", tmp_path / "run").exit_code == 2
    first = (tmp_path / "run" / "seed-0" / "result.json").read_bytes()
    done = call("resume", tmp_path / "run", "--quiet")
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "run" / "seed-0" / "result.json").read_bytes() == first
    found, whole = result(tmp_path / "run"), result(tmp_path / "whole")
    assert found["accuracy"] == whole["accuracy"]
    assert found["weights"] == whole["weights"]
    assert len(set(found["weights"])) == 3


def test_folders_without_a_run(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        refused = call("resume", folder)
        assert refused.exit_code == 2
        assert f"{folder} holds no checkpoint to resume from: start it with 'run --out" in refused.stderr


def test_an_older_and_a_damaged_note(tmp_path: Path) -> None:
    stop(tmp_path, 1)
    path = tmp_path / "checkpoint" / "experiment.json"
    raw = path.read_bytes()
    write_json(path, {**read_json(path), "schema": "secure-fedgraph/checkpoint/0"})
    assert (
        "experiment.json is 'secure-fedgraph/checkpoint/0', and this version"
        in call("resume", tmp_path).stderr
    )
    path.write_bytes(raw[:-5])
    assert "experiment.json is damaged" in call("resume", tmp_path).stderr
    path.write_bytes(raw)
    assert begun(tmp_path)[1] == [0]
    assert call("resume", tmp_path).exit_code == 0


NOISE = ("--policy", "distributed_dp", "--unit", "client", "--epsilon")


@pytest.mark.parametrize("seeds", [(), ("--seeds", "2")])
def test_overwriting_says_which_charges_it_drops(seeds: tuple[str, ...], tmp_path: Path) -> None:
    stop(tmp_path, 4 if seeds else 2, *NOISE, "8", *seeds)
    ledgers = sorted(tmp_path.rglob("ledger.jsonl"))
    charges = sum(len(path.read_text().splitlines()) for path in ledgers)
    assert charges == (15 if seeds else 9)
    for again in (*NOISE, "4"), ():
        done = call("run", *SMALL, *again, *seeds, "--out", tmp_path, "--overwrite", "--quiet")
        assert done.exit_code == 0, done.stderr
        (line,) = done.stderr.splitlines()
        assert f" {charges} charges" in line and f"--ledger {ledgers[0]}" in line
        charges = 18 if seeds else 9  # of the run in between, which is finished
    done = call("run", *SMALL, *seeds, "--out", tmp_path, "--overwrite", "--quiet")
    assert done.exit_code == 0 and not done.stderr  # that one had no noise


@pytest.mark.parametrize(
    "other",
    [
        ("compare", *SMALL, "--policy", "plaintext", "--workers", "1", "--skip-without-graph"),
        ("audit", *SMALL, "--policy", "plaintext", "--attack", "a4-label-counts", "--effort", "0.02"),
        ("audit", "FINISHED", "--attack", "a4-label-counts", "--effort", "0.02"),
    ],
)
def test_other_commands_that_overwrite_say_it_too(other: tuple[str, ...], tmp_path: Path) -> None:
    stop(tmp_path / "run", 2, *NOISE, "8")
    if "FINISHED" in other:
        whole = ("--set", "transcript=full", "--out", tmp_path / "finished")
        assert call("run", *SMALL, *whole).exit_code == 0
        other = tuple(str(tmp_path / "finished") if word == "FINISHED" else word for word in other)
    done = call(*other, "--out", tmp_path / "run", "--overwrite", "--quiet")
    assert done.exit_code == 0, done.stderr
    assert "removes 9 charges" in done.stderr
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


def test_seeds_of_a_stopped_run_are_none_of_the_run_that_overwrites_it(tmp_path: Path) -> None:
    stop(tmp_path, 4, "--seeds", "2")
    assert call("run", *SMALL, "--rounds", 2, "--seeds", 2, "--out", tmp_path, "--overwrite").exit_code == 0
    assert [result(tmp_path / f"seed-{seed}")["config"]["rounds"] for seed in (0, 1)] == [2, 2]


def test_no_ledger_is_shared_and_cleared_at_once(tmp_path: Path) -> None:
    stop(tmp_path, 2, *NOISE, "8")
    shared = tmp_path / "ledger.jsonl"
    before = shared.read_bytes()
    over = ("--overwrite", "--ledger", tmp_path / "checkpoint" / ".." / shared.name)
    refused = call("run", *SMALL, *NOISE, "16", "--out", tmp_path, *over)
    assert refused.exit_code == 2 and "which --overwrite clears" in refused.stderr
    assert shared.read_bytes() == before


def test_nothing_is_cleared_for_a_ledger_that_refuses_the_run(tmp_path: Path) -> None:
    stop(tmp_path / "run", 2, *NOISE, "8")
    shared = tmp_path / "shared.jsonl"
    stop(tmp_path / "other", 2, *NOISE, "8", "--seed", "1", "--ledger", shared)
    before = (tmp_path / "run" / "ledger.jsonl").read_bytes()
    over = ("--out", tmp_path / "run", "--overwrite", "--ledger", shared)
    refused = call("run", *SMALL, *NOISE, "16", *over)
    assert refused.exit_code == 2 and "other data" in refused.stderr
    assert (tmp_path / "run" / "ledger.jsonl").read_bytes() == before


def test_another_folder_with_the_ledger_of_a_stopped_run_counts_what_that_spent(tmp_path: Path) -> None:
    stop(tmp_path / "run", 2, *NOISE, "8")
    shared = tmp_path / "run" / "ledger.jsonl"
    before = shared.read_bytes()
    refused = call("run", *SMALL, *NOISE, "8", "--out", tmp_path / "run")
    assert refused.exit_code == 2 and "--ledger" in refused.stderr and "--overwrite" not in refused.stderr
    other = ("--out", tmp_path / "other", "--ledger", shared)
    assert call("run", *SMALL, *NOISE, "7", *other).exit_code == 3
    assert call("run", *SMALL, *NOISE, "16", *other).exit_code == 0
    budget = result(tmp_path / "other")["budget"]
    assert budget["spent"] + 3 < budget["spent_by_all_runs"] <= 16
    assert shared.read_bytes().startswith(before)


@pytest.mark.parametrize("lost", ["transcript/notes.jsonl", "checkpoint/exchange.json"])
def test_a_damaged_record_advises_nothing_that_drops_charges(lost: str, tmp_path: Path) -> None:
    stop(tmp_path, 2, *NOISE, "8")
    (tmp_path / lost).write_bytes(b"{\n")
    refused = call("resume", tmp_path)
    assert refused.exit_code == 2 and f"{Path(lost).name} is damaged" in refused.stderr
    assert "--ledger" in refused.stderr and "--overwrite" not in refused.stderr


def test_no_checkpoints_where_none_are_asked_for(tmp_path: Path) -> None:
    stop(tmp_path, 2, "--set", "checkpoint_every=0")
    assert not (tmp_path / "checkpoint").exists()
    assert (
        call("resume", tmp_path).exit_code == 2
    )  # what it had sent is charged; it is not begun again by itself


def note(out: Path, **config: object) -> None:
    """Puts values into what a run noted, as whoever made the folder can."""
    path = out / "checkpoint" / "experiment.json"
    asked = read_json(path)
    write_json(path, {**asked, "config": {**asked["config"], **config}})


@pytest.mark.parametrize("place", ["{}/victim.jsonl", "{}/run/../victim.jsonl", "{}/run/link/victim.jsonl"])
def test_a_folder_names_no_place_outside_of_it(place: str, tmp_path: Path) -> None:
    begin(tmp_path / "run", Experiment(), [0], "run")
    (tmp_path / "run" / "link").symlink_to(tmp_path)
    place = place.format(tmp_path)
    note(tmp_path / "run", ledger=place)
    refused = call("resume", tmp_path / "run")
    assert refused.exit_code == 2 and f"add --ledger {place}" in refused.stderr, refused.stderr
    assert {one.name for one in tmp_path.iterdir()} == {"run"}
    experiment, _, _ = begun(tmp_path / "run", ledger=Path(place))
    assert str(experiment.ledger) == place


def test_places_inside_need_no_option_and_what_was_not_noted_takes_none(tmp_path: Path) -> None:
    begin(tmp_path, Experiment(), [0], "run")
    refused = call("resume", tmp_path, "--ledger", "there")
    assert refused.exit_code == 2 and "was begun without: drop it" in refused.stderr
    note(tmp_path, ledger=str(tmp_path / "mine.jsonl"))
    assert begun(tmp_path)[0].ledger == tmp_path / "mine.jsonl"


def test_a_run_with_a_shared_ledger_goes_on_with_it(tmp_path: Path) -> None:
    shared, out = tmp_path / "shared.jsonl", tmp_path / "run"
    noisy = ["--policy", "local_dp", "--norm", "1", "--multiplier", "5", "--ledger", str(shared)]
    said = stop(out, 1, *noisy)
    assert f"resume {out} --ledger {shared}" in said
    before = shared.read_bytes()
    assert f"add --ledger {shared}" in call("resume", out).stderr
    other = call("resume", out, "--ledger", tmp_path / "other.jsonl")
    assert other.exit_code == 2 and "lacks charges" in other.stderr
    assert shared.read_bytes() == before
    done = call("resume", out, "--ledger", shared)
    assert done.exit_code == 0, done.stderr
    assert shared.read_bytes().startswith(before) and result(out)["config"]["ledger"] == str(shared)


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    begin(tmp_path, Experiment(), [0], "run")
    note(tmp_path, ledger="here\0there")
    refused = call("resume", tmp_path)
    assert refused.exit_code == 2 and "outside of the folder" in refused.stderr
