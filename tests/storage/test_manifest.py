"""A run's folder is believed if it is as its run signed it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from secure_fedgraph.core.crypto import Identity
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.storage import manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As a run leaves it: with a page that later commands write anew, and a file of the user's."""
    out = tmp_path / "run"
    for name in ("result.json", "ledger.jsonl", "checkpoint/plan.json", "transcript/000000.sfg", "mine.txt"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(f"{name}\n")
    manifest.write(out)
    (out / "report.html").touch()
    return out


def rewritten(key: str, value: object) -> Callable[[Path], object]:
    def edit(out: Path) -> None:
        said = json.loads((out / manifest.NAME).read_text())
        (out / manifest.NAME).write_text(json.dumps({**said, key: value}))

    return edit


BROKEN: dict[str, tuple[str, Callable[[Path], object]]] = {
    "changed": ("result.json is not as its run left it", lambda f: (f / "result.json").write_text("other")),
    "lost": ("000000.sfg is missing", lambda f: (f / "transcript" / "000000.sfg").unlink()),
    "put in": ("000001.sfg is not in manifest.json", lambda f: (f / "transcript" / "000001.sfg").touch()),
    "put in beside": ("released.model is not in manifest.json", lambda f: (f / "released.model").touch()),
    "a link": (
        "is a symbolic link",
        lambda f: (f / "result.json").rename(f / "x") and (f / "result.json").symlink_to("x"),
    ),
    "a linked folder": (
        "is a symbolic link",
        lambda f: (f / "checkpoint").rename(f / "x") and (f / "checkpoint").symlink_to("x"),
    ),
    "no manifest": ("holds no manifest.json", lambda f: (f / manifest.NAME).unlink()),
    "a manifest that is a link": (
        "manifest.json is a symbolic link",
        lambda f: (f / manifest.NAME).rename(f / "x") and (f / manifest.NAME).symlink_to("x"),
    ),
    "no JSON": ("manifest.json is damaged", lambda f: (f / manifest.NAME).write_text("{")),
    "a list": ("manifest.json is damaged", lambda f: (f / manifest.NAME).write_text("[]")),
    "deep": ("manifest.json is damaged", lambda f: (f / manifest.NAME).write_text("[" * 100_000)),
    "fewer files": ("not signed as it is", rewritten("files", {})),
    "another's key": ("not signed as it is", rewritten("public", Identity.generate().public.hex())),
    "another signature": ("not signed as it is", rewritten("signature", "00" * 64)),
    "another key beside": ("manifest.json is damaged", rewritten("more", 1)),
    "a ledger of no length": ("manifest.json is damaged", rewritten("ledger", {"bytes": "1", "own": True})),
    "a charge is missing": ("ledger.jsonl is not the ledger", lambda f: (f / "ledger.jsonl").write_text("")),
    "no ledger": ("ledger.jsonl is not the ledger", lambda f: (f / "ledger.jsonl").unlink()),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_not_as_it_was_signed_is_named(name: str, folder: Path) -> None:
    words, break_it = BROKEN[name]
    manifest.check(folder)
    break_it(folder)
    for check in (manifest.check, manifest.unchecked)[: 1 if name == "no manifest" else 2]:
        with pytest.raises(BadInput, match=words):
            check(folder)


def test_what_later_commands_and_runs_add_breaks_nothing(folder: Path) -> None:
    said = manifest.check(folder)
    assert "mine.txt" not in said["files"] and "ledger.jsonl" not in said["files"]
    (folder / "mine.txt").write_text("mine")
    (folder / "audit.json").touch()
    with (folder / "ledger.jsonl").open("a") as ledger:
        ledger.write("another run\n")
    assert manifest.check(folder) == said


def test_a_shared_ledger_is_checked_where_it_is_named(folder: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared.jsonl"
    with pytest.raises(BadInput, match="shared no ledger"):
        manifest.check(folder, shared)
    (folder / "ledger.jsonl").rename(shared)
    with shared.open("a") as ledger:
        ledger.write("half a line that another run")
    manifest.write(folder, shared)
    with shared.open("a") as ledger:
        ledger.write(" has written\n")
    assert manifest.check(folder) == manifest.check(folder, shared)
    shared.write_text("of others\n")
    manifest.check(folder)
    with pytest.raises(BadInput, match="is not the ledger"):
        manifest.check(folder, shared)


def test_the_folder_keeps_one_key_and_its_owner_can_sign_anew(folder: Path) -> None:
    before = manifest.check(folder)["public"]
    assert (folder / manifest.KEY).stat().st_mode & 0o077 == 0
    (folder / "result.json").write_text("other")
    manifest.write(folder)
    assert manifest.check(folder)["public"] == before
    (folder / manifest.KEY).unlink()  # as it is handed on
    manifest.check(folder)
    manifest.write(folder)
    assert manifest.check(folder)["public"] != before
