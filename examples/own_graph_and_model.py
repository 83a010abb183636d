"""Your own graph and your own model: a PyG `Data` and a `torch.nn.Module` with `forward(x, edge_index)`.

The graph is checked before work starts (NaN, labels, edges), handed out to owners and trained on under masks.
A model without `forward_tree` is trained on each owner's whole graph instead of on sampled neighbourhoods.
"""

from __future__ import annotations

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import secure_fedgraph as sfg


class TwoLayerGcn(nn.Module):
    """A plain GCN; the schema says how many features and classes there are."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = GCNConv(features, 16), GCNConv(16, classes)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Class scores of every node."""
        return self.second(self.first(x, edge_index).relu(), edge_index)


def two_clubs(size: int = 80, seed: int = 0) -> Data:
    """Two groups of nodes that link inside their own group and whose features say a little about it."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(size) % 2
    x = torch.randn(size, 8, generator=generator) + 0.4 * y.unsqueeze(1)
    linked = (torch.rand(size, size, generator=generator) < 0.04) & (y.unsqueeze(0) == y.unsqueeze(1))
    edge_index = (linked | linked.T).fill_diagonal_(False).nonzero().T
    return Data(x=x, y=y, edge_index=edge_index)


if __name__ == "__main__":
    federation = sfg.federate(two_clubs(), clients=3, partition="random", seed=0)
    algorithm = sfg.FedAvg(
        model=lambda schema: TwoLayerGcn(schema.features, schema.classes), learning_rate=0.05, batch="full"
    )
    run = sfg.train(algorithm, federation, sfg.policies.masked(), rounds=10, seed=0)
    print("accuracy on all owners' test nodes:", round(run.accuracy["global"], 3))
    print("parameters released:", {name: tuple(value.shape) for name, value in run.state.items()})
