"""Training steps under noise inside a client: DP-SGD on records of a known influence."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from secure_fedgraph.core.accounting import events as kinds
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Relation, Unit
from secure_fedgraph.core.protection.bound import secret_coins
from secure_fedgraph.core.protection.pooling import ROUNDING_MARGIN
from secure_fedgraph.core.protection.rounded_gaussian import rounded_gaussian

_LOG = logging.getLogger(__name__)

SIGMA = 2**12
"""Whole steps to the noise's standard deviation: gradients are rounded to this fine a grid."""
RECORDS = (Unit.GRAPH, Unit.NODE)
"""Units of which one record of a training step may be made, by default that of the data."""
OF_STEPS = (*RECORDS, Unit.EDGE)
"""The same, and links, where these are learned."""
CHUNK = 2**24
"""Values of a batch's gradients that are held at a time."""
CACHED = 2**18
"""How many of them are clipped at a time."""
FEW = 0.5
"""Share of a record's columns up to which they alone are multiplied."""
Gradient = torch.Tensor | tuple[torch.Tensor, torch.Tensor]
"""One a record, ``[b, ...]``; or, of weights ``[out, in]``, factors ``[b, rows, out]`` and ``[b, rows, in]``,
whose outer products, summed over a record's rows, are its gradient."""


def check_on_cpu(device: str) -> None:
    """That noisy steps are taken where their sensitivity was shown: clips, sums and rounding on the CPU.

    Raises:
        BadInput: for another device.
    """
    if device != "cpu":
        raise BadInput(
            f"device = {device!r}: noisy training steps clip, add up and round on the CPU, where their "
            "sensitivity was shown; leave --device out"
        )


@dataclass(frozen=True)
class PrivateSteps:
    """How a client trains: each record's gradient clipped, their sum noised, records sampled by coins.

    Guarantees:
        - each step adds Gaussian noise of ``noise * clip`` to the sum of gradients no longer than ``clip``,
          on a grid of whole steps, from the operating system's randomness;
        - each record is in each step with probability ``rate``, by coins that nobody else can predict: the
          accounted amplification needs that;
        - a step without any record still adds its noise.
    Needs:
        - gradients that follow from one record each. At ``unit="node"`` a record is a node's tree, and where
          a node is removed with its links at most ``occurrences`` trees change, each to any other; or a
          record is the node alone (``occurrences`` 1), and goes with it.

    Args:
        noise: the noise multiplier: standard deviation over the clip.
        clip: of one record's gradient, an L2 norm over all parameters.
        rate: the share of the records in a step.
        steps: a round.
        unit: ``node`` or ``graph``; or ``edge`` where links are learned, each of which is a record.

    Raises:
        BadInput: for settings out of range.

    References:
        Abadi et al., Deep Learning with Differential Privacy, CCS 2016; Daigavane et al., Node-Level
        Differentially Private Graph Neural Networks, 2021 (occurrences).
    """

    noise: float
    clip: float = 1.0
    rate: float = 0.1
    steps: int = 10
    unit: str = Unit.NODE

    def __post_init__(self) -> None:
        for key in ("noise", "clip"):
            value = getattr(self, key)
            if not (math.isfinite(value) and value > 0):
                raise BadInput(f"steps.{key} = {value}: give a positive number")
        if not 0 < self.rate <= 1:
            raise BadInput(
                f"steps.rate = {self.rate}: the share of the records in a step, above 0, at most 1"
            )
        if self.steps < 1:
            raise BadInput(f"steps.steps = {self.steps}: give 1 or more a round")
        if self.unit not in OF_STEPS:
            raise BadInput(f"steps.unit = {self.unit!r}: use one of {', '.join(OF_STEPS)}")

    def check_relation(self, relation: str) -> None:
        """Checks that these steps protect under a relation.

        The number of records is public, since anybody can read it off the grid of a step: so never under
        ``add-remove``. A node that is replaced brings other links, which change as many trees again: only
        zeroed nodes are counted.

        Raises:
            BadInput: for another.
        """
        fit = (Relation.ZERO_OUT,) if self.unit == Unit.NODE else (Relation.ZERO_OUT, Relation.REPLACE)
        if relation not in fit:
            raise BadInput(
                f"relation {relation!r}: noisy steps on {self.unit}s hold under {' and '.join(fit)} only, "
                "since the number of records is public and a new node's links are not counted; set "
                "relation=zero-out"
            )

    def events(self, occurrences: int, relation: str, width: int) -> tuple[kinds.Event, ...]:
        """What a round's steps cost one unit.

        Where it is in one record, that record is its own and goes with it; of several each may change to any
        other. The second event is the distance of the sampled noise from the ideal.
        """
        sampling_error = kinds.SamplingError(
            min(self.steps * width * rounded_gaussian(SIGMA).total_variation, 1.0)
        )
        if self.unit == "graph" or occurrences == 1:
            return kinds.SampledGaussian(self.noise, self.rate, self.steps, relation), sampling_error
        return kinds.OccurringGaussian(self.noise, self.rate, self.steps, occurrences), sampling_error


