"""Recorded runs of real clients and a real server: what each drew, every message, what was opened.

A client can be made again as it was before any message of a record, and so can the server, so that both can
be handed something that no honest party sends.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import parties
import torch
from fixed_draws import SERVER, Draws, Steps, fixed, traced

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.client import Client
from secure_fedgraph.core import crypto
from secure_fedgraph.core.carriers.secagg.server import Masked
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.message import Message
from secure_fedgraph.core.protection.contracts import Party
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.policies import masked
from secure_fedgraph.protocol import DirectCalls
from secure_fedgraph.protocol.courier import Courier
from secure_fedgraph.protocol.dropouts import Dropouts

Vectors = dict[str, Any]
Door = Callable[[bytes], bytes]
FIVE = ("west", "east", "North", "south", "far-east")
THREE = ("west", "North", "east")
TRACED = "west"
"""The client whose cryptographic steps are written down one by one."""
NO_PAIR = b"masked: a key that agrees on nothing".hex()
"""The end of an info that the server uses to try keys only; no key comes of it."""


class Exchanged(Algorithm):
    """Clients send vectors that follow from their name and the round; what they are given changes nothing."""

    name = "exchanged"
    TELL = Channel("tell", Reveal.NOTHING)
    UPDATE = Channel("update", Reveal.SUM)
    OFFERS = Channel("offers", Reveal.EACH, to="peer")
    ANSWERS = Channel("answers", Reveal.SUM, to="peer")

    @TELL.answer
    def told(self, client: Any, given: Mapping[str, Any]) -> None:
        """Nothing goes back."""

    @UPDATE.answer
    def update(self, client: Any, given: Mapping[str, Any]) -> Upload:
        return upload(client.name, "update", client.round)

    @OFFERS.answer
    def offer(self, client: Any, given: Mapping[str, Any]) -> Upload:
        return upload(client.name, "offers", client.round)

    @OFFERS.read
    def take_offer(self, client: Any, read: Any) -> None:
        client.memory["offer"] = read

    @ANSWERS.answer
    def respond(self, client: Any, given: Mapping[str, Any]) -> Upload:
        return upload(client.name, "answers", client.round)

    @ANSWERS.read
    def take(self, client: Any, answered: Any) -> None:
        client.memory["read"] = answered


def upload(name: str, channel: str, round: int) -> Upload:
    """Two tensors of three and two values; one client's hold a value beyond the limit of 8."""
    number = hashlib.sha256(f"upload/{name}/{channel}/{round}".encode()).digest()
    values = np.frombuffer(number[:10], "<i2").astype(np.float32) / np.float32(8192)
    values[0] = 2.0**-26 * (2 * (number[10] % 8) + 1)  # between two grid numbers: ties go to the even one
    if name == "south":
        values[1] = 8.5
    if name == "North":
        values[1], values[4] = -8.0, 8.0
    tensor = torch.from_numpy(values)
    return Upload({"layer.weight": tensor[:3].reshape(1, 3), "layer.bias": tensor[3:]})


def described(name: str, channel: str, round: int) -> Vectors:
    """An upload's layout and its values, row by row."""
    layout, matrix = upload(name, channel, round).packed(Exchanged.UPDATE.unit)
    return {"layout": layout.to_text(), "values": matrix.reshape(-1).tolist()}


class Recorder(DirectCalls):
    """Clients in this process; every request that reaches one is kept with its reply."""

    def __init__(self, doors: Mapping[str, Door], roster: Mapping[str, bytes], steps: Steps) -> None:
        super().__init__({name: self._kept(name, door) for name, door in doors.items()})
        self.roster = roster
        self.messages: list[dict[str, Any]] = []
        self._steps = steps

    def _kept(self, name: str, door: Door) -> Door:
        def kept(raw: bytes) -> bytes:
            self._steps[name].clear()
            reply = door(raw)
            entry = {"to": name, "request": raw.hex(), "reply": reply.hex()}
            if name == TRACED:
                entry["steps"] = list(self._steps[name])
            self.messages.append(entry)
            return reply

        return kept


