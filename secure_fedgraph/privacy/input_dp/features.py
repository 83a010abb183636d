"""Features that a client randomises once, in place of its own: a few columns a node, one bit each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.privacy.input_dp import randomizer
from secure_fedgraph.privacy.input_dp.randomizer import CHUNK, InputRandomizer, flip_threshold

if TYPE_CHECKING:
    from torch_geometric.data import Data

A_BIT = 2.18
"""The epsilon of one bit at which the estimates vary least (LPGNN, proposition 3.3)."""


@dataclass(frozen=True)
class MultiBitFeatures(InputRandomizer):
    """LPGNN's multi-bit mechanism: m of d columns are sampled for each node, and each gives one random bit.

    A bit is 1 with a probability that grows with the value from ``low`` to ``high``; it becomes an estimate
    without bias, and columns that were not sampled become the middle of the range. A client keeps these in
    place of its own features, in the same scale, so a model that was trained on them takes clean ones.

    Guarantees:
        - one node's features, set to any others, change the probability of any result by at most
          ``e^epsilon``, split evenly over its m bits; its label and links are not covered.

    Args:
        epsilon: of one node's features in one client.
        low, high: the public range of a feature; values beyond it are cut.

    Raises:
        BadInput: for an epsilon that is not positive, or an empty range.

    References:
        Sajadmanesh and Gatica-Perez, Locally Private Graph Neural Networks, CCS 2021, algorithms 1 and 2.
    """

    low: float = 0.0
    high: float = 1.0

    kind: ClassVar[str] = "features"
    unit: ClassVar[str] = "feature"
    place: ClassVar[str] = "x"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise BadInput(
                f"feature_range = [{self.low}, {self.high}]: give two finite numbers, the smaller one first"
            )

    def bits(self, columns: int) -> int:
        """For how many columns each node gives a bit.

        >>> MultiBitFeatures(8.0).bits(1433), MultiBitFeatures(1.0).bits(1433), MultiBitFeatures(99.0).bits(5)
        (3, 1, 5)
        """
        return max(1, min(columns, math.floor(self.epsilon / A_BIT)))

    def randomize(self, graph: Data, classes: int) -> Tensor:
        """Estimates ``[nodes, features]``."""
        x = graph.x
        assert x is not None
        return self.randomized(x)

    def randomized(self, x: Tensor) -> Tensor:
        """Estimates ``[nodes, features]`` in place of a client's own."""
        columns = x.shape[1]
        if not len(x) or not columns:
            return x.clone()
        pieces = torch.split(x, max(1, CHUNK // columns))
        return torch.cat([self._estimated(piece, columns) for piece in pieces]).to(x.dtype)

    def _estimated(self, x: Tensor, columns: int) -> Tensor:
        chosen, (nodes, m) = _some(x, columns, self.bits(columns)), (len(x), self.bits(columns))
        lie = flip_threshold(self.epsilon / m)
        share = ((x.double() - self.low) / (self.high - self.low)).clamp(0, 1).gather(1, chosen).numpy()
        room = 2**64 - 2 * lie  # of the threshold, so that either bit keeps at least the probability of a lie
        above = np.minimum((share * float(room)).astype(np.uint64), np.uint64(room))
        bits = randomizer.coins(nodes * m).reshape(nodes, m) < above + np.uint64(lie)
        contrast = max(room / 2.0**64, 2.0**-50)  # at one half a bit holds nothing
        far = (self.high - self.low) / 2 * columns / m / contrast
        middle = torch.full((nodes, columns), (self.low + self.high) / 2, dtype=torch.float64)
        return middle.scatter_add(1, chosen, torch.from_numpy(np.where(bits, far, -far)))


def _some(x: Tensor, columns: int, m: int) -> Tensor:
    """``[nodes, m]``: for which columns each node gives a bit, whatever their values."""
    if m == columns:
        return torch.arange(columns).repeat(len(x), 1)
    keys = randomizer.coins(len(x) * columns).reshape(len(x), columns)
    return torch.from_numpy(np.argpartition(keys, m, axis=1)[:, :m].astype(np.int64))
