"""Uploads: what a client computed and wants to send, as one matrix with a layout."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from secure_fedgraph.core.channel import UnitContributionMoments
from secure_fedgraph.core.errors import BadInput, HostileMessage, WrongType
from secure_fedgraph.core.guarantee import Unit

_LOG = logging.getLogger("secure_fedgraph.upload")

MAX_TENSORS = 4096
MAX_VALUES = 2**40


@dataclass(frozen=True)
class Layout:
    """Where each named tensor lies in the packed matrix: public, and part of every sealed upload.

    Args:
        fields: ``(name, shape)``. For a client's upload the whole shapes; for row-wise units
            (nodes, graphs, edges) the shape of one row.
        rows: the number of rows of the packed matrix; 1 for a client's upload.
    """

    fields: tuple[tuple[str, tuple[int, ...]], ...]
    rows: int = 1

    @property
    def width(self) -> int:
        """Values in one row."""
        return sum(math.prod(shape) for _, shape in self.fields)

    def to_text(self) -> str:
        """One line for the rows and one a tensor."""
        lines = [f"{name}:{','.join(map(str, shape))}" for name, shape in self.fields]
        return "\n".join([str(self.rows), *lines])

    @classmethod
    def from_text(cls, text: str) -> Layout:
        """The inverse of :meth:`to_text`.

        Raises:
            HostileMessage: for text that it did not write.
        """
        lines = text.split("\n")
        if len(lines) > MAX_TENSORS + 1 or not re.fullmatch(r"\d{1,12}", lines[0]):
            raise HostileMessage("an upload's layout cannot be read")
        fields = []
        for line in lines[1:]:
            match = re.fullmatch(r"([^:\n\ud800-\udfff]{1,200}):((?:\d{1,12}(?:,\d{1,12}){0,7})?)", line)
            if match is None:
                raise HostileMessage("an upload's layout cannot be read")
            fields.append((match[1], tuple(int(n) for n in match[2].split(",") if n)))
        if len({name for name, _ in fields}) != len(fields):
            raise HostileMessage("an upload's layout names a tensor twice")
        layout = cls(tuple(fields), int(lines[0]))
        # zeros count as ones: an empty tensor of impossible size promises no values and still cannot be made
        if max(layout.rows, 1) * sum(math.prod(max(n, 1) for n in s) for _, s in fields) > MAX_VALUES:
            raise HostileMessage(f"an upload's layout promises more than {MAX_VALUES} values")
        if layout.to_text() != text:  # other digits than 0-9, leading zeros
            raise HostileMessage("an upload's layout cannot be read")
        return layout

    def unpack(self, matrix: np.ndarray, *, by_row: bool, owned: bool = False) -> dict[str, torch.Tensor]:
        """The named tensors of a packed matrix ``[rows, width]``.

        Args:
            owned: nobody else has the matrix, so a tensor that is one piece of it is not copied.
        """
        values, start = {}, 0
        for name, shape in self.fields:
            block = matrix[:, start : start + math.prod(shape)]
            start += math.prod(shape)
            tensor_shape = (self.rows, *shape) if by_row else shape
            if not (owned and block.flags.c_contiguous and block.flags.writeable):
                block = np.array(block, copy=True)
            values[name] = torch.from_numpy(block).reshape(tensor_shape)
        return values


@dataclass(frozen=True)
class Upload:
    """What one client computed for one channel.

    Args:
        values: names to floating-point tensors. On a channel whose unit is not the client, every
            tensor has one row per unit first.

    Guarantees:
        - a value that is not finite, or leaves float32, travels as zero, and the client's own log says so. It
          is never refused: a server that chose the model would learn something from a refusal, and the ledger
          would not have charged for it.

    Raises:
        BadInput: for rows that disagree, or names and shapes that a layout does not carry.
    """

    values: Mapping[str, torch.Tensor]

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return sum(value.numel() for value in self.values.values())

    def packed(self, unit: Unit) -> tuple[Layout, np.ndarray]:
        """The layout and the matrix ``[rows, width]`` (float32): one row is one unit's data."""
        if not self.values:
            raise BadInput("an upload holds no tensor")
        tensors = {name: _as_it_travels(name, value) for name, value in self.values.items()}
        if unit is Unit.CLIENT:
            rows = 1
            fields = tuple((name, tuple(t.shape)) for name, t in tensors.items())
        else:
            counts = {t.shape[0] if t.dim() else -1 for t in tensors.values()}
            if len(counts) != 1 or -1 in counts:
                raise BadInput(
                    f"an upload of one row a {unit.value} needs the same first dimension everywhere"
                )
            (rows,) = counts
            fields = tuple((name, tuple(t.shape[1:])) for name, t in tensors.items())
        layout = Layout(fields, rows)
        _check_text(layout)
        blocks = [tensors[name].reshape(rows, math.prod(shape)) for name, shape in fields]
        matrix = torch.cat(blocks, dim=1)  # a copy
        if not all_finite(matrix.numpy()):
            _LOG.warning(
                "values of %r in an upload are not finite and are sent as zeros: training diverged; "
                "lower the learning rate",
                next(name for name, one in tensors.items() if not torch.isfinite(one).all()),
            )
            matrix.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        return layout, matrix.numpy()


