"""How FedGCN exchanges and trains; the defaults are its paper's."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from secure_fedgraph.algorithms.training.weighting import AveragingSettings


class FedGcnSettings(AveragingSettings):
    """How a client trains its GCN, and what it asks the others for before.

    A step takes all of the client's nodes. ``fanout``, ``places`` and ``crowd`` have no effect: nothing is
    sampled.

    Args:
        hops: of what is exchanged before training: 0 nothing (FedAvg of a GCN), 1 the sums that the first
            layer needs at an owner's own nodes, 2 also those at the neighbours that other owners have, with
            which both layers are as on the whole graph.
        hidden: one width, of the layer between the two.
    """

    hops: Literal[0, 1, 2] = 2
    learning_rate: float = Field(0.5, gt=0, allow_inf_nan=False)
    optimizer: Literal["adam", "sgd"] = "sgd"
    weight_decay: float = Field(5e-4, ge=0, allow_inf_nan=False)
    batch: Literal["full"] = "full"
    epochs: int = Field(3, ge=1)
    fanout: tuple[()] = ()
    hidden: tuple[int] = (16,)
    network: Literal["gcn"] = "gcn"
    dropout: float = Field(0.5, ge=0, lt=1)

    @field_validator("fanout")
    @classmethod
    def _check_fanout(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return value  # nothing is sampled: none, as written down in a run's configuration

    @field_validator("hidden")
    @classmethod
    def _check_hidden(cls, value: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        if value[0] < 1:
            raise PydanticCustomError("hidden", "give one width, 1 or more")
        return value
