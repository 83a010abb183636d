from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix, save_npz

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data import sources
from secure_fedgraph.graph.data.datasets import load
from secure_fedgraph.graph.data.rawfiles import RAW
from secure_fedgraph.graph.kinds import RatingsDataset, RelationsDataset

DATA = os.environ.get(sources.VARIABLE, "")
FILES = {
    "graph.txt": "7 1 4\n9 1 2\n7 3 5\n7 1 1\n",  # user 7 rates product 1 twice
    "user.dict": "9 1\n7 0\n",
    "item.dict": "1 3\n3 2\n",
    "category.dict": "3 1\n2 0\n",
}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder and an empty cache folder."""
    monkeypatch.setattr(sources, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setenv(sources.VARIABLE, str(tmp_path / "data"))
    return tmp_path / "data"


def write_ciao(root: Path, **changes: str) -> None:
    folder = RAW["ciao"].inside(root)
    folder.mkdir(parents=True)
    for name, text in (FILES | {f"{key}.dict": text for key, text in changes.items()}).items():
        (folder / name).write_text(text)


def write_venice(root: Path, social: np.ndarray, test: list[int]) -> None:
    folder = RAW["venice"].inside(root)
    folder.mkdir(parents=True)
    link = np.array([[1, 0, 0.5], [0, 1, 0], [0.5, 0, 1]])
    for name, matrix in (("SOC", social), ("SPA", link), ("TEM", link), ("simp", (social + link > 0) * 1)):
        save_npz(folder / f"A_{name}.npz", csr_matrix(matrix))
    np.savez(
        folder / "labels.npz", att_hard=np.array([1, -1, 0]), att_labelled=np.array([True, False, False])
    )
    np.savez(folder / "train_val_test_idx.npz", train_idx=[0], val_idx=[2], test_idx=test)


def test_ratings_in_node_numbers_and_the_last_of_two_counts(data: Path) -> None:
    write_ciao(data)
    found = load("ciao")
    assert isinstance(found, RatingsDataset)
    assert (found.kind, found.users, found.products, found.categories) == ("ratings", 2, 2, 2)
    assert found.graph.edge_index.tolist() == [[0, 0, 1], [2, 3, 3]]
    assert found.graph.rating.tolist() == [5.0, 1.0, 2.0]
    assert found.category.tolist() == [0, 1]
    assert found.graph.num_nodes == 4
    assert found.source == "$SECURE_FEDGRAPH_DATA/ciao/fedgraphnn"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"user": "9 1\n8 0\n"}, "names 7, which no .dict file knows"),
        ({"user": "9 1\n7 5\n"}, "nodes of user.dict are not those from 0 to 1"),
        ({"item": "1 3\n3 3\n"}, "nodes of item.dict are not those from 2 to 3"),
        ({"category": "2 1\n"}, "2 products, but 1 have a category"),
        ({"category": "3 1\n2 -1\n"}, "a category is below 0"),
        ({"item": "one 3\n"}, "cannot be read"),
    ],
)
def test_rating_files_that_do_not_fit_are_named(data: Path, changes: dict[str, str], words: str) -> None:
    write_ciao(data, **changes)
    with pytest.raises(BadInput, match=words):
        load("ciao")


def test_what_nobody_offers_for_download_says_so(data: Path) -> None:
    with pytest.raises(BadInput) as caught:
        load("ciao")
    text = str(caught.value)
    assert "no address offers it for download" in text
    assert "Put the files graph.txt, user.dict, item.dict, category.dict into ciao/fedgraphnn" in text


def test_relations_without_loops(data: Path) -> None:
    write_venice(data, np.array([[1, 0.25, 0], [0.25, 1, 0], [0, 0, 1]]), test=[1])
    found = load("venice")
    assert isinstance(found, RelationsDataset)
    assert (found.kind, found.features, found.classes) == ("relations", 0, 2)
    assert found.relations["social"].edge_index.tolist() == [[0, 1], [1, 0]]
    assert found.relations["social"].edge_weight.tolist() == [0.25, 0.25]
    assert found.graph.edge_index.tolist() == [[0, 0, 1, 2], [1, 2, 0, 0]]
    assert found.graph.y.tolist() == [1, -1, 0]
    assert found.graph.labelled.tolist() == [True, False, False]
    assert found.graph.test_mask.tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("social", "test", "words"),
    [
        ([[1, 0.25, 0], [0, 1, 0], [0, 0, 1]], [1], "A_SOC.npz is not a symmetric matrix of 3 rows"),
        ([[1, 0.25], [0.25, 1]], [1], "cannot be read"),
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [3], "the split names a node above 2"),
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [-1], "cannot be read"),
    ],
)
def test_relation_files_that_do_not_fit_are_named(
    data: Path, social: list[list[float]], test: list[int], words: str
) -> None:
    write_venice(data, np.eye(3), test)
    save_npz(RAW["venice"].inside(data) / "A_SOC.npz", csr_matrix(np.array(social)))
    with pytest.raises(BadInput, match=words):
        load("venice")


@pytest.mark.needs_data("ciao")
def test_ciao(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sources.VARIABLE, DATA)
    found = load("ciao")
    assert isinstance(found, RatingsDataset)
    assert (found.users, found.products, found.categories) == (7375, 105114, 28)
    user, product = found.graph.edge_index
    assert len(user) == 282650
    assert found.graph.num_nodes == 112489
    assert len((user * 112489 + product).unique()) == 282650
    assert (int(user.max()), int(product.min()), int(product.max())) == (7374, 7375, 112488)
    assert float(found.graph.rating.mean()) == pytest.approx(4.16, abs=0.005)
    clients = torch.bincount(found.category[product - found.users])
    assert (len(clients), int(clients.min()), int(clients.max())) == (28, 68, 39668)
    assert found.digest.startswith("998627086ad5")


@pytest.mark.needs_data("herigraph_venice_partial")
def test_venice(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sources.VARIABLE, DATA)
    found = load("venice")
    assert isinstance(found, RelationsDataset)
    graph, nodes = found.graph, 2951
    assert (graph.num_nodes, found.features, found.classes) == (nodes, 0, 9)
    # the published counts of non-zeros hold one loop per node
    published = {"social": 488103, "spatial": 445779, "temporal": 501191}
    assert {key: part.num_edges + nodes for key, part in found.relations.items()} == published
    assert graph.num_edges + nodes == 1071977
    codes = torch.cat([part.edge_index[0] * nodes + part.edge_index[1] for part in found.relations.values()])
    assert torch.equal(codes.unique(), graph.edge_index[0] * nodes + graph.edge_index[1])
    masks = [int(graph[f"{part}_mask"].sum()) for part in ("train", "val", "test")]
    assert masks == [361, 695, 695]
    assert int(graph.labelled.sum()) == 1356
    assert bool((graph.y[graph.labelled | graph.train_mask] >= 0).all())
    assert found.digest.startswith("8897518d1ec4")
