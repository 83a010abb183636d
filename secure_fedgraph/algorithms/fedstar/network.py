"""FedStar's network: a channel of structure, and a GIN that reads it at every layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from secure_fedgraph.algorithms.fedstar.structure import WIDTH, known_structure_of
from secure_fedgraph.graph.sparse_matrix import SparseMatrix
from secure_fedgraph.models.gin import Gin, GinLayer

SHARED = "structure."
"""What the names of the shared parameters begin with."""
KNOWN = "structure"
"""The entry of a union of graphs with its nodes' structure, where that is known already."""


class _Structure(nn.Module):
    """The shared part: a linear layer, and a graph convolution for every layer of the GIN."""

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.reduce: nn.Module = nn.utils.skip_init(nn.Linear, WIDTH, hidden)
        self.convolutions = nn.ModuleList(GCNConv(hidden, hidden) for _ in range(layers))


class StructuredGin(Gin):
    """A GIN that reads structure beside features.

    ``s = linear(structure)``, ``x = linear(features)``; ``layers`` times ``x = GIN([x, s])`` with ReLU and
    dropout, then ``s = tanh(GCN(s))``; a linear layer of ``[x, s]``, the sum over nodes, and a GIN's head.

    Args:
        features, classes, hidden, layers, dropout, atoms: as of a GIN.

    References:
        Tan, Liu, Long, Zhou, Zhou, Jiang, Zhang, FedStar, AAAI 2023.
    """

    def __init__(
        self,
        features: int,
        classes: int,
        hidden: int = 64,
        layers: int = 3,
        dropout: float = 0.5,
        atoms: Sequence[int] = (),
    ) -> None:
        super().__init__(features, classes, hidden, layers, dropout, atoms)
        self.convolutions = nn.ModuleList(GinLayer(hidden, 2 * hidden) for _ in range(layers))
        self.structure = _Structure(hidden, layers)
        self.together: nn.Module = nn.utils.skip_init(nn.Linear, 2 * hidden, hidden)
        for p in self.parameters():
            nn.init.zeros_(p)  # never uninitialised memory; `initialise` draws the real start

    def initialise(self, seed: int) -> None:
        """As a GIN, and the convolutions of structure alike."""
        super().initialise(seed)
        generator = torch.Generator().manual_seed(seed + 1)
        bound = 1 / math.sqrt(self.hidden)
        with torch.no_grad():
            for p in self.structure.convolutions.parameters():
                p.uniform_(-bound, bound, generator=generator)

    def embed(self, packed: Data, generator: torch.Generator | None = None) -> Tensor:
        """``[graphs, hidden]``: the sums over nodes.

        Args:
            packed: as :func:`~secure_fedgraph.graph.sample.packing.pack` gives it, with :data:`KNOWN` where
                it is known already.
            generator: of the dropout; needed in training, unless dropout is 0.
        """
        known = packed.get(KNOWN)
        if known is None:
            known = known_structure_of(packed.edge_index, len(packed.x))
        s = self.structure.reduce(known)
        x = self.reduce(packed.x)
        links = SparseMatrix.of_links(packed.edge_index, len(x))
        for own, shared in zip(self.convolutions, self.structure.convolutions, strict=True):
            x = self._dropped(F.relu(own(torch.cat([x, s], dim=1), links)), generator)
            s = torch.tanh(shared(s, packed.edge_index))
        x = self.together(torch.cat([x, s], dim=1))
        graphs = int(packed.graph.max()) + 1 if packed.graph.numel() else 0
        pooled: Tensor = x.new_zeros(graphs, self.hidden).index_add(0, packed.graph, x)
        return pooled
