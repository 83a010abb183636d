"""Sealed parcels: what a peer reads and the server only carries, encrypted from end to end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from secure_fedgraph.crypto import KEY_BYTES, seal, unseal
from secure_fedgraph.errors import HostileMessage
from secure_fedgraph.privacy import key_agreement
from secure_fedgraph.privacy.party import Party
from secure_fedgraph.privacy.plain import SEAL, Plain
from secure_fedgraph.privacy.protection import Ask, Carrier, Scope, Terms
from secure_fedgraph.protocol import wire
from secure_fedgraph.protocol.channel import Domain, Reveal
from secure_fedgraph.protocol.upload import Layout

PAD = 4096
"""Parcels are padded to whole blocks of this many bytes."""


@dataclass(frozen=True)
class Sealed(Carrier):
    """Seals another carrier's bytes to the peers that read them (AES-256-GCM under X25519 keys).

    The bytes are sealed once under a fresh key, and that key once for each reader. Sealed over masks, a
    courier that holds every parcel still cannot add them up.

    Guarantees:
        - the server learns who sent to whom, the public layout, and a size padded to whole blocks;
        - a parcel opens only for a reader it was sealed to, and only as what it was sent as: run, round,
          exchange, channel, cohort, sender and reader are bound into it.
    Needs:
        - a channel that a peer reads;
        - a roster of identity keys that the server did not hand out.

    Args:
        over: the carrier whose bytes are sealed: plain for single uploads, masks for sums.
    """

    over: Carrier

    gives = Domain.SEALED
    agrees_on_keys = True

    @property
    def name(self) -> str:  # type: ignore[override]
        """The carrier under the seal is part of the name."""
        return "sealed" if isinstance(self.over, Plain) else f"sealed over {self.over.name}"

    @property
    def takes(self) -> Domain:  # type: ignore[override]
        """What the carrier under the seal takes."""
        return self.over.takes

    @property
    def reveals(self) -> frozenset[Reveal]:  # type: ignore[override]
        """What the carrier under the seal reveals to the reader."""
        return self.over.reveals

    @property
    def ring(self) -> int:  # type: ignore[override]
        """The ring of the carrier under the seal."""
        return self.over.ring

    def bind(self, terms: Terms) -> Sealed:
        """Binds the carrier under the seal."""
        return replace(self, over=self.over.bind(terms))

    def excess(self, terms: Terms, traces: str = "") -> tuple[str, ...]:
        """What the carrier under the seal lets the reader learn beyond the declaration."""
        return self.over.excess(terms, f"{traces}, {SEAL}")

    def set_up(self, ask: Ask, clients: tuple[str, ...]) -> None:
        """The set-up of the carrier under the seal."""
        self.over.set_up(ask, clients)

    def answer(self, step: str, given: wire.Tree, scope: Scope, party: Party) -> wire.Tree:
        """A step of the carrier under the seal."""
        return self.over.answer(step, given, scope, party)

    def seal(self, matrix: np.ndarray, scope: Scope, party: Party) -> wire.Parts:
        """The parcel: the sealed bytes, and their key sealed to each reader."""
        inner = wire.pack({"data": self.over.seal(matrix, scope, party)})
        padding = bytes(-(inner.length + 8) % PAD)
        padded = b"".join([*inner.buffers, padding, inner.length.to_bytes(8, "little")])
        key = os.urandom(KEY_BYTES)
        readers = [scope.reader] if scope.reader else [name for name in scope.cohort if name != party.name]
        parcel: wire.Tree = {"content": seal(key, padded, _binding(scope, party.name, ""))}
        for reader in readers:
            pair = key_agreement.shared_key(party, reader, scope, f"parcel from {party.name}")
            parcel[f"key/{reader}"] = seal(pair, key, _binding(scope, party.name, reader))
        return wire.pack(parcel)

    def unseal(self, data: Any, sender: str, scope: Scope, party: Party) -> Any:
        """The bytes of the carrier under the seal, in the hands of a reader.

        Raises:
            HostileMessage: for a parcel that was not sealed to this reader, or not as this.
        """
        parcel = wire.decode(data, views=True) if isinstance(data, wire.BYTES) else {}
        wrapped, content = parcel.get(f"key/{party.name}"), parcel.get("content")
        if not isinstance(wrapped, wire.BYTES) or not isinstance(content, wire.BYTES):
            raise HostileMessage(f"a parcel from {sender} was not sealed to {party.name}")
        pair = key_agreement.shared_key(party, sender, scope, f"parcel from {sender}")
        key = unseal(pair, wrapped, _binding(scope, sender, party.name))
        padded = unseal(key, content, _binding(scope, sender, ""))
        length = int.from_bytes(padded[-8:], "little")
        if length > len(padded) - 8:
            raise HostileMessage(f"a parcel from {sender} promises more than it holds")
        return wire.decode(memoryview(padded)[:length]).get("data")

    def open_sum(self, sealed: Mapping[str, Any], layout: Layout, scope: Scope, ask: Ask) -> np.ndarray:
        """The sum, after every parcel was unsealed."""
        return self.over.open_sum(sealed, layout, scope, ask)

    def open_each(self, sealed: Any, layout: Layout, name: str) -> np.ndarray:
        """One client's matrix, after its parcel was unsealed."""
        return self.over.open_each(sealed, layout, name)


def _binding(scope: Scope, sender: str, reader: str) -> bytes:
    return wire.encode(
        {
            "run": scope.run,
            "round": scope.round,
            "exchange": scope.exchange,
            "channel": scope.channel,
            "cohort": "\n".join(scope.cohort),
            "sender": sender,
            "reader": reader,
        }
    )
