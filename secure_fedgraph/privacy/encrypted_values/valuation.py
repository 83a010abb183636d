"""Values of updates that the server never reads: products of CKKS ciphertexts, opened behind a blind."""

from __future__ import annotations

import hashlib
import math
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from secure_fedgraph.core.carriers import key_agreement
from secure_fedgraph.core.carriers.homomorphic import native
from secure_fedgraph.core.carriers.homomorphic.worker import NativeWorker, blame, refused_alone
from secure_fedgraph.core.channel import Domain, Reveal
from secure_fedgraph.core.crypto import seal, unseal
from secure_fedgraph.core.errors import BadInput, HostileMessage, Refused
from secure_fedgraph.core.protection.contracts import SUBTRACTION, Ask, BindContext, Carrier, Party, Scope
from secure_fedgraph.core.upload import Layout
from secure_fedgraph.core.wire import BYTES, Tree, encode
from secure_fedgraph.privacy.encrypted_values import valuation_native

GAIN = 2.0**16
"""What updates are scaled by before encryption: theirs are small numbers, and all errors are absolute."""
LONGEST = 128.0
"""The largest L2 norm of an update. Inner products of scaled updates are at most 2^46 then; over N/2 and at
scale 2^180 that is 2^213, of a modulus of 2^240."""
SHORTEST = 5e-4
"""An update shorter than this is too near to the holder's noise (3e-11 on a squared length) for its direction
to be known within 1e-3: its alignment counts as 0."""

_SECRET, _PUBLIC, _SEALED = "valuation/secret", "valuation/public", "valuation/sealed"
_PIECE = (
    2 * len(valuation_native.PRIMES) * valuation_native.DEGREE * 59 // 8,
    2 * len(valuation_native.PRIMES) * valuation_native.DEGREE * 8 + 512,
)
"""The fewest and most bytes of one ciphertext: uniform words of 60 bits in 64."""

_server_side = NativeWorker(script=Path(valuation_native.__file__))
_client_side = NativeWorker(script=Path(valuation_native.__file__))


