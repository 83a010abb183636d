"""Signatures that a simulation checks once: only good ones, and only among clients of one process."""

from __future__ import annotations

import pytest

import secure_fedgraph as sfg
from secure_fedgraph.crypto import Identity
from secure_fedgraph.errors import HostileMessage
from secure_fedgraph.privacy import party as parties
from secure_fedgraph.privacy.party import Party


@pytest.fixture
def counted(monkeypatch):
    """How often the library was asked."""
    asked, checks = [], parties.verify

    def verify(public, signature, message):
        asked.append(signature)
        checks(public, signature, message)

    monkeypatch.setattr(parties, "verify", verify)
    return asked


def pair(good):
    signer = Identity.generate()
    roster = {"a": Identity.generate().public, "b": signer.public}
    return signer, [Party(name, Identity.generate(), roster, good=good) for name in ("x", "y")]


def test_a_good_signature_is_worked_out_once_among_simulated_clients(counted):
    signer, clients = pair(set())
    signed = signer.sign(b"list")
    for client in clients:
        client.verify("b", signed, b"list")
    assert len(counted) == 1


def test_a_client_of_its_own_works_out_each_itself(counted):
    signer, clients = pair(None)
    signed = signer.sign(b"list")
    for client in clients:
        client.verify("b", signed, b"list")
    assert len(counted) == 2


def test_what_was_good_says_nothing_of_another_name_message_or_signature():
    signer, clients = pair(set())
    signed = signer.sign(b"list")
    clients[0].verify("b", signed, b"list")
    for name, signature, message in (
        ("a", signed, b"list"),
        ("b", signed, b"another list"),
        ("b", signer.sign(b"another list"), b"list"),
        ("b", b"", b"list"),
    ):
        for client in clients:  # a bad one is not remembered either
            with pytest.raises(HostileMessage, match="does not belong to identity"):
                client.verify(name, signature, message)


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(parties, "REMEMBERED", 3)
    signer, (client, _) = pair(set())
    for number in range(10):
        client.verify("b", signer.sign(bytes([number])), bytes([number]))
    assert len(client.good) <= 3


def test_clients_of_one_process_share_it_and_a_run_asks_for_each_signature_once(counted):
    federation = sfg.federate("synthetic-citation", clients=4, nodes=80, features=16, seed=0)
    algorithm = sfg.FedAvg(hidden=(4,), fanout=(2,))
    sfg.train(algorithm, federation, sfg.policies.masked(), rounds=1, evaluation="in_band")
    assert counted
    assert len(counted) == len(set(counted))
