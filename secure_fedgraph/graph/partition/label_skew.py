"""Overlapping owners with few major classes each, and a global test graph that nobody holds (FedEgo)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.answers import check_classes
from secure_fedgraph.graph.partition.cross_links import note_cross_links
from secure_fedgraph.graph.partition.partition import induced
from secure_fedgraph.graph.partition.result import EVERYBODY, Partition, TestSet, owner_names
from secure_fedgraph.graph.sample.links import EDGE_FIELDS, undirected_links
from secure_fedgraph.graph.seeds import sub_seed


def label_skew(
    graph: Data,
    clients: int,
    seed: int,
    *,
    local_share: float = 0.5,
    local_tests: int = 200,
    major_labels: int = 3,
    major_rate: float = 0.8,
    global_tests: float = 0.3,
    profile: str = "released",
) -> Partition:
    """Owners who draw most of their nodes from a few classes of their own, from one common pool.

    Owners overlap. Nodes without a link are dropped, from the whole graph and from each owner's part.

    Guarantees:
        - no owner holds a node of the global test, which is a graph of its own;
        - an owner's local test nodes are in no later owner's part, and under ``profile="strict"`` in no
          owner's training nodes.

    Args:
        graph: ``x``, ``edge_index``, ``y``.
        clients: how many owners.
        seed: of the global test and of each owner's draw, by sub-seeds.
        local_share: share of all nodes that is drawn for each owner. The paper's tables use 0.5 for Cora and
            CiteSeer, 0.2 for WikiCS and 0.3 for CoraFull.
        local_tests: an owner's own test nodes: 200 for Cora and CiteSeer, 300 for the others.
        major_labels: classes that an owner prefers.
        major_rate: share of an owner's draw that comes from those classes.
        global_tests: share of all nodes that are global test nodes.
        profile: ``released``: a later owner's local test nodes may be training nodes of an earlier one, as
            in the released code, which flatters local scores; ``strict``: no owner trains on them.

    Returns:
        Owners in the order of their draw, with 20 % validation nodes; the referee's test set is the global
        test graph, and owners score their own tests.

    Raises:
        BadInput: for settings out of range, answers that are no classes, or an owner that is left without
            training nodes.

    References:
        FedEgo, ACM TKDD, section 5.1; the released code's figures where the paper's own do not fit its
        Table 7.
    """
    check_classes(graph, "partition 'label_skew'", "use louvain or random")
    if graph.get("train_mask") is not None:
        raise BadInput(
            "partition 'label_skew' draws its own training, validation and test nodes, and the graph has "
            "masks: use louvain or random, or leave the masks out"
        )
    classes = int(graph.y.max()) + 1
    if not 1 <= major_labels <= classes:
        raise BadInput(f"split.major_labels = {major_labels}: give 1 to {classes}, the number of classes")
    whole = connected(graph)
    nodes = len(whole)
    order = whole[_draw(seed, "global tests", nodes)]
    cut = int(nodes * global_tests)
    test_nodes, free = order[:cut].sort().values, order[cut:]
    names = owner_names(clients)
    owners: list[Data] = []
    tested = torch.zeros(int(graph.num_nodes), dtype=torch.bool)
    majors = []
    for number, name in enumerate(names):
        rng = np.random.default_rng(sub_seed(seed, f"owner/{number}"))
        pool = free[~tested[free]].numpy()
        major = rng.choice(classes, major_labels, replace=False)
        drawn = _draw_preferred(
            pool, np.isin(graph.y[pool].numpy(), major), int(nodes * local_share), major_rate, rng
        )
        own = _masked(induced(graph, torch.from_numpy(np.sort(drawn))), local_tests, rng, name)
        tested[own.node_id[own.test_mask]] = True
        owners.append(own)
        majors.append(sorted(int(label) for label in major))
    if profile == "strict":
        for own, name in zip(owners, names, strict=True):
            own.train_mask &= ~tested[own.node_id]
            _require_training_nodes(bool(own.train_mask.any()), name, "the other owners' tests", local_tests)
    note_cross_links(graph, owners)
    test_graph = induced(graph, test_nodes)
    carried = {key: test_graph[key] for key in EDGE_FIELDS if test_graph.get(key) is not None}
    inputs = Data(x=test_graph.x, edge_index=test_graph.edge_index, num_nodes=cut, **carried)
    asked = (test_graph.y >= 0).nonzero().flatten()
    test_set = TestSet(inputs, test_graph.y, {EVERYBODY: asked}, {}, own_tests=True)
    return Partition(
        tuple(owners), test_set, {"profile": profile, **_facts(graph, owners, majors, nodes, cut)}
    )


def connected(graph: Data) -> Tensor:
    """The nodes that have a link to another node, ascending."""
    linked: Tensor = undirected_links(graph.edge_index).flatten().unique()
    return linked


def _draw_preferred(
    pool: np.ndarray, preferred: np.ndarray, wanted: int, rate: float, rng: np.random.Generator
) -> np.ndarray:
    """``wanted`` nodes of the pool, a share ``rate`` of them preferred ones; fewer if the pool has fewer."""
    first = rng.permutation(pool[preferred])[: int(wanted * rate)]
    rest = rng.permutation(np.setdiff1d(pool, first, assume_unique=True))
    return np.concatenate([first, rest[: max(wanted - len(first), 0)]])


def _masked(part: Data, tests: int, rng: np.random.Generator, name: str) -> Data:
    """The part without its isolated nodes, shuffled into training, validation and test nodes."""
    own = induced(part, connected(part))
    own.node_id = part.node_id[own.node_id]
    labelled = (own.y >= 0).nonzero().flatten()
    nodes = len(labelled)
    held_out = nodes // 5
    _require_training_nodes(nodes - held_out - tests > 0, name, "its own tests", tests)
    order = labelled[torch.from_numpy(rng.permutation(nodes))]
    training, validation, test = order.split([nodes - held_out - tests, held_out, tests])
    for key, chosen in (("train_mask", training), ("val_mask", validation), ("test_mask", test)):
        own[key] = torch.zeros(len(own.y), dtype=torch.bool).index_fill_(0, chosen, True)
    return own


def _require_training_nodes(enough: bool, name: str, because: str, tests: int) -> None:
    if not enough:
        raise BadInput(
            f"split.local_tests = {tests} leaves {name} without training nodes, for {because}: lower it, "
            "use fewer clients or a larger split.local_share"
        )


def _facts(
    graph: Data, owners: list[Data], majors: list[list[int]], nodes: int, tests: int
) -> dict[str, object]:
    held = torch.bincount(torch.cat([own.node_id for own in owners]), minlength=int(graph.num_nodes))
    trained = torch.bincount(torch.cat([own.node_id[own.train_mask] for own in owners]), minlength=len(held))
    tested = torch.cat([own.node_id[own.test_mask] for own in owners])
    return {
        "owners": len(owners),
        "sizes": [int(own.num_nodes or 0) for own in owners],
        "training": [int(own.train_mask.sum()) for own in owners],
        "major_labels": majors,
        "isolated": int(graph.num_nodes) - nodes,
        "global_tests": tests,
        "held_by_several": int((held > 1).sum()),
        "own_tests_trained_on_elsewhere": int((trained[tested] > 0).sum()),
        "holders": int(held.max()),
    }


def _draw(seed: int, purpose: str, size: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(sub_seed(seed, purpose)).permutation(size))
