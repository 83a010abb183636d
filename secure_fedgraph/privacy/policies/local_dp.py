"""Clip and noise in every client."""

from __future__ import annotations

from secure_fedgraph.core.carriers.plain import Plain
from secure_fedgraph.core.carriers.sealed import Sealed
from secure_fedgraph.core.channel import Channel, Recipient
from secure_fedgraph.core.guarantee import Relation
from secure_fedgraph.core.protection.binding import Protection
from secure_fedgraph.core.protection.clip import Clip
from secure_fedgraph.core.protection.gaussian import Gaussian
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
