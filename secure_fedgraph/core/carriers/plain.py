"""The plain carrier: real numbers as they are, readable by whoever holds the bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from secure_fedgraph.core.channel import Domain, Recipient, Reveal
from secure_fedgraph.core.protection.contracts import (
    Ask,
    BindContext,
    Carrier,
    Party,
    Scope,
    checked_array,
    typed_array,
)
from secure_fedgraph.core.upload import Layout

SEAL = "sealed"
_FLOAT32 = np.dtype("<f4")
PIECE = 2**15
"""Values that are added at a time: a piece of the total stays in the second-level cache."""


class Plain(Carrier):
    """Sends values in the clear.

    Guarantees:
        - none: the reader sees every upload, whatever the channel declares. That is its excess.
    """

    name = "plain"
    takes = Domain.REAL
    gives = Domain.REAL
    reveals = frozenset(Reveal) - {Reveal.VALUES}  # what is to be valued unread is not sent in the clear

    def excess(self, context: BindContext, effect_words: str = "") -> tuple[str, ...]:
        """On a SUM channel every single upload; on a peer channel without a seal, the courier's reading."""
        channel, excesses = context.channel, []
        if channel.to == Recipient.PEER and SEAL not in effect_words:
            excesses.append(f"the server, which carries it, reads every single upload{effect_words}")
        if channel.reveal is Reveal.SUM:
            excesses.append(f"the {channel.to} sees every single upload{effect_words}, not only the sum")
        return tuple(excesses)

    def seal(self, matrix: np.ndarray, scope: Scope, party: Party) -> np.ndarray:
        """The flattened matrix, float32."""
        return np.ascontiguousarray(matrix, dtype=_FLOAT32).reshape(-1)

    def open_sum(self, sealed: Mapping[str, Any], layout: Layout, scope: Scope, ask: Ask) -> np.ndarray:
        """The sum in float64."""
        # checked before the total is made: a layout's promise allocates nothing
        uploads = [typed_array(data, _FLOAT32, layout, name).reshape(-1) for name, data in sealed.items()]
        if not uploads:
            return np.zeros((layout.rows, layout.width))
        first, *others = uploads
        total = np.empty(layout.rows * layout.width)
        checksum = 0.0
        for start in range(0, total.size, PIECE):
            piece = total[start : start + PIECE]
            np.add(first[start : start + PIECE], 0.0, out=piece, dtype=np.float64)
            with np.errstate(invalid="ignore"):  # of infinities of both signs
                for other in others:
                    piece += other[start : start + PIECE]
            checksum += piece.sum()
        if not np.isfinite(checksum):  # no sum of float32 values leaves float64: one of them is not finite
            for name, data in sealed.items():
                checked_array(data, _FLOAT32, layout, name)
        return total.reshape(layout.rows, layout.width)

    def open_each(self, sealed: Any, layout: Layout, name: str) -> np.ndarray:
        """The matrix of the client of that name."""
        return checked_array(sealed, _FLOAT32, layout, name)
