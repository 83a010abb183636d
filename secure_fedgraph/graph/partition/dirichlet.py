"""A set of graphs, split once and dealt to owners of Dirichlet-distributed sizes (FedGraphNN)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.answers import counts_of_classes
from secure_fedgraph.graph.kinds import GraphSetDataset
from secure_fedgraph.graph.partition.result import Partition, TestSet, owner_names
from secure_fedgraph.graph.sample.packing import pack, select_graphs, without_answers
from secure_fedgraph.graph.seeds import sub_seed

SPLIT = (0.8, 0.1, 0.1)


def dirichlet(
    dataset: GraphSetDataset,
    clients: int,
    seed: int,
    *,
    concentration: float = 0.5,
    least: int = 8,
) -> Partition:
    """Training, validation and test graphs drawn over all graphs, each dealt in the same uneven shares.

    Guarantees:
        - every graph has one owner, and stands in one of training, validation and test;
        - every owner has ``least`` training graphs or more; it may have no test graph;
        - split, shares and dealing are drawn from sub-seeds of their own.

    Args:
        dataset: a set of graphs.
        clients: how many owners.
        seed: of everything that is drawn.
        concentration: of the Dirichlet distribution of the owners' shares; lower is less even.
        least: training graphs that every owner gets before the shares are dealt.

    Returns:
        Owners with their training, validation and test graphs as one union, ``graph_id`` their numbers in the
        set; the referee's test set has all validation and test graphs, each listed under its owner.

    Raises:
        BadInput: for settings out of range, or too few graphs for so many owners.

    References:
        He et al., FedGraphNN, 2021: random 80/10/10, then Dirichlet sizes. The paper documents no more;
        concentration and floor are ours.
    """
    graphs = len(dataset.graphs)
    training = int(graphs * SPLIT[0])
    if clients * least > training:
        raise BadInput(
            f"{clients} owners of {least} training graphs or more need {clients * least}, and "
            f"{dataset.name!r} has {training}: use fewer clients or a lower split.least"
        )
    order = np.random.default_rng(sub_seed(seed, "split")).permutation(graphs)
    cuts = (training, training + int(graphs * SPLIT[1]))
    drawn = np.random.default_rng(sub_seed(seed, "shares")).dirichlet([concentration] * clients)
    parts = [
        _cut_by_shares(part, drawn, floor)
        for part, floor in zip(np.split(order, cuts), (least, 0, 0), strict=True)
    ]
    whole = pack(dataset.graphs)
    owners = tuple(_owner(whole, [part[number] for part in parts]) for number in range(clients))
    held_out = np.sort(np.concatenate([*parts[1], *parts[2]]))
    test_union = select_graphs(whole, torch.from_numpy(held_out))
    names = owner_names(clients)
    validations, tests = (
        {
            name: torch.from_numpy(np.searchsorted(held_out, part))
            for name, part in zip(names, by_owner, strict=True)
        }
        for by_owner in parts[1:]
    )
    test_set = TestSet(without_answers(test_union), test_union.y, tests, validations)
    facts = {
        "graphs": graphs,
        "sizes": [len(owner.y) for owner in owners],
        "training": [int(owner.train_mask.sum()) for owner in owners],
        "tests": [len(part) for part in parts[2]],
        **counts_of_classes(owners, dataset.classes),
        "concentration": concentration,
    }
    return Partition(owners, test_set, facts, _owner(whole, [np.concatenate(part) for part in parts]))


def _cut_by_shares(part: np.ndarray, shares: np.ndarray, floor: int) -> list[np.ndarray]:
    """The part cut into runs: ``floor`` to everybody, the rest by largest remainder of the shares."""
    rest = len(part) - floor * len(shares)
    exact = shares * rest
    sizes = np.floor(exact).astype(np.int64)
    sizes[np.argsort(-(exact - sizes), kind="stable")[: rest - sizes.sum()]] += 1
    return [np.sort(run) for run in np.split(part, np.cumsum(sizes + floor)[:-1])]


def _owner(whole: Data, parts: list[np.ndarray]) -> Data:
    chosen = torch.from_numpy(np.sort(np.concatenate(parts)))
    own = select_graphs(whole, chosen)
    own.graph_id = chosen
    for key, part in zip(("train_mask", "val_mask", "test_mask"), parts, strict=True):
        own[key] = _mask(chosen, torch.from_numpy(part))
    return own


def _mask(chosen: Tensor, part: Tensor) -> Tensor:
    return torch.isin(chosen, part)
