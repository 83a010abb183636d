"""Data sets by name: found, checked, put into canonical order and hashed."""

from __future__ import annotations

import contextlib
import http.client
import inspect
import os
import tempfile
import urllib.parse
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from secure_fedgraph.errors import BadInput, unknown_name
from secure_fedgraph.graph import sources, synthetic
from secure_fedgraph.graph.canonical import VERSION, canonical, content_digest
from secure_fedgraph.graph.checks import check_graph
from secure_fedgraph.graph.rawfiles import RAW

DESCRIPTIONS = {
    "cora": "citations of machine-learning papers: 2,708 nodes, 5,278 links, 7 classes",
    "citeseer": "citations of computer-science papers: 3,327 nodes, 4,552 links, 6 classes",
    "pubmed": "citations of papers on diabetes: 19,717 nodes, 44,324 links, 3 classes",
    "dblp": "citations in DBLP: 17,716 nodes, 52,867 links, 4 classes",
    "cora_ml": "the machine-learning part of the full Cora: 2,995 nodes, 8,158 links, 7 classes",
    "coauthor-cs": "co-authors in computer science: 18,333 nodes, 81,894 links, 15 classes",
    "synthetic-citation": "generated citation-like graph, size and homophily as set",
}


@dataclass(frozen=True)
class GraphDataset:
    """One graph with its origin.

    Attributes:
        name: as given to ``load``.
        graph: ``x [N, F]`` float32, ``y [N]``, ``edge_index [2, E]`` with every link in both directions.
        source: where it came from, in words.
        digest: SHA-256 of the content (``canonical.content_digest``); the same from every source.
        features: F.
        classes: number of classes.
    """

    name: str
    graph: Data
    source: str
    digest: str
    features: int
    classes: int


def load(name: str, *, seed: int = 0, allow_download: bool = True, **settings: Any) -> GraphDataset:
    """Load a data set by name.

    Looked for in this order: ``$SECURE_FEDGRAPH_DATA``, the user's cache folder, a package that carries
    it, PyG's own download addresses. Raw folders are only read. What was read once is kept, in canonical
    order, in the cache folder under the hash of the raw files.

    **Guarantees:** node numbers, class numbers and digest do not depend on the source.

    Args:
        name: one of ``available()``.
        seed: of generated graphs; files do not depend on it.
        allow_download: whether the fourth place may be tried.
        settings: arguments of the generator (``synthetic.citation``); files have none.

    Raises:
        BadInput: an unknown name or setting, or a data set that is in none of the four places.
    """
    if name not in DESCRIPTIONS:
        raise unknown_name("dataset", name, DESCRIPTIONS)
    if name == "synthetic-citation":
        known = [key for key in inspect.signature(synthetic.citation).parameters if key != "seed"]
        if unknown := set(settings) - set(known):
            raise unknown_name(f"setting of {name}", min(unknown), known)
        graph, source = synthetic.citation(seed=seed, **settings), f"generated with seed {seed}"
        digest = content_digest(graph)
    else:
        if settings:
            key = min(settings)
            raise BadInput(
                f"{name} is read from files and has no setting {key!r} ({settings[key]!r}); drop it."
            )
        graph, digest, source = _find(name, allow_download)
    check_graph(graph, name)
    return GraphDataset(name, graph, source, digest, graph.x.shape[1], int(graph.y.max()) + 1)


def available() -> list[tuple[str, str, str]]:
    """Name, description and where ``load`` would take it from, for every data set."""
    return [(name, description, _where(name)) for name, description in DESCRIPTIONS.items()]


def _where(name: str) -> str:
    if name not in RAW:
        return "generated"
    if RAW[name].present(sources.data_folder()):
        return f"${sources.VARIABLE}"
    if RAW[name].present(_cached_raw()):
        return f"cache folder {_cached_raw()}"
    if name == "cora" and sources.packaged_cora():
        return sources.package_label()
    return f"download from {_host(name)}"


def _host(name: str) -> str:
    return str(urllib.parse.urlsplit(next(iter(RAW[name].urls().values()))).hostname)


