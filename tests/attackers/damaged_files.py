"""Damaged and hostile files by the thousand, for everything that reads one.

A loader has files that it reads every day. A trial changes one of them: its bytes, or, where it is JSON, TOML
or YAML, what it says; checksums are made right again, most of the time, so that what stands behind them is
reached. What may come of it is that the file is read, or one of the project's own
errors. Trials run in copies of this process that may take :data:`~recorded.ROOM` more than they start with.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
from hostile import damaged
from recorded import Outcome, Say, called, in_copy
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.plugins import algorithm_named
from secure_fedgraph.audits.grid import planned_runs
from secure_fedgraph.audits.grid.folders import read_folder
from secure_fedgraph.core.accounting.events import DiscreteRelease, GaussianRelease
from secure_fedgraph.core.spending.ledger import Charge, Ledger, check_mark, read_ledger
from secure_fedgraph.experiment.compare.points import Point
from secure_fedgraph.experiment.compare.runs import kept
from secure_fedgraph.experiment.compare.summary import gains, row_of
from secure_fedgraph.experiment.config import Experiment, load
from secure_fedgraph.experiment.results import (
    begin,
    begun,
    fresh_folder,
    noted_noise,
    read_json,
    run_result,
    write_json,
)
from secure_fedgraph.experiment.schema import AuditResult, CompareResult, RunResult
from secure_fedgraph.graph.data import datasets, store
from secure_fedgraph.graph.data.own_graph import DataWarning
from secure_fedgraph.graph.data.rawfiles import RAW
from secure_fedgraph.graph.silos.given import silos_of
from secure_fedgraph.graph.silos.reading import data_at, read_silo
from secure_fedgraph.graph.tables.drafting import described, draft
from secure_fedgraph.graph.tables.owned import OwnTables
from secure_fedgraph.graph.tables.schema import TableSchema, parsed, read_schema, schema_text
from secure_fedgraph.policies import plaintext
from secure_fedgraph.privacy.spent import spent
from secure_fedgraph.protocol import Transcript, nested
from secure_fedgraph.protocol.transcript import everything
from secure_fedgraph.report.page import render_page, write_report
from secure_fedgraph.storage import manifest, party_store
from secure_fedgraph.storage.checkpoint import Checkpoint
from secure_fedgraph.storage.party_store import PartyStore, checksum

LABEL = "00001-0123abcd"
PAGE = 0.1
"""The share of loaders that draw a page: they take a second."""


@dataclass(frozen=True)
class Loader:
    """Something that reads files.

    Args:
        make: writes honest files into a folder.
        load: reads them.
        spoil: the files that a trial may change.
        share: how often it is tried beside the others.
    """

    make: Callable[[Path], None]
    load: Callable[[Path], object]
    spoil: Callable[[Path], list[Path]] = field(default=lambda folder: files_in(folder))
    share: float = 1.0


def files_in(folder: Path) -> list[Path]:
    """All of them, also further down."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


# --- what is read every day ---------------------------------------------------------------------------------

CONFIG: dict[str, Any] = {
    "algorithm": "fedsage",
    "data": "synthetic-citation",
    "clients": 3,
    "policy": "local_dp",
    "rounds": 2,
    "delta": 1e-5,
    "feature_range": [0.0, 1.0],
    "training": {"batch": 32, "hidden": [8, 8], "fanout": [2, 2], "learning_rate": 0.01},
    "protection": {"norm": 1.0, "multiplier": 1.5},
    "dataset": {"nodes": 60, "features": 8},
    "budget": {"update": 1.0},
}


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(k))} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return "false" if value is None else json.dumps(value, default=str)


def toml(value: Any) -> bytes:
    """A table as TOML; what is no table is no TOML either."""
    if not isinstance(value, dict):
        return json.dumps(value).encode()
    return "".join(f"{json.dumps(str(k))} = {_toml(v)}\n" for k, v in value.items()).encode()


def _config(suffix: str, write: Callable[[Any], bytes]) -> Loader:
    def make(folder: Path) -> None:
        (folder / f"experiment{suffix}").write_bytes(write(CONFIG))

    def read(folder: Path) -> None:
        experiment = load(folder / f"experiment{suffix}", {}, ["rounds=1"])
        experiment.make_algorithm()
        experiment.make_policy()

    return Loader(make, read)


