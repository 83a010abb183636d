"""GLASU's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from secure_fedgraph.algorithm import Settings
from secure_fedgraph.models.vertical.tower import HEADS, Backbone

LOCAL_RATE = 0.05
"""The rate where gradients are local: they lack the other clients' losses and are about M times smaller."""


class GlasuSettings(Settings):
    """How GLASU trains.

    Args:
        backbone: ``residual``, which the paper's numbers come from under the name of GCNII; ``gcnii``, which
            is GCNII and likes ``learning_rate=0.3, dropout=0`` (better than ``residual`` here); ``gcn``; or
            ``gat``.
        layers: graph layers, L.
        aggregated: which of them the server aggregates (K of them, counted from 1); the last is always one.
        hidden: width of every layer.
        sampler: index sets of a layer: ``paper`` (each client's sampled neighbours, united by the server),
            ``public`` (drawn from the seed, padded; they depend on nobody's links), or ``full`` (every node,
            and all training nodes in every step).
        batch: training nodes a step.
        fanout: neighbours drawn a node and layer.
        public_nodes: size of the public index sets: neighbours outside of a set are not summed over, so more
            is more accurate, and costs as much more.
        steps: joint inferences a round.
        local_steps: updates after each, on stale rows of the others: Q.
        backward: gradients through the ``server`` (exact, twice the traffic, Q = 1 only) or ``local``. By
            default through the server where Q = 1.
        learning_rate: of plain SGD; by default 0.01 with gradients through the server, 0.05 with local ones.
        decay, decay_every: the rate is divided by ``decay`` every ``decay_every`` rounds.
        weight_decay: divided by the number of clients.
        dropout: after every layer.
        links: which links a client uses: its ``own``, or ``divided``: where the policy randomises links, each
            pair of nodes is one client's to randomise, and clients hand each other the answers, so that a
            link pays once however many hold it.
        bound: rows are cut off at this absolute value; the limit of ``masked`` and ``homomorphic`` must hold
            it.
        accept_two_clients: take part although with two clients each can subtract its own rows from the mean.
    """

    backbone: Backbone = "residual"
    layers: int = Field(4, ge=1)
    aggregated: tuple[int, ...] = (2, 4)
    hidden: int = Field(192, ge=1)
    sampler: Literal["paper", "public", "full"] = "paper"
    batch: int = Field(16, ge=1)
    fanout: int = Field(3, ge=1)
    public_nodes: int = Field(1024, ge=1)
    steps: int = Field(32, ge=1)
    local_steps: int = Field(1, ge=1)
    backward: Literal["server", "local"] = "server"
    learning_rate: float = Field(0.01, gt=0, allow_inf_nan=False)
    decay: float = Field(4.0, ge=1, allow_inf_nan=False)
    decay_every: int = Field(12, ge=1)
    weight_decay: float = Field(5e-5, ge=0, allow_inf_nan=False)
    dropout: float = Field(0.4, ge=0, lt=1)
    links: Literal["own", "divided"] = "own"
    bound: float = Field(8.0, gt=0, allow_inf_nan=False)
    accept_two_clients: bool = False

    @classmethod
    def usual(cls, layers: int) -> tuple[int, ...]:
        """Which layers are aggregated unless it is said: the middle one and the last."""
        return tuple(sorted({max(layers // 2, 1), layers}))

    @classmethod
    def local_by_default(cls, values: Mapping[str, Any]) -> bool:
        """Whether gradients are local unless it is said."""
        return bool(values.get("local_steps", 1) != 1)

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        if "layers" in values and "aggregated" not in values and isinstance(values["layers"], int):
            values = {**values, "aggregated": cls.usual(values["layers"])}
        if "backward" not in values:
            values = {**values, "backward": "local" if cls.local_by_default(values) else "server"}
        if "learning_rate" not in values and values["backward"] == "local":
            values = {**values, "learning_rate": LOCAL_RATE}
        return values

    @model_validator(mode="after")
    def _check(self) -> GlasuSettings:
        chosen = self.aggregated
        if not chosen or list(chosen) != sorted(set(chosen)) or chosen[0] < 1 or chosen[-1] != self.layers:
            raise PydanticCustomError(
                "aggregated",
                "aggregated {chosen}: give layers from 1 to {layers}, ascending, the last of them {layers}",
                {"chosen": str(list(chosen)), "layers": self.layers},
            )
        if self.backward == "server" and self.local_steps > 1:
            raise PydanticCustomError(
                "backward",
                "backward 'server' with local_steps {q}: gradients through the server are of one joint "
                "inference; use backward 'local', or local_steps 1",
                {"q": self.local_steps},
            )
        if self.backbone == "gat" and self.hidden % HEADS:
            raise PydanticCustomError(
                "hidden", "hidden {h}: gat has {heads} heads; give a multiple of {heads}",
                {"h": self.hidden, "heads": HEADS},
            )  # fmt: skip
        return self
