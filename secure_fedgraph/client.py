"""A client: one owner's graph, its memory, and the one door through which anything leaves it."""

from __future__ import annotations

import copy
import hashlib
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from secure_fedgraph.core import given as declared
from secure_fedgraph.core import history, wire
from secure_fedgraph.core.accounting.epsilon import Event
from secure_fedgraph.core.carriers import key_agreement
from secure_fedgraph.core.channel import Channel, Domain, Reveal
from secure_fedgraph.core.errors import BadInput, HostileMessage, WrongType
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.history import History, split_given_and_carrier
from secure_fedgraph.core.memory import Before, copied_memory
from secure_fedgraph.core.message import ANSWER, CARRIER, Message, digest
from secure_fedgraph.core.parcel import OFFER, READ, Bundle, Parcel
from secure_fedgraph.core.protection.bound import Bound, Sum
from secure_fedgraph.core.protection.contracts import Scope
from secure_fedgraph.core.protection.party import Party
from secure_fedgraph.core.spending.ledger import Charge, Ledger
from secure_fedgraph.core.upload import AnyUpload, ContributionSample, Upload
from secure_fedgraph.privacy.broadcasts import Beginning, BroadcastCheck
from secure_fedgraph.privacy.dp_sgd import Training
from secure_fedgraph.privacy.input_dp.labels import HOME, RandomisedLabels
from secure_fedgraph.privacy.input_dp.links import CROSS_LINKS
from secure_fedgraph.privacy.input_dp.randomizer import InputRandomizer
from secure_fedgraph.privacy.link_priorities import fresh_key, link_priorities
from secure_fedgraph.privacy.policy import BoundPolicy
from secure_fedgraph.protocol.transcript import PEER, REFEREE, SERVER

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from secure_fedgraph.algorithm import Algorithm
    from secure_fedgraph.graph.schema import Schema
    from secure_fedgraph.seams import ClientContext
    from secure_fedgraph.storage.party_store import PartyStore

_LOG = logging.getLogger("secure_fedgraph.client")

_ROUND = "last round"
"""The key of the last round that it answered, in its store. No algorithm uses this name."""
_UNPAID = "unpaid steps"
"""The key of the noisy steps that no charge has paid yet, in its store. No algorithm uses this name."""
LINK_KEY = "frozen link key"
"""The memory entry with the secret key of its links' priorities. A failed answer does not undo it."""
Answer = Callable[["ClientContext", dict[str, Any]], Any]
"""An algorithm's method that answers on a channel: anything may come out of somebody else's code."""
OpenedRecorder = Callable[[str, int, int, str, tuple[str, ...], Mapping[str, Any]], None]
"""(reader, round, exchange, channel, contributors, values): the experiment's note of what was opened."""


