"""The partitions of data sets, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.kinds import Dataset, GraphDataset, GraphSetDataset, RatingsDataset
from secure_fedgraph.graph.partition.by_category import by_category
from secure_fedgraph.graph.partition.communities import assign
from secure_fedgraph.graph.partition.dirichlet import dirichlet, file_order_agents, random_agents
from secure_fedgraph.graph.partition.label_skew import label_skew
from secure_fedgraph.graph.partition.partition import louvain, random_parts, subgraphs
from secure_fedgraph.graph.partition.result import Partition
from secure_fedgraph.graph.partition.vertical import vertical


@dataclass(frozen=True)
class Partitioning:
    """A way to hand out data of one kind.

    Args:
        split: ``(graph or data set, clients, seed, **settings) -> Partition``; it gets the graph itself where
            the data set is one graph.
        summary: one line for lists.
        settings_of: the function whose keyword arguments are the settings; ``split`` by default.
    """

    split: Callable[..., Partition]
    summary: str
    settings_of: Callable[..., Any] | None = None

    @property
    def settings(self) -> Mapping[str, inspect.Parameter]:
        """The settings that ``split.KEY`` can name."""
        parameters = inspect.signature(self.settings_of or self.split).parameters.values()
        return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY or p.default is not p.empty}


PARTITIONS: dict[str, Partitioning] = {
    "louvain": Partitioning(
        partial(subgraphs, louvain), "disjoint parts along communities (FedSage)", settings_of=assign
    ),
    "louvain_compiled": Partitioning(
        partial(subgraphs, partial(louvain, compiled=True)),
        "the same for graphs of any size: communities by compiled code",
        settings_of=partial(assign, compiled=True),
    ),
    "random": Partitioning(
        partial(subgraphs, random_parts), "disjoint parts at random", settings_of=random_parts
    ),
    "label_skew": Partitioning(
        label_skew, "overlapping parts with few major classes each, and a test graph apart (FedEgo)"
    ),
    "vertical": Partitioning(
        vertical, "all nodes to everybody, columns and a share of the links each (GLASU)"
    ),
    "vertical_all_links": Partitioning(
        partial(vertical, edge_share=1.0), "all nodes and links to everybody, columns each"
    ),
}


OF_GRAPH_SETS: dict[str, Partitioning] = {
    "random": Partitioning(
        random_agents, "disjoint sets of graphs of equal size, a global test apart (FairGraphFL)"
    ),
    "file_order": Partitioning(file_order_agents, "the same, in runs of the set as published"),
    "dirichlet": Partitioning(dirichlet, "disjoint sets of graphs of uneven sizes (FedGraphNN)"),
}
OF_RATINGS: dict[str, Partitioning] = {
    "by_category": Partitioning(by_category, "ratings, one owner a category of products (FedGraphNN)")
}

BY_KIND: dict[str, dict[str, Partitioning]] = {
    GraphDataset.kind: PARTITIONS,
    GraphSetDataset.kind: OF_GRAPH_SETS,
    RatingsDataset.kind: OF_RATINGS,
}
"""Kind of data set, as ``graph.kinds`` has it, -> the partitions that it can be split by."""


def names() -> tuple[str, ...]:
    """Names of all partitions, for any kind of data."""
    return tuple(dict.fromkeys(name for ways in BY_KIND.values() for name in ways))


def split_data(name: str, dataset: Dataset, clients: int, seed: int, **settings: Any) -> Partition:
    """Splits a data set among owners by the partition of that name.

    Args:
        name: a key of one of :data:`BY_KIND`.
        dataset: what ``graph.data.datasets.load`` gives.
        clients: how many owners.
        seed: for everything that is drawn, by sub-seeds.
        settings: of the partition (``split.KEY``).

    Raises:
        BadInput: for an unknown name or setting, or data of another kind.
    """
    if name not in names():
        raise unknown_name("partition", name, names())
    ways = BY_KIND.get(dataset.kind, {})
    if name not in ways:
        raise BadInput(
            f"partition {name!r} does not fit {dataset.name!r}, which is data of kind {dataset.kind!r}"
            + (f": use {' or '.join(ways)}" if ways else "; no partition for it is built yet")
        )
    way = ways[name]
    for key, value in settings.items():
        if key not in way.settings:
            known = [f"split.{k}" for k in way.settings] or ["none"]
            raise unknown_name(f"setting of partition {name}", f"split.{key}", known)
        _check(key, value, str(way.settings[key].annotation))
    given = dataset.graph if isinstance(dataset, GraphDataset) else dataset
    return way.split(given, clients, seed, **settings)


_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
    "str": ((str,), "a word"),
}
_PART = (lambda value: 0 <= value < 1, "a share from 0 to less than 1")
_SHARE = (lambda value: 0 < value < 1, "a share between 0 and 1")
_SOME = (lambda value: value >= 1, "1 or more")
_FROM_0 = (lambda value: value >= 0, "0 or more")
_RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "delta": _FROM_0,
    "restarts": (lambda value: value is None or (isinstance(value, int) and value >= 1), "1 or more"),
    "local_share": _SHARE,
    "global_tests": _SHARE,
    "major_rate": (lambda value: 0 <= value <= 1, "a share from 0 to 1"),
    "local_tests": _SOME,
    "profile": (lambda value: value in ("released", "strict"), "released or strict"),
    "edge_share": (lambda value: 0 < value <= 1, "a share above 0 and up to 1"),
    "labels": (lambda value: value in ("all", "one"), "all or one"),
    "train_per_class": _FROM_0,
    "validation": _SOME,
    "test": _SOME,
    "concentration": (lambda value: 0 < value < float("inf"), "a number above 0"),
    "least": _SOME,
    **dict.fromkeys(("global_test", "own_test", "own_validation", "low", "medium", "high"), _PART),
}
"""What a setting may be, whichever partition has it."""


def _check(key: str, value: Any, annotation: str) -> None:
    wanted, words = _TYPES.get(annotation, ((object,), ""))
    if not isinstance(value, wanted) or (isinstance(value, bool) and annotation in ("int", "float")):
        raise BadInput(f"split.{key} = {value!r}: give {words}")
    fits, words = _RANGES.get(key, (lambda _: True, ""))
    if not fits(value):
        raise BadInput(f"split.{key} = {value!r}: give {words}")
