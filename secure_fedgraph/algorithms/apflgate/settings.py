"""Settings of APFLGate and of the two methods that it joins."""

from __future__ import annotations

import warnings
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from secure_fedgraph.algorithm import BatchSize, Settings, Widths, number_or
from secure_fedgraph.algorithms.training.settings import LARGEST_GRADIENT


class UnstableWarning(UserWarning):
    """Settings under which gradient tracking diverges even where the clients' gradients are constant."""


class SharedSettings(Settings):
    """How the shared model trains; common to all three.

    Args:
        learning_rate: of plain SGD on the shared model. (Tracking corrects gradients; behind Adam's moments a
            difference of weights is no mean gradient any more.)
        server_rate: the server's step, gamma.
        weight_decay: L2 penalty, part of every client's objective.
        local_steps: R, steps of every client a round, the same for all, or the terms would compare unlike
            sums.
        batch: items (graphs, ratings, nodes) a step, or ``full``; 16 graphs, or all ratings or nodes, where
            it is not given: these cost one pass over the owner's whole graph in any case.
        hidden: widths of the layers, each even.
        network: ``gcn``, ``gat`` or ``sage``, or of whole graphs ``gin`` (all its widths are equal); nodes
            are always classified by a GraphSAGE.
        dropout: of a graph network's convolutions.
        habits: whether users' and products' own means are looked at (ratings).
        largest_gradient: what the norm of a step's gradient is cut to, of the shared and of the personal
            model; steps of honest runs stay below.
    """

    learning_rate: float = Field(0.1, gt=0, allow_inf_nan=False)
    server_rate: float = Field(1.0, gt=0, allow_inf_nan=False)
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    local_steps: int = Field(10, ge=1)
    batch: BatchSize | None = None
    hidden: Widths = (32, 32)
    network: Literal["gcn", "gat", "sage", "gin"] = "gcn"
    dropout: float = Field(0.0, ge=0, lt=1)
    habits: bool = True
    largest_gradient: float = Field(LARGEST_GRADIENT, gt=0, allow_inf_nan=False)

    @field_validator("network")
    @classmethod
    def _check_network(cls, value: str, info: ValidationInfo) -> str:
        if value == "gin" and len(set(info.data.get("hidden", ()))) > 1:
            raise PydanticCustomError(
                "network", "the gin network's widths are equal: give hidden such as 32, 32"
            )
        return value


class PersonalSettings(SharedSettings):
    """How personal models train and mix.

    Args:
        alpha: share of the personal model in what is predicted, 0 to 1, or ``adaptive``: it starts at one
            half and follows its gradient on the client, once a round.
        alpha_rate: of that step.
        personal_rate: of the personal model's steps; as ``learning_rate`` where it is not given.
        personal_optimizer: ``sgd`` or ``adam`` (its moments stay with the client). Under SGD the chain rule
            makes the personal step ``alpha`` times as long.
    """

    alpha: Annotated[float | Literal["adaptive"], number_or("adaptive", low=0, high=1)] = 0.1
    alpha_rate: float = Field(0.1, gt=0, allow_inf_nan=False)
    personal_rate: float | None = Field(None, gt=0, allow_inf_nan=False)
    personal_optimizer: Literal["sgd", "adam"] = "sgd"


class TrackingSettings(SharedSettings):
    """How local gradients are tracked.

    A round takes the share ``gain`` of a client's error off its tracking term, where gradients are constant:
    the term ends where it should if the gain is below 2, at once if it is 1, and runs away above 2.

    Args:
        tau: smaller is more tracking; the number of local steps where it is not given, FedGATE's choice.
        gain: ``R/tau``, as the formula is printed; ``1/tau``, tau counted in rounds; or a number.
        delta_norm: what the norm of a client's tracking term is clipped to; None for never.
    """

    tau: float | None = Field(None, gt=0, allow_inf_nan=False)
    gain: Annotated[Literal["R/tau", "1/tau"] | float, number_or("R/tau", "1/tau", low=0)] = "R/tau"
    delta_norm: float | None = Field(None, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _warn(self) -> TrackingSettings:
        if self.gain_of_round > 2:
            warnings.warn(
                f"gain {self.gain_of_round:g} is above 2, so tracking terms run away even where gradients "
                f"are constant: give tau of more than half of local_steps = {self.local_steps}, a lower "
                "gain, or delta_norm",
                UnstableWarning,
                stacklevel=2,
            )
        return self

    @property
    def gain_of_round(self) -> float:
        """The gain as a number."""
        if isinstance(self.gain, float):
            return self.gain
        tau = self.local_steps if self.tau is None else self.tau
        return (self.local_steps if self.gain == "R/tau" else 1) / tau


class ApflGateSettings(PersonalSettings, TrackingSettings):
    """APFLGate's: those of both."""
