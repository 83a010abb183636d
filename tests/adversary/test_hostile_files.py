"""Files that lie: what is private stays so, no link is followed, and every loader names what is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import damaged_files
import pytest
import torch
from click.testing import CliRunner

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.plugins import algorithm_named
from secure_fedgraph.cli.main import main
from secure_fedgraph.core import files, wire
from secure_fedgraph.core.accounting.events import GaussianRelease
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.spending.ledger import Charge, Ledger, read_ledger
from secure_fedgraph.experiment.compare.runs import kept, readable
from secure_fedgraph.experiment.config import load
from secure_fedgraph.experiment.results import fresh_folder, read_json, write_json
from secure_fedgraph.graph.data.rawfiles import RAW
from secure_fedgraph.graph.data.sources import read_pyg
from secure_fedgraph.protocol import Transcript, nested
from secure_fedgraph.protocol.transcript import everything
from secure_fedgraph.report.page import write_report
from secure_fedgraph.storage import party_store
from secure_fedgraph.storage.checkpoint import Checkpoint, lock
from secure_fedgraph.storage.party_store import PartyStore

FILES = 10_000
LABEL, NEXT = "00001-0123abcd", "00002-0123abcd"
CHARGE = Charge("owner-0", "r", 1, 1, "update", "client", "zero-out", {"server": (GaussianRelease(1.0),)})
RUN = ["run", "--data", "synthetic-citation", "--rounds", "1", "--policy", "plaintext", "--quiet"]
RUN += ["--set", "dataset.nodes=60", "--set", "dataset.features=8", "--set", "transcript=full"]
SHARED = {"result.json", "report.html", "audit.json", "compare.json", "compare.csv", "compare.parquet"}


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    """Everything would be open to everybody, if nobody saw to it."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Somebody else's folder, with a file in it."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "precious").write_bytes(b"precious")
    return folder


def small_run(out: Path, **more: Any) -> None:
    federation = sfg.federate("synthetic-citation", clients=2, nodes=40, features=8)
    algorithm = sfg.FedSage(hidden=(4, 4), fanout=(2, 2))
    sfg.train(algorithm, federation, sfg.policies.plaintext(), rounds=1, out=out, **more)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def intact(outside: Path) -> bool:
    return [path.name for path in outside.iterdir()] == ["precious"] and (
        (outside / "precious").read_bytes() == b"precious"
    )


class TestWhoMayRead:
    def test_a_whole_run(self, tmp_path: Path) -> None:
        out = tmp_path / "runs" / "one"
        done = CliRunner().invoke(main, [*RUN, "--out", str(out)])
        assert done.exit_code == 0, done.output
        assert mode(out) == 0o700
        found = {path.relative_to(out): mode(path) for path in out.rglob("*")}
        assert len(found) > 10
        for path, bits in found.items():
            if (out / path).is_dir():
                assert bits == 0o700, path
            else:
                shared = path.name in SHARED or path.parts[0] == "plots"
                assert bits == (0o666 if shared else 0o600), path

    def test_clients_memories(self, tmp_path: Path) -> None:
        small_run(tmp_path / "r", keep=everything)
        found = sorted((tmp_path / "r").rglob("*"))
        assert any("clients" in path.parts and path.suffix == ".part" for path in found)
        assert {mode(path) for path in found if path.is_file()} == {0o600}
        assert {mode(path) for path in found if path.is_dir()} == {0o700}

    def test_a_ledger_that_is_open_is_closed_before_it_is_charged(self, tmp_path: Path) -> None:
        path = tmp_path / "ledger.jsonl"
        Ledger(path).charge(CHARGE)
        (path.parent / "ledger.jsonl.lock").chmod(0o644)
        path.chmod(0o644)
        Ledger(path).charge(CHARGE)
        assert (mode(path), mode(path.parent / "ledger.jsonl.lock")) == (0o600, 0o600)

    def test_folders_and_notes_that_are_open_are_closed(self, tmp_path: Path) -> None:
        (tmp_path / "r" / "transcript").mkdir(parents=True)
        (tmp_path / "r" / "checkpoint" / "clients" / "a").mkdir(parents=True)
        Transcript(tmp_path / "r" / "transcript")
        PartyStore(tmp_path / "r" / "checkpoint" / "clients" / "a", "a", tmp_path / "r").save({}, LABEL)
        below = [path for path in (tmp_path / "r").rglob("*") if path.is_dir()]
        assert {mode(path) for path in below} == {0o700}
        assert mode(tmp_path / "r") == 0o777  # it was there, and is the user's own

    def test_what_is_shared_keeps_the_umask(self, tmp_path: Path) -> None:
        os.umask(0o027)
        write_json(tmp_path / "result.json", {})
        assert mode(tmp_path / "result.json") == 0o640

    def test_a_torn_ledger_that_is_taken_up(self, tmp_path: Path) -> None:
        path = tmp_path / "ledger.jsonl"
        Ledger(path).charge(CHARGE)
        path.write_bytes(path.read_bytes() + b"{torn")
        Ledger.go_on(path)
        assert (mode(path), mode(tmp_path / "ledger.torn")) == (0o600, 0o600)


