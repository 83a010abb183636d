"""``audit DIR`` on a finished run whose files are damaged: exit 2 and a sentence that names the file."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from secure_fedgraph.cli.main import main
from secure_fedgraph.storage import manifest

RUN = ["run", "--data", "synthetic-citation", "--rounds", "1", "--policy", "plaintext", "--quiet"]
RUN += ["--set", "dataset.nodes=90", "--set", "dataset.features=24", "--set", "transcript=full"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    done = CliRunner().invoke(main, [*RUN, "--out", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def audit(folder: Path, *flags: str) -> Result:
    return CliRunner().invoke(main, ["audit", str(folder), "--attack", "a1", *flags])


def change(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads(path.read_text())
    edit(value)
    path.write_text(json.dumps(value))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "result: cut off": (r"result\.json", lambda f: cut(f / "result.json")),
    "result: no text": (r"result\.json", lambda f: (f / "result.json").write_bytes(b"\xff\xfe\x00")),
    "result: missing": (r"holds no result\.json", lambda f: (f / "result.json").unlink()),
    "result: schema only": (
        r"result\.json holds no config",
        lambda f: (f / "result.json").write_text('{"schema": "secure-fedgraph/run/1"}'),
    ),
    "result: config no table": (
        r"result\.json: config is",
        lambda f: change(f / "result.json", lambda v: v.update(config=[1])),
    ),
    "result: bad config": (
        r"result\.json: config\.clients is 'many'",
        lambda f: change(f / "result.json", lambda v: v["config"].update(clients="many")),
    ),
    "result: bad training": (
        r"result\.json is damaged",
        lambda f: change(f / "result.json", lambda v: v["config"]["training"].update(hidden="wide")),
    ),
    "both: a model of any size": (
        r"result\.json is damaged \(config\.training\.hidden",
        lambda f: (
            change(f / "result.json", lambda v: v["config"]["training"].update(hidden=[10**9] * 2)),
            change(
                f / "transcript" / "index.json", lambda v: v["public"]["settings"].update(hidden=[10**9] * 2)
            ),
        ),
    ),
    "result: no digest": (
        r"result\.json is damaged",
        lambda f: change(f / "result.json", lambda v: v["data"].pop("digest")),
    ),
    "result: channels": (
        r"result\.json is damaged",
        lambda f: change(f / "result.json", lambda v: v.update(channels=None)),
    ),
    "index: cut off": (r"index\.json is damaged", lambda f: cut(f / "transcript" / "index.json")),
    "index: a list": (
        r"index\.json is damaged",
        lambda f: (f / "transcript" / "index.json").write_text("[]"),
    ),
    "notes: cut off": (r"notes\.jsonl is damaged", lambda f: cut(f / "transcript" / "notes.jsonl")),
    "notes: missing": (r"notes\.jsonl is damaged", lambda f: (f / "transcript" / "notes.jsonl").unlink()),
    "index: nothing public": (
        r"index\.json is damaged",
        lambda f: change(f / "transcript" / "index.json", lambda v: v.update(public={})),
    ),
    "index: another schema": (
        r"index\.json is damaged \(public\.schema\.features",
        lambda f: change(f / "transcript" / "index.json", lambda v: v["public"]["schema"].clear()),
    ),
    "index: no channels": (
        r"index\.json is damaged \(public\.channels\.update",
        lambda f: change(f / "transcript" / "index.json", lambda v: v["public"].update(channels={})),
    ),
    "message: cut off": (r"\d{6}\.sfg is damaged", lambda f: cut(next((f / "transcript").glob("*.sfg")))),
    "message: another": (r"\d{6}\.sfg is damaged", lambda f: flip(next((f / "transcript").glob("*.sfg")))),
    "message: missing": (
        r"\d{6}\.sfg is damaged \(it is missing",
        lambda f: next((f / "transcript").glob("*.sfg")).unlink(),
    ),
    "index: missing": ("no transcript in", lambda f: (f / "transcript" / "index.json").unlink()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_and_exits_2(damage: str, folder: Path) -> None:
    words, break_it = DAMAGES[damage]
    break_it(folder)
    manifest.write(folder)  # it may be a stranger's
    result = audit(folder)
    assert result.exit_code == 2, result.output
    assert re.search(words, result.stderr), result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (folder / "audit.json").exists()


def test_the_same_folder_undamaged_is_audited(folder: Path) -> None:
    done = audit(folder, "--effort", "5")
    assert done.exit_code == 0, done.output
    assert json.loads((folder / "audit.json").read_text())["effort"] == 5


def test_a_folder_that_is_not_as_it_was_signed_is_not_audited(folder: Path) -> None:
    flip(next((folder / "transcript").glob("*.sfg")))
    result = audit(folder)
    assert result.exit_code == 2 and re.search(r"\d{6}\.sfg is not as its run left it", result.stderr)
    assert not (folder / "audit.json").exists()


@pytest.mark.parametrize("flags", [["--control", "x"], ["--policy", ""], ["--seeds", "2"]])
def test_nothing_about_a_finished_run_can_be_changed(flags: list[str], folder: Path) -> None:
    result = audit(folder, *flags)
    assert result.exit_code == 2, result.output
    assert f"{flags[0]} cannot change the finished run" in result.stderr
