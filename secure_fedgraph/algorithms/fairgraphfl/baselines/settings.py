"""Settings of FairGraphFL's reward baselines."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from secure_fedgraph.algorithms.training.gin_classifier import GinSettings


class RewardSettings(GinSettings):
    """How agents train (as :class:`GinSettings`), and what they are given.

    Args:
        server_rate: for what is added to the global model and to agents' models.
        reading: what an agent's model becomes by its reward, as FairGraphFL's setting of that name.
        budget: what is paid a round, by share of value.
        valuation: ``plain``: the server reads every update; ``encrypted``: it computes values on ciphertexts.
    """

    server_rate: float = Field(1.0, gt=0, allow_inf_nan=False)
    reading: Literal["fill", "add", "revert"] = "fill"
    budget: float = Field(1.0, ge=0, allow_inf_nan=False)
    valuation: Literal["plain", "encrypted"] = "plain"


class SizeRewardSettings(RewardSettings):
    """As :class:`RewardSettings`, where the server is told how many graphs each agent has.

    Args:
        valuation: ``plain`` always: what an agent is worth is public with its number of graphs.
    """

    valuation: Literal["plain"] = "plain"


class CgsvSettings(RewardSettings):
    """As :class:`RewardSettings`, and CGSV's own.

    Args:
        reading: ``revert``: agents give their own update up for the reward, as CGSV prints it.
        length: that every update is brought to.
        rate: of the moving mean of reputations.
        beta_fair: the beta of the reward's tanh.
        first_weights: of the first round's mean, before there are reputations: ``size``, by number of graphs
            as printed, which agents tell the server; or ``equal``.
    """

    reading: Literal["fill", "add", "revert"] = "revert"
    length: float = Field(0.5, gt=0, allow_inf_nan=False)
    rate: float = Field(0.05, gt=0, le=1)
    beta_fair: float = Field(1.0, gt=0, allow_inf_nan=False)
    first_weights: Literal["size", "equal"] = "size"


class CfflSettings(RewardSettings):
    """As :class:`RewardSettings`, and RFFL's own.

    Args:
        length: that longer updates are shortened to.
        rate: of the moving mean of reputations.
        stays: rounds in which nobody is removed.
    """

    length: float = Field(0.5, gt=0, allow_inf_nan=False)
    rate: float = Field(0.05, gt=0, le=1)
    stays: int = Field(10, ge=0)
