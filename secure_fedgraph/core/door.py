"""The one way out of a client: it checks, charges, protects and seals what others compute."""

from __future__ import annotations

import copy
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from secure_fedgraph.core import wire
from secure_fedgraph.core.accounting.events import Event
from secure_fedgraph.core.answer_state import AnswerState
from secure_fedgraph.core.carriers import history, key_agreement
from secure_fedgraph.core.carriers.history import History, split_given_and_carrier
from secure_fedgraph.core.channel import Channel, Domain, Recipient, Reveal
from secure_fedgraph.core.errors import HostileMessage, WrongType
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.message import ANSWER, CARRIER, Message, digest
from secure_fedgraph.core.parcel import OFFER, READ, Bundle, Parcel
from secure_fedgraph.core.protection.bound import Bound, Sum
from secure_fedgraph.core.protection.contracts import Carrier, Party, Scope
from secure_fedgraph.core.spending.ledger import Charge, Ledger
from secure_fedgraph.core.upload import AnyUpload, ContributionSample, Upload

_LOG = logging.getLogger("secure_fedgraph.client")
OpenedRecorder = Callable[[str, int, int, str, tuple[str, ...], Mapping[str, Any]], None]
"""(reader, round, exchange, channel, contributors, values): the experiment's note of what was opened."""


class Protections(Protocol):
    """The protections that a client insists on: its own, never read from the wire."""

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """Channel -> what its uploads go through."""

    @property
    def carriers(self) -> Mapping[str, Carrier]:
        """The distinct carriers in use, by name."""

    @property
    def relation(self) -> str:
        """The neighbouring relation that sensitivities are taken under."""

    @property
    def agrees_on_keys(self) -> bool:
        """Whether any upload is hidden under keys that are bound to what clients were given in the run."""

    def __getitem__(self, channel: str) -> Bound:
        """Raises ``Unbound`` for a channel without a protection: nothing leaves on it."""


class UnpaidSteps(Protocol):
    """Training under noise, whose steps are charged with the upload that shows them."""

    def owed(self) -> dict[str, tuple[Event, ...]]:
        """Unit -> what was trained since the last charge."""

    def paid(self) -> None:
        """A charge for it is written."""


@dataclass(frozen=True)
class Draw:
    """An input that is randomised once in a run, before anything is computed from it.

    Args:
        kind, unit: what it is, and whose data it covers.
        costs: unit -> events.
        draw: randomises it. Called once its charge is written.
    """

    kind: str
    unit: str
    costs: dict[str, tuple[Event, ...]] = field(repr=False)
    draw: Callable[[], None] = field(repr=False)


