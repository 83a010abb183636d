"""Data sets by name: located, checked, put into canonical order and hashed."""

from __future__ import annotations

import http.client
import inspect
import tempfile
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.core.errors import BadInput, check_number, check_whole
from secure_fedgraph.graph.data import (
    graph_sets,
    molecules,
    node_graphs,
    packages,
    ratings,
    relations,
    sources,
    synthetic,
)
from secure_fedgraph.graph.data.canonical import content_digest
from secure_fedgraph.graph.data.own_graph import own_dataset
from secure_fedgraph.graph.data.rawfiles import RAW
from secure_fedgraph.graph.data.store import load_or_read
from secure_fedgraph.graph.kinds import (
    Dataset,
    GraphDataset,
    GraphSetDataset,
    RatingsDataset,
    RelationsDataset,
)
from secure_fedgraph.registry import Derived, Registry, named_if_it_fails, named_settings

_DESCRIPTIONS = {
    "cora": "citations of machine-learning papers: 2,708 nodes, 5,278 links, 7 classes",
    "citeseer": "citations of computer-science papers: 3,327 nodes, 4,552 links, 6 classes",
    "pubmed": "citations of papers on diabetes: 19,717 nodes, 44,324 links, 3 classes",
    "dblp": "citations in DBLP: 17,716 nodes, 52,867 links, 4 classes",
    "cora_ml": "the machine-learning part of the full Cora: 2,995 nodes, 8,158 links, 7 classes",
    "coauthor-cs": "co-authors in computer science: 18,333 nodes, 81,894 links, 15 classes",
    "tolokers": "crowd workers, banned or not (22 %): 11,758 nodes, 519,000 links, 2 classes",
    "questions": "users of a forum, active or not (3 %): 48,921 nodes, 153,540 links, 2 classes",
    "minesweeper": "cells of a grid, mines or not (20 %): 10,000 nodes, 39,402 links, 2 classes",
    "roman-empire": "words of an article by syntactic role: 22,662 nodes, 32,927 links, 18 classes",
    "amazon-ratings": "products by average rating: 24,492 nodes, 93,050 links, 5 classes",
    "proteins": "proteins, enzymes or not: 1,113 graphs, 2 classes",
    "dd": "proteins as amino acids, enzymes or not: 1,178 graphs, 2 classes",
    "imdb-binary": "casts of films, by degree: 1,000 graphs, 2 classes",
    "mutag": "molecules that change genes or not: 188 graphs, 2 classes",
    "bbbp": "molecules that pass into the brain or not: 2,039 graphs, 2 classes (extra 'molecules')",
    "ciao": "ratings of products: 7,375 users, 105,114 products, 282,650 ratings, 28 categories",
    "venice": "posts on heritage, 3 relations, no features: 2,951 nodes, 534,513 links, 9 classes",
    "synthetic-citation": "generated citation-like graph; size, homophily, words or dense features as set",
    "synthetic-molecules": "generated molecules whose class depends on motifs, in bbbp's columns",
}
_GENERATORS: dict[str, Any] = {"synthetic-citation": synthetic.citation, molecules.NAME: molecules.generate}
_ROOMS: dict[str, Any] = {
    "node": node_graphs,
    "graph": graph_sets,
    "ratings": ratings,
    "relations": relations,
}
GIVEN = (Data, GraphDataset, GraphSetDataset, RatingsDataset, RelationsDataset)
"""What another package's data set may be."""


@dataclass(frozen=True)
class Source:
    """A data set before it is loaded.

    Args:
        description: what it is, in one line.
        kind: the ``kind`` of the class in ``graph.kinds`` that ``load`` returns for it.
        make: another package's function that returns the data; None for this package's own data sets.
    """

    description: str
    kind: str
    make: Callable[..., Data | Dataset] | None = None


def _own() -> dict[str, Source]:
    kinds = {name: RAW[name].kind if name in RAW else GraphDataset.kind for name in _DESCRIPTIONS}
    kinds[molecules.NAME] = GraphSetDataset.kind
    return {name: Source(text, kinds[name]) for name, text in _DESCRIPTIONS.items()}


