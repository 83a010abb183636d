"""Local training by noisy steps, where a client's policy has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch_geometric.data import Data

from secure_fedgraph.algorithms.training.optimizers import moments, optimizer_of, restore
from secure_fedgraph.algorithms.training.settings import TrainingSettings
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.sample.occurrences import capped_neighbours, largest_crowd, occurrences, trees
from secure_fedgraph.graph.sample.packing import select_graphs
from secure_fedgraph.graph.sample.trees import own_tree
from secure_fedgraph.models.per_record import graph_gradients, tree_factors
from secure_fedgraph.models.targets import class_weights, loss_of
from secure_fedgraph.seams import ClientContext, Gradient

Penalty = Callable[[nn.Module], torch.Tensor]
"""A model -> an extra term of its loss."""
MADE = (
    "a graph that was completed or otherwise made of the client's own has no records: one node's data are in "
    "the others' trees; train under noise with fedsage"
)


def fit_privately(
    client: ClientContext,
    graph: Data,
    model: nn.Module,
    settings: TrainingSettings,
    penalty: Penalty | None = None,
) -> None:
    """A round of the client's noisy steps: on trees of a frozen table, or on whole graphs.

    ``batch``, ``epochs`` and ``share`` of the settings give way to the steps' own rate and number: batches
    are drawn by coins.

    Raises:
        BadInput: where a record of the data is not the unit that the steps protect: a graph that is not the
            client's own.
    """
    training, whole = client.training, graph.get("graph") is not None
    assert training is not None  # callers ask for it first
    if graph is not client.graph:
        raise BadInput(MADE)
    optimizer = optimizer_of(model, settings)
    restore(optimizer, client.memory.get("optimizer", {}))
    model.train()
    items = graph.train_mask.nonzero().flatten()
    check_weights(settings)
    loss = loss_of(client.schema, class_weights(settings.class_weight, graph.y, client.schema.classes))
    if whole:
        check_no_dropout(settings)

        def gradients(chosen: torch.Tensor) -> Mapping[str, Gradient]:
            return graph_gradients(model, select_graphs(graph, items[chosen]), loss)

        times = 1
    else:
        rows_of = tree_rows(client, graph, settings)

        def gradients(chosen: torch.Tensor) -> Mapping[str, Gradient]:
            nodes = items[chosen]
            return tree_factors(model, graph.x, rows_of(nodes), graph.y[nodes], loss)

        times = touched(settings, training.unit)
    pull = None if penalty is None else lambda: penalty(model).backward()
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    untrained = _untrained(model, trained)

    def alone(chosen: torch.Tensor) -> Mapping[str, Gradient]:
        try:
            return gradients(chosen)
        finally:
            _put_back(model, untrained)

    training.run(optimizer, trained, len(items), alone, times, pull)
    _put_back(model, {**untrained, **trained})
    client.memory["optimizer"] = moments(optimizer)


def _untrained(model: nn.Module, trained: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A copy of what the steps leave as it is: buffers, and parameters that are not trained."""
    noised = {id(value) for value in trained.values()}  # under each of its names
    return {n: value.detach().clone() for n, value in _entries(model).items() if id(value) not in noised}


def _put_back(model: nn.Module, values: Mapping[str, torch.Tensor]) -> None:
    """Undoes what code of somebody else's wrote into a model while it computed with a copy.

    Such values carry no noise, so whoever reads the model would see records in them.
    """
    entries = _entries(model)
    with torch.no_grad():
        for name, value in values.items():
            if entries[name] is not value:
                entries[name].copy_(value)


def _entries(model: nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}


def tree_rows(
    client: ClientContext, graph: Data, settings: TrainingSettings
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Training nodes ``[b]`` -> their trees ``[b, positions]``: of a frozen table, or the nodes alone."""
    if settings.trains_alone:
        depth = len(settings.fanout)
        return lambda nodes: torch.cat([level.reshape(-1, 1) for level in own_tree(nodes, depth)], dim=1)
    depth = _fanout(settings)[1]
    if "frozen" not in client.memory:
        check_crowd(graph, settings)
        client.memory["frozen"] = neighbours_of(client, graph, settings)
    table = client.memory["frozen"]
    return lambda nodes: trees(table, nodes, depth)


def neighbours_of(client: ClientContext, graph: Data, settings: TrainingSettings) -> torch.Tensor:
    """The table that a client's trees are made from, under its secret key: the same whenever it is made."""
    most, depth = _fanout(settings)
    nodes = int(graph.num_nodes or 0)
    return capped_neighbours(
        graph.edge_index, nodes, most, client.link_priorities, _places(settings), _rows(graph, depth)
    )


def check_no_dropout(settings: TrainingSettings) -> None:
    """That training on whole graphs draws nothing for several at once.

    Raises:
        BadInput: for settings with dropout.
    """
    if settings.dropout:
        raise BadInput("dropout draws for whole batches: under noisy steps set training.dropout=0")


def check_weights(settings: TrainingSettings) -> None:
    """That no item's weight follows from the others.

    Raises:
        BadInput: for weights that do.
    """
    if settings.class_weight == "balanced":
        raise BadInput(
            "training.class_weight = balanced: under noise one item would change the weights of the others: "
            "give public numbers, one a class, such as training.class_weight=[1,3]"
        )


def touched(settings: TrainingSettings, unit: str) -> int:
    """How many records one unit's removal changes at most; 1 where a record is the unit itself.

    Raises:
        BadInput: for a link, which is a record where nothing else reads it.
    """
    if unit == "graph" or settings.trains_alone:
        return 1
    if unit == "edge":
        layers = [0] * len(settings.fanout)
        raise BadInput(
            f"training.fanout = {list(settings.fanout)}: under noisy steps a link is one record only where "
            f"no other reads it: set training.fanout={layers}, or use fedridge or fedsgd"
        )
    return occurrences(_places(settings), _fanout(settings)[1], settings.crowd)


def check_crowd(graph: Data, settings: TrainingSettings) -> None:
    """That no node has more neighbours with many links than the public bound says.

    Raises:
        BadInput: where one has. How many stays out of a sentence that others may read.
    """
    if settings.trains_alone:
        return
    places, depth = _places(settings), _fanout(settings)[1]
    if (
        largest_crowd(graph.edge_index, int(graph.num_nodes or 0), places, _rows(graph, depth))
        > settings.crowd
    ):
        raise BadInput(
            f"training.crowd = {settings.crowd}: a node has more neighbours than that with over {places} "
            "links each, and removing it would change more records than are counted: raise training.crowd "
            "(the largest degree is always enough) or training.places"
        )


def _places(settings: TrainingSettings) -> int:
    return settings.places or _fanout(settings)[0]


def _rows(graph: Data, depth: int) -> torch.Tensor | None:
    """Whose neighbours are looked up: of the trees' centres alone where they have no others."""
    mask: torch.Tensor = graph.train_mask
    return mask if depth == 1 else None


def _fanout(settings: TrainingSettings) -> tuple[int, int]:
    if len(set(settings.fanout)) > 1:
        raise BadInput(
            f"fanout = {settings.fanout}: the frozen table of noisy steps caps every layer alike; give equal "
            "numbers, such as 5, 5"
        )
    return settings.fanout[0], len(settings.fanout)
