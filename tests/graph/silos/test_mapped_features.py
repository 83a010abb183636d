"""Features that an owner's folder holds in a file of their own: mapped, checked in blocks, never copied."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data import checks
from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.mapped import is_mapped, map_features
from secure_fedgraph.graph.silos.reading import digest_of_places, read_places, read_silo

NODES, FEATURES = 90, 16


def graph(seed: int = 0, **values: str) -> Data:
    made = citation(nodes=NODES, features=FEATURES, classes=3, seed=seed, **values)
    return Data(x=made.x.float(), edge_index=made.edge_index, y=made.y)


def folder_of(place: Path, data: Data) -> Path:
    """An owner's folder with the same data, its features apart."""
    place.mkdir(parents=True, exist_ok=True)
    np.save(place / "features.npy", data.x.numpy())
    torch.save({key: value for key, value in data.to_dict().items() if key != "x"}, place / "graph.pt")
    return place


def test_a_run_on_mapped_features_is_the_run_on_features_in_memory(tmp_path: Path) -> None:
    for values in ({}, {"values": "dense"}):  # sparse rows are multiplied by their non-zeros
        whole = {name: graph(seed, **values) for seed, name in enumerate(("a", "b"))}
        mapped = {name: read_silo(name, str(folder_of(tmp_path / name, one))) for name, one in whole.items()}
        runs = []
        for owners in (whole, mapped):
            federation = sfg.federate(owners)
            runs.append(
                sfg.train(sfg.FedSage(hidden=(8, 4), fanout=(3, 3)), federation, "masked", rounds=2, seed=0)
            )
            assert all(is_mapped(one.x) == (owners is mapped) for one in federation.owners.values())
        assert runs[0].accuracy == runs[1].accuracy
        assert all(torch.equal(value, runs[1].state[key]) for key, value in runs[0].state.items())


@pytest.mark.filterwarnings("ignore:no schema was given")
def test_beside_a_table_of_nodes(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.save(tmp_path / "features.npy", x)
    (tmp_path / "nodes.csv").write_text("id,label\nn1,1\nn2,0\nn3,1\n")
    (tmp_path / "edges.csv").write_text("source,target\nn1,n2\n")
    data = read_silo("bank", str(tmp_path))
    assert isinstance(data, Data) and is_mapped(data.x) and data.x.tolist() == x.tolist()
    (tmp_path / "nodes.csv").write_text("id,label,age\nn1,1,30\nn2,0,40\nn3,1,50\n")
    with pytest.raises(BadInput, match="column 'age'"):
        read_silo("bank", str(tmp_path))
    (tmp_path / "nodes.csv").write_text("id,label\nn1,1\nn2,0\n")
    with pytest.raises(BadInput, match=r"has 2 rows, and features\.npy has 3"):
        read_silo("bank", str(tmp_path))


def test_what_is_written_to_features_does_not_reach_the_file(tmp_path: Path) -> None:
    place = folder_of(tmp_path / "a", graph())
    before = (place / "features.npy").read_bytes()
    x = map_features(place / "features.npy", "a: ")
    x[0] = 7.0
    assert x[0].tolist() == [7.0] * FEATURES and (place / "features.npy").read_bytes() == before


def test_a_file_that_changed_is_read_again_and_is_another_digest(tmp_path: Path) -> None:
    place = folder_of(tmp_path / "a", graph())
    read, digest = read_places({"a": str(place)}).data["a"], digest_of_places({"a": str(place)})
    assert read_places({"a": str(place)}).data["a"] is read
    np.save(place / "features.npy", graph(1).x.numpy())
    os.utime(place / "features.npy", ns=(1, 1))
    assert read_places({"a": str(place)}).data["a"] is not read
    assert digest_of_places({"a": str(place)}) != digest


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="Linux tells what memory is private")
def test_features_take_no_private_memory(tmp_path: Path) -> None:
    nodes, features = 40_000, 400  # 64 MB
    x = np.lib.format.open_memmap(tmp_path / "features.npy", "w+", np.float32, (nodes, features))
    for start in range(0, nodes, 1000):
        x[start : start + 1000] = 1.0
    del x
    here = torch.arange(nodes)
    torch.save({"y": here % 3, "edge_index": torch.stack([here, (here + 1) % nodes])}, tmp_path / "graph.pt")
    script = (
        "import re, sys, torch, secure_fedgraph as sfg\n"
        "from secure_fedgraph.graph.silos.reading import read_silo\n"
        "def private():\n"
        "    text = open('/proc/self/smaps_rollup').read()\n"
        "    return int(re.search(r'Anonymous: *([0-9]+)', text)[1]) // 1000\n"
        "sfg.train(sfg.FedSage(hidden=(8, 4), fanout=(2, 2)), sfg.federate('synthetic-citation', nodes=60), "
        "'masked', rounds=1)\n"
        "before = private()\n"
        "federation = sfg.federate({'a': read_silo('a', sys.argv[1])})\n"
        "print(private() - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout.splitlines()[-1]) < 40


# ---- hostile files


def saved(x: np.ndarray, **more: bool) -> bytes:
    body = io.BytesIO()
    np.save(body, x, **more)
    return body.getvalue()


def claiming(header: str, version: bytes = b"\x01\x00", numbers: int = 0) -> bytes:
    text = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    return (
        b"\x93NUMPY"
        + version
        + len(text).to_bytes(2 if version == b"\x01\x00" else 4, "little")
        + text
        + bytes(numbers)
    )


def header(shape: str, kind: str = "'<f4'", order: str = "False") -> str:
    return f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}"


