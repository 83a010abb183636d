"""A round's verbs, the only way to ask clients. They open what a channel declares and nothing more."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch

from secure_fedgraph.core import wire
from secure_fedgraph.core.carriers import key_agreement
from secure_fedgraph.core.carriers.tolerant_ask import TolerantAsk
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, Incompatible, Refused, wrong_type
from secure_fedgraph.core.message import ANSWER, CARRIER, Message
from secure_fedgraph.core.parcel import OFFER, READ, Bundle, Parcel
from secure_fedgraph.core.protection.bound import Bound, CutWarning, Sum, Valued
from secure_fedgraph.core.protection.contracts import Ask, Carrier, Scope
from secure_fedgraph.privacy.policy import BoundPolicy
from secure_fedgraph.protocol.courier import TOLERATE_ALL, TOLERATE_LOST, TOLERATE_NONE, Courier, Given
from secure_fedgraph.protocol.dropouts import STEPS
from secure_fedgraph.protocol.transcript import PEER, REFEREE, SERVER

Record = Callable[[wire.Tree, Mapping[str, torch.Tensor]], None]
"""Takes what a carrier keeps of a sum for disputes, and the sum."""


class SetUps:
    """The server's masking set-ups of a round: one for as many sums of a channel as the last round had.

    In the first round they are for one sum, then one, two, four and so on. Where somebody was
    missing in a set-up, or in the sum before, the next sum has a set-up of its own, so that whoever comes
    back takes part in it.
    """

    def __init__(self) -> None:
        self._round = -1
        self._expected: dict[str, int] = {}
        self._had: dict[str, int] = {}
        self._next: dict[str, tuple[tuple[str, ...], Carrier]] = {}
        self._single: set[str] = set()
        self._parts: dict[tuple[str, ...], SetUps] = {}

    def of(self, clients: tuple[str, ...]) -> SetUps:
        """Those of sums over a part of the cohort."""
        return self._parts.setdefault(clients, SetUps())

    def prepared(self, bound: Bound, round: int, cohort: tuple[str, ...], ask: Ask) -> Carrier:
        """The carrier as it opens the next sum of a channel."""
        channel = bound.channel.name
        if round != self._round:
            self._round, self._expected, self._had = round, self._had, {}
            self._next.clear()
            self._single.clear()
        had = self._had.get(channel, 0)
        self._had[channel] = had + 1
        among, carrier = self._next.pop(channel, ((), bound.carrier))
        if among == cohort:
            return carrier
        coming = max(self._expected.get(channel, 0) - had, had, 1)
        sums = 1 if channel in self._single else coming
        return bound.carrier.prepare(ask, cohort, channel, sums)

    def keep(self, carrier: Carrier, channel: str, cohort: tuple[str, ...], uploaded: Iterable[str]) -> None:
        """Keeps what serves the next sum."""
        following = carrier.following(uploaded)
        if following is not None:
            self._next[channel] = cohort, following
        elif set(uploaded) != set(cohort):
            self._single.add(channel)


class Round:
    """The server's view of one round: the verbs over the declared channels.

    Guarantees:
        - ``reduce`` opens the sum of a SUM channel, ``gather`` every upload of an EACH channel, ``scatter``
          nothing; ``value`` the weighted mean of a VALUES channel and how far each upload agrees with it;
          ``collect``, ``share`` and ``reduce_for`` do the same as the first two for channels that peers
          read, and open nothing here; a verb that does not match the declaration is refused under every
          policy, plaintext too;
        - a channel for another reader is refused, and so is a channel that only has the name of a bound one.

    Args:
        number: the round, from 1.
        cohort: the clients that are asked.
        policy: the bound policy.
        courier: carries the messages.
        reader: who asks: the server, or the referee for tests.
        set_ups: the masking set-ups of the run, where several rounds share them.
        record: called with what a carrier keeps of a sum for disputes, and with the sum.
    """

    def __init__(
        self,
        number: int,
        cohort: tuple[str, ...],
        policy: BoundPolicy,
        courier: Courier,
        reader: str = SERVER,
        set_ups: SetUps | None = None,
        record: Record | None = None,
    ) -> None:
        self.number = number
        self._evidence = record
        self._set_ups = SetUps() if set_ups is None else set_ups
        self.cohort = cohort
        self._policy = policy
        self._courier = courier
        self._reader = reader

    @property
    def policy(self) -> BoundPolicy:
        """Every channel of the run with its protection."""
        return self._policy

    def among(self, clients: tuple[str, ...]) -> Round:
        """The same round with a part of its cohort: what is asked is of these alone, and so is a sum.

        Clients answer no sum of fewer than their quorum.

        Raises:
            BadInput: for a client that is not in the cohort, or is named twice.
        """
        if len(set(clients)) != len(clients) or not set(clients) <= set(self.cohort):
            raise BadInput(
                f"among {clients!r:.80}: name clients of the cohort {self.cohort!r:.80}, each once"
            )
        set_ups = self._set_ups.of(clients)
        return Round(self.number, clients, self._policy, self._courier, self._reader, set_ups, self._evidence)

    def reduce(self, channel: Channel, given: Given | None = None) -> Sum:
        """The sum over the cohort of what the clients answer.

        Where the carrier tolerates drop-outs it is the sum over the clients that remain, and names them. A
        client that sends an invalid answer, at any step, is left out.

        Args:
            channel: declared with ``Reveal.SUM``.
            given: what every client of the cohort is given (a broadcast).
        """
        bound = self._verb(channel, Reveal.SUM, self._reader, given)
        if bound.carrier.tolerates_dropouts:
            request, total = self._sum_with_dropouts(bound, given or {})
        else:
            request, replies = self._ask(channel, dict.fromkeys(self.cohort, given or {}))
            total = bound.open_sum(replies, self._scope(request), self._carrier_ask(channel))
        self._record(request, total.contributors, total.total)
        if total.cut:
            limit = next(stage.limit for stage in bound.stages if stage.tallies)
            mend = f"set protection.limit={2 * limit:g}, or a smaller learning rate where training diverges"
            what_happened = f"held values beyond protection.limit={limit:g}; they were cut: {mend}"
            self._note_cut(request, total.cut, len(total.contributors), limit, what_happened)
        return total

    def _sum_with_dropouts(self, bound: Bound, given: Given) -> tuple[Message, Sum]:
        """A sum whose carrier has steps of its own before and after the uploads, and survives drop-outs."""
        channel, number, cohort = bound.channel.name, self.number, self.cohort
        ask = self._tolerant_ask(bound.channel)
        bound = replace(bound, carrier=self._set_ups.prepared(bound, number, cohort, ask))
        asked = _with_parts(given, bound.carrier.upload_requests(cohort))
        replies, wrong = bound.split_valid(ask(ANSWER, asked))
        for name, reason in wrong.items():
            ask.refuse(name, reason)
        request = ask.request
        assert request is not None
        scope = replace(self._scope(request), history_head=self._courier.head)
        replies = bound.carrier.committed(replies, scope, ask)
        if not replies:
            raise Refused(f"round {number}, channel {channel!r}: nobody uploaded, so nothing was opened")
        total = bound.open_sum(replies, scope, ask)
        if self._evidence is not None:
            summed = {name: replies[name] for name in total.contributors}
            self._evidence(bound.carrier.evidence(summed, scope), total.total)
        self._set_ups.keep(bound.carrier, channel, cohort, replies)
        return request, total

    def reduce_for(self, channel: Channel, offer: Parcel, given: Given | None = None) -> None:
        """Has the others answer a client's offer, and hands that client the sum to read.

        Args:
            channel: a peer channel declared with ``Reveal.SUM``. The server only carries.
            offer: a parcel that :meth:`collect` brought; whoever made it reads the sum.
            given: what every other client is given besides.
        """
        self._verb(channel, Reveal.SUM, PEER, given)
        others = tuple(name for name in self.cohort if name != offer.sender)
        asked = {**(given or {}), OFFER + offer.channel: offer.to_parts()}
        request, replies = self._ask(channel, dict.fromkeys(others, asked), others)
        bundle = Bundle.of(request, offer.sender, replies)
        reader = (offer.sender,)
        self._courier.ask(SERVER, self.number, channel.name, READ, reader, {offer.sender: bundle.to_tree()})

    def gather(self, channel: Channel, given: Given | None = None) -> dict[str, dict[str, torch.Tensor]]:
        """What each client of the cohort answers.

        Args:
            channel: declared with ``Reveal.EACH``.
            given: what every client is given.
        """
        bound = self._verb(channel, Reveal.EACH, self._reader, given)
        # the referee skips clients that are gone; the server needs everybody's answer
        without = TOLERATE_LOST if self._reader == REFEREE else TOLERATE_NONE
        request, replies = self._ask(channel, dict.fromkeys(self.cohort, given or {}), without=without)
        opened = bound.open_each(replies, self._scope(request))
        for name, values in opened.items():
            self._record(request, (name,), values)
        return opened

    def collect(self, channel: Channel, given: Given | None = None) -> dict[str, Parcel]:
        """What each client has for the others: parcels that the server can only pass on.

        Args:
            channel: a peer channel declared with ``Reveal.EACH``.
            given: what every client is given.
        """
        self._verb(channel, Reveal.EACH, PEER, given)
        request, replies = self._ask(channel, dict.fromkeys(self.cohort, given or {}))
        origin = (request.round, request.exchange, request.cohort)
        return {name: Parcel(channel.name, name, *origin, tree) for name, tree in replies.items()}

    def share(
        self,
        channel: Channel,
        given: Given | None = None,
        senders: tuple[str, ...] | None = None,
        readers: tuple[str, ...] | None = None,
        among: tuple[str, ...] | None = None,
    ) -> tuple[tuple[str, str], ...]:
        """What some clients answer, handed to every other client of the cohort to read. Nothing opens here.

        Args:
            channel: a peer channel declared with ``Reveal.EACH``.
            given: what every sender is given.
            senders: who answers; the whole cohort by default.
            readers: who reads it, of the others; the whole cohort by default.
            among: for whom a sealed answer is made; the whole cohort by default. No other client has a key.

        Returns:
            Who read whose answer, ``(sender, reader)``. Where the channel goes on without clients that are
            gone, they are in no pair.
        """
        self._verb(channel, Reveal.EACH, PEER, given)
        among = self.cohort if among is None else among
        senders = among if senders is None else senders
        without = TOLERATE_LOST if channel.without_lost else TOLERATE_NONE
        answering, reading = (ANSWER, STEPS[-1]) if channel.without_lost else ("", "")
        with suppress(*without):  # everybody that was asked is gone
            request, replies = self._ask(
                channel, dict.fromkeys(senders, given or {}), among, without, leaving_at=answering
            )
            deliveries = {}
            for reader in among if readers is None else readers:
                others = {name: tree for name, tree in replies.items() if name != reader}
                if others:
                    deliveries[reader] = Bundle.of(request, reader, others).to_tree()
            if deliveries:
                _, read = self._courier.ask(
                    SERVER, self.number, channel.name, READ, among, deliveries, without, leaving_at=reading
                )
                return tuple((name, reader) for reader in read for name in replies if name != reader)
        self._courier.warn_of_left_out()
        return ()

    def value(self, channel: Channel, weights: Mapping[str, float], given: Given | None = None) -> Valued:
        """The weighted mean of what the cohort answers, and how far each answer agrees with it.

        Args:
            channel: declared with ``Reveal.VALUES``. No single answer is opened.
            weights: client -> its weight in the mean, not negative.
            given: what every client is given.

        Raises:
            Refused: for weights that would leave the mean nearly one client's answer.
        """
        bound = self._verb(channel, Reveal.VALUES, self._reader, given)
        request, replies = self._ask(channel, dict.fromkeys(self.cohort, given or {}))
        valued = bound.open_values(replies, weights, self._scope(request), self._carrier_ask(channel))
        by_client = {f"alignment/{name}": value for name, value in valued.alignment.items()}
        by_client |= {f"length/{name}": value for name, value in valued.lengths.items()}
        self._record(request, tuple(replies), {**valued.aggregate, **by_client})
        if valued.cut:
            limit = bound.carrier.longest
            what_happened = f"were longer than {limit:g} and were shortened to it: lower the learning rate"
            self._note_cut(request, valued.cut, len(replies), limit, what_happened)
        return valued

    def scatter(self, channel: Channel, given: Mapping[str, Given]) -> None:
        """Gives each named client its own; nothing comes back. Clients that are gone get nothing.

        Args:
            channel: declared with ``Reveal.NOTHING``.
            given: client -> values.
        """
        self._verb(channel, Reveal.NOTHING, self._reader, given)
        self._ask(channel, given, without=TOLERATE_LOST)

    def _verb(self, channel: Channel, reveal: Reveal, reader: str, given: Given | None) -> Bound:
        if not isinstance(channel, Channel):
            raise wrong_type("channel", channel, "give the Channel that the algorithm declares")
        if not isinstance(given, Mapping | None):
            raise wrong_type(f"channel {channel.name!r}: given", given, "give a dict from names to tensors")
        if channel.reveal is not reveal:
            verbs = {Reveal.SUM: "reduce", Reveal.EACH: "gather", Reveal.NOTHING: "scatter"}
            verbs[Reveal.VALUES] = "value"
            if reader == PEER:
                verbs |= {Reveal.SUM: "reduce_for", Reveal.EACH: "collect"}
            raise Incompatible(
                f"channel {channel.name!r} declares {channel.reveal.value}: use {verbs[channel.reveal]}, "
                f"not {verbs[reveal]}"
            )
        if channel.to != reader:
            raise Incompatible(f"channel {channel.name!r} is read by the {channel.to}, not by the {reader}")
        bound = self._policy[channel.name]
        if channel != bound.channel:  # a look-alike made on the spot, with a looser declaration
            raise Incompatible(
                f"channel {channel.name!r} was bound as {bound.channel.reveal.value} and is used as another: "
                "pass the channel that the algorithm declares"
            )
        return bound

    def _ask(
        self,
        channel: Channel,
        given: Mapping[str, Given],
        cohort: tuple[str, ...] | None = None,
        without: tuple[type[Exception], ...] = TOLERATE_NONE,
        leaving_at: str = "",
    ) -> tuple[Message, dict[str, wire.Tree]]:
        among, alike = cohort or self.cohort, self._alike(channel)
        return self._courier.ask(
            self._reader, self.number, channel.name, ANSWER, among, given, without, alike,
            leaving_at=leaving_at,
        )  # fmt: skip

    def _note_cut(self, request: Message, uploads: int, of: int, limit: float, what: str) -> None:
        """Warns the operator, once for each channel."""
        transcript = self._courier.transcript
        first = all(one.channel != request.channel for one in transcript.cut)
        transcript.note_cut(self._reader, request, uploads, of, limit)
        if first:
            warnings.warn(
                f"round {request.round}, channel {request.channel!r}: {uploads} of {of} uploads {what}",
                CutWarning,
                stacklevel=3,
            )

    def _alike(self, channel: Channel) -> bool | None:
        """Whether the clients' histories record what a channel gives; None where clients keep no history."""
        return channel.alike if self._reader == SERVER and self._policy.agrees_on_keys else None

    def _record(self, request: Message, contributors: tuple[str, ...], values: Mapping[str, Any]) -> None:
        self._courier.transcript.record_opened(
            self._reader, request.round, request.exchange, request.channel, contributors, values
        )

    def _scope(self, request: Message) -> Scope:
        return Scope(request.run, request.round, request.exchange, request.channel, request.cohort)

    def _carrier_ask(self, channel: Channel) -> Ask:
        def ask(step: str, given: Mapping[str, Given]) -> dict[str, wire.Tree]:
            return self._courier.ask(SERVER, self.number, channel.name, step, self.cohort, given)[1]

        return ask

    def _tolerant_ask(self, channel: Channel) -> TolerantAsk:
        """The asks of one sum, which go on without clients that fail."""

        def ask(step: str, given: Mapping[str, Given]) -> tuple[Message, dict[str, wire.Tree]]:
            if not given:
                raise Refused(f"round {self.number}, channel {channel.name!r}: nobody is left to ask")
            alike = self._alike(channel) if step == ANSWER else None
            return self._courier.ask(
                SERVER,
                self.number,
                channel.name,
                step,
                self.cohort,
                given,
                without=TOLERATE_ALL,
                alike=alike,
                confirms=step == confirming_step,
            )

        confirming_step = self._policy[channel.name].carrier.confirming_step
        before = len(self._courier.transcript.left_out)

        def reasons() -> list[str]:
            notes = self._courier.transcript.left_out[before:]
            return [note.reason for note in notes]

        return TolerantAsk(ask, self._courier.leave_out, reasons, self._courier.roster)


