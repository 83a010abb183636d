"""Clipping: bounds each row of an upload, which is where every sensitivity begins."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from secure_fedgraph.core.channel import Domain
from secure_fedgraph.core.errors import BadInput, Incompatible
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.contracts import BindContext, Scope, Sensitivity, Stage
from secure_fedgraph.core.protection.pooling import clipped


@dataclass(frozen=True)
class Clip(Stage):
    """Scales each row down to an L2 norm of at most ``norm``.

    Guarantees:
        - every row that leaves has ``||row||_2 <= norm``, also after rounding to float32; with ``whole`` all
          rows of an upload together have, and then it is the client that noise protects;
        - a row within the norm is unchanged;
        - where a row is a sum over units, it does nothing: each unit's part is clipped before the sum. A clip
          of the sum would shrink every part and bound none.

    Args:
        norm: the bound; a row is a whole upload on client channels, one unit's values on others.
        whole: bound the whole upload, whatever its rows are.

    Raises:
        BadInput: for a norm that is not positive and finite.
    """

    norm: float
    whole: bool = False
    aside: bool = False
    takes = Domain.REAL
    gives = Domain.REAL
    effect_words = "clipped"
    scales = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.norm) and self.norm > 0):
            raise BadInput(f"norm {self.norm}: the clip must be a positive number; set --norm 1.0")

    def bind(self, sensitivity: Sensitivity, context: BindContext) -> tuple[Stage, Sensitivity]:
        """Zeroing a unit moves its row by at most the norm, replacing it by twice that.

        Raises:
            Incompatible: behind noise, where a zeroed row is not at zero any more.
        """
        if sensitivity.noise_added_by:
            raise Incompatible(f"channel {context.channel.name!r}: put Clip before the noise, not behind it")
        if context.channel.unit_contribution is not None:
            return replace(self, aside=True), sensitivity
        l2_sensitivity = 2 * self.norm if context.relation == "replace" else self.norm
        return self, Sensitivity(
            l2_sensitivity, Unit.CLIENT if self.whole or context.channel.unit is Unit.CLIENT else None
        )

    def apply(self, matrix: np.ndarray, scope: Scope) -> np.ndarray:
        """The clipped rows."""
        if self.aside:
            return matrix
        rows = matrix.reshape(1, -1) if self.whole else matrix
        return clipped(rows, self.norm).reshape(matrix.shape)