ONES = np.ones((NODES, FEATURES), dtype=np.float32)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (saved(ONES)[:-1], "no .npy file"),
        (claiming(header("(10**15, 10**6)")), "no .npy file"),
        (claiming(header("(1000000000000000, 1000000)"), numbers=64), "no .npy file"),
        (claiming(header(f"({'9' * 400}, 2)"), numbers=64), "no .npy file"),
        (claiming(header("(-1, -16)"), numbers=64), r"features\.npy"),
        (claiming(header("(0, 16)")), r"features\.npy"),
        (claiming(header("(16,)"), numbers=64), r"shape \(16,\)"),
        (claiming(header("(2, 2, 4)"), numbers=64), r"shape \(2, 2, 4\)"),
        (saved(np.asfortranarray(ONES)), "row after row"),
        (saved(ONES.astype(object), allow_pickle=True), "no .npy file"),
        (saved(ONES.astype(np.float64)), "float32"),
        (saved(ONES.astype(">f4")), "float32"),
        (saved(np.zeros(NODES, dtype=[("a", "<f4")])), "float32"),
        (claiming(header("(1, 16)"), b"\x09\x00", 64), "no .npy file"),
        (claiming("__import__('os').system('true')"), "no .npy file"),
        (claiming("[" * 5000), "no .npy file"),
        (b"\x93NUMPY\x01\x00\xff\xff{", "no .npy file"),
        (b"", "no .npy file"),
        (b"PK\x03\x04" + bytes(100), "no .npy file"),
    ],
)
def test_a_hostile_file_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    place = folder_of(tmp_path / "a", graph())
    (place / "features.npy").write_bytes(content)
    with pytest.raises(BadInput, match=rf"--silo a: .*features\.npy.*{words}|{words}.*features\.npy|{words}"):
        read_silo("a", str(place))


@pytest.mark.parametrize(
    ("row", "value", "words"),
    [(NODES - 1, np.nan, "not finite"), (NODES - 1, 1e10, "numbers up to"), (40, -np.inf, "not finite")],
)
def test_blocks_are_checked_to_the_last(
    row: int, value: float, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "AT_ONCE", 4 * FEATURES)  # four rows at once
    data = graph(values="dense")
    data.x[row, 3] = value
    made = read_silo("a", str(folder_of(tmp_path / "a", data)))
    with pytest.raises(BadInput, match=f"^a: .*{words}") as refusal:
        sfg.federate({"a": made})
    assert re.search(rf"node {row}, column 3|\[{row}, 3\]", str(refusal.value))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda place: torch.save([{"y": torch.zeros(1).long()}] * 2, place / "graph.pt"), "list of graphs"),
        (lambda place: torch.save(graph().to_dict(), place / "graph.pt"), "has x"),
        (lambda place: (place / "features.npy").rename(place / "Features.npy"), "'Features.npy'"),
        (lambda place: (place / "nodes.csv").write_text("id,label\nn1,1\n"), "'nodes.csv'"),
        (
            lambda place: np.save(place / "features.npy", ONES[1:]),
            f"{NODES - 1} rows, and y of graph.pt has {NODES}",
        ),
    ],
)
def test_a_folder_that_says_two_things_is_refused(
    change: Callable[[Path], object], words: str, tmp_path: Path
) -> None:
    place = folder_of(tmp_path / "a", graph())
    change(place)
    with pytest.raises(BadInput, match=rf"--silo a: .*{words}"):
        read_silo("a", str(place))


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_what_is_no_file_is_not_ignored_beside_other_features(tmp_path: Path, kind: str) -> None:
    (tmp_path / "nodes.csv").write_text("id,a,label\n0,0.5,0\n1,0.25,1\n")
    place = tmp_path / "features.npy"
    makes = {
        "folder": place.mkdir,
        "pipe": lambda: os.mkfifo(place),
        "link": lambda: place.symlink_to("gone"),
    }
    makes[kind]()
    with pytest.raises(BadInput, match=r"features\.npy"):
        read_silo("bank", str(tmp_path))