def _accepted(name: str, function: object) -> Source:
    """Another package's function; its annotation says what it returns, so nothing is loaded here."""
    if not inspect.isfunction(function):
        raise BadInput(
            f"give a function that returns a PyG Data or a data set of graph.kinds, not {function!r}"
        )
    returned = typing.get_type_hints(function).get("return")
    if returned not in GIVEN:
        known = ", ".join(kind.__name__ for kind in GIVEN)
        raise BadInput(f"{function.__name__} does not say what it returns: annotate it with one of {known}")
    text = (inspect.getdoc(function) or "").split("\n")[0].rstrip(".")
    return Source(text, getattr(returned, "kind", GraphDataset.kind), function)


DATASETS: Registry[Source] = Registry("data set", "secure_fedgraph.datasets", _own, _accepted)
"""Every data set by its name: those of this module, and those of other packages."""
KINDS: Mapping[str, str] = Derived(DATASETS, lambda source: source.kind)
"""Name of a data set -> ``kind`` of the class that ``load`` returns for it."""


def load(name: str, *, seed: int = 0, allow_download: bool = True, **settings: Any) -> Dataset:
    """Load a data set by name.

    Looked for in this order: ``$SECURE_FEDGRAPH_DATA``, the user's cache folder, a package that carries
    it, PyG's own download addresses. Raw folders are only read. What PyG has read once is kept, in
    canonical order, in the cache folder under the hash of the raw files.

    **Guarantees:** node numbers, class numbers and digest do not depend on the source. Sets of graphs,
    ratings and relations keep their published order; atoms and bonds are as rdkit reads them, and
    ``source`` says which rdkit.

    Args:
        name: one of ``available()``.
        seed: of generated graphs; files do not depend on it.
        allow_download: whether the fourth place may be tried.
        settings: arguments of the generator (``synthetic.citation``, ``molecules.generate``); files have
            none.

    Returns:
        an instance of the class in ``kinds`` whose ``kind`` is ``KINDS[name]``.

    Raises:
        BadInput: an unknown name or setting, a data set that is in none of the four places, or one whose
            reader is not installed.
    """
    if name not in DATASETS:
        raise unknown_name("dataset", name, DATASETS)
    if (make := DATASETS[name].make) is not None:
        return _made_elsewhere(name, make, seed, settings)
    if name in _GENERATORS:
        known = [key for key in inspect.signature(_GENERATORS[name]).parameters if key != "seed"]
        if unknown := set(settings) - set(known):
            raise unknown_name(f"setting of {name}", min(unknown), known)
        _check_types(name, settings)
    if name == molecules.NAME:
        return molecules.generate(seed=seed, **settings)
    if name == "synthetic-citation":
        graph = synthetic.citation(seed=seed, **settings)
        return node_graphs.described(name, graph, f"generated with seed {seed}", content_digest(graph))
    for key, value in sorted(settings.items()):
        raise BadInput(f"{name} is read from files and has no setting {key!r} ({value!r}); drop it.")
    return _find(name, allow_download)


def _check_types(name: str, settings: Mapping[str, Any]) -> None:
    """That a generator's settings are numbers where it takes numbers; their ranges are its own to check.

    Raises:
        BadInput: where one is none.
    """
    for key, parameter in inspect.signature(_GENERATORS[name]).parameters.items():
        if key in settings and parameter.annotation == "int":
            check_whole(f"dataset.{key}", settings[key], 1)
        elif key in settings and parameter.annotation == "float":
            check_number(f"dataset.{key}", settings[key])


def available() -> list[tuple[str, str, str]]:
    """Name, description and where ``load`` would take it from, for every data set."""
    return [(name, source.description, _where(name)) for name, source in DATASETS.items()]


