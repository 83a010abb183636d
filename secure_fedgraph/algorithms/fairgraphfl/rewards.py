"""How FairGraphFL's server values updates, what it gives each agent, and what an agent's model becomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fairgraphfl import fairness
from secure_fedgraph.algorithms.fairgraphfl.channels import UPDATE, VALUED_UPDATE
from secure_fedgraph.algorithms.fairgraphfl.state import add_vector, flatten, vector_of
from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.models.finite import all_finite
from secure_fedgraph.seams import ClientContext, RoundApi

ValueUpdates = Callable[[RoundApi, Tensor, Mapping[str, Any], State], tuple[Tensor, Tensor]]
"""The round, weights ``[agents]``, what every agent is given and the parameters that are exchanged -> the
weighted sum of the updates ``[D]`` (Eq. 13) and each one's agreement with it ``[agents]`` (Eq. 9)."""


def value_in_the_clear(
    round: RoundApi, weights: Tensor, given: Mapping[str, Any], like: State
) -> tuple[Tensor, Tensor]:
    """The paper's: the server reads every update."""
    uploads = round.gather(UPDATE, given=given)
    gradients = torch.stack([vector_of(uploads[name], like, name) for name in round.cohort])
    aggregate = (weights @ gradients.double()).float()
    return aggregate, fairness.cosines(gradients, aggregate)


def value_on_ciphertexts(
    round: RoundApi, weights: Tensor, given: Mapping[str, Any], like: State
) -> tuple[Tensor, Tensor]:
    """The same numbers, of updates that the server does not read."""
    by_agent = dict(zip(round.cohort, weights.tolist(), strict=True))
    valued = round.value(VALUED_UPDATE, by_agent, given=given)
    alignment = torch.tensor([valued.alignment[name] for name in round.cohort], dtype=torch.float64)
    return vector_of(valued.aggregate, like, "the aggregate"), alignment


VALUATIONS: Mapping[str, tuple[Channel, ValueUpdates]] = {
    "plain": (UPDATE, value_in_the_clear),
    "encrypted": (VALUED_UPDATE, value_on_ciphertexts),
}
"""``valuation`` -> the channel that updates go by, and how they are valued."""


class Reward(NamedTuple):
    """What an agent has earned in a round.

    Args:
        places: ``[k]`` which components of the aggregate, int64.
        amounts: ``[k]`` their values.
        value: the agent's new value.
    """

    places: Tensor
    amounts: Tensor
    value: float


def rewards_of(
    agents: Sequence[str], step: Tensor, fractions: Tensor, values: Tensor, payoffs: Tensor
) -> dict[str, dict[str, Any]]:
    """Agent -> the largest components of the step that it has earned, its new value and its payoff.

    Args:
        step: ``[D]`` what is added to the global model.
        fractions: ``[agents]`` of its components (Eq. 4).
        values: ``[agents]`` after this round.
        payoffs: ``[agents]`` of this round.
    """
    rewards = {}
    for i, agent in enumerate(agents):
        places = fairness.largest(step, float(fractions[i])).nonzero().flatten()
        rewards[agent] = {
            "places": places.int(),
            "amounts": step[places],
            "value": float(values[i]),
            "payoff": float(payoffs[i]),
        }
    return rewards


def check_reward(client: ClientContext, given: Mapping[str, Any], components: int) -> tuple[State, Reward]:
    """The reward that an agent was given, and the parameters that its rewarded update started from.

    Each update is rewarded once, so these leave its memory here.

    Args:
        components: how many parameters are exchanged.

    Raises:
        HostileMessage: for a reward that is none, or before an update.
    """
    before = client.memory.pop("before", None)
    places, amounts, value = given.get("places"), given.get("amounts"), given.get("value")
    fits = (
        before is not None
        and isinstance(places, Tensor)
        and isinstance(amounts, Tensor)
        and places.dim() == 1
        and places.dtype in (torch.int32, torch.int64)
        and amounts.is_floating_point()
        and places.shape == amounts.shape
        and bool(torch.isfinite(amounts).all())
        and len(places.unique()) == len(places)
        and (not len(places) or 0 <= int(places.min()) <= int(places.max()) < components)
        and isinstance(value, float)
        and math.isfinite(value)
    )
    if not fits:
        raise HostileMessage(f"{client.name} was given a reward that is none, or before it sent anything")
    assert isinstance(places, Tensor)
    assert isinstance(amounts, Tensor)
    assert isinstance(value, float)
    return before, Reward(places.long(), amounts, value)


def rewarded(before: State, after: State, reward: Reward, reading: Literal["fill", "add", "revert"]) -> State:
    """What the shared part of an agent's model becomes.

    Args:
        before: what its last update started from.
        after: what it ended at.
        reading: see :class:`~secure_fedgraph.algorithms.fairgraphfl.settings.FairGraphFLSettings`.
    """
    moved = flatten(after) - flatten(before)
    if reading == "revert":
        moved = torch.zeros_like(moved)
    amounts = reward.amounts.to(moved.dtype)  # a server may send doubles
    if reading == "add":
        moved[reward.places] += amounts
    else:
        moved[reward.places] = amounts
    return all_finite(add_vector(before, moved))
