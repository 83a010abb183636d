"""What a comparison takes from an earlier call: this very run, whole, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result
from command_line import compare, compared, held
from in_this_process import at_once

from secure_fedgraph.client import Client
from secure_fedgraph.experiment import code_digest
from secure_fedgraph.experiment.compare import runs
from secure_fedgraph.experiment.compare.runs import run_key
from secure_fedgraph.experiment.config import load


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once(monkeypatch)


def call(out: Path, *more: str, rounds: int = 1) -> Result:
    return compare(out, "--rounds", rounds, "--quiet", *more)


def rounds_of(out: Path) -> set[int]:
    found = [held(path) for path in out.glob("runs/*/seed-*/result.json")]
    return {len(one["rounds"]) for one in found}


def stamps(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.glob("runs/*/seed-*/result.json")}


def test_another_configuration_is_refused_and_overwrite_runs_it(tmp_path):
    assert call(tmp_path).exit_code == 0
    before = (tmp_path / "compare.json").read_text()
    done = call(tmp_path, rounds=2)
    assert done.exit_code == 2 and "its rounds is another" in done.output
    assert "give another --out, or --overwrite" in done.output
    assert (tmp_path / "compare.json").read_text() == before and rounds_of(tmp_path) == {1}
    (tmp_path / "runs" / "mine").mkdir()
    (tmp_path / "runs" / "mine" / "notes.txt").write_text("stays")
    assert call(tmp_path, "--overwrite", rounds=2).exit_code == 0
    assert rounds_of(tmp_path) == {2} and (tmp_path / "runs" / "mine" / "notes.txt").exists()


def test_owners_own_models_are_scored_after_the_last_round_alone(tmp_path):
    assert call(tmp_path, rounds=3).exit_code == 0
    scored = {
        path.parts[-3]: [bool(one["accuracy"]) for one in held(path)["rounds"]]
        for path in tmp_path.glob("runs/*/seed-0/result.json")
    }
    assert scored["local-plaintext"] == [False, False, True]
    assert all(map(all, (found for name, found in scored.items() if name != "local-plaintext")))


def test_overwrite_leaves_no_run_of_before(tmp_path):
    assert call(tmp_path, "--seeds", "2").exit_code == 0
    (tmp_path / "compare.json").unlink()  # as a call that was killed leaves it
    assert call(tmp_path, "--overwrite", "--policy", "plaintext").exit_code == 0
    assert {p.parent.name for p in tmp_path.glob("runs/*/seed-*")} == {"fedsage-plaintext", "local-plaintext"}
    assert not list(tmp_path.glob("runs/*/seed-1"))


def test_a_killed_call_of_another_configuration_leaves_nothing_that_is_taken(tmp_path):
    assert call(tmp_path).exit_code == 0
    (tmp_path / "compare.json").unlink()
    assert call(tmp_path, rounds=2).exit_code == 0
    assert rounds_of(tmp_path) == {2}


def test_a_checkpoint_of_another_configuration_is_not_gone_on_from(tmp_path, monkeypatch):
    small = {"dataset": {"nodes": 60, "features": 16}, "training": {"hidden": [8, 4]}, "rounds": 2}
    base = load(None, {"data": "synthetic-citation", "algorithm": "fedsage", "policy": "masked", **small}, ())

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Client, "handle", killed)
        with pytest.raises(KeyboardInterrupt):
            runs.run_point(base.model_dump(mode="json"), tmp_path)
    assert (tmp_path / "checkpoint" / "checkpoint.json").exists()
    runs.run_point(base.model_copy(update={"rounds": 3}).model_dump(mode="json"), tmp_path)
    assert len(held(tmp_path / "result.json")["rounds"]) == 3


def test_the_same_call_runs_nothing_again_and_more_seeds_only_those(tmp_path):
    assert call(tmp_path).exit_code == 0
    before = stamps(tmp_path)
    assert call(tmp_path).exit_code == 0 and stamps(tmp_path) == before
    assert call(tmp_path, "--seeds", "2").exit_code == 0
    after = stamps(tmp_path)
    assert len(after) == 2 * len(before) and {p: after[p] for p in before} == before
    assert {row["seeds"] for row in compared(tmp_path).values()} == {2}
    fewer = call(tmp_path)
    assert fewer.exit_code == 2 and "its seed 1 would be left out" in fewer.output


def test_points_may_come_in_and_none_is_lost(tmp_path):
    assert call(tmp_path).exit_code == 0
    before = stamps(tmp_path)
    assert call(tmp_path, "--policy", "homomorphic,masked").exit_code == 0
    assert {path: stamps(tmp_path)[path] for path in before} == before and len(compared(tmp_path)) == 4
    done = call(tmp_path, "--policy", "masked")
    assert done.exit_code == 2 and "its fedsage-homomorphic would be left out" in done.output


def test_a_key_is_of_the_settings_the_seed_the_code_and_the_versions(monkeypatch):
    base = load(None, {"data": "synthetic-citation", "algorithm": "fedsage", "policy": "masked"}, ())
    key = run_key(base)
    assert run_key(base) == key
    changes = {"seed": 1, "rounds": 3, "training": {"batch": 7}, "protection": {"norm": 2.0}}
    others = [base.model_copy(update={key: value}) for key, value in changes.items()]
    keys = {key, *map(run_key, others)}
    with monkeypatch.context() as patch:
        patch.setattr(runs, "of_rooms", lambda: "other")
        keys.add(run_key(base))
    monkeypatch.setattr(runs, "versions", lambda: {"torch": "0"})
    assert len({*keys, run_key(base)}) == 7


def test_the_code_is_all_of_the_package_but_its_pages(monkeypatch):
    seen: list[Path] = []
    monkeypatch.setattr(code_digest, "_of_file", lambda path: seen.append(path) or "x")
    code_digest.of_rooms.cache_clear()
    code_digest.of_rooms()
    code_digest.of_rooms.cache_clear()
    names = {path.relative_to(Path(runs.__file__).parents[2]).as_posix() for path in seen}
    assert {"running/loop.py", "core/protection/gaussian.py", "algorithms/fedsage.py", "__init__.py"} <= names
    assert not any(name.startswith("report/") for name in names)


@pytest.mark.parametrize("text", ['{"accur', '{"accuracy": {}}'])
def test_a_torn_result_is_run_again(tmp_path, text):
    assert call(tmp_path).exit_code == 0
    good = compared(tmp_path)
    torn = tmp_path / "runs" / "fedsage-masked" / "seed-0" / "result.json"
    torn.write_text(text)
    done = call(tmp_path)
    assert done.exit_code == 0, done.output
    assert compared(tmp_path)["fedsage-masked"]["accuracy"] == good["fedsage-masked"]["accuracy"]


def test_a_torn_comparison_is_named_with_the_mend(tmp_path):
    assert call(tmp_path).exit_code == 0
    (tmp_path / "compare.json").write_text('{"schema": "secure')
    done = call(tmp_path)
    assert done.exit_code == 2 and f"{tmp_path / 'compare.json'} is not JSON" in done.output
    assert "--overwrite" in done.output
    assert call(tmp_path, "--overwrite").exit_code == 0


@pytest.mark.parametrize("name", ["audit.json", "result.json", "cells"])
def test_another_kinds_result_is_not_replaced(tmp_path, name):
    (tmp_path / name).mkdir() if name == "cells" else (tmp_path / name).write_text("{}")
    (tmp_path / "runs").mkdir()  # as an audit has them too
    (tmp_path / "report.html").write_text("the page of it")
    done = call(tmp_path)
    assert done.exit_code == 2 and f"already holds {name}" in done.output and "--overwrite" in done.output
    assert (tmp_path / "report.html").read_text() == "the page of it"


def test_a_refusal_is_of_its_settings(tmp_path):
    def outcome() -> str:
        return compared(tmp_path)["fedsage-sealed"]["outcome"]

    assert call(tmp_path, "--policy", "sealed").exit_code == 0 and outcome() == "refused"
    refused = tmp_path / "runs" / "fedsage-sealed" / "seed-0" / "refused.json"
    stamp = refused.stat().st_mtime_ns
    assert call(tmp_path, "--policy", "sealed").exit_code == 0
    assert refused.stat().st_mtime_ns == stamp
    (tmp_path / "compare.json").unlink()
    assert call(tmp_path, "--policy", "sealed", rounds=2).exit_code == 0
    assert refused.stat().st_mtime_ns > stamp and outcome() == "refused"