def _made_elsewhere(
    name: str, make: Callable[..., Data | Dataset], seed: int, settings: dict[str, Any]
) -> Dataset:
    """The data set that another package's function returns, with the package as its source."""
    parameters = named_settings(make)
    known = [key for key in parameters if key != "seed"]
    if unknown := set(settings) - set(known):
        raise unknown_name(f"setting of {name}", min(unknown), known)
    if missing := [
        k for k in known if k not in settings and parameters[k].default is inspect.Parameter.empty
    ]:
        raise BadInput(
            f"dataset {name!r} of {DATASETS.package_of(name)} needs {' and '.join(missing)}: give "
            f"{' '.join(f'--set dataset.{key}=...' for key in missing)}"
        )
    with named_if_it_fails(f"dataset {name!r}", make):
        returned = make(**settings, **({"seed": seed} if "seed" in parameters else {}))
    if not isinstance(returned, GIVEN):
        raise BadInput(
            f"dataset {name!r}: {make.__module__}.{make.__name__} gave a {type(returned).__name__}"
        )
    dataset = own_dataset(returned, seed) if isinstance(returned, Data) else returned
    if dataset.kind != DATASETS[name].kind:
        raise BadInput(
            f"dataset {name!r}: {make.__name__} gave data of kind {dataset.kind!r} where its annotation says "
            f"{DATASETS[name].kind!r}"
        )
    return replace(dataset, name=name, source=f"package {DATASETS.package_of(name)}")


def _where(name: str) -> str:
    if DATASETS[name].make is not None:
        return f"package {DATASETS.package_of(name)}"
    if name not in RAW:
        return "generated"
    for _, said in _places(name):
        return said
    host = RAW[name].host()
    return f"download from {host}" if host else f"not here: needs {RAW[name].below} in ${sources.VARIABLE}"


def _cached_raw() -> Path:
    return sources.cache_folder() / "data"


def _places(name: str) -> Iterator[tuple[list[Path], str]]:
    """Where a data set's files are on this machine, best first, and what that is called."""
    raw = RAW[name]
    for root, said in ((sources.data_folder(), f"${sources.VARIABLE}/"), (_cached_raw(), "cache folder, ")):
        if root is not None and raw.present(root):
            files = raw.paths(root)
            yield files, said + files[0].parent.relative_to(root).as_posix()
    if files := packages.carried(name):
        yield files, packages.label(name)


def _find(name: str, allow_download: bool) -> Dataset:
    raw = RAW[name]
    if raw.pyg:
        _ROOMS[raw.kind].stamp(raw)  # a reader that is not installed is named before any download
    for files, said in _places(name):
        return _read(name, files, said)
    trouble = "downloading is switched off"
    if not raw.host():
        trouble = "no address offers it for download in this layout"
    elif allow_download:
        try:
            return _downloaded(name)
        except (OSError, http.client.HTTPException) as error:
            trouble = f"the download failed ({getattr(error, 'reason', None) or error})"
    carrier = packages.CARRIERS.get(name)
    carried = f"package {carrier.package} is not installed" if carrier else "no package carries it"
    given, cached = sources.data_folder(), _cached_raw()
    set_to = f"is {str(given)!r} without it" if given is not None else "is not set"
    raise BadInput(
        f"dataset {name!r} was not found: ${sources.VARIABLE} {set_to}, the cache folder {str(cached)!r} has "
        f"no {raw.below}, {carried}, and {trouble}. Put the files {', '.join(raw.files)} into {raw.below} "
        f"under one of the two folders."
    )


def _downloaded(name: str) -> Dataset:
    raw = RAW[name]
    source = f"download from {raw.host()}"
    try:
        sources.download(raw, _cached_raw())
        return _read(name, raw.paths(_cached_raw()), source)
    except PermissionError:
        with tempfile.TemporaryDirectory(prefix="secure-fedgraph-") as scratch:
            sources.download(raw, Path(scratch))
            return _read(name, raw.paths(Path(scratch)), source)


def _read(name: str, files: list[Path], source: str) -> Dataset:
    """The content of these raw files, from the cache folder if an intact copy is kept in it.

    Files that need no PyG are not kept: reading them takes a tenth of a second, and the arrays are larger.
    """
    raw = RAW[name]
    room = _ROOMS[raw.kind]
    if raw.pyg:
        stamp = room.stamp(raw)
        if "rdkit" in stamp:
            source = f"{source}, read by rdkit {graph_sets.rdkit_version()}"
        store = sources.cache_folder() / "canonical" / f"{name}-{stamp}-{sources.file_hash(files)[:32]}.npz"
        tables, digest = load_or_read(store, lambda: room.read(raw, files), room.digest)
    else:
        tables = room.read(raw, files)
        digest = room.digest(tables)
    dataset: Dataset = room.build(name, tables, source, digest)
    return dataset
