"""Local training: what every averaging algorithm does inside a client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from torch import nn
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Settings
from secure_fedgraph.graph.sample.packing import some
from secure_fedgraph.graph.sample.trees import NeighbourTable
from secure_fedgraph.models.finite import finite_moments, note_divergence, take_step
from secure_fedgraph.models.given import scores_of

LARGEST_GRADIENT = 100.0
"""Above what honest runs showed: up to 5.7 on Cora and PubMed, and some tens in networks of width 4."""
Penalty = Callable[[nn.Module], torch.Tensor]
Trees = Callable[[torch.Tensor], Sequence[torch.Tensor]]
"""Training nodes -> their sampled trees, level by level."""


class TrainingSettings(Settings):
    """How a client trains.

    Args:
        learning_rate: of the client's optimiser.
        optimizer: ``adam`` (moments stay with the client between rounds) or ``sgd``.
        weight_decay: L2 penalty of the optimiser.
        batch: nodes a step, or ``full``.
        epochs: passes over the training nodes a round.
        fanout: neighbours sampled a layer, with replacement; one number a layer.
        hidden: widths of the GraphSAGE layers, each even.
        head: how the last layer starts: ``glorot`` as the papers', or ``zeros`` (uniform predictions).
        network: of nodes ``sage``, the FedSage paper's, or ``ego``, the FedEgo paper's (all its widths are
            equal); of whole graphs ``gin`` (equal widths too), ``gcn``, ``gat`` or ``sage``.
        share: how many training nodes an epoch draws afresh, as a share of all the client's nodes; never
            more than there are, and 1 is all of them. The FedEgo paper's clients draw 0.2.
        dropout: of the ego network's reduced features, or of a network of whole graphs.
        largest_gradient: what the norm of a step's gradient is cut to, over all parameters, and each value
            first; what is not finite counts as 0. Steps of honest runs stay below, and are not changed.
        places: under noisy steps on nodes, how many nodes may have one node as a sampled neighbour; 0 is as
            many as ``fanout``.
        crowd: under noisy steps on nodes, how many neighbours of one node may have more than ``places`` links
            (its degree is always enough). Public; a client whose graph has more is refused, and the noise
            grows with it.
    """

    learning_rate: float = Field(0.001, gt=0, allow_inf_nan=False)
    optimizer: Literal["adam", "sgd"] = "adam"
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    batch: int | Literal["full"] = 64
    epochs: int = Field(1, ge=1)
    fanout: tuple[int, ...] = (5, 5)
    hidden: tuple[int, ...] = Field((64, 32), validate_default=True)
    head: Literal["glorot", "zeros"] = "glorot"
    network: Literal["sage", "ego", "gin", "gcn", "gat"] = "sage"
    share: float = Field(1.0, gt=0, le=1)
    dropout: float = Field(0.0, ge=0, lt=1, validate_default=True)
    largest_gradient: float = Field(LARGEST_GRADIENT, gt=0, allow_inf_nan=False)
    places: int = Field(0, ge=0)
    crowd: int = Field(100, ge=0)

    @field_validator("batch", mode="before")
    @classmethod
    def _check_batch(cls, value: Any) -> Any:
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if not whole and value != "full":
            raise PydanticCustomError("batch", "give a number of nodes from 1, or full")
        return value

    @field_validator("fanout")
    @classmethod
    def _check_fanout(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or min(value) < 1:
            raise PydanticCustomError("fanout", "give one number of neighbours a layer, each 1 or more")
        return value

    @field_validator("hidden")
    @classmethod
    def _check_hidden(cls, value: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        if not value or any(width < 2 or width % 2 for width in value):
            raise PydanticCustomError("hidden", "give one width a layer, each even: a layer has two halves")
        layers = len(info.data.get("fanout", value))
        if len(value) != layers:
            raise PydanticCustomError(
                "hidden", "give as many widths as fanout has numbers, which is {layers}", {"layers": layers}
            )
        return value

    @field_validator("network")
    @classmethod
    def _check_network(cls, value: str, info: ValidationInfo) -> str:
        if value in ("ego", "gin") and len(set(info.data.get("hidden", ()))) > 1:
            raise PydanticCustomError(
                "network",
                "the {network} network's widths are equal: give hidden such as 64, 64",
                {"network": value},
            )
        return value

    @field_validator("dropout")
    @classmethod
    def _check_dropout(cls, value: float, info: ValidationInfo) -> float:
        if value and info.data.get("network") == "sage":
            raise PydanticCustomError("dropout", "the sage network has none: use network ego, or 0")
        return value


def fit(
    me: Any,
    graph: Data,
    model: nn.Module,
    settings: TrainingSettings,
    penalty: Penalty | None = None,
    trees: Trees | None = None,
) -> None:
    """Trains a model in place on the client's own training nodes, for one round.

    The optimiser's moments live in the client's memory and stay there.

    Args:
        me: the client.
        graph: what it trains on: its own graph, or what it made of it.
        model: with ``forward_tree`` it is trained on sampled trees, else on the client's whole graph.
        settings: how.
        penalty: an extra loss term of the model, e.g. FedProx's.
        trees: gives the trees of a batch; by default they are sampled afresh for every batch.
    """
    if me.training is not None:
        from secure_fedgraph.algorithms.training.private_training import fit_privately

        return fit_privately(me, graph, model, settings, penalty)
    optimizer = optimizer_of(model, settings)
    restore(optimizer, me.memory.get("optimizer", {}))
    loss_of = _loss(me, graph, model, settings, trees)
    model.train()
    sound = True
    for batch in _batches(me, graph, settings):
        optimizer.zero_grad()
        loss = loss_of(batch)
        if penalty is not None:
            loss = loss + penalty(model)
        loss.backward()
        sound &= bound_gradients(model.parameters(), settings.largest_gradient)
        take_step(optimizer)
    note_divergence(me.name, sound)
    me.memory["optimizer"] = moments(optimizer)


def _loss(
    me: Any, graph: Data, model: nn.Module, settings: TrainingSettings, trees: Trees | None
) -> Callable[[torch.Tensor], torch.Tensor]:
    if graph.get("graph") is not None:  # a union of whole graphs, which are the items
        dropout = me.generator("dropout")
        return lambda batch: F.cross_entropy(scores_of(model, some(graph, batch), dropout), graph.y[batch])
    forward_tree = getattr(model, "forward_tree", None)
    if forward_tree is None:
        return lambda batch: F.cross_entropy(scores_of(model, graph)[batch], graph.y[batch])
    prepared = getattr(model, "prepared", None)
    x = graph.x if prepared is None else prepared(graph.x)
    draw = trees or _fresh_trees(me, graph, settings)
    noise = {"generator": me.generator("dropout")} if settings.dropout else {}

    def sampled(batch: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(forward_tree(x, draw(batch), **noise), graph.y[batch])

    return sampled


def _fresh_trees(me: Any, graph: Data, settings: TrainingSettings) -> Trees:
    table = NeighbourTable(graph.edge_index, graph.num_nodes)
    generator = me.generator("neighbours")
    return lambda batch: table.sample_tree(batch, settings.fanout, generator)


def _batches(me: Any, graph: Data, settings: TrainingSettings) -> Iterator[torch.Tensor]:
    nodes = graph.train_mask.nonzero().flatten()
    drawn = max(1, min(len(nodes), int(settings.share * graph.num_nodes)))
    size = drawn if settings.batch == "full" else settings.batch
    generator = me.generator("batches")
    for _ in range(settings.epochs):
        yield from nodes[torch.randperm(len(nodes), generator=generator)[:drawn]].split(size)


def optimizer_of(model: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    """A fresh optimiser of the model's parameters."""
    if settings.optimizer == "sgd":
        return torch.optim.SGD(
            model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
    return torch.optim.Adam(
        model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )


def bound_gradients(parameters: Iterable[nn.Parameter], largest: float) -> bool:
    """Makes gradients finite and their norm over all parameters at most ``largest``, in place, before a step.

    A server chooses the model that a client trains from. On one with huge weights the gradients are huge, and
    an optimiser that keeps their squares would hardly move for the rest of the run.

    Returns:
        Whether all of them were finite.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    sound = all(bool(torch.isfinite(gradient.sum())) for gradient in gradients)
    for gradient in gradients:  # each element first: squares of larger ones overflow
        gradient.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0).clamp_(-largest, largest)
    norm = torch.nn.utils.get_total_norm(gradients)
    if float(norm) > largest:
        for gradient in gradients:
            gradient.mul_(largest / norm)
    return sound


def moments(optimizer: torch.optim.Optimizer) -> dict[str, dict[str, torch.Tensor]]:
    """What an optimiser keeps for the next round, all of it finite."""
    state = optimizer.state_dict()["state"]
    return {str(i): finite_moments(slots) for i, slots in state.items()}


def restore(optimizer: torch.optim.Optimizer, moments: dict[str, dict[str, torch.Tensor]]) -> None:
    """Gives a fresh optimiser a copy of a state: its steps change what it holds, and a memory may go back."""
    if moments:
        state = {int(i): {k: v.clone() for k, v in slots.items()} for i, slots in moments.items()}
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
