"""How a client trains."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from secure_fedgraph.algorithm import BatchSize, Settings, Widths

LARGEST_GRADIENT = 100.0
"""Above what honest runs showed: up to 5.7 on Cora and PubMed, and some tens in networks of width 4."""


class TrainingSettings(Settings):
    """How a client trains.

    Args:
        learning_rate: of the client's optimiser.
        optimizer: ``adam`` (moments stay with the client between rounds) or ``sgd``.
        weight_decay: L2 penalty of the optimiser.
        batch: nodes a step, or ``full``.
        epochs: passes over the training nodes a round.
        fanout: neighbours sampled a layer, with replacement; one number a layer. With 0 for every layer a
            node is trained on alone, as its own only neighbour, and neighbours are read where predictions
            are made: nothing that is sent then depends on a link, and one node is one record.
        hidden: widths of the GraphSAGE layers, each even.
        head: how the last layer starts: ``glorot`` as the papers', or ``zeros`` (uniform predictions).
        network: of nodes ``sage``, the FedSage paper's, or ``ego``, the FedEgo paper's (all its widths are
            equal); of whole graphs ``gin`` (equal widths too), ``gcn``, ``gat`` or ``sage``.
        share: how many training nodes an epoch draws afresh, as a share of all the client's nodes; never
            more than there are, and 1 is all of them. The FedEgo paper's clients draw 0.2.
        dropout: of the ego network's reduced features, or of a network of whole graphs.
        largest_gradient: what the norm of a step's gradient is cut to, over all parameters, and each value
            first; what is not finite counts as 0. Steps of honest runs stay below, and are not changed.
        class_weight: how much an item of each class counts: a number a class, or ``balanced``, by how often
            each stands among the client's own training items (not under noise, where one item would change
            the weights of the others).
        places: under noisy steps on nodes, how many nodes may have one node as a sampled neighbour; 0 is as
            many as ``fanout``.
        crowd: under noisy steps on nodes, how many neighbours of one node may have more than ``places`` links
            (its degree is always enough). Public; a client whose graph has more is refused, and the noise
            grows with it.
    """

    learning_rate: float = Field(0.001, gt=0, allow_inf_nan=False)
    optimizer: Literal["adam", "sgd"] = "adam"
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    batch: BatchSize = 64
    epochs: int = Field(1, ge=1)
    fanout: tuple[int, ...] = (5, 5)
    hidden: Widths = Field((64, 32), validate_default=True)
    head: Literal["glorot", "zeros"] = "glorot"
    network: Literal["sage", "ego", "gin", "gcn", "gat"] = "sage"
    share: float = Field(1.0, gt=0, le=1)
    dropout: float = Field(0.0, ge=0, lt=1, validate_default=True)
    largest_gradient: float = Field(LARGEST_GRADIENT, gt=0, allow_inf_nan=False)
    class_weight: Literal["balanced"] | tuple[float, ...] = ()
    places: int = Field(0, ge=0)
    crowd: int = Field(100, ge=0)

    @field_validator("fanout")
    @classmethod
    def _check_fanout(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or min(value) < 0 or (0 in value and any(value)):
            raise PydanticCustomError(
                "fanout",
                "give one number of neighbours a layer, each 1 or more, or 0 for every layer, which trains "
                "on nodes alone",
            )
        return value

    @field_validator("hidden")
    @classmethod
    def _check_hidden(cls, value: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        layers = len(info.data.get("fanout", value))
        if len(value) != layers:
            raise PydanticCustomError(
                "hidden",
                "give as many widths as fanout has numbers, which is {layers}, or fanout {widths} numbers",
                {"layers": layers, "widths": len(value)},
            )
        return value

    @field_validator("network")
    @classmethod
    def _check_network(cls, value: str, info: ValidationInfo) -> str:
        if value in ("ego", "gin") and len(set(info.data.get("hidden", ()))) > 1:
            raise PydanticCustomError(
                "network",
                "the {network} network's widths are equal: give hidden such as 64, 64",
                {"network": value},
            )
        return value

    @property
    def trains_alone(self) -> bool:
        """Whether a node's own features are all that its training reads."""
        return bool(self.fanout) and not any(self.fanout)

    @field_validator("dropout")
    @classmethod
    def _check_dropout(cls, value: float, info: ValidationInfo) -> float:
        if value and info.data.get("network") == "sage":
            raise PydanticCustomError("dropout", "the sage network has none: use network ego, or 0")
        return value
