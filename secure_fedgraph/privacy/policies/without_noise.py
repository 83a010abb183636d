"""Recipes without noise: nothing, seals between peers, masks that cancel, and sums of ciphertexts."""

from __future__ import annotations

from dataclasses import replace

from secure_fedgraph.core.carriers.homomorphic.sums import Homomorphic
from secure_fedgraph.core.carriers.plain import Plain
from secure_fedgraph.core.carriers.sealed import Sealed
from secure_fedgraph.core.carriers.secagg.pairwise import Pairwise
from secure_fedgraph.core.carriers.secagg.server import ABANDONED, Masked
from secure_fedgraph.core.channel import Channel, Recipient, Reveal
from secure_fedgraph.core.errors import Incompatible
from secure_fedgraph.core.protection.binding import Protection
from secure_fedgraph.core.protection.contracts import MAJORITY, Quorum
from secure_fedgraph.core.protection.fixed_point import FixedPoint
from secure_fedgraph.privacy.encrypted_values.valuation import EncryptedValues
from secure_fedgraph.privacy.policies.recipe import check_quorum, recipe
from secure_fedgraph.privacy.policy import Policy


@recipe
def plaintext() -> Policy:
    """Nothing: the server sees every upload. The baseline that shows what there is to protect."""
    nothing = Protection(Plain(), name="plaintext")
    return Policy("plaintext", lambda channel: nothing)


@recipe
def sealed() -> Policy:
    """End-to-end encryption between peers: the server sees sizes. The reader sees every upload."""
    between_peers = _sealed()

    def recipe(channel: Channel) -> Protection:
        if channel.to != Recipient.PEER:
            raise Incompatible(
                f"channel {channel.name!r} is read by the server, and sealed protects peers only"
            )
        return between_peers

    return Policy("sealed", recipe)


@recipe
def masked(
    limit: float = 8.0,
    quorum: Quorum = MAJORITY,
    bits: int = 32,
    colluders: float = 0.1,
    dropouts: float = 0.2,
    batch: int = 1,
    abandoned: int = ABANDONED,
    disputes: int = 0,
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
        disputes: for how many rounds owners can be made to open what they uploaded, to an auditor that a
            quorum of them names (``secure-fedgraph dispute``); 0 is never. It costs forward secrecy: whoever
            steals an owner's folder and has the server's record reads its uploads of these rounds.
    """
    stages, quorum = (FixedPoint(limit),), check_quorum(quorum)
    carrier = Masked(bits, colluders, dropouts, batch, abandoned, disputes)
    return _of_sums("masked", Protection(carrier, stages, quorum, "masked"))


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
    sums = _of_sums("homomorphic", Protection(Homomorphic(scheme), stages, quorum, "homomorphic"))
    return replace(sums, recipe=lambda c: valued if c.reveal is Reveal.VALUES else sums.recipe(c))


def _of_sums(name: str, server: Protection) -> Policy:
    """What the server reads is protected as given; sums between peers are masked, and all of it sealed."""
    each = _sealed()
    masks = Pairwise(getattr(server.carrier, "colluders", 0.0))
    summed = Protection(Sealed(masks), server.stages, server.quorum, "masked, sealed")

    def recipe(channel: Channel) -> Protection:
        if channel.to != Recipient.PEER:
            return server
        return summed if channel.reveal is Reveal.SUM else each

    return Policy(name, recipe)


def _sealed() -> Protection:
    return Protection(Sealed(Plain()), name="sealed")
