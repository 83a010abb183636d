"""FairGraphFL's valuation of updates: by a server that reads them, or on ciphertexts that it cannot read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fairgraphfl import fairness
from secure_fedgraph.algorithms.fairgraphfl.channels import UPDATE, VALUED_UPDATE
from secure_fedgraph.algorithms.fairgraphfl.state import vector_of
from secure_fedgraph.protocol import Channel
from secure_fedgraph.seams import RoundApi

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
