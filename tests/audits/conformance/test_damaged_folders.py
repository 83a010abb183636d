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


def message(folder: Path) -> Path:
    """One that the attack reads: an upload."""
    index = json.loads((folder / "transcript" / "index.json").read_text())
    number = next(
        s["number"] for s in index["sent"] if s["channel"] == "update" and s["recipient"] == "server"
    )
    return folder / "transcript" / f"{number:06d}.sfg"


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
    "index: a note of another format": (
        r"index\.json is damaged",
        lambda f: change(f / "transcript" / "index.json", lambda v: v["sent"][0].pop("digest")),
    ),
    "index: nothing public": (
        r"index\.json is damaged",
        lambda f: change(f / "transcript" / "index.json", lambda v: v.update(public={})),
    ),
    "index: a message said not to be kept": (
        r"index\.json is damaged \(it says of no message that \d{6}\.sfg keeps it\)",
        lambda f: change(f / "transcript" / "index.json", lambda v: v["sent"][0].update(kept=False)),
    ),
    "index: missing": ("no transcript in", lambda f: (f / "transcript" / "index.json").unlink()),
    "message: cut off": (r"\d{6}\.sfg is damaged", lambda f: cut(message(f))),
    "message: one bit": (r"\d{6}\.sfg is damaged", lambda f: flip(message(f))),
    "message: missing": (r"\d{6}\.sfg is damaged \(No such file", lambda f: message(f).unlink()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_and_exits_2(damage: str, folder: Path) -> None:
    words, break_it = DAMAGES[damage]
    break_it(folder)
    result = audit(folder)
    assert result.exit_code == 2, result.output
    assert re.search(words, result.stderr), result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (folder / "audit.json").exists()


def test_the_same_folder_undamaged_is_audited(folder: Path) -> None:
    done = audit(folder, "--effort", "5")
    assert done.exit_code == 0, done.output
    assert json.loads((folder / "audit.json").read_text())["effort"] == 5


def test_a_message_that_no_attack_reads_may_be_damaged(folder: Path) -> None:
    cut(message(folder))
    assert audit(folder, "--attack", "c1").exit_code == 0  # it reads another channel, and is blind here
    rows = json.loads((folder / "audit.json").read_text())["conformance"]
    (reason,) = (row["reason"] for row in rows if row["check"] == "bytes")
    assert message(folder).name in reason  # what is not checked is said


@pytest.mark.parametrize("flags", [["--control", "x"], ["--policy", ""], ["--seeds", "2"]])
def test_nothing_about_a_finished_run_can_be_changed(flags: list[str], folder: Path) -> None:
    result = audit(folder, *flags)
    assert result.exit_code == 2, result.output
    assert f"{flags[0]} cannot change the finished run" in result.stderr


NOISED = ["run", "--data", "synthetic-citation", "--rounds", "3", "--policy", "distributed_dp", "--quiet"]
NOISED += ["--set", "dataset.nodes=90", "--set", "dataset.features=24", "--set", "training.hidden=[8,4]"]
NOISED += ["--set", "transcript=full", "--norm", "1", "--multiplier", "2"]
OTHER = [*NOISED, "--rounds", "2", "--multiplier", "4", "--seed", "1"]
"""Another run of the same owners: whole, and not this one."""


@pytest.fixture(scope="module")
def noised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run under noise, beside another."""
    folder = tmp_path_factory.mktemp("noised")
    for name, command in (("run", NOISED), ("other", OTHER)):
        done = CliRunner().invoke(main, [*command, "--out", str(folder / name)])
        assert done.exit_code == 0, done.output
    return folder


def rewrite(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Changes the index of a folder without the notes that were written while the run went on."""
    (folder / "transcript" / "notes.jsonl").unlink(missing_ok=True)
    change(folder / "transcript" / "index.json", edit)


def uploads(index: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in index["sent"] if one["channel"] == "update" and one["sender"] != "server"]


def body(folder: Path, note: dict[str, Any]) -> Path:
    return folder / "transcript" / f"{note['number']:06d}.sfg"


def unkept(folder: Path, **more: object) -> None:
    def edit(index: dict[str, Any]) -> None:
        note = uploads(index)[-1]
        note.update(kept=False, **more)
        body(folder, note).unlink()

    rewrite(folder, edit)


def without(folder: Path, key: str, which: Callable[[dict[str, Any]], bool], renumber: bool = False) -> None:
    """Takes notes out, with their files; with ``renumber`` the others close up."""

    def edit(index: dict[str, Any]) -> None:
        lists = [notes for notes in index.values() if isinstance(notes, list)]
        for note in [one for one in index[key] if which(one)]:
            index[key].remove(note)
            body(folder, note).unlink()
        if renumber:
            left = sorted((one for notes in lists for one in notes), key=lambda one: int(one["number"]))
            for number, note in enumerate(left):
                if "kept" in note:
                    body(folder, note).rename(body(folder, {"number": number}))
                note["number"] = number

    rewrite(folder, edit)


def without_round_3(folder: Path) -> None:
    for key in ("sent", "opened", "made"):
        without(folder, key, lambda note: bool(note["round"] == 3), renumber=True)
    lines = (folder / "ledger.jsonl").read_text().splitlines(keepends=True)
    (folder / "ledger.jsonl").write_text("".join(one for one in lines if json.loads(one)["round"] != 3))


def from_other(folder: Path, other: Path, *names: str) -> None:
    for name in names:
        if (other / name).is_dir():
            shutil.rmtree(folder / name)
            shutil.copytree(other / name, folder / name)
        else:
            shutil.copy(other / name, folder / name)


CONTRADICTIONS: dict[str, tuple[str, Callable[[Path, Path], object]]] = {
    "a message of a full transcript is not kept": (
        r"index\.json.*result\.json.*kept of note \d+",
        lambda f, _: unkept(f),
    ),
    "nor kept, with another digest": (
        r"index\.json.*result\.json.*bytes\.up",
        lambda f, _: unkept(f, bytes=1, digest="blake3:" + "0" * 64),
    ),
    "the index is not what the notes say": (
        r"index\.json.*'sent' and notes\.jsonl differ in note \d+",
        lambda f, _: change(f / "transcript" / "index.json", lambda v: uploads(v)[0].update(bytes=1)),
    ),
    "a message is missing": (
        r"index\.json is damaged \(it lacks note \d+ of \d+",
        lambda f, _: without(f, "sent", lambda note: bool(note["number"] == 20)),
    ),
    "a message is missing and the others close up": (
        r"index\.json.*result\.json.*bytes\.",
        lambda f, _: without(f, "sent", lambda note: bool(note["number"] == 20), renumber=True),
    ),
    "a round is missing": (r"index\.json.*result\.json.*bytes\.", lambda f, _: without_round_3(f)),
    "fewer rounds in the result": (
        r"result\.json is damaged \(config\.rounds is 3",
        lambda f, _: change(f / "result.json", lambda v: v["rounds"].pop()),
    ),
    "nothing was opened": (
        r"index\.json is damaged \(it lacks note",
        lambda f, _: without(f, "opened", lambda note: True),
    ),
    "nothing was opened and the others close up": (
        r"index\.json is damaged \(channel 'update' in exchange \d+ is not opened",
        lambda f, _: without(f, "opened", lambda note: True, renumber=True),
    ),
    "nothing was made": (
        r"index\.json is damaged \(it lacks note",
        lambda f, _: without(f, "made", lambda note: True),
    ),
    "a sum was opened by a client": (
        r"index\.json is damaged \(opened has note \d+, channel 'update', with reader 'owner-1'",
        lambda f, _: rewrite(f, lambda v: v["opened"][0].update(reader="owner-1")),
    ),
    "a channel with another declaration": (
        r"index\.json.*result\.json.*public\.channels\.update\.reveal is \"nothing\"",
        lambda f, _: rewrite(f, lambda v: v["public"]["channels"]["update"].update(reveal="nothing")),
    ),
    "public settings of another run": (
        r"index\.json.*result\.json.*public\.settings\.batch is 7",
        lambda f, _: rewrite(f, lambda v: v["public"]["settings"].update(batch=7)),
    ),
    "a client that is none": (
        r"index\.json.*result\.json.*public\.clients",
        lambda f, _: rewrite(f, lambda v: v["public"]["clients"].append("owner-9")),
    ),
    "a message to another client": (
        r"index\.json.*\d{6}\.sfg contradict.*recipient of note 0",
        lambda f, _: rewrite(f, lambda v: v["sent"][0].update(recipient="owner-1")),
    ),
    "the transcript and ledger of another run": (
        r"index\.json.*result\.json.*bytes\.up",
        lambda f, other: from_other(f, other, "transcript", "ledger.jsonl"),
    ),
    "the ledger of another run": (
        r"ledger\.jsonl.*transcript contradict each other: run is",
        lambda f, other: from_other(f, other, "ledger.jsonl"),
    ),
    "what was asked for by another run": (
        r"experiment\.json.*result\.json.*seeds is \[1\]",
        lambda f, other: from_other(f, other, "checkpoint"),
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_files_that_contradict_each_other_are_named_and_exit_2(
    name: str, noised: Path, tmp_path: Path
) -> None:
    words, break_it = CONTRADICTIONS[name]
    folder = Path(shutil.copytree(noised / "run", tmp_path / "run"))
    break_it(folder, noised / "other")
    result = audit(folder)
    assert result.exit_code == 2, result.output
    assert re.search(words, result.stderr), result.stderr
    assert not (folder / "audit.json").exists()