@dataclass(frozen=True)
class EncryptedValues(Carrier):
    """Updates under a public key; the server multiplies them, and one client opens blinded results.

    The key holder, one of the clients, makes the keys; the others learn the public one and check that it is
    the holder's. The server adds ciphertexts up by weight, multiplies each with the sum and with itself,
    hides every result under a plaintext that is uniform in the ring and a fresh encryption of zero, and has
    the holder open it: of the sum every coefficient, of a product the one that is the inner product.

    Guarantees, against a server and a key holder that follow the protocol and do not collude:
        - the server learns the weighted sum, every update's inner product with it and its length, and no
          update;
        - the holder learns the weights, which it checks, and no update: what it opens is uniform;
        - what the holder hands back reveals nothing of its key: it adds noise of its own to each number;
        - other clients learn nothing;
        - the weighted sum has at least ``least`` effective contributors, ``(sum w)^2 / sum w^2``.
    Values carry the noise of their ciphertexts, so a run that is resumed, or made again, agrees in them to
    about 1e-3 and not to the bit.

    Needs:
        - a server that follows the protocol: the holder opens blindly, so a server that lies can have it
          open a single update, or the key itself;
        - a holder that does not collude with the server: it has the key to every update.

    Args:
        holder: which client; by default one chosen at random for the run.
        least: effective contributors of a sum.
        public: the run's public keys, kept by the server.

    References:
        Cheon et al., Homomorphic Encryption for Arithmetic of Approximate Numbers, 2017.
    """

    holder: str = ""
    least: float = 2.0
    public: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    name = "valued"
    takes = Domain.REAL
    gives = Domain.CIPHER
    reveals = frozenset({Reveal.VALUES})
    longest = LONGEST
    agrees_on_keys = True

    def bind(self, context: BindContext) -> EncryptedValues:
        """Checks the holder's name.

        Raises:
            BadInput: for a holder that is no client, or ``least`` of 1 or below.
            Refused: for so few clients that unequal weights leave too few effective contributors.
        """
        if self.holder and self.holder not in context.clients:
            raise BadInput(f"protection.holder = {self.holder!r}: name one of {', '.join(context.clients)}")
        if not self.least > 1:
            raise BadInput(f"least = {self.least}: a sum of one effective contributor is its update")
        if len(context.clients) <= self.least:
            raise Refused(
                f"channel {context.channel.name!r}: {len(context.clients)} clients make {self.least:g} "
                "effective contributors only while all have the same weight, and values change the weights "
                f"after a round: give {math.floor(self.least) + 1} clients or more, or set "
                "training.valuation=plain"
            )
        return replace(self, public={})

    def excess(self, context: BindContext, effect_words: str = "") -> tuple[str, ...]:
        """What the declared values leave out, and what lying and colluding parties get."""
        return (
            "the server learns the length of every single update",
            "the key holder learns every contributor's weight, which is its value in the round before",
            *((SUBTRACTION,) if len(context.clients) == 2 else ()),
            "a key holder that colludes with the server opens every update",
            "a server that lies can have the key holder open a single update, or the key, and with it every "
            "update of the run: it opens blindly",
        )

    def set_up(self, ask: Ask, clients: tuple[str, ...]) -> None:
        """Has the holder make the keys, and carries the public one with the holder's sealed digest of it."""
        holder = self.holder or secrets.choice(clients)
        dealt = ask("deal", {holder: {}})[holder]
        for key in ("public", "relinearisation"):
            if not isinstance(dealt.get(key), BYTES):
                raise HostileMessage(f"{holder} dealt no {key} key")
            self.public[key] = bytes(dealt[key])
        self.public["holder"] = holder
        announced = {"public": self.public["public"], "holder": holder}
        ask(
            "take",
            {name: {**announced, "sealed": dealt.get(name, b"")} for name in clients if name != holder},
        )

    def answer(self, step: str, given: Tree, scope: Scope, party: Party) -> Tree:
        """The client's half: deal, take, open."""
        steps = {"deal": self._deal, "take": self._take, "open": self._open}
        if step not in steps:
            return super().answer(step, given, scope, party)
        return steps[step](given, scope, party)

    def seal(self, matrix: np.ndarray, scope: Scope, party: Party) -> bytes:
        """The ciphertexts of an update; one longer than :data:`LONGEST` is shortened to it.

        None is refused: a server that can change how long updates are would learn lengths from refusals.
        """
        if _PUBLIC not in party.secrets:
            raise HostileMessage(f"{party.name} was asked to encrypt before it had a key")
        vector = np.nan_to_num(matrix.reshape(-1).astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        vector *= LONGEST / max(float(np.linalg.norm(vector)), LONGEST)
        if _SECRET in party.secrets:
            place = (scope.channel, scope.cohort, vector.size)
            party.secrets.setdefault(_SEALED, {})[scope.exchange] = place
        scaled = (vector * GAIN).astype("<f8").tobytes()
        return _client_side.call(b"C", 0, 0, [party.secrets[_PUBLIC], scaled])

    def open_sum(self, sealed: Mapping[str, Any], layout: Layout, scope: Scope, ask: Ask) -> np.ndarray:
        """Never: this carrier opens weighted sums with their values."""
        raise Refused(f"channel {scope.channel!r}: encrypted values open no plain sum")

    def open_values(
        self, sealed: Mapping[str, Any], weights: Mapping[str, float], layout: Layout, scope: Scope, ask: Ask
    ) -> tuple[np.ndarray, dict[str, float], dict[str, float]]:
        """The weighted mean, each upload's cosine with it, and each one's length.

        Raises:
            Refused: where the weights leave too few effective contributors, or an upload is missing.
            HostileMessage: for an upload that is no ciphertext, or an opening that is malformed.
        """
        length, names = layout.rows * layout.width, tuple(sealed)
        holder = str(self.public.get("holder"))
        if set(sealed) != set(scope.cohort) or set(weights) != set(sealed) or holder not in sealed:
            raise Refused(
                f"channel {scope.channel!r}: nothing is opened without an upload of everybody in the cohort "
                "and a weight for each, the key holder among them"
            )
        shares = _shares([weights[name] for name in names], self.least, scope.channel)
        if shares is None:
            return np.zeros((layout.rows, layout.width)), dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
        for name, upload in sealed.items():
            if not isinstance(upload, BYTES) or not _sized(bytes(upload), _pieces(length)):
                raise HostileMessage(
                    f"channel {scope.channel!r}: {name}'s upload is no ciphertext of {length} values"
                )
        blinded = self._blinded({name: bytes(upload) for name, upload in sealed.items()}, shares, scope)
        aggregate, cover, products, covers = native.split(blinded)
        request = {
            "aggregate": aggregate,
            "products": products,
            "exchange": scope.exchange,
            "weights": shares.astype(np.float64),
        }
        reply = ask("open", {holder: request})[holder]
        opened, numbers = reply.get("aggregate"), reply.get("products")
        if not isinstance(opened, BYTES) or not isinstance(numbers, BYTES) or len(opened) != len(cover):
            raise HostileMessage(f"channel {scope.channel!r}: {holder} opened something of another size")
        if len(numbers) != len(covers):
            raise HostileMessage(f"channel {scope.channel!r}: {holder} opened another number of values")
        values = np.frombuffer(_server_side.call(b"D", 0, 0, [bytes(opened), cover]), dtype="<f8")
        mean = values[:length] / GAIN
        inner, squares = _values(bytes(numbers), covers)
        lengths = {name: math.sqrt(max(0.0, s)) for name, s in zip(names, squares, strict=True)}
        whole = float(np.linalg.norm(mean))
        alignment = {
            name: max(-1.0, min(1.0, product / (lengths[name] * whole)))
            if min(lengths[name], whole) > SHORTEST
            else 0.0
            for name, product in zip(names, inner, strict=True)
        }
        return mean.reshape(layout.rows, layout.width), alignment, lengths

    def _blinded(self, uploads: Mapping[str, bytes], shares: np.ndarray, scope: Scope) -> bytes:
        """What the key holder is asked to open, and the blinds.

        Raises:
            HostileMessage: with the names of all whose bytes are no ciphertext.
        """
        keys = [self.public["public"], self.public["relinearisation"]]
        try:
            return _server_side.call(b"V", 0, 0, [*keys, shares.astype("<f8").tobytes(), *uploads.values()])
        except HostileMessage as refusal:
            # Only a round that was refused pays for reading each upload alone.
            whole = np.ones(1, "<f8").tobytes()
            refused = refused_alone(
                uploads, lambda upload: _server_side.call(b"V", 0, 0, [*keys, whole, upload])
            )
            reasons = blame(refused, refusal)
            if len(refused) == len(uploads):  # the keys are in every reading, and one client made them
                reasons = f"no upload can be read with {self.public['holder']}'s keys: {refusal}"
            raise HostileMessage(f"channel {scope.channel!r}: {reasons}") from None

    def _deal(self, given: Tree, scope: Scope, party: Party) -> Tree:
        if _PUBLIC in party.secrets or self.holder not in ("", party.name):
            raise HostileMessage(f"{party.name} was asked to deal a key that is not its to deal")
        seed = party.secrets[_SECRET] = os.urandom(native.SEED_BYTES)
        public, relinearisation = valuation_native.public_keys(seed)
        party.secrets[_PUBLIC] = public
        mark = hashlib.sha256(public).digest()
        return {
            "public": public,
            "relinearisation": relinearisation,
            **{
                peer: seal(_pair_key(party, peer, scope), mark, _parcel(scope, party.name, peer))
                for peer in scope.cohort
                if peer != party.name
            },
        }

    def _take(self, given: Tree, scope: Scope, party: Party) -> Tree:
        holder, public, sealed = given.get("holder"), given.get("public"), given.get("sealed")
        if (
            _PUBLIC in party.secrets
            or not isinstance(holder, str)
            or holder not in scope.cohort
            or holder == party.name
            or self.holder not in ("", holder)
            or not isinstance(public, BYTES)
            or not isinstance(sealed, BYTES)
        ):
            raise HostileMessage(
                f"{party.name} was handed a key out of order, or by another than the key holder"
            )
        try:
            digest = unseal(
                _pair_key(party, holder, scope), bytes(sealed), _parcel(scope, holder, party.name)
            )
        except HostileMessage as error:
            raise HostileMessage(f"{party.name} cannot open the key that {holder} dealt: {error}") from None
        if hashlib.sha256(public).digest() != digest:
            raise HostileMessage(f"{party.name} was handed a key that is not {holder}'s")
        party.secrets[_PUBLIC] = bytes(public)
        return {}

    def _open(self, given: Tree, scope: Scope, party: Party) -> Tree:
        contributed: dict[int, tuple[str, tuple[str, ...], int]] = party.secrets.get(_SEALED, {})
        exchange, weights = given.get("exchange"), given.get("weights")
        sealed = contributed.pop(exchange, None) if type(exchange) is int else None
        aggregate, products = given.get("aggregate"), given.get("products")
        if (
            sealed is None
            or sealed[:2] != (scope.channel, scope.cohort)
            or not isinstance(aggregate, BYTES)
            or not isinstance(products, BYTES)
            or not isinstance(weights, np.ndarray)
            or weights.shape != (len(scope.cohort),)
        ):
            raise HostileMessage(f"{party.name} opens values once, and only of what it contributed to")
        _shares(weights.tolist(), self.least, scope.channel)
        if not _sized(bytes(aggregate), _pieces(sealed[2])) or not _sized(
            bytes(products), 2 * len(scope.cohort)
        ):
            raise HostileMessage(f"{party.name} was asked to open more or less than one sum and its values")
        opened = _client_side.call(b"W", 0, 0, [party.secrets[_SECRET], bytes(aggregate), bytes(products)])
        words, numbers = native.split(opened)
        return {"aggregate": words, "products": numbers}


def _shares(weights: list[float], least: float, channel: str) -> np.ndarray | None:
    """Weights that add up to 1; None where all are zero.

    Raises:
        Refused: where they are those of too few.
    """
    shares = np.array(weights, dtype=np.float64)
    if not np.isfinite(shares).all() or (shares < 0).any():
        raise BadInput(f"channel {channel!r}: weights of a sum are finite and not negative")
    if not shares.any():
        return None
    scale = valuation_native.WEIGHT_SCALE
    shares = np.array(np.rint(shares / shares.sum() * scale) / scale)
    effective = float(shares.sum() ** 2 / np.square(shares).sum())
    if effective < least:
        raise Refused(
            f"channel {channel!r}: these weights make a sum of {effective:.2f} effective contributors, and "
            f"fewer than {least:g} would nearly open one client's update: nothing was opened"
        )
    return shares


def _values(opened: bytes, covers: bytes) -> tuple[list[float], list[float]]:
    """Inner products with the sum, and squared lengths."""
    coefficients = valuation_native.numbers(opened, covers)
    half, unit = len(coefficients) // 2, valuation_native.SLOTS / GAIN**2 / valuation_native.SCALE**2
    inner = [c * unit / valuation_native.WEIGHT_SCALE for c in coefficients[:half]]
    return inner, [c * unit for c in coefficients[half:]]


def _pieces(length: int) -> int:
    return -(-length // valuation_native.SLOTS)


def _sized(packed: bytes, pieces: int) -> bool:
    """Whether bytes are that many ciphertexts, as far as sizes tell: before anything parses them."""
    if len(packed) > pieces * (4 + _PIECE[1]):
        return False
    try:
        ciphertexts = native.split(packed)
    except ValueError:
        return False
    return len(ciphertexts) == pieces and all(_PIECE[0] <= len(piece) <= _PIECE[1] for piece in ciphertexts)


def _pair_key(party: Party, peer: str, scope: Scope) -> bytes:
    # dealt and taken under two exchange numbers, once a run: the pair's key must not depend on them
    return key_agreement.shared_key(party, peer, replace(scope, exchange=0, history_head=""), "valuation key")


def _parcel(scope: Scope, dealer: str, recipient: str) -> bytes:
    return encode({"run": scope.run, "valuation key of": dealer, "recipient": recipient})
