"""The plain carrier: real numbers as they are, readable by whoever holds the bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from secure_fedgraph.privacy.contracts import Ask, BindContext, Carrier, Scope, checked_array
from secure_fedgraph.privacy.party import Party
from secure_fedgraph.protocol.channel import Domain, Recipient, Reveal
from secure_fedgraph.protocol.upload import Layout

SEAL = "sealed"
_FLOAT32 = np.dtype("<f4")


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
        matrices = [checked_array(data, _FLOAT32, layout, name) for name, data in sealed.items()]
        if not matrices:
            return np.zeros((layout.rows, layout.width))
        total: np.ndarray = np.add(matrices[0], 0.0, dtype=np.float64)
        for matrix in matrices[1:]:
            total += matrix
        return total

    def open_each(self, sealed: Any, layout: Layout, name: str) -> np.ndarray:
        """The matrix of the client of that name."""
        return checked_array(sealed, _FLOAT32, layout, name)
