"""A client: one owner's graph, and what an algorithm sees of it behind the door."""

from __future__ import annotations

import copy
import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from secure_fedgraph.core import inputs as declared
from secure_fedgraph.core.answer_state import AnswerState, Before
from secure_fedgraph.core.channel import Channel, Recipient
from secure_fedgraph.core.door import Door, Draw, OpenedRecorder
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.contracts import Party
from secure_fedgraph.core.spending.ledger import Ledger
from secure_fedgraph.privacy.broadcasts import Beginning, BroadcastCheck
from secure_fedgraph.privacy.dp_sgd import Training
from secure_fedgraph.privacy.input_dp.labels import HOME, RandomisedLabels
from secure_fedgraph.privacy.input_dp.links import CROSS_LINKS
from secure_fedgraph.privacy.input_dp.randomizer import InputRandomizer
from secure_fedgraph.privacy.link_priorities import fresh_key, link_priorities
from secure_fedgraph.privacy.policy import BoundPolicy
from secure_fedgraph.protocol.memory import copied_memory

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from secure_fedgraph.algorithm import Algorithm
    from secure_fedgraph.graph.schema import Schema
    from secure_fedgraph.seams import ClientContext
    from secure_fedgraph.storage.party_store import PartyStore

_ROUND = "last round"
"""The key of the last round that it answered, in its store. No algorithm uses this name."""
_UNPAID = "unpaid steps"
"""The key of the noisy steps that no charge has paid yet, in its store. No algorithm uses this name."""
LINK_KEY = "frozen link key"
"""The memory entry with the secret key of its links' priorities. A failed answer does not undo it."""
Answer = Callable[["ClientContext", dict[str, Any]], Any]
"""An algorithm's method that answers on a channel: anything may come out of somebody else's code."""


