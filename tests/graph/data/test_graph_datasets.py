from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data import packages, sources
from secure_fedgraph.graph.data.canonical import content_digest
from secure_fedgraph.graph.data.datasets import available, load
from secure_fedgraph.graph.data.rawfiles import RAW
from secure_fedgraph.graph.kinds import GraphDataset
from secure_fedgraph.graph.partition.partition import louvain
from secure_fedgraph.graph.sample.links import undirected_links

CORA = "d861d78c590ca70e0b22f3bcd9e42878a5d7c7b57f3ab87bec85804fe4ca867c"
DATA = os.environ.get(sources.VARIABLE, "")


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def write_raw(root: Path, name: str = "cora_ml", nodes: int = 12) -> None:
    """A ring in the file format of PyG's CitationFull."""
    from scipy.sparse import csr_matrix

    ring = np.arange(nodes)
    adjacency = csr_matrix((np.ones(nodes), (ring, (ring + 1) % nodes)), shape=(nodes, nodes))
    words = csr_matrix(np.eye(nodes, 5) + np.eye(nodes, 5, k=-5))
    folder = RAW[name].inside(root)
    folder.mkdir(parents=True)
    arrays: dict[str, np.ndarray] = {"labels": ring % 3}
    for prefix, matrix in (("adj", adjacency), ("attr", words)):
        arrays |= {f"{prefix}_{key}": getattr(matrix, key) for key in ("data", "indices", "indptr")}
        arrays[f"{prefix}_shape"] = np.array(matrix.shape)
    np.savez(folder / RAW[name].files[0], **arrays)


def test_a_read_only_data_folder_is_read_and_not_written(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write_raw(tmp_path / "data")
    before = snapshot(tmp_path / "data")
    monkeypatch.setenv(sources.VARIABLE, str(tmp_path / "data"))
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)  # PyG is quiet by itself under pytest
    first = load("cora_ml")
    assert (first.features, first.classes, first.graph.edge_index.shape) == (5, 3, (2, 24))
    assert first.source == "$SECURE_FEDGRAPH_DATA/citation_full/cora_ml/raw"
    assert snapshot(tmp_path / "data") == before
    assert capfd.readouterr() == ("", "")


def arrays() -> dict[str, np.ndarray]:
    """A ring of twelve nodes as the heterophilous graphs are published."""
    ring = np.arange(12)
    edges = np.stack([ring, (ring + 1) % 12], axis=1)
    masks = {f"{part}_masks": np.ones((10, 12), bool) for part in ("train", "val", "test")}
    named = {"node_features": np.eye(12, 5, dtype=np.float32), "node_labels": ring % 4 // 3}
    return {**named, "edges": edges, **masks}


@pytest.mark.parametrize("folder", ["heterophilous", "heterophilous/tolokers/raw"])
def test_a_heterophilous_graph_is_read_where_its_repository_and_where_pyg_has_it(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    (tmp_path / folder).mkdir(parents=True)
    np.savez(tmp_path / folder / "tolokers.npz", **arrays())
    monkeypatch.setenv(sources.VARIABLE, str(tmp_path))
    found = load("tolokers", allow_download=False)
    assert isinstance(found, GraphDataset)
    assert found.source == f"$SECURE_FEDGRAPH_DATA/{folder}"
    assert (found.features, found.classes, found.graph.edge_index.shape) == (5, 2, (2, 24))
    assert torch.bincount(found.graph.y).tolist() == [9, 3] and "train_mask" not in found.graph


def huge() -> np.ndarray:
    """Says in its header that it has 10^12 rows, and has one."""
    return np.lib.stride_tricks.as_strided(np.zeros(1), (10**12, 5), (0, 0))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"node_labels": np.array([{}] * 12, dtype=object)}, "Object arrays cannot be loaded"),
        ({"edges": np.array([[0, -3]])}, "edge_index names node -3, but nodes run from 0 to 11"),
        ({"edges": np.array([[0, 12]])}, "edge_index names node 12, but nodes run from 0 to 11"),
        (
            {"node_labels": np.full(12, np.nan)},
            "y has type torch.float64 and shape (12,); give one integer class label",
        ),
        ({"node_features": np.full((12, 5), np.inf, np.float32)}, "x[0, 0] is inf"),
        ({"node_features": None}, "node_features is not a file in the archive"),
        ({"node_features": huge()}, "cannot be read"),
    ],
)
def test_a_heterophilous_file_that_lies_is_refused(
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, np.ndarray | None],
    message: str,
) -> None:
    (tmp_path / "heterophilous").mkdir()
    with zipfile.ZipFile(tmp_path / "heterophilous" / "tolokers.npz", "w") as packed:
        for key, value in {**arrays(), **changed}.items():
            if value is not None:
                packed.writestr(f"{key}.npy", written(value))
    monkeypatch.setenv(sources.VARIABLE, str(tmp_path))
    with pytest.raises(BadInput, match=re.escape(message)):
        load("tolokers", allow_download=False)


