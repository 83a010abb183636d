"""A federation small enough to be read in full: what the protocol's tests build their clients from."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from ways import Ask, way

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.client import Client
from secure_fedgraph.core import wire
from secure_fedgraph.core.carriers import key_agreement
from secure_fedgraph.core.carriers.secagg.pairwise import Pairwise
from secure_fedgraph.core.carriers.secagg.server import Masked
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.crypto import Identity
from secure_fedgraph.core.message import ANSWER, Message
from secure_fedgraph.core.protection.binding import Protection
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.contracts import Party, Scope
from secure_fedgraph.core.protection.fixed_point import FixedPoint
from secure_fedgraph.core.spending.ledger import Ledger
from secure_fedgraph.core.upload import Layout, Upload
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.privacy.policy import BoundPolicy, Policy
from secure_fedgraph.protocol import Transcript
from secure_fedgraph.protocol.courier import Courier
from secure_fedgraph.protocol.dropouts import STEPS
from secure_fedgraph.protocol.transcript import SERVER, everything
from secure_fedgraph.round import Round, set_up

RUN = "run-1"
NAMES = ("owner-0", "owner-1", "owner-2")


class Toy(Algorithm):
    """Every client sends the vector in its memory, times what it is given."""

    name = "toy"
    UPDATE = Channel("update", Reveal.SUM)
    SINGLE = Channel("single", Reveal.EACH)
    TELL = Channel("tell", Reveal.NOTHING)
    EXAM = Channel("exam", Reveal.EACH, to="referee")

    @UPDATE.answer
    def update(self, client: Any, given: Mapping[str, Any]) -> Upload:
        return Upload({"w": client.memory["w"] * given.get("times", 1.0)})

    @SINGLE.answer
    def single(self, client: Any, given: Mapping[str, Any]) -> Upload:
        return Upload({"w": client.memory["w"]})

    @TELL.answer
    def tell(self, client: Any, given: Mapping[str, Any]) -> Any:
        client.memory["told"] = dict(given)
        return client.memory.get("blab")

    @EXAM.answer
    def exam(self, client: Any, given: Mapping[str, Any]) -> Upload:
        return Upload({"w": client.memory["w"]})


@dataclass
class Session:
    """Clients, a courier, and everything that passed through the clients' doors."""

    clients: dict[str, Client]
    parties: dict[str, Party]
    policy: BoundPolicy
    courier: Courier
    transcript: Transcript
    ledger: Ledger
    asks: Mapping[str, Ask]
    passed: list[tuple[str, bytes, bytes]] = field(default_factory=list)
    tamper: Callable[[str, Message], Message | None] | None = None

    def exchange(self, requests: Mapping[str, bytes]) -> dict[str, bytes]:
        replies = {}
        for name, raw in requests.items():
            reply = self.asks[name](raw)
            self.passed.append((name, raw, reply))
            if self.tamper is not None:
                changed = self.tamper(name, Message.from_bytes(reply))
                if changed is None:
                    continue
                reply = changed.to_bytes()
            replies[name] = reply
        return replies

    def set_up(self) -> Session:
        set_up(self.policy, self.courier, tuple(self.clients))
        return self

    def round(self, number: int = 1, cohort: tuple[str, ...] | None = None, reader: str = SERVER) -> Round:
        return Round(number, cohort or tuple(self.clients), self.policy, self.courier, reader)

    def message(self, name: str, channel: str = "update", exchange: int = 100, **other: Any) -> Message:
        """A request that nobody's verbs would send."""
        fields: dict[str, Any] = {
            "run": RUN,
            "round": 1,
            "exchange": exchange,
            "channel": channel,
            "step": ANSWER,
            "sender": SERVER,
            "recipient": name,
            "cohort": tuple(self.clients),
            "body": wire.encode({}),
        }
        return Message(**{**fields, **other})

    def prepared(self, channel: str = "update", cohort: tuple[str, ...] = ()) -> Bound:
        """What a server has when it may ask for the uploads of a masked sum."""
        bound, cohort = self.policy[channel], cohort or tuple(self.clients)
        ask = self.round(cohort=cohort)._tolerant_ask(bound.channel)
        return replace(bound, carrier=bound.carrier.prepare(ask, cohort, channel))

    def upload(
        self, bound: Bound, name: str, given: Mapping[str, Any] | None = None, **other: Any
    ) -> Message:
        """The request for one client's upload of a prepared sum."""
        part = bound.carrier.upload_requests(tuple(self.clients))[name]
        return self.message(name, bound.channel.name, body=wire.encode({**(given or {}), **part}), **other)

    def tell(self, message: Message) -> wire.Tree:
        """The reply's body to a request that is handed to its recipient's door."""
        raw = self.asks[message.recipient](message.to_bytes())
        return wire.decode(Message.from_bytes(raw).body)


