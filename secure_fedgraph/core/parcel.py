"""Parcels: what clients send each other with the server as courier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.message import Message

OFFER = "parcel/"
"""The prefix of a request's entry that carries a parcel, before the channel's name."""
READ = "read"
"""The step in which a client reads what others sent it."""
_REPLY = "reply/"


@dataclass(frozen=True)
class Parcel:
    """One client's sealed reply on a peer channel, with the numbers it was made under.

    The server's half of an algorithm gets parcels and can only pass them on.

    Args:
        channel, sender: whose parcel of which channel.
        round, exchange, cohort: the request that it answers; the seal binds them.
        tree: the reply as it came.
    """

    channel: str
    sender: str
    round: int
    exchange: int
    cohort: tuple[str, ...]
    tree: wire.Tree = field(repr=False)

    def to_parts(self) -> wire.Parts:
        """As it travels inside a request."""
        return wire.pack(
            {
                "channel": self.channel,
                "sender": self.sender,
                "round": self.round,
                "exchange": self.exchange,
                "cohort": "\n".join(self.cohort),
                "tree": wire.pack(self.tree),
            }
        )

    @classmethod
    def from_bytes(cls, raw: object) -> Parcel:
        """The inverse.

        Raises:
            HostileMessage: for anything else.
        """
        tree = wire.decode(raw, views=True) if isinstance(raw, wire.BYTES) else {}
        kinds = {
            "channel": str,
            "sender": str,
            "round": int,
            "exchange": int,
            "cohort": str,
            "tree": memoryview,
        }
        if tree.keys() != kinds.keys() or any(type(tree[key]) is not kind for key, kind in kinds.items()):
            raise HostileMessage("a request carries a parcel that cannot be read")
        cohort = tuple(tree["cohort"].split("\n"))
        return cls(**{**tree, "cohort": cohort, "tree": wire.decode(tree["tree"], views=True)})


@dataclass(frozen=True)
class Bundle:
    """Replies on a peer channel that one client reads: of a whole cohort for a sum, else of some clients.

    Args:
        channel, reader: who reads which channel.
        round, exchange, cohort: the request that they answer.
        replies: client -> reply as it came.
    """

    channel: str
    reader: str
    round: int
    exchange: int
    cohort: tuple[str, ...]
    replies: Mapping[str, wire.Tree] = field(repr=False)

    @classmethod
    def of(cls, request: Message, reader: str, replies: Mapping[str, wire.Tree]) -> Bundle:
        """The replies to a request, for a reader."""
        return cls(request.channel, reader, request.round, request.exchange, request.cohort, replies)

    def to_tree(self) -> wire.Tree:
        """The body of the request that delivers it."""
        replies = {f"{_REPLY}{name}": wire.pack(tree) for name, tree in self.replies.items()}
        return {"exchange": self.exchange, "cohort": "\n".join(self.cohort), **replies}

    @classmethod
    def from_tree(cls, tree: wire.Tree, channel: str, reader: str, round: int) -> Bundle:
        """The inverse, in the reader's hands.

        Raises:
            HostileMessage: for anything else.
        """
        exchange, cohort = tree.get("exchange"), tree.get("cohort")
        if type(exchange) is not int or type(cohort) is not str:
            raise HostileMessage("a delivery does not say which exchange and cohort it is from")
        names = tuple(cohort.split("\n"))
        replies = {}
        for name in names:
            raw = tree.get(f"{_REPLY}{name}")
            if isinstance(raw, wire.BYTES):
                replies[name] = wire.decode(raw, views=True)
        if len(tree) != len(replies) + 2:
            raise HostileMessage("a delivery holds replies from outside its cohort, or none that can be read")
        return cls(channel, reader, round, exchange, names, replies)