def _cached_raw() -> Path:
    return sources.cache_folder() / "data"


def _find(name: str, allow_download: bool) -> tuple[Data, str, str]:
    raw = RAW[name]
    given, cached = sources.data_folder(), _cached_raw()
    below = f"{raw.family}/{raw.folder}"
    if given is not None and raw.present(given):
        return *_read(name, given), f"${sources.VARIABLE}/{below}"
    if raw.present(cached):
        return *_read(name, cached), f"cache folder, {below}"
    if name == "cora" and (files := sources.packaged_cora()):
        found = _kept(name, files, lambda: sources.read_packaged_cora(files))
        return *found, sources.package_label()
    trouble = "downloading is switched off"
    if allow_download:
        try:
            return *_downloaded(name), f"download from {_host(name)}"
        except (OSError, http.client.HTTPException) as error:
            trouble = f"the download failed ({getattr(error, 'reason', None) or error})"
    carried = f"package {sources.PACKAGE} is not installed" if name == "cora" else "no package carries it"
    set_to = f"is {str(given)!r} without it" if given is not None else "is not set"
    raise BadInput(
        f"dataset {name!r} was not found: ${sources.VARIABLE} {set_to}, the cache folder {str(cached)!r} has "
        f"no {below}, {carried}, and {trouble}. Put the files {', '.join(raw.files)} into {below} under one "
        f"of the two folders."
    )


def _downloaded(name: str) -> tuple[Data, str]:
    try:
        sources.download(RAW[name], _cached_raw())
        return _read(name, _cached_raw())
    except PermissionError:
        with tempfile.TemporaryDirectory(prefix="secure-fedgraph-") as scratch:
            sources.download(RAW[name], Path(scratch))
            return _read(name, Path(scratch))


def _read(name: str, root: Path) -> tuple[Data, str]:
    raw = RAW[name]
    files = [raw.inside(root) / file for file in raw.files]
    return _kept(name, files, lambda: sources.read_raw(raw, root))


def _kept(name: str, files: list[Path], read: Callable[[], Data]) -> tuple[Data, str]:
    """The canonical graph of these raw files, from the cache folder if it is there and intact."""
    key = sources.file_hash(files)[:32]
    store = sources.cache_folder() / "canonical" / f"{name}-{VERSION}-{key}.npz"
    with contextlib.suppress(OSError, ValueError, KeyError, IndexError, EOFError, zipfile.BadZipFile):
        return _unpack(store)
    graph = canonical(read())
    digest = content_digest(graph)
    with contextlib.suppress(OSError):  # a cache folder that cannot be written only costs time
        _pack(store, graph, digest)
    return graph, digest


def _pack(store: Path, graph: Data, digest: str) -> None:
    store.parent.mkdir(parents=True, exist_ok=True)
    row, column = (graph.x != 0).nonzero(as_tuple=True)
    with tempfile.TemporaryDirectory(dir=store.parent, prefix=".part-") as scratch:
        part = Path(scratch) / store.name
        np.savez(
            part,
            shape=np.array(graph.x.shape),
            row=row.numpy().astype(np.int32),
            column=column.numpy().astype(np.int32),
            value=graph.x[row, column].numpy(),
            edge_index=graph.edge_index.numpy(),
            y=graph.y.numpy(),
            digest=np.array(digest),
        )
        os.replace(part, store)  # whole or not at all, also for a second process


def _unpack(store: Path) -> tuple[Data, str]:
    with store.open("rb") as file, np.load(file, allow_pickle=False) as kept:
        x = np.zeros(tuple(kept["shape"]), dtype=np.float32)
        x[kept["row"], kept["column"]] = kept["value"]
        graph = Data(
            x=torch.from_numpy(x),
            y=torch.from_numpy(kept["y"]),
            edge_index=torch.from_numpy(kept["edge_index"]),
        )
        digest = str(kept["digest"])
    if content_digest(graph) != digest:
        raise ValueError(f"{store} is damaged")
    return graph, digest