def _charges() -> list[Charge]:
    noise = {"server": (GaussianRelease(2.0),), "peers": (DiscreteRelease(1.5, sigma=9.0, width=5),)}
    names = [f"owner-{i}" for i in range(3)]
    return [
        Charge(n, "r", 1, i, "update", "client", "zero-out", noise, data="d") for i, n in enumerate(names)
    ]


def _make_ledger(folder: Path) -> None:
    ledger = Ledger(folder / "ledger.jsonl")
    for charge in _charges():
        ledger.charge(charge)


def _read_ledger(folder: Path) -> None:
    path = folder / "ledger.jsonl"
    charges = read_ledger(path)
    spent(charges, 1e-5)
    Ledger.go_on(path).charge(_charges()[0])


MEMORY = {"model": {"w": torch.zeros(3, 4), "step": torch.tensor(2.0)}, "seen": [1, None, ("a", 2.0)], "n": 3}


def _make_shelf(folder: Path) -> None:
    PartyStore(folder / "owner-0", "owner-0").save(MEMORY, LABEL)


def _read_shelf(folder: Path) -> None:
    made = PartyStore(folder / "owner-0", "owner-0")
    made.load(LABEL)
    made.save(MEMORY, "00002-0123abcd", LABEL)


EMPTY = {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()}


class Nobody:
    """Clients that keep nothing."""

    def save(self, label: str, committed: str) -> None:
        """Nothing."""


def _make_checkpoint(folder: Path) -> None:
    with Checkpoint(folder / "checkpoint", {"seed": 1}) as made:
        made.reserve(7)
        made.commit(1, {"w": torch.zeros(3)}, [{"round": 1}], 0.5, Nobody(), EMPTY, 0)


def _read_checkpoint(folder: Path) -> None:
    with Checkpoint(folder / "checkpoint", {"seed": 1}, resume=True) as found:
        check_mark(folder / "ledger.jsonl", found.progress.ledger)


def _make_begun(folder: Path) -> None:
    begin(folder, Experiment(**CONFIG), [0, 1], "run")
    party_store.write_json(folder / "checkpoint" / "plan.json", {"multipliers": {"update": 1.5}})


def _read_begun(folder: Path) -> None:
    experiment, _, _ = begun(folder)
    experiment.make_algorithm()
    multipliers = noted_noise(folder / "checkpoint" / "plan.json")
    experiment.make_policy(multipliers)


@cache
def run_files() -> tuple[dict[str, bytes], dict[str, bytes]]:
    """What one small run leaves: its result, and its transcript."""
    with TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(place)
        federation = sfg.federate("synthetic-citation", clients=2, nodes=40, features=8)
        algorithm = sfg.FedSage(hidden=(4, 4), fanout=(2, 2))
        run = sfg.train(algorithm, federation, plaintext(), rounds=1, out=folder, keep=everything)
        plain = {"policy": "plaintext", "clients": 2, "protection": {}, "budget": {}}
        experiment = Experiment(**{**CONFIG, **plain})
        write_json(folder / "result.json", run_result(run, experiment))
        transcript = {path.name: path.read_bytes() for path in (folder / "transcript").iterdir()}
        return {"result.json": (folder / "result.json").read_bytes()}, transcript


def _make_transcript(folder: Path) -> None:
    (folder / "transcript").mkdir()
    for name, content in run_files()[1].items():
        (folder / "transcript" / name).write_bytes(content)


def _read_transcript(folder: Path) -> None:
    with contextlib.suppress(OSError):  # of a body that is gone: who reads it says so, with its name
        view = Transcript.load(folder / "transcript").view("server")
        view.asked("update"), view.uploads("update"), view.sums("update")
        view.delivered("update"), view.own_uploads("update"), view.why_unreadable("update")


def _take_up(folder: Path) -> None:
    found = Transcript(folder / "transcript", everything, go_on=True)
    found.traffic()
    found.close()


def _make_result(folder: Path) -> None:
    (folder / "result.json").write_bytes(run_files()[0]["result.json"])


def _read_result(folder: Path) -> None:
    render_page(RunResult.model_validate(read_json(folder / "result.json", "run")), folder)


KIND: dict[str, str] = {"audit": "audit.json", "compare": "compare.json"}
MODEL: dict[str, type[AuditResult | CompareResult]] = {"audit": AuditResult, "compare": CompareResult}


def _make_manifest(folder: Path) -> None:
    _make_result(folder)
    _make_ledger(folder)
    manifest.write(folder)


