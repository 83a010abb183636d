"""What ``load`` returns: one class for each kind of data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.graph.schema import Task


@dataclass(frozen=True)
class GraphDataset:
    """One graph with its origin.

    Attributes:
        name: as given to ``load``.
        graph: ``x [N, F]`` float32, ``y [N]``, ``edge_index [2, E]`` with every link in both directions.
        source: where it came from, in words.
        digest: SHA-256 of the content (``canonical.content_digest``); the same from every source.
        features: F.
        classes: number of classes, or of what else a model gives (``Schema.classes``).
        feature_names, class_names: in words, where the data have them.
        task, positive, low, high: what is learned, as ``Schema`` has it.
    """

    kind: ClassVar[str] = "node"
    name: str
    graph: Data
    source: str
    digest: str
    features: int
    classes: int
    feature_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    task: str = Task.CLASSES
    positive: int = 1
    low: float = 0.0
    high: float = 0.0


@dataclass(frozen=True)
class GraphSetDataset:
    """Many small graphs, each with one class (or what else ``task`` says), in the published order.

    Attributes:
        name: as given to ``load``.
        graphs: each with ``x [n, F]`` float32, ``y [1]``, ``edge_index [2, e]`` with every link in both
            directions, and ``edge_attr [e, D]`` float32 where links have kinds.
        source: where it came from, in words.
        digest: SHA-256 of the content (``store.digest_of``); the same from every source.
        features: F.
        classes: number of classes, or of what else a model gives (``Schema.classes``).
        feature_names, class_names: in words, where the data have them.
        task, positive, low, high: what is learned, as ``Schema`` has it.
    """

    kind: ClassVar[str] = "graph"
    name: str
    graphs: list[Data]
    source: str
    digest: str
    features: int
    classes: int
    feature_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    task: str = Task.CLASSES
    positive: int = 1
    low: float = 0.0
    high: float = 0.0


@dataclass(frozen=True)
class RatingsDataset:
    """Who rated what: users and products as the two sides of one graph.

    Attributes:
        name: as given to ``load``.
        graph: ``edge_index [2, R]``, user above product, once per rated pair and sorted, with
            ``rating [R]`` float32. Nodes 0 to ``users`` - 1 are users, the products follow.
        category: ``[products]``, of product ``users`` + i at place i.
        source: where it came from, in words.
        digest: SHA-256 of the content (``store.digest_of``).
        users: number of users.
        products: number of products.
        categories: number of categories.
    """

    kind: ClassVar[str] = "ratings"
    name: str
    graph: Data
    category: Tensor
    source: str
    digest: str
    users: int
    products: int
    categories: int


@dataclass(frozen=True)
class RelationsDataset:
    """One set of labelled nodes with several kinds of weighted links between them, and no features.

    Attributes:
        name: as given to ``load``.
        graph: the union of all relations as ``edge_index [2, E]``; ``y [N]``, -1 where a node has no
            class; ``labelled [N]``, where the publishers trust ``y``; ``train_mask``, ``val_mask`` and
            ``test_mask [N]``, the published split.
        relations: name -> ``edge_index [2, E]`` and ``edge_weight [E]`` over the same nodes. Every link
            stands in both directions, loops are dropped.
        source: where it came from, in words.
        digest: SHA-256 of the content (``store.digest_of``).
        features: 0.
        classes: number of classes.
    """

    kind: ClassVar[str] = "relations"
    name: str
    graph: Data
    relations: Mapping[str, Data]
    source: str
    digest: str
    features: int
    classes: int


Dataset = GraphDataset | GraphSetDataset | RatingsDataset | RelationsDataset
