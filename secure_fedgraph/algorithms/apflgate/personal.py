"""A client's personal model, mixed in its outputs with the shared one."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from secure_fedgraph.algorithms.apflgate.settings import PersonalSettings
from secure_fedgraph.algorithms.training.graph_classifier import Part, Task
from secure_fedgraph.algorithms.training.optimizers import bound_gradients, moments, restore
from secure_fedgraph.models.finite import SGD, Adam, finite, note_divergence, take_step
from secure_fedgraph.models.parameters import load, parameters_of
from secure_fedgraph.seams import ClientContext

ALPHA = "alpha"


class Personal:
    """A client's personal model during one round.

    Args:
        settings: the algorithm's.
        client: the client.
        task: what is learned.
        shared: the shared model as the round starts; its outputs are taken once and for all.
    """

    def __init__(
        self, settings: PersonalSettings, client: ClientContext, task: Task, shared: nn.Module
    ) -> None:
        s = settings
        self.client, self.task = client, task
        with torch.no_grad():
            self.base = task.outputs(shared, task.part(client.graph, None))
        self.model = task.model(client.schema)
        load(self.model, client.memory.get("personal") or parameters_of(shared))
        self.adaptive = s.alpha == "adaptive"
        self.alpha = float(client.memory.get(ALPHA, 0.5 if s.alpha == "adaptive" else s.alpha))
        self.alpha_rate, self.largest_gradient = s.alpha_rate, s.largest_gradient
        rate = s.learning_rate if s.personal_rate is None else s.personal_rate
        kind = Adam if s.personal_optimizer == "adam" else SGD
        self.optimizer = kind(self.model.parameters(), lr=rate, weight_decay=s.weight_decay)
        restore(self.optimizer, client.memory.get("optimizer", {}))
        self.noise = client.generator("personal dropout")
        self.slopes: list[Tensor] = []
        self.sound = True

    def step(self, chosen: Tensor, part: Part) -> None:
        """One step of the personal model on the mixed output."""
        self.optimizer.zero_grad()
        alpha = torch.tensor(self.alpha, requires_grad=self.adaptive)
        mixed = alpha * self.task.outputs(self.model, part, self.noise) + (1 - alpha) * self.base[chosen]
        self.task.loss(mixed, part).backward()
        self.sound &= bound_gradients(self.model.parameters(), self.largest_gradient)
        if alpha.grad is not None:
            self.slopes.append(alpha.grad)
        take_step(self.optimizer)

    def keep(self) -> None:
        """Into the client's memory, alpha after its step of the round."""
        if self.adaptive:
            slope = float(finite(torch.stack(self.slopes).mean()))
            self.alpha = min(max(self.alpha - self.alpha_rate * slope, 0.0), 1.0)
        note_divergence(self.client.name, self.sound)
        self.client.memory["personal"] = parameters_of(self.model)
        self.client.memory[ALPHA] = self.alpha
        self.client.memory["optimizer"] = moments(self.optimizer)