def _page(kind: str) -> Loader:
    def make(folder: Path) -> None:
        (folder / KIND[kind]).write_bytes(json.dumps(page_of(kind)).encode())

    def read(folder: Path) -> None:
        render_page(MODEL[kind].model_validate(read_json(folder / KIND[kind], kind)), folder)

    return Loader(make, read, share=PAGE)


def page_of(kind: str) -> dict[str, Any]:
    """A small audit's or comparison's result."""
    config = Experiment(**CONFIG).model_dump(mode="json")
    result = json.loads(run_files()[0]["result.json"])
    value: dict[str, Any] = {"schema": f"secure-fedgraph/{kind}/1", "config": config, "command": "x"}
    value |= {"versions": result["versions"], "seconds": 1.0, "seed": [0], "seeds": [0]}
    if kind == "compare":
        row = {"name": "fedsage plaintext", "kind": "point", "algorithm": "fedsage", "policy": "plaintext"}
        row |= {"unit": "client", "epsilon": "inf", "outcome": "ran", "spent": "inf", "bytes": 10}
        row |= {"accuracy": {"global": 0.5}, "std": {"global": 0.1}, "interval": {"global": [0.4, 0.6]}}
        row |= {"each": [{"seed": 0, "accuracy": {"global": 0.5}}], "leak": {}, "leaks": {}, "seeds": 2}
        row |= {"accountant": "none", "computational": False, "budget": None, "measure": "accuracy"}
        row |= {"seconds": 1.0}
        other = {**row, "name": "other", "epsilon": 4.0, "spent": 3.9}
        return {**value, "points": [row, other], "pareto": ["other"]}
    cell = {"algorithm": "fedsage", "policy": "plaintext", "attack": "a4-label-counts", "adversary": "server"}
    cell |= {"channel": "update", "outcome": "score", "metric": "f1", "score": 0.9, "low": 0.8, "high": 1.0}
    cell |= {"baseline": 0.2, "baselines": {"mean": 0.2}, "ceiling": None, "verdict": "leaks", "reason": ""}
    cell |= {"seed": 0, "accuracy": 0.5, "bytes": 10, "seconds": 0.1, "settings": {}}
    cell |= {"variant": "as configured"}
    run = {"variant": "as configured", "algorithm": "fedsage", "policy": "plaintext", "folder": ""}
    value |= {"cells": [cell], "runs": [{**run, "result": result}], "policies": ["plaintext"]}
    return {
        **value,
        "reconstructions": [],
        "broken": [],
        "conformance": [],
        "empirical": [],
        "not_run": [],
        "configs": [config],
    }


def _make_point(folder: Path) -> None:
    place = folder / "runs" / "fedsage-plaintext" / "seed-0"
    write_json(place / "key.json", {"key": "k"})
    (place / "result.json").write_bytes(run_files()[0]["result.json"])


def _read_point(folder: Path) -> None:
    found = kept(folder / "runs" / "fedsage-plaintext" / "seed-0", "k")
    if found is not None:
        point = Point("policy", "fedsage", "plaintext", None, Experiment(**CONFIG).model_dump(mode="json"))
        gains(row_of(point, {0: found}, {}), None)


def _make_cells(folder: Path) -> None:
    cells = {part: [{"a": 1}] for part in planned_runs.PARTS if part != "seconds"}
    write_json(
        folder / "cells" / "k.json", {"schema": planned_runs.SCHEMA, "group": "g", **cells, "seconds": 1.0}
    )


class Named:
    """What of a group its cells are known by."""

    key = "k"


def _read_cells(folder: Path) -> None:
    found = planned_runs.read_cells(folder, Named())  # type: ignore[arg-type]
    if found is not None:
        [row.get("a") for part in planned_runs.PARTS - {"seconds"} for row in found[part]]


def _clear(folder: Path) -> None:
    """``--overwrite`` takes away what a result names, and nothing outside."""
    outside = folder.parent / f"{folder.name}-outside"
    outside.mkdir(exist_ok=True)
    (outside / "kept").write_bytes(b"x")
    try:
        fresh_folder(folder, True)
        assert (outside / "kept").exists(), "something outside the folder was taken away"
    finally:
        shutil.rmtree(outside)


def _make_clear(folder: Path) -> None:
    named = {"points": [{"name": "p"}], "seeds": [{"seed": 1}], "runs": [{"folder": "runs/a"}]}
    write_json(folder / "compare.json", {"schema": "secure-fedgraph/compare/1", **named})
    (folder / "runs" / "a").mkdir(parents=True)
    (folder / "seed-1").mkdir()


