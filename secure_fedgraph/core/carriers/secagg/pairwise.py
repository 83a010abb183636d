"""Pairwise masks alone, without drop-out recovery: for sums that a peer reads."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from secure_fedgraph.core.carriers import key_agreement
from secure_fedgraph.core.carriers.secagg.ring_words import accumulate
from secure_fedgraph.core.channel import Domain, Reveal
from secure_fedgraph.core.errors import HostileMessage, Refused
from secure_fedgraph.core.protection.contracts import (
    DIFFERENCES,
    SUBTRACTION,
    Ask,
    BindContext,
    Carrier,
    Party,
    Scope,
    checked_array,
)
from secure_fedgraph.core.upload import Layout
from secure_fedgraph.core.wire import encode

_WORD = np.dtype("<u4")


@dataclass(frozen=True)
class Pairwise(Carrier):
    """Adds one AES-CTR key stream for each peer to an upload, and subtracts it at the other end.

    For sums that a peer reads, sealed to that peer. Sums for the server go through
    :class:`~secure_fedgraph.core.carriers.secagg.server.Masked`, which recovers from drop-outs.

    Guarantees:
        - the words of one upload are uniform in the ring to anybody who lacks one of its pairwise keys:
          to the server, and to any coalition that leaves two contributors outside;
        - the opened sum is exact in the ring;
        - a mask serves one exchange: keys are derived from the never-repeated exchange number, the
          channel, the cohort and what it was given, so no two uploads share a stream, and clients that were
          shown different things make masks that do not cancel.
    Needs:
        - every client of the cohort to answer: there is no recovery, a drop-out refuses the exchange;
        - a roster of identity keys that the server did not hand out.

    References:
        Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017
        (section 4.0.1, pairwise masks).
    """

    colluders: float = 0.0

    name = "masked"
    takes = Domain.RING
    gives = Domain.MASKED
    reveals = frozenset({Reveal.SUM})
    ring = 2**32
    agrees_on_keys = True

    def excess(self, context: BindContext, effect_words: str = "") -> tuple[str, ...]:
        """What sums give away by subtraction."""
        return (DIFFERENCES, SUBTRACTION) if len(context.clients) == 2 else (DIFFERENCES,)

    def seal(self, matrix: np.ndarray, scope: Scope, party: Party) -> np.ndarray:
        """The masked words, one for each value."""
        words = matrix.astype(np.int32).view(_WORD).reshape(-1)  # two's complement; always a copy
        keys: dict[bool, list[bytes]] = {True: [], False: []}
        for peer in scope.cohort:
            if peer != party.name:
                keys[party.name < peer].append(key_agreement.shared_key(party, peer, scope, "mask"))
        accumulate(words, plus=keys[True], minus=keys[False])
        return words

    def binding_mark(self, scope: Scope, party: Party) -> str:
        """A hash of the cohort and of what the client was given: where these differ, masks do not cancel."""
        encoded = encode({"cohort": "\n".join(scope.cohort), "given": scope.history_head})
        return hashlib.sha256(encoded).hexdigest()

    def open_sum(self, sealed: Mapping[str, Any], layout: Layout, scope: Scope, ask: Ask) -> np.ndarray:
        """The sum, in which the masks have cancelled; int32, centred."""
        missing = set(scope.cohort) - set(sealed)
        if missing:
            raise Refused(
                f"channel {scope.channel!r}: {', '.join(sorted(missing))} dropped out (round {scope.round}), "
                "so the masks of a sum between peers do not cancel: nothing was opened"
            )
        if set(sealed) - set(scope.cohort):
            raise HostileMessage(f"channel {scope.channel!r}: an upload came from outside the cohort")
        # checked before the total is made: a layout's promise allocates nothing
        uploads = [checked_array(data, _WORD, layout, name).reshape(-1) for name, data in sealed.items()]
        total = np.zeros(layout.rows * layout.width, dtype=_WORD)
        accumulate(total, uploads)
        return total.view(np.int32).reshape(layout.rows, layout.width)
