"""A set of graphs, split once and dealt to owners of Dirichlet-distributed sizes (FedGraphNN)."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.answers import counts_of_classes
from secure_fedgraph.graph.data.splits import stratified
from secure_fedgraph.graph.kinds import GraphSetDataset
from secure_fedgraph.graph.partition.result import EVERYBODY, Partition, TestSet, owner_names
from secure_fedgraph.graph.sample.packing import pack, select_graphs, without_answers
from secure_fedgraph.graph.seeds import sub_seed

SPLIT = (0.8, 0.1, 0.1)


def dirichlet(
    dataset: GraphSetDataset, clients: int, seed: int, *, concentration: float = 0.5, least: int = 8
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
        own[key] = torch.isin(chosen, torch.from_numpy(part))
    return own


LEAST = 4
"""The fewest graphs of an agent: fewer leave nothing to train on and to test on."""


def agents(
    order: str,
    dataset: GraphSetDataset,
    clients: int,
    seed: int,
    *,
    global_test: float = 0.1,
    own_test: float = 0.1,
    own_validation: float = 0.0,
    perturbed: bool = False,
    low: float = 0.5,
    medium: float = 0.3,
    high: float = 0.1,
) -> Partition:
    """Every agent gets as many graphs as the others, of which it keeps some to test its own model.

    Guarantees:
        - every graph is in the global test or has one owner, and stands in one of training, validation, test;
        - owners' numbers of graphs differ by at most one;
        - global test, dealing, local splits and perturbation are drawn from sub-seeds of their own.

    Args:
        order: ``random``, or ``file_order``: runs of the set as published, so that sets that are sorted by
            class (PROTEINS) are dealt with skewed classes.
        dataset: a set of graphs.
        clients: how many agents.
        seed: of everything that is drawn.
        global_test: share of all graphs, class by class, that only the referee has.
        own_test, own_validation: shares of an agent's graphs, class by class.
        perturbed: whether a share of every agent's links is rewired. Agents fall into three groups of
            quality, in their order: low, medium, high.
        low, medium, high: the share of each group. The paper's shares are not known; these are ours.

    Returns:
        Agents that score their own tests themselves, and a global test set that belongs to no agent.

    Raises:
        BadInput: for shares out of range, or fewer than four graphs for an agent.

    References:
        FairGraphFL (AAAI 2024), experimental setting; the released code deals in file order.
    """
    if own_test + own_validation >= 1:
        raise BadInput(
            f"split.own_test = {own_test} and split.own_validation = {own_validation} leave nothing to "
            "train on"
        )
    shares = {"low": low, "medium": medium, "high": high} if perturbed else {}
    y = torch.cat([graph.y.reshape(1, -1) for graph in dataset.graphs]).squeeze(1)
    dealt_out, _, in_test = stratified(y, sub_seed(seed, "global test"), 1 - global_test, 0.0)
    rest = dealt_out.nonzero().flatten().numpy()
    if len(rest) < LEAST * clients:
        raise BadInput(
            f"{clients} agents need at least {LEAST} graphs each, and {len(rest)} are dealt of "
            f"{dataset.name!r}: use fewer clients"
        )
    if order == "random":
        rest = np.random.default_rng(sub_seed(seed, "agents")).permutation(rest)
    parts = [np.sort(part) for part in np.array_split(rest, clients)]
    groups = [list(shares)[3 * number // clients] for number in range(clients)] if shares else []
    owners = []
    for number, part in enumerate(parts):
        graphs = [dataset.graphs[i] for i in part]
        if shares:
            rng = np.random.default_rng(sub_seed(seed, f"perturbation/{number}"))
            graphs = [rewired(graph, shares[groups[number]], rng) for graph in graphs]
        local = sub_seed(seed, f"local split/{number}")
        owners.append(_agent(graphs, part, 1 - own_test - own_validation, own_validation, local))
    test_graphs = [dataset.graphs[i] for i in in_test.nonzero().flatten().tolist()]
    test_set = TestSet(Data(), torch.zeros(0, dtype=torch.long), {}, {}, own_tests=bool(own_test))
    if test_graphs:
        test_union = pack(test_graphs)
        nodes = {EVERYBODY: torch.arange(len(test_graphs))}
        test_set = TestSet(without_answers(test_union), test_union.y, nodes, {}, own_tests=bool(own_test))
    elif not own_test:
        raise BadInput("split.global_test = 0 and split.own_test = 0 leave nothing to test on")
    facts = {
        "graphs": len(y),
        "sizes": [len(owner.y) for owner in owners],
        "training": [int(owner.train_mask.sum()) for owner in owners],
        "tests": len(test_graphs),
        **counts_of_classes(owners, dataset.classes),
    }
    if groups:
        facts["quality"] = dict(zip(owner_names(clients), groups, strict=True))
        facts["rewired"] = shares
    everything = [dataset.graphs[i] for i in np.sort(rest)]
    pool = _agent(
        everything, np.sort(rest), 1 - own_test - own_validation, own_validation, sub_seed(seed, "pool split")
    )
    return Partition(tuple(owners), test_set, facts, None if shares else pool)


random_agents = partial(agents, "random")
file_order_agents = partial(agents, "file_order")


def rewired(graph: Data, share: float, rng: np.random.Generator) -> Data:
    """The graph with a share of its links (rounded) moved to pairs that were not linked.

    The number of links stays the same, without loops or double links; where too few pairs are unlinked, fewer
    links move. Links that stay keep their kinds, and new ones get the kinds of those they replace.
    """
    nodes = int(graph.num_nodes or 0)
    once = graph.edge_index[0] < graph.edge_index[1]
    links = graph.edge_index[:, once].numpy()
    taken = links[0] * nodes + links[1]
    pairs = nodes * (nodes - 1) // 2
    moved = min(round(share * len(taken)), pairs - len(taken))
    if moved <= 0:
        return graph
    removed = rng.choice(len(taken), moved, replace=False)
    present: set[int] = set(taken.tolist())
    added: list[tuple[int, int]] = []
    while len(added) < moved:
        for a, b in rng.integers(0, nodes, size=(2 * moved + 8, 2)).tolist():
            key = min(a, b) * nodes + max(a, b)
            if a != b and key not in present and len(added) < moved:
                present.add(key)
                added.append((min(a, b), max(a, b)))
    links = links.copy()
    links[:, removed] = np.array(added).T
    both = torch.from_numpy(np.concatenate([links, links[::-1]], axis=1))
    changed = Data(x=graph.x, edge_index=both, y=graph.y)
    if graph.get("edge_attr") is not None:
        kinds = graph.edge_attr[once]
        changed.edge_attr = torch.cat([kinds, kinds])
    return changed


def _agent(graphs: list[Data], numbers: np.ndarray, train: float, validation: float, seed: int) -> Data:
    own = pack(graphs)
    masks = stratified(own.y, seed, train, validation)
    for key, mask in zip(("train_mask", "val_mask", "test_mask"), masks, strict=True):
        own[key] = mask
    own.graph_id = torch.from_numpy(np.asarray(numbers))
    return own