TABLES = {"x": np.eye(4, 3, dtype=np.float32), "y": np.arange(4), "edge_index": np.zeros((2, 5), np.int64)}


def _read_store(folder: Path) -> None:
    store.load_or_read(folder / "kept.npz", lambda: TABLES)


def _make_store(folder: Path) -> None:
    store.load_or_read(folder / "kept.npz", lambda: TABLES)


# --- raw data sets ------------------------------------------------------------------------------------------


def _raw(name: str, make: Callable[[Path], None], share: float = 0.3) -> Loader:
    raw = RAW[name]

    def read(folder: Path) -> None:
        room = datasets._ROOMS[raw.kind]
        tables = room.read(raw, raw.paths(folder))
        room.build(name, tables, "here", room.digest(tables))

    def written(folder: Path) -> None:
        raw.inside(folder).mkdir(parents=True)
        make(raw.inside(folder))

    return Loader(written, read, share=share)


def _tu(folder: Path) -> None:
    links = [(1, 2), (2, 1), (2, 3), (3, 2), (4, 5), (5, 4)]
    text = {"A": [f"{a}, {b}" for a, b in links], "graph_indicator": [1, 1, 1, 2, 2], "graph_labels": [1, -1]}
    text |= {"node_labels": [0, 1, 2, 0, 1], "edge_labels": [0, 0, 1, 1, 0, 0]}
    for name, lines in text.items():
        (folder / f"MUTAG_{name}.txt").write_text("\n".join(map(str, lines)) + "\n")


def _csv(folder: Path) -> None:
    rows = ["num,name,p_np,smiles", "1,a,1,CCO", "2,b,0,c1ccccc1", "3,c,1,CC(=O)N"]
    (folder / "BBBP.csv").write_text("\n".join(rows) + "\n")


def _npz(folder: Path) -> None:
    csr = {"data": np.ones(4, np.float32), "indices": np.array([1, 0, 3, 2]), "indptr": np.arange(5)}
    arrays = {f"adj_{key}": value for key, value in csr.items()} | {"adj_shape": np.array([4, 4])}
    arrays |= {f"attr_{key}": value for key, value in csr.items()} | {"attr_shape": np.array([4, 4])}
    np.savez(folder / "cora_ml.npz", **arrays, labels=np.array([0, 1, 0, 1]))


def _heterophilous(folder: Path) -> None:
    links = np.array([[0, 1], [1, 2], [2, 3]])
    arrays = {"node_features": np.eye(4, 3, dtype=np.float32), "node_labels": np.array([0, 1, 0, 1])}
    masks = {f"{part}_masks": np.ones((2, 4), bool) for part in ("train", "val", "test")}
    np.savez(folder / "tolokers.npz", **arrays, edges=links, **masks)


def _ciao(folder: Path) -> None:
    (folder / "graph.txt").write_text("10 20 5\n11 21 3\n10 21 4\n")
    (folder / "user.dict").write_text("10 0\n11 1\n")
    (folder / "item.dict").write_text("20 2\n21 3\n")
    (folder / "category.dict").write_text("2 0\n3 1\n")


def _venice(folder: Path) -> None:
    from scipy.sparse import csr_matrix, save_npz

    links = csr_matrix(np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]))
    for name in ("A_SOC", "A_SPA", "A_TEM", "A_simp"):
        save_npz(folder / f"{name}.npz", links)
    np.savez(folder / "labels.npz", att_hard=np.array([0, 1, 0, 1]), att_labelled=np.ones(4, bool))
    split = {"train_idx": np.array([0]), "val_idx": np.array([1]), "test_idx": np.array([2, 3])}
    np.savez(folder / "train_val_test_idx.npz", **split)


def _planetoid(folder: Path) -> None:
    for name in RAW["cora"].files:
        (folder / name).write_bytes(b"cos\nsystem\n(S'touch /tmp/unpickled'\ntR.")


def _own(folder: Path) -> None:
    (folder / "name.txt").write_text("test_wire:Nothing.At.All")


def _named(folder: Path) -> None:
    algorithm_named((folder / "name.txt").read_text(errors="replace"))


def _make_nested(folder: Path) -> None:
    (folder / "body.sfg").write_bytes(bytes(nested.pack(MEMORY)))


