"""Ratings of products by users, in the file layout of FedGraphNN (He et al. 2021)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from secure_fedgraph.graph.data.sources import Raw, readable
from secure_fedgraph.graph.data.store import Tables, digest_of
from secure_fedgraph.graph.kinds import RatingsDataset

digest = digest_of


def read(raw: Raw, files: list[Path]) -> Tables:
    """``graph.txt`` (user, product, rating per line) in the node numbers of the ``.dict`` files.

    Of several ratings of one product by one user the last line counts, as in FedGraphNN. Ratings of 0
    stay in, though the scale starts at 1.

    Returns:
        ``edge_index [2, R]``, ``rating [R]``, ``category [products]``, ``users [1]``.

    Raises:
        BadInput: files that do not fit each other.
    """
    with readable(files[0].parent):
        lines, users, products, categories = (np.loadtxt(path, dtype=np.int64, ndmin=2) for path in files)
        _check_numbers(users[:, 1], 0, "user.dict")
        _check_numbers(products[:, 1], len(users), "item.dict")
        _check_numbers(categories[:, 0], len(users), "category.dict")
        if len(categories) != len(products):
            raise ValueError(f"{len(products)} products, but {len(categories)} have a category")
        ends = np.stack([_renumbered(users, lines[:, 0]), _renumbered(products, lines[:, 1])])
        # np.unique keeps the first of equal pairs; in reverse order it keeps the last.
        size = len(users) + len(products)
        pairs, last = np.unique((ends[0] * size + ends[1])[::-1], return_index=True)
        category = np.empty(len(products), dtype=np.int64)
        category[categories[:, 0] - len(users)] = categories[:, 1]
        if category.min() < 0:
            raise ValueError("a category is below 0")
        return {
            "edge_index": np.stack(np.divmod(pairs, size)),
            "rating": lines[::-1, 2][last].astype(np.float32),
            "category": category,
            "users": np.array([len(users)]),
        }


def build(name: str, tables: Tables, source: str, digest: str) -> RatingsDataset:
    category = torch.from_numpy(tables["category"])
    users, products = int(tables["users"][0]), len(category)
    graph = Data(
        edge_index=torch.from_numpy(tables["edge_index"]),
        rating=torch.from_numpy(tables["rating"]),
        num_nodes=users + products,
    )
    return RatingsDataset(
        name, graph, category, source, digest, users, products, int(tables["category"].max()) + 1
    )


def _check_numbers(numbers: NDArray[np.int64], start: int, file: str) -> None:
    if not np.array_equal(np.sort(numbers), np.arange(start, start + len(numbers))):
        raise ValueError(f"the nodes of {file} are not those from {start} to {start + len(numbers) - 1}")


def _renumbered(table: NDArray[np.int64], given: NDArray[np.int64]) -> NDArray[np.int64]:
    """Node numbers of the given identifiers, ``table`` holding (identifier, node) rows."""
    order = np.argsort(table[:, 0])
    known = table[order, 0]
    place = np.minimum(np.searchsorted(known, given), len(known) - 1)
    if not np.array_equal(known[place], given):
        raise ValueError(f"graph.txt names {int(given[known[place] != given][0])}, which no .dict file knows")
    return np.asarray(table[order[place], 1])
