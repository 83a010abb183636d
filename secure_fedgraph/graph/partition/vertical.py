"""One graph split by columns: every owner has all nodes, its own features and its own sample of the links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.answers import check_classes
from secure_fedgraph.graph.data.splits import MASKS
from secure_fedgraph.graph.partition.result import EVERYBODY, Partition, TestSet
from secure_fedgraph.graph.sample.links import EDGE_FIELDS, edge_values, places_of, undirected_links
from secure_fedgraph.graph.seeds import sub_seed

TRAINING = {(2708, 7): 60, (3327, 6): 84, (19717, 3): 320}
"""(nodes, classes) -> training nodes per class of Cora, CiteSeer and PubMed in GLASU's experiments."""
SHARE = 0.15
"""Share of training nodes where the paper gives no number: about its share of Cora and CiteSeer."""
UNKNOWN = -1
"""The label of a node whose class the owner does not know."""


def vertical(
    graph: Data,
    clients: int,
    seed: int,
    *,
    edge_share: float = 0.8,
    train_per_class: int = 0,
    validation: int = 500,
    test: int = 1000,
    labels: str = "all",
) -> Partition:
    """Hands out feature columns and samples of the links; the nodes and their order are everybody's.

    Columns are permuted and cut into blocks of at most ``ceil(d / clients)``, none empty. Each owner keeps a
    random share of the undirected links, drawn separately for each. Every class has the same number of
    training nodes (60 on Cora, 84 on CiteSeer, 320 on PubMed, otherwise 15 % of all nodes over the number of
    classes), but never more than half of the class; validation and test nodes are drawn from the rest, fewer
    where the graph is small. A graph with masks keeps them.

    Guarantees:
        - an owner's ``y`` is -1 outside the training nodes: validation and test labels are the referee's;
        - columns, links and split come from sub-seeds of their own.

    Args:
        graph: ``x [N, d]``, ``edge_index``, ``y``, -1 where a node has no label; all three masks or none.
        clients: how many owners, at most as many as columns.
        seed: for everything that is drawn.
        edge_share: of the undirected links, in (0, 1], that each owner keeps.
        train_per_class: training nodes per class; 0 for the rule above.
        validation: the largest number of validation nodes.
        test: the largest number of test nodes.
        labels: which owners have labels: ``all``, or only the first ``one``.

    Raises:
        BadInput: for more owners than columns, answers that are no classes, or settings out of range.

    References:
        Zhang et al., GLASU (arXiv 2303.09531), appendix D.1.
    """
    check_classes(graph, "a vertical split", "use louvain or random, with another algorithm")
    columns = graph.x.shape[1]
    if not 1 <= clients <= columns:
        raise BadInput(
            f"clients = {clients}: a vertical split of {columns} feature columns gives an owner none; "
            f"give 1 to {columns}"
        )
    if graph.get("train_mask") is not None:
        masks = (graph.train_mask, graph.val_mask, graph.test_mask)
    else:
        masks = class_split(graph.y, sub_seed(seed, "split"), train_per_class, validation, test)
    known = torch.where(masks[0], graph.y, UNKNOWN)
    order = np.random.default_rng(sub_seed(seed, "columns")).permutation(columns)
    blocks = [torch.from_numpy(np.sort(block)) for block in np.array_split(order, clients)]
    links = undirected_links(graph.edge_index)
    owners = tuple(
        _owner(
            graph,
            graph.x[:, block],
            known if labels == "all" or not number else torch.full_like(known, UNKNOWN),
            _draw_links(links, edge_share, sub_seed(seed, f"links/{number}")),
            masks[0],
        )
        for number, block in enumerate(blocks)
    )
    test_set, facts = examined(owners, graph.y, masks, labels)
    facts["all_links"] = links.shape[1]
    return Partition(owners, test_set, facts, _owner(graph, graph.x, known, links, masks[0]))


def examined(
    owners: Sequence[Data], y: Tensor, masks: Sequence[Tensor], labels: str
) -> tuple[TestSet, dict[str, Any]]:
    """The referee's test set of owners of columns, and facts for results.

    Args:
        owners: each one's part, of the same rows.
        y: ``[N]``, all labels.
        masks: of training, validation and test rows.
        labels: who has labels: ``all`` or ``one``.
    """
    train, validation, test = (mask.nonzero().flatten() for mask in masks)
    facts = {
        "owners": len(owners),
        "holders": len(owners),
        "nodes": len(y),
        "columns": [owner.x.shape[1] for owner in owners],
        "links": [owner.edge_index.shape[1] // 2 for owner in owners],
        "training": len(train),
        "validation": len(validation),
        "test": len(test),
        "labels": labels,
    }
    test_set = TestSet(
        inputs=Data(num_nodes=len(y)),
        labels=y,
        tests={EVERYBODY: test},
        validations={EVERYBODY: validation},
        trainings={EVERYBODY: train},
    )
    return test_set, facts


def _owner(graph: Data, x: Tensor, y: Tensor, links: Tensor, train: Tensor) -> Data:
    both = torch.cat([links, links.flip(0)], dim=1)
    nothing = torch.zeros_like(train)
    weighted = any(graph.get(key) is not None for key in EDGE_FIELDS)
    carried = edge_values(graph, places_of(graph, both)) if weighted else {}
    masks = dict(zip(MASKS, (train, nothing, nothing.clone()), strict=True))
    return Data(x=x, y=y, edge_index=both, **masks, **carried)


def _draw_links(links: Tensor, share: float, seed: int) -> Tensor:
    kept = np.random.default_rng(seed).permutation(links.shape[1])[: round(share * links.shape[1])]
    return links[:, torch.from_numpy(np.sort(kept))]


def class_split(
    y: Tensor, seed: int, per_class: int, validation: int, test: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Masks of training, validation and test nodes: as many of each class to train on, the rest drawn.

    Args:
        y: ``[N]`` labels, -1 where there is none.
        seed: of the drawing.
        per_class: training nodes of a class; 0 for the paper's number, or :data:`SHARE`.
        validation, test: the largest numbers of them.

    Raises:
        BadInput: where too few nodes have a label.
    """
    labels = y.cpu().numpy()
    nodes, classes = len(labels), int(labels.max()) + 1
    wanted = per_class or TRAINING.get((nodes, classes)) or max(1, round(SHARE * nodes / classes))
    rng = np.random.default_rng(seed)
    order = rng.permutation(nodes)
    chosen = []
    for label in range(classes):
        members = order[labels[order] == label]
        chosen.append(members[: min(wanted, max(len(members) // 2, 1))])
    train = np.concatenate(chosen)
    # training took the first of every class, so the next ones in this order are of common classes: shuffle
    rest = rng.permutation(order[~np.isin(order, train) & (labels[order] >= 0)])
    if len(rest) < 2:
        raise BadInput(f"{nodes} nodes leave none to validate and test on: give a larger graph")
    val = min(validation, max(len(rest) // 3, 1))
    masks = torch.zeros(3, nodes, dtype=torch.bool)
    for mask, members in zip(masks, (train, rest[:val], rest[val : val + test]), strict=True):
        mask[torch.from_numpy(members)] = True
    return masks[0], masks[1], masks[2]
