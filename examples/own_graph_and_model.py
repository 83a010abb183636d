"""Your own graph and model (attention, BatchNorm) beside the loop that a PyG user would write.

Masks are kept to, nodes with `y = -1` are not used, edge weights reach models that name them. Two owners hold
random halves. Both sides take as many passes on the same nodes, from the same weights; means over 3 seeds.
"""

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv

import secure_fedgraph as sfg
from secure_fedgraph.graph.data.synthetic import citation

PASSES, RATE, FEATURES, CLASSES = 40, 0.01, 64, 4


class Net(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.first, self.norm = GATConv(features, 8, heads=4), nn.BatchNorm1d(32)
        self.second = GCNConv(32, classes)

    def forward(self, x, edge_index, edge_weight=None):
        return self.second(self.norm(self.first(x, edge_index)).relu(), edge_index, edge_weight)


def own_graph(seed: int, nodes: int = 900) -> Data:
    data = citation(nodes, FEATURES, CLASSES, seed)
    data.edge_weight = torch.cosine_similarity(data.x[data.edge_index[0]], data.x[data.edge_index[1]]) + 0.1
    parts = torch.randperm(nodes, generator=torch.Generator().manual_seed(seed)).split([300, 150, 350, 100])
    for key, part in zip(("train_mask", "val_mask", "test_mask"), parts, strict=False):
        data[key] = torch.zeros(nodes, dtype=torch.bool).index_fill(0, part, True)
    data.y[parts[3]] = -1
    return data


def plain_loop(data: Data, model: nn.Module) -> float:
    optimizer, rows = torch.optim.Adam(model.parameters(), lr=RATE), data.train_mask
    inputs = data.x, data.edge_index, data.edge_weight
    for _ in range(PASSES):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(*inputs)[rows], data.y[rows]).backward()
        optimizer.step()
    return float((model.eval()(*inputs).argmax(1) == data.y)[data.test_mask].float().mean())


if __name__ == "__main__":
    scores = []
    for seed in range(3):
        torch.manual_seed(seed)
        data, model = own_graph(seed), Net(FEATURES, CLASSES)
        federation = sfg.federate(data, clients=2, partition="random", seed=seed)
        algorithm = sfg.FedAvg(model, learning_rate=RATE, batch="full")
        run = sfg.train(algorithm, federation, "masked", rounds=PASSES)
        scores.append((run.accuracy["global"], plain_loop(data, model)))
    mine, plain = torch.tensor(scores).mean(0).tolist()
    print(f"accuracy on all owners' test nodes: {mine:.3f} federated, {plain:.3f} in a plain loop")
    assert mine > 0.8 and abs(mine - plain) <= 0.02, "more than two points apart"
    print("within two points;", *run.state)