def _silo_tables(folder: Path) -> None:
    (folder / "nodes.csv").write_text("id,f0,f1,label,split\na,1,2.5,x,train\nb,3,4,y,val\nc,5,6,x,test\n")
    (folder / "edges.csv").write_text("source,target,weight,kind\na,b,1,0\nb,c,0.5,1\n")


def _silo_parquet(folder: Path) -> None:
    _silo_tables(folder)
    for name in ("nodes", "edges"):
        pd.read_csv(folder / f"{name}.csv").to_parquet(folder / f"{name}.parquet")
        (folder / f"{name}.csv").unlink()


AWKWARD = (
    "\ufeffid; age ;use;owns;since;label;split\r\n007;1.234,5;car;yes;2024-01-31;1;train\r\n"
    '7;2,5;home;no;31.12.2023;-1;val\r\nx;;"a;b";;;1;test\r\ny;3;CAR;ja;2024-01-01;;\r\n'
)
AGREED = """schema = "secure-fedgraph/tables/1"
id = "id"
[label]
columns = ["label"]
classes = ["-1", "1"]
[[columns]]
name = "age"
kind = "number"
low = 0
high = 2000
scale = "log"
empty = "indicator"
[[columns]]
name = "use"
kind = "category"
values = ["car", "home"]
[[columns]]
name = "owns"
kind = "yes-no"
[[columns]]
name = "since"
kind = "date"
day = 2024-02-01
[links]
weight = "weight"
[[links.columns]]
name = "kind"
kind = "category"
values = ["a"]
"""


def _agreed_tables(folder: Path) -> None:
    (folder / "nodes.csv").write_text(AWKWARD)
    (folder / "edges.csv").write_text("source;target;weight;kind\n007;7;1,5;a\n7;x;2;b\nx;x;1;a\n8;x;1;a\n")