class Client:
    """One party that owns data.

    Guarantees:
        - :meth:`handle` is the only way out: whatever it returns was computed for a declared channel and
          sealed by the protection bound to it; a channel without a protection does not leave;
        - the ledger is charged before the reply exists;
        - rounds never go back, not even after a resume: a request of an earlier round than the last is
          refused;
        - an exchange number is answered once: the identical request gets the identical bytes again at no
          charge, a different one under the same or a lower number is refused;
        - cohorts smaller than the protection's quorum, with strangers, or without this client, are refused;
        - the masks that hide an upload in a sum are bound to everything that the server gave to all clients
          alike in this run, and to what this client is reported to have missed
          (:class:`~secure_fedgraph.core.history.History`);
        - where its policy limits broadcasts, a model beyond them is refused before anything is computed or
          charged (:class:`~secure_fedgraph.privacy.broadcasts.BroadcastLimits`);
        - an answer that fails sends nothing, is charged as an upload without noise, and leaves its memory and
          its scratch as before. Some carriers confirm that a sum is complete (``masked`` does). Under them
          the client undoes an answer whose sum was never confirmed. Counts of
          releases and randomised inputs are not undone. The referee's questions change nothing.

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
        self.memory: dict[str, Any] = {}
        self.scratch: dict[str, Any] = {}
        """Values of one round: cleared when the next round begins, and never saved."""
        self.round = 0
        self._party = party
        relation = policy.policy.relation
        self.training = Training(policy.steps, relation) if policy.steps else None
        ledger.check_name(party.name, data, party.roster)
        # before anything is answered: no refusal later may depend on the graph
        check_graph(algorithm, graph, party.name, policy)
        self._algorithm = algorithm
        self._in_place = not type(algorithm).__module__.startswith("secure_fedgraph.")
        """Whether answers may change what they keep: those of this package replace it."""
        limits = policy.broadcasts
        self._broadcasts = None if limits is None else BroadcastCheck(limits, self._beginning)
        self._policy = policy
        self._run = run
        self._ledger = ledger
        self._seed = seed
        self._data = data
        self._witness = witness
        self._store = store
        # the ledger has the number too, in case the caller's is too small
        self._answered = max(after, ledger.answered(party.name, run))
        self._delivered = after
        self._last_round = self._resumed = 0
        self._rounds = last
        self._offered = 0
        self._coins: torch.Tensor | None = None
        self._last: tuple[str, bytes] = ("", b"")
        bounds = policy.bounds.values()
        self._alike = frozenset(b.channel.name for b in bounds if b.channel.alike and b.channel.to != REFEREE)
        once = [b.channel.name for b in bounds if b.channel.once]
        self._history = History(run, once, common) if policy.agrees_on_keys else None
        self._before: Before | None = None
        self._unconfirmed: tuple[str, Before, History | None] | None = None
        """The channel whose sum is not known to be complete, and what to go back to if it never is."""

    @property
    def name(self) -> str:
        """This client's public name."""
        return self._party.name

    @property
    def answered(self) -> int:
        """The number of the last exchange that it answered in this run, in this process or an earlier one."""
        return self._answered

    @property
    def rounds_ahead(self) -> tuple[int, ...]:
        """The rounds that it was charged for after the last round that its memory holds."""
        charged = self._ledger.rounds(self.name, self._run)
        return tuple(sorted(one for one in charged if one > self.last_round))

    @property
    def last_round(self) -> int:
        """The last round that it answered, or that is in the memory that it loaded; 0 for none."""
        return max(self._last_round, self._resumed)

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
            self.memory, self._unconfirmed = self._store.load(label), None
            self._resumed = int(self.memory.pop(_ROUND, 0))
            unpaid = self.memory.pop(_UNPAID, "")
            if self.training is not None:
                self.training.take_over(unpaid)
            for one in self._policy.randomizers:
                self._use_randomized(one)

    def handle(self, raw: bytes) -> bytes:
        """Answers one request: the only door out.

        Args:
            raw: a :class:`~secure_fedgraph.core.message.Message` as bytes.

        Returns:
            The reply's bytes.

        Raises:
            HostileMessage: for a request that no honest server sends.
            Refused: where privacy says no.
        """
        request = Message.from_bytes(raw)
        self._check_address(request)
        request_digest = digest(raw)
        if self._last[0] == request_digest:
            return self._last[1]
        self._refuse_replays(request)
        self._abandon_if_skipped(request)
        if request.round != self.round:
            self.scratch.clear()
        self.round = request.round
        history_before = copy.copy(self._history)
        try:
            reply = request.reply(wire.pack(self._answer(request))).to_bytes()
        except BaseException:  # the request had no effect, so it counts as missed
            self._restore_memory()
            self._history = history_before
            raise
        self._commit_memory(request, history_before)
        self._last, self._last_round = (request_digest, reply), request.round
        return reply

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

    def _abandon_if_skipped(self, request: Message) -> None:
        """A request that is not the next step of an unconfirmed sum shows that the sum was abandoned."""
        if self._unconfirmed is not None:
            channel = self._unconfirmed[0]
            steps = self._policy[channel].carrier.steps_after_upload
            if request.channel != channel or request.step not in steps:
                self._abandon()

    def _abandon(self) -> None:
        if self._unconfirmed is not None:
            _, before, self._history = self._unconfirmed
            before.restore(self.memory, self.scratch)
            self._unconfirmed = None

    def _restore_memory(self) -> None:
        if self._before is not None:
            self._before.restore(self.memory, self.scratch)
            self._before = None

    def _commit_memory(self, request: Message, history_before: History | None) -> None:
        """Keeps what an answer changed: at once, or when the carrier shows that the sum is complete."""
        before, self._before = self._before, None
        bound = self._policy.bounds.get(request.channel)
        if bound is None or not bound.carrier.confirming_step:
            return
        if request.step == bound.carrier.confirming_step:
            self._unconfirmed = None
        elif request.step == ANSWER and before is not None:
            self._unconfirmed = (request.channel, before, history_before)

    def _save_memory(self) -> None:
        """From here on, what the answer changes can be undone."""
        self._before = Before(self.memory, self.scratch, deep=self._in_place)

    def _answer(self, request: Message) -> wire.Tree:
        given = request.tree()
        scope = Scope(request.run, request.round, request.exchange, request.channel, request.cohort)
        if request.channel.startswith(CARRIER):
            return self._set_up(request, given, scope)
        bound = self._policy[request.channel]
        self._check_reader(request, bound)
        if request.step == READ and bound.channel.to == PEER:
            return self._read(bound, given, request)
        if request.step != ANSWER:
            return bound.carrier.answer(request.step, given, scope, self._party)
        part: wire.Tree = {}
        if bound.carrier.tolerates_dropouts:
            given, part = split_given_and_carrier(given)
        scope = replace(scope, history_head=self._recorded(request, given))
        if len(scope.cohort) < bound.quorum:
            raise HostileMessage(
                f"channel {bound.channel.name!r}: {self.name} answers cohorts of at least "
                f"{bound.quorum} and was asked in one of {len(scope.cohort)}: ask more, or set "
                "protection.quorum lower"
            )
        if bound.carrier.tolerates_dropouts:
            bound.carrier.accept(part, scope, self._party)
        return self._upload(bound, given, scope)

    def _recorded(self, request: Message, given: wire.Tree) -> str:
        """The head of the history. A request that gives all clients the same is added to it first."""
        if self._history is None or request.sender != SERVER:
            return ""
        missed = history.from_bytes(request.missed)
        self._history.catch_up(missed, request.exchange, self._alike)
        if request.channel in self._alike:
            self._history.add(
                history.exchange_of(request.exchange, request.round, request.channel, request.cohort, given)
            )
        return self._history.head

    def _set_up(self, request: Message, given: wire.Tree, scope: Scope) -> wire.Tree:
        if request.sender != SERVER:
            raise HostileMessage(f"{self.name} sets up {request.channel!r} with the server only")
        carriers = self._policy.carriers
        name = request.channel.removeprefix(CARRIER)
        if name == key_agreement.NAME and any(carrier.agrees_on_keys for carrier in carriers.values()):
            return key_agreement.answer(request.step, given, scope, self._party)
        if name not in carriers:
            raise HostileMessage(f"{self.name} uses no {request.channel!r}")
        return carriers[name].answer(request.step, given, scope, self._party)

    def _upload(self, bound: Bound, given: wire.Tree, scope: Scope) -> wire.Tree:
        channel = bound.channel
        name = self._algorithm.answers[channel.name]
        answer: Answer = getattr(self._algorithm, name)
        values, offerer, offered = self._given(given, scope)
        if channel.to == PEER and channel.reveal is Reveal.SUM:
            if not offerer or offerer in scope.cohort:
                raise HostileMessage(
                    f"channel {channel.name!r} answers the offer of a peer outside the cohort: "
                    f"{offerer or 'none'!r} came with the ask"
                )
            scope = replace(scope, reader=offerer, offer=offered)
        elif channel.to == PEER:
            self._offered = scope.exchange
        forms = self._algorithm.expected(channel.name, self.schema)
        if forms is not None:  # before the first charge: a request that does not fit costs nothing
            whose = f" {offerer}'s offer" if offerer else ""
            declared.check(forms, values, f"channel {channel.name!r} gives {self.name}{whose}")
        if self._broadcasts is not None and channel.to != REFEREE:
            scored = channel.name in (self._algorithm.METRICS.name, self._algorithm.SCORES.name)
            holds = self._broadcasts.check_scored if scored else self._broadcasts.check
            holds(channel.name, scope.round, values, self.memory)
        self._randomize_inputs(scope)
        self._save_memory()  # randomised inputs and their charge stay, even if this answer fails
        try:
            with self._failures_charged(bound, scope):
                upload = self._computed(bound, answer, values)
        except HostileMessage as error:
            raise HostileMessage(f"{offerer}'s offer: {error}" if offerer else str(error)) from None
        if upload is None:
            return {}
        if channel.to == REFEREE:
            self._restore_memory()
        else:
            self._charge(bound, scope, upload.size)
        self._record_contribution(bound, upload, scope)
        with self._failures_charged(bound, scope):  # an upload that breaks what its channel declares
            return bound.seal_to_send(upload, scope, self._party)

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

    def _charge(self, bound: Bound, scope: Scope, width: int) -> None:
        """Charges an upload of so many coordinates."""
        self._ledger.charge(
            replace(
                self._blank_charge(bound.channel.name, bound.unit.value, bound.relation, scope),
                releases=bound.releases(width),
                steps=self._steps(bound.channel),
                computational=bound.computational,
                one_holder=self._counts_once(bound.channel),
            )
        )
        if self.training is not None and bound.channel.trained:
            self.training.paid()

    def _blank_charge(self, channel: str, unit: str, relation: str, scope: Scope) -> Charge:
        """A charge that says who spends, when and for what, but not yet how much."""
        return Charge(
            client=self.name,
            run=scope.run,
            round=scope.round,
            exchange=scope.exchange,
            channel=channel,
            unit=unit,
            relation=relation,
            data=self._data,
        )

    @contextmanager
    def _failures_charged(self, bound: Bound, scope: Scope) -> Iterator[None]:
        """Charges whatever fails inside as an upload without noise: the server learns of it.

        Nothing that an upload does without is excepted, since the failure may come from it. A budget cannot
        refuse the charge: the server hears of the failure in any case. Free are a sender's fault, by what
        everybody can check, an interruption by the owner, and a failure that only the referee sees.
        """
        try:
            yield
        except (HostileMessage, KeyboardInterrupt):
            raise
        except BaseException:
            if bound.channel.to != REFEREE:
                blank = self._blank_charge(bound.channel.name, bound.unit.value, bound.relation, scope)
                self._ledger.charge(replace(blank, computational=bound.computational), unavoidable=True)
            raise

    def _computed(self, bound: Bound, answer: Answer, values: dict[str, Any]) -> AnyUpload | None:
        """What the algorithm answers, of the kind that the channel declares; None where nothing is sent."""
        channel = bound.channel
        self._coins = bound.coins(self._units(channel.unit)) if bound.samples else None
        with self._for_the_reader(channel), self._seen_by(channel):
            upload = answer(self, values)
        if channel.reveal is Reveal.NOTHING:
            if upload is not None:
                raise WrongType(
                    f"channel {channel.name!r} declares that nothing comes back, and something did"
                )
            return None
        bound.check(upload)
        return upload.of(self.sampled()) if isinstance(upload, ContributionSample) else upload

    def _units(self, unit: Unit) -> int:
        """How many units its own data hold."""
        counts = {
            Unit.CLIENT: 1,
            Unit.GRAPH: len(self.graph.y) if "graph" in self.graph else 1,
            Unit.EDGE: len(self.graph.y) if "pairs" in self.graph else int(self.graph.num_edges),
        }
        return counts.get(unit, int(self.graph.num_nodes or 0))

    def _record_contribution(self, bound: Bound, upload: Any, scope: Scope) -> None:
        """Records what it adds to a sum under masks, ciphertexts or noise: only this client knows it."""
        channel, hidden = bound.channel, not bound.carrier.gives.readable
        if channel.reveal is not Reveal.SUM or channel.to != SERVER or not isinstance(upload, Upload):
            return
        if hidden or any(stage.noise() for stage in bound.stages):
            self._note(scope, (self.name,), {name: value.detach() for name, value in upload.values.items()})

    def _randomize_inputs(self, scope: Scope) -> None:
        """Randomises its inputs, once, before an upload or a read uses the graph; they replace its own."""
        for one in self._policy.randomizers:
            if _entry_of(one) in self.memory:
                continue
            relation = self._policy.policy.relation
            self._ledger.charge(
                replace(self._blank_charge(one.kind, one.unit, relation, scope), steps=one.costs())
            )
            self.memory[_entry_of(one)] = one.at(*self._place()).randomize(self.graph, self.schema.classes)
            self._use_randomized(one)

    def _place(self) -> tuple[int, int]:
        """Its place among all clients by name, and how many they are."""
        names = sorted(self.clients)
        return names.index(self.name), len(names)

    def _use_randomized(self, one: InputRandomizer) -> None:
        if _entry_of(one) in self.memory:
            self.graph = self.graph.clone()
            setattr(self.graph, one.place, self.memory[_entry_of(one)])
            if one.place == "edge_index" and CROSS_LINKS in self.graph:  # nobody randomised these
                del self.graph[CROSS_LINKS]

    @contextmanager
    def _for_the_reader(self, channel: Channel) -> Iterator[None]:
        """For the referee, who is outside every guarantee: true labels in place of randomised ones.

        What the answer writes meanwhile, into the graph too, is dropped: nothing of it is sent to anybody
        else.
        """
        by_owners = (self._algorithm.OWN_TESTS.name, self._algorithm.OWN_SCORES.name)
        scored = channel.to == REFEREE and channel.name in by_owners
        own = channel.to == REFEREE and channel.name == self._algorithm.COMBINED.name
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
        if self._counts_once(channel):
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

    def _counts_once(self, channel: Channel) -> bool:
        """Whether no other client counts what an upload is of."""
        key = "rating" if channel.unit is Unit.EDGE else HOME
        return channel.one_holder and key in self._own

    def _steps(self, channel: Channel) -> dict[str, tuple[Event, ...]]:
        """The noisy steps that an upload is made of, where it is made of nothing else."""
        # steps are charged with the upload that shows them, and owed until that charge is written
        taken = self.training.owed() if self.training is not None and channel.trained else {}
        # what is computed from randomised inputs, or without a part of the data, costs nothing more
        free = (*(one.unit for one in self._policy.randomizers), *channel.unread)
        return {**dict.fromkeys(free, ()), **taken}

    def _given(self, given: wire.Tree, scope: Scope) -> tuple[dict[str, Any], str, int]:
        """The answer's values, from the server and a peer's opened offer; the offer's sender and exchange."""
        values, offerer, offered = {}, "", 0
        for name, value in given.items():
            if name.startswith(OFFER):
                parcel = Parcel.from_bytes(value)
                values[parcel.channel] = self._open_offer(parcel, scope)
                offerer, offered = parcel.sender, parcel.exchange
            else:
                values[name] = _tensor(value)
        return values, offerer, offered

    def _open_offer(self, parcel: Parcel, scope: Scope) -> dict[str, torch.Tensor]:
        bound = self._policy[parcel.channel]
        if bound.channel.to != PEER or bound.channel.reveal is not Reveal.EACH or parcel.round != scope.round:
            raise HostileMessage(
                f"{self.name} was handed a parcel of {parcel.channel!r} that is not this round's offer"
            )
        if parcel.sender == self.name or {self.name, parcel.sender} - set(parcel.cohort):
            raise HostileMessage(f"{self.name} was handed a parcel that {parcel.sender!r} did not send to it")
        scope_of_offer = Scope(scope.run, parcel.round, parcel.exchange, parcel.channel, parcel.cohort)
        opened = bound.open_each(
            bound.read({parcel.sender: parcel.tree}, scope_of_offer, self._party), scope_of_offer
        )
        self._note(scope_of_offer, (parcel.sender,), opened[parcel.sender])
        return opened[parcel.sender]

    def _read(self, bound: Bound, given: wire.Tree, request: Message) -> wire.Tree:
        channel = bound.channel
        bundle = Bundle.from_tree(given, channel.name, self.name, request.round)
        self._check_bundle(bundle, bound)
        self._delivered = bundle.exchange
        scope = Scope(self._run, bundle.round, bundle.exchange, channel.name, bundle.cohort)
        self._randomize_inputs(scope)  # what it computes from its graph here may be sent later
        read: Any
        if channel.reveal is Reveal.SUM:
            read = self._read_sum(bound, bundle, replace(scope, reader=self.name, offer=self._offered))
        else:
            read = bound.open_each(bound.read(bundle.replies, scope, self._party), scope)
            for name, values in read.items():
                self._note(scope, (name,), values)
        forms = self._algorithm.shows(channel.name, self.schema)
        if forms is not None:
            uploads = {bundle.channel: read.total} if channel.reveal is Reveal.SUM else read
            for name, values in uploads.items():
                declared.check(forms, values, f"channel {channel.name!r} shows {self.name} of {name}")
        self._save_memory()
        name = self._algorithm.readers[channel.name]
        method: Callable[[ClientContext, Any], None] = getattr(self._algorithm, name)
        with self._failures_charged(bound, scope):
            method(self, read)
        return {}

    def _read_sum(self, bound: Bound, bundle: Bundle, scope: Scope) -> Sum:
        replies = bound.read(bundle.replies, scope, self._party)
        if self._witness and bound.carrier.gives is Domain.SEALED and Reveal.EACH in bound.carrier.reveals:
            for name, values in bound.open_each(replies, scope).items():  # it could open each
                self._note(scope, (name,), values)
        total = bound.open_sum(replies, scope, _nobody)
        if total.cut:
            _LOG.warning("%s read a sum of %r with %d uploads cut", self.name, scope.channel, total.cut)
        self._note(scope, bundle.cohort, total.total)
        return total

    def _check_bundle(self, bundle: Bundle, bound: Bound) -> None:
        cohort, is_sum = set(bundle.cohort), bound.channel.reveal is Reveal.SUM
        missing = cohort - set(bundle.replies) if is_sum else set()
        if missing:
            raise HostileMessage(f"a delivery lacks the reply of {min(missing)!r}")
        is_member = self.name in cohort
        if is_member == is_sum or not cohort <= set(self._party.roster) or len(cohort) != len(bundle.cohort):
            raise HostileMessage(
                f"{self.name} was delivered {'a sum' if is_sum else 'uploads'} whose cohort has strangers, "
                f"repeats, or {'itself' if is_sum else 'not itself'}"
            )
        if not bundle.replies or self.name in bundle.replies:
            raise HostileMessage(f"{self.name} was delivered nothing, or its own upload")
        if len(cohort) < bound.quorum:
            raise HostileMessage(
                f"{self.name} was delivered too little: the cohort has {len(cohort)} clients; the quorum is "
                f"{bound.quorum}"
            )
        if bundle.exchange <= self._delivered:
            raise HostileMessage(
                f"{self.name} cannot read twice: exchange {bundle.exchange} was already read"
            )

    def _note(self, scope: Scope, contributors: tuple[str, ...], values: Mapping[str, Any]) -> None:
        if self._witness is not None:
            self._witness(self.name, scope.round, scope.exchange, scope.channel, contributors, values)

    def _check_address(self, request: Message) -> None:
        if request.run != self._run or request.recipient != self.name:
            raise HostileMessage(
                f"a request for {request.recipient!r} in run {request.run!r} reached {self.name}"
            )
        cohort = set(request.cohort)
        if (
            len(cohort) != len(request.cohort)
            or self.name not in cohort
            or not cohort <= set(self._party.roster)
        ):
            raise HostileMessage(
                f"{self.name} was asked in a cohort that repeats a client, names a stranger, or lacks it"
            )

    def _check_reader(self, request: Message, bound: Bound) -> None:
        reader = REFEREE if bound.channel.to == REFEREE else SERVER
        if request.sender != reader:
            raise HostileMessage(
                f"channel {bound.channel.name!r} is read by the {reader}, not by {request.sender!r}"
            )

    def _refuse_replays(self, request: Message) -> None:
        if request.exchange <= self._answered:
            raise HostileMessage(
                f"exchange {request.exchange} was already answered by {self.name} and is asked again with "
                "something else: a number serves one request"
            )
        # a repeated round draws the same samples, so the difference of two answers would leak
        set_up = request.channel.startswith(CARRIER)  # repeated after a resume, before the first round
        last = self._last_round if set_up else max(self._last_round, self._resumed)
        if request.round < last:
            raise HostileMessage(
                f"{self.name} was asked for round {request.round} after round {last}: rounds never go back"
            )
        if self._rounds is not None and request.round > self._rounds:
            raise HostileMessage(
                f"{self.name} was asked for round {request.round}, and this run has {self._rounds}"
            )
        self._answered = request.exchange


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


def _entry_of(one: InputRandomizer) -> str:
    """The memory entry with a randomised input. No algorithm uses this name."""
    return f"drawn {one.kind}"


def _nobody(step: str, given: Mapping[str, wire.Tree]) -> dict[str, wire.Tree]:
    raise HostileMessage(f"a client asks nobody for step {step!r}")


def _tensor(value: wire.Value) -> Any:
    return torch.tensor(value) if hasattr(value, "dtype") else value
