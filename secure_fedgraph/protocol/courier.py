"""The courier: it numbers, sends and records every message of a run, and notes who did not answer."""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any

from secure_fedgraph.core import wire
from secure_fedgraph.core.carriers.history import (
    Exchange,
    History,
    exchange_of,
    split_given_and_carrier,
    to_bytes,
)
from secure_fedgraph.core.errors import BadInput, HostileMessage, Refused, SecureFedGraphError
from secure_fedgraph.core.message import CARRIER, Message, hashed_once
from secure_fedgraph.core.text import printable, reason
from secure_fedgraph.protocol.dropouts import Dropouts
from secure_fedgraph.protocol.transcript import Transcript
from secure_fedgraph.protocol.transport import Answer, DropoutTransport, Lost, RosterTransport, Transport

Given = Mapping[str, Any]
TOLERATE_NONE: tuple[type[Exception], ...] = ()
TOLERATE_LOST: tuple[type[Exception], ...] = (Lost,)
TOLERATE_ALL: tuple[type[Exception], ...] = (Exception,)
"""The errors of a client that an ask goes on without: none; those of lost clients; or all: refusals,
exhausted budgets, invalid answers, errors of an algorithm."""
SHORT = 300
"""Characters of a reason in a warning."""


class LeftOutWarning(UserWarning):
    """A client that the run goes on without. It warns the operator, once for each client, never a client."""