def written(array: np.ndarray) -> bytes:
    """A ``.npy`` file; of an array of which all rows are one place, no more than its header."""
    file = io.BytesIO()
    if array.strides[0]:
        np.save(file, array)
    else:
        header = {"shape": array.shape, "fortran_order": False, "descr": "<f8"}
        np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


def test_the_second_load_comes_from_the_cache_and_a_damaged_one_is_made_anew(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_raw(tmp_path / "data")
    monkeypatch.setenv(sources.VARIABLE, str(tmp_path / "data"))
    first = load("cora_ml")
    read, calls = sources.read_pyg, []
    monkeypatch.setattr(
        sources, "read_pyg", lambda *given, **more: calls.append(given) or read(*given, **more)
    )
    assert load("cora_ml").digest == first.digest
    assert not calls
    (kept,) = (cache / "canonical").glob("*.npz")
    with np.load(kept) as arrays:
        changed = {**arrays, "y": 2 - arrays["y"]}
    for damage in (b"", kept.read_bytes()[:200], None):
        if damage is None:
            np.savez(kept, **changed)
        else:
            kept.write_bytes(damage)
        assert load("cora_ml").digest == first.digest
    assert len(calls) == 3


def test_other_content_is_not_taken_from_the_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = set()
    for nodes in (12, 15):
        root = tmp_path / f"data{nodes}"
        write_raw(root, nodes=nodes)
        monkeypatch.setenv(sources.VARIABLE, str(root))
        digests.add(load("cora_ml").digest)
    assert len(digests) == 2


def test_the_cache_folder_is_second(cache: Path) -> None:
    write_raw(cache / "data")
    found = load("cora_ml", allow_download=False)
    assert found.source == "cache folder, citation_full/cora_ml/raw"
    assert {name: where for name, _, where in available()}["cora_ml"].startswith("cache folder")


def test_a_cache_that_cannot_be_written_only_costs_time(cache: Path, tmp_path: Path) -> None:
    write_raw(cache / "data")
    (cache / "canonical").write_text("a file where the folder should be")
    assert load("cora_ml").graph.num_nodes == 12


def test_damaged_raw_files_are_named(cache: Path) -> None:
    folder = RAW["citeseer"].inside(cache / "data")
    folder.mkdir(parents=True)
    for name in RAW["citeseer"].files:
        (folder / name).write_bytes(b"not what it should be")
    # they are pickles: what is not the published file is not even opened
    with pytest.raises(BadInput, match=r"CiteSeer/raw/ind.* is not the published file"):
        load("citeseer")


@pytest.mark.parametrize("allow", [True, False])
def test_the_last_error_names_all_four_places(cache: Path, allow: bool) -> None:
    with pytest.raises(BadInput) as caught:
        load("cora", allow_download=allow)
    text = str(caught.value)
    assert "$SECURE_FEDGRAPH_DATA is not set" in text
    assert str(cache / "data") in text
    assert "package graphdatascience is not installed" in text
    assert ("Name or service not known" if allow else "downloading is switched off") in text
    assert "planetoid/Cora/raw" in text


def test_a_download_is_checked_against_the_published_hash(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Answer:
        def __enter__(self) -> Answer:
            return self

        def __exit__(self, *_: object) -> None: ...

        def read(self) -> bytes:
            return b"cos\nsystem\n(S'echo'\ntR."

    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: Answer())
    with pytest.raises(BadInput, match="is not the published file"):
        load("cora")
    assert snapshot(cache) == {}


def test_a_download_is_kept_in_the_cache_folder(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_raw(tmp_path / "server")
    served = RAW["cora_ml"].inside(tmp_path / "server") / "cora_ml.npz"
    asked: list[str] = []

    def urlopen(url: str, timeout: float) -> object:
        asked.append(url)
        return served.open("rb")

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    assert load("cora_ml").source == "download from github.com"
    assert load("cora_ml").source == "cache folder, citation_full/cora_ml/raw"
    assert asked == ["https://github.com/abojchevski/graph2gauss/raw/master/data/cora_ml.npz"]


def test_synthetic_settings_are_passed_on(cache: Path) -> None:
    made = load("synthetic-citation", seed=4, nodes=50, features=9, classes=3)
    assert (made.graph.num_nodes, made.features, made.classes) == (50, 9, 3)
    assert made.source == "generated with seed 4"
    assert made.digest == content_digest(made.graph)
    assert load("synthetic-citation", seed=5, nodes=50, features=9, classes=3).digest != made.digest


def test_unknown_names_and_settings(cache: Path) -> None:
    with pytest.raises(BadInput, match="'pubmed'"):
        load("pubmet")
    with pytest.raises(BadInput, match="'nodes'"):
        load("synthetic-citation", node=3)
    with pytest.raises(BadInput, match="'nodes'"):
        load("cora", nodes=3)


def test_the_package_is_not_imported_to_find_it() -> None:
    code = (
        "import sys; from secure_fedgraph.graph.data import packages; "
        "[packages.carried(name) for name in packages.CARRIERS]; "
        "sys.exit(bool({'graphdatascience', 'grakel'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=False).returncode == 0


@pytest.mark.skipif(not packages.carried("cora"), reason="graphdatascience is not installed")
def test_packaged_cora(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(sources, "cache_folder", lambda: cache)
    monkeypatch.delenv(sources.VARIABLE, raising=False)
    cora = load("cora", allow_download=False)
    assert cora.source.startswith("package graphdatascience")
    assert (cora.graph.num_nodes, cora.features, cora.classes, cora.graph.edge_index.shape[1]) == (
        2708,
        1433,
        7,
        10556,
    )
    assert cora.digest == CORA


@pytest.mark.needs_data("planetoid")
def test_cora_is_the_same_from_planetoid_and_from_the_package(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sources.VARIABLE, DATA)
    planetoid = load("cora")
    assert planetoid.source.startswith("$SECURE_FEDGRAPH_DATA")
    assert planetoid.digest == CORA
    monkeypatch.undo()
    if not (files := packages.carried("cora")):
        pytest.skip("graphdatascience is not installed")
    raw = packages.read_cora(files)
    assert raw.edge_index.shape[1] == 5429
    assert undirected_links(raw.edge_index).shape[1] == 5278  # 151 pairs cite each other
    monkeypatch.setattr(sources, "cache_folder", lambda: cache)
    monkeypatch.delenv(sources.VARIABLE)
    packaged = load("cora")
    assert packaged.source.startswith("package")
    assert packaged.digest == planetoid.digest
    for key in ("x", "y", "edge_index"):
        assert torch.equal(packaged.graph[key], planetoid.graph[key])


@pytest.mark.needs_data("planetoid")
@pytest.mark.parametrize(("owners", "published"), [(3, 403), (5, 589), (10, 929)])
def test_louvain_owners_of_cora_are_those_of_the_fedsage_paper(
    cache: Path, monkeypatch: pytest.MonkeyPatch, owners: int, published: int
) -> None:
    monkeypatch.setenv(sources.VARIABLE, DATA)
    graph: Data = load("cora").graph
    made = [louvain(graph, owners, seed) for seed in (0, 1, 2)]
    missing = sum(each.missing_links for each in made) / 3
    assert missing == pytest.approx(published, rel=0.15)
    for each in made:
        assert max(each.sizes) <= 2708 / owners + 30
        assert min(each.sizes) >= 2708 / owners - 30
        counts = torch.stack([torch.bincount(graph.y[part], minlength=7) for part in each.parts])
        assert int(counts.min()) >= 2


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        pytest.param("citeseer", (3327, 9104, 3703, 6), marks=pytest.mark.needs_data("planetoid")),
        pytest.param("pubmed", (19717, 88648, 500, 3), marks=pytest.mark.needs_data("planetoid")),
        pytest.param(
            "tolokers",
            (11758, 1038000, 10, 2),
            marks=[pytest.mark.needs_data("heterophilous"), pytest.mark.slow],
        ),
        pytest.param("cora_ml", (2995, 16316, 2879, 7), marks=pytest.mark.needs_data("citation_full")),
        pytest.param(
            "dblp",
            (17716, 105734, 1639, 4),
            marks=[pytest.mark.needs_data("citation_full"), pytest.mark.slow],
        ),
        pytest.param(
            "coauthor-cs",
            (18333, 163788, 6805, 15),
            marks=[pytest.mark.needs_data("coauthor"), pytest.mark.slow],
        ),
    ],
)
def test_published_graphs(
    cache: Path, monkeypatch: pytest.MonkeyPatch, name: str, sizes: tuple[int, int, int, int]
) -> None:
    monkeypatch.setenv(sources.VARIABLE, DATA)
    found = load(name)
    assert isinstance(found, GraphDataset)
    assert (found.graph.num_nodes, found.graph.num_edges, found.features, found.classes) == sizes
