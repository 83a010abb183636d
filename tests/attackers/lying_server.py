"""A server that lies, in front of clients that run a real algorithm: what it asks, and what it could notice.

It sees every client's behaviour at its door: whether it answered, refused or failed, at which step, and how
long the answer was. What an answer holds is not looked at here: the protections are there for that.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from ways import Ask, way

import secure_fedgraph as sfg
from secure_fedgraph.client import Client
from secure_fedgraph.core.errors import SecureFedGraphError
from secure_fedgraph.core.message import Message
from secure_fedgraph.core.spending.ledger import Ledger
from secure_fedgraph.privacy.policy import BoundPolicy, Policy
from secure_fedgraph.protocol import DirectCalls, Transcript
from secure_fedgraph.protocol.courier import Courier
from secure_fedgraph.round import Round, set_up

RUN = "lied to"
Noticed = tuple[str, str, int]
"""One request at one door: its step, what came of it in words, and the length of the answer."""


@dataclass
class Door:
    """One client's, where the server notes what it notices.

    Args:
        client: behind it.
        ask: hands it a request.
        lengths: whether lengths are noted; those of compressed ciphertexts vary by themselves.
    """

    client: Client
    ask: Ask
    lengths: bool = True
    noticed: list[Noticed] = field(default_factory=list)

    def __call__(self, raw: bytes) -> bytes:
        step = Message.from_bytes(raw).step
        try:
            reply = self.ask(raw)
        except Exception as error:
            said = re.sub(r"\d+", "0", str(error))  # numbers of rounds and exchanges go up by themselves
            self.noticed.append((step, f"{type(error).__name__}: {said}", 0))
            raise
        self.noticed.append((step, "answered", len(reply) if self.lengths else 0))
        return reply

    def taken(self) -> tuple[Noticed, ...]:
        """What was noticed since this was last asked."""
        found, self.noticed = tuple(self.noticed), []
        return found


@dataclass
class LyingServer:
    """Clients with keys, and a server that broadcasts what it likes.

    Args:
        doors: the clients'.
    """

    algorithm: sfg.Algorithm
    federation: sfg.Federation
    policy: BoundPolicy
    courier: Courier
    doors: dict[str, Door]
    ledger: Ledger

    @property
    def clients(self) -> dict[str, Client]:
        return {name: door.client for name, door in self.doors.items()}

    def asks(
        self,
        channel: str,
        given: Mapping[str, Any],
        number: int,
        cohort: tuple[str, ...] = (),
        verb: str = "reduce",
    ) -> Any:
        """One exchange; what it opened, or the error that it ended in."""
        declared = next(c for c in self.algorithm.in_use if c.name == channel)
        round = Round(number, cohort or tuple(self.doors), self.policy, self.courier)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return getattr(round, verb)(declared, given)
            except SecureFedGraphError as error:
                return error

    def noticed(self) -> dict[str, tuple[Noticed, ...]]:
        """Of every client, since this was last asked."""
        return {name: door.taken() for name, door in self.doors.items()}


def lying_server(
    algorithm: sfg.Algorithm,
    federation: sfg.Federation,
    policy: Policy,
    keep: Callable[[str, int], bool] = lambda *_: False,
    **more: Any,
) -> LyingServer:
    """The clients of a federation with keys agreed, as ``train`` would have them before round 1."""
    bound, ledger = policy.bind(algorithm.in_use, federation.names), Ledger()
    transcript = Transcript(keep=keep, public={"clients": list(federation.names)})
    clients = federation.make_clients(algorithm, bound, RUN, ledger, 0, transcript.record_opened, **more)
    asks = way.get()({c.name: c for c in clients})
    doors = {c.name: Door(c, asks[c.name], policy.name != "homomorphic") for c in clients}
    transport = DirectCalls(dict(doors))
    transport.roster = clients[0].roster  # type: ignore[attr-defined]
    courier = Courier(RUN, transport, transcript)
    set_up(bound, courier, federation.names)
    made = LyingServer(algorithm, federation, bound, courier, doors, ledger)
    made.noticed()
    return made


def citation(clients: int, nodes: int, words: int, classes: int = 2, seed: int = 0) -> sfg.Federation:
    """Owners of a small citation graph; a word is a column of zeros and ones."""
    return sfg.federate(
        "synthetic-citation",
        clients=clients,
        partition="random",
        seed=seed,
        nodes=nodes,
        features=words,
        classes=classes,
    )


def with_secret(federation: sfg.Federation, victim: str, words: torch.Tensor) -> sfg.Federation:
    """The same federation, in which each word is in all of one owner's nodes or in none: its secret."""
    graph = federation.owners[victim].clone()
    graph.x = words.float().repeat(len(graph.x), 1)
    return replace(federation, owners={**federation.owners, victim: graph})


def huge_at(state: dict[str, torch.Tensor], word: int) -> dict[str, torch.Tensor]:
    """Finite weights on which a node without the word stays at zero, and one with it leaves float32."""
    found = {name: torch.full_like(value, 1e10) for name, value in state.items() if value.dim() == 2}
    found |= {name: torch.zeros_like(value) for name, value in state.items() if value.dim() == 1}
    for name in ("layers.0.own.weight", "layers.0.neighbour.weight"):
        found[name] = torch.zeros_like(state[name])
        found[name][:, word] = 3e38
    return found


def bits_read(noticed: list[tuple[Noticed, ...]], secret: torch.Tensor) -> int:
    """How many of the secret's bits whoever noticed this has right, guessing by the best rule there is.

    Behaviours of one kind get one answer. Where all are alike, that is the more common bit.
    """
    right = 0
    for kind in set(noticed):
        bits = secret[[seen == kind for seen in noticed]]
        right += max(int(bits.sum()), len(bits) - int(bits.sum()))
    return right


def guessing(secret: torch.Tensor) -> int:
    """The same for who has noticed nothing."""
    return max(int(secret.sum()), len(secret) - int(secret.sum()))
