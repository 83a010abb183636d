"""ProGAP: a network trained in stages by federated steps; each stage reads one more noised sum over links."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch_geometric.data import Data

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fedsgd.algorithm import MEAN, SPEED, TAKEN, FedSgd
from secure_fedgraph.algorithms.fedsgd.heads.head import Head
from secure_fedgraph.algorithms.fedsgd.heads.perceptron import (
    LAYERS,
    NodePerceptron,
    gradients_of,
    scores_of,
    travelled,
)
from secure_fedgraph.algorithms.fedsgd.settings import SgdSettings
from secure_fedgraph.algorithms.progap.exact_sums import linked_sums
from secure_fedgraph.algorithms.progap.settings import ProGapSettings
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models import ridge
from secure_fedgraph.protocol import Channel, Reveal, Unit
from secure_fedgraph.protocol.channel import UnitContributionLinks
from secure_fedgraph.protocol.given import NOTHING, Expected, like
from secure_fedgraph.seams import ClientContext, RoundApi

STAGE = "stage"
"""How many of the hops the stage reads, ``[1]``."""
Sums = Callable[[int, torch.Tensor], torch.Tensor]
"""Hop and parts ``[nodes, classes]`` -> the sums of neighbours' parts, ``[nodes, classes]``."""


class StagePerceptron(NodePerceptron):
    """A hidden layer on a node's features and on a sum of shares of classes for each hop.

    Args:
        settings: of the algorithm.
    """

    settings: ProGapSettings

    def width(self, schema: Schema) -> int:
        """Features, and the classes of each hop."""
        return schema.features + self.settings.hops * schema.classes

    def init(self, schema: Schema, seed: int) -> State:
        """As without hops; what reads sums begins at zero."""
        begun = super().init(schema, seed)
        begun[LAYERS[0]][schema.features :] = 0
        return begun


