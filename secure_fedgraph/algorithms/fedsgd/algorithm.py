"""FedSGD on records: a step is one masked sum over owners, under one noise; links at inference only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import APPNP

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.algorithms.fedsgd.settings import SgdSettings
from secure_fedgraph.errors import BadInput
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models import ridge
from secure_fedgraph.protocol import Channel, ContributionSample, Reveal, Unit, UnitContributionSampled
from secure_fedgraph.protocol.given import NOTHING, Expected, like
from secure_fedgraph.seams import ClientContext, RoundApi

LAYERS = ("inner", "inner_bias", "outer", "outer_bias")
SPEED, MEAN, TAKEN = "speed.", "mean.", "taken"
"""Before a layer's name: the mean of gradients, and of weights; and how many steps were taken."""
_LEAST = 1e-12


class FedSgd(Algorithm):
    """A small network, trained by steps that all owners take together: one record's gradient, one noise.

    A record is a training node: its features, of length 1, and its class. Each round coins of each owner take
    some of its records, the owner clips each record's gradient and adds them up, and the server steps along
    the sum over all owners. Under ``distributed_dp`` owners add shares of one noise: the sum is as private
    as DP-SGD on everybody's records in one place, and as accurate. The released weights are a mean over
    steps. Links are used where predictions are made: shares of classes travel over those of the reader.

    Guarantees:
        - one node is one record, which is in a step by secret coins: the client enforces its gradient's
          length and its coins, so noise on the sum has a finite epsilon for a node;
        - nothing that is sent depends on a link.

    Needs:
        - thousands of records: with a thousand, :class:`~secure_fedgraph.algorithms.fedridge.FedRidge` gets
          more of the same budget.

    Args:
        settings: :class:`~secure_fedgraph.algorithms.fedsgd.settings.SgdSettings`.

    References:
        McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017
        (FedSGD); Abadi et al., Deep Learning with Differential Privacy, CCS 2016; Kairouz, Liu, Steinke, The
        Distributed Discrete Gaussian Mechanism, ICML 2021; Gasteiger et al., Predict then Propagate, 2019.
    """

    name = "fedsgd"
    summary = "a network on features, trained by steps under one shared noise; links at inference only"
    reference = "McMahan et al. 2017"
    rounds = 200
    data: ClassVar[str] = "pubmed"
    partitions: ClassVar[tuple[str, ...]] = ("louvain", "random", "label_skew")
    Settings: ClassVar[type[SgdSettings]] = SgdSettings
    settings: SgdSettings
    record: ClassVar[Unit] = Unit.NODE
    """What one record is of."""
    reads_links: ClassVar[bool] = False
    """Whether a record depends on links."""
    without_links: ClassVar[Mapping[str, Any] | None] = {"steps": 0}

    STEP = Channel("step", Reveal.SUM)

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """The channel with what one record is of it."""
        s = self.settings
        contribution = UnitContributionSampled(s.clip * self._share, rate=s.rate, records=s.records)
        return (replace(self.STEP, unit=self.record, links=self.reads_links, unit_contribution=contribution),)

    @property
    def _share(self) -> float:
        """What a part is multiplied by, so that sums stay around 1 at most: carriers have room for that."""
        return 1 / max(self.settings.rate * self.settings.records, 1.0)

    def width(self, schema: Schema) -> int:
        """Numbers in a record."""
        return schema.features

    def records(self, graph: Data, schema: Schema) -> torch.Tensor:
        """A graph's records: ``[n, width]``, of length 1."""
        return ridge.records(graph.x)

    @property
    def hops(self) -> int:
        """No link is read in training."""
        return 0

    def check_own(self, graph: Data, name: str) -> None:
        """That sums over its training records are not cut."""
        held = int(graph.train_mask.sum())
        if held > self.settings.records:
            raise BadInput(
                f"training.records = {self.settings.records}: {name} has {held} training "
                f"{self.record.value}s, and sums over more than that are cut: set "
                f"training.records={2 ** (held - 1).bit_length()} or more"
            )

    def init(self, schema: Schema, seed: int) -> State:
        """Seeded first weights of the hidden layer; the outer one begins at zero."""
        width, hidden, classes = self.width(schema), self.settings.hidden, schema.classes
        random = torch.Generator().manual_seed(seed)
        first = torch.randn(width, hidden, generator=random) / math.sqrt(width)
        layers = (first, torch.zeros(hidden), torch.zeros(hidden, classes), torch.zeros(classes))
        weights = dict(zip(LAYERS, layers, strict=True))
        state = {
            **weights,
            **{SPEED + name: torch.zeros_like(value) for name, value in weights.items()},
            **{MEAN + name: value.clone() for name, value in weights.items()},
        }
        return {**state, TAKEN: torch.zeros((), dtype=torch.float64)}

    def released(self, state: State) -> State:
        """The mean of the weights over all steps, later ones counting for more."""
        return {name: state[MEAN + name] for name in LAYERS}

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """The weights of the last step; for scores the released ones."""
        if channel == self.STEP.name:
            return (like(_layers(self.init(schema, 0))),)
        return self._takes_released(schema) if channel in {c.name for c in self.examiners()} else NOTHING

    def round(self, round: RoundApi, state: State) -> State:
        """One step of a public length along the mean of the gradients so far.

        Its length depends on nothing: neither how many records there are, nor how much noise, needs to be
        known to set a rate.
        """
        return self.stepped(state, round.reduce(self.in_use[0], given=_layers(state)).total)

    def stepped(self, state: State, total: State) -> State:
        """The state after a step along a sum of gradients."""
        s = self.settings
        taken = float(state[TAKEN]) + 1
        speed = {
            name: s.momentum * state[SPEED + name] + (1 - s.momentum) * total[name][0].float()
            for name in LAYERS
        }
        length = torch.cat([value.flatten() for value in speed.values()]).norm().clamp(min=_LEAST)
        after: State = {TAKEN: torch.tensor(taken, dtype=torch.float64)}
        for name in LAYERS:
            weights = state[name] - s.learning_rate * speed[name] / length
            mean = state[MEAN + name]
            after |= {
                name: weights,
                SPEED + name: speed[name],
                MEAN + name: mean + 2 / (taken + 1) * (weights - mean),
            }
        return after

    @STEP.answer
    def gradient(self, client: ClientContext, given: Mapping[str, Any]) -> ContributionSample:
        """The gradients of the cross entropy of the records that the client's coins took."""
        graph, chosen = client.graph, client.sampled()
        chosen = chosen[graph.train_mask[chosen]]
        z = self.read(client, given)[chosen]
        share = self._share
        inner, inner_bias, outer, outer_bias = (torch.nan_to_num(given[name]) for name in LAYERS)
        before = z @ inner + inner_bias
        hidden = before.relu()
        shares = F.softmax(hidden @ outer + outer_bias, dim=1)
        back = (shares - F.one_hot(graph.y[chosen], client.schema.classes).float()) * share
        behind = (back @ outer.T) * (before > 0)
        gradients = (z[:, :, None] * behind[:, None], behind, hidden[:, :, None] * back[:, None], back)
        return ContributionSample(dict(zip(LAYERS, gradients, strict=True)), chosen)

    def read(self, client: ClientContext, given: Mapping[str, Any]) -> torch.Tensor:
        """What the network reads of all that a client holds, ``[n, width]``."""
        return self.records(client.graph, client.schema) * self.settings.length

    def predict(self, params: State, graph: Data, schema: Schema) -> torch.Tensor:
        """Logarithms of shares of classes, which travelled over the graph's links."""
        shares = F.softmax(self.scores(params, graph, schema), dim=1)
        travelled: torch.Tensor = APPNP(self.settings.steps, self.settings.restart)(shares, graph.edge_index)
        return travelled.clamp(min=_LEAST).log()

    def scores(self, params: State, graph: Data, schema: Schema) -> torch.Tensor:
        """The network's class scores of a graph's records."""
        return scores_of(params, self.records(graph, schema) * self.settings.length)


def scores_of(layers: Mapping[str, torch.Tensor], z: torch.Tensor) -> torch.Tensor:
    """The network's class scores ``[n, classes]`` of what it reads, ``[n, width]``."""
    inner, inner_bias, outer, outer_bias = (layers[name] for name in LAYERS)
    return (z @ inner + inner_bias).relu() @ outer + outer_bias


def _layers(state: State) -> State:
    return {name: state[name] for name in LAYERS}
