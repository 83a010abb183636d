"""FedSage's own network, with a gradient for each node that is trained on alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fedsgd.heads import exact
from secure_fedgraph.algorithms.fedsgd.heads.perceptron import travelled
from secure_fedgraph.algorithms.fedsgd.settings import SageStepSettings
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models import ridge, user_models
from secure_fedgraph.models.gnn import SHORT, GraphSage
from secure_fedgraph.models.parameters import glorot, load, parameters_of
from secure_fedgraph.models.per_record import check_model, graph_gradients
from secure_fedgraph.models.targets import loss_of, slopes

LARGEST = 32.0
"""Weights beyond it count as that: those of honest steps stay far below."""
_READ, _VALUES, _MOST = 18, 24, 256.0
"""Bits of records, and of what layers give; and what these give at most."""
_SLOPES, _STEEPEST = 26, 64.0
"""The same of slopes on their way back."""


class GraphSageHead:
    """:class:`~secure_fedgraph.models.gnn.GraphSage`, trained on nodes that are their own only neighbour.

    Its neighbours' half then reads the node itself, so the network is a perceptron of the sum of both
    halves' weights, and a node's gradient is one outer product a layer. Where predictions are made the same
    weights score each node, and shares of classes travel over links; or the network reads neighbours.

    Guarantees:
        - a record is a node's features, of one length, and its class: no link is read in training;
        - a record's gradient does not depend on which other records there are: products are of whole numbers.

    Args:
        settings: of the algorithm.

    References:
        Yang, Wu, Yan, Graph Neural Networks are Inherently Good Generalizers, ICLR 2023.

    >>> head = GraphSageHead(SageStepSettings(hidden=(4, 2)))
    >>> head.gradients(head.init(Schema(3, 2), 0), Data(x=torch.ones(1, 3), y=torch.tensor([1])),
    ...     torch.tensor([0]), Schema(3, 2))["layers.0.neighbour.weight"].shape
    torch.Size([1, 2, 3])
    """

    def __init__(self, settings: SageStepSettings) -> None:
        self.settings = settings

    def init(self, schema: Schema, seed: int) -> State:
        """Seeded first weights, as the network starts without a budget; class scores begin at zero."""
        model = self.model(schema)
        glorot(model, seed)
        with torch.no_grad():
            for p in model.head.parameters():
                p.zero_()
        return parameters_of(model)

    def model(self, schema: Schema) -> GraphSage:
        """A fresh network."""
        return GraphSage(schema.features, schema.classes, self.settings.hidden)

    def gradients(self, weights: State, graph: Data, chosen: Tensor, schema: Schema) -> State:
        """In closed form, layer by layer from the last."""
        z, y = self.read(graph)[chosen], graph.y[chosen]
        depth = len(self.settings.hidden)
        read = [exact.on_grid(z, exact.power_above(self.settings.length), _READ)]
        before: list[Tensor] = []
        for layer in range(depth):
            matrix = self._matrix(weights, layer, _VALUES if layer else _READ, read[-1].shape[1])
            before.append(read[-1] @ matrix.T + weights[f"layers.{layer}.bias"].double())
            given = before[-1].relu() if layer < depth - 1 else before[-1]
            read.append(exact.on_grid(given, _MOST, _VALUES))
        length = _rows(read[-1] * read[-1]).sqrt()
        length = torch.where(length > SHORT, length, 1.0)
        direction = exact.on_grid(read[-1] / length, 1.0, _VALUES)
        head = exact.on_grid(weights["head.weight"], LARGEST, exact.bits_left(_VALUES, direction.shape[1]))
        scores = direction @ head.T + weights["head.bias"].double()
        back = exact.on_grid(slopes(scores, y, schema), 1.0, _SLOPES)
        found = {"head.weight": back[:, :, None] * direction[:, None], "head.bias": back}
        head = exact.on_grid(head, LARGEST, exact.bits_left(_SLOPES, back.shape[1]))
        back = exact.on_grid(back @ head, _STEEPEST, _SLOPES)
        back = (back - direction * _rows(back * direction)) / length
        for layer in reversed(range(depth)):
            back = exact.on_grid(back, _STEEPEST, _SLOPES)
            half = back.shape[1] // 2
            of_weights = (back[:, :, None].float() * read[layer][:, None].float()).split(half, dim=1)
            found |= {
                f"layers.{layer}.own.weight": of_weights[0],
                f"layers.{layer}.neighbour.weight": of_weights[1],
                f"layers.{layer}.bias": back,
            }
            if layer:
                back = back @ self._matrix(weights, layer, _SLOPES, back.shape[1]) * (before[layer - 1] > 0)
        return {name: found[name].float() for name in weights}

    def predict(self, weights: State, graph: Data, schema: Schema) -> Tensor:
        """Logarithms of shares that travelled over the graph's links; or scores of nodes among neighbours."""
        spread = self.settings.inference == "spread"
        scores = self.scores(weights, graph, schema, links=not spread)
        return travelled(scores, graph.edge_index, self.settings, schema) if spread else scores

    def scores(self, weights: State, graph: Data, schema: Schema, links: bool = False) -> Tensor:
        """Class scores, each node its own neighbour.

        Args:
            links: whether those that the graph's links name are neighbours too.
        """
        model = self.model(schema)
        load(model, weights)
        own = torch.arange(len(graph.x)).repeat(2, 1)
        near = torch.cat([graph.edge_index, own], dim=1) if links else own
        with torch.no_grad():
            scores: Tensor = model(self.read(graph), near)
        return scores

    def read(self, graph: Data) -> Tensor:
        """Records as the network reads them: of the public length, ``[n, features]``."""
        return ridge.records(graph.x) * self.settings.length

    def _matrix(self, weights: State, layer: int, bits: int, terms: int) -> Tensor:
        """A layer's weights on a node that is its own neighbour: ``[outputs, inputs]``, on a grid.

        Args:
            bits, terms: of what they are multiplied by, and how many products are added up.
        """
        both = [weights[f"layers.{layer}.{half}.weight"] for half in ("own", "neighbour")]
        return exact.on_grid(torch.cat(both), LARGEST, exact.bits_left(bits, terms))


def _rows(products: Tensor) -> Tensor:
    """Sums over each row, in whole numbers: ``[n, 1]``."""
    largest = exact.power_above(max(_MOST**2, _STEEPEST))
    return exact.on_grid(products, largest, exact.bits_left(0, products.shape[1])).sum(dim=1, keepdim=True)


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
