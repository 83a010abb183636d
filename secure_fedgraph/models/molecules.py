"""Graph neural networks with a pooled head, for whole graphs: molecules above all."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import softmax

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.models.parameters import blank_linear

Convolution = Literal["gcn", "gat", "sage"]
HEADS = 2
SLOPE = 0.2


class Embedded(nn.Module):
    """The sum of one vector for each column's value: what a linear layer makes of one-hot columns.

    Args:
        sizes: how many values each column can take.
        width: of the vectors.

    >>> Embedded((3, 2), 4)(torch.tensor([[2.0, 1.0]])).shape
    torch.Size([1, 4])
    """

    def __init__(self, sizes: Sequence[int], width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(sum(sizes), width))
        self.register_buffer("starts", torch.tensor([0, *sizes[:-1]]).cumsum(0), persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        """``[n, columns]`` of whole numbers, as floats -> ``[n, width]``."""
        starts = self.get_buffer("starts")
        return F.embedding_bag(values.long() + starts, self.table, mode="sum")


class GraphConvolution(nn.Module):
    """One layer: every node sums what its links bring, weighed as the kind says, and itself.

    A link brings the transformed sender and, where links have kinds, a vector of its kind.

    ``gcn``: symmetric normalisation with loops; ``sage``: mean of the neighbours, and a matrix of its own for
    the node itself; ``gat``: attention over neighbours and itself, two heads.

    Args:
        kind: ``gcn``, ``sage`` or ``gat``.
        inputs: width of the input.
        outputs: width of the output.
        bonds: vocabularies of the links' columns; empty where they have none.

    References:
        Kipf & Welling 2017; Hamilton et al. 2017; Veličković et al. 2018; sizes of FedGraphNN, 2021.
    """

    def __init__(self, kind: Convolution, inputs: int, outputs: int, bonds: Sequence[int] = ()) -> None:
        super().__init__()
        if kind == "gat" and outputs % HEADS:
            raise BadInput(f"hidden width {outputs}: gat has {HEADS} heads; give a multiple of {HEADS}")
        self.kind = kind
        self.sent: nn.Module = blank_linear(inputs, outputs)
        self.bond = Embedded(bonds, outputs) if bonds else None
        if kind == "sage":
            self.own: nn.Module = blank_linear(inputs, outputs, bias=False)
        if kind == "gat":
            self.attend = nn.Parameter(torch.zeros(2 * HEADS, outputs // HEADS))

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None) -> Tensor:
        """``[N, inputs]`` -> ``[N, outputs]``."""
        source, target = edge_index
        sent: Tensor = self.sent(x)
        messages = sent[source]
        if self.bond is not None and edge_attr is not None:
            messages = messages + self.bond(edge_attr)
        if self.kind == "gat":
            return self._attended(sent, messages, source, target)
        degree = torch.bincount(target, minlength=len(x)).to(x.dtype)
        if self.kind == "sage":
            total = torch.zeros_like(sent).index_add(0, target, messages)
            output: Tensor = self.own(x) + total / degree.clamp(min=1).unsqueeze(1)
            return output
        root = (degree + 1).rsqrt()
        weighed = messages * (root[source] * root[target]).unsqueeze(1)
        return (sent * root.square().unsqueeze(1)).index_add(0, target, weighed)

    def _attended(self, sent: Tensor, messages: Tensor, source: Tensor, target: Tensor) -> Tensor:
        nodes = torch.arange(len(sent), device=sent.device)
        target = torch.cat([target, nodes])
        brought = torch.cat([messages, sent]).unflatten(1, (HEADS, -1))
        asked, answered = self.attend.split(HEADS)
        logits = (brought * answered).sum(-1) + (sent.unflatten(1, (HEADS, -1)) * asked).sum(-1)[target]
        share = softmax(F.leaky_relu(logits, SLOPE), target, num_nodes=len(sent))
        weighed = (brought * share.unsqueeze(-1)).flatten(1)
        return F.elu(torch.zeros_like(sent).index_add(0, target, weighed))


class GraphNet(nn.Module):
    """Class scores of whole graphs: convolutions, then a dense head for each node, then the mean over nodes.

    The head reads a node's input beside its embedding, as in FedGraphNN. Every graph has a node, so every
    mean is defined.

    Args:
        features: columns of ``x``.
        classes: number of classes.
        hidden: widths of the convolutions.
        convolution: ``gcn``, ``gat`` or ``sage``.
        atoms: vocabularies of the columns of ``x``; empty where they are numbers.
        bonds: vocabularies of the links' columns; empty where they have none.
        dropout: of the convolutions' outputs, while training.
        readout: width of the head's two inner layers.

    References:
        He et al., FedGraphNN: A Federated Learning System and Benchmark for Graph Neural Networks, 2021.
        Departures: columns that are categories are embedded, a ReLU stands between GCN layers, and every
        node's vector is standardised (FedGraphNN standardises the input), or plain SGD would be very slow.

    >>> links = torch.tensor([[0, 1], [1, 0]])
    >>> two = Data(x=torch.ones(3, 5), edge_index=links, graph=torch.tensor([0, 0, 1]))
    >>> GraphNet(5, 2, (4, 4))(two).shape
    torch.Size([2, 2])
    """

    def __init__(
        self,
        features: int,
        classes: int,
        hidden: Sequence[int] = (32, 32),
        convolution: Convolution = "gcn",
        atoms: Sequence[int] = (),
        bonds: Sequence[int] = (),
        dropout: float = 0.0,
        readout: int = 64,
    ) -> None:
        super().__init__()
        self.enter: nn.Module = Embedded(atoms, hidden[0]) if atoms else blank_linear(features, hidden[0])
        widths = [hidden[0], *hidden]
        self.layers = nn.ModuleList(
            GraphConvolution(convolution, width_in, width_out, bonds)
            for width_in, width_out in itertools.pairwise(widths)
        )
        self.dropout = dropout
        self.inner = nn.ModuleList(
            blank_linear(inputs, readout) for inputs in (hidden[0] + hidden[-1], readout)
        )
        self.head: nn.Module = blank_linear(readout, classes)

    def forward(self, packed: Data, generator: torch.Generator | None = None) -> Tensor:
        """Class scores ``[graphs, classes]``.

        Args:
            packed: a union as ``graph.packing.pack`` makes it; its classes are not looked at.
            generator: draws the dropout; without one nothing is dropped.
        """
        edge_attr = packed.get("edge_attr")
        entered = standardised(self.enter(packed.x))
        x = entered
        for depth, layer in enumerate(self.layers):
            x = dropped(standardised(layer(x, packed.edge_index, edge_attr)), self.dropout, generator)
            if depth < len(self.layers) - 1:
                x = F.relu(x)
        x = torch.cat([entered, x], dim=1)
        for inner in self.inner:
            x = F.relu(inner(x))
        scores: Tensor = self.head(x)
        graphs = int(packed.graph.max()) + 1
        nodes = torch.bincount(packed.graph, minlength=graphs).unsqueeze(1)
        return scores.new_zeros(graphs, scores.shape[1]).index_add(0, packed.graph, scores) / nodes


def standardised(x: Tensor) -> Tensor:
    """Every row to mean 0 and variance 1: no parameter, and nothing that depends on other nodes."""
    return F.layer_norm(x, x.shape[-1:])


def dropped(x: Tensor, share: float, generator: torch.Generator | None) -> Tensor:
    """Dropout drawn from the given generator; none without a generator."""
    if generator is None or not share:
        return x
    kept = torch.rand(x.shape, generator=generator, device=generator.device) >= share
    return x * kept.to(x.device) / (1 - share)