def _with_parts(given: Given, parts: Mapping[str, wire.Tree]) -> dict[str, wire.Tree]:
    """What each client is given, with what a carrier adds: one object for those with the same addition."""
    whole = {id(part): {**given, **part} for part in {id(part): part for part in parts.values()}.values()}
    return {name: whole[id(part)] for name, part in parts.items()}


def set_up(policy: BoundPolicy, courier: Courier, clients: tuple[str, ...]) -> None:
    """Everything that has to happen once before round 1: key agreement, then each carrier's own set-up."""
    carriers = policy.carriers.values()
    if any(carrier.agrees_on_keys for carrier in carriers):
        key_agreement.set_up(_setup_ask(key_agreement.NAME, courier, clients), clients)
    for carrier in carriers:
        carrier.set_up(_setup_ask(carrier.name, courier, clients), clients)


def _setup_ask(name: str, courier: Courier, clients: tuple[str, ...]) -> Ask:
    def ask(step: str, given: Mapping[str, Given]) -> dict[str, wire.Tree]:
        return courier.ask(SERVER, 0, CARRIER + name, step, clients, given)[1]

    return ask


Sampler = Callable[[int, tuple[str, ...], int], tuple[str, ...]]
"""(round, clients, seed) -> the cohort of the round."""


def everyone(round: int, clients: tuple[str, ...], seed: int) -> tuple[str, ...]:
    """The sampler that asks everybody in every round."""
    return clients