class Enough(BaseException):
    """The server has asked for more than the record that is played to it holds."""


class Player:
    """Replies as recorded, one of them changed: what a server meets that is lied to."""

    def __init__(self, record: Vectors, place: int, reply: bytes) -> None:
        self.roster = {name: bytes.fromhex(key) for name, key in record["roster"].items()}
        self._replies = [bytes.fromhex(entry["reply"]) for entry in record["messages"][:place]] + [reply]
        self._after = iter(record["messages"][place + 1 :])
        self._exchange = _exchange_of(record["messages"][place])

    def exchange(self, requests: Mapping[str, bytes]) -> dict[str, bytes]:
        """The replies to one ask."""
        answers = {}
        for name in requests:
            if not self._replies:
                following = next(self._after, None)
                if following is None or _exchange_of(following) != self._exchange:
                    raise Enough
                self._replies.append(bytes.fromhex(following["reply"]))
            answers[name] = self._replies.pop(0)
        return answers


def _exchange_of(entry: Mapping[str, Any]) -> int:
    return Message.from_bytes(bytes.fromhex(entry["request"])).exchange


@dataclass(frozen=True)
class Run:
    """A run that can be recorded, and set up again.

    Args:
        names: the clients, in the roster's order.
        channels: what they send.
        serve: the server's half; it gives what the record says beside the messages.
        gone: (round, client) -> the step from which on it does not answer.
    """

    names: tuple[str, ...]
    channels: tuple[Channel, ...]
    serve: Callable[[parties.Session, Steps], Vectors]
    gone: Mapping[tuple[int, str], str]

    def made(self, draws: Draws) -> tuple[parties.Session, dict[str, Door]]:
        """The clients and their doors, behind which each draws under its own name."""

        def people(names: tuple[str, ...]) -> dict[str, Party]:
            identities = {}
            for name in names:
                with draws.as_party(name):
                    identities[name] = crypto.Identity.generate()
            roster = {name: identity.public for name, identity in identities.items()}
            return {name: Party(name, identities[name], roster) for name in names}

        def door(one: Client) -> Door:
            def handle(raw: bytes) -> bytes:
                with draws.as_party(one.name):
                    return one.handle(raw)

            return handle

        with mock.patch.object(parties, "people", people):
            made = parties.session(masked(), channels=self.channels, names=self.names, algorithm=Exchanged())
        return made, {name: door(one) for name, one in made.clients.items()}

    def served(self, made: parties.Session, transport: Any, steps: Steps) -> Vectors:
        """What the server's half gives over some transport."""
        made.courier = Courier(parties.RUN, transport, made.transcript, dropouts=Dropouts(at=self.gone))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some uploads are meant to be cut
            parties.set_up(made.policy, made.courier, self.names)
            return self.serve(made, steps)

    def record(self) -> Vectors:
        """What each party drew, every message, the traced client's steps, and what was opened."""
        with fixed() as draws, traced(draws) as steps:
            made, doors = self.made(draws)
            roster = made.parties[self.names[0]].roster
            transport = Recorder(doors, roster, steps)
            opened = self.served(made, transport, steps)
        return {
            "run": parties.RUN,
            "clients": list(self.names),
            "roster": {name: key.hex() for name, key in roster.items()},
            "drawn": {name: draws.made[name] for name in self.names},
            **opened,
            "messages": transport.messages,
        }

    @contextmanager
    def client(self, record: Vectors, name: str, after: int) -> Iterator[Door]:
        """One client's door, after what it was asked in the first messages of the record."""
        with fixed() as draws:
            _, doors = self.made(draws)
            for entry in record["messages"][:after]:
                if entry["to"] == name:
                    doors[name](bytes.fromhex(entry["request"]))
            yield doors[name]

    def left_out(self, record: Vectors, place: int, reply: bytes) -> tuple[str, ...]:
        """Whom the server goes on without, where one reply of the record is another one.

        Raises:
            SecureFedGraphError: where the server refuses to go on.
        """
        with fixed() as draws, traced(draws) as steps:
            made, _ = self.made(draws)
            with suppress(Enough):
                self.served(made, Player(record, place, reply), steps)
            return tuple(note.client for note in made.transcript.left_out)