class Client(Door):
    """One party that owns data: its graph, its memory, and the answers of an algorithm.

    Guarantees:
        - those of :class:`~secure_fedgraph.core.door.Door`;
        - where its policy limits broadcasts, a model beyond them is refused before anything is computed or
          charged (:class:`~secure_fedgraph.privacy.broadcasts.BroadcastLimits`).

    Args:
        party: name, identity and roster.
        graph: this owner's subgraph. Nobody else reads it.
        schema: public facts about the data.
        algorithm: whose answers this client gives.
        policy: the protections it insists on; its own copy, never read from the wire.
        run: the run's public name.
        ledger: where it charges.
        seed: for sampling and initialisation, which protect nobody.
        witness: called with what this client opens from its peers, so that an experiment can record its view.
        store: where :meth:`save` keeps its memory: this client's own folder.
        after: exchange numbers up to this one are refused, as a resumed run's earlier ones must be.
        data: digest of the graph, by which the ledger recognises whose budget it is.
        last: the run's last round, the warm-up counted: requests of later ones are refused.
        common: a digest of what the server gave all clients before the run: masks and tokens of sums cancel
            among those alone who have the same.
    """

    def __init__(
        self,
        party: Party,
        graph: Data,
        schema: Schema,
        algorithm: Algorithm,
        policy: BoundPolicy,
        run: str,
        ledger: Ledger,
        seed: int,
        witness: OpenedRecorder | None = None,
        store: PartyStore | None = None,
        after: int = -1,
        data: str = "",
        last: int | None = None,
        common: str = "",
    ) -> None:
        self.graph = graph
        self._own = graph
        self.schema = schema
        relation = policy.policy.relation
        self.training = Training(policy.steps, relation) if policy.steps else None
        ledger.check_name(party.name, data, party.roster)
        # before anything is answered: no refusal later may depend on the graph
        check_graph(algorithm, graph, party.name, policy)
        self._algorithm = algorithm
        # answers of this package replace what they keep; others may change it
        state = AnswerState(deep=not type(algorithm).__module__.startswith("secure_fedgraph."))
        super().__init__(party, policy, run, ledger, data, self.training, state, witness, after, last, common)
        limits = policy.broadcasts
        self._broadcasts = None if limits is None else BroadcastCheck(limits, self._beginning)
        self._policy = policy
        self._seed = seed
        self._store = store

    @property
    def memory(self) -> dict[str, Any]:
        """What it keeps from round to round."""
        return self._state.memory

    @memory.setter
    def memory(self, entries: dict[str, Any]) -> None:
        self._state.memory = entries

    @property
    def scratch(self) -> dict[str, Any]:
        """Values of one round: cleared when the next round begins, and never saved."""
        return self._state.scratch

    @scratch.setter
    def scratch(self, entries: dict[str, Any]) -> None:
        self._state.scratch = entries

    @property
    def rounds_ahead(self) -> tuple[int, ...]:
        """The rounds that it was charged for after the last round that its memory holds."""
        charged = self._ledger.rounds(self.name, self._run)
        return tuple(sorted(one for one in charged if one > self.last_round))

    @property
    def clients(self) -> tuple[str, ...]:
        """Everybody's public names, from its own roster."""
        return tuple(self._party.roster)

    @property
    def roster(self) -> Mapping[str, bytes]:
        """Everybody's public identity keys, as it was given them."""
        return self._party.roster

    @property
    def true_labels(self) -> float:
        """The probability that a label of its graph is true: 1 unless labels are randomised."""
        labels = (one for one in self._policy.randomizers if isinstance(one, RandomisedLabels))
        return min((one.truth(self.schema.classes) for one in labels), default=1.0)

    def generator(self, purpose: str) -> torch.Generator:
        """A seeded generator for one purpose in this round. Never for anything that protects somebody."""
        return seeded(self._seed, self.name, self.round, purpose)

    def secret_order(self, size: int) -> torch.Tensor:
        """A random order of ``size`` things from the operating system, which nobody can predict or repeat.

        For draws that protect data: :meth:`generator` depends on a seed that everybody may know.
        """
        # one key at least: an empty buffer has no dtype to view
        keys = torch.frombuffer(bytearray(os.urandom(8 * max(size, 1))), dtype=torch.int64)
        return keys[:size].argsort()

    def noised(self, channel: Channel) -> bool:
        """Whether noise covers what one unit adds to an upload, against anybody: by its own policy."""
        return bool(self._policy[channel.name].releases())

    def sampled(self) -> torch.Tensor:
        """The units that the coins of the upload that is being answered took."""
        if self._coins is None:
            raise BadInput("no channel that samples units is being answered: declare UnitContributionSampled")
        return self._coins

    def link_priorities(self, links: torch.Tensor) -> torch.Tensor:
        """A pseudo-random int64 for each link ``[2, E]``: of its two ends, under a secret key of this client.

        The key is the operating system's and stays in the client's memory: a resumed run has the same.
        """
        if LINK_KEY not in self.memory:
            self.memory[LINK_KEY] = fresh_key()
        return link_priorities(self.memory[LINK_KEY], links)

    def save(self, label: str, committed: str = "") -> None:
        """Saves its memory to its own store. Nothing leaves the client: the folder is its own.

        Keys and answers are not saved: after :meth:`load` clients agree on fresh keys.

        Args:
            label: of the round.
            committed: the label that a resume would ask for now; older ones are dropped.
        """
        self._abandon()
        if self._store is not None:
            kept: dict[str, Any] = {_ROUND: self.last_round}
            if self.training is not None:
                kept[_UNPAID] = self.training.to_text()
            self._store.save({**self.memory, **kept}, label, committed)

    def load(self, label: str) -> None:
        """Loads its memory from its own store, before it has answered anything in this process.

        Raises:
            BadInput: where it is missing or damaged.
            HostileMessage: once it has answered: its counts and draws of this run cannot be undone.
        """
        if self._last[0]:
            raise HostileMessage(f"{self.name} has answered in this run and does not go back to {label!r}")
        if self._store is not None:
            self.memory = self._store.load(label)
            self._resumed = int(self.memory.pop(_ROUND, 0))
            unpaid = self.memory.pop(_UNPAID, "")
            if self.training is not None:
                self.training.take_over(unpaid)
            for one in self._policy.randomizers:
                self._use_randomized(one)

    def score(self, released: Mapping[str, torch.Tensor]) -> dict[str, float]:
        """What a released model makes of this owner's own test nodes, for the owner. Nothing leaves.

        Args:
            released: name -> tensor; empty where the model is this client's own.

        Returns:
            What it would upload about it in band: the measure by its name, and whether it has any test items.
        """
        channel = self._algorithm.METRICS
        before = Before(self.memory, self.scratch)
        answer: Answer = getattr(self._algorithm, self._algorithm.answers[channel.name])
        graph, self.graph = self.graph, self._own
        try:
            return {name: float(value) for name, value in answer(self, dict(released)).values.items()}
        finally:
            self.graph = graph
            before.restore(self.memory, self.scratch)

    def compute(self, channel: Channel, values: dict[str, Any]) -> Any:
        """The algorithm's answer on a channel, from what the channel may read."""
        answer: Answer = getattr(self._algorithm, self._algorithm.answers[channel.name])
        with self._for_the_reader(channel), self._seen_by(channel):
            return answer(self, values)

    def take(self, channel: Channel, opened: Any) -> None:
        """The algorithm reads what peers sent."""
        method: Callable[[ClientContext, Any], None]
        method = getattr(self._algorithm, self._algorithm.readers[channel.name])
        method(self, opened)

    def check_given(self, channel: Channel, round: int, values: dict[str, Any], whose: str) -> None:
        """Checks forms and, where broadcasts are limited, the model: a request that does not fit is free."""
        forms = self._algorithm.expected(channel.name, self.schema)
        if forms is not None:
            declared.check(forms, values, whose)
        if self._broadcasts is not None and channel.to != Recipient.REFEREE:
            scored = channel.name in (self._algorithm.METRICS.name, self._algorithm.SCORES.name)
            holds = self._broadcasts.check_scored if scored else self._broadcasts.check
            holds(channel.name, round, values, self.memory)

    def check_opened(self, channel: Channel, uploads: Mapping[str, Any]) -> None:
        """Checks the forms of what peers sent."""
        forms = self._algorithm.shows(channel.name, self.schema)
        if forms is None:
            return
        for name, values in uploads.items():
            declared.check(forms, values, f"channel {channel.name!r} shows {self.name} of {name}")

    def draws(self) -> Iterator[Draw]:
        """The inputs that its policy randomises and its memory lacks; they replace its own."""
        for one in self._policy.randomizers:
            if _entry_of(one) not in self.memory:
                yield Draw(one.kind, one.unit, one.costs(), partial(self._draw, one))

    def _draw(self, one: InputRandomizer) -> None:
        drawn = one.at(*self._place()).randomize(self.graph, self.schema.classes)
        graph = _with(self.graph, one, drawn)  # first: nothing may stand in the memory that is not in use
        self.graph, self.memory[_entry_of(one)] = graph, drawn

    def covered(self, channel: Channel) -> tuple[str, ...]:
        """What is computed from randomised inputs, or without a part of the data, costs nothing more."""
        return (*(one.unit for one in self._policy.randomizers), *channel.unread)

    def _beginning(self, channel: str) -> Beginning | None:
        """How a channel that gives the model begins, from public facts and the run's seed."""
        limits, declares = self._policy.broadcasts, self._algorithm
        seed = limits.seed if limits is not None else 0
        # what is scored is the model that some channel gives
        scored = channel in (declares.METRICS.name, declares.SCORES.name)
        for name in [one.name for one in declares.in_use] if scored else [channel]:
            start = declares.given_first(name, self.schema, seed)
            if start is not None:
                return Beginning(start, declares.first_round(name))
        return None

    def units(self, unit: Unit) -> int:
        """How many units its own data hold."""
        counts = {
            Unit.CLIENT: 1,
            Unit.GRAPH: len(self.graph.y) if "graph" in self.graph else 1,
            Unit.EDGE: len(self.graph.y) if "pairs" in self.graph else int(self.graph.num_edges),
        }
        return counts.get(unit, int(self.graph.num_nodes or 0))

    def _place(self) -> tuple[int, int]:
        """Its place among all clients by name, and how many they are."""
        names = sorted(self.clients)
        return names.index(self.name), len(names)

    def _use_randomized(self, one: InputRandomizer) -> None:
        if _entry_of(one) in self.memory:
            self.graph = _with(self.graph, one, self.memory[_entry_of(one)])

    @contextmanager
    def _for_the_reader(self, channel: Channel) -> Iterator[None]:
        """For the referee, who is outside every guarantee: true labels in place of randomised ones.

        What the answer writes meanwhile, into the graph too, is dropped: nothing of it is sent to anybody
        else.
        """
        by_owners = (self._algorithm.OWN_TESTS.name, self._algorithm.OWN_SCORES.name)
        scored = channel.to == Recipient.REFEREE and channel.name in by_owners
        own = channel.to == Recipient.REFEREE and channel.name == self._algorithm.COMBINED.name
        true_labels = scored and any(one.place == "y" for one in self._policy.randomizers)
        if not own and not true_labels:
            yield
            return
        graph, memory, scratch = self.graph, self.memory, self.scratch
        shown = self._own if own else graph  # an owner's own model learns from its data as they are
        copied_graph, copied_entries = copy.deepcopy(shown), copied_memory(memory, self.name)
        self.graph, self.memory, self.scratch = copied_graph, copied_entries, dict(scratch)
        if true_labels:
            self.graph.y = self._own.y.clone()
        try:
            yield
        finally:
            self.graph, self.memory, self.scratch = graph, memory, scratch

    @contextmanager
    def _seen_by(self, channel: Channel) -> Iterator[None]:
        """Its graph without what an upload may not depend on, while the upload is made.

        And of the nodes alone that have their home here, where others' homes count the rest.
        """
        if not channel.unread:
            yield
            return
        graph = self.graph
        self.graph = copy.copy(graph)
        for key in () if channel.links else graph.edge_attrs():
            value = graph[key]
            self.graph[key] = value[:, :0] if key == "edge_index" else value[:0]
        if CROSS_LINKS in graph and not channel.links:
            self.graph[CROSS_LINKS] = graph[CROSS_LINKS][:, :0]
        if self.counts_once(channel):
            kept = graph[HOME].bool()
            for key in graph.node_attrs():
                self.graph[key] = graph[key][kept]
            self.graph.num_nodes = int(kept.sum())
        if not channel.labels:
            y = self.graph.y
            self.graph.y = torch.full_like(y, math.nan if y.is_floating_point() else -1)
        if not channel.features:
            self.graph.x = torch.zeros_like(self.graph.x)
        try:
            yield
        finally:
            self.graph = graph

    def counts_once(self, channel: Channel) -> bool:
        """Whether no other client counts what an upload is of."""
        key = "rating" if channel.unit is Unit.EDGE else HOME
        return channel.one_holder and key in self._own


