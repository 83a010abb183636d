"""A network of a user's own, with a gradient for each node that is trained on alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from secure_fedgraph.algorithm import State
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models import user_models
from secure_fedgraph.models.parameters import load, parameters_of
from secure_fedgraph.models.per_record import check_model, graph_gradients
from secure_fedgraph.models.targets import loss_of


class OwnModelHead:
    """Any ``forward(x, edge_index)``, trained on nodes that are their own only neighbour.

    Where predictions are made the same weights read a node among its neighbours. Buffers are not trained:
    every owner has them as the model is built.

    Guarantees:
        - a record is a node's features and class: no link is read in training;
        - each record goes alone through a copy of the model, so its gradient depends on no other record; one
          on which the model fails adds nothing.

    Args:
        make: the model, or what makes it, as :func:`~secure_fedgraph.models.user_models.build` takes it.

    References:
        Yang, Wu, Yan, Graph Neural Networks are Inherently Good Generalizers, ICLR 2023.
    """

    def __init__(self, make: user_models.Given) -> None:
        self._make = make

    def init(self, schema: Schema, seed: int) -> State:
        """The weights that the model's author gives it, where it draws them under the seed."""
        return _weights(user_models.build(self._make, schema, seed))

    def gradients(self, weights: State, graph: Data, chosen: Tensor, schema: Schema) -> State:
        """One a node, each by itself."""
        model, loss = self.model(weights, schema).train(), loss_of(schema)
        found = {name: value.new_zeros(len(chosen), *value.shape) for name, value in weights.items()}
        for place, node in enumerate(chosen.tolist()):
            made = graph_gradients(model, _alone(graph.x[node], graph.y[node]), loss)
            for name, rows in found.items():
                rows[place] = made[name][0]
        return found

    def predict(self, weights: State, graph: Data, schema: Schema) -> Tensor:
        """The model's scores, with the links that the reader has."""
        with torch.no_grad():
            return user_models.scores_of(self.model(weights, schema).eval(), graph).detach()

    def model(self, weights: State, schema: Schema) -> nn.Module:
        """The model with these weights."""
        model = user_models.build(self._make, schema, 0)
        load(model, {**parameters_of(model), **weights})
        return model

    def check(self, schema: Schema) -> None:
        """That every weight is trained, by a gradient of each record's own.

        Raises:
            BadInput: naming what does not go.
        """
        user_models.check_fits(self._make, schema)
        model = user_models.build(self._make, schema, 0)
        check_model(model, whole=True)
        if read := [key for key in user_models.reads(model) if key in schema.edge_fields]:
            raise BadInput(
                f"model {type(model).__name__} reads {' and '.join(read)}, and under a node's budget it is "
                "trained without links: let it read x and edge_index alone"
            )
        still = [name for name, value in model.named_parameters() if not value.requires_grad]
        if still:
            raise BadInput(
                f"model {type(model).__name__} does not train {still[0]!r}: make it a buffer, or let it be "
                "trained"
            )


def _weights(model: nn.Module) -> State:
    trained = {name for name, _ in model.named_parameters()}
    return {name: value for name, value in parameters_of(model).items() if name in trained}


def _alone(x: Tensor, y: Tensor) -> Data:
    """One node as a graph of its own, where it is its own neighbour."""
    here = torch.zeros(1, dtype=torch.long)
    return Data(x=x[None], y=y[None], edge_index=here.repeat(2, 1), graph=here)
