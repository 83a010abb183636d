"""Noisy steps are owed until a charge with them is written, whatever becomes of the client in between."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.client import Client
from secure_fedgraph.core import wire
from secure_fedgraph.core.crypto import Identity
from secure_fedgraph.core.errors import BadInput, BudgetExhausted
from secure_fedgraph.core.message import ANSWER, Message
from secure_fedgraph.core.protection.contracts import Party
from secure_fedgraph.core.spending.budget import Budget
from secure_fedgraph.core.spending.ledger import Charge, Ledger, events_for
from secure_fedgraph.privacy.dp_sgd import PrivateSteps
from secure_fedgraph.storage.party_store import PartyStore

NODE = Budget(3.0, 1e-5, "node")
STEPS = PrivateSteps(noise=2.0, rate=0.2, steps=10)


class Peer:
    """One peer of a ring whose model leaves it by noisy steps, and the server that asks it."""

    def __init__(self, folder: Path, budget: Budget | None) -> None:
        self.folder = folder
        self.federation = sfg.federate(
            "synthetic-citation", clients=3, partition="random", nodes=60, features=8
        )
        self.names = tuple(self.federation.names)
        self.algorithm = sfg.DFedGnn(hidden=(4,), fanout=(0,))
        policy = dataclasses.replace(sfg.policies.plaintext(), steps=STEPS)
        self.bound = policy.bind(self.algorithm.in_use, self.names)
        self.identities = {name: Identity.generate() for name in self.names}
        self.ledger = Ledger(folder / "ledger.jsonl", budget)
        self.exchange = 0
        self.start()

    def start(self, label: str = "") -> None:
        """A process of its own, from a saved round or the beginning."""
        name = self.names[0]
        roster = {one: identity.public for one, identity in self.identities.items()}
        store = PartyStore(self.folder / "memory", name, self.folder)
        self.client = Client(
            Party(name, self.identities[name], roster),
            self.federation.owners[name],
            self.federation.schema,
            self.algorithm,
            self.bound,
            "run",
            self.ledger,
            seed=0,
            store=store,
            after=self.exchange,
        )
        if label:
            self.client.load(label)

    def ask(self, channel: str, round: int, **given: object) -> object:
        self.exchange += 1
        message = Message(
            run="run",
            round=round,
            exchange=self.exchange,
            channel=channel,
            step=ANSWER,
            sender="server",
            recipient=self.client.name,
            cohort=self.names,
            body=wire.encode(given),  # type: ignore[arg-type]
        )
        return wire.decode(Message.from_bytes(self.client.handle(message.to_bytes())).body)

    @property
    def spent(self) -> float:
        return NODE.epsilon_of(events_for(NODE, self.ledger.costs_of(self.client.name)))

    @property
    def earned(self) -> float:
        """What rounds of steps come to that are all in the model."""
        width = sum(value.numel() for value in self.client.memory["trained"].values())
        return NODE.epsilon_of(dict.fromkeys(STEPS.events(1, "zero-out", width), 8))


def test_a_refused_charge_is_still_owed_when_the_server_asks_again(tmp_path: Path) -> None:
    peer = Peer(tmp_path, Budget(0.1, 1e-5, "node"))
    peer.ask("train", 1, seed=0)
    for _ in range(2):
        with pytest.raises(BudgetExhausted):
            peer.ask("model", 1)
    assert not peer.ledger.charges


def test_a_charge_that_failed_is_still_owed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer(tmp_path, None)

    def full(charge: Charge, unavoidable: bool = False) -> None:
        raise OSError(28, "No space left on device")

    for round in range(1, 9):
        peer.ask("train", round, seed=0)
    with monkeypatch.context() as patched:
        patched.setattr(peer.ledger, "charge", full)
        with pytest.raises(OSError, match="No space left"):
            peer.ask("model", 8)
    peer.ask("model", 8)
    assert peer.spent == peer.earned
    peer.ask("model", 8)
    assert peer.spent == peer.earned  # the same model again shows nothing more


def test_steps_of_a_model_that_was_saved_and_loaded_are_charged(tmp_path: Path) -> None:
    peer = Peer(tmp_path, None)
    for round in range(1, 9):
        peer.ask("train", round, seed=0)
        label = f"{round:05d}-00000000"
        peer.client.save(label)
        peer.start(label)
    peer.ask("model", 8)
    assert peer.spent == peer.earned


class Remembers(nn.Module):
    """Keeps means of what it was given where nothing is trained: in a parameter and in a buffer."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.last, self.mean = nn.Linear(features, classes), nn.Linear(features, 1, bias=False)
        self.mean.weight.requires_grad_(False)
        self.register_buffer("seen", torch.zeros(features))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.keep(x)
        return self.last(x.new_zeros(int(batch.max()) + 1, x.shape[1]).index_add(0, batch, x))

    def keep(self, x: torch.Tensor) -> None:
        self.seen = self.seen + x.mean(0).detach()


class Weighs(Remembers):
    def keep(self, x: torch.Tensor) -> None:
        self.mean.weight.data = self.mean.weight + 0.1 * x.mean(0)


@pytest.mark.parametrize(("kind", "name"), [(Remembers, "seen"), (Weighs, r"mean\.weight")])
def test_a_model_that_keeps_what_it_saw_sends_nothing_under_noisy_steps(kind: Any, name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    graphs = {
        f"silo-{silo}": [
            Data(x=torch.randn(3, 2, generator=generator), edge_index=path, y=torch.tensor([n % 2]))
            for n in range(12)
        ]
        for silo in range(3)
    }
    steps = PrivateSteps(noise=1.0, rate=0.5, steps=3, unit="graph")
    policy = dataclasses.replace(sfg.policies.plaintext(), steps=steps)
    with pytest.raises(BadInput, match=f"{name}' of model .* changes while it computes"):
        sfg.train(sfg.FedAvg(kind), sfg.federate(graphs), policy, rounds=2, allow_plaintext=True)
