"""Weighted means inside one sum: the weight is one more coordinate of the upload that it weighs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from secure_fedgraph.algorithms.training.settings import TrainingSettings
from secure_fedgraph.models.parameters import Parameters

WEIGHT = "weight of the client"
"""No parameter is called so: names of modules have no spaces."""


class AveragingSettings(TrainingSettings):
    """How a client trains, and how much its update weighs.

    Args:
        weighted: a mean weighted by training items, as McMahan et al. have it, not the FedSage paper's. The
            weight is a coordinate of the same upload: whatever hides the update hides it, a clip shortens
            both by one factor (so a clipped client also weighs less), and noise falls on both.
        heaviest: training items from which on a client weighs no more. Weights travel as shares of it, so
            the limit of fixed point holds for a weighted update too.
        clip: ``policy``: updates travel as they are, and the policy clips them at its norm. ``adaptive``:
            they travel over a norm that follows the clients' median, beside one coordinate that says who was
            within it, and the policy's norm stays 1; a budget that names no norm takes this.
    """

    weighted: bool = False
    heaviest: int = Field(10_000, ge=1)
    clip: Literal["policy", "adaptive"] = "policy"

    @model_validator(mode="after")
    def _check_clip(self) -> AveragingSettings:
        if self.weighted and self.clip == "adaptive":
            raise PydanticCustomError(
                "clip",
                "a clip that follows the clients takes all to weigh the same: leave weighted out, or "
                "set clip=policy and a norm",
            )
        return self


def weighed(update: Mapping[str, torch.Tensor], items: int, heaviest: int) -> Parameters:
    """An update times its weight, a share in (0, 1], and the weight beside it.

    >>> weighed({"w": torch.tensor([2.0])}, items=5, heaviest=10)[WEIGHT]
    tensor([0.5000])
    """
    share = min(max(items, 1), heaviest) / heaviest
    return {**{name: share * value for name, value in update.items()}, WEIGHT: torch.tensor([share])}


def weighted_mean(total: Mapping[str, torch.Tensor], clients: int, heaviest: int) -> Parameters:
    """The weighted mean of a sum of so many clients, float32.

    Weights add up to ``clients / heaviest`` at least, which is what a noised sum is divided by where noise
    left less of it.
    """
    whole = max(float(total[WEIGHT]), clients / heaviest)
    return {name: (value / whole).to(torch.float32) for name, value in total.items() if name != WEIGHT}