@dataclass(frozen=True)
class ContributionRows:
    """The parts of a client's units in rows that are sums over units; the client adds them up.

    Args:
        values: names to floating-point tensors, one row a unit first.
        places: ``[units, rows]``: which rows a unit is part of. How many rows there are is public, and so is
            their order.

    Raises:
        BadInput: as :class:`Upload`, and for places of other units.
    """

    values: Mapping[str, torch.Tensor]
    places: torch.Tensor

    @property
    def size(self) -> int:
        """How many numbers the sums hold."""
        rows = self.places.shape[-1] if self.places.dim() else 0
        return rows * sum(math.prod(value.shape[1:]) for value in self.values.values())

    def packed(self, unit: Unit) -> tuple[Layout, np.ndarray, np.ndarray]:
        """The layout of the sums, the parts ``[units, width]`` (float32), and the places as booleans."""
        layout, matrix = Upload(self.values).packed(unit)
        if self.places.dim() != 2 or len(self.places) != len(matrix):
            raise BadInput(
                f"an upload of {len(matrix)} {unit.value}s' parts has places {list(self.places.shape)}: give "
                f"one row a {unit.value}"
            )
        return replace(layout, rows=self.places.shape[1]), matrix, self.places.bool().cpu().numpy()


SECOND, CLASSES = "second", "classes"
"""The tensors of an upload of moments: ``z z^T``, its upper triangle row by row, and ``z t^T``."""


