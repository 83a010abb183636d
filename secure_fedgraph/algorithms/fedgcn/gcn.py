"""A graph convolutional network of two layers, which can start from sums that were made elsewhere."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from secure_fedgraph.graph.sample.links import undirected_links
from secure_fedgraph.models.molecules import dropped
from secure_fedgraph.models.parameters import blank_linear


def both_ways(edge_index: Tensor) -> Tensor:
    """Every link in both directions, once each, without loops.

    >>> both_ways(torch.tensor([[1, 0, 1], [0, 1, 1]])).tolist()
    [[0, 1], [1, 0]]
    """
    links = undirected_links(edge_index)
    return torch.cat([links, links.flip(0)], dim=1)


def symmetric(edge_index: Tensor, own: Tensor, others: Tensor) -> Tensor:
    """The rows of ``D^-1/2 (A + I) D^-1/2`` of some nodes, sparse ``[nodes, sources]``.

    Args:
        edge_index: ``[2, E]``: a source, and the node whose neighbour it is, without loops. Each node is
            its own neighbour too.
        own: ``[nodes]`` degrees of the nodes, which are also the first sources.
        others: degrees of all sources, ``[sources]``.
    """
    itself = torch.arange(len(own))
    columns, rows = torch.cat([edge_index, torch.stack([itself, itself])], dim=1)
    values = (own[rows] * others[columns]).rsqrt()
    size = (len(own), len(others))
    return torch.sparse_coo_tensor(
        torch.stack([rows, columns]), values, size, check_invariants=True
    ).coalesce()


class Gcn(nn.Module):
    """Two graph convolutions: ``A relu(A X W_1 + b_1) W_2 + b_2`` with ``A = D^-1/2 (A + I) D^-1/2``.

    Dropout stands between them, in training, and only where a generator draws it.

    Args:
        features: width of ``x``.
        classes: width of the scores.
        hidden: width between the layers.
        dropout: of the hidden values.

    References:
        Kipf, Welling, Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017, equation
        9.
    """

    def __init__(self, features: int, classes: int, hidden: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = blank_linear(features, hidden)
        self.second = blank_linear(hidden, classes)
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Class scores ``[nodes, classes]``."""
        links = both_ways(edge_index)
        degree = torch.bincount(links[1], minlength=len(x)) + 1.0
        adjacency = symmetric(links, degree, degree)
        return self.from_sums(torch.sparse.mm(adjacency, x), adjacency)

    def from_sums(self, sums: Tensor, adjacency: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Class scores from the first layer's sums.

        Args:
            sums: rows of ``A X``, ``[sources, features]``.
            adjacency: rows of ``A``, ``[nodes, sources]``.
            generator: draws the dropout.
        """
        hidden = F.relu(self.first(sums))
        hidden = dropped(hidden, self.dropout if self.training else 0.0, generator)
        scores: Tensor = self.second(torch.sparse.mm(adjacency, hidden))
        return scores


class OnSums(nn.Module):
    """A GCN on one owner's nodes, whose first sums and links are given: the form that trains.

    Its parameters are the network's, under the same names.

    Args:
        network: that is trained.
        sums, adjacency, generator: as :meth:`Gcn.from_sums`.
    """

    def __init__(
        self, network: Gcn, sums: Tensor, adjacency: Tensor, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.network = network
        self._given = sums, adjacency, generator

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Class scores of the owner's nodes; the arguments are not read."""
        return self.network.from_sums(*self._given)