def check_graph(algorithm: Algorithm, graph: Data, name: str, policy: BoundPolicy) -> None:
    """Checks that an algorithm can train on a client's graph, which nothing has randomised yet.

    Raises:
        BadInput: naming what does not fit. The sentence may count the owner's data: it is for the owner.
    """
    algorithm.check_inputs(policy.divided_inputs)
    algorithm.check_own(graph, name)
    if policy.steps:
        algorithm.check_touched(graph, policy.steps.unit)


def is_noised(bound: Bound, policy: BoundPolicy) -> bool:
    """Whether noise on a channel's uploads, or on the training behind them, may earn an epsilon.

    Randomised inputs are not asked about: whatever is made of them, a layout too, costs nothing more.
    """
    return bool(bound.releases()) or (policy.steps is not None and bound.channel.trained)


def is_private(policy: BoundPolicy) -> bool:
    """Whether any noise, or a randomised input, may earn an epsilon."""
    return any(is_noised(one, policy) for one in policy.bounds.values()) or bool(policy.randomizers)


def seeded(seed: int, name: str, round: int, purpose: str) -> torch.Generator:
    """A client's generator; it depends on the seed that all clients share."""
    label = f"{seed}/{name}/{round}/{purpose}".encode()
    own = int.from_bytes(hashlib.sha256(label).digest()[:8], "little") >> 1
    return torch.Generator().manual_seed(own)


def _with(graph: Data, one: InputRandomizer, drawn: Any) -> Data:
    """The graph with what was drawn in place of what it has."""
    made = graph.clone()
    setattr(made, one.place, drawn)
    if one.place == "edge_index" and CROSS_LINKS in made:  # nobody randomised these
        del made[CROSS_LINKS]
    return made


def _entry_of(one: InputRandomizer) -> str:
    """The memory entry with a randomised input. No algorithm uses this name."""
    return f"drawn {one.kind}"
