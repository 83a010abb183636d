"""Real values on a fixed-point grid, so that sums are exact in a ring."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from secure_fedgraph.core.channel import Domain
from secure_fedgraph.core.errors import BadInput, Incompatible
from secure_fedgraph.core.protection.contracts import BindContext, Scope, Sensitivity, Stage

PIECE = 2**16
"""Values that are rounded at a time: a piece stays in the second-level cache."""


@dataclass(frozen=True)
class FixedPoint(Stage):
    """Rounds values to the nearest multiple of a grid step that is a power of two.

    The step is the finest with which the sum over all clients cannot leave the carrier's ring:
    ``clients * (limit / step + 1) < ring / 2``. So the ring never wraps, with certainty.

    Guarantees:
        - a sum over ``m`` uploads that hold no value beyond the limit is within ``m * step / 2`` of the real
          one;
        - a value beyond the limit is cut to it, never wrapped and never refused: a server that can change
          how large values are would learn them from refusals. One more word of each upload says whether
          anything in it was cut, and only the sum of these words is read: how many uploads were.
    Needs:
        - a carrier that adds in a ring.

    Args:
        limit: the largest absolute value that an upload may hold.

    Raises:
        BadInput: for a limit that is not positive and finite.
    """

    limit: float
    step: float = math.nan
    takes = Domain.REAL
    gives = Domain.RING
    scales = True
    tallies = 1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.limit) and self.limit > 0):
            raise BadInput(f"limit {self.limit}: fixed point needs a positive number; set protection.limit=8")

    def bind(self, sensitivity: Sensitivity, context: BindContext) -> tuple[Stage, Sensitivity]:
        """Chooses the step from the ring, the limit and everybody who may contribute."""
        if sensitivity.noise_added_by == "server":
            raise Incompatible(
                f"channel {context.channel.name!r}: the server's noise follows the rounding, which its scale "
                "leaves out: add the noise in the client"
            )
        if not context.ring:
            raise Incompatible(
                f"channel {context.channel.name!r}: FixedPoint needs a carrier that adds in a ring "
                "(masked, homomorphic)"
            )
        if context.channel.largest > self.limit:
            raise BadInput(
                f"channel {context.channel.name!r} holds values up to {context.channel.largest_is} = "
                f"{context.channel.largest:g}, and protection.limit = {self.limit:g} is less: set "
                f"protection.limit={context.channel.largest:g}, or "
                f"{context.channel.largest_is}={self.limit:g}"
            )
        room = context.ring / 2 / len(context.clients) - 1
        if room < 1:
            raise Incompatible(f"{len(context.clients)} clients do not fit a ring of {context.ring} values")
        step = 2.0 ** math.ceil(math.log2(self.limit / room))
        if step > self.limit / 2**8:
            raise Incompatible(
                f"channel {context.channel.name!r}: a ring of {context.ring} values leaves "
                f"{len(context.clients)} clients less than 8 bits each at limit {self.limit}: use a larger "
                "ring (under masked, protection.bits=32)"
            )
        if step >= 1:
            raise BadInput(
                f"channel {context.channel.name!r}: limit {self.limit:g} makes a grid of {step:.3g}, coarser "
                "than whole numbers: set protection.limit=8, or what your values need"
            )
        # Rounding moves a row by up to sqrt(width)/2 steps, and the width is not known at binding: no
        # noise stage may rely on a bound after this one until that term is in it (threats.md 6.7).
        return replace(self, step=step), replace(
            sensitivity, l2=math.inf, unit=sensitivity.unit if sensitivity.noise_added_by else None
        )

    def apply(self, matrix: np.ndarray, scope: Scope) -> np.ndarray:
        """Grid numbers: int32 where they fit, else int64."""
        # the largest number of the values' own type that is not beyond the limit, so that no sum wraps
        limit = matrix.dtype.type(self.limit)
        limit = limit if float(limit) <= self.limit else np.nextafter(limit, matrix.dtype.type(0))
        numbers = np.empty(matrix.shape, dtype=np.int32 if self.limit / self.step < 2**31 else np.int64)
        values, whole = matrix.reshape(-1), numbers.reshape(-1)
        scratch = np.empty(min(PIECE, values.size), dtype=matrix.dtype)
        for start in range(0, values.size, PIECE):
            value = values[start : start + PIECE]
            scaled = np.clip(value, -limit, limit, out=scratch[: value.size])
            if np.isnan(scaled.max()):
                np.copyto(scaled, 0.0, where=np.isnan(scaled))
            # scaling by a power of two is exact in floating point, and so is the rounding of what it gives
            np.multiply(scaled, matrix.dtype.type(1 / self.step), out=scaled)
            np.copyto(whole[start : start + PIECE], np.rint(scaled, out=scaled), casting="unsafe")
        return numbers

    def tally(self, matrix: np.ndarray) -> np.ndarray:
        """1 for an upload that holds a value beyond the limit, else 0.

        One word whatever the number of values: how many, and where, stays in the client.
        """
        largest = float(np.maximum(matrix.max(initial=0.0), -matrix.min(initial=0.0)))
        return np.array([not largest <= self.limit], dtype=np.int32)

    def undo(self, matrix: np.ndarray, scope: Scope) -> np.ndarray:
        """Real values, float64."""
        return np.asarray(np.multiply(matrix, self.step, dtype=np.float64))

    def public(self) -> dict[str, Any]:
        """The public grid step."""
        return {"grid": self.step}
