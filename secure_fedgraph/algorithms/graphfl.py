"""GraphFL: a first model by meta-learning over the clients, then FedAvg from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import nn
from torch_geometric.data import Data

from secure_fedgraph.algorithm import State, noise_on_uploads
from secure_fedgraph.algorithms.fedavg import FedAvg
from secure_fedgraph.algorithms.training import adaptive_clip
from secure_fedgraph.algorithms.training.local_training import loss_on
from secure_fedgraph.algorithms.training.optimizers import bound_gradients, moments, restore
from secure_fedgraph.algorithms.training.settings import TrainingSettings
from secure_fedgraph.algorithms.training.weighting import AveragingSettings
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.inputs import Expected, like
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models.finite import SGD, Adam, all_finite, note_divergence, take_step
from secure_fedgraph.models.parameters import load
from secure_fedgraph.seams import ClientContext, RoundApi

_MOMENTS = "moments of the server "
"""No parameter is called so: names of modules have no spaces."""
_EPSILON = 1e-3
"""Of the server's Adam. At its usual 1e-8 an entry of 1e-6 moves as far as one of 1: what fixed point rounds
away would decide, and a model under masks would be another than in plaintext."""


class GraphFLSettings(AveragingSettings):
    """FedAvg's settings, and those of the meta-learning before it.

    Args:
        meta_rounds: rounds of meta-learning, before the first that is scored; 0 is FedAvg.
        support: training nodes that a client adapts to in such a round, new at random in each round.
        query: further training nodes, for the adapted model's gradient, in batches of ``batch``.
        inner_steps: of plain gradient descent on the support set.
        inner_rate: of these steps.
        meta_rate: of the server's Adam.
    """

    meta_rounds: int = Field(20, ge=0)
    support: int = Field(100, ge=1)
    query: int = Field(100, ge=1)
    inner_steps: int = Field(10, ge=0)
    inner_rate: float = Field(0.01, gt=0, allow_inf_nan=False)
    meta_rate: float = Field(0.02, gt=0, allow_inf_nan=False)


class GraphFL(FedAvg):
    """Model-agnostic meta-learning over clients, then FedAvg from the resulting model.

    In a meta-round a client takes ``inner_steps`` steps on its support set and uploads the gradient of its
    query set's loss **at the adapted weights**: the first-order meta-gradient. The gradients of all batches
    of the query set are averaged. The server takes an Adam step along the mean over clients. Then FedAvg.

    A meta-gradient is a sum like an update: masks, ciphers and noise bind to it. It is a fresh gradient of
    at most ``query`` nodes, so what reads updates reads it better than it reads an update after many steps.

    References:
        Wang, Li, Chen, Li, GraphFL: A Federated Learning Framework for Semi-Supervised Node Classification
        on Graphs, ICDM 2022; Finn, Abbeel, Levine, Model-Agnostic Meta-Learning, ICML 2017 (section 5.2,
        first order).
    """

    name = "graphfl"
    tasks: ClassVar[tuple[str, ...]] = (Task.CLASSES,)
    summary = "a first model by meta-learning (first order), then FedAvg"
    reference = "Wang et al., ICDM 2022"
    rounds = 200
    kinds: ClassVar[tuple[str, ...]] = ("node",)
    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    partitions: ClassVar[tuple[str, ...]] = ("label_skew", "louvain", "louvain_compiled", "random")
    clients: ClassVar[Mapping[str, int]] = {"cora": 5, "citeseer": 5, "dblp": 10}
    META = Channel("meta_gradient", Reveal.SUM, gives_model=True)
    Settings: ClassVar[type[TrainingSettings]] = GraphFLSettings
    settings: GraphFLSettings

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """Without meta-rounds, the updates alone."""
        used = super().in_use
        return used if self.settings.meta_rounds else tuple(c for c in used if c.name != self.META.name)

    @property
    def warm_up(self) -> int:
        """The meta-rounds."""
        return self.settings.meta_rounds

    def uses(self, channel: Channel, rounds: int, clients: int) -> int:
        """Meta-gradients in the warm-up, updates after it."""
        return self.settings.meta_rounds if channel.name == self.META.name else rounds

    def check_records(self, schema: Schema, unit: str) -> None:
        """A meta-gradient is none of the noisy steps.

        Raises:
            BadInput: where there are meta-rounds.
        """
        if self.settings.meta_rounds:
            raise BadInput(
                f"{self.name}'s meta-gradients are no noisy training steps, so these protect no {unit}: use "
                f"{noise_on_uploads(self, unit)}, set training.meta_rounds=0, or use fedavg"
            )
        super().check_records(schema, unit)

    def check_own(self, graph: Data, name: str) -> None:
        """That the client has as many training nodes as both sets take."""
        s, nodes = self.settings, int(graph.train_mask.sum())
        if s.meta_rounds and s.support + s.query > nodes:
            raise BadInput(
                f"{name} has {nodes} training nodes, and training.support = {s.support} and training.query = "
                f"{s.query} take {s.support + s.query} apart from each other: lower them"
            )

    def round(self, round: RoundApi, state: State) -> State:
        """A step along the mean meta-gradient, or a round of FedAvg."""
        if round.number > self.warm_up:
            return super().round(round, state)
        model, held = _without_moments(state), {k: v for k, v in state.items() if k.startswith(_MOMENTS)}
        params = adaptive_clip.without(model)
        gradient = round.reduce(self.as_used(self.META), given=params).mean
        moved, held = self._meta_step(params, gradient, held)
        return {**model, **moved, **(held if round.number < self.warm_up else {})}

    def released(self, state: State) -> State:
        """The weights."""
        return super().released(_without_moments(state))

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """The weights."""
        if channel == self.META.name:
            return (like(self.released(self.init(schema, 0))),)
        return super().takes(channel, schema)

    @META.answer
    def meta_gradient(self, client: ClientContext, given: State) -> Upload:
        """The gradient of the whole query set's loss, after the steps on the support set."""
        s, model, graph = self.settings, self.model(client.schema), self.training_graph(client)
        load(model, given)
        support, query = self._sets(client, graph)
        loss_of = loss_on(client, graph, model, s)
        inner = SGD(model.parameters(), lr=s.inner_rate)
        model.train()
        sound = True
        with self.seeded_sampling(client):
            for _ in range(s.inner_steps):
                inner.zero_grad()
                loss_of(support).backward()
                sound &= bound_gradients(model.parameters(), s.largest_gradient)
                take_step(inner)
            inner.zero_grad()
            for batch in query.split(len(query) if s.batch == "full" else s.batch):
                (loss_of(batch) * (len(batch) / len(query))).backward()
        sound &= bound_gradients(model.parameters(), s.largest_gradient)
        note_divergence(client.name, sound)
        return Upload(
            {
                name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
                for name, p in model.named_parameters()
            }
        )

    def _sets(self, client: ClientContext, graph: Data) -> tuple[torch.Tensor, torch.Tensor]:
        """Support and query nodes of a round, disjoint."""
        s, nodes = self.settings, graph.train_mask.nonzero().flatten()
        order = torch.randperm(len(nodes), generator=client.generator("support and query"))
        chosen = nodes[order[: s.support + s.query]]
        return chosen[: s.support], chosen[s.support :]

    def _meta_step(self, params: State, gradient: State, held: State) -> tuple[State, State]:
        """One step of Adam.

        Args:
            params: the model, with its buffers, which do not move.
            gradient: by parameter.
            held: the optimiser's moments, as entries of a state.

        Returns:
            The parameters, and the moments.
        """
        moved = {name: nn.Parameter(params[name].clone()) for name in gradient}
        adam = Adam(moved.values(), lr=self.settings.meta_rate, eps=_EPSILON)
        restore(adam, _moments_in(held))
        for name, p in moved.items():
            p.grad = all_finite({name: gradient[name]})[name]
        take_step(adam)
        slots = moments(adam)
        kept = {f"{_MOMENTS}{i} {slot}": v for i, one in slots.items() for slot, v in one.items()}
        return {name: p.detach() for name, p in moved.items()}, kept


def _without_moments(state: State) -> State:
    return {k: v for k, v in state.items() if not k.startswith(_MOMENTS)}


def _moments_in(held: State) -> dict[str, dict[str, torch.Tensor]]:
    slots: dict[str, dict[str, torch.Tensor]] = {}
    for key, value in held.items():
        number, slot = key.removeprefix(_MOMENTS).split(" ")
        slots.setdefault(number, {})[slot] = value
    return slots
