"""Settings of FedSage+ and LocSage+."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from secure_fedgraph.algorithms.training.settings import TrainingSettings
from secure_fedgraph.models.neighgen.training import FeatLossNorm

PROTOTYPES = "prototypes"
OF_THE_EXCHANGE = ("exchange_batch", "minimum_batch", "alpha", "generator_hidden")
"""Settings that only an exchange of gradients reads."""
OF_PROTOTYPES = ("anonymity", "records")
"""Settings that only a release of prototypes reads."""


class GeneratorSettings(TrainingSettings):
    """FedSage's settings and NeighGen's.

    Args:
        hidden_share: of an owner's nodes, hidden so that the generator has something to learn.
        generator_epochs: full-batch epochs of local pre-training.
        federated_epochs: epochs with feedback from the other owners, one exchange each; with
            ``feedback="prototypes"`` as many more epochs at home.
        exchange_batch: nodes whose embeddings one offer holds; always exactly that many.
            An answering owner refuses offers about more.
        minimum_batch: an answering owner refuses offers about fewer nodes.
        encoder: hidden and output width of the encoder.
        generator_hidden: inner widths of the feature generator.
        alpha: weight of the other owners' term.
        feat_loss_norm: ``per_dim_mean``, or ``paper_sum``.
        feedback: gradients at the generator's ``parameters``; or ``prototypes``: every owner adds once to
            sums of features by class, and what it generates are mixtures of their means. No gradient leaves.
        generator: each owner its ``own`` (the paper), or one ``shared`` by averaging (its Table 4).
        anonymity: with ``feedback="prototypes"``, k: without noise an owner leaves a class of fewer training
            nodes out; with noise, a class whose noised count is below it is not used.
        records: with ``feedback="prototypes"``, about how many training nodes an owner has at most.
    """

    hidden_share: float = Field(0.15, gt=0, lt=1)
    generator_epochs: int = Field(20, ge=0)
    federated_epochs: int = Field(20, ge=0)
    exchange_batch: int = Field(64, ge=1)
    minimum_batch: int = Field(64, ge=1)
    encoder: tuple[int, int] = (32, 128)
    generator_hidden: tuple[int, int] = (256, 2048)
    alpha: float = Field(1.0, ge=0, allow_inf_nan=False)
    feat_loss_norm: FeatLossNorm = "per_dim_mean"
    feedback: Literal["parameters", "prototypes"] = "parameters"
    generator: Literal["own", "shared"] = "own"
    anonymity: int = Field(10, ge=1)
    records: int = Field(2**13, ge=1, le=2**24)

    @property
    def of_prototypes(self) -> bool:
        """Whether owners release prototypes, and exchange nothing."""
        return self.feedback == PROTOTYPES

    @model_validator(mode="after")
    def _check_exchange(self) -> GeneratorSettings:
        if not self.of_prototypes and self.exchange_batch < self.minimum_batch:
            raise PydanticCustomError(
                "minimum_batch",
                "exchange_batch {batch} is below minimum_batch {minimum}: owners would refuse every offer",
                {"batch": self.exchange_batch, "minimum": self.minimum_batch},
            )
        return self

    @model_validator(mode="after")
    def _check_used(self) -> GeneratorSettings:
        """That every setting that was changed is one that the others read."""
        if not self.of_prototypes:
            self._refuse(OF_PROTOTYPES, f"is read with feedback={PROTOTYPES} only")
            return self
        self._refuse(OF_THE_EXCHANGE, f"is of the exchange, and with feedback={PROTOTYPES} there is none")
        if self.generator == "shared":
            self._refuse(("generator",), f"averages generators: leave it out, or feedback={PROTOTYPES}")
        return self

    def _refuse(self, keys: tuple[str, ...], why: str) -> None:
        for key in keys:
            value = getattr(self, key)
            if value != type(self).model_fields[key].default:
                raise PydanticCustomError(
                    "unused",
                    "{key} = {value} {why}; leave {key} out",
                    {"key": key, "value": str(value), "why": why},
                )


class MendingSettings(GeneratorSettings):
    """As :class:`GeneratorSettings`, with what is FedSage+'s own under a node's budget.

    Args:
        mend: of the form under a node's budget, as
            :class:`~secure_fedgraph.algorithms.fedsgd.settings.SageStepSettings` has it. Without a budget
            every owner trains on its mended graph.
    """

    mend: Literal["none", "at_home"] = "none"
