"""Local training: what every averaging algorithm does inside a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from torch import nn
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Settings
from secure_fedgraph.graph.sampling import NeighbourTable

Penalty = Callable[[nn.Module], torch.Tensor]


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
    """

    learning_rate: float = Field(0.001, gt=0, allow_inf_nan=False)
    optimizer: Literal["adam", "sgd"] = "adam"
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    batch: int | Literal["full"] = 64
    epochs: int = Field(1, ge=1)
    fanout: tuple[int, ...] = (5, 5)
    hidden: tuple[int, ...] = Field((64, 32), validate_default=True)
    head: Literal["glorot", "zeros"] = "glorot"

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


def fit(
    me: Any,
    graph: Data,
    model: nn.Module,
    settings: TrainingSettings,
    penalty: Penalty | None = None,
) -> None:
    """Trains a model in place on the client's own training nodes, for one round.

    The optimiser's moments live in the client's memory and stay there.

    Args:
        me: the client.
        graph: what it trains on: its own graph, or what it made of it.
        model: with ``forward_tree`` it is trained on sampled trees, else on the client's whole graph.
        settings: how.
        penalty: an extra loss term of the model, e.g. FedProx's.
    """
    optimizer = _optimizer(model, settings)
    restore(optimizer, me.memory.get("optimizer", {}))
    loss_of = _loss(me, graph, model, settings)
    model.train()
    for batch in _batches(me, graph, settings):
        optimizer.zero_grad()
        loss = loss_of(batch)
        if penalty is not None:
            loss = loss + penalty(model)
        loss.backward()
        optimizer.step()
    me.memory["optimizer"] = moments(optimizer)


def _loss(
    me: Any, graph: Data, model: nn.Module, settings: TrainingSettings
) -> Callable[[torch.Tensor], torch.Tensor]:
    forward_tree = getattr(model, "forward_tree", None)
    if forward_tree is None:
        return lambda batch: F.cross_entropy(model(graph.x, graph.edge_index)[batch], graph.y[batch])
    table = NeighbourTable(graph.edge_index, graph.num_nodes)
    generator = me.generator("neighbours")

    def sampled(batch: torch.Tensor) -> torch.Tensor:
        tree = table.sample_tree(batch, settings.fanout, generator)
        return F.cross_entropy(forward_tree(graph.x, tree), graph.y[batch])

    return sampled


def _batches(me: Any, graph: Data, settings: TrainingSettings) -> Iterator[torch.Tensor]:
    nodes = graph.train_mask.nonzero().flatten()
    size = len(nodes) if settings.batch == "full" else settings.batch
    generator = me.generator("batches")
    for _ in range(settings.epochs):
        yield from nodes[torch.randperm(len(nodes), generator=generator)].split(size)


def _optimizer(model: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    if settings.optimizer == "sgd":
        return torch.optim.SGD(
            model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
    return torch.optim.Adam(
        model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )


def moments(optimizer: torch.optim.Optimizer) -> dict[str, dict[str, torch.Tensor]]:
    state = optimizer.state_dict()["state"]
    return {str(i): {k: v for k, v in slots.items() if v is not None} for i, slots in state.items()}


def restore(optimizer: torch.optim.Optimizer, moments: dict[str, dict[str, torch.Tensor]]) -> None:
    if moments:
        state = {int(i): dict(slots) for i, slots in moments.items()}
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
