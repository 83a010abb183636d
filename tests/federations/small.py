"""Every algorithm as small as it gets, on data that it runs on: for tests that want all of them.

The settings bind under masks wherever an algorithm has some that do.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from small_graphs import triangles
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph import client as client_module
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.algorithms.fedsageplus.settings import OF_THE_EXCHANGE, PROTOTYPES
from secure_fedgraph.algorithms.training.gin_classifier import GinClassifier
from secure_fedgraph.client import Client
from secure_fedgraph.graph.kinds import RatingsDataset

SAGE: dict[str, Any] = {"hidden": (8, 8)}
GENERATORS: dict[str, Any] = {
    **SAGE,
    "generator_epochs": 2,
    "federated_epochs": 2,
    "exchange_batch": 8,
    "minimum_batch": 4,
    "generator_hidden": (16, 32),
    "encoder": (8, 8),
    "hidden_share": 0.3,
}
EGO: dict[str, Any] = {
    "hidden": (4, 4),
    "fanout": (2, 2),
    "batch": 8,
    "epochs": 1,
    "server_epochs": 2,
    "mash": "across",
    "mashes": 3,
    "learning_rate": 0.01,
}
GLASU: dict[str, Any] = {"hidden": 8, "steps": 2, "batch": 8, "public_nodes": 24}
TRACKED: dict[str, Any] = {"hidden": (8, 8), "local_steps": 2, "learning_rate": 0.05}
GIN: dict[str, Any] = {"hidden": 8, "layers": 2, "batch": 16}
SETTINGS: dict[str, dict[str, Any]] = {
    "fedridge": {},
    "fedsgc": {},
    "fedsgd": {"hidden": 8, "rate": 0.5},
    "fedridge-graphs": {},
    **{name: {"map_width": 16} for name in ("fedavg-moments", "apflgate-moments", "fairgraphfl-moments")},
    "fedego-sums": {},
    "apflgate-ratings": {},
    "fedsage-steps": {"hidden": (8, 4), "rate": 0.5},
    "fedgcn-steps": {"hidden": (8,), "rate": 0.5},
    "fedsgd-graphs": {"hidden": 8, "rate": 0.5},
    "fedsage+": GENERATORS,
    "locsage+": GENERATORS,
    "fedego": EGO,
    "fedego-released": EGO,
    "glasu": {**GLASU, "sampler": "public"},
    "glasu-simulated": {**GLASU, "sampler": "public"},
    "glasu-one-label-holder": {**GLASU, "sampler": "public"},
    "glasu-standalone": GLASU,
    "glasu-centralized": GLASU,
    "glasu-at-home": {"width": 8, "travels": 2},
    "fedbcd": {**GLASU, "local_steps": 2},
    "fedbcd-one-label-holder": {**GLASU, "local_steps": 2},
    "apfl": TRACKED,
    "fedgate": TRACKED,
    "apflgate": TRACKED,
    "gin-fedavg": GIN,
    "gin-local": GIN,
    "fairgraphfl": GIN,
    "gcfl": {**GIN, "after": 0, "mean_below": 9.0, "one_above": 1e-6},
    "gcfl+": {**GIN, "after": 0, "mean_below": 9.0, "one_above": 1e-6, "window": 2},
    "fedstar": GIN,
    "dw": GIN,
    "eu": GIN,
    "cffl": GIN,
    "cgsv": GIN,
    "fedgcn": {"epochs": 2, "hidden": (8,)},
    "graphfl": {**SAGE, "meta_rounds": 2, "support": 4, "query": 6, "batch": 4, "inner_steps": 2},
    "d-fedgnn": SAGE,
    "fairgraphfl-bounded": GIN,
}
BY_UPDATE = ("fairgraphfl", "fairgraphfl-bounded", "dw", "eu", "cffl", "cgsv", "gcfl", "gcfl+")
"""Algorithms whose server reads every update, which masks refuse."""
SPLITS: dict[str, dict[str, Any]] = {
    "label_skew": {"local_tests": 5, "local_share": 0.4},
    "dirichlet": {"concentration": 5.0},
}


def algorithm(name: str, **more: Any) -> sfg.Algorithm:
    """A fresh one with small settings; without those of an exchange where there is none."""
    usual = SETTINGS.get(name, SAGE)
    if more.get("feedback") == PROTOTYPES:
        usual = {key: value for key, value in usual.items() if key not in OF_THE_EXCHANGE}
    return ALGORITHMS[name](**{**usual, **more})


def ratings() -> RatingsDataset:
    """20 users and 30 products of three categories; the first user and the first product are busy."""
    draw = torch.Generator().manual_seed(0)
    rated = torch.rand(20, 30, generator=draw) < 0.3
    rated[0] = rated[:, 0] = True
    pairs = rated.nonzero().T
    graph = Data(
        edge_index=torch.stack([pairs[0], pairs[1] + 20]),
        rating=torch.randint(1, 6, (pairs.shape[1],), generator=draw).float(),
        num_nodes=50,
    )
    return RatingsDataset("made up", graph, torch.arange(30) % 3, "here", "0" * 64, 20, 30, 3)


@cache
def _federation(partition: str, kind: str, labelled: bool) -> sfg.Federation:
    split = SPLITS.get(partition)
    if labelled:
        return sfg.federate(triangles(), clients=3, partition=partition, seed=0, split=split)
    if kind == "ratings":
        return sfg.federate(ratings(), clients=3, partition=partition, seed=0)
    name, size = (
        ("citation", {"nodes": 90, "features": 16}) if kind == "node" else ("molecules", {"graphs": 60})
    )
    return sfg.federate(f"synthetic-{name}", clients=3, partition=partition, seed=0, split=split, **size)


def federation(name: str) -> sfg.Federation:
    """Three owners of a small data set, handed out as in the algorithm's paper."""
    kind = ALGORITHMS[name]
    return _federation(kind.partitions[0], kind.kinds[0], issubclass(kind, GinClassifier))


def foreseeable(patch: pytest.MonkeyPatch) -> None:
    """Secret orders follow from names and rounds, for tests that compare runs in this process to the bit."""

    def order(self: Client, size: int) -> torch.Tensor:
        return torch.randperm(size, generator=self.generator("secret order"))

    patch.setattr(Client, "secret_order", order)
    patch.setattr(client_module, "fresh_key", lambda: torch.arange(32, dtype=torch.uint8))
