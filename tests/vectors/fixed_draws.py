"""Fixed values in the place of the operating system's, and a note of each cryptographic step.

Nothing in ``secure_fedgraph`` takes a seed for a key. So the names that draw are replaced from outside, in
the modules that use them, for as long as a vector is made: party and place decide each value.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secure_fedgraph.core import crypto
from secure_fedgraph.core.carriers import sealed
from secure_fedgraph.core.carriers.history import Exchange, History
from secure_fedgraph.core.carriers.secagg import advertisements, client, pairwise, ring_words, shamir

SERVER = "server"
Steps = defaultdict[str, list[dict[str, Any]]]
"""Party -> its cryptographic steps, in order."""
LONG = 256
"""Bytes of a plaintext above which its digest is noted in its place."""


class Draws:
    """The values that parties draw, each from the party's name and how many it has drawn."""

    def __init__(self) -> None:
        self.who = SERVER
        self.made: defaultdict[str, list[dict[str, str]]] = defaultdict(list)

    def octets(self, what: str, size: int = 32) -> bytes:
        """Bytes, a digest's worth at most."""
        label = f"secure-fedgraph vectors/{self.who}/{len(self.made[self.who])}"
        value = hashlib.sha256(label.encode()).digest()[:size]
        self.made[self.who].append({"what": what, "value": value.hex()})
        return value

    def element(self, what: str) -> int:
        """A number of the field of secret sharing."""
        value = int.from_bytes(self.octets(what), "little") % shamir.PRIME
        self.made[self.who][-1]["value"] = value.to_bytes(32, "little").hex()
        return value

    @contextmanager
    def as_party(self, name: str) -> Iterator[None]:
        """What is drawn inside is that party's."""
        before, self.who = self.who, name
        try:
            yield
        finally:
            self.who = before


@contextmanager
def fixed() -> Iterator[Draws]:
    """Everything random in the protocol's modules comes from the draws."""
    draws = Draws()

    def identity() -> crypto.Identity:
        return crypto.Identity(Ed25519PrivateKey.from_private_bytes(draws.octets("identity key")))

    def agreement() -> crypto.AgreementKey:
        return crypto.AgreementKey(X25519PrivateKey.from_private_bytes(draws.octets("agreement key")))

    def nonce(size: int) -> bytes:
        return draws.octets("nonce", size)

    def content_key(size: int) -> bytes:
        return draws.octets("content key", size)

    def seed() -> int:
        return draws.element("seed")

    def coefficient(below: int) -> int:
        assert below == shamir.PRIME
        return draws.element("coefficient")

    with ExitStack() as stack:
        for owner, name, value in (
            (crypto.Identity, "generate", identity),
            (crypto.AgreementKey, "generate", agreement),
            (crypto, "os", SimpleNamespace(urandom=nonce)),
            (sealed, "os", SimpleNamespace(urandom=content_key)),
            (client, "random_secret", seed),
            (shamir, "secrets", SimpleNamespace(randbelow=coefficient)),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        yield draws


@contextmanager
def traced(draws: Draws) -> Iterator[Steps]:
    """The cryptographic steps of every party, noted as they happen."""
    derive, seal, unseal = crypto.derive, crypto.seal, crypto.unseal
    sign, accumulate, add = crypto.Identity.sign, ring_words.accumulate, History.add
    steps: Steps = defaultdict(list)

    def note(step: str, **values: Any) -> None:
        hexed = {key: value.hex() if isinstance(value, bytes) else value for key, value in values.items()}
        steps[draws.who].append({"step": step, **hexed})

    def short(plaintext: bytes) -> dict[str, bytes]:
        if len(plaintext) <= LONG:
            return {"plaintext": plaintext}
        return {"sha256_of_plaintext": hashlib.sha256(plaintext).digest()}

    def noted_derive(secret: bytes, info: bytes, length: int = crypto.KEY_BYTES) -> bytes:
        key = derive(secret, info, length)
        note("hkdf", secret=secret, info=info, key=key)
        return key

    def noted_seal(key: bytes, plaintext: bytes, associated_data: bytes) -> bytes:
        made = seal(key, plaintext, associated_data)
        nonce = made[: crypto.NONCE_BYTES]
        note("seal", key=key, nonce=nonce, associated_data=associated_data, **short(plaintext))
        return made

    def noted_unseal(key: bytes, raw: Any, associated_data: bytes) -> bytes:
        plaintext = unseal(key, raw, associated_data)
        note("unseal", key=key, associated_data=associated_data, **short(plaintext))
        return plaintext

    def noted_sign(self: crypto.Identity, message: bytes) -> bytes:
        signature = sign(self, message)
        note("sign", message=message, signature=signature)
        return signature

    def noted_add(self: History, exchange: Exchange) -> None:
        add(self, exchange)
        note("history", exchange=exchange.number, digest=exchange.digest, head=self.head)

    def noted_accumulate(total: np.ndarray, arrays: Any = (), plus: Any = (), minus: Any = ()) -> None:
        streams = [(key, 1) for key in plus] + [(key, -1) for key in minus]
        size = total.nbytes
        if arrays:
            accumulate(total, arrays)
        before = total.tobytes()
        accumulate(total, (), plus, minus)
        each = [{"key": key.hex(), "sign": by, "stream": stream(key, size).hex()} for key, by in streams]
        note("mask", words=before, streams=each, result=total.tobytes())

    with ExitStack() as stack:
        for owner, name, value in (
            (crypto, "derive", noted_derive),
            (advertisements, "derive", noted_derive),
            (client, "seal", noted_seal),
            (client, "unseal", noted_unseal),
            (sealed, "seal", noted_seal),
            (sealed, "unseal", noted_unseal),
            (crypto.Identity, "sign", noted_sign),
            (History, "add", noted_add),
            (ring_words, "accumulate", noted_accumulate),
            (pairwise, "accumulate", noted_accumulate),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        yield steps


def stream(key: bytes, size: int) -> bytes:
    """The beginning of a key stream."""
    out = bytearray(size)
    crypto.key_stream(key, out)
    return bytes(out)
