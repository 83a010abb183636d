"""Clip in every client, noise by the server."""

from __future__ import annotations

from secure_fedgraph.core.carriers.plain import Plain
from secure_fedgraph.core.channel import Channel, Recipient
from secure_fedgraph.core.errors import Incompatible
from secure_fedgraph.core.guarantee import Relation
from secure_fedgraph.core.protection.binding import Protection
from secure_fedgraph.core.protection.clip import Clip
from secure_fedgraph.core.protection.gaussian import Gaussian
from secure_fedgraph.privacy.policies.recipe import Amount, amount_of, check_amounts, recipe
from secure_fedgraph.privacy.policy import Policy


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
