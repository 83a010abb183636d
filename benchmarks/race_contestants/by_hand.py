"""What somebody would write by hand: federated averaging of a GraphSAGE on Cora, nothing protected.

    python by_hand.py --data FOLDER --rounds 20 [--batch 64] [--steps plain|opacus]

The floor of the race. It imports torch, torch-geometric (to read Cora) and networkx (to divide it), and
nothing of ours. Model, sampling and settings are those of our ``fedavg``: five sampled neighbours a layer
(with all nodes a step, whole neighbourhoods), widths 64 and 32, Adam at 0.001. ``--steps`` has every owner
take as many steps as there are rounds: plain ones, or noisy ones on the same kind of records by Opacus.
"""

from __future__ import annotations

import argparse
import json
from itertools import pairwise

import networkx as nx
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.datasets import Planetoid

FANOUT, CLIENTS, RATE, CLIP = 5, 3, 0.2, 1.0


class Sage(nn.Module):
    """Two mean-aggregator layers and a dense one, on trees of 1 + 5 + 25 nodes."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.own = nn.ModuleList([nn.Linear(features, 32), nn.Linear(64, 16)])
        self.neighbours = nn.ModuleList([nn.Linear(features, 32), nn.Linear(64, 16)])
        self.head = nn.Linear(32, classes)

    def forward(self, rows: Tensor) -> Tensor:
        """Scores ``[b, classes]`` of trees ``[b, 31, features]``."""
        levels = list(rows.split([1, FANOUT, FANOUT * FANOUT], 1))
        for depth, (own, near) in enumerate(zip(self.own, self.neighbours, strict=True)):
            levels = [
                torch.cat([own(here), near(below).reshape(*here.shape[:2], FANOUT, -1).mean(2)], 2)
                for here, below in pairwise(levels)
            ]
            levels = [F.relu(level) for level in levels] if not depth else levels
        return self.head(F.normalize(levels[0][:, 0], dim=1))

    def whole(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Scores of all nodes, from whole neighbourhoods."""
        degree = torch.bincount(target, minlength=len(x)).clamp(min=1).unsqueeze(1)
        for depth, (own, near) in enumerate(zip(self.own, self.neighbours, strict=True)):
            sent = near(x)
            x = torch.cat([own(x), torch.zeros_like(sent).index_add_(0, target, sent[source]) / degree], 1)
            x = F.relu(x) if not depth else x
        return self.head(F.normalize(x, dim=1))


class Owner:
    """One part of the graph."""

    def __init__(self, x: Tensor, y: Tensor, edges: Tensor) -> None:
        self.x, self.y, (self.source, self.target) = x, y, edges
        order = self.target.argsort(stable=True)
        self.near, count = self.source[order], torch.bincount(self.target, minlength=len(x))
        self.first, self.count = count.cumsum(0) - count, count
        self.train = torch.randperm(len(x))[: int(0.6 * len(x))]

    def trees(self, nodes: Tensor) -> Tensor:
        """``[b, 31]`` sampled trees; a node without neighbours is its own."""
        levels = [nodes.unsqueeze(1)]
        for _ in range(2):
            above = levels[-1].reshape(-1)
            place = (torch.rand(len(above), FANOUT) * self.count[above].unsqueeze(1)).long()
            at = (self.first[above].unsqueeze(1) + place).clamp(max=max(len(self.near) - 1, 0))
            drawn = torch.where(self.count[above].unsqueeze(1) > 0, self.near[at], above.unsqueeze(1))
            levels.append(drawn.reshape(len(nodes), -1))
        return torch.cat(levels, 1)


def divided(folder: str) -> tuple[list[Owner], int, int]:
    """Cora's communities at three owners, the largest to whoever has least."""
    data = Planetoid(folder, "Cora")[0]
    graph = nx.Graph()
    graph.add_nodes_from(range(data.num_nodes))
    graph.add_edges_from(data.edge_index.T.tolist())
    parts: list[list[int]] = [[] for _ in range(CLIENTS)]
    for community in sorted(nx.community.louvain_communities(graph, seed=0), key=len, reverse=True):
        min(parts, key=len).extend(community)
    owners = []
    for part in parts:
        nodes = torch.tensor(sorted(part))
        place = torch.full((data.num_nodes,), -1)
        place[nodes] = torch.arange(len(nodes))
        edges = place[data.edge_index]
        owners.append(Owner(data.x[nodes], data.y[nodes], edges[:, (edges >= 0).all(0)]))
    return owners, data.num_features, int(data.y.max()) + 1


def rounds(owners: list[Owner], model: Sage, number: int, batch: int) -> None:
    """Federated averaging, Adam's moments at home, scored on each owner's other nodes after every round."""
    shared = {k: v.clone() for k, v in model.state_dict().items()}
    optimizers: list[dict[str, object] | None] = [None] * len(owners)
    for _ in range(number):
        trained = []
        for i, owner in enumerate(owners):
            model.load_state_dict(shared)
            optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
            if optimizers[i]:
                optimizer.load_state_dict(optimizers[i])
            order = owner.train[torch.randperm(len(owner.train))]
            for nodes in order.split(batch or len(order)):
                optimizer.zero_grad()
                if batch:
                    scores = model(owner.x[owner.trees(nodes)])
                else:  # all nodes a step: nobody would sample
                    scores = model.whole(owner.x, owner.source, owner.target)[nodes]
                F.cross_entropy(scores, owner.y[nodes]).backward()
                optimizer.step()
            optimizers[i] = optimizer.state_dict()
            trained.append({k: v.clone() for k, v in model.state_dict().items()})
        shared = {k: torch.stack([one[k] for one in trained]).mean(0) for k in shared}
        model.load_state_dict(shared)
        accuracy(owners, model)


@torch.no_grad()
def accuracy(owners: list[Owner], model: Sage) -> float:
    """On the nodes that nobody trained on."""
    right = total = 0
    for owner in owners:
        held = torch.ones(len(owner.x), dtype=torch.bool)
        held[owner.train] = False
        named = model.whole(owner.x, owner.source, owner.target).argmax(1)
        right, total = right + int((named == owner.y)[held].sum()), total + int(held.sum())
    return right / total


def steps(owner: Owner, model: Sage, number: int, noisy: bool) -> None:
    """Steps of one owner, each on about a fifth of its records."""
    optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    trained: nn.Module = model
    if noisy:
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer

        trained = GradSampleModule(model)
        expected = int(RATE * len(owner.train))
        optimizer = DPOptimizer(
            optimizer, noise_multiplier=1.0, max_grad_norm=CLIP, expected_batch_size=expected
        )
    for _ in range(number):
        nodes = owner.train[torch.rand(len(owner.train)) < RATE]
        optimizer.zero_grad()
        F.cross_entropy(trained(owner.x[owner.trees(nodes)]), owner.y[nodes]).backward()
        optimizer.step()


def main() -> None:
    """Reads the options, trains, prints one JSON object."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--data", required=True)
    asked.add_argument("--rounds", type=int, required=True)
    asked.add_argument("--batch", type=int, default=0, help="0: all nodes")
    asked.add_argument("--steps", choices=("plain", "opacus"))
    given = asked.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    owners, features, classes = divided(given.data)
    model = Sage(features, classes)
    if given.steps:
        for owner in owners:
            steps(owner, Sage(features, classes), given.rounds, given.steps == "opacus")
    else:
        rounds(owners, model, given.rounds, given.batch)
    sent = 4 * sum(p.numel() for p in model.parameters())
    print(json.dumps({"accuracy": accuracy(owners, model), "bytes": sent}))


if __name__ == "__main__":
    main()
