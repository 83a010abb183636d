"""Sums of ciphertexts."""

from __future__ import annotations

from dataclasses import replace

from secure_fedgraph.core.carriers.homomorphic.sums import Homomorphic
from secure_fedgraph.core.carriers.plain import Plain
from secure_fedgraph.core.carriers.sealed import Sealed
from secure_fedgraph.core.carriers.secagg.pairwise import Pairwise
from secure_fedgraph.core.channel import Reveal
from secure_fedgraph.core.protection.binding import Protection
from secure_fedgraph.core.protection.contracts import MAJORITY, Quorum
from secure_fedgraph.core.protection.fixed_point import FixedPoint
from secure_fedgraph.privacy.encrypted_values.valuation import EncryptedValues
from secure_fedgraph.privacy.policies.recipe import by_reader, check_quorum, recipe
from secure_fedgraph.privacy.policy import Policy


@recipe
def homomorphic(
    limit: float = 8.0, quorum: Quorum = MAJORITY, holder: str = "", scheme: str = "bfv"
) -> Policy:
    """Ciphertexts that the server adds without the key: it sees the sum. Not differential privacy.

    What peers read is sealed, and their sums are masked: every client has the homomorphic key, so a peer
    could open each ciphertext.

    A channel that declares values gets them from CKKS ciphertexts, whose key one client has.

    Args:
        limit, quorum: as for :func:`masked`.
        holder: which client opens values; by default one chosen at random for the run.
        scheme: of sums: ``"bfv"``, or ``"ckks"``: the same sums, bit for bit, for more bytes and time.
    """
    stages, quorum = (FixedPoint(limit),), check_quorum(quorum)
    valued = Protection(EncryptedValues(holder), (), quorum, "homomorphic")
    sums = by_reader(
        "homomorphic",
        Protection(Homomorphic(scheme), stages, quorum, "homomorphic"),
        Protection(Sealed(Plain()), name="sealed"),
        peer_sum=Protection(Sealed(Pairwise()), stages, quorum, "masked, sealed"),
    )
    return replace(sums, recipe=lambda c: valued if c.reveal is Reveal.VALUES else sums.recipe(c))