class Door(ABC):
    """What a client checks, charges and seals, whatever computes its answers.

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
          (:class:`~secure_fedgraph.core.carriers.history.History`);
        - an answer that fails sends nothing, is charged as an upload without noise, and leaves its memory and
          its scratch as before. Some carriers confirm that a sum is complete (``masked`` does). Under them
          the client undoes an answer whose sum was never confirmed, and answers no later step of that sum.
          Counts of releases and randomised inputs are not undone. The referee's questions change nothing.

    Args:
        party: name, identity and roster.
        policy: the protections it insists on.
        run: the run's public name.
        ledger: where it charges.
        data: digest of its data, by which the ledger recognises whose budget it is.
        training: noisy steps that are charged with uploads; None where there are none.
        state: what answers keep.
        witness: called with what this client opens from its peers, so that an experiment can record its view.
        after: exchange numbers up to this one are refused, as a resumed run's earlier ones must be.
        last: the run's last round, the warm-up counted: requests of later ones are refused.
        common: a digest of what the server gave all clients before the run: masks and tokens of sums cancel
            among those alone who have the same.
    """

    def __init__(
        self,
        party: Party,
        policy: Protections,
        run: str,
        ledger: Ledger,
        data: str,
        training: UnpaidSteps | None,
        state: AnswerState,
        witness: OpenedRecorder | None = None,
        after: int = -1,
        last: int | None = None,
        common: str = "",
    ) -> None:
        self.round = 0
        self._state = state
        self._party, self._run, self._ledger, self._data = party, run, ledger, data
        self._protections, self._unpaid, self._witness = policy, training, witness
        # the ledger has the number too, in case the caller's is too small
        self._answered = max(after, ledger.answered(party.name, run))
        self._delivered = after
        self._last_round = self._resumed = 0
        self._rounds = last
        self._offered = 0
        self._coins: torch.Tensor | None = None
        self._last: tuple[str, bytes] = ("", b"")
        uploads = [b.channel for b in policy.bounds.values()]
        self._alike = frozenset(one.name for one in uploads if one.alike and one.to != Recipient.REFEREE)
        once = [one.name for one in uploads if one.once]
        self._history = History(run, once, common) if policy.agrees_on_keys else None

    @property
    def name(self) -> str:
        """This client's public name."""
        return self._party.name

    @property
    def answered(self) -> int:
        """The number of the last exchange that it answered in this run, in this process or an earlier one."""
        return self._answered

    @property
    def last_round(self) -> int:
        """The last round that it answered, or that is in the memory that it loaded; 0 for none."""
        return max(self._last_round, self._resumed)

    @abstractmethod
    def compute(self, channel: Channel, values: dict[str, Any]) -> Any:
        """What is answered on a channel to what was given; anything may come out of somebody else's code."""

    @abstractmethod
    def take(self, channel: Channel, opened: Any) -> None:
        """Reads what peers sent: a :class:`Sum`, or peer -> values."""

    @abstractmethod
    def check_given(self, channel: Channel, round: int, values: dict[str, Any], whose: str) -> None:
        """Checks what was given, by public facts alone, before anything is computed or charged.

        Raises:
            HostileMessage: for what no honest sender gives.
        """

    @abstractmethod
    def check_opened(self, channel: Channel, uploads: Mapping[str, Any]) -> None:
        """The same for what peers sent: peer, or the summed channel -> values."""

    @abstractmethod
    def draws(self) -> Iterator[Draw]:
        """The inputs that are still to be randomised, in order."""

    @abstractmethod
    def units(self, unit: Unit) -> int:
        """How many units its own data hold."""

    @abstractmethod
    def counts_once(self, channel: Channel) -> bool:
        """Whether no other client counts what an upload is of."""

    @abstractmethod
    def covered(self, channel: Channel) -> tuple[str, ...]:
        """Units that an upload costs nothing more: randomised once, or not seen by it."""

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
        round_before, scratch_before = self.round, dict(self._state.scratch)
        if request.round != self.round:
            self._state.scratch.clear()
        self.round = request.round
        history_before = copy.copy(self._history)
        try:
            reply = request.reply(wire.pack(self._answer(request))).to_bytes()
        except BaseException:  # the request had no effect, so it counts as missed
            self._state.undo()
            if self.round != round_before:
                self._state.scratch.update(scratch_before)
            self.round, self._history = round_before, history_before
            raise
        self._commit(request)
        self._last = (request_digest, reply)
        if request.sender == Recipient.REFEREE:  # its questions change nothing, a round's number neither
            self._state.scratch.update(scratch_before)
            self.round = round_before
        else:
            self._last_round = request.round
        return reply

    def _abandon_if_skipped(self, request: Message) -> None:
        """A request that is not the next step of an unconfirmed sum shows that the sum was abandoned."""
        channel = self._state.unconfirmed
        if channel:
            steps = self._protections[channel].carrier.steps_after_upload
            if request.channel != channel or request.step not in steps:
                self._abandon()

    def _abandon(self) -> None:
        if channel := self._state.unconfirmed:
            self._protections[channel].carrier.abandon(self._party)  # or a sum would open that is undone here
            self._state.abandon()

    def _commit(self, request: Message) -> None:
        """Keeps what an answer changed: at once, or when the carrier shows that the sum is complete."""
        bound = self._protections.bounds.get(request.channel)
        confirming = bound.carrier.confirming_step if bound is not None else ""
        if confirming and request.step == confirming:
            self._state.confirm()
        else:
            waits = bool(confirming) and request.step == ANSWER
            self._state.keep(request.channel if waits else "")

    def _answer(self, request: Message) -> wire.Tree:
        given = request.tree()
        scope = Scope(request.run, request.round, request.exchange, request.channel, request.cohort)
        if request.channel.startswith(CARRIER):
            return self._set_up(request, given, scope)
        bound = self._protections[request.channel]
        self._check_reader(request, bound)
        if request.step == READ and bound.channel.to == Recipient.PEER:
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
        if self._history is None or request.sender != Recipient.SERVER:
            return ""
        missed = history.from_bytes(request.missed)
        self._history.catch_up(missed, request.exchange, self._alike)
        if request.channel in self._alike:
            self._history.add(
                history.exchange_of(request.exchange, request.round, request.channel, request.cohort, given)
            )
        return self._history.head

    def _set_up(self, request: Message, given: wire.Tree, scope: Scope) -> wire.Tree:
        if request.sender != Recipient.SERVER:
            raise HostileMessage(f"{self.name} sets up {request.channel!r} with the server only")
        carriers = self._protections.carriers
        name = request.channel.removeprefix(CARRIER)
        if name == key_agreement.NAME and any(carrier.agrees_on_keys for carrier in carriers.values()):
            return key_agreement.answer(request.step, given, scope, self._party)
        if name not in carriers:
            raise HostileMessage(f"{self.name} uses no {request.channel!r}")
        return carriers[name].answer(request.step, given, scope, self._party)

    def _upload(self, bound: Bound, given: wire.Tree, scope: Scope) -> wire.Tree:
        channel = bound.channel
        values, offerer, offered = self._given(given, scope)
        if channel.to == Recipient.PEER and channel.reveal is Reveal.SUM:
            if not offerer or offerer in scope.cohort:
                raise HostileMessage(
                    f"channel {channel.name!r} answers the offer of a peer outside the cohort: "
                    f"{offerer or 'none'!r} came with the ask"
                )
            scope = replace(scope, reader=offerer, offer=offered)
        elif channel.to == Recipient.PEER:
            self._offered = scope.exchange
        whose = f" {offerer}'s offer" if offerer else ""
        self._state.begin()  # randomised inputs and their charge stay, even if this answer fails
        self.check_given(channel, scope.round, values, f"channel {channel.name!r} gives {self.name}{whose}")
        self._draw_inputs(bound, scope)
        try:
            with self._failures_charged(bound, scope):
                upload = self._computed(bound, values)
                width = 0 if upload is None else upload.size
        except HostileMessage as error:
            raise HostileMessage(f"{offerer}'s offer: {error}" if offerer else str(error)) from None
        if channel.to == Recipient.REFEREE:
            self._state.undo()
        if upload is None:
            return {}
        if channel.to != Recipient.REFEREE:
            self._charge(bound, scope, width)
        self._record_contribution(bound, upload, scope)
        with self._failures_charged(bound, scope):  # an upload that breaks what its channel declares
            return bound.seal(upload, scope, self._party)

    def _computed(self, bound: Bound, values: dict[str, Any]) -> AnyUpload | None:
        """What is answered, of the kind that the channel declares; None where nothing is sent."""
        channel = bound.channel
        self._coins = bound.coins(self.units(channel.unit)) if bound.samples else None
        upload = self.compute(channel, values)
        if channel.reveal is Reveal.NOTHING:
            if upload is not None:
                raise WrongType(
                    f"channel {channel.name!r} declares that nothing comes back, and something did"
                )
            return None
        bound.check(upload)
        if isinstance(upload, ContributionSample):
            assert self._coins is not None
            return upload.of(self._coins)
        checked: AnyUpload = upload
        return checked

    def _charge(self, bound: Bound, scope: Scope, width: int) -> None:
        """Charges an upload of so many coordinates, and the noisy steps that it shows."""
        trained = self._unpaid is not None and bound.channel.trained
        owed = self._unpaid.owed() if self._unpaid is not None and trained else {}
        self._ledger.charge(
            replace(
                self._blank_charge(bound.channel.name, bound.unit.value, scope, bound.relation),
                releases=bound.releases(width),
                steps={**dict.fromkeys(self.covered(bound.channel), ()), **owed},
                computational=bound.computational,
                one_holder=self.counts_once(bound.channel),
            )
        )
        if self._unpaid is not None and trained:
            self._unpaid.paid()

    def _blank_charge(self, channel: str, unit: str, scope: Scope, relation: str) -> Charge:
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
            if bound.channel.to != Recipient.REFEREE:
                blank = self._blank_charge(bound.channel.name, bound.unit.value, scope, bound.relation)
                self._ledger.charge(replace(blank, computational=bound.computational), unavoidable=True)
            raise

    def _draw_inputs(self, bound: Bound, scope: Scope) -> None:
        """Randomises inputs, once, before an upload or a read uses them."""
        for one in self.draws():
            blank = self._blank_charge(one.kind, one.unit, scope, self._protections.relation)
            self._ledger.charge(replace(blank, steps=one.costs))
            with self._failures_charged(bound, scope):
                one.draw()

    def _record_contribution(self, bound: Bound, upload: Any, scope: Scope) -> None:
        """Records what it adds to a sum under masks, ciphertexts or noise: only this client knows it."""
        channel, hidden = bound.channel, not bound.carrier.gives.readable
        summed = channel.reveal is Reveal.SUM and channel.to == Recipient.SERVER
        if summed and isinstance(upload, Upload) and (hidden or any(one.noise() for one in bound.stages)):
            self._note(scope, (self.name,), {name: value.detach() for name, value in upload.values.items()})

    def _given(self, given: wire.Tree, scope: Scope) -> tuple[dict[str, Any], str, int]:
        """The answer's values, from the server and a peer's opened offer; the offer's sender and exchange."""
        values, offerer, offered = {}, "", 0
        for name, value in given.items():
            if name.startswith(OFFER):
                if offerer:
                    raise HostileMessage(f"{self.name} was handed the offers of two peers in one ask")
                parcel = Parcel.from_bytes(value)
                values[parcel.channel] = self._open_offer(parcel, scope)
                offerer, offered = parcel.sender, parcel.exchange
            else:
                values[name] = _tensor(value)
        return values, offerer, offered

    def _open_offer(self, parcel: Parcel, scope: Scope) -> dict[str, torch.Tensor]:
        bound = self._protections[parcel.channel]
        offers = bound.channel.to == Recipient.PEER and bound.channel.reveal is Reveal.EACH
        if not offers or parcel.round != scope.round:
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
        scope = Scope(self._run, bundle.round, bundle.exchange, channel.name, bundle.cohort)
        self._draw_inputs(bound, scope)  # what it computes from its data here may be sent later
        opened: Any
        if channel.reveal is Reveal.SUM:
            opened = self._read_sum(bound, bundle, replace(scope, reader=self.name, offer=self._offered))
            self.check_opened(channel, {bundle.channel: opened.total})
        else:
            opened = bound.open_each(bound.read(bundle.replies, scope, self._party), scope)
            for name, values in opened.items():
                self._note(scope, (name,), values)
            self.check_opened(channel, opened)
        self._delivered = bundle.exchange  # what does not open was never read
        self._state.begin()
        with self._failures_charged(bound, scope):
            self.take(channel, opened)
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
        if is_member == is_sum or not self._known(bundle.cohort):
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

    def _known(self, cohort: tuple[str, ...]) -> bool:
        """Whether it names each of its clients once, and no stranger."""
        return len(set(cohort)) == len(cohort) and set(cohort) <= set(self._party.roster)

    def _check_address(self, request: Message) -> None:
        if request.run != self._run or request.recipient != self.name:
            raise HostileMessage(
                f"a request for {request.recipient!r} in run {request.run!r} reached {self.name}"
            )
        if self.name not in request.cohort or not self._known(request.cohort):
            raise HostileMessage(
                f"{self.name} was asked in a cohort that repeats a client, names a stranger, or lacks it"
            )

    def _check_reader(self, request: Message, bound: Bound) -> None:
        to_referee = bound.channel.to == Recipient.REFEREE
        reader = Recipient.REFEREE if to_referee else Recipient.SERVER
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


def _tensor(value: wire.Value) -> Any:
    return torch.tensor(value) if hasattr(value, "dtype") else value


def _nobody(step: str, given: Mapping[str, wire.Tree]) -> dict[str, wire.Tree]:
    raise HostileMessage(f"a client asks nobody for step {step!r}")
