"""The signed keys of one masked sum: where clients are given different ones, no mask cancels."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Any, TypeGuard

import numpy as np

from secure_fedgraph.core.crypto import AgreementKey, derive, verify
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.protection.contracts import Scope
from secure_fedgraph.core.wire import Tree, encode

FIELDS = {"public": 32, "commitment": 32, "signature": 64}
MOST_SUMS = 256
"""Sums that one set-up may be for."""


def fields(sums: int) -> dict[str, int]:
    """The bytes of each field of an advertisement for so many sums: one signature is over all of it."""
    return {"public": 32 * sums, "commitment": 32 * sums, "signature": 64}


@dataclass(frozen=True)
class KeyAdvertisements:
    """What the clients advertised for one sum, or for several, in the order of their names.

    Args:
        names: sorted.
        public, commitment, signature: one row of bytes each: the mask's public key, the commitment to the
            seed of the client's own mask, the identity's signature over both, run, exchange, channel, cohort.
            For several sums the keys of all stand side by side in a row, and so do the commitments.
        part: of one sum of several: the digest of the whole, and the sum's number from 0.
    """

    names: tuple[str, ...]
    public: np.ndarray
    commitment: np.ndarray
    signature: np.ndarray
    part: tuple[bytes, int] | None = field(default=None, repr=False, kw_only=True)

    @classmethod
    def of(cls, adverts: Mapping[str, Tree], sums: int = 1) -> KeyAdvertisements:
        """The server's: from the replies."""
        names = tuple(sorted(adverts))
        for name in names:
            check_advert(name, adverts[name], sums=sums)
        return cls(names, *(np.stack([adverts[name][key] for name in names]) for key in FIELDS))

    @classmethod
    def from_tree(cls, tree: Tree, sums: int = 1) -> KeyAdvertisements:
        """The client's.

        Args:
            sums: how many this client advertised for.

        Raises:
            HostileMessage: for anything but what :meth:`to_tree` gives.
        """
        names = tree.get("names")
        listed = tuple(names.split("\n")) if isinstance(names, str) else ()
        whole = all(is_bytes(tree.get(key), (len(listed), size)) for key, size in fields(sums).items())
        if not whole or len(tree) != 4 or list(listed) != sorted(set(listed)):
            raise HostileMessage("the keys of a masked sum cannot be read")
        check_no_copies(tree["public"])
        return cls(listed, *(tree[key] for key in FIELDS))

    def to_tree(self) -> Tree:
        """As it is handed to every client."""
        return {"names": "\n".join(self.names), **{key: getattr(self, key) for key in FIELDS}}

    def of_sum(self, number: int) -> KeyAdvertisements:
        """What was advertised for one of several sums, from 0. Only its keys and commitments are in it."""
        keys = slice(32 * number, 32 * number + 32)
        part = self.digest, number
        return KeyAdvertisements(
            self.names, self.public[:, keys], self.commitment[:, keys], self.signature, part=part
        )

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of everything in it. The neighbour graph and every mask depend on it.

        Of one sum of several: a hash of the digest of the whole and of the sum's number.
        """
        if self.part is None:
            return hashlib.sha256(encode(self.to_tree())).digest()
        whole, number = self.part
        return hashlib.sha256(b"masked: sum" + whole + number.to_bytes(8, "little")).digest()

    @cached_property
    def places(self) -> dict[str, int]:
        """Each client's position, from 0; the point of its shares is one more."""
        return {name: place for place, name in enumerate(self.names)}

    def row(self, name: str, key: str) -> bytes:
        """One client's bytes."""
        rows: np.ndarray = getattr(self, key)
        raw: bytes = rows[self.places[name]].tobytes()
        return raw


def check_advert(
    name: str, advert: Tree, scope: Scope | None = None, identity: bytes | None = None, sums: int = 1
) -> None:
    """Checks the keys that a client advertised, in the server: other clients would refuse wrong ones.

    Args:
        scope, identity: of the exchange and of the client, where its signature is to be checked too.
        sums: how many it was asked to advertise for.

    Raises:
        HostileMessage: for anything that no honest client advertises.
    """
    if not all(is_bytes(advert.get(key), (size,)) for key, size in fields(sums).items()):
        raise HostileMessage(f"{name} advertised something that is no signed key")
    if scope is None or identity is None:
        return
    public, committed, signature = (bytes(advert[key]) for key in FIELDS)
    try:
        verify(identity, signature, statement(scope, name, public, committed))
        for start in range(0, len(public), 32):
            _probe().shared_with(public[start : start + 32], b"masked: a key that agrees on nothing")
    except HostileMessage as error:
        raise HostileMessage(f"{name} advertised keys that are not its own to use: {error}") from None