class Training:
    """A client's noisy steps, and those that no charge has paid yet.

    Guarantees:
        - steps are owed until a charge with them is written: a charge that is refused or fails clears none,
          and they are saved with the client's memory, which holds the model that they made.

    Args:
        how: its policy's.
        relation: the neighbouring relation.
    """

    def __init__(self, how: PrivateSteps, relation: str) -> None:
        self.how = how
        self.relation = relation
        self._unpaid: list[kinds.Event] = []
        self._trained = False

    @property
    def unit(self) -> str:
        """Whose data a record is."""
        return self.how.unit

    def run(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Mapping[str, torch.nn.Parameter],
        records: int,
        gradients: Callable[[torch.Tensor], Mapping[str, Gradient]],
        occurrences: int = 1,
        penalty: Callable[[], Any] | None = None,
    ) -> None:
        """One round's steps, in place.

        Args:
            optimizer: of these parameters.
            records: how many there are; public.
            gradients: chosen records ``[b]`` -> for each parameter one gradient a record.
            occurrences: how many records one unit's removal may change; 1 where the only one goes with it.
            penalty: a term of the loss that depends on no data, for its gradient.
        """
        how = self.how
        width = sum(p.numel() for p in parameters.values())
        self._unpaid += how.events(occurrences, self.relation, width)  # before anything is sampled
        self._trained = True
        step = how.noise * how.clip / SIGMA
        expected = max(how.rate * records, 1.0)
        for _ in range(how.steps):
            chosen = secret_coins(records, how.rate)
            total = rounded_gaussian(SIGMA).draw(width).astype(np.int64)
            before = [parameter.detach().clone() for parameter in parameters.values()]
            for batch in torch.split(chosen, max(1, CHUNK // width)):
                if len(batch):
                    total += _whole_steps(gradients(batch), parameters, how.clip, step)
            with torch.no_grad():  # a model of somebody else's may have written into them
                for parameter, value in zip(parameters.values(), before, strict=True):
                    parameter.copy_(value)
            optimizer.zero_grad()
            if penalty is not None:
                penalty()
            _assign(parameters, total * (step / expected))
            optimizer.step()

    def owed(self) -> dict[str, tuple[kinds.Event, ...]]:
        """The steps that no charge has paid yet, by unit; no entry where the client never trained so."""
        return {self.how.unit: tuple(self._unpaid)} if self._trained else {}

    def paid(self) -> None:
        """What was owed has been charged, and the charge is written."""
        self._unpaid = []

    def to_text(self) -> str:
        """What is owed, to be saved beside the model that the steps made; empty where it never trained so."""
        return json.dumps([one.to_json() for one in self._unpaid]) if self._trained else ""

    def take_over(self, text: str) -> None:
        """Owes what was owed when :meth:`to_text` wrote this.

        Raises:
            BadInput: for other text.
        """
        if not text:
            return
        try:
            events = json.loads(text)
        except ValueError:
            events = None
        if not isinstance(events, list):
            raise BadInput("the noisy steps that a client's memory owes are damaged")
        self._unpaid, self._trained = [kinds.event(one) for one in events], True


def _whole_steps(
    gradients: Mapping[str, Gradient], parameters: Mapping[str, Any], clip: float, grid: float
) -> np.ndarray:
    """The sum of clipped gradients in whole steps, each rounded towards zero by itself.

    In float64 that stays in the processor's cache. A record's own sum of squares is taken over its values
    alone, so its part is the same bits whichever others are in the batch.
    """
    every = {name: gradients[name] for name in parameters}
    whole = {name: g for name, g in every.items() if isinstance(g, torch.Tensor)}
    pairs = {name: g for name, g in every.items() if not isinstance(g, torch.Tensor)}
    nothing = [torch.zeros(len(back), 0) for back, _ in pairs.values()]
    flat = torch.cat([*nothing, *(g.flatten(1) for g in whole.values())], dim=1).numpy()
    if not pairs:
        return _sum_of_rows(flat, clip, grid).astype(np.int64)
    sums = {name: np.zeros((back.shape[2], rows.shape[2])) for name, (back, rows) in pairs.items()}
    of_flat = np.zeros(flat.shape[1])
    ends = [(back.numpy(), rows.numpy()) for back, rows in pairs.values()]
    for record, row in enumerate(flat):  # a matrix product each: more at a time would not stay in the cache
        multiplied = [_multiplied(back[record], rows[record]) for back, rows in ends]
        parts = [row.astype(np.float64), *(part for part, _ in multiplied)]
        square = sum(float(np.vdot(part, part)) for part in parts)
        if not math.isfinite(square):
            parts = [np.nan_to_num(part, nan=0.0, posinf=0.0, neginf=0.0) for part in parts]
            square = sum(float(np.vdot(part, part)) for part in parts)
        scale = float(factors(np.sqrt(square), clip)) * (ROUNDING_MARGIN / grid)
        steps = [np.trunc(part * scale) for part in parts]
        of_flat += steps[0]
        for into, (_, columns), step in zip(sums.values(), multiplied, steps[1:], strict=True):
            into[:, columns] += step
    starts = np.cumsum([0, *(g[0].numel() for g in whole.values())])
    sums |= {name: of_flat[start:stop] for name, start, stop in zip(whole, starts, starts[1:], strict=False)}
    return np.concatenate([sums[name].ravel() for name in every]).astype(np.int64)


def _multiplied(back: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, Any]:
    """A record's gradient of some weights in float64, and the columns that it is of: no other has a value."""
    used = np.flatnonzero(rows.any(axis=0))
    columns = used if len(used) <= FEW * rows.shape[1] else slice(None)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite becomes 0
        return (back.T @ rows[:, columns]).astype(np.float64), columns


def _sum_of_rows(every: np.ndarray, clip: float, grid: float) -> np.ndarray:
    """The same of gradients that are rows, a few at a time."""
    total = np.zeros(every.shape[1])
    at_once = max(1, CACHED // max(every.shape[1], 1))
    for start in range(0, len(every), at_once):
        rows = every[start : start + at_once].astype(np.float64)
        square = np.square(rows).sum(axis=1, keepdims=True)
        if not np.isfinite(square).all():
            np.nan_to_num(rows, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
            square = np.square(rows).sum(axis=1, keepdims=True)
        rows *= factors(np.sqrt(square), clip) * (ROUNDING_MARGIN / grid)
        total += np.trunc(rows, out=rows).sum(axis=0)  # whole numbers: exact in any order
    return total


def factors(norms: np.ndarray, clip: float) -> np.ndarray:
    """What cuts rows of these L2 norms to ``clip``; 1 for shorter ones, and a little less than needed.

    >>> factors(np.array([0.5, 2.0]), 1.0).round(3).tolist()
    [1.0, 0.5]
    """
    return np.where(norms > clip, clip * (1 - 2.0**-20) / np.maximum(norms, 1e-300), 1.0)


def _assign(parameters: Mapping[str, torch.nn.Parameter], flat: np.ndarray) -> None:
    start = 0
    for p in parameters.values():
        gradient = torch.from_numpy(flat[start : start + p.numel()]).to(p.dtype).reshape(p.shape)
        # a penalty on weights that the server chose may have no finite gradient
        p.grad = gradient if p.grad is None else torch.nan_to_num(p.grad + gradient, posinf=0.0, neginf=0.0)
        start += p.numel()
