"""Sums by masks that cancel."""

from __future__ import annotations

from secure_fedgraph.core.carriers.plain import Plain
from secure_fedgraph.core.carriers.sealed import Sealed
from secure_fedgraph.core.carriers.secagg.pairwise import Pairwise
from secure_fedgraph.core.carriers.secagg.server import ABANDONED, Masked
from secure_fedgraph.core.protection.binding import Protection
from secure_fedgraph.core.protection.contracts import MAJORITY, Quorum
from secure_fedgraph.core.protection.fixed_point import FixedPoint
from secure_fedgraph.privacy.policies.recipe import by_reader, check_quorum, recipe
from secure_fedgraph.privacy.policy import Policy


@recipe
def masked(
    limit: float = 8.0,
    quorum: Quorum = MAJORITY,
    bits: int = 32,
    colluders: float = 0.1,
    dropouts: float = 0.2,
    batch: int = 1,
    abandoned: int = ABANDONED,
) -> Policy:
    """Double masks that cancel in the sum, also where clients drop out. Not differential privacy.

    The server sees the sum over more than half of a cohort, or nothing.

    What peers read is sealed to them; their sums are under pairwise masks, without drop-out recovery.

    Args:
        limit: the largest absolute value that an upload carries; the grid is chosen from it. What is beyond
            is cut, and the server learns in how many uploads something was cut.
        quorum: the smallest cohort that a client answers, and the fewest survivors whose sum it opens: a
            number of clients, below 1 a share of all, or ``"majority"`` of all.
        bits: of a value on the wire and of the ring: 32, or 20 or 16 where they leave each client 8 bits.
        colluders: the share of all clients that may work with the server; whatever they subtract, a sum still
            holds two others or more.
        dropouts: the share of a cohort that may drop out by chance, which decides how many neighbours clients
            of a cohort above 32 mask with. More than this may end a round with an error.
        batch: sum clients in whole batches of this many only, so that sums of any rounds differ by whole
            batches. Off (1) by default, since a drop-out costs its whole batch's uploads.
        abandoned: how many of the sums that a client uploads for may stay unfinished in a run, as far as it
            knows, beyond the share ``dropouts`` of them; after that it takes part in no more.
    """
    stages, quorum = (FixedPoint(limit),), check_quorum(quorum)
    carrier = Masked(bits=bits, colluders=colluders, dropouts=dropouts, batch=batch, abandoned=abandoned)
    return by_reader(
        "masked",
        Protection(carrier, stages, quorum, "masked"),
        Protection(Sealed(Plain()), name="sealed"),
        peer_sum=Protection(Sealed(Pairwise()), stages, quorum, "masked, sealed"),
    )