class Courier:
    """Numbers, sends and records every message of a run.

    Guarantees:
        - every ask has an exchange number that never repeats, however often a round asks;
        - requests and replies are recorded as they go over the wire;
        - a reply is taken only from the client that was asked, under the number that it was asked with;
        - a client that does not answer, refuses, or sends an invalid answer ends the exchange with an error
          that names it; where the carrier tolerates drop-outs, the exchange goes on without that client,
          whatever its error; the transcript says so and why, and a :class:`LeftOutWarning` the first time;
        - what all clients are given alike is in the history that clients bind their sums to; a client that
          was not asked gets its digest with the next request.

    Args:
        run: the run's public name.
        transport: carries the bytes.
        transcript: where they are recorded.
        after: the first exchange number is one higher.
        reserve: called with each number before anything is sent under it, so that a resumed run starts above.
        dropouts: clients that a simulation keeps from answering, in exchanges that tolerate it.
        common: the digest that all clients begin their histories with.
    """

    def __init__(
        self,
        run: str,
        transport: Transport,
        transcript: Transcript,
        after: int = 0,
        reserve: Callable[[int], None] | None = None,
        dropouts: Dropouts | None = None,
        common: str = "",
    ) -> None:
        self.run = run
        self.transcript = transcript
        self._transport = transport
        self._exchange = after
        self._reserve = reserve
        self._dropouts = dropouts
        self.history = History(run, common=common)
        self._given: list[Exchange] = []
        self._confirmed_up_to: dict[str, int] = {}
        self._warned_of: set[str] = set()
        self._to_warn_of: list[tuple[Message, str, str]] = []

    @hashed_once()
    def ask(
        self,
        sender: str,
        round: int,
        channel: str,
        step: str,
        cohort: tuple[str, ...],
        given: Mapping[str, Given],
        without: tuple[type[Exception], ...] = TOLERATE_NONE,
        alike: bool | None = None,
        confirms: bool = False,
        leaving_at: str = "",
    ) -> tuple[Message, dict[str, wire.Tree]]:
        """Asks some clients one thing each.

        Args:
            given: client -> what it is given. Clients of the cohort that are not in it are not asked.
            without: errors of a client that the exchange goes on without it for.
            alike: True: all clients get the same values, apart from what a carrier adds, and each client adds
                the exchange to its history. False: each client gets values of its own. In both cases each
                request reports what the client has missed. None: no histories are kept.
            confirms: whether a reply shows that the client's history has the last such exchange. A reply to
                that exchange itself shows it where it is not tolerant, since nothing confirms it later.
            leaving_at: the step of :data:`~secure_fedgraph.protocol.dropouts.STEPS` by which simulated
                drop-outs do not answer; ``step`` by default, where the ask goes on without any error.

        Returns:
            One of the requests (for its numbers), and client -> reply.

        Raises:
            BadInput: where nobody is asked, ``alike`` clients are given different things, or somebody
                something that cannot be sent.
            Exception: what all clients failed with, where none answers: an unexpected error of an algorithm
                before a refusal.
        """
        if not given:
            raise BadInput(f"round {round}, channel {channel!r}: nobody is asked; the cohort is empty")
        self._exchange += 1
        if self._reserve is not None:
            self._reserve(self._exchange)
        # a broadcast hands every client the same object, which is encoded once
        bodies = {id(tree): _packed(tree, channel) for tree in {id(t): t for t in given.values()}.values()}
        requests = {
            name: Message(
                run=self.run,
                round=round,
                exchange=self._exchange,
                channel=channel,
                step=step,
                sender=sender,
                recipient=name,
                cohort=cohort,
                body=bodies[id(tree)],
                missed=b"" if alike is None else self._missed(name),
            )
            for name, tree in given.items()
        }
        if alike:
            self._note_given(requests, given)
        raw = {name: request.to_bytes() for name, request in requests.items()}
        for name, request in requests.items():
            self.transcript.record(request, raw[name])
        tolerant = without == TOLERATE_ALL
        if (tolerant or leaving_at) and self._dropouts is not None:
            gone = self._dropouts.gone(round, leaving_at or step, cohort)
            raw = {name: request for name, request in raw.items() if name not in gone}
        replies: dict[str, wire.Tree] = {}
        failed: dict[str, Exception] = {}
        first = next(iter(requests.values()))
        for name, answer in self._reached(raw, without).items():
            try:
                replies[name] = self._opened(requests.get(name), name, answer)
            except without as failure:
                failed[name] = failure
                why = printable(str(failure) if isinstance(failure, Lost) else reason(failure))
                self._note_left_out(first, name, why)
            else:
                if confirms or (alike is not None and not tolerant):
                    self._confirmed_up_to[name] = self.history.last
        if failed and not replies:  # no client is left: raise what they failed with
            raise min(failed.values(), key=lambda failure: isinstance(failure, SecureFedGraphError))
        self.warn_of_left_out()
        missing = set(raw) - set(replies) - set(failed)
        if missing and not tolerant:
            raise Refused(f"round {round}, channel {channel!r}: {', '.join(sorted(missing))} did not answer")
        return first, replies

    @property
    def roster(self) -> Mapping[str, bytes]:
        """Clients' public identity keys, where the transport knows them."""
        return self._transport.roster if isinstance(self._transport, RosterTransport) else {}

    def leave_out(self, request: Message, client: str, reason: str) -> None:
        """Notes that an exchange goes on without a client, and warns the operator the first time."""
        self._note_left_out(request, client, printable(reason))
        self.warn_of_left_out()

    def warn_of_left_out(self) -> None:
        """Warns the operator of clients that the run goes on without, once for each."""
        new, self._to_warn_of = self._to_warn_of, []
        for request, client, why in new:
            warnings.warn(
                f"round {request.round}, channel {request.channel!r}: {client} is left out: "
                f"{printable(why, SHORT)}; the run goes on without it where enough clients are left, and "
                "result.json lists it under left_out",
                LeftOutWarning,
                stacklevel=3,
            )

    def _note_left_out(self, request: Message, client: str, why: str) -> None:
        self.transcript.leave_out(request, client, why)
        if client not in self._warned_of:
            self._warned_of.add(client)
            self._to_warn_of.append((request, client, why))

    @property
    def head(self) -> str:
        """The head of the history of what was given, the same in every client that follows it."""
        return self.history.head

    def _missed(self, client: str) -> bytes:
        """The exchanges since the last one known to be in the client's history; it skips those it has."""
        since = self._confirmed_up_to.get(client, -1)
        first = bisect_right(self._given, since, key=lambda one: one.number)
        return to_bytes(self._given[first:])

    def _note_given(self, requests: Mapping[str, Message], given: Mapping[str, Given]) -> None:
        """Adds an exchange to the history, as the clients add it.

        Raises:
            BadInput: for clients that are given different things.
        """
        (name, request), *others = requests.items()
        tree, _ = split_given_and_carrier(request.tree())
        place = (request.exchange, request.round, request.channel, request.cohort)
        exchange = exchange_of(*place, tree)
        values = {key: value for key, value in given[name].items() if not key.startswith(CARRIER)}
        for other, one in others:
            same = {key: value for key, value in given[other].items() if not key.startswith(CARRIER)}
            if list(same) == list(values) and all(same[key] is values[key] for key in same):
                continue  # a broadcast, whose tensors are the same objects
            if exchange_of(*place, split_given_and_carrier(one.tree())[0]) != exchange:
                raise BadInput(
                    f"channel {request.channel!r} gives {name} and {other} different things: declare it with "
                    "Channel(..., alike=False), or give all the same"
                )
        self.history.add(exchange)
        self._given.append(exchange)

    def _reached(
        self, raw: Mapping[str, bytes], without: tuple[type[Exception], ...]
    ) -> Mapping[str, Answer]:
        if without and isinstance(self._transport, DropoutTransport):
            return self._transport.reach(raw)
        return self._transport.exchange(raw)

    def _opened(self, request: Message | None, name: str, answer: Answer) -> wire.Tree:
        """The body of a reply, recorded once it was checked."""
        if isinstance(answer, Exception):
            raise answer
        try:
            reply = Message.from_bytes(answer)
            tree = reply.tree()
        except HostileMessage as error:
            raise HostileMessage(f"{name}'s reply cannot be read: {error}") from None
        if request is None or not reply.answers(request):
            what = "nothing" if request is None else f"channel {request.channel!r}"
            raise HostileMessage(f"{name!r} answered something that it was not asked (asked was {what})")
        self.transcript.record(reply, answer)
        return tree


def _packed(given: Given, channel: str) -> wire.Parts:
    try:
        return wire.pack(given)
    except TypeError as error:
        raise BadInput(
            f"channel {channel!r}: what clients are given is a dict from names to tensors, numbers or texts, "
            f"and {error}"
        ) from None
