"""What one test item adds to the cells from which all metrics follow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from secure_fedgraph.graph.answers import answered
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models.targets import scaled

SPAN = {32: 4.0, 256: 8.0}
"""Bins -> the largest logit that has a bin of its own; beyond, the last bin counts."""
HITS = 10
"""Wrong links, fewer of which stand before a right one that is a hit."""
LEAST_ERROR = 2.0**-10
"""Of the range of numbers: smaller errors are in one bin."""
FEW, MANY = 32, 256
"""Bins under noise, where each of them costs, and without."""


@dataclass(frozen=True)
class Counting:
    """The cells of one task, of which one item changes few.

    - Two classes: a bin of the positive class's logit, by true class.
    - More classes: the true class by the one that is named; and for each class the bin of its logit against
      the rest. The bins together weigh as much as the first cell.
    - Several labels: a bin a label, which together weigh as one cell.
    - A number: a bin of its error and one of itself, where bins are :data:`FEW`; else 1, the absolute and the
      squared error, the number and its square, each in [0, 1].
    - Links: as two classes, where an item is a link and the wrong ones drawn for it, which weigh as one;
      and whether it is a hit, with fewer than :data:`HITS` of them before it.

    Guarantees:
        - an item moves the cells by at most :attr:`norm` in L2, whatever its scores: NaN counts as the worst.

    Args:
        schema: of the data.
        bins: of each histogram.

    >>> cells = Counting(Schema(4, 2), 32)
    >>> cells.size, cells.norm
    (64, 1.0)
    >>> one = cells.parts(torch.tensor([[0.0, 3.0]]), torch.tensor([1]))
    >>> one.sum().item(), one.nonzero().tolist()
    (1.0, [[0, 60]])
    """

    schema: Schema
    bins: int

    @property
    def classes(self) -> int:
        """The classes of an answer; 2 for links that are there or not."""
        return 2 if self.schema.task == Task.LINKS else self.schema.classes

    @property
    def two(self) -> bool:
        """Whether one histogram by true class says all."""
        return self.schema.task != Task.LABELS and self.classes == 2

    @property
    def _histograms(self) -> int:
        return 0 if self.schema.task == Task.NUMBER else 1 if self.two else self.classes

    @property
    def _confused(self) -> int:
        many = self.schema.task in (Task.CLASSES, Task.LINK_CLASSES) and not self.two
        return self.classes**2 if many else 0

    @property
    def binned(self) -> bool:
        """Whether numbers are counted in two histograms, as under noise: an item is in one bin of each."""
        return self.schema.task == Task.NUMBER and self.bins == FEW

    @property
    def size(self) -> int:
        """How many cells."""
        if self.schema.task == Task.NUMBER:
            return 2 * self.bins if self.binned else 5
        hits = 2 if self.schema.task == Task.LINKS else 0
        return self._confused + self._histograms * 2 * self.bins + hits

    @property
    def weight(self) -> float:
        """Of a cell in a histogram."""
        return 1.0 if self.two else 1 / math.sqrt(max(self._histograms, 1))

    @cached_property
    def norm(self) -> float:
        """How far one item moves all cells, at most."""
        if self.schema.task == Task.NUMBER:
            return math.sqrt(2 if self.binned else 5)
        extra = 2 if self.schema.task == Task.LINKS else 0  # the wrong links' bins, and the hit
        return math.sqrt(1 + bool(self._confused) + extra)

    def parts(self, scores: Tensor, y: Tensor) -> Tensor:
        """What each item adds, ``[n, size]`` float32.

        Args:
            scores: a model's outputs, ``[n, outputs]``; of links ``[n, 1 + wrong]``, the right one first.
            y: answers; of links nothing is read.
        """
        n = len(scores)
        if self.schema.task == Task.NUMBER:
            return self._of_numbers(scores.reshape(n), y.reshape(n))
        parts = torch.zeros(n, self.size)
        if not n:
            return parts
        if self.schema.task == Task.LINKS:
            return self._of_links(scores, parts)
        if self.schema.task == Task.LABELS:
            logits, true = scores, torch.nan_to_num(y).long()
        elif self.two:
            positive = self.schema.positive
            logits = (scores[:, positive] - scores[:, 1 - positive])[:, None]
            true = (y == positive).long()[:, None]
        else:
            logits = _against_the_rest(scores)
            true = F.one_hot(y.clamp(min=0), self.classes)
            named = torch.nan_to_num(scores, nan=-math.inf).argmax(dim=1)
            named = torch.where(scores.isnan().any(dim=1), (y + 1) % self.classes, named)
            parts.scatter_(1, (y.clamp(min=0) * self.classes + named)[:, None], 1.0)
        which = self._bin(logits, true)
        histogram = torch.arange(which.shape[1])
        cells = self._confused + (histogram * 2 + true) * self.bins + which
        return parts.scatter_(1, cells, self.weight)

    def total(self, scores: Tensor, y: Tensor) -> Tensor:
        """The cells of all items, ``[size]`` float64: as the sum of :meth:`parts`, a block at a time."""
        total = torch.zeros(self.size, dtype=torch.float64)
        rows = max(1, 2**22 // self.size)
        for start in range(0, len(scores), rows):
            block = slice(start, start + rows)
            total += self.parts(scores[block], y[block]).double().sum(dim=0)
        return total

    def _bin(self, logits: Tensor, true: Tensor) -> Tensor:
        span = SPAN[self.bins]
        worst = torch.where(true > 0, -span, span)
        logits = torch.where(logits.isnan(), worst, logits)
        which = ((logits.double() + span) * (self.bins / (2 * span))).floor().clamp(0, self.bins - 1)
        return which.long()

    def _of_links(self, scores: Tensor, parts: Tensor) -> Tensor:
        wrong = scores[:, 1:]
        number = max(wrong.shape[1], 1)
        right = self._bin(scores[:, :1], torch.ones(1, dtype=torch.long))
        parts.scatter_(1, self.bins + right, 1.0)
        others = self._bin(wrong, torch.zeros(1, dtype=torch.long))
        parts.scatter_add_(1, others, torch.full(others.shape, 1 / number))
        missed = (~(wrong < scores[:, :1])).sum(dim=1) >= HITS  # ties and NaN stand before it
        return parts.scatter_(1, 2 * self.bins + missed.long()[:, None], 1.0)

    def _of_numbers(self, scores: Tensor, y: Tensor) -> Tensor:
        """Of scores and answers in [-1, 1], as models are trained on them."""
        known = answered(y)
        true = torch.nan_to_num(scaled(y, self.schema))
        far = torch.where(true > 0, -1.0, 1.0)
        error = (torch.where(scores.isnan(), far, scores).clamp(-1, 1) - true).abs() / 2
        half = (true + 1) / 2
        if self.binned:
            size = 1 - torch.log(error.double().clamp(min=LEAST_ERROR)) / math.log(LEAST_ERROR)
            bins = [(self.bins * one).long().clamp(0, self.bins - 1) for one in (size, half.double())]
            both = torch.cat([F.one_hot(one, self.bins) for one in bins], dim=1)
            return both.float() * known[:, None]
        parts = torch.stack([torch.ones_like(half), error, error**2, half, half**2], dim=1)
        return parts.float() * known[:, None]

    def errors(self) -> tuple[Tensor, Tensor]:
        """The mean error and its square in each bin of errors, ``[bins]`` each, as shares of the range."""
        ends = LEAST_ERROR ** (1 - torch.arange(self.bins + 1).double() / self.bins)
        ends[0] = 0.0
        low, high = ends[:-1], ends[1:]
        spread = torch.log(high / low.clamp(min=LEAST_ERROR / 2))  # errors as if even on their scale
        mean, square = (high - low) / spread, (high**2 - low**2) / (2 * spread)
        mean[0], square[0] = LEAST_ERROR / 2, LEAST_ERROR**2 / 3
        return mean, square

    def probabilities(self) -> Tensor:
        """The probability in the middle of each bin, ``[bins]``."""
        span = SPAN[self.bins]
        return torch.sigmoid(((torch.arange(self.bins) + 0.5) / self.bins * 2 - 1) * span).double()


def _against_the_rest(scores: Tensor) -> Tensor:
    """The logit of each class against all others, ``[n, classes]``."""
    shares = F.log_softmax(scores.double(), dim=1)
    return shares - torch.log1p(-shares.exp().clamp(max=1 - 1e-12))
