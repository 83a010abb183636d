"""Gaussian noise from the operating system's randomness."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from secure_fedgraph.errors import BadInput, Unbound
from secure_fedgraph.privacy.protection import Noise, Scope, Sensitivity, Stage, Terms
from secure_fedgraph.protocol.channel import Domain


def standard_normal(shape: tuple[int, ...]) -> np.ndarray:
    """Standard normal draws (float64) from the operating system's randomness, by inversion.

    No seed reproduces them. Uniforms have 52 bits, so the draws are those of a continuous Gaussian only
    up to floating-point rounding (``docs/sharp_edges.md``).
    """
    size = math.prod(shape)
    words = np.frombuffer(os.urandom(8 * size), dtype=np.uint64) >> np.uint64(12)
    # not 53 bits: the largest word plus a half would round up to one, whose inverse is infinite
    return np.asarray(ndtri((words.astype(np.float64) + 0.5) * 2.0**-52)).reshape(shape)


@dataclass(frozen=True)
class Gaussian(Stage):
    """Adds Gaussian noise scaled to the sensitivity it is bound to.

    Guarantees:
        - the noise's standard deviation is ``multiplier`` times the sensitivity handed down by the
          stages before it; nobody types a sensitivity;
        - under ``by="client"`` every upload carries the noise before it leaves, so it holds against the
          server too; under ``by="server"`` the server sees every upload before the noise, and the noise
          holds against everybody who sees released values only;
        - the draws come from the operating system: no seed reproduces them.
    Needs:
        - a stage before it that bounds the upload, else :class:`~secure_fedgraph.errors.Unbound`.

    Args:
        multiplier: the noise multiplier.
        by: ``"client"`` or ``"server"``.

    Raises:
        BadInput: for a multiplier that is not positive and finite.
    """

    multiplier: float
    by: str = "client"
    scale: float = math.nan
    takes = Domain.REAL
    gives = Domain.REAL

    def __post_init__(self) -> None:
        if not (math.isfinite(self.multiplier) and self.multiplier > 0):
            raise BadInput(
                f"multiplier {self.multiplier}: noise needs a positive number; set --multiplier 1.0"
            )
        if self.by not in ("client", "server"):
            raise BadInput(f"noise by {self.by!r}: use 'client' or 'server'")

    def bind(self, sensitivity: Sensitivity, terms: Terms) -> tuple[Stage, Sensitivity]:
        """Takes the scale from the sensitivity."""
        if not sensitivity.bounded:
            raise Unbound(
                f"channel {terms.channel.name!r}: Gaussian noise needs a bounded upload and nothing before "
                "it bounds one: put Clip(norm) in front"
            )
        return replace(self, scale=self.multiplier * sensitivity.l2), replace(sensitivity, noised_by=self.by)

    def apply(self, matrix: np.ndarray, scope: Scope) -> np.ndarray:
        """The client's noise."""
        return self._noised(matrix) if self.by == "client" else matrix

    def undo(self, matrix: np.ndarray, scope: Scope) -> np.ndarray:
        """The server's noise, on what it opened."""
        return self._noised(matrix) if self.by == "server" else matrix

    @property
    def traces(self) -> str:  # type: ignore[override]
        """Noise that the server adds is not on an upload that it sees."""
        return "noised" if self.by == "client" else ""

    def noise(self) -> Noise:
        """Against whom the multiplier counts."""
        readers = {"peers", "outsider"} | ({"server"} if self.by == "client" else set())
        return Noise(self.multiplier, frozenset(readers))

    def _noised(self, matrix: np.ndarray) -> np.ndarray:
        return matrix + self.scale * standard_normal(matrix.shape)
