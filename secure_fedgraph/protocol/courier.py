"""The courier: it numbers, sends and records every message of a run, and says who did not answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from secure_fedgraph.errors import BadInput, HostileMessage, Refused, SecureFedGraphError
from secure_fedgraph.protocol import wire
from secure_fedgraph.protocol.dropouts import Dropouts
from secure_fedgraph.protocol.message import Message
from secure_fedgraph.protocol.transcript import Transcript
from secure_fedgraph.protocol.transport import Answer, Lost, Transport

Given = Mapping[str, Any]
NOBODY: tuple[type[SecureFedGraphError], ...] = ()
GONE: tuple[type[SecureFedGraphError], ...] = (Lost,)
ANYBODY: tuple[type[SecureFedGraphError], ...] = (Lost, HostileMessage)
"""Whom an ask goes on without: nobody; clients that are gone; or also those that refuse or send nonsense."""


class Courier:
    """Numbers, sends and records every message of a run.

    Guarantees:
        - every ask has an exchange number that never repeats, however often a round asks;
        - requests and replies are recorded as they go over the wire;
        - a reply is taken only from the client that was asked, under the number that it was asked with;
        - a client that does not answer, refuses, or answers nonsense ends the exchange with an error that
          names it; where the carrier tolerates drop-outs, the exchange goes on without that client, and the
          transcript says so and why.

    Args:
        run: the run's public name.
        transport: carries the bytes.
        transcript: where they are recorded.
        after: the first number is one higher.
        reserve: told each number before anything goes out under it, so that a resumed run starts above.
        dropouts: clients that a simulation keeps from answering, in exchanges that tolerate it.
    """

    def __init__(
        self,
        run: str,
        transport: Transport,
        transcript: Transcript,
        after: int = 0,
        reserve: Callable[[int], None] | None = None,
        dropouts: Dropouts | None = None,
    ) -> None:
        self.run = run
        self.transcript = transcript
        self._transport = transport
        self._exchange = after
        self._reserve = reserve
        self._dropouts = dropouts

    def ask(
        self,
        sender: str,
        round: int,
        channel: str,
        step: str,
        cohort: tuple[str, ...],
        given: Mapping[str, Given],
        without: tuple[type[SecureFedGraphError], ...] = NOBODY,
    ) -> tuple[Message, dict[str, wire.Tree]]:
        """Asks some clients one thing each.

        Args:
            given: client -> what it is given. Clients of the cohort that are not in it are not asked.
            without: what a client may fail with and the exchange goes on without it.

        Returns:
            One of the requests (for its numbers), and client -> reply.
        """
        if not given:
            raise BadInput(f"round {round}, channel {channel!r}: nobody is asked; the cohort is empty")
        self._exchange += 1
        if self._reserve is not None:
            self._reserve(self._exchange)
        # a broadcast hands every client the same object, which is encoded once
        bodies = {id(tree): wire.pack(tree) for tree in {id(t): t for t in given.values()}.values()}
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
            )
            for name, tree in given.items()
        }
        raw = {name: request.to_bytes() for name, request in requests.items()}
        for name, request in requests.items():
            self.transcript.record(request, raw[name])
        tolerant = without == ANYBODY
        if tolerant and self._dropouts is not None:
            gone = self._dropouts.gone(round, step, cohort)
            raw = {name: request for name, request in raw.items() if name not in gone}
        replies: dict[str, wire.Tree] = {}
        failed: list[SecureFedGraphError] = []
        lost = set()
        some = next(iter(requests.values()))
        for name, answer in self._reached(raw, without).items():
            try:
                replies[name] = self._opened(requests.get(name), name, answer)
            except without as failure:
                failed.append(failure)
                lost.add(name)
                self.leave_out(some, name, str(failure))
        if failed and not replies:  # nobody to go on with: what they say is the matter
            raise failed[0]
        missing = set(raw) - set(replies) - lost
        if missing and not tolerant:
            raise Refused(f"round {round}, channel {channel!r}: {', '.join(sorted(missing))} did not answer")
        return some, replies

    @property
    def roster(self) -> Mapping[str, bytes]:
        """Clients' public identity keys, where the transport knows them."""
        found: Mapping[str, bytes] = getattr(self._transport, "roster", {})
        return found

    def leave_out(self, request: Message, client: str, reason: str) -> None:
        """Notes that an exchange goes on without a client."""
        self.transcript.leave_out(request, client, reason)

    def _reached(
        self, raw: Mapping[str, bytes], without: tuple[type[SecureFedGraphError], ...]
    ) -> Mapping[str, Answer]:
        reach: Callable[[Mapping[str, bytes]], Mapping[str, Answer]] | None
        reach = getattr(self._transport, "reach", None)
        return self._transport.exchange(raw) if reach is None or not without else reach(raw)

    def _opened(self, request: Message | None, name: str, answer: Answer) -> wire.Tree:
        """The body of a reply, recorded once it is one."""
        if isinstance(answer, SecureFedGraphError):
            raise answer
        try:
            reply = Message.from_bytes(answer)
            tree = reply.tree()
        except HostileMessage as error:
            raise HostileMessage(f"{name}'s reply cannot be read: {error}") from None
        if request is None or not reply.answers(request):
            asked = "nothing" if request is None else f"channel {request.channel!r}"
            raise HostileMessage(f"{name!r} answered something that it was not asked (asked was {asked})")
        self.transcript.record(reply, answer)
        return tree
