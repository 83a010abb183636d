"""A clip that follows the clients: whether one is within it is one more coordinate of its upload."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.models.finite import all_finite
from secure_fedgraph.models.parameters import Parameters

CLIP, WITHIN = "clip of the round", "within the clip"
"""No parameter is called so: names of modules have no spaces."""
FIRST = 0.1
PART = 0.95
"""How much of an upload's norm the update may fill; what is left carries the bit."""
BIT = math.sqrt(1 - PART**2)
RATE = 1.0
"""How fast the clip moves: by a factor of ``e ** (RATE / 2)`` a round where all clients are on one side."""
SMALLEST, LARGEST = 1e-6, 1e6


def start() -> Parameters:
    """What the server's state begins with."""
    return {CLIP: torch.tensor(FIRST)}


def without(state: Mapping[str, torch.Tensor]) -> Parameters:
    """The parameters alone."""
    return {name: value for name, value in state.items() if name != CLIP}


def scaled(update: Mapping[str, torch.Tensor], clip: object) -> Parameters:
    """An update over the round's clip, and shortened to it, beside whether it was within it.

    Guarantees:
        - the L2 norm of all of it is 1 at most, up to rounding: a policy whose norm is 1 clips nothing more.

    Raises:
        HostileMessage: for a clip that is no positive number.

    References:
        Andrew et al., Differentially Private Learning with Adaptive Clipping, NeurIPS 2021, section 2.
    """
    if not (isinstance(clip, float) and 0 < clip < math.inf):
        raise HostileMessage(f"the round's clip is {clip!r}, no positive number")
    update = all_finite(update)  # a norm that is none would scale the rest away
    norm = math.sqrt(sum(float(value.double().square().sum()) for value in update.values()))
    clipped = {name: value * (PART / max(norm, clip)) for name, value in update.items()}
    return {**clipped, WITHIN: torch.tensor([BIT if norm <= clip else 0.0])}


def mean(
    total: Mapping[str, torch.Tensor], clients: int, clip: torch.Tensor
) -> tuple[Parameters, torch.Tensor]:
    """The mean update of a sum of so many clients, float32, and the next clip.

    The clip grows by ``exp(RATE (1/2 - share within))``, so it settles where half of the clients are within.
    Noise on the share can move it by no more than if all clients were on one side.
    """
    share = min(max(float(total[WITHIN]) / (clients * BIT), 0.0), 1.0)
    now = float(clip)
    average = {
        name: (value * (now / (PART * clients))).to(torch.float32)
        for name, value in total.items()
        if name != WITHIN
    }
    then = min(max(now * math.exp(RATE * (0.5 - share)), SMALLEST), LARGEST)
    return average, torch.tensor(then)