class TestLinks:
    """A link in a place of a run's: what it points to is neither read nor written nor taken away."""

    def test_a_client_folder(self, tmp_path: Path, outside: Path) -> None:
        place = tmp_path / "r" / "checkpoint" / "clients"
        place.mkdir(parents=True)
        (place / "owner-0").symlink_to(outside)
        made = PartyStore(place / "owner-0", "owner-0", tmp_path / "r")
        with pytest.raises(BadInput, match="'owner-0' is a symbolic link"):
            made.save({"w": torch.ones(2)}, LABEL)
        with pytest.raises(BadInput):
            made.load(LABEL)
        assert intact(outside)

    @pytest.mark.parametrize("part", ["checkpoint", "checkpoint/clients"])
    def test_a_folder_above_it(self, part: str, tmp_path: Path, outside: Path) -> None:
        (tmp_path / "r" / "checkpoint").mkdir(parents=True)
        if part == "checkpoint":
            (tmp_path / "r" / "checkpoint").rmdir()
        (tmp_path / "r" / part).symlink_to(outside)
        with pytest.raises(BadInput, match="is a symbolic link"):
            PartyStore(tmp_path / "r" / "checkpoint" / "clients" / "a", "a", tmp_path / "r").save({}, LABEL)
        assert intact(outside)

    def test_by_the_run_itself(self, tmp_path: Path, outside: Path) -> None:
        out = tmp_path / "r"
        (out / "checkpoint" / "clients").mkdir(parents=True)
        (out / "checkpoint" / "clients" / "owner-0").symlink_to(outside)
        with pytest.raises(BadInput, match="symbolic link"):
            small_run(out)
        assert intact(outside)

    @pytest.mark.parametrize("name", ["result.draft", "result.json"])
    def test_a_draft_or_a_result(self, name: str, tmp_path: Path, outside: Path) -> None:
        (tmp_path / name).symlink_to(outside / "precious")
        write_json(tmp_path / "result.json", {"a": 1})
        assert intact(outside)
        assert not (tmp_path / "result.json").is_symlink()

    @pytest.mark.parametrize("name", ["report.html", "report.html.draft", "plots"])
    def test_a_report(self, name: str, tmp_path: Path, outside: Path) -> None:
        folder = tmp_path / "r"
        folder.mkdir()
        damaged_files._make_result(folder)
        (folder / name).symlink_to(outside if name == "plots" else outside / "precious")
        if name == "plots":
            with pytest.raises(BadInput, match="symbolic link"):
                write_report(folder)
        else:
            write_report(folder)
        assert intact(outside)

    def test_a_ledger_its_lock_and_a_draft_of_it(self, tmp_path: Path, outside: Path) -> None:
        for name in ("a.jsonl", "b.jsonl.lock"):
            (tmp_path / name).symlink_to(outside / "precious")
            with pytest.raises(BadInput, match="is a symbolic link"):
                Ledger(tmp_path / name.removesuffix(".lock")).charge(CHARGE)
        with pytest.raises(BadInput, match="is a symbolic link"):
            read_ledger(tmp_path / "a.jsonl")
        path = tmp_path / "c.jsonl"
        path.write_bytes(CHARGE.to_line().encode() + b"{torn")
        (tmp_path / "c.draft").symlink_to(outside / "precious")
        (tmp_path / "c.torn").symlink_to(outside / "precious")
        with pytest.raises(BadInput, match="is a symbolic link"):
            Ledger.go_on(path)
        assert intact(outside)

    def test_a_transcript(self, tmp_path: Path, outside: Path) -> None:
        (tmp_path / "transcript").symlink_to(outside)
        with pytest.raises(BadInput, match="symbolic link"):
            Transcript(tmp_path / "transcript")
        made = Transcript(tmp_path / "t", everything)
        for name in ("notes.jsonl", "index.json", "000000.sfg"):
            (tmp_path / "t" / name).symlink_to(outside / "precious")
        with pytest.raises(BadInput, match="symbolic link"):
            made.record_opened("server", 1, 1, "update", ("a", "b"), {"w": 1.0})
        made.close()
        with pytest.raises(BadInput, match="no transcript"):
            Transcript.load(outside)
        assert intact(outside)

    def test_a_lock_and_a_checkpoint(self, tmp_path: Path, outside: Path) -> None:
        (tmp_path / "r").mkdir()
        (tmp_path / "r" / "checkpoint").symlink_to(outside)
        with pytest.raises(BadInput, match="symbolic link"):
            Checkpoint(tmp_path / "r" / "checkpoint", {})
        (tmp_path / "c").mkdir()
        (tmp_path / "c" / "lock").symlink_to(outside / "precious")
        with pytest.raises(BadInput, match="symbolic link"):
            lock(tmp_path / "c")
        assert intact(outside)

    @pytest.mark.parametrize("name", ["transcript", "checkpoint", "runs/p", "seed-1", "runs"])
    def test_what_overwrite_takes_away(self, name: str, tmp_path: Path, outside: Path) -> None:
        out = tmp_path / "out"
        (out / "runs").mkdir(parents=True)
        points = {"points": [{"name": "p"}], "seeds": [{"seed": 1}]}
        (out / "compare.json").write_text(json.dumps({"schema": "secure-fedgraph/compare/1", **points}))
        if name == "runs":
            (out / "runs").rmdir()
            (outside / "p").mkdir()
        (out / name).symlink_to(outside)
        with contextlib.suppress(BadInput):  # a link on the way to a folder is refused, one in its place goes
            fresh_folder(out, True)
        if name == "runs":
            (outside / "p").rmdir()
        assert intact(outside)

    @pytest.mark.parametrize(
        "named", [{"seeds": [{"seed": "1/../../../outside"}]}, {"runs": [{"folder": "../outside"}]},
                  {"points": [{"name": ".."}]}, {"runs": [{"folder": "/etc"}]}, {"runs": [{"folder": ""}]},
                  {"runs": [{"folder": "kept"}]}, {"runs": [{"folder": "runs/../kept"}]},
                  {"points": [{"name": "\ud800"}]}],
    )  # fmt: skip
    def test_a_result_that_names_what_is_not_its_own(self, named: Any, tmp_path: Path, outside: Path) -> None:
        out = tmp_path / "out"
        (out / "kept").mkdir(parents=True)
        (out / "compare.json").write_text(json.dumps({"schema": "secure-fedgraph/compare/1", **named}))
        fresh_folder(out, True)
        assert intact(outside)
        assert (out / "kept").exists()

    def test_cells_and_runs_of_audits_and_comparisons(self, tmp_path: Path, outside: Path) -> None:
        out = tmp_path / "out"
        (out / "runs" / "p").mkdir(parents=True)
        (outside / "key.json").write_text('{"key": "k"}')
        (outside / "refused.json").write_text('{"reason": "x"}')
        (out / "runs" / "p" / "seed-0").symlink_to(outside)
        assert kept(out / "runs" / "p" / "seed-0", "k") is None
        (out / "link.json").symlink_to(outside / "key.json")
        assert readable(out / "link.json") is None
        (out / "cells").symlink_to(outside)
        with pytest.raises(BadInput, match="symbolic link"):
            write_json(out / "cells" / "k.json", {}, out)

    def test_a_seed_folder(self, tmp_path: Path, outside: Path) -> None:
        out = tmp_path / "out"
        out.mkdir()
        (out / "seed-0").symlink_to(outside)
        done = CliRunner().invoke(main, [*RUN, "--seeds", "2", "--out", str(out)])
        assert done.exit_code == 2, done.output
        assert "symbolic link" in done.output
        assert intact(outside)

    def test_the_folder_that_a_user_names_may_be_one(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        Ledger(tmp_path / "link" / "ledger.jsonl").charge(CHARGE)
        PartyStore(tmp_path / "link" / "a", "a").save({}, LABEL)
        assert (tmp_path / "real" / "ledger.jsonl").is_file()

    def test_a_pipe_in_a_files_place_does_not_block(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "ledger.jsonl")
        os.mkfifo(tmp_path / "result.json")
        found: list[BaseException] = []

        def read(call: Callable[[], object]) -> None:
            try:
                call()
            except BaseException as error:
                found.append(error)

        calls = [
            lambda: Ledger(tmp_path / "ledger.jsonl").charge(CHARGE),
            lambda: read_json(tmp_path / "result.json", "run"),
            lambda: files.read(tmp_path / "ledger.jsonl"),
        ]
        threads = [threading.Thread(target=read, args=(call,), daemon=True) for call in calls]
        for thread in threads:
            thread.start()
            thread.join(20)
            assert not thread.is_alive()
        assert [type(error) for error in found] == [BadInput] * 3


class TestNames:
    def test_a_part_outside_its_folder_is_not_read(self, tmp_path: Path) -> None:
        made = PartyStore(tmp_path / "a", "a")
        made.save({"w": torch.ones(2)}, LABEL)
        (part,) = (tmp_path / "a").glob("*.part")
        (tmp_path / "outside.part").write_bytes(part.read_bytes())
        path = tmp_path / "a" / f"{LABEL}.json"
        kept = party_store.read_json(path)
        outside = str(tmp_path / "outside.part")
        for name in ("../outside.part", outside, "..", "", "a\0b", "\ud800", None, 3, ["x"]):
            kept["parts"]["w"]["file"] = name
            party_store.write_json(path, {key: kept[key] for key in ("owner", "label", "parts")})
            with pytest.raises(BadInput, match="is no name of a file"):
                made.load(LABEL)
            with pytest.raises(BadInput, match="is no name of a file"):
                made.save({}, NEXT, LABEL)

    @pytest.mark.parametrize("label", ["../x", "00001-0123abcd/..", "٠٠٠٠١-0123abcd"])
    def test_a_label_of_a_checkpoint(self, label: str, tmp_path: Path) -> None:
        with pytest.raises(HostileMessage, match="is no label"):
            PartyStore(tmp_path / "a", "a").load(label)

    @pytest.mark.parametrize("name", ["..", "a/b/..", "."])
    def test_an_owner(self, name: str, tmp_path: Path) -> None:
        with pytest.raises(BadInput):
            PartyStore(tmp_path / "clients" / name, name, tmp_path).save({}, LABEL)


class TestLoaders:
    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("a.toml", "a = " + "[" * 5000),
            ("a.toml", "algorithm = ['fedsage']"),
            ("a.toml", "x" * 2**19),
        ],
    )
    def test_an_experiment(self, name: str, text: str, tmp_path: Path) -> None:
        (tmp_path / name).write_text(text)
        with pytest.raises(BadInput):
            load(tmp_path / name, {}, [])

    @pytest.mark.parametrize(
        "text", ["a=" + "[" * 5000, "algorithm=[1]", "clients=2020-13-45", "data={a = 1}"]
    )
    def test_an_assignment(self, text: str) -> None:
        with pytest.raises(BadInput):
            load(None, {}, [text])

    @pytest.mark.parametrize(
        "index",
        [
            "{",
            "[]",
            "{}",
            '{"public": []}',
            '{"public": {"clients": 3}}',
            '{"public": {"channels": {"a": {"unit": "x"}}}}',
            "[" * 100_000,
        ],
    )
    def test_a_transcript(self, index: str, tmp_path: Path) -> None:
        (tmp_path / "t").mkdir()
        (tmp_path / "t" / "index.json").write_text(index)
        with pytest.raises(BadInput, match=r"index\.json"):
            Transcript.load(tmp_path / "t")

    @pytest.mark.parametrize(
        "number", ['"../../x"', "-1", "1e3", "true", "null", str(2**70)]
    )  # fmt: skip
    def test_a_number_of_a_body(self, number: str, tmp_path: Path) -> None:
        note = '{"kind": "sent", "number": %s, "round": 1, "exchange": 1, "channel": "c", "step": "answer",'
        note += ' "sender": "server",'
        note += ' "recipient": "a", "bytes": 1, "digest": "", "kept": true}'
        (tmp_path / "t").mkdir()
        (tmp_path / "t" / "index.json").write_text('{"public": {}}')
        (tmp_path / "t" / "notes.jsonl").write_text(note % number + "\n")
        with pytest.raises(BadInput, match="number"):
            Transcript.load(tmp_path / "t")

    @pytest.mark.parametrize(
        ("form", "leaves"),
        [
            (["array", "0", "uint8"], {"0": 2**40}),
            (["array", "0", "uint32"], {"0": -1}),
            (["tensor", "0", "float32"], {"0": "text"}),
            (["list", 3], {}),
            (["list", [["list", [["is", "0"]] * 3]]], {"0": 1}),
            ([[1]], {}),
            ("x", {}),
            (["is"], {}),
            ({"a": 3}, {}),
        ],
    )
    def test_nested_values(self, form: Any, leaves: dict[str, Any]) -> None:
        with pytest.raises(HostileMessage):
            nested.unpack(wire.encode({"form": json.dumps(form), **leaves}))

    def test_leaves_that_stand_in_many_places_take_no_room(self) -> None:
        form: Any = ["array", "0", "float64"]
        body = wire.encode(
            {"form": json.dumps(["list", [form] * 300]), "0": torch.zeros(2**17, dtype=torch.uint8)}
        )
        with pytest.raises(HostileMessage):  # 300 MB out of 128 kB
            nested.unpack(body)

    def test_a_pickle_in_a_data_sets_place_is_not_read(self, tmp_path: Path) -> None:
        raw, ran = RAW["cora"], tmp_path / "ran"
        raw.inside(tmp_path).mkdir(parents=True)
        for path in raw.paths(tmp_path):
            path.write_bytes(f"cos\nsystem\n(S'touch {ran}'\ntR.".encode())
        with pytest.raises(BadInput, match="is not the published file"):
            read_pyg(raw, raw.paths(tmp_path))
        assert not ran.exists()

    @pytest.mark.parametrize("name", ["", ":", "a..b:C", ".x:Y", "a\0b:C", "broken_module:Own", "os:path"])
    def test_an_algorithm_of_ones_own(self, name: str, tmp_path: Path, monkeypatch) -> None:
        (tmp_path / "broken_module.py").write_text("def broken(:\n")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(BadInput, match="algorithm"):
            algorithm_named(name)


