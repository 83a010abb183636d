from __future__ import annotations

import io
import os
import shutil
import sys
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data import graph_sets, packages, sources
from secure_fedgraph.graph.data.datasets import DATASETS, KINDS, available, load
from secure_fedgraph.graph.data.rawfiles import RAW
from secure_fedgraph.graph.kinds import GraphSetDataset

DATA = os.environ.get(sources.VARIABLE, "")
DIGESTS = {
    "proteins": "7b708ba1f421",
    "dd": "78d93c0852f1",
    "imdb-binary": "3a907e9ac754",
    "mutag": "c7c534a32401",
}
# Two triangles, the second with a tail, and a path: graph of each node, its label, undirected links.
NODES = [1, 1, 1, 2, 2, 2, 2, 3, 3, 3]
LABELS = [0, 0, 1, 1, 0, 0, 2, 2, 1, 0]
LINKS = [(1, 2), (2, 3), (1, 3), (4, 5), (5, 6), (4, 6), (6, 7), (8, 9), (9, 10)]


def write_tu(folder: Path, name: str, links: list[tuple[int, int]] = LINKS) -> None:
    """Three small graphs in the file format of the TU Dortmund collection."""
    both = [*links, *((b, a) for a, b in links)]
    content = {
        "A": [f"{a}, {b}" for a, b in both],
        "graph_indicator": NODES,
        "graph_labels": [1, -1, 1],
        "node_labels": LABELS,
        "edge_labels": [(a + b) % 2 for a, b in both],
        "node_attributes": [f"{node / 4}" for node in range(len(NODES))],
    }
    folder.mkdir(parents=True)
    for file in RAW[name].files:
        part = file.removeprefix(f"{RAW[name].argument}_").removesuffix(".txt")
        (folder / file).write_text("".join(f"{line}\n" for line in content[part]))


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def load_set(name: str, **settings: bool) -> GraphSetDataset:
    found = load(name, **settings)
    assert isinstance(found, GraphSetDataset)
    return found


def test_every_name_of_the_contract_is_there_with_its_kind(cache: Path) -> None:
    assert [name for name, _, _ in available()] == list(DATASETS)
    assert {name for name in KINDS if KINDS[name] == "graph"} == {
        "proteins",
        "dd",
        "imdb-binary",
        "mutag",
        "bbbp",
        "synthetic-molecules",
    }
    assert (KINDS["ciao"], KINDS["venice"], KINDS["cora"]) == ("ratings", "relations", "node")
    where = {name: place for name, _, place in available()}
    assert where["mutag"] == "download from www.chrsmrrs.com"
    assert where["ciao"] == "not here: needs ciao/fedgraphnn in $SECURE_FEDGRAPH_DATA"


def test_small_graphs_come_out_as_they_were_written(cache: Path) -> None:
    write_tu(RAW["mutag"].inside(cache / "data"), "mutag")
    for found in (load_set("mutag"), load_set("mutag")):  # read, then kept
        assert (found.kind, found.features, found.classes) == ("graph", 3, 2)
        assert [graph.num_nodes for graph in found.graphs] == [3, 4, 3]
        assert [int(graph.y) for graph in found.graphs] == [1, 0, 1]
        assert torch.cat([graph.x.argmax(dim=1) for graph in found.graphs]).tolist() == LABELS
        second = found.graphs[1]
        assert second.edge_index.tolist() == [[0, 0, 1, 1, 2, 2, 2, 3], [1, 2, 0, 2, 0, 1, 3, 2]]
        assert second.edge_attr.argmax(dim=1).tolist() == [1, 0, 1, 1, 0, 1, 1, 1]


def test_graphs_without_labels_get_one_hot_degrees(cache: Path) -> None:
    write_tu(RAW["imdb-binary"].inside(cache / "data"), "imdb-binary")
    found = load_set("imdb-binary")
    assert found.features == 136  # a constant: these graphs' largest degree is 3
    degrees = torch.cat([graph.x for graph in found.graphs])
    assert degrees.argmax(dim=1).tolist() == [2, 2, 2, 2, 2, 3, 1, 1, 2, 1]
    assert degrees.sum(dim=1).eq(1).all()