def check_no_copies(public: np.ndarray) -> None:
    """Checks that no two clients have one key: adding one's mask and subtracting the other's cancels both.

    Raises:
        HostileMessage: where two have.
    """
    rows = public.reshape(-1, 32)  # of all sums of a set-up: no key serves twice
    if len({row.tobytes() for row in rows}) < len(rows):
        raise HostileMessage("the keys of a masked sum have one key twice: a client copied another's")


@cache
def _probe() -> AgreementKey:
    """Any key of the server's: what it agrees on is used for nothing."""
    return AgreementKey.generate()


def copies(adverts: Mapping[str, Tree]) -> dict[str, str]:
    """Client -> another that advertised the same key, or itself where it advertised one key for two sums.

    Both are left out then, as the server cannot tell whose it is.
    """
    owner: dict[bytes, str] = {}
    copied: dict[str, str] = {}
    for name, advert in adverts.items():
        public = bytes(advert["public"])
        for start in range(0, len(public), 32):
            other = owner.setdefault(key := public[start : start + 32], name)
            if other != name or public.index(key) != start:
                copied[name], copied[other] = other, name
    return copied


def check_not_copied(name: str, copied: Mapping[str, str]) -> None:
    """Checks that a client's keys are its own, each for one sum.

    Raises:
        HostileMessage: naming who else advertised one of them.
    """
    if name in copied:
        raise HostileMessage(f"{name} advertised the same key as {copied[name]}: one of them copied it")


def statement(scope: Scope, name: str, public: bytes, commitment: bytes) -> bytes:
    """What a client's identity signs at the start of a masked sum, or of several.

    All but the name has a length that the beginning fixes, so no two statements are the same bytes.
    """
    place = _place(scope.run, scope.round, scope.exchange, scope.channel, scope.cohort)
    purpose, sums = b"masked: advertise", len(public) // 32
    if sums > 1:
        purpose = b"masked: several sums" + sums.to_bytes(8, "little")
    return purpose + place + public + commitment + name.encode()


@lru_cache(maxsize=64)
def _place(run: str, round: int, exchange: int, channel: str, cohort: tuple[str, ...]) -> bytes:
    """A digest of the sum that a statement is about: the same for all of its clients."""
    facts = {"run": run, "round": round, "exchange": exchange, "channel": channel, "cohort": hashed(cohort)}
    return hashlib.sha256(encode(facts)).digest()


def context(scope: Scope, advertised: KeyAdvertisements) -> bytes:
    """What every mask of the sum is bound to; the broadcast that the client was given is part of it."""
    facts = {
        "run": scope.run,
        "round": scope.round,
        "exchange": scope.exchange,
        "channel": scope.channel,
        "cohort": hashed(scope.cohort),
        "given": scope.history_head,
        "deck": advertised.digest,
    }
    return hashlib.sha256(encode(facts)).digest()


def agreement(bound_to: bytes, survivors: tuple[str, ...]) -> bytes:
    """What a client signs before it reveals anything: this list, in this sum."""
    return b"masked: survivors" + bound_to + hashed(survivors)


def commitment(seed: bytes) -> bytes:
    """The commitment to the seed of a client's own mask: it does not give the seed away."""
    return derive(seed, b"masked: commitment")


def own_key(seed: bytes, bound_to: bytes) -> bytes:
    """The key of a client's own mask."""
    return derive(seed, b"masked: own" + bound_to)


def pair_info(bound_to: bytes) -> bytes:
    """The purpose that a pair's mask key is derived for; the key agreement adds both public keys."""
    return b"masked: pair" + bound_to


def parcel(advertised: KeyAdvertisements, sender: str, reader: str) -> bytes:
    """What the seal of a pair of shares is bound to."""
    return b"masked: shares" + advertised.digest + hashed((sender, reader))


def hashed(names: tuple[str, ...]) -> bytes:
    """SHA-256 of names, as statements hold it."""
    return hashlib.sha256("\n".join(names).encode()).digest()


def is_bytes(value: Any, shape: tuple[int, ...]) -> TypeGuard[np.ndarray]:
    """Whether it is an array of bytes of that shape."""
    return isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.shape == shape
