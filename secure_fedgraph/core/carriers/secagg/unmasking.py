"""The server's half of one masked sum: sealed shares that it carries, keys that it rebuilds at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from secure_fedgraph.core.carriers.secagg import advertisements, client
from secure_fedgraph.core.carriers.secagg.advertisements import KeyAdvertisements, is_bytes
from secure_fedgraph.core.carriers.secagg.neighbours import SumThresholds
from secure_fedgraph.core.carriers.secagg.shamir import BYTES, are_shares, candidates
from secure_fedgraph.core.carriers.tolerant_ask import require
from secure_fedgraph.core.crypto import KEY_BYTES, AgreementKey
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.protection.contracts import Ask, NoiseKeys, Scope
from secure_fedgraph.core.wire import Tree

Keys = tuple[list[bytes], list[bytes]]
"""Keys of streams to add to a total of masked words, and of those to subtract."""


@dataclass(frozen=True)
class Unmasked:
    """What opens a total of masked words.

    Args:
        plus, minus: keys of streams to add to it, and of those to subtract.
        noise_keys: client -> keys of the last parts of its noise, which the sum does not need.
    """

    plus: list[bytes]
    minus: list[bytes]
    noise_keys: NoiseKeys


@dataclass(frozen=True)
class SumSession:
    """What the server knows of one sum before the uploads: keys, graph, and shares that it cannot open.

    Args:
        sums: how many the set-up is for.
        number: which of them this is, from 0.
        set_up: where there are several, what was advertised for all of them.
        place: where the keys were advertised, where the server knows it.
        noise_keys_shown: client -> the keys of its noise that it handed out, once the sum is open.
    """

    cohort: tuple[str, ...]
    advertised: KeyAdvertisements
    thresholds: SumThresholds
    least: int
    neighbours: Mapping[str, tuple[str, ...]]
    shares: Mapping[str, np.ndarray]
    sums: int = 1
    number: int = 0
    set_up: KeyAdvertisements | None = None
    place: Scope | None = None
    noise_keys_shown: dict[str, tuple[bytes, ...]] = field(default_factory=dict)

    def of_sum(self, number: int) -> SumSession:
        """The same set-up, for one of its sums."""
        if self.sums == 1:
            return self
        set_up = self.advertised if self.set_up is None else self.set_up
        own: dict[str, Any] = {"advertised": set_up.of_sum(number), "number": number, "noise_keys_shown": {}}
        return replace(self, set_up=set_up, **own)

    @cached_property
    def held(self) -> dict[str, tuple[str, ...]]:
        """Client -> the clients whose shares it holds, itself among them, sorted."""
        sharers = set(self.shares)
        return {n: tuple(sorted({*self.neighbours[n], n} & sharers)) for n in self.shares}

    def upload_requests(self) -> dict[str, Tree]:
        """The sealed shares by reader, and which sum of several is asked for."""
        named: Tree = {client.SUM: self.number} if self.sums > 1 else {}
        if self.number:  # everybody uploaded for the first sum, and has the shares for all
            return dict.fromkeys(self.shares, named)  # one object, which is encoded once
        by_reader: dict[str, Tree] = {}
        places = {name: {n: i for i, n in enumerate(self.neighbours[name])} for name in self.shares}
        for reader, held in self.held.items():
            senders = [name for name in held if name != reader]
            rows = [self.shares[name][places[name][reader]] for name in senders]
            size = client.sealed_shares(self.sums)
            stacked = np.stack(rows) if rows else np.empty((0, size), dtype=np.uint8)
            by_reader[reader] = {client.SENDERS: "\n".join(senders), client.SHARES: stacked, **named}
        return by_reader

    def check_shares(self, holder: str, tree: Tree, channel: str) -> None:
        """Checks that a client revealed as many shares as it holds."""
        rows, count = tree.get("shares"), len(self.held[holder])
        if not is_bytes(rows, (count, BYTES)):
            raise HostileMessage(f"channel {channel!r}: {holder} revealed something that is no shares")

    def noise_keys(self, holder: str, tree: Tree, expected: int, channel: str) -> tuple[bytes, ...]:
        """The keys of noise that a client handed out.

        Raises:
            HostileMessage: where they are not the expected number of keys.
        """
        rows = tree.get(client.NOISE_KEYS)
        if rows is None and not expected:
            return ()
        if not expected or not is_bytes(rows, (expected, KEY_BYTES)):
            raise HostileMessage(
                f"channel {channel!r}: {holder} handed out other than {expected} keys of its noise"
            )
        return tuple(row.tobytes() for row in rows)

    def keys(
        self,
        survivors: tuple[str, ...],
        revealed: Mapping[str, Tree],
        bound_to: bytes,
        channel: str,
        ask: Ask,
    ) -> Keys:
        """The keys of the masks left in the sum: survivors' own, and those of pairs with a dropped client."""
        alive, by_owner = set(survivors), self._by_owner(revealed)
        needed = [n for n in self.shares if n in alive or alive.intersection(self.neighbours[n])]
        # before any secret is rebuilt: where one is below its threshold, none is
        for name in needed:
            require(ask, len(by_owner.get(name, ())), self.thresholds.shares, len(self.neighbours[name]) + 1,
                   channel, f"of those that hold shares of {name}'s secrets had revealed one")  # fmt: skip
        plus: list[bytes] = []
        minus: list[bytes] = []
        info = advertisements.pair_info(bound_to)
        for name in needed:
            if name in alive:
                minus.append(advertisements.own_key(self._own_seed(name, by_owner[name]), bound_to))
                continue
            key = self._mask_key(name, by_owner[name])
            for other in alive.intersection(self.neighbours[name]):
                pair = key.shared_with(self.advertised.row(other, "public"), info)
                (minus if other < name else plus).append(pair)  # the lower name had added it
        return plus, minus

    def _by_owner(self, revealed: Mapping[str, Tree]) -> dict[str, dict[int, int]]:
        by_owner: dict[str, dict[int, int]] = {}
        for holder, tree in revealed.items():
            rows = tree["shares"]
            for owner, row, is_share in zip(self.held[holder], rows, are_shares(rows), strict=True):
                if is_share:  # a wrong one counts against its owner, not against the holder's others
                    share = int.from_bytes(row.tobytes(), "little")
                    by_owner.setdefault(owner, {})[self.advertised.places[holder] + 1] = share
        return by_owner

    def _own_seed(self, name: str, shares: Mapping[int, int]) -> bytes:
        committed = self.advertised.row(name, "commitment")
        for seed in self._seeds(shares):
            if advertisements.commitment(seed) == committed:
                return seed
        raise _wrong(name)

    def _mask_key(self, name: str, shares: Mapping[int, int]) -> AgreementKey:
        public = self.advertised.row(name, "public")
        for seed in self._seeds(shares):
            key = AgreementKey.from_seed(seed)
            if key.public == public:
                return key
        raise _wrong(name)

    def _seeds(self, shares: Mapping[int, int]) -> Iterable[bytes]:
        return (secret.to_bytes(BYTES, "little") for secret in candidates(shares, self.thresholds.shares))


def _wrong(name: str) -> HostileMessage:
    return HostileMessage(
        f"the shares of {name}'s secret do not give what {name} advertised: it, or those that hold them, "
        "lied; nothing was opened"
    )