def server_steps(steps: Steps) -> list[dict[str, Any]]:
    """What the server computed since the last time. Their order says nothing, so they are sorted."""
    kept = [one for one in steps[SERVER] if not one.get("info", "").endswith(NO_PAIR)]
    for one in kept:
        if "streams" in one:
            one["streams"].sort(key=lambda part: (part["sign"], part["key"]))
    steps[SERVER].clear()
    unique = {json.dumps(one, sort_keys=True): one for one in kept if one["step"] != "history"}
    return [unique[text] for text in sorted(unique)]


def _sums(made: parties.Session, steps: Steps) -> Vectors:
    told = {
        "times": 1.5,
        "whole": -3,
        "flag": True,
        "large": np.array(2**63 + 1, dtype=np.uint64),
        "small": np.array(7, dtype=np.uint8),
        "half": np.array(0.5, dtype=np.float32),
        "text": "größer",
        "texts": ["a", "", "ß"],
        "octets": b"\x00\x01",
        "array": np.arange(6, dtype=np.int32).reshape(2, 3),
        "none": np.zeros((0, 4), dtype=np.float32),
    }
    made.round(1, FIVE[:3]).scatter(Exchanged.TELL, dict.fromkeys(FIVE[:3], told))
    sums = []
    for number in (2, 3):
        server_steps(steps)
        total = made.round(number).reduce(Exchanged.UPDATE, {"model": torch.arange(3.0) * number})
        flat = torch.cat([value.reshape(-1) for value in total.total.values()])
        sums.append(
            {
                "round": number,
                "contributors": list(total.contributors),
                "total": flat.tolist(),
                "cut": total.cut,
                "history_head": made.courier.head,
                "server_steps": server_steps(steps),
            }
        )
    carrier, grid = made.policy["update"].carrier, made.policy["update"].public["grid"]
    assert isinstance(carrier, Masked)
    policy = {key: getattr(carrier, key) for key in ("colluders", "dropouts", "bits", "abandoned")}
    return {
        "policy": {"quorum": {"update": carrier.quorum}, **policy, "limit": 8.0, "grid": grid},
        "channels": {"tell": "nothing", "update": "masked sum"},
        "channels_that_give_alike": ["tell", "update"],
        "uploads": [
            {"channel": "update", "round": number, "by": {n: described(n, "update", number) for n in FIVE}}
            for number in (2, 3)
        ],
        "sums": sums,
    }


def _parcels(made: parties.Session, steps: Steps) -> Vectors:
    round = made.round(1)
    offers = round.collect(Exchanged.OFFERS, {"question": 1})
    round.reduce_for(Exchanged.ANSWERS, offers["west"])
    made.round(2).share(Exchanged.OFFERS, senders=("North",))
    answers, read = made.policy["answers"], made.clients["west"].memory["read"]
    sent = [("offers", 1, THREE), ("answers", 1, THREE[1:]), ("offers", 2, ("North",))]
    return {
        "policy": {"quorum": {"answers": answers.quorum}, "limit": 8.0, **answers.public},
        "channels": {"offers": "sealed", "answers": "sealed sum"},
        "channels_that_give_alike": ["offers", "answers"],
        "uploads": [
            {"channel": channel, "round": number, "by": {n: described(n, channel, number) for n in names}}
            for channel, number, names in sent
        ],
        "read": {
            "client": "west",
            "contributors": list(read.contributors),
            "total": torch.cat([value.reshape(-1) for value in read.total.values()]).tolist(),
            "cut": read.cut,
        },
    }


SUMS = Run(
    FIVE,
    (Exchanged.TELL, Exchanged.UPDATE),
    _sums,
    {(2, "east"): "answer", (2, "south"): "agree", (3, "North"): "share"},
)
"""A broadcast to some, then two sums with clients that drop out from three different steps on."""
PARCELS = Run(THREE, (Exchanged.OFFERS, Exchanged.ANSWERS), _parcels, {})
"""Everybody's offers, the sum of the others' answers to one, and one client's upload for the others."""