class TestChangedFiles:
    @pytest.mark.parametrize("name", damaged_files.LOADERS)
    def test_a_share(self, name: str) -> None:
        loader = damaged_files.LOADERS[name]
        found = damaged_files.tried(name, max(2, round(24 * loader.share)), seed=1)
        assert found.findings == []
        assert found.calls

    @pytest.mark.slow
    @pytest.mark.timeout(7200)
    def test_ten_thousand(self) -> None:
        found, by_loader = damaged_files.files_summed(FILES, said=print)
        assert found.findings == []
        assert found.calls >= FILES
        assert all(one.refused for one in by_loader.values() if one.calls > 100 and not one.answered)

    @pytest.mark.slow
    @pytest.mark.timeout(7200)
    def test_ten_thousand_tables(self) -> None:
        found, by_loader = damaged_files.files_summed(FILES, 7, print, damaged_files.TABLE_LOADERS)
        assert found.findings == []
        assert found.calls >= FILES
        assert all(one.answered and one.refused for one in by_loader.values())

    def test_a_loader_that_raises_anything_else_is_noticed(self, monkeypatch) -> None:
        monkeypatch.setattr(nested, "unpack", lambda body: {}[body])
        found = damaged_files.tried("nested values", 5, seed=1)
        assert len(found.findings) == 5
        assert "KeyError" in found.findings[0]
