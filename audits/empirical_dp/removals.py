"""Audits of a node's real removal: it goes with its links, its client samples neighbours again, and trains.

The client is a real one, its key stays the same in both worlds, and it takes its noisy steps as in a run.
Only the gradients are planted: records whose tree differs between the two worlds have opposite gradients in
them, which is the most that a malicious model could achieve.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from secure_fedgraph.algorithms.training import private_training
from secure_fedgraph.algorithms.training.node_classifier import NodeClassifier
from secure_fedgraph.audits.empirical_dp.step_audits import StepAudit, audit_steps
from secure_fedgraph.core.spending.ledger import Ledger
from secure_fedgraph.federation import Federation
from secure_fedgraph.graph.sample.occurrences import trees
from secure_fedgraph.privacy.dp_sgd import PrivateSteps, Training
from secure_fedgraph.privacy.policy import Policy

FAR = 1e6
"""The length of a planted gradient: far beyond any clip."""


@dataclass(frozen=True)
class Removal:
    """One node's removal, and what it changes.

    Args:
        node: which.
        degree: its links.
        changed: training trees that differ.
        bound: how many are charged.
    """

    node: int
    degree: int
    changed: int
    bound: int

    @property
    def beyond(self) -> int:
        """Changed trees that are not charged for."""
        return max(self.changed - self.bound, 0)


class Removals:
    """Removals of nodes from one client's graph.

    Args:
        federation: whose client it is.
        algorithm: what it trains, with ``places`` and ``crowd``.
        policy: with noisy steps on nodes.
        name: of the client; by default the first.
    """

    def __init__(
        self, federation: Federation, algorithm: NodeClassifier, policy: Policy, name: str = ""
    ) -> None:
        assert policy.steps is not None
        self.steps: PrivateSteps = policy.steps
        self._settings = algorithm.settings
        bound = policy.bind(algorithm.in_use, federation.names)
        clients = {c.name: c for c in federation.make_clients(algorithm, bound, "removals", Ledger(), 0)}
        self.client = clients[name or federation.names[0]]
        self.graph: Data = self.client.graph
        self.bound = algorithm.occurrences("node")
        links = self.graph.edge_index
        self.degrees = torch.bincount(
            torch.unique(links[:, links[0] != links[1]], dim=1)[1], minlength=int(self.graph.num_nodes or 0)
        )
        self._before = self._trees(self.graph)

    def hubs(self, count: int) -> list[int]:
        """The nodes with the most links."""
        return [int(node) for node in self.degrees.argsort(descending=True)[:count]]

    def of(self, node: int) -> Removal:
        """What one removal changes."""
        return Removal(node, int(self.degrees[node]), int(self._differ(node).sum()), self.bound)

    def without(self, node: int) -> Data:
        """The graph without a node's features and links; its row stays: their number is public."""
        reduced = self.graph.clone()
        reduced.edge_index = self.graph.edge_index[:, (self.graph.edge_index != node).all(0)]
        reduced.x = self.graph.x.clone()
        reduced.x[node] = 0
        return reduced

    def audit(self, node: int, delta: float, trials: int = 20_000) -> StepAudit:
        """Compares the charged epsilon with the steps that the client takes with the node and without it.

        Args:
            delta: the claim's.
            trials: steps in each world.
        """
        worlds = {True: self.graph, False: self.without(node)}
        differ = self._differ(node)

        def scored(present: bool, trials: int) -> np.ndarray:
            # a record of the node alone goes with it; others change, at worst to their opposite
            gone = 0.0 if self.bound == 1 else -1.0
            return self._scores(worlds[present], differ, 1.0 if present else gone, trials)

        return audit_steps(self.steps, self.bound, trials=trials, delta=delta, scored=scored)

    def _differ(self, node: int) -> torch.Tensor:
        """Which records differ: trees, and the node's own, whose features and label are gone."""
        own = self.graph.train_mask.nonzero().flatten() == node
        either: torch.Tensor = own | (self._before != self._trees(self.without(node))).any(1)
        return either

    def _trees(self, graph: Data) -> torch.Tensor:
        centres = graph.train_mask.nonzero().flatten()
        if self._settings.trains_alone:
            return private_training.tree_rows(self.client, graph, self._settings)(centres)
        table = private_training.neighbours_of(self.client, graph, self._settings)
        return trees(table, centres, len(self._settings.fanout))

    def _scores(self, graph: Data, differ: torch.Tensor, way: float, trials: int) -> np.ndarray:
        one = replace(self.steps, steps=1)
        settings = self._settings.model_copy(update={"optimizer": "sgd", "learning_rate": 1.0})
        roots = torch.full((int(graph.num_nodes or 0),), 0.0)
        roots[graph.train_mask.nonzero().flatten()[differ]] = FAR * way
        client, scores = self.client, np.zeros(trials)
        client.graph, client.training = graph, Training(one, "zero-out")
        expected = max(one.rate * int(graph.train_mask.sum()), 1.0)
        with planted(roots):
            for trial in range(trials):
                model = _TwoNumberModel()
                client.memory.pop("optimizer", None)
                private_training.fit_privately(client, graph, model, settings)
                scores[trial] = -sum(float(p.detach()) for p in model.parameters())
        client.graph = self.graph
        client.memory.pop("frozen", None)
        return scores * expected / one.clip / math.sqrt(2)


class _TwoNumberModel(torch.nn.Module):
    """A model of two numbers: what a step adds to it is what an attacker reads of the step."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
        self.b = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))


@contextmanager
def planted(roots: torch.Tensor) -> Iterator[None]:
    """Gradients of every record by its root's number, in place of a model's."""

    def gradients(model: Any, x: Any, rows: torch.Tensor, *more: Any) -> dict[str, torch.Tensor]:
        pull = roots[rows[:, 0]][:, None]
        return {"a": pull, "b": pull}

    module: Any = private_training  # where the client's steps look the function up
    real, module.tree_factors = module.tree_factors, gradients
    try:
        yield
    finally:
        module.tree_factors = real