def _typed_tables(suffix: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        _agreed_tables(folder)
        for name in ("nodes", "edges"):
            table = pd.read_csv(
                folder / f"{name}.csv", sep=";", decimal=",", dtype={"id": str}, thousands="."
            )
            table.columns = [column.strip() for column in table.columns]
            path = folder / f"{name}{suffix}"
            if suffix == ".csv.gz":
                table.to_csv(path, index=False)
            elif suffix == ".feather":
                table.to_feather(path)
            else:
                table.to_parquet(path)
            (folder / f"{name}.csv").unlink()

    return make


def _read_agreed(folder: Path) -> None:
    _federated(str(folder), parsed(AGREED, "schema.toml"))


def _draft(folder: Path) -> None:
    tables = data_at(str(folder))
    assert isinstance(tables, OwnTables)
    schema = draft(tables.nodes, tables.links)
    described(schema), parsed(schema_text(schema), "again")


def _make_schema(folder: Path) -> None:
    (folder / "schema.toml").write_text(AGREED)


def _read_schema(folder: Path) -> None:
    schema = read_schema(folder / "schema.toml")
    assert parsed(schema_text(schema), "again") == schema


def _silo_saved(folder: Path) -> None:
    nodes = torch.arange(20)
    graph = Data(x=torch.ones(20, 2), edge_index=torch.stack([nodes, nodes.flip(0)]), y=nodes % 2)
    torch.save(graph, folder / "graph.pt")


def _read_silo(folder: Path) -> None:
    saved = folder / "graph.pt"
    _federated(str(saved if saved.exists() else folder))


def _federated(place: str, schema: TableSchema | None = None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # or every table would end at what is said of it
        silos_of({"a": read_silo("a", place, schema=schema)}, 0)


TABLE_LOADERS: dict[str, Loader] = {
    "tables under a schema": Loader(_agreed_tables, _read_agreed, share=2),
    "tables of gz": Loader(_typed_tables(".csv.gz"), _read_agreed),
    "tables of parquet": Loader(_typed_tables(".parquet"), _read_agreed),
    "tables of feather": Loader(_typed_tables(".feather"), _read_agreed),
    "tables that are drafted from": Loader(_agreed_tables, _draft, share=2),
    "schema.toml": Loader(_make_schema, _read_schema, share=2),
}
"""What reads owners' tables, and their schema."""
LOADERS: dict[str, Loader] = {
    "a silo's tables": Loader(_silo_tables, _read_silo),
    "a silo's parquet": Loader(_silo_parquet, _read_silo),
    "a silo's .pt": Loader(_silo_saved, _read_silo),
    **TABLE_LOADERS,
    "experiment.toml": _config(".toml", toml),
    "ledger": Loader(_make_ledger, _read_ledger),
    "shelf": Loader(_make_shelf, _read_shelf),
    "checkpoint": Loader(_make_checkpoint, _read_checkpoint),
    "begun": Loader(_make_begun, _read_begun),
    "manifest": Loader(_make_manifest, manifest.check),
    "transcript": Loader(_make_transcript, _read_transcript),
    "transcript notes": Loader(_make_transcript, _take_up, lambda f: [f / "transcript" / "notes.jsonl"]),
    "result.json": Loader(_make_result, lambda folder: read_folder(folder)),
    "a run's page": Loader(_make_result, _read_result, share=PAGE),
    "audit.json": _page("audit"),
    "compare.json": _page("compare"),
    "report.html": Loader(_make_result, write_report, share=PAGE / 4),
    "a comparison's run": Loader(_make_point, _read_point),
    "an audit's cells": Loader(_make_cells, _read_cells),
    "what --overwrite takes away": Loader(_make_clear, _clear),
    "kept arrays": Loader(_make_store, _read_store),
    "nested values": Loader(_make_nested, lambda f: nested.unpack((f / "body.sfg").read_bytes())),
    "tu": _raw("mutag", _tu),
    "molecule_net": _raw("bbbp", _csv),
    "citation_full": _raw("cora_ml", _npz),
    "heterophilous": _raw("tolokers", _heterophilous),
    "ciao": _raw("ciao", _ciao),
    "venice": _raw("venice", _venice),
    "planetoid": _raw("cora", _planetoid, share=0.02),
    "an algorithm's name": Loader(_own, _named, share=0.2),
}


# --- changes ------------------------------------------------------------------------------------------------

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "x",
    "../../outside", "/etc/passwd", "..", ".", "a\0b", "inf", "1e400", "-1", "\ud800", "x" * 5000, [], {},
    [[]], [1, "a", None], {"a": {"b": 1}}, {"": ""}, [{}], "module:Class", "fedsage", "plaintext",
)  # fmt: skip
WHOLE: tuple[bytes, ...] = (
    b"", b"[" * 100_000, b'{"a":' * 50_000, b"null", b"[]", b"1", b"NaN", b'"x"', b"\xff\xfe\x00", b"{}",
    b"\xef\xbb\xbf{}", b"9" * 10_000, b"a: " + b"[" * 20_000, b"a: &a [*a]", b"? [1]\n: 2", b"a: 2020-13-45",
    b"a: !!python/object:os.system x", b"- " * 20_000, b"a = " + b"[" * 20_000, b"a.b.c.d.e.f.g = 1\n" * 3,
    b"\0" * 100, b"a: 0x", b"algorithm = []", b"algorithm: {a: 1}", b"data: [1]", b"clients: 1e400",
    b"a: " + b"9" * 5000, b"PK\x03\x04" * 9,
)  # fmt: skip


def spoiled_json(value: Any, rng: Random, depth: int = 0) -> Any:
    """The same values but for one: another in its place, gone, renamed, twice, or very deep."""
    inner = value if isinstance(value, dict | list) else None
    if not inner or (depth and rng.random() < 0.15):
        return rng.choice([rng.choice(ODD), _deep(rng) if rng.random() < 0.1 else rng.choice(ODD)])
    if isinstance(value, dict):
        found = dict(value)
        key = rng.choice(list(found))
        how = rng.random()
        if how < 0.15:
            found.pop(key)
        elif how < 0.22:
            found[rng.choice(["eve", key + "x", "", "../x", "kind", "schema"])] = found.pop(key)
        elif how < 0.27:
            other = rng.choice(list(found))
            found[key], found[other] = found[other], found[key]
        else:
            found[key] = spoiled_json(found[key], rng, depth + 1)
        return found
    items = list(value)
    at = rng.randrange(len(items))
    how = rng.random()
    if how < 0.12:
        items.pop(at)
    elif how < 0.2:
        items.append(items[at])
    else:
        items[at] = spoiled_json(items[at], rng, depth + 1)
    return items


def _deep(rng: Random) -> Any:
    value: Any = 1
    for _ in range(rng.choice([50, 400])):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def spoil(path: Path, rng: Random) -> None:
    """Changes one file."""
    raw, how = path.read_bytes(), rng.random()
    if how < 0.12:
        path.write_bytes(rng.choice(WHOLE))
    elif how < 0.35 or not (said := _said(path, raw)):
        path.write_bytes(damaged(raw, rng, [b"SFG\x01", b"{}", raw[::-1]]) if raw else b"\0")
    else:
        value, write = said
        with contextlib.suppress(ValueError, RecursionError):
            for _ in range(rng.choice([1, 1, 2])):
                value = spoiled_json(value, rng)
            path.write_bytes(write(value, rng))


def _said(path: Path, raw: bytes) -> tuple[Any, Callable[[Any, Random], bytes]] | None:
    """What a file says, and how it is written again."""
    text = raw.decode(errors="surrogateescape")
    with contextlib.suppress(ValueError, RecursionError):
        if path.suffix == ".toml":
            import tomllib

            return tomllib.loads(text), lambda value, rng: toml(value)
        if path.suffix == ".csv":
            sign = ";" if ";" in text else ","
            return [line.split(sign) for line in text.splitlines()], lambda value, rng: _cells(value, sign)
        if path.suffix == ".jsonl":
            rows = [json.loads(line) for line in text.splitlines()]
            return rows, lambda value, rng: b"".join(
                json.dumps(row).encode() + b"\n" for row in (value if isinstance(value, list) else [value])
            )
        if path.suffix == ".json":
            head, _, rest = text.partition("\n")
            if head.startswith('{"check"'):
                return json.loads(rest), _checked
            return json.loads(text), lambda value, rng: json.dumps(value).encode(errors="surrogatepass")
    return None


def _cells(value: Any, sign: str) -> bytes:
    """A table of cells, whatever became of it."""
    rows = value if isinstance(value, list) else [value]
    lines = [sign.join(map(str, row)) if isinstance(row, list) else str(row) for row in rows]
    return "\n".join(lines).encode(errors="surrogatepass")


def _checked(value: Any, rng: Random) -> bytes:
    """With a checksum that is right, most of the time."""
    text = json.dumps(value, indent=1).encode()
    check = checksum([text]) if rng.random() < 0.9 else rng.choice([0, "x", None, -1])
    return json.dumps({"check": check}).encode() + b"\n" + text


def repaired(folder: Path) -> None:
    """Checksums of parts in the lists of shelves, made right again."""
    for path in folder.rglob("*.json"):
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError):
            value = json.loads(path.read_text().partition("\n")[2])
            for part in value["parts"].values():
                part["check"] = checksum([(path.parent / part["file"]).read_bytes()])
            path.write_bytes(_checked(value, Random(1)))


