"""Whole graphs at six agents of three qualities: who shares what, who is paid what. Offline, some seconds."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.graph.kinds import GraphSetDataset


def strip(number: int) -> Data:
    """A strip of triangles; the labels of its nodes follow its class."""
    at, rng, y = np.arange(12 + number % 5), np.random.default_rng(number), number % 2
    once = np.concatenate([np.stack([at[:-1], at[1:]]), np.stack([at[:-2], at[2:]])], axis=1)
    links = torch.from_numpy(np.concatenate([once, once[::-1]], axis=1))
    labels = torch.from_numpy(rng.choice(3, len(at), p=[0.5, 0.4 - 0.3 * y, 0.1 + 0.3 * y]))
    return Data(x=torch.eye(3)[labels], edge_index=links, y=torch.tensor([y]))


warnings.simplefilter("ignore")  # that `plaintext` protects nothing
data = GraphSetDataset("strips", [strip(i) for i in range(240)], "generated", "", features=3, classes=2)
agents = sfg.federate(data, clients=6, partition="random", seed=0, split={"perturbed": True})
print("quality:", *agents.facts["partition"]["quality"].values())
for name in ("gin-fedavg", "gcfl", "gcfl+", "fedstar", "dw", "eu", "cffl", "cgsv", "fairgraphfl"):
    shared = {"diversity": "shared"} if name == "fairgraphfl" else {}
    algorithm = sfg.algorithms.ALGORITHMS[name](hidden=16, learning_rate=0.01, **shared)
    run = sfg.train(algorithm, agents, "plaintext", rounds=10)
    paid = algorithm.notes(run.state).get("payoffs", {})
    print(f"{name:12} own tests {run.accuracy['local']:.2f} ", *(f"{one:.3f}" for one in paid.values()))
hidden = sfg.train(sfg.algorithms.ALGORITHMS["fedstar"](hidden=16), agents, "masked", rounds=1)
print(f"fedstar under masks: {len(hidden.transcript.view('server').uploads('update'))} updates were read")
