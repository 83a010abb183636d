"""The server's ask for sums that go on without clients whose answers are invalid."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from secure_fedgraph.core.errors import HostileMessage, Refused
from secure_fedgraph.core.message import Message
from secure_fedgraph.core.protection.contracts import Ask, Scope
from secure_fedgraph.core.wire import Tree

Asks = Callable[[str, Mapping[str, Tree]], tuple[Message, dict[str, Tree]]]
LeaveOut = Callable[[Message, str, str], None]
REASONS_SHOWN = 3
"""How many reasons a refusal repeats."""


class TolerantAsk:
    """The server's ask in one sum that survives drop-outs; it keeps who was left out, and why.

    Guarantees:
        - a client is left out for what it sent itself, never for what another one sent;
        - a reason names the client and what was wrong, and holds nothing of an upload.

    Args:
        ask: (step, client -> what it is given) -> the request, and the replies.
        leave_out: called for every client that the sum goes on without.
        reasons: the reasons so far why clients of this sum were left out.
        roster: client -> public identity key, where the server knows them: it then notices a wrong
            signature, and whose it is, before the other clients refuse it.
    """

    def __init__(
        self, ask: Asks, leave_out: LeaveOut, reasons: Callable[[], list[str]], roster: Mapping[str, bytes]
    ) -> None:
        self.roster = roster
        self.reasons = reasons
        self.request: Message | None = None
        self._ask = ask
        self._leave_out = leave_out

    def __call__(self, step: str, given: Mapping[str, Tree]) -> dict[str, Tree]:
        """The replies that can be read."""
        self.request, replies = self._ask(step, given)
        return replies

    @property
    def scope(self) -> Scope:
        """Where the last ask belongs."""
        request = self.request
        assert request is not None
        return Scope(request.run, request.round, request.exchange, request.channel, request.cohort)

    def refuse(self, client: str, reason: str) -> None:
        """Goes on without a client."""
        assert self.request is not None
        self._leave_out(self.request, client, reason)


def keep_valid(ask: Ask, replies: Mapping[str, Tree], check: Callable[[str, Tree], None]) -> dict[str, Tree]:
    """The replies that pass a check. A plain ask cannot leave a client out: it raises the refusal.

    Args:
        check: raises HostileMessage for a reply that no honest client sends.
    """
    valid = {}
    for name, tree in replies.items():
        try:
            check(name, tree)
        except HostileMessage as refusal:
            if not isinstance(ask, TolerantAsk):
                raise
            ask.refuse(name, str(refusal))
        else:
            valid[name] = tree
    return valid


def require(ask: Ask, count: int, needed: int, of: int, channel: str, had: str) -> None:
    """Checks that enough clients are left for a sum.

    Raises:
        Refused: with the reasons why some were left out.
    """
    if count >= needed:
        return
    reasons = ask.reasons() if isinstance(ask, TolerantAsk) else []
    why = "".join(f"; {reason}" for reason in reasons[:REASONS_SHOWN])
    more = f"; and {len(reasons) - REASONS_SHOWN} more" if len(reasons) > REASONS_SHOWN else ""
    raise Refused(
        f"channel {channel!r}: only {count} of {of} clients {had} and {needed} are needed: "
        f"nothing was opened{why}{more}"
    )
