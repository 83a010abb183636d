"""Ratings as a task: predict what a user gives a product, judged by the mean absolute error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from secure_fedgraph.algorithms.training.graph_classifier import Part
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.molecules import Convolution
from secure_fedgraph.models.parameters import Parameters, glorot, parameters_of
from secure_fedgraph.models.ratings import OWN, Features, RatingNet

CONSTANT = 4.0


@dataclass(frozen=True)
class RatingTask:
    """Ratings of products by users.

    Args:
        hidden: widths of the convolutions.
        convolution: ``gcn``, ``gat`` or ``sage``.
        features: of a node, see :class:`~secure_fedgraph.models.ratings.RatingNet`.
        use_habits: whether users' and products' own means are looked at.
        loss_of: ``l1``, what the metric asks for, or ``mse``, FedGraphNN's.
    """

    hidden: Sequence[int]
    convolution: Convolution = "gcn"
    features: Features = "degree"
    use_habits: bool = True
    loss_of: Literal["l1", "mse"] = "l1"

    def model(self, schema: Schema, graph: Data | None = None) -> nn.Module:
        """A network for this owner's users and products; without an owner, what is shared."""
        nodes = int(graph.num_nodes or 0) if graph is not None else 0
        return RatingNet(self.hidden, self.convolution, self.features, self.use_habits, nodes)

    def start(self, schema: Schema, seed: int) -> Parameters:
        """Glorot."""
        model = self.model(schema)
        glorot(model, seed)
        return parameters_of(model)

    def own(self, model: nn.Module) -> tuple[str, ...]:
        """The table of the owner's users and products."""
        return tuple(name for name, _ in model.named_parameters() if name == OWN)

    def part(self, graph: Data, chosen: Tensor | None) -> Part:
        """Some ratings."""
        chosen = torch.arange(len(graph.rating)) if chosen is None else chosen
        return Part(graph, chosen, graph.rating[chosen])

    def outputs(self, model: nn.Module, part: Part, noise: torch.Generator | None = None) -> Tensor:
        """Predicted ratings."""
        predicted: Tensor = model(part.graph, part.chosen)
        return predicted

    def loss(self, outputs: Tensor, part: Part) -> Tensor:
        """The mean error, absolute or squared."""
        loss = F.l1_loss if self.loss_of == "l1" else F.mse_loss
        return loss(outputs, part.answers)

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
