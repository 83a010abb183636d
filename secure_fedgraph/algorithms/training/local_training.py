"""Local training: what every averaging algorithm does inside a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from secure_fedgraph.algorithms.training.cohorts import LARGEST, OwnTraining, train_together
from secure_fedgraph.algorithms.training.optimizers import bound_gradients, moments, optimizer_of, restore
from secure_fedgraph.algorithms.training.private_training import Penalty, fit_privately
from secure_fedgraph.algorithms.training.settings import TrainingSettings
from secure_fedgraph.core.errors import BadInput, WrongType
from secure_fedgraph.graph.own.pairs import ENDS, MESSAGES, OWN, PAIRS, chosen
from secure_fedgraph.graph.placing import CPU, placed
from secure_fedgraph.graph.sample.packing import select_graphs
from secure_fedgraph.graph.sample.trees import MISSING, NeighbourTable, own_tree
from secure_fedgraph.models.finite import note_divergence, take_step
from secure_fedgraph.models.gnn import GraphSage
from secure_fedgraph.models.parameters import on_device
from secure_fedgraph.models.targets import Loss, class_weights, loss_of
from secure_fedgraph.models.user_models import check_scores, scores_of, spare
from secure_fedgraph.protocol.meeting import Work, do
from secure_fedgraph.seams import ClientContext


def cross_entropy(scores: Tensor, y: Tensor, truth: float = 1.0) -> Tensor:
    """The mean cross entropy of labels of which each is true with a known probability.

    Where ``truth`` is less than 1, what the model says about true classes is first turned into what it says
    about randomised ones: ``truth p(c) + (1 - truth) / (K - 1) (1 - p(c))``. The loss is least where ``p`` is
    the distribution of the true labels, so a model does not learn the noise however long it trains.

    Args:
        scores: of classes, ``[n, K]``.
        y: labels ``[n]``, any other class as likely as the next where they are not true.
        truth: the probability that a label is true, above ``1 / K``.

    References:
        Patrini et al., CVPR 2017 (forward correction).

    >>> sure, y = torch.tensor([[9.0, 0.0], [0.0, 9.0]]), torch.tensor([0, 0])
    >>> bool(cross_entropy(sure, y, truth=0.75) < cross_entropy(sure, y))
    True
    """
    if truth >= 1.0:
        return F.cross_entropy(scores, y)
    other = (1.0 - truth) / (scores.shape[1] - 1)
    # in logarithms, so that a sure model has no infinite loss and a finite gradient
    kept = F.log_softmax(scores, dim=1) + scores.new_tensor(max(truth - other, 0.0)).log()
    randomised = torch.logaddexp(kept, torch.full_like(kept, other).log())
    return F.nll_loss(randomised, y)


Trees = Callable[[torch.Tensor], Sequence[torch.Tensor]]
"""Training nodes -> their sampled trees, level by level."""


def fit(
    client: ClientContext,
    graph: Data,
    model: nn.Module,
    settings: TrainingSettings,
    penalty: Penalty | None = None,
    device: torch.device = CPU,
) -> None:
    """Trains a model in place on the client's own training nodes, for one round.

    The optimiser's moments live in the client's memory and stay there. Batches, neighbours and dropout are
    drawn on the CPU, so a seed gives the same ones on every device; the model and the moments come back to
    the CPU, so what leaves or is saved never lies elsewhere.

    Args:
        client: the client.
        graph: what it trains on: its own graph, or what it made of it.
        model: with ``forward_tree`` it is trained on sampled trees, else on the client's whole graph.
        settings: how.
        penalty: an extra loss term of the model, e.g. FedProx's.
        device: where it trains. Noisy steps stay on the CPU (a run of both is refused before it starts).
    """
    if client.training is not None:
        return fit_privately(client, graph, model, settings, penalty)

    def alone() -> None:
        _fit_alone(client, graph, model, settings, penalty, device)

    if penalty is not None or device != CPU or not isinstance(model, GraphSage):
        return alone()
    if not _is_small(client, graph, model, settings):
        return alone()
    batches = partial(_batches, client, graph, settings)
    trees = _fresh_trees(client, graph, settings)
    own = OwnTraining(client, graph, model, settings, loss_of(client.schema), batches, trees)
    do(Work((id(settings), client.schema), alone, train_together, own))


def _is_small(client: ClientContext, graph: Data, model: nn.Module, settings: TrainingSettings) -> bool:
    """Whether what is trained is a GraphSAGE network on the nodes of a small graph, as they are."""
    plain = graph.get("graph") is None and not settings.class_weight and client.true_labels >= 1
    return plain and type(model) is GraphSage and graph.x.layout == torch.strided and len(graph.x) <= LARGEST


def _fit_alone(
    client: ClientContext,
    graph: Data,
    model: nn.Module,
    settings: TrainingSettings,
    penalty: Penalty | None,
    device: torch.device,
) -> None:
    with on_device(model, device):
        optimizer = optimizer_of(model, settings)
        restore(optimizer, client.memory.get("optimizer", {}))
        loss_on_batch = loss_on(client, placed(graph, device), model, settings)
        model.train()
        sound = True
        for batch in _batches(client, graph, settings):
            optimizer.zero_grad()
            loss = loss_on_batch(batch.to(device))
            if penalty is not None:
                loss = loss + penalty(model)
            loss.backward()
            sound &= bound_gradients(model.parameters(), settings.largest_gradient)
            take_step(optimizer)
        note_divergence(client.name, sound)
        client.memory["optimizer"] = moments(optimizer)


def loss_on(
    client: ClientContext, graph: Data, model: nn.Module, settings: TrainingSettings
) -> Callable[[torch.Tensor], torch.Tensor]:
    """The mean loss of a batch of the client's own nodes or graphs, as a function of the batch.

    Args:
        client, graph, model, settings: as :func:`fit`; graph, model and batches lie on one device.

    Raises:
        WrongType: by the function, for a model that gives other rows or columns than are asked for.
    """

    def fitting(scores: torch.Tensor, rows: int, asked: str) -> torch.Tensor:
        """A model is tried before round 1, on a graph of another size than this one."""
        try:
            return check_scores(scores, rows, client.schema.classes, f"model {type(model).__name__}", asked)
        except BadInput as error:  # its sentence counts the client's nodes, so it may not leave the client
            raise WrongType(str(error)) from None

    task_loss = _weighed(client, settings)
    if graph.get("graph") is not None:  # a union of whole graphs, which are the items
        dropout = client.generator("dropout")

        def of_graphs(batch: torch.Tensor) -> torch.Tensor:
            scores = scores_of(model, select_graphs(graph, batch), dropout)
            return task_loss(fitting(scores, len(batch), "graph"), graph.y[batch]).mean()

        return of_graphs
    if getattr(model, "reads_pairs", False):
        says = _of_links(client, graph, model, settings)
        return lambda batch: task_loss(fitting(says(batch), len(batch), "link"), graph.y[batch]).mean()
    truth = client.true_labels

    def loss(scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return task_loss(scores, y).mean() if truth >= 1 else cross_entropy(scores, y, truth)

    forward_tree = getattr(model, "forward_tree", None)
    if forward_tree is None:

        def of_nodes(batch: torch.Tensor) -> torch.Tensor:
            scores = fitting(scores_of(model, graph), len(graph.x), "node")
            return loss(scores[batch], graph.y[batch])

        return of_nodes
    prepared = getattr(model, "prepared", None)
    x = graph.x if prepared is None else prepared(graph.x)
    draw = _fresh_trees(client, graph, settings)
    noise = {"generator": client.generator("dropout")} if settings.dropout else {}

    def sampled(batch: torch.Tensor) -> torch.Tensor:
        scores = forward_tree(spare(model, x), draw(batch), **noise)
        return loss(scores, graph.y[batch])

    return sampled


def _of_links(
    client: ClientContext, graph: Data, model: Any, settings: TrainingSettings
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Rows of a graph of pairs -> their scores, in training.

    A network of sampled trees does not see, from one end of a link, that its other end is a neighbour: that
    would be the answer. Another reads the whole graph, as PyG's examples do.
    """
    forward_tree = getattr(model.encoder, "forward_tree", None)
    if forward_tree is None:
        return lambda batch: scores_of(model, chosen(graph, batch))
    ends, prepared = graph[ENDS], getattr(model.encoder, "prepared", None)
    x = ends if prepared is None else prepared(ends)
    table, (first, *later) = NeighbourTable.of(graph[MESSAGES], len(ends)), settings.fanout
    generator = client.generator("neighbours")

    def sampled(batch: torch.Tensor) -> torch.Tensor:
        pairs = graph[PAIRS][:, batch]
        roots, others = pairs.flatten(), pairs.flip(0).flatten()
        near = table.sample(roots, first, generator)
        near = torch.where(near == others[:, None], MISSING, near)
        nodes = forward_tree(spare(model.encoder, x), [roots, *table.sample_tree(near, later, generator)])
        scores: torch.Tensor = model.scored(*nodes.chunk(2), graph[OWN][batch])
        return scores

    return sampled


def _weighed(client: ClientContext, settings: TrainingSettings) -> Loss:
    """The loss of an item, with the weights of classes that the settings ask for."""
    own, given = client.graph, settings.class_weight
    weights = class_weights(given, own.y[own.train_mask], client.schema.classes) if given else None
    return loss_of(client.schema, weights)


def _fresh_trees(client: ClientContext, graph: Data, settings: TrainingSettings) -> Trees:
    if settings.trains_alone:
        return lambda batch: own_tree(batch, len(settings.fanout))
    table = NeighbourTable.of(graph.edge_index, graph.num_nodes)
    generator = client.generator("neighbours")
    return lambda batch: table.sample_tree(batch, settings.fanout, generator)


def _batches(client: ClientContext, graph: Data, settings: TrainingSettings) -> Iterator[torch.Tensor]:
    nodes = graph.train_mask.nonzero().flatten()
    drawn = max(1, min(len(nodes), int(settings.share * graph.num_nodes)))
    size = drawn if settings.batch == "full" else settings.batch
    generator = client.generator("batches")
    for _ in range(settings.epochs):
        yield from nodes[torch.randperm(len(nodes), generator=generator)[:drawn]].split(size)
