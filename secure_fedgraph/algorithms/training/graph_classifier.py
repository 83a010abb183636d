"""What is learned from owners' data, as one small interface: classes of nodes and of graphs, and ratings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.sample.packing import select_graphs
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.finite import named_classes
from secure_fedgraph.models.gin import Gin
from secure_fedgraph.models.gnn import GraphSage
from secure_fedgraph.models.molecules import Convolution, GraphNet
from secure_fedgraph.models.parameters import Parameters, glorot, parameters_of
from secure_fedgraph.models.ratings import RatingNet


@dataclass(frozen=True)
class Part:
    """Some of an owner's items (nodes, graphs, ratings), ready for a model.

    Args:
        graph: what the model reads.
        chosen: which of it is asked for; None for all.
        answers: the items' classes or ratings.
    """

    graph: Data
    chosen: Tensor | None
    answers: Tensor


class Task:
    """What an algorithm has to know of a kind of data: nothing else in it does. By default of classes."""

    def model(self, schema: Schema) -> nn.Module:
        """A fresh model."""
        raise NotImplementedError

    def start(self, schema: Schema, seed: int) -> Parameters:
        """First parameters of what is shared: Glorot, as the papers."""
        model = self.model(schema)
        glorot(model, seed)
        return parameters_of(model)

    def part(self, graph: Data, chosen: Tensor | None) -> Part:
        """Some items of an owner; with None all of them."""
        return Part(graph, chosen, _answers(graph, chosen))

    def outputs(self, model: nn.Module, part: Part, noise: torch.Generator | None = None) -> Tensor:
        """What the model says about them: scores ``[n, C]`` or predictions ``[n]``."""
        raise NotImplementedError

    def loss(self, outputs: Tensor, part: Part) -> Tensor:
        """The mean over the items: cross entropy."""
        return F.cross_entropy(outputs, part.answers)

    def marked(self, outputs: Tensor, graph: Data) -> dict[str, Tensor]:
        """``[part, whole]`` by name, ``test`` and ``validation`` among them, of all of an owner's items.

        Right answers and their number; ``loss`` on the validation items.
        """
        scores = {}
        for name, mask in (("test", graph.test_mask), ("validation", graph.val_mask)):
            right = (named_classes(outputs) == graph.y)[mask]
            scores[name] = torch.stack([right.sum(), mask.sum()]).float()
        held_out = graph.val_mask
        loss = F.cross_entropy(outputs[held_out], graph.y[held_out], reduction="sum")
        scores["loss"] = torch.stack([loss, held_out.sum()]).float()
        return scores


@dataclass(frozen=True)
class NodeTask(Task):
    """Classes of nodes, from whole neighbourhoods.

    Args:
        hidden: widths of the layers, each even.
    """

    hidden: Sequence[int]

    def model(self, schema: Schema) -> nn.Module:
        """A GraphSAGE."""
        return GraphSage(schema.features, schema.classes, self.hidden)

    def outputs(self, model: nn.Module, part: Part, noise: torch.Generator | None = None) -> Tensor:
        """Class scores of the nodes."""
        scores: Tensor = model(part.graph.x, part.graph.edge_index)
        return scores if part.chosen is None else scores[part.chosen]


@dataclass(frozen=True)
class GraphTask(Task):
    """Classes of whole graphs.

    Args:
        hidden: widths of the convolutions.
        convolution: ``gcn``, ``gat`` or ``sage``; or ``gin``, whose widths are equal.
        dropout: of the convolutions' outputs.
        readout: width of the head; a GIN's is that of its convolutions.
    """

    hidden: Sequence[int]
    convolution: Convolution | Literal["gin"] = "gcn"
    dropout: float = 0.0
    readout: int = 64

    def model(self, schema: Schema) -> nn.Module:
        """A network with a pooled head."""
        if self.convolution == "gin":
            return Gin(
                schema.features, schema.classes, self.hidden[0], len(self.hidden), self.dropout, schema.atoms
            )
        return GraphNet(
            schema.features,
            schema.classes,
            self.hidden,
            self.convolution,
            schema.atoms,
            schema.bonds,
            self.dropout,
            self.readout,
        )

    def part(self, graph: Data, chosen: Tensor | None) -> Part:
        """Some graphs."""
        return Part(graph if chosen is None else select_graphs(graph, chosen), None, _answers(graph, chosen))

    def outputs(self, model: nn.Module, part: Part, noise: torch.Generator | None = None) -> Tensor:
        """Class scores of the graphs."""
        model.train(noise is not None)  # a GIN asks for the generator of its dropout in training
        scores: Tensor = model(part.graph, noise)
        return scores


CONSTANT = 4.0


@dataclass(frozen=True)
class RatingTask(Task):
    """Ratings of products by users.

    Args:
        hidden: widths of the convolutions.
        convolution: ``gcn``, ``gat`` or ``sage``.
        use_habits: whether users' and products' own means are looked at.
    """

    hidden: Sequence[int]
    convolution: Convolution = "gcn"
    use_habits: bool = True

    def model(self, schema: Schema) -> nn.Module:
        """A network for pairs of users and products."""
        return RatingNet(self.hidden, self.convolution, self.use_habits)

    def part(self, graph: Data, chosen: Tensor | None) -> Part:
        """Some ratings."""
        chosen = torch.arange(len(graph.rating)) if chosen is None else chosen
        return Part(graph, chosen, graph.rating[chosen])

    def outputs(self, model: nn.Module, part: Part, noise: torch.Generator | None = None) -> Tensor:
        """Predicted ratings."""
        predicted: Tensor = model(part.graph, part.chosen)
        return predicted

    def loss(self, outputs: Tensor, part: Part) -> Tensor:
        """The mean absolute error."""
        return F.l1_loss(outputs, part.answers)

    def marked(self, outputs: Tensor, graph: Data) -> dict[str, Tensor]:
        """Summed absolute errors and their number, and those of predictors that learn nothing.

        ``mae_constant_4`` says 4 to everything; ``mae_client_mean`` and ``mae_client_median`` what the
        owner's training ratings have.
        """
        training = graph.rating[graph.train_mask]
        said = {
            "test": outputs.clamp(*graph.scale.tolist()),
            "mae_constant_4": torch.tensor(CONSTANT),
            "mae_client_mean": training.mean(),
            "mae_client_median": training.median(),
        }
        errors = {name: _errors(guess, graph.rating, graph.test_mask) for name, guess in said.items()}
        return errors | {"validation": _errors(said["test"], graph.rating, graph.val_mask)}


def _errors(guess: Tensor, rating: Tensor, mask: Tensor) -> Tensor:
    return torch.stack([(guess - rating).abs()[mask].sum(), mask.sum().float()])


def graph_network(schema: Schema, settings: Any) -> nn.Module:
    """The network of whole graphs that ``settings.network`` names: for whoever trains any classifier.

    Args:
        schema: of a set of graphs.
        settings: with ``network`` (``gin``, ``gcn``, ``gat`` or ``sage``), ``hidden`` and ``dropout``.

    Raises:
        BadInput: for a network of nodes.
    """
    if settings.network == "gin":
        return Gin(
            schema.features, schema.classes, settings.hidden[0], len(settings.hidden), settings.dropout
        )
    if settings.network not in get_args(Convolution):
        raise BadInput(
            f"network = {settings.network!r} classifies nodes, and these data are whole graphs: use gin"
        )
    return GraphTask(settings.hidden, settings.network, settings.dropout).model(schema)


def training_items(graph: Data) -> Tensor:
    """The places of an owner's training items."""
    items: Tensor = graph.train_mask.nonzero().flatten()
    if not len(items):
        raise BadInput("a client has nothing to train on: use fewer clients or another seed")
    return items


def batches(
    items: Tensor, steps: int, size: int | Literal["full"], generator: torch.Generator
) -> list[Tensor]:
    """``steps`` batches, walking through the items again and again in fresh orders.

    What is left over at the end of a walk is passed over, so no batch holds an item twice.

    >>> [len(b) for b in batches(torch.arange(5), 3, 2, torch.Generator().manual_seed(0))]
    [2, 2, 2]
    """
    if size == "full" or size >= len(items):
        return [items] * steps
    walk = len(items) // size
    taken: list[Tensor] = []
    while len(taken) < steps:
        order = items[torch.randperm(len(items), generator=generator)]
        taken += order[: walk * size].split(size)
    return taken[:steps]


def _answers(graph: Data, chosen: Tensor | None) -> Tensor:
    y: Any = graph.get("y")  # a referee's question has none
    if y is None:
        return torch.empty(0, dtype=torch.long)
    answers: Tensor = y if chosen is None else y[chosen]
    return answers
