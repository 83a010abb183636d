"""FedSGD on records: a step is one masked sum over owners, under one noise; links at inference only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch_geometric.data import Data

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fedsgd.heads.head import Head
from secure_fedgraph.algorithms.fedsgd.heads.perceptron import GraphPerceptron, NodePerceptron
from secure_fedgraph.algorithms.fedsgd.settings import GraphSgdSettings, SgdSettings
from secure_fedgraph.algorithms.training.records import OfRecords, check_held
from secure_fedgraph.core.channel import Channel, Reveal, UnitContributionSampled
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.inputs import NOTHING, Expected, like
from secure_fedgraph.core.upload import ContributionSample
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.seams import ClientContext, RoundApi

SPEED, MEAN, TAKEN = "speed.", "mean.", "taken"
"""Before a weight's name: the mean of gradients, and of weights; and how many steps were taken."""
_LEAST = 1e-12


class FedSgd(OfRecords):
    """A small network, trained by steps that all owners take together: one record's gradient, one noise.

    A record is a training node: its features, of length 1, and its class. Each round coins of each owner take
    some of its records, the owner clips each record's gradient and adds them up, and the server steps along
    the sum over all owners. Under ``distributed_dp`` owners add shares of one noise: the sum is as private
    as DP-SGD on everybody's records in one place, and as accurate. The released weights are a mean over
    steps. Links are used where predictions are made, and are the reader's: shares of classes travel over
    them.

    Guarantees:
        - one node is one record, which is in a step by secret coins: the client enforces its gradient's
          length and its coins, so noise on the sum has a finite epsilon for a node;
        - nothing that is sent depends on a link.

    Needs:
        - thousands of records: with a thousand,
          :class:`~secure_fedgraph.algorithms.fedridge.algorithm.FedRidge` gets more of the same budget.

    Args:
        settings: :class:`~secure_fedgraph.algorithms.fedsgd.settings.SgdSettings`.

    References:
        McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017
        (FedSGD); Abadi et al., Deep Learning with Differential Privacy, CCS 2016; Kairouz, Liu, Steinke, The
        Distributed Discrete Gaussian Mechanism, ICML 2021; Gasteiger et al., Predict then Propagate, 2019.
    """

    name = "fedsgd"
    tasks: ClassVar[tuple[str, ...]] = tuple(Task)
    summary = "a network on features, trained by steps under one shared noise; links at inference only"
    reference = "McMahan et al. 2017"
    rounds = 200
    data: ClassVar[str] = "pubmed"
    partitions: ClassVar[tuple[str, ...]] = ("louvain", "louvain_compiled", "random", "label_skew")
    Settings: ClassVar[type[SgdSettings]] = SgdSettings
    settings: SgdSettings
    trains: ClassVar[type[NodePerceptron]] = NodePerceptron
    without_links: ClassVar[Mapping[str, Any] | None] = {"steps": 0}

    STEP = Channel("step", Reveal.SUM, gives_model=True)

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

    @property
    def head(self) -> Head:
        """What is trained."""
        return self.trains(self.settings)

    @property
    def hops(self) -> int:
        """No link is read in training."""
        return 0

    def check_own(self, graph: Data, name: str) -> None:
        """That sums over its training records are not cut."""
        held = int(graph.train_mask.sum())
        check_held(held, self.settings.records, name, f"training {self.record.value}")

    def init(self, schema: Schema, seed: int) -> State:
        """The head's seeded first weights."""
        weights = self.head.init(schema, seed)
        state = {
            **weights,
            **{SPEED + name: torch.zeros_like(value) for name, value in weights.items()},
            **{MEAN + name: value.clone() for name, value in weights.items()},
        }
        return {**state, TAKEN: torch.zeros((), dtype=torch.float64)}

    def released(self, state: State) -> State:
        """The mean of the weights over all steps, later ones counting for more."""
        return {name: state[MEAN + name] for name in self.trained(state)}

    def trained(self, state: Mapping[str, torch.Tensor]) -> State:
        """The weights that steps move, without what the server keeps beside them."""
        beside = (SPEED, MEAN)
        return {name: value for name, value in state.items() if name != TAKEN and not name.startswith(beside)}

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """The weights of the last step; for scores the released ones."""
        if channel == self.STEP.name:
            return (like(self.head.init(schema, 0)),)
        return self._takes_released(schema) if channel in {c.name for c in self.examiners()} else NOTHING

    def round(self, round: RoundApi, state: State) -> State:
        """One step of a public length along the mean of the gradients so far.

        Its length depends on nothing: neither how many records there are, nor how much noise, needs to be
        known to set a rate.
        """
        return self.stepped(state, round.reduce(self.in_use[0], given=self.trained(state)).total)

    def stepped(self, state: State, total: State) -> State:
        """The state after a step along a sum of gradients."""
        weights, s = self.trained(state), self.settings
        taken = float(state[TAKEN]) + 1
        speed = {
            name: s.momentum * state[SPEED + name] + (1 - s.momentum) * total[name][0].float()
            for name in weights
        }
        length = torch.cat([value.flatten() for value in speed.values()]).norm().clamp(min=_LEAST)
        after: State = {TAKEN: torch.tensor(taken, dtype=torch.float64)}
        for name, before in weights.items():
            moved = before - s.learning_rate * speed[name] / length
            mean = state[MEAN + name]
            after |= {
                name: moved,
                SPEED + name: speed[name],
                MEAN + name: mean + 2 / (taken + 1) * (moved - mean),
            }
        return after

    @STEP.answer
    def gradient(self, client: ClientContext, given: Mapping[str, Any]) -> ContributionSample:
        """The gradients of the cross entropy of the records that the client's coins took."""
        graph, chosen = client.graph, client.sampled()
        chosen = chosen[graph.train_mask[chosen]]
        finite = {name: torch.nan_to_num(value) for name, value in given.items()}
        found = self.gradients(client, finite, chosen)
        return ContributionSample({name: value * self._share for name, value in found.items()}, chosen)

    def gradients(self, client: ClientContext, given: State, chosen: torch.Tensor) -> State:
        """One gradient for each of some records of a client, by name of a weight: ``[k, ...]``.

        Args:
            given: what the server sent, finite.
            chosen: numbers of the records, ``[k]``.
        """
        return self.head.gradients(given, client.graph, chosen, client.schema)

    def predict(self, params: State, graph: Data, schema: Schema) -> torch.Tensor:
        """The head's scores, with the links that the reader has."""
        return self.head.predict(params, graph, schema)


class GraphFedSgd(FedSgd):
    """A small network on what describes a graph, by steps under one shared noise.

    Guarantees:
        - one graph is one record: as :class:`~secure_fedgraph.algorithms.fedsgd.algorithm.FedSgd`, for a
          graph, and for any node or link of it.

    Args:
        settings: :class:`~secure_fedgraph.algorithms.fedsgd.settings.GraphSgdSettings`.
    """

    name = "fedsgd-graphs"
    summary = "a network on what describes a graph, trained by steps under one shared noise"
    rounds = 100
    data: ClassVar[str] = "proteins"
    clients: ClassVar[Mapping[str, int]] = {"proteins": 10, "dd": 10, "imdb-binary": 10}
    kinds: ClassVar[tuple[str, ...]] = ("graph",)
    partitions: ClassVar[tuple[str, ...]] = ("random", "file_order", "dirichlet")
    Settings: ClassVar[type[SgdSettings]] = GraphSgdSettings
    trains: ClassVar[type[NodePerceptron]] = GraphPerceptron
    alone = "gin-local"
    record: Unit = Unit.GRAPH
    reads_links: bool = True
    without_links = None


FedSgd.of_graphs = GraphFedSgd