@dataclass(frozen=True)
class ContributionMoments:
    """The records of a client, of which it sends the moments: sums of ``z z^T`` and of ``z t^T``.

    Args:
        records: ``[units, width]``, a row a unit.
        targets: ``[units, targets]``.
        ends: ``[units, 2]``, the two nodes of each record, where the channel bounds how many are at one.

    Raises:
        BadInput: for other shapes.
    """

    records: torch.Tensor
    targets: torch.Tensor
    ends: torch.Tensor | None = None

    @property
    def size(self) -> int:
        """How many numbers the sums hold at most."""
        width = self.records.shape[-1]
        return width * (width + 1) // 2 + width * self.targets.shape[-1]

    def packed(self, unit: Unit, second: bool) -> tuple[Layout, np.ndarray, np.ndarray]:
        """The layout of the sums, the records and the targets (float32).

        Args:
            second: whether second moments are sent.
        """
        both = (self.records, self.targets)
        if any(one.dim() != 2 for one in both) or len(self.records) != len(self.targets):
            raise BadInput(
                f"an upload of moments has records {list(self.records.shape)} and targets "
                f"{list(self.targets.shape)}: give one row a {unit.value} in both"
            )
        width, targets = self.records.shape[1], self.targets.shape[1]
        _, records = Upload({"records": self.records}).packed(unit)
        _, wanted = Upload({"targets": self.targets}).packed(unit)
        triangle = ((SECOND, (width * (width + 1) // 2,)),) if second else ()
        return Layout((*triangle, (CLASSES, (width, targets)))), records, wanted


@dataclass(frozen=True)
class ContributionSample:
    """The parts of the units that a client's coins took; the client adds them up.

    Args:
        values: names to floating-point tensors, one row a unit first.
        units: which unit each row is of, ``[rows]``, whole numbers.

    Raises:
        BadInput: as :class:`Upload`, and for other numbers of units than of rows.
    """

    values: Mapping[str, torch.Tensor]
    units: torch.Tensor

    @property
    def size(self) -> int:
        """How many numbers the sum holds."""
        return sum(math.prod(value.shape[1:]) for value in self.values.values())

    def of(self, units: torch.Tensor) -> ContributionSample:
        """The parts of these units, the first of each.

        Raises:
            WrongType: for other numbers of rows than of units, and units that are no whole numbers.
        """
        given, rows = self.units, {len(value) if value.dim() else 0 for value in self.values.values()}
        whole = not (given.is_floating_point() or given.is_complex() or given.dtype == torch.bool)
        if given.dim() != 1 or given.is_meta or not whole or rows - {len(given)}:
            raise WrongType(
                f"parts of units in {sorted(rows)} rows, of units {list(given.shape)} of {given.dtype}: give "
                "one whole number a row"
            )
        given = given.to(torch.int64)
        order = torch.argsort(given, stable=True)
        sorted_units = given[order]
        first = torch.ones(len(given), dtype=torch.bool)
        first[1:] = sorted_units[1:] != sorted_units[:-1]
        kept = order[first & torch.isin(sorted_units, units)].sort().values
        if len(kept) == len(given):  # every row, in its order
            return ContributionSample(self.values, given)
        return ContributionSample({n: v[kept] for n, v in self.values.items()}, given[kept])

    def packed(self, unit: Unit) -> tuple[Layout, np.ndarray]:
        """The layout of the sum, and the parts ``[rows, width]`` (float32)."""
        layout, matrix = Upload(self.values).packed(unit)
        if self.units.dim() != 1 or len(self.units) != len(matrix):
            raise BadInput(
                f"an upload of {len(matrix)} {unit.value}s' parts names {list(self.units.shape)} units: give "
                f"one a row"
            )
        return replace(layout, rows=1), matrix


AnyUpload = Upload | ContributionRows | ContributionMoments | ContributionSample


def all_finite(values: np.ndarray) -> bool:
    """Whether no value is NaN or infinite, without a mask as large as the values."""
    # both are NaN where any value is; NumPy finds them faster than a sum
    return bool(np.isfinite(values.max(initial=0.0)) and np.isfinite(values.min(initial=0.0)))


def unlike_real_numbers(value: torch.Tensor) -> str:
    """What a tensor is that does not hold real numbers, each at its place; empty for one that does.

    >>> unlike_real_numbers(torch.zeros(2)), unlike_real_numbers(torch.zeros(2, device="meta"))
    ('', 'a tensor without values')
    """
    if value.is_meta:
        return "a tensor without values"
    if value.layout is not torch.strided or value.is_complex() or value.is_quantized:
        return f"{value.layout} of {value.dtype}"
    return ""


def _as_it_travels(name: str, value: torch.Tensor) -> torch.Tensor:
    """float32 on the CPU: the tensor itself where it is that already. A class of its own is left behind."""
    if not isinstance(value, torch.Tensor):
        raise WrongType(f"an upload holds tensors, and {name!r} is of type {type(value).__name__}")
    kind = unlike_real_numbers(value)
    if kind:
        raise BadInput(f"{name!r} in an upload is {kind}: give real numbers, each at its place")
    with torch._C.DisableTorchFunctionSubclass():
        value = value.as_subclass(torch.Tensor)
    return value.detach().to(torch.float32).cpu().resolve_neg()


def _check_text(layout: Layout) -> None:
    try:
        carried = Layout.from_text(layout.to_text()) == layout
    except HostileMessage:
        carried = False
    if not carried:
        raise BadInput(
            f"an upload's tensors do not fit a layout: at most {MAX_TENSORS}, of at most 8 dimensions, with "
            "names of 1 to 200 characters that UTF-8 carries, without colons and line breaks"
        )


ON, OFF = 5, 7
"""Weights of the second moments on and off the diagonal. Each product off it stands for two of the whole
matrix, so it is weighted by almost sqrt(2): then one record's moments are no longer than those of the whole
matrix, ``|z|^2``, and noise is spread alike. Whole numbers, so that sums stay whole steps."""


def moments_of(
    total: dict[str, torch.Tensor], contribution: UnitContributionMoments
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """A sum of such uploads as the matrices that they stand for.

    Returns:
        ``sum z z^T`` ``[width, width]``, None where it was not sent, and ``sum z t^T`` ``[width, targets]``.
    """
    classes = total[CLASSES][0].double() * contribution.records
    if not contribution.second:
        return None, classes
    width = len(classes)
    above = torch.triu_indices(width, width)
    values = total[SECOND][0].double() * contribution.records
    second = torch.zeros(width, width, dtype=torch.float64)
    second[above[0], above[1]] = torch.where(above[0] == above[1], values, values * (ON / OFF))
    return second + second.triu(1).T, classes
