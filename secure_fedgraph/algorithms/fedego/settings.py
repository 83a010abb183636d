"""How FedEgo and its variants train; the defaults are the values behind the paper's tables."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from secure_fedgraph.algorithm import Widths, number_or
from secure_fedgraph.algorithms.training.settings import TrainingSettings


class FedEgoSettings(TrainingSettings):
    """How FedEgo trains. ``batch`` is also the number ``n`` of ego-graphs that a mash mixes.

    Args:
        server_epochs: passes of the server a round.
        server_share: of the mashes of the round, drawn afresh for each pass.
        gamma: exponent of the mixing coefficient; below 1 it favours the global layers.
        mixing: ``adaptive`` (Eq. 15), or the coefficient itself, from 0 (the paper's "w/o PL": nothing is
            mixed, so no mash is sent) to 1 ("FedEgo-Server").
        mash: ``client``, as in the paper: the server reads every client's mashes; ``across``: it reads the
            sums over clients of the first, second ... mash, each of ``n`` times the cohort's ego-graphs.
        mashes: how many every client makes a round under ``across``, a public number.
        mixup: False sends the first ego-graph of each batch as it is (the paper's ablation). It is one
            node's neighbourhood in the clear.
        average_reduction: False for the paper's "w/o RL".
    """

    learning_rate: float = Field(3e-4, gt=0, allow_inf_nan=False)
    batch: int = Field(32, ge=1)
    epochs: int = Field(5, ge=1)
    fanout: tuple[int, ...] = (6, 6)
    hidden: Widths = Field((512, 512), validate_default=True)
    network: Literal["ego"] = Field("ego", validate_default=True)
    share: float = Field(0.2, gt=0, le=1)
    dropout: float = Field(0.5, ge=0, lt=1)
    server_epochs: int = Field(5, ge=1)
    server_share: float = Field(0.2, gt=0, le=1)
    gamma: float = Field(0.5, gt=0, allow_inf_nan=False)
    mixing: Annotated[Literal["adaptive"] | float, number_or("adaptive", low=0, high=1)] = "adaptive"
    mash: Literal["client", "across"] = "client"
    mashes: int = Field(16, ge=1)
    mixup: bool = True
    average_reduction: bool = True

    @field_validator("average_reduction")
    @classmethod
    def _check_exchange(cls, value: bool, info: ValidationInfo) -> bool:
        if not value and info.data.get("mixing") == 0:
            raise PydanticCustomError(
                "exchange", "with mixing 0 nothing is exchanged: use the algorithm local"
            )
        return value


class FedEgoReleasedSettings(FedEgoSettings):
    """How FedEgo trains as its authors' code does, for audits.

    Args:
        batching: which ego-graphs are mashed together. ``released``: the same batches every round, in the
            order of the pool, what is left over as a mash of its own (where that is one node, its
            neighbourhood in the clear), and slots by running index; ``seeded``: drawn afresh every round from
            the run's seed, what is left over included, so that whoever knows the seed knows the mixing;
            ``secret``: as :class:`FedEgoSettings` has it, the only one that gives no node away by itself.
        profile: ``released``: each client's own reduction is evaluated; ``paper``: the averaged one.
        reduction: ``frozen``: the reduction layer is random, public and never trained, so that a node's
            reduced features depend on nobody else (rule R4); ``trained`` as in the paper.
        mash_rounds: mashes are uploaded in the first so many rounds, and used again in the later ones; 0 is
            every round.
    """

    batching: Literal["released", "seeded", "secret"] = "released"
    profile: Literal["released", "paper"] = "released"
    reduction: Literal["trained", "frozen"] = "trained"
    mash_rounds: int = Field(0, ge=0)

    @field_validator("reduction")
    @classmethod
    def _check_reduction(cls, value: str, info: ValidationInfo) -> str:
        if value == "frozen" and not info.data.get("mixing", 1):
            raise PydanticCustomError(
                "reduction", "with a frozen reduction the mashes are all that is exchanged: leave mixing"
            )
        return value