class ProGap(FedSgd):
    """Stages of federated steps: each reads, beside a node's own features, one more sum over its neighbours.

    Stage 0 is :class:`~secure_fedgraph.algorithms.fedsgd.algorithm.FedSgd`. Before stage h every owner
    computes at home, with the released weights of stage h - 1, each node's shares of classes, and adds up
    those of its neighbours: one noised row a node, which stays with the owner. Stage h goes on with the same
    network, which now reads the row's direction too. Whoever predicts adds up over links of its own, without
    noise; shares of classes then travel over them as in ``fedsgd``.

    Guarantees:
        - one node is one record, as in ``fedsgd``: a record reads the node's own row and no other;
        - a node moves the rows of the others by a public length, which the client enforces: noise on them has
          a finite epsilon for a node and for a link, charged once a hop;
        - rows never leave the client.

    Needs:
        - public bounds on degrees (``crowd``, ``degree``) that hold in every owner's graph;
        - a budget that leaves something of sums of few parts. On citation graphs up to epsilon 8 it does not:
          :class:`~secure_fedgraph.algorithms.fedsgd.algorithm.FedSgd` gets more of the same budget
          (``docs/algorithms/progap.md``).

    Args:
        settings: :class:`~secure_fedgraph.algorithms.progap.settings.ProGapSettings`.

    References:
        Sajadmanesh, Gatica-Perez, ProGAP: Progressive Graph Neural Networks with Differential Privacy
        Guarantees, WSDM 2024 (algorithm 1); Sajadmanesh et al., GAP, USENIX Security 2023. The proof is
        another: ``docs/guarantees.md``.
    """

    name = "progap"
    tasks: ClassVar[tuple[str, ...]] = (Task.CLASSES,)
    summary = "stages of steps under one shared noise, each reading sums over links that were noised once"
    reference = "Sajadmanesh and Gatica-Perez 2024"
    Settings: ClassVar[type[SgdSettings]] = ProGapSettings
    settings: ProGapSettings
    without_links = None

    SUMS = Channel(
        "sums",
        Reveal.NOTHING,
        unit=Unit.NODE,
        unit_contribution=UnitContributionLinks(32, 1.0, crowd=32, degree=512, hops=1),
    )

    @property
    def head(self) -> Head:
        """What is trained."""
        return StagePerceptron(self.settings)

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """The steps, and the sums that owners keep."""
        return (*super().in_use, replace(self.SUMS, unit_contribution=self._contribution))

    @property
    def _contribution(self) -> UnitContributionLinks:
        s = self.settings
        return UnitContributionLinks(s.neighbours, 1.0, crowd=s.crowd, degree=s.degree, hops=s.hops)

    @property
    def hops(self) -> int:
        """How far links are read in training."""
        return self.settings.hops

    def uses(self, channel: Channel, rounds: int, clients: int) -> int:
        """A step a round; sums once a hop that so many rounds reach."""
        return (
            self._stage_of(rounds)
            if channel.name == self.SUMS.name
            else super().uses(channel, rounds, clients)
        )

    def init(self, schema: Schema, seed: int) -> State:
        """As FedSGD's; no stage is finished yet."""
        begun = super().init(schema, seed)
        finished = {
            _of(hop, name): torch.zeros_like(begun[name])
            for hop in range(1, self.settings.hops + 1)
            for name in LAYERS
        }
        return {**begun, **finished, STAGE: torch.zeros(1)}

    def released(self, state: State) -> State:
        """The mean of the stage's weights over its steps, with the weights that its sums are made by."""
        return {**super().released(state), **self._finished(state)}

    def trained(self, state: Mapping[str, torch.Tensor]) -> State:
        """The stage's weights, without those of finished ones."""
        return {name: state[name] for name in LAYERS}

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """The weights of the last step and of the finished stages; for scores the released ones."""
        if channel == self.STEP.name:
            return (like(self._given(self.init(schema, 0))),)
        return self._takes_released(schema) if channel in {c.name for c in self.examiners()} else NOTHING

    def round(self, round: RoundApi, state: State) -> State:
        """One step of the stage that this round is in; a finished stage's mean weights stay as they are."""
        stage = self._stage_of(round.number)
        for hop in range(int(state[STAGE]) + 1, stage + 1):
            state = self._next_stage(state, hop)
        total = dict(round.reduce(self.in_use[0], given=self._given(state)).total)
        # of sums that the stage does not read the gradient is 0, and what was opened is noise
        classes = state[LAYERS[-1]].numel()
        unread = (self.settings.hops - stage) * classes
        if unread:
            inner = total[LAYERS[0]].clone()
            inner[:, inner.shape[1] - unread :] = 0
            total[LAYERS[0]] = inner
        return {**state, **self.stepped(state, total)}

    def gradients(self, client: ClientContext, given: State, chosen: torch.Tensor) -> State:
        """Of records that are each node's features, and the directions of its own noised sums."""
        channel = self.in_use[1]

        def noised(hop: int, parts: torch.Tensor) -> torch.Tensor:
            return client.linked_sums(channel, hop, parts)

        z = self._inputs(given, client.graph, client.schema, noised)
        return gradients_of(given, z[chosen], client.graph.y[chosen], self._longest, client.schema)

    def predict(self, params: State, graph: Data, schema: Schema) -> torch.Tensor:
        """Logarithms of shares of classes, which travelled over the graph's links."""
        return travelled(self.scores(params, graph, schema), graph.edge_index, self.settings, schema)

    def scores(self, params: State, graph: Data, schema: Schema) -> torch.Tensor:
        """The network's class scores, with sums over the graph's own links, without noise."""
        weight = self._contribution.weight

        def exact(hop: int, parts: torch.Tensor) -> torch.Tensor:
            return linked_sums(parts, graph.edge_index, weight)

        return scores_of(params, self._inputs(params, graph, schema, exact), self._longest)

    def _inputs(
        self, given: Mapping[str, torch.Tensor], graph: Data, schema: Schema, sums: Sums
    ) -> torch.Tensor:
        """What the network reads, ``[nodes, width]``: zeros for sums of later stages."""
        s = self.settings
        z = torch.zeros(int(graph.num_nodes or 0), StagePerceptron(s).width(schema))
        z[:, : schema.features] = ridge.records(graph.x) * s.length
        stage = min(max(int(given[STAGE]), 0), s.hops)
        for hop in range(1, stage + 1):
            finished = {name: given[_of(hop, name)] for name in LAYERS}
            shares = F.softmax(scores_of(finished, z, self._longest), dim=1)
            rows = sums(hop, F.normalize(shares, dim=1)).clamp(min=0)
            begin = schema.features + (hop - 1) * schema.classes
            z[:, begin : begin + schema.classes] = F.normalize(rows, dim=1) * s.sums_length
        return z

    @property
    def _longest(self) -> float:
        """What no value that the network reads exceeds."""
        return max(self.settings.length, self.settings.sums_length)

    def _stage_of(self, round: int) -> int:
        """The stage that a round is in, from 0."""
        return min((max(round, 1) - 1) // self.settings.stage, self.settings.hops)

    def _next_stage(self, state: State, hop: int) -> State:
        """The finished stage's mean weights are kept for its sums, and the next stage begins with them."""
        finished = {name: state[MEAN + name] for name in LAYERS}
        return {
            **state,
            **finished,
            **{_of(hop, name): value.clone() for name, value in finished.items()},
            **{SPEED + name: torch.zeros_like(value) for name, value in finished.items()},
            STAGE: torch.full((1,), float(hop)),
            TAKEN: torch.zeros((), dtype=torch.float64),
        }

    def _given(self, state: State) -> State:
        return {**self.trained(state), **self._finished(state)}

    def _finished(self, state: State) -> State:
        """The weights of finished stages, and the number of hops that the stage reads."""
        names = [_of(hop, name) for hop in range(1, self.settings.hops + 1) for name in LAYERS]
        return {name: state[name] for name in (*names, STAGE)}


def _of(hop: int, name: str) -> str:
    """The weights that a hop's parts are made by."""
    return f"hop{hop}.{name}"
