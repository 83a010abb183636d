"""Sealed parcels: uploads that a peer reads and the server only carries, encrypted end to end."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from secure_fedgraph.core import wire
from secure_fedgraph.core.carriers import key_agreement
from secure_fedgraph.core.carriers.plain import SEAL, Plain
from secure_fedgraph.core.channel import Domain, Reveal
from secure_fedgraph.core.crypto import KEY_BYTES, seal, unseal
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.protection.contracts import Ask, BindContext, Carrier, Party, Scope
from secure_fedgraph.core.upload import Layout

PAD = 4096
"""Parcels are padded to whole blocks of this many bytes."""


@dataclass(frozen=True)
class Sealed(Carrier):
    """Seals another carrier's bytes to the peers that read them (AES-256-GCM under X25519 keys).

    The bytes are sealed once under a fresh key, and that key once for each reader. Sealed over masks, a
    courier that holds every parcel still cannot add them up.

    Guarantees:
        - the server learns who sent to whom and a size padded to whole blocks; layout and values are sealed;
        - a parcel opens only for a reader that it was sealed to, and only in its own exchange: run, round,
          exchange, channel, cohort, answered offer, sender and reader are bound into it. Each reader's key is
          bound to the content too, so one reader cannot give another a content of its own.
    Needs:
        - a channel that a peer reads;
        - a roster of identity keys that the server did not hand out.

    Args:
        over: the carrier whose bytes are sealed: plain for single uploads, pairwise masks for sums. It has no
            set-up and no steps of its own.
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

    @property
    def colluders(self) -> float:  # type: ignore[override]
        """The carrier's inside."""
        return self.over.colluders

    def bind(self, context: BindContext) -> Sealed:
        """Binds the carrier under the seal."""
        return replace(self, over=self.over.bind(context))

    def excess(self, context: BindContext, effect_words: str = "") -> tuple[str, ...]:
        """What the carrier under the seal lets the reader learn beyond the declaration."""
        return self.over.excess(context, f"{effect_words}, {SEAL}")

    @property
    def opens(self) -> Domain:
        """What the carrier under the seal gives."""
        return self.over.opens

    def seal(self, matrix: np.ndarray, scope: Scope, party: Party) -> Any:
        """What the carrier under the seal makes of the matrix."""
        return self.over.seal(matrix, scope, party)

    def binding_mark(self, scope: Scope, party: Party) -> str:
        """The mark of the carrier under the seal."""
        return self.over.binding_mark(scope, party)

    def wrap(self, tree: wire.Tree, scope: Scope, party: Party) -> wire.Tree:
        """The whole reply under a fresh key, and that key under each reader's, bound to this content."""
        inner = wire.pack(tree)
        padding = bytes(-(inner.length + 8) % PAD)
        padded = b"".join([*inner.buffers, padding, inner.length.to_bytes(8, "little")])
        key = os.urandom(KEY_BYTES)
        content = seal(key, padded, _binding(scope, party.name))
        parcel: wire.Tree = {"domain": self.gives.value, "content": content}
        for reader in [scope.reader] if scope.reader else [n for n in scope.cohort if n != party.name]:
            parcel[f"key/{reader}"] = seal(
                _pair_key(party, reader, party.name, scope), key, _binding(scope, party.name, reader, content)
            )
        return parcel

    def unwrap(self, tree: wire.Tree, sender: str, scope: Scope, party: Party) -> wire.Tree:
        """The reply, in the hands of a reader.

        Raises:
            HostileMessage: for a parcel of another sender, reader or exchange.
        """
        wrapped, content = tree.get(f"key/{party.name}"), tree.get("content")
        if not isinstance(wrapped, wire.BYTES) or not isinstance(content, wire.BYTES):
            raise HostileMessage(f"a parcel from {sender} was not sealed to {party.name}")
        key = unseal(
            _pair_key(party, sender, sender, scope), wrapped, _binding(scope, sender, party.name, content)
        )
        padded = unseal(key, content, _binding(scope, sender))
        length = int.from_bytes(padded[-8:], "little")
        if length > len(padded) - 8:
            raise HostileMessage(f"a parcel from {sender} promises more than it holds")
        return wire.decode(memoryview(padded)[:length], views=True)

    def open_sum(self, sealed: Mapping[str, Any], layout: Layout, scope: Scope, ask: Ask) -> np.ndarray:
        """The sum, after every parcel was unsealed."""
        return self.over.open_sum(sealed, layout, scope, ask)

    def open_each(self, sealed: Any, layout: Layout, name: str) -> np.ndarray:
        """One client's matrix, after its parcel was unsealed."""
        return self.over.open_each(sealed, layout, name)


def _pair_key(party: Party, peer: str, sender: str, scope: Scope) -> bytes:
    # the reader of a sum was not asked, so it cannot know what the others were given
    return key_agreement.shared_key(party, peer, replace(scope, history_head=""), f"parcel from {sender}")


def _binding(scope: Scope, sender: str, reader: str = "", content: bytes | memoryview = b"") -> bytes:
    """What a seal is bound to. A reader's key names the content: another reader cannot swap it."""
    return wire.encode(
        {
            "run": scope.run,
            "round": scope.round,
            "exchange": scope.exchange,
            "channel": scope.channel,
            "cohort": "\n".join(scope.cohort),
            "offer": scope.offer,
            "sender": sender,
            "reader": reader,
            "content": hashlib.sha256(content).digest(),
        }
    )
