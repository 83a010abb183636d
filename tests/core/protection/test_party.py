"""Signatures that a process checks once: valid ones only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import secure_fedgraph as sfg
from secure_fedgraph.core import crypto
from secure_fedgraph.core.crypto import Identity
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.protection.contracts import Party


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    crypto._verified.cache_clear()
    yield
    crypto._verified.cache_clear()


def pair() -> tuple[Identity, list[Party]]:
    signer = Identity.generate()
    roster = {"a": Identity.generate().public, "b": signer.public}
    return signer, [Party(name, Identity.generate(), roster) for name in ("x", "y")]


def test_a_valid_signature_is_checked_once_in_a_process() -> None:
    signer, clients = pair()
    signed = signer.sign(b"list")
    for client in clients:
        client.verify("b", signed, b"list")
    assert crypto._verified.cache_info()[:2] == (1, 1)  # hits, misses


def test_what_was_valid_says_nothing_of_another_name_message_or_signature() -> None:
    signer, clients = pair()
    signed = signer.sign(b"list")
    clients[0].verify("b", signed, b"list")
    for name, signature, message in (
        ("a", signed, b"list"),
        ("b", signed, b"another list"),
        ("b", signer.sign(b"another list"), b"list"),
        ("b", b"", b"list"),
    ):
        for client in clients:  # an invalid one is not remembered either
            with pytest.raises(HostileMessage, match="does not belong to identity"):
                client.verify(name, signature, message)
    assert crypto._verified.cache_info().currsize == 1


def test_what_is_remembered_is_bounded() -> None:
    assert crypto._verified.cache_info().maxsize == crypto.REMEMBERED <= 2**14


def test_a_run_checks_each_signature_once() -> None:
    federation = sfg.federate("synthetic-citation", clients=4, nodes=80, features=16, seed=0)
    algorithm = sfg.FedAvg(hidden=(4,), fanout=(2,))
    sfg.train(algorithm, federation, sfg.policies.masked(), rounds=1, evaluation="in_band")
    hits, misses, _, kept = crypto._verified.cache_info()
    assert misses == kept > 0
    assert hits >= 3 * 4  # every client asks about every other
