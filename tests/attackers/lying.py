"""A real algorithm's clients under a server that changes what it sends to whom: for playing lying servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.backends.in_process import InProcess
from secure_fedgraph.client import Client
from secure_fedgraph.core import wire
from secure_fedgraph.core.message import Message
from secure_fedgraph.core.spending.ledger import Ledger
from secure_fedgraph.privacy.policy import BoundPolicy, Policy
from secure_fedgraph.protocol import Transcript
from secure_fedgraph.protocol.courier import Courier
from secure_fedgraph.protocol.transport import Answer
from secure_fedgraph.round import Round, set_up

RUN = "a-run-with-a-liar"
Lie = Callable[[Message], Message | None]
"""What a request becomes on its way to its recipient; None loses it."""


def honest(message: Message) -> Message:
    return message


class Liar(InProcess):
    """Carries requests as its server wants them, whatever the courier wrote."""

    def __init__(self, clients: list[Client]) -> None:
        super().__init__(clients)
        self.lie: Lie = honest

    def exchange(self, requests: Mapping[str, bytes]) -> dict[str, bytes]:
        return super().exchange(self._changed(requests))

    def reach(self, requests: Mapping[str, bytes]) -> dict[str, Answer]:
        return super().reach(self._changed(requests))

    def _changed(self, requests: Mapping[str, bytes]) -> dict[str, bytes]:
        found = {name: self.lie(Message.from_bytes(raw)) for name, raw in requests.items()}
        return {name: message.to_bytes() for name, message in found.items() if message is not None}


@dataclass
class Played:
    """Clients, and a server that does with its half what it likes."""

    algorithm: Algorithm
    federation: sfg.Federation
    bound: BoundPolicy
    clients: dict[str, Client]
    transport: Liar
    courier: Courier
    state: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.clients)

    def round(self, number: int, cohort: tuple[str, ...] | None = None) -> Round:
        return Round(number, cohort or self.names, self.bound, self.courier)


def play(algorithm: Algorithm, federation: sfg.Federation, policy: Policy) -> Played:
    """Everybody set up, before round 1."""
    bound = policy.bind((*algorithm.in_use, *federation.referee.channels(algorithm)), federation.names)
    clients = federation.make_clients(algorithm, bound, RUN, Ledger(), 0)
    transport = Liar(clients)
    courier = Courier(RUN, transport, Transcript())
    set_up(bound, courier, federation.names)
    state = algorithm.init(federation.schema, 0)
    by_name = {client.name: client for client in clients}
    return Played(algorithm, federation, bound, by_name, transport, courier, state)


def giving(values: Mapping[str, Any], to: str, channel: str, step: str = "answer") -> Lie:
    """Other values for one client on one channel; a carrier's parts stay as they are."""

    def lie(message: Message) -> Message:
        if (message.recipient, message.channel, message.step) != (to, channel, step):
            return message
        return replace(message, body=wire.encode({**message.tree(), **values}))

    return lie


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    """How far two vectors point one way."""
    a, b = one.double().flatten(), other.double().flatten()
    return float(a @ b / (a.norm() * b.norm()).clamp(min=1e-300))