@cache
def _warm() -> None:
    """What is loaded once, before copies are made: fonts, the run whose files are read."""
    with TemporaryDirectory() as place:
        _make_result(Path(place))
        _read_result(Path(place))


# --- trials -------------------------------------------------------------------------------------------------


def tried(name: str, trials: int, seed: int) -> Outcome:
    """So many changed files of one loader, in a copy of this process."""
    loader, rng = LOADERS[name], Random(f"{name} {seed}")
    _warm()

    def work(say: Say) -> None:
        with TemporaryDirectory() as place:
            folder = Path(place) / "a" / "b" / "c"
            for number in range(trials):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                loader.make(folder)
                chosen = rng.choice(loader.spoil(folder))
                spoil(chosen, rng)
                if rng.random() < 0.8:
                    repaired(folder)
                which = f"{chosen.name}, seed {seed}, trial {number}"
                say(called(lambda: loader.load(folder), name, which))
                gc.collect()  # figures hold on to themselves; what one file takes is what counts

    return in_copy(name, work)


def files_summed(
    trials: int,
    seed: int = 0,
    said: Callable[[str], None] = lambda line: None,
    loaders: Mapping[str, Loader] = LOADERS,
) -> tuple[Outcome, Mapping[str, Outcome]]:
    """At least so many changed files, over all of these loaders."""
    whole = sum(loader.share for loader in loaders.values())
    total, by_loader = Outcome(), {}
    for name, loader in loaders.items():
        found = tried(name, max(1, round(trials * loader.share / whole + 0.5)), seed)
        by_loader[name] = found
        total.add(found)
        read = found.answered.total()
        said(f"{found.calls:7} files, {read:6} read, {len(found.findings)} findings: {name}")
        for finding in found.findings:
            said(finding)
    return total, by_loader
