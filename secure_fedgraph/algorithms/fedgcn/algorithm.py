"""FedGCN: owners exchange sums of their nodes' features once, then train a GCN by FedAvg."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import nn
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Form, State
from secure_fedgraph.algorithms.fedavg import FedAvg
from secure_fedgraph.algorithms.fedgcn.gcn import Gcn, OnSums
from secure_fedgraph.algorithms.fedgcn.neighbour_sums import COUNTS, SUMS, OwnersGraph
from secure_fedgraph.algorithms.fedgcn.settings import FedGcnSettings
from secure_fedgraph.algorithms.fedsgd.graph_sage import FedGcnSteps
from secure_fedgraph.algorithms.training.settings import TrainingSettings
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.inputs import NOTHING, Entry, Expected, Numbers
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models.parameters import load
from secure_fedgraph.seams import ClientContext, RoundApi, Total

MOST = 2**28
"""Values of one answer that an owner makes for another (1 GiB)."""
LARGEST_ID = 2**24
"""Up to this whole numbers are exact in float32, in which uploads travel."""
_IDS, _OWN = "ids", "own"
_MEMORY, _CROSSING = "sums of others", "crossing"


class FedGcn(FedAvg):
    """FedAvg of a two-layer GCN over parts of one graph, whose owners first complete each other's sums.

    The first round exchanges, before any training: every owner names its nodes (and, for two hops, their
    neighbours that other owners have), the others answer with the sums of their own nodes' scaled features
    at these, ``sum_u x_u / sqrt(d_u)`` over neighbours ``u``, and how many there are. The owner reads the
    sum of the answers and adds its own nodes. With ``hops=2`` both layers then compute at its nodes what
    they would on the graph of all owners; with 1 the second layer misses neighbours at other owners; with 0
    nothing is exchanged, which is FedAvg of a GCN on each owner's own links.

    Owners may hold the same node. Each node has one owner that adds it, the first of its holders.

    Guarantees:
        - under ``masked`` and ``homomorphic`` the server reads neither ids nor sums, only their sizes; an
          owner reads the sum over the others, and no single answer;
        - nothing about an owner's data decides whether it answers.

    What leaks: sums are **per node**. The owner that reads one reads the exact features of whoever is the
    only term in it, whatever protects the way there (attack ``c6-neighbour-sums``). The others learn which
    nodes it holds and, for two hops, which of theirs are its neighbours. No noise binds to ids, so policies
    of noise take the form ``hops=0``.

    Needs: owners who agree on ids, and who know the ids at the other end of their links
    (:func:`~secure_fedgraph.graph.partition.cross_links.note_cross_links`). Made-up owners of one data set
    do.

    References:
        Yao, Jin, Ravi, Joe-Wong, FedGCN: Convergence-Communication Tradeoffs in Federated Training of Graph
        Convolutional Networks, NeurIPS 2023, section 4, algorithm 1.
    """

    name = "fedgcn"
    tasks: ClassVar[tuple[str, ...]] = (Task.CLASSES,)
    summary = "neighbours' feature sums exchanged once, then a GCN averaged"
    reference = "Yao et al., NeurIPS 2023"
    rounds = 100
    kinds: ClassVar[tuple[str, ...]] = ("node",)
    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    partitions: ClassVar[tuple[str, ...]] = ("random", "louvain", "louvain_compiled", "label_skew")
    clients: ClassVar[Mapping[str, int]] = {"cora": 5, "citeseer": 5}
    own_models: ClassVar[bool] = False
    steps_on_sums = FedGcnSteps
    Settings: ClassVar[type[TrainingSettings]] = FedGcnSettings
    settings: FedGcnSettings
    forms = (Form({"hops": 0}, "no sums are exchanged before training, so it is FedAvg of a GCN"),)

    WANTED = Channel(
        "wanted_nodes",
        Reveal.EACH,
        to="peer",
        exact=True,
        why="an owner answers about the very nodes that are asked for",
    )
    SUMS = Channel("neighbour_sums", Reveal.SUM, Unit.NODE, to="peer")

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """Without an exchange, the updates alone."""
        used = super().in_use
        return used if self.settings.hops else tuple(c for c in used if c.to != "peer")

    @property
    def warm_up(self) -> int:
        """The round of the exchange."""
        return min(self.settings.hops, 1)

    @property
    def hops(self) -> int:
        """One link a layer."""
        return 2

    def uses(self, channel: Channel, rounds: int, clients: int) -> int:
        """Each owner names its nodes once, and answers every other owner once."""
        if channel.name == self.WANTED.name:
            return 1
        return clients - 1 if channel.name == self.SUMS.name else rounds

    def occurrences(self, unit: str) -> int:
        """None: a step takes all nodes at once.

        Raises:
            BadInput: always.
        """
        raise BadInput(
            f"{self.name} takes its steps on all nodes at once, so no record is one {unit}: use "
            f"--policy distributed_dp --unit {unit}, or fedavg, fedprox or fedsage"
        )

    def check_own(self, graph: Data, name: str) -> None:
        """That the owner knows its links to others' nodes."""
        if not self.settings.hops:
            return
        if graph.get("cross_links") is None or graph.get("node_id") is None:
            raise BadInput(
                f"{name}: the data do not say which nodes of other owners its own are linked to "
                "(cross_links, node_id), so no sums can be exchanged: set training.hops=0"
            )
        largest = max(int(ids.max()) for ids in (graph.node_id, graph.cross_links[1]) if len(ids))
        if largest > LARGEST_ID:
            raise BadInput(f"{name}: node_id {largest}: number the nodes from 0 to {LARGEST_ID}")

    # --- the exchange

    def round(self, round: RoundApi, state: State) -> State:
        """The exchange, or a round of FedAvg."""
        if round.number > self.warm_up:
            return super().round(round, state)
        for wanted in round.collect(self.WANTED).values():
            round.reduce_for(self.SUMS, wanted)
        return state

    @WANTED.answer
    def wanted_nodes(self, client: ClientContext, given: State) -> Upload:
        """The ids whose sums this owner asks for, and how many of them are its own nodes."""
        own = self._owners_graph(client)
        return Upload({_IDS: own.asked.float(), _OWN: torch.tensor(float(len(own.ids)))})

    @SUMS.answer
    def neighbour_sums(self, client: ClientContext, given: dict[str, Any]) -> Upload:
        """What this owner's nodes add to the sums that another asks for."""
        wanted = given[self.WANTED.name]
        ids, own = wanted[_IDS].round().long(), int(wanted[_OWN])
        if not 0 <= own <= len(ids):
            raise HostileMessage(f"{own} nodes of its own among {len(ids)} that it asks about")
        if len(ids) * (client.schema.features + 1) > MOST:
            raise HostileMessage(
                f"{len(ids)} nodes at once, whose sums are more than {MOST} values: split the owner's part"
            )
        if not len(ids) or int(ids.min()) < 0:
            raise HostileMessage(f"{len(ids)} nodes whose numbers are not from 0 on")
        return Upload(self._owners_graph(client).answer(ids, own))

    @SUMS.read
    def complete(self, client: ClientContext, answered: Total) -> None:
        """Keeps the others' part of the sums."""
        own = self._owners_graph(client)
        due, others = len(own.asked), {name: value.float() for name, value in answered.total.items()}
        if wrong := [key for key in (SUMS, COUNTS) if len(others[key]) != due]:
            read = len(others[wrong[0]])
            raise HostileMessage(f"{client.name} asked about {due} nodes and read {read} {wrong[0]}")
        client.memory[_MEMORY] = {**others, _CROSSING: torch.tensor(own.crossing.shape[1])}

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """Nothing, another owner's question, or the model."""
        if channel == self.WANTED.name:
            return NOTHING
        if channel == self.SUMS.name:
            return tuple({self.WANTED.name: question} for question in self._questions())
        return super().takes(channel, schema)

    def shows(self, channel: str, schema: Schema) -> Expected | None:
        """A question, or the sums of all answers to it."""
        if channel == self.WANTED.name:
            return self._questions()
        if channel == self.SUMS.name:
            return ({SUMS: Numbers((None, schema.features)), COUNTS: Numbers((None,))},)
        return super().shows(channel, schema)

    @staticmethod
    def _questions() -> tuple[dict[str, Entry], ...]:
        return ({_IDS: Numbers((None,)), _OWN: Numbers(())},)

    # --- the model

    def model(self, schema: Schema) -> Gcn:
        """A fresh GCN of the right shape."""
        s = self.settings
        return Gcn(schema.features, schema.classes, s.hidden[0], s.dropout)

    def in_training(self, client: ClientContext, model: nn.Module) -> nn.Module:
        """The network on this owner's sums."""
        assert isinstance(model, Gcn)
        return OnSums(model, *self._completed(client), client.generator("dropout"))

    def scores_at_home(self, client: ClientContext, params: State) -> torch.Tensor:
        """With the sums that the owner has, as in training."""
        model = self.model(client.schema)
        load(model, params)
        model.eval()
        with torch.no_grad():
            return model.from_sums(*self._completed(client))

    def _completed(self, client: ClientContext) -> tuple[torch.Tensor, torch.Tensor]:
        """An owner that missed the exchange trains on its own part alone.

        Where links are randomised, the exchange was without those to others' nodes. The owner's own tests are
        scored on its real links, so those to others' nodes are left out there too: nobody sent their terms.
        """
        others, own = client.memory.get(_MEMORY), self._owners_graph(client)
        if others is not None and not int(others.get(_CROSSING, 1)):
            own = own.without_crossing()
        return own.completed(others)

    def _owners_graph(self, client: ClientContext) -> OwnersGraph:
        return OwnersGraph(client.graph, self.settings.hops)
