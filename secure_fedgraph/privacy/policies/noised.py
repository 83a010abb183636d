"""Recipes with noise: by every client, by the server, or in shares of one noise under masks."""

from __future__ import annotations

from secure_fedgraph.core.carriers.plain import Plain
from secure_fedgraph.core.carriers.sealed import Sealed
from secure_fedgraph.core.carriers.secagg.pairwise import Pairwise
from secure_fedgraph.core.carriers.secagg.server import ABANDONED, Masked
from secure_fedgraph.core.channel import Channel, Recipient, Reveal
from secure_fedgraph.core.errors import Incompatible
from secure_fedgraph.core.guarantee import Relation
from secure_fedgraph.core.protection.binding import Protection
from secure_fedgraph.core.protection.contracts import Quorum
from secure_fedgraph.core.protection.gaussian import Clip, Gaussian
from secure_fedgraph.privacy.policies.recipe import Amount, amount_of, check_amounts, recipe
from secure_fedgraph.privacy.policy import Policy


@recipe
def local_dp(
    norm: Amount, multiplier: Amount, relation: str = Relation.ZERO_OUT, rows: bool = False
) -> Policy:
    """Clip and Gaussian noise in the client: the server sees noised uploads only.

    What peers read is clipped and noised as well, and sealed.

    Args:
        norm: the clip, an L2 norm; one number, or one by channel.
        multiplier: noise standard deviation over sensitivity; one number, or one by channel.
        rows: where an upload has one row a node or a graph, clip each row and not the whole. The noise is
            then scaled to a row. It protects nobody, since a unit is in many rows, and epsilon is infinite.
    """
    check_amounts(norm, multiplier)

    def recipe(channel: Channel) -> Protection:
        stages = (
            Clip(amount_of("norm", norm, channel), whole=not rows),
            Gaussian(amount_of("multiplier", multiplier, channel)),
        )
        if channel.to == Recipient.PEER:
            return Protection(Sealed(Plain()), stages, name="local_dp, sealed")
        return Protection(Plain(), stages, name="local_dp")

    return Policy("local_dp", recipe, relation=relation)


@recipe
def central_dp(
    norm: Amount, multiplier: Amount, relation: str = Relation.ZERO_OUT, rows: bool = False
) -> Policy:
    """Clip in the client, Gaussian noise by the server: holds against everybody but the server.

    A peer channel does not bind: its values pass the server without being opened there.

    Args:
        norm, multiplier, rows: as for :func:`local_dp`.
    """
    check_amounts(norm, multiplier)

    def recipe(channel: Channel) -> Protection:
        if channel.to == Recipient.PEER:
            raise Incompatible(
                f"channel {channel.name!r} is read by a peer, so no server adds central_dp's noise to it: "
                "use local_dp or masked"
            )
        clip = Clip(amount_of("norm", norm, channel), whole=not rows)
        noise = Gaussian(amount_of("multiplier", multiplier, channel), by="server")
        return Protection(Plain(), (clip, noise), name="central_dp")

    return Policy("central_dp", recipe, relation=relation)


@recipe
def distributed_dp(
    norm: Amount,
    multiplier: Amount,
    relation: str = Relation.ZERO_OUT,
    quorum: Quorum = 0.8,
    bits: int = 32,
    colluders: float = 0.1,
    dropouts: float = 0.2,
    batch: int = 1,
    abandoned: int = ABANDONED,
    disputes: int = 0,
    limit: float = float("inf"),
    remove_excess: bool = True,
) -> Policy:
    """Every client adds its share of the noise, under masks: the server sees the noised sum only.

    The shares of any ``quorum`` clients, without those of the colluders, make up the whole noise, so the
    guarantee holds against the server and against every contributor, and costs about as little accuracy as
    noise by a trusted server. It is computational: the masks keep everybody from seeing a single upload.

    Sums that peers read are protected in the same way, and sealed; a channel whose reader needs each upload
    is refused.

    Args:
        norm, multiplier: as for :func:`local_dp`; the clip bounds a client's whole upload.
        quorum: the smallest cohort that a client answers and the fewest survivors whose sum it opens: a
            number of clients, below 1 a share of all, or ``"majority"``. A larger one needs less noise and
            survives fewer drop-outs.
        bits, colluders, dropouts, batch, abandoned, disputes: as for :func:`masked`. At least one client is
            taken to collude.
        limit: coordinates beyond it are cut, which makes room in a ring of 16 bits.
        remove_excess: whether clients help to take off the noise that a sum does not need, once it is known
            who is in it. The guarantee is the same: without it sums carry more noise than it takes.
    """
    check_amounts(norm, multiplier)

    def recipe(channel: Channel) -> Protection:
        stages = (
            Clip(amount_of("norm", norm, channel), whole=True),
            Gaussian(amount_of("multiplier", multiplier, channel), "shares", limit, colluders, remove_excess),
        )
        if channel.to == Recipient.PEER and channel.reveal is Reveal.SUM:
            return Protection(Sealed(Pairwise(colluders)), stages, quorum, "distributed_dp, sealed")
        masks = Masked(bits, colluders, dropouts, batch, abandoned, disputes)
        return Protection(masks, stages, quorum, "distributed_dp")

    return Policy("distributed_dp", recipe, relation=relation)