def pairwise(quorum: int = 2) -> Policy:
    """Masks without recovery from drop-outs, as sums between peers have them under their seal."""
    protection = Protection(Pairwise(), (FixedPoint(8.0),), quorum, "masked")
    return Policy("pairwise", lambda channel: protection)


def session(
    policy: Policy,
    channels: tuple[Channel, ...] = (Toy.UPDATE,),
    names: tuple[str, ...] = NAMES,
    width: int = 5,
    algorithm: Algorithm | None = None,
    ledger: Ledger | None = None,
) -> Session:
    """Clients whose vectors are seeded and within [-1, 1]."""
    parties = people(names)
    bound = policy.bind(channels, names)
    ledger = ledger or Ledger()
    algorithm = algorithm or Toy()
    clients = {
        name: Client(
            party,
            None,
            Schema(1, 1),
            algorithm,
            bound,
            RUN,
            ledger,
            seed=0,
        )
        for name, party in parties.items()
    }
    for number, client in enumerate(clients.values()):
        generator = torch.Generator().manual_seed(number)
        client.memory["w"] = torch.rand(width, generator=generator) * 2 - 1
    transcript = Transcript(
        keep=everything,
        public={"clients": list(names), "channels": {row["name"]: row for row in bound.describe()}},
    )
    asks = way.get()(clients)
    made = Session(clients, parties, bound, None, transcript, ledger, asks)  # type: ignore[arg-type]
    made.courier = Courier(RUN, made, transcript)
    return made


def people(names: tuple[str, ...] = NAMES) -> dict[str, Party]:
    """Parties with identities and a common roster."""
    identities = {name: Identity.generate() for name in names}
    roster = {name: identity.public for name, identity in identities.items()}
    return {name: Party(name, identities[name], roster) for name in names}


def scope(
    exchange: int = 7, channel: str = "update", cohort: tuple[str, ...] = NAMES, round: int = 1
) -> Scope:
    return Scope(RUN, round, exchange, channel, cohort)


def introduced(names: tuple[str, ...] = NAMES) -> dict[str, Party]:
    """Parties that have agreed on keys, by the protocol itself."""
    parties = people(names)
    place = scope(0, "carrier/keys", names)

    def ask(step: str, given: Mapping[str, wire.Tree]) -> dict[str, wire.Tree]:
        return {n: key_agreement.answer(step, dict(g), place, parties[n]) for n, g in given.items()}

    key_agreement.set_up(ask, names)
    return parties


def masked_sum(
    parties: Mapping[str, Party],
    carrier: Masked,
    uploads: Mapping[str, np.ndarray],
    left: Mapping[str, str] | None = None,
    exchange: int = 10,
) -> np.ndarray:
    """One masked sum from the first step to the last, between parties without clients around them.

    Args:
        left: client -> the step from which on it does not answer.
    """
    cohort, left, numbers = tuple(uploads), left or {}, itertools.count(exchange)

    def there(name: str, step: str) -> bool:
        return name not in left or STEPS.index(step) < STEPS.index(left[name])

    def ask(step: str, given: Mapping[str, wire.Tree]) -> dict[str, wire.Tree]:
        place = scope(next(numbers), cohort=cohort)
        return {
            n: carrier.answer(step, dict(g), place, parties[n]) for n, g in given.items() if there(n, step)
        }

    server = carrier.prepare(ask, cohort, "update")
    place, sealed = scope(next(numbers), cohort=cohort), {}
    for name, part in server.upload_requests(cohort).items():
        if there(name, ANSWER):
            carrier.accept(part, place, parties[name])
            sealed[name] = carrier.seal(uploads[name], place, parties[name])
    rows, width = next(iter(uploads.values())).shape
    return server.open_sum(sealed, Layout((("w", (width,)),), rows), place, ask)


def vectors(made: Session) -> dict[str, np.ndarray]:
    return {name: client.memory["w"].numpy() for name, client in made.clients.items()}
