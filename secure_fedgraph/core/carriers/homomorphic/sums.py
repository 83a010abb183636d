"""Homomorphic sums: the server adds ciphertexts without the key, and one client opens the sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from secure_fedgraph.core.carriers import key_agreement
from secure_fedgraph.core.carriers.homomorphic.scheme import Adder, RingParameters, SecretKey
from secure_fedgraph.core.carriers.homomorphic.worker import blame, refused_alone
from secure_fedgraph.core.channel import Domain, Reveal
from secure_fedgraph.core.crypto import seal, unseal
from secure_fedgraph.core.errors import HostileMessage, Refused
from secure_fedgraph.core.protection.contracts import DIFFERENCES, Ask, BindContext, Carrier, Party, Scope
from secure_fedgraph.core.upload import Layout
from secure_fedgraph.core.wire import BYTES, Tree, encode

_KEY, _SEALED = "homomorphic/key", "homomorphic/sealed"


@dataclass(frozen=True)
class Homomorphic(Carrier):
    """Encrypts grid numbers under a key that the clients share and the server never has.

    The first client makes the key and hands it to each other one sealed (X25519, AES-GCM). The server adds
    the ciphertexts of a cohort and asks the cohort's first client to open the sum, once.

    Guarantees, against an honest-but-curious server that colludes with no client:
        - it learns the sum of the cohort and no single upload;
        - the sum is exact in the ring, under both schemes (the proof is in :class:`RingParameters`);
        - the opener notices a missing or repeated upload: each carries secret tokens of its client, its sum,
          and what the client was given, and a sum that does not hold each client's tokens once is refused.
    Needs:
        - a server that follows the protocol. The tokens notice copies, gaps and old uploads; they are no
          proof against all that a server can compute on ciphertexts;
        - clients that do not collude with it: each holds the key to every upload, and knows the tokens.

    Args:
        scheme: ``"bfv"``, or ``"ckks"``, which opens the same sums for more bytes and time.
        parameters: filled in by binding.

    References:
        Fan and Vercauteren, Somewhat Practical Fully Homomorphic Encryption, 2012 (BFV).
        Cheon et al., Homomorphic Encryption for Arithmetic of Approximate Numbers, 2017 (CKKS).
    """

    scheme: str = "bfv"
    parameters: RingParameters | None = None

    name = "homomorphic"
    takes = Domain.RING
    gives = Domain.CIPHER
    reveals = frozenset({Reveal.SUM})
    ring = 2**30
    agrees_on_keys = True

    def bind(self, context: BindContext) -> Homomorphic:
        """Sizes the plaintext ring for everybody who may contribute."""
        clients = len(context.clients)
        return replace(self, parameters=RingParameters(self.ring // 2 // clients, clients, self.scheme))

    def excess(self, context: BindContext, effect_words: str = "") -> tuple[str, ...]:
        """The shared key, and what sums give away by subtraction."""
        return (
            DIFFERENCES,
            "any one client that colludes with the server opens every upload: the clients share one key",
            "the opener notices copies and gaps, not all that a server which lies can compute on ciphertexts",
        )

    def set_up(self, ask: Ask, clients: tuple[str, ...]) -> None:
        """Has the first client make the key and carries it, sealed, to the others."""
        dealer, *others = clients
        dealt = ask("deal", {dealer: {}})[dealer]
        lacking = [name for name in others if not isinstance(dealt.get(name), BYTES)]
        if lacking:
            raise HostileMessage(f"{dealer} dealt no key to {', '.join(lacking)}")
        ask("take", {name: {"sealed": dealt[name]} for name in others})

    def answer(self, step: str, given: Tree, scope: Scope, party: Party) -> Tree:
        """The client's half: deal, take, open."""
        steps = {"deal": self._deal, "take": self._take, "open": self._open}
        if step not in steps:
            return super().answer(step, given, scope, party)
        return steps[step](given, scope, party)

    def seal(self, matrix: np.ndarray, scope: Scope, party: Party) -> bytes:
        """The ciphertexts."""
        # One client opens, once, and only a sum that it contributed to. If another order of the cohort, or a
        # part of it, would do, every client could be asked to open a sum of the server's choice.
        if party.name == scope.cohort[0]:
            stamps = [_stamp(scope, name) for name in scope.cohort]
            kept = (scope.channel, scope.cohort, matrix.size, stamps)
            party.secrets.setdefault(_SEALED, {})[scope.exchange] = kept
        return _key(party).encrypt(matrix.reshape(-1), _stamp(scope, party.name))

    def open_sum(self, sealed: Mapping[str, Any], layout: Layout, scope: Scope, ask: Ask) -> np.ndarray:
        """Adds, and has the cohort's first client open."""
        length = layout.rows * layout.width
        if set(sealed) != set(scope.cohort):
            raise Refused(
                f"channel {scope.channel!r}: the uploads of round {scope.round} are not those of the cohort, "
                "so nothing was opened: drop-out recovery is not built yet"
            )
        for name, upload in sealed.items():
            if not isinstance(upload, BYTES):
                raise HostileMessage(f"channel {scope.channel!r}: {name}'s upload is no ciphertext")
        total = self._total({name: bytes(upload) for name, upload in sealed.items()}, length, scope.channel)
        opener = scope.cohort[0]
        reply = ask("open", {opener: {"total": total, "exchange": scope.exchange}})[opener]
        values = reply.get("values")
        if not isinstance(values, np.ndarray) or values.dtype != np.int32 or values.size != length:
            raise HostileMessage(f"channel {scope.channel!r}: {opener} opened a sum of another length")
        return values.astype(np.int64).reshape(layout.rows, layout.width)

    def _total(self, uploads: Mapping[str, bytes], length: int, channel: str) -> bytes:
        """The ciphertexts of the sum.

        Raises:
            HostileMessage: with the names of all whose bytes are no ciphertext.
        """
        assert self.parameters is not None
        adder = Adder(self.parameters)
        try:
            return adder.add(list(uploads.values()), length)
        except HostileMessage as refusal:
            # Only a sum that was refused pays for reading each upload alone.
            refused = refused_alone(uploads, lambda upload: adder.add([upload], length))
            raise HostileMessage(f"channel {channel!r}: {blame(refused, refusal)}") from None

    def _deal(self, given: Tree, scope: Scope, party: Party) -> Tree:
        if party.name != scope.cohort[0] or _KEY in party.secrets:
            raise HostileMessage(f"{party.name} was asked to deal a key that is not its to deal")
        assert self.parameters is not None
        key = party.secrets[_KEY] = SecretKey.generate(self.parameters)
        peers = [name for name in scope.cohort if name != party.name]
        return {
            peer: seal(_pair_key(party, peer, scope), key.to_bytes(), _parcel(scope, party.name, peer))
            for peer in peers
        }

    def _take(self, given: Tree, scope: Scope, party: Party) -> Tree:
        dealer = scope.cohort[0]
        if _KEY in party.secrets or party.name == dealer or not isinstance(given.get("sealed"), BYTES):
            raise HostileMessage(f"{party.name} was handed a key out of order")
        assert self.parameters is not None
        parcel = _parcel(scope, dealer, party.name)
        try:
            secret = unseal(_pair_key(party, dealer, scope), bytes(given["sealed"]), parcel)
        except HostileMessage as error:
            raise HostileMessage(f"{party.name} cannot open the key that {dealer} dealt: {error}") from None
        party.secrets[_KEY] = SecretKey.from_bytes(self.parameters, secret)
        return {}

    def _open(self, given: Tree, scope: Scope, party: Party) -> Tree:
        contributed: dict[int, tuple[str, tuple[str, ...], int, list[bytes]]] = party.secrets.get(_SEALED, {})
        exchange = given.get("exchange")
        sealed = contributed.pop(exchange, None) if type(exchange) is int else None
        if (
            sealed is None
            or sealed[:2] != (scope.channel, scope.cohort)
            or not isinstance(given.get("total"), BYTES)
        ):
            raise HostileMessage(f"{party.name} opens a sum once, and only one that it contributed to")
        _, _, length, stamps = sealed
        return {"values": _key(party).decrypt(bytes(given["total"]), length, stamps).astype(np.int32)}


def _key(party: Party) -> SecretKey:
    if _KEY not in party.secrets:
        raise HostileMessage(f"{party.name} was asked to encrypt before it had a key")
    key: SecretKey = party.secrets[_KEY]
    return key


def _pair_key(party: Party, peer: str, scope: Scope) -> bytes:
    # dealt in one exchange and taken in another, once a run: the pair's key must not depend on them
    return key_agreement.shared_key(
        party, peer, replace(scope, exchange=0, history_head=""), "homomorphic key"
    )


def _parcel(scope: Scope, dealer: str, recipient: str) -> bytes:
    return encode({"run": scope.run, "dealer": dealer, "recipient": recipient})


def _stamp(scope: Scope, sender: str) -> bytes:
    # what the cohort was given is in it: updates on different models do not open together
    return encode(
        {
            "run": scope.run,
            "channel": scope.channel,
            "exchange": scope.exchange,
            "cohort": "\n".join(scope.cohort),
            "given": scope.history_head,
            "sender": sender,
        }
    )
