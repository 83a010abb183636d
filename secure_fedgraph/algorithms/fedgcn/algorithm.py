"""FedGCN: owners exchange sums of their nodes' features once, then train a GCN by FedAvg."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from torch import Tensor, nn
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Form, State
from secure_fedgraph.algorithms.fedavg import FedAvg
from secure_fedgraph.algorithms.fedgcn.gcn import Gcn, OnSums, both_ways, symmetric
from secure_fedgraph.algorithms.fedsgd.graph_sage import FedGcnSteps
from secure_fedgraph.algorithms.training.settings import TrainingSettings
from secure_fedgraph.algorithms.training.weighting import AveragingSettings
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.inputs import NOTHING, Entry, Expected, Numbers
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models.parameters import load
from secure_fedgraph.seams import ClientContext, RoundApi, Total


class FedGcnSettings(AveragingSettings):
    """How a client trains its GCN, and what it asks the others for before.

    A step takes all of the client's nodes. ``fanout``, ``places`` and ``crowd`` have no effect: nothing is
    sampled.

    Args:
        hops: of what is exchanged before training: 0 nothing (FedAvg of a GCN), 1 the sums that the first
            layer needs at an owner's own nodes, 2 also those at the neighbours that other owners have, with
            which both layers are as on the whole graph.
        hidden: one width, of the layer between the two.
    """

    hops: Literal[0, 1, 2] = 2
    learning_rate: float = Field(0.5, gt=0, allow_inf_nan=False)
    optimizer: Literal["adam", "sgd"] = "sgd"
    weight_decay: float = Field(5e-4, ge=0, allow_inf_nan=False)
    batch: Literal["full"] = "full"
    epochs: int = Field(3, ge=1)
    fanout: tuple[()] = ()
    hidden: tuple[int] = (16,)
    network: Literal["gcn"] = "gcn"
    dropout: float = Field(0.5, ge=0, lt=1)

    @field_validator("fanout")
    @classmethod
    def _check_fanout(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return value  # nothing is sampled: none, as written down in a run's configuration

    @field_validator("hidden")
    @classmethod
    def _check_hidden(cls, value: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        if value[0] < 1:
            raise PydanticCustomError("hidden", "give one width, 1 or more")
        return value


SHARE = 2.0**-8
"""Sums travel times this, since fixed point carries small numbers: a node's sum may hold values up to 2048
under a limit of 8, in steps of about 1e-5."""
SUMS, COUNTS = "sums", "counts"


class OwnersGraph:
    """One owner's part, with its links to others' nodes.

    Args:
        graph: with ``x``, ``edge_index``; ``cross_links``, ``home`` and ``node_id`` where it has them
            (:func:`~secure_fedgraph.graph.partition.cross_links.note_cross_links`).
        hops: as in the settings; at 0 links to others' nodes do not count.

    Attributes:
        ids: ``[n]`` of the owner's nodes.
        crossing: ``[2, C]``: an own node, and the id of its neighbour at another owner.
        degree: ``[n]`` links of each node, those to others' nodes too, and one for itself.
    """

    def __init__(self, graph: Data, hops: int) -> None:
        assert graph.x is not None
        assert graph.edge_index is not None
        self.x: Tensor = graph.x
        self.links, self.hops = both_ways(graph.edge_index), hops
        nodes = len(self.x)
        # randomised links come without those to others' nodes
        none = torch.zeros(2, 0, dtype=torch.long)
        self.crossing: Tensor = graph.get("cross_links", none) if hops else none
        self.ids: Tensor = graph.get("node_id", torch.arange(nodes))
        self.home: Tensor = graph.get("home", torch.ones(nodes, dtype=torch.bool))
        self.degree = self._degrees()

    def without_crossing(self) -> Self:
        """The same part without links to others' nodes."""
        made = copy.copy(self)
        made.crossing = self.crossing[:, :0]
        made.degree = made._degrees()
        return made

    def _degrees(self) -> Tensor:
        met = torch.cat([self.links[1], self.crossing[0]])
        return torch.bincount(met, minlength=len(self.x)) + 1.0

    @property
    def scaled(self) -> Tensor:
        """Each node's term in its neighbours' sums, ``[n, features]``: ``x_u / sqrt(d_u)``."""
        return self.x * self.degree.rsqrt().unsqueeze(1)

    @property
    def asked(self) -> Tensor:
        """The ids whose sums it asks for: its own nodes', and for two hops those of their neighbours."""
        further = self.crossing[1].unique() if self.hops == 2 else self.ids[:0]
        return torch.cat([self.ids, further])

    def answer(self, asked: Tensor, own: int) -> dict[str, Tensor]:
        """What this owner's nodes add to the sums at the nodes that another asks about.

        The other adds its own nodes itself, so what it says it holds adds nothing here.

        Args:
            asked: ``[rows]`` ids; the first ``own`` are of nodes that the other holds.
            own: how many.

        Returns:
            ``sums [rows, features]`` and ``counts [rows]`` of the terms in them, both times :data:`SHARE`.
        """
        here = torch.arange(len(self.ids))
        counted = self.home & ~torch.isin(self.ids, asked[:own])
        sources = torch.cat([here, self.links[0], self.crossing[0]])
        targets = torch.cat([self.ids, self.ids[self.links[1]], self.crossing[1]])
        return _added(self.scaled, sources[counted[sources]], targets[counted[sources]], asked)

    def completed(self, others: Mapping[str, Tensor] | None) -> tuple[Tensor, Tensor]:
        """The first layer's sums and the second layer's links, as ``Gcn.from_sums``
        takes them.

        Args:
            others: what the other owners' answers add up to, at :attr:`asked`; None before the exchange.

        Returns:
            ``[sources, features]`` and sparse ``[n, sources]``. The first n sources are the owner's nodes.
        """
        nodes = len(self.ids)
        here = torch.arange(nodes)
        if others is None:
            adjacency = symmetric(self.links, self.degree, self.degree)
            return torch.sparse.mm(adjacency, self.x), adjacency
        asked = self.asked
        sources = torch.cat([here, self.links[0], self.crossing[0]])
        targets = torch.cat([self.ids, self.ids[self.links[1]], self.crossing[1]])
        own = _added(self.scaled, sources, targets, asked)
        sums, counts = ((own[key] + others[key]) / SHARE for key in (SUMS, COUNTS))
        # a neighbour's degree is the number of terms in its sum; each is one term at least: the node itself
        degree = torch.cat([self.degree, counts[nodes:].clamp(min=1)])
        links = self.links
        if self.hops == 2:
            order = asked[nodes:]  # ascending, as unique() gives them
            beyond = torch.stack(
                [nodes + torch.searchsorted(order, self.crossing[1].contiguous()), self.crossing[0]]
            )
            links = torch.cat([links, beyond], dim=1)
        return sums * degree.rsqrt().unsqueeze(1), symmetric(links, self.degree, degree)


def _added(terms: Tensor, sources: Tensor, targets: Tensor, asked: Tensor) -> dict[str, Tensor]:
    """The sums of terms at the asked ids, and how many terms there are in each."""
    order = asked.argsort()
    ids, rows = asked[order].unique_consecutive(return_inverse=True)
    place = torch.searchsorted(ids, targets).clamp(max=len(ids) - 1)
    wanted = ids[place] == targets
    place, sources = place[wanted], sources[wanted]
    picks = torch.sparse_coo_tensor(
        torch.stack([place, sources]), torch.full((len(place),), SHARE), (len(ids), len(terms)),
        check_invariants=True,
    )  # fmt: skip
    back = torch.empty_like(order)
    back[order] = rows  # an id that is asked twice gets the same sum twice
    counts = torch.bincount(place, minlength=len(ids)) * SHARE
    return {SUMS: torch.sparse.mm(picks, terms)[back], COUNTS: counts[back]}


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