def test_the_cache_holds_plain_arrays_and_a_damaged_one_is_made_anew(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tu(RAW["mutag"].inside(cache / "data"), "mutag")
    first = load_set("mutag")
    read, calls = sources.read_pyg, []
    monkeypatch.setattr(sources, "read_pyg", lambda *given: calls.append(given) or read(*given))
    assert load_set("mutag").digest == first.digest
    assert not calls
    (kept,) = (path for path in (cache / "canonical").rglob("*") if path.is_file())
    with np.load(kept, allow_pickle=False) as arrays:
        changed = {**arrays, "x_value": arrays["x_value"] * 2}
    for damage in (kept.read_bytes()[:300], None):
        if damage is None:
            np.savez(kept, **changed)
        else:
            kept.write_bytes(damage)
        assert load_set("mutag").digest == first.digest
    assert len(calls) == 2


def test_links_between_graphs_are_refused(cache: Path) -> None:
    write_tu(RAW["mutag"].inside(cache / "data"), "mutag", [*LINKS, (3, 4)])
    with pytest.raises(BadInput, match="graph 0 has a link to a node outside of it"):
        load("mutag")


def test_damaged_files_are_named(cache: Path) -> None:
    folder = RAW["mutag"].inside(cache / "data")
    write_tu(folder, "mutag")
    (folder / "MUTAG_A.txt").write_text("not numbers")
    with pytest.raises(BadInput, match=r"tu/MUTAG/raw' cannot be read .*replace them"):
        load("mutag")


def test_a_package_that_carries_mutag_is_read_and_not_imported(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried = packages.carried
    monkeypatch.undo()
    assert carried is not packages.carried  # the fixture's stand-in is gone
    monkeypatch.setattr(sources, "cache_folder", lambda: cache)
    write_tu(tmp_path / "data" / "tu" / "MUTAG" / "raw", "mutag")
    monkeypatch.setenv(sources.VARIABLE, str(tmp_path / "data"))
    expected = load_set("mutag").digest
    monkeypatch.delenv(sources.VARIABLE)
    site = tmp_path / "site"
    write_tu(site / "grakel" / "tests" / "data" / "MUTAG", "mutag")
    (site / "grakel" / "__init__.py").write_text("raise RuntimeError('imported')")
    (site / "grakel-9.9.dist-info").mkdir()
    (site / "grakel-9.9.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: grakel\nVersion: 9.9\n"
    )
    before = snapshot(site)
    monkeypatch.syspath_prepend(str(site))
    found = load_set("mutag", allow_download=False)
    assert (found.source, found.digest) == ("package grakel 9.9", expected)
    assert {name: place for name, _, place in available()}["mutag"] == "package grakel 9.9"
    assert snapshot(site) == before
    assert "grakel" not in sys.modules


def test_an_archive_is_downloaded_once_and_only_its_known_files_are_written(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tu(tmp_path / "server", "mutag")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as members:
        for path in (tmp_path / "server").iterdir():
            members.write(path, f"MUTAG/{path.name}")
        members.writestr("../../outside.txt", "a name that leaves the folder")
        members.writestr("MUTAG/MUTAG_graph_attributes.txt", "not asked for")
    asked: list[str] = []

    def urlopen(url: str, timeout: float) -> object:
        asked.append(url)
        return io.BytesIO(archive.getvalue())

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    assert load("mutag").source == "download from www.chrsmrrs.com"
    assert load("mutag").source == "cache folder, tu/MUTAG/raw"
    assert asked == ["https://www.chrsmrrs.com/graphkerneldatasets/MUTAG.zip"]
    assert {path.name for path in (cache / "data").rglob("*.txt")} == set(RAW["mutag"].files)
    assert not list(tmp_path.rglob("outside.txt"))


@pytest.mark.parametrize("content", [b"<html>sorry</html>", None])
def test_a_wrong_archive_is_refused(
    cache: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    if content is None:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as members:
            members.writestr("MUTAG/MUTAG_A.txt", "1, 2\n")
        content = archive.getvalue()
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: io.BytesIO(content))
    with pytest.raises(BadInput, match="is not the published archive"):
        load("mutag")
    assert snapshot(cache) == {}


def test_molecules_without_rdkit_name_the_extra(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(BadInput, match=r"'secure-fedgraph\[molecules\]'"):
        load("bbbp")


def test_molecules_that_rdkit_cannot_read_are_left_out(
    cache: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rdkit = pytest.importorskip("rdkit")
    folder = RAW["bbbp"].inside(cache / "data")
    folder.mkdir(parents=True)
    lines = ["num,name,p_np,smiles", '1,"ethanol, pure",1,CCO', "2,nonsense,1,C1CC(", "3,benzene,0,c1ccccc1"]
    (folder / "BBBP.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)  # PyG is quiet by itself under pytest
    found = load_set("bbbp")
    assert [(graph.num_nodes, int(graph.y)) for graph in found.graphs] == [(3, 1), (6, 0)]
    assert found.graphs[1].x[:, 0].tolist() == [6.0] * 6
    assert (found.graphs[0].edge_attr.shape, found.features) == ((4, 3), 9)
    assert found.source.endswith(f"read by rdkit {rdkit.__version__}")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "settings", "sizes", "features", "edge_features", "classes"),
    [
        pytest.param("mutag", {}, (188, 3371, 7442), 7, 4, [63, 125], marks=pytest.mark.needs_data("tu")),
        pytest.param(
            "proteins", {}, (1113, 43471, 162088), 3, 0, [663, 450], marks=pytest.mark.needs_data("tu")
        ),
        pytest.param(
            "imdb-binary", {}, (1000, 19773, 193062), 136, 0, [500, 500], marks=pytest.mark.needs_data("tu")
        ),
        pytest.param(
            "dd",
            {},
            (1178, 334925, 1686092),
            89,
            0,
            [691, 487],
            marks=[pytest.mark.needs_data("tu"), pytest.mark.slow],
        ),
        pytest.param(
            "bbbp",
            {},
            (2039, 49068, 105842),
            9,
            3,
            [479, 1560],
            marks=pytest.mark.needs_data("molecule_net"),
        ),
    ],
)
def test_published_sets(
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    settings: dict[str, bool],
    sizes: tuple[int, int, int],
    features: int,
    edge_features: int,
    classes: list[int],
) -> None:
    if name == "bbbp":
        pytest.importorskip("rdkit")
    monkeypatch.setenv(sources.VARIABLE, DATA)
    found = load_set(name, **settings)
    nodes = torch.tensor([graph.num_nodes for graph in found.graphs])
    edges = torch.tensor([graph.num_edges for graph in found.graphs])
    assert (len(found.graphs), int(nodes.sum()), int(edges.sum())) == sizes
    assert (found.features, found.classes) == (features, len(classes))
    assert torch.bincount(torch.cat([graph.y for graph in found.graphs])).tolist() == classes
    assert {graph.x.shape[1] for graph in found.graphs} == {features}
    assert all(graph.x.dtype == torch.float32 for graph in found.graphs)
    if edge_features:
        assert {graph.edge_attr.shape[1] for graph in found.graphs} == {edge_features}
    starts = torch.repeat_interleave(nodes.cumsum(0) - nodes, edges)
    source, target = torch.cat([graph.edge_index for graph in found.graphs], dim=1) + starts
    codes = source * int(nodes.sum()) + target
    assert torch.equal(codes.sort().values, (target * int(nodes.sum()) + source).sort().values)
    assert len(codes.unique()) == len(codes)
    if not settings and name in DIGESTS:
        assert found.digest.startswith(DIGESTS[name])
    if name == "proteins":  # the file order that `file_order` partitions split by
        assert [int(graph.y) for graph in found.graphs] == [0] * 663 + [1] * 450


@pytest.mark.needs_data("tu", "ciao", "herigraph_venice_partial", "planetoid")
@pytest.mark.parametrize("name", ["mutag", "ciao", "venice", "citeseer"])
def test_the_data_folder_may_be_read_only(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    root = tmp_path / "data"
    folder = RAW[name].inside(root)
    shutil.copytree(RAW[name].inside(Path(DATA)), folder)
    for path in [folder, *folder.iterdir()]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = snapshot(root)
    monkeypatch.setenv(sources.VARIABLE, str(root))
    try:
        assert load(name).source == f"$SECURE_FEDGRAPH_DATA/{RAW[name].below}"
        assert load(name).name == name
    finally:
        folder.chmod(0o755)
    assert snapshot(root) == before


def test_degrees_above_the_public_constant_make_no_model_wider() -> None:
    hub = 140
    tables = {
        "edge_index": np.array([[0] * hub, list(range(1, hub + 1))]),
        "nodes": np.array([hub + 1]),
        "edges": np.array([hub]),
    }
    found = graph_sets._one_hot_degrees(tables)
    assert found.shape == (hub + 1, graph_sets.DEGREES + 1)
    assert found[0].argmax() == graph_sets.DEGREES
