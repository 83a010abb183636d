"""Numbers made of columns by a schema: what every owner computes at home, the same way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.schema import Task
from secure_fedgraph.graph.tables import cells, schema
from secure_fedgraph.graph.tables.cells import Cells
from secure_fedgraph.graph.tables.table import Table
from secure_fedgraph.loading import postponed

pa, pc = postponed("pyarrow"), postponed("pyarrow.compute")

PUBLIC_REACH = 1e6
"""What a number without a range is measured by: ``log1p`` of it is 1."""
MOST = 2**33
"""Bytes of what a table becomes."""
REACH = 5.0
"""How far a number is from its middle, in spreads, at most."""
LEAST = 0.2
"""The spread of a column of words or of yes and no, at least: rare words would be far from all others."""
_DAYS = np.datetime64(0, "D")


@dataclass(frozen=True)
class Fit:
    """How an owner's column fits the schema.

    Args:
        column: its name.
        kind: as the schema has it.
        fits: cells that are as the schema says.
        clipped: numbers outside the range.
        unknown: words that are not in the list.
        empty: cells without a value.
        said: what was read as meant though it was written otherwise.

    >>> print(Fit("Age", "number", 98, clipped=2))
    Age (number): fits 98, clipped 2, unknown 0, empty 0
    """

    column: str
    kind: str
    fits: int
    clipped: int = 0
    unknown: int = 0
    empty: int = 0
    said: str = ""

    def __str__(self) -> str:
        counts = f"fits {self.fits}, clipped {self.clipped}, unknown {self.unknown}, empty {self.empty}"
        return f"{self.column} ({self.kind}): {counts}" + (f"; {self.said}" if self.said else "")


@dataclass(frozen=True)
class Encoded:
    """What columns became.

    Args:
        x: ``[rows, features]`` float32.
        fits: a line a column.
        notes: on what was clipped, unknown or repaired.
    """

    x: np.ndarray = field(repr=False)
    fits: tuple[Fit, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was clipped, unknown or read as meant, a phrase a column."""
        found = []
        for one in self.fits:
            if one.clipped:
                found.append(f"{one.clipped:,} values of {one.column} are clipped to its range")
            if one.unknown:
                found.append(
                    f"{one.unknown:,} values of {one.column} are words that the schema does not list"
                )
            if one.said:
                found.append(f"{one.column}: {one.said}")
        return tuple(found)


def encode(table: Table, columns: Sequence[schema.Column], constant: bool = True) -> Encoded:
    """A table's columns as features.

    Guarantees:
        - a row becomes the same numbers whatever other rows are beside it, and at every owner;
        - every number is finite and in [-REACH, REACH];
        - what is clipped, unknown or empty is counted.

    Args:
        table: which has the columns.
        columns: of a schema.
        constant: whether a column of ones comes first.

    Raises:
        BadInput: for a column that is missing, and for a cell that the schema refuses, with its row.
    """
    names = schema.feature_names(columns, constant)
    if len(table) * len(names) * 4 > MOST:
        raise BadInput(
            f"{table.where}: {len(table):,} rows of {len(names):,} features take more than {MOST >> 30} GiB: "
            "ignore columns of many words"
        )
    x = np.zeros((len(table), len(names)), dtype=np.float32)
    x[:, : int(constant)] = 1.0
    at, fits = int(constant), []
    for column in columns:
        if isinstance(column, schema.IgnoredColumn):
            continue
        check_there(table, column.name)
        wide = len(schema.feature_names([column], constant=False))
        part = x[:, at : at + wide]
        if isinstance(column, schema.CategoryColumn):
            fits.append(_category(table, column, part))
        else:
            fits.append(_measured(table, column, part))
        at += wide
    return Encoded(x, tuple(fits))


def check_there(table: Table, name: str) -> None:
    """Refuses a table without a column.

    Raises:
        BadInput: naming it.
    """
    if table.find(name) != name:  # names are as the schema's by now
        raise BadInput(
            f"{table.where} has no column {name[:60]!r}, which the schema names: give it, or agree on a "
            "schema without it"
        )


def _measured(
    table: Table, column: schema.NumberColumn | schema.DateColumn | schema.YesNoColumn, part: np.ndarray
) -> Fit:
    read = read_as(table, column.name, column.kind)
    values = read.values
    if isinstance(column, schema.DateColumn):
        values = (np.datetime64(column.day) - _DAYS).astype(float) - values
    gone = np.isnan(values)
    if column.empty == schema.REFUSE and gone.any():
        _refuse_empty(table, column.name, int(gone.argmax()))
    if isinstance(column.empty, float | int):
        values = np.where(gone, float(column.empty), values)
    clipped = np.zeros(len(values), dtype=bool)
    if isinstance(column, schema.YesNoColumn):
        filled = {"yes": 1.0, "no": 0.0}.get(column.empty)
        scaled = _from_usual(values if filled is None else np.where(gone, filled, values), column.share)
    else:
        scaled, clipped = scale(values, column)
        scaled = (scaled - column.middle) / column.spread
    part[:, 0] = np.nan_to_num(scaled).clip(-REACH, REACH)
    if column.empty == schema.INDICATOR:
        part[:, 1] = gone
    clipped &= ~gone
    return Fit(
        column.name,
        column.kind,
        int(len(values) - gone.sum() - clipped.sum()),
        clipped=int(clipped.sum()),
        empty=int(gone.sum()),
        said=_mended(read),
    )


def _from_usual(values: np.ndarray, share: np.ndarray | float, least: float = LEAST / 2) -> np.ndarray:
    """0 and 1 as distances from a share, in its spread.

    >>> _from_usual(np.array([0.0, 1.0]), 0.5).tolist()
    [-1.0, 1.0]
    """
    spread = np.sqrt(np.asarray(share) * (1 - np.asarray(share)))
    return np.asarray(((values - share) / np.maximum(spread, least)).clip(-REACH, REACH))


def scale(
    values: np.ndarray, column: schema.NumberColumn | schema.DateColumn
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers on [-1, 1] by a column's range and scale, and which of them were clipped.

    Without a range it is a public transform that no data have a part in: ``log1p`` with the number's sign,
    over ``log1p`` of :data:`PUBLIC_REACH`.

    >>> scale(np.array([10.0, 15.0, 30.0]), schema.NumberColumn(name="a", low=10, high=20))[0].tolist()
    [-1.0, 0.0, 1.0]
    """
    if isinstance(column, schema.NumberColumn) and column.quantiles:
        cuts = np.asarray(column.quantiles)
        made = np.interp(values, cuts, np.linspace(-1, 1, len(cuts)))
        return np.where(np.isnan(values), np.nan, made), (values < cuts[0]) | (values > cuts[-1])
    if column.low is None or column.high is None:
        made = _signed_log(values) / np.log1p(PUBLIC_REACH)
        return np.clip(made, -1, 1), np.abs(made) > 1
    ends = np.array([column.low, column.high], dtype=float)
    outside = (values < ends[0]) | (values > ends[1])
    values = np.clip(values, *ends)
    if isinstance(column, schema.NumberColumn) and column.scale == "log":
        values, ends = _signed_log(values), _signed_log(ends)
    return np.clip(2 * (values - ends[0]) / (ends[1] - ends[0]) - 1, -1, 1), outside


def _signed_log(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.sign(values) * np.log1p(np.abs(values)))


def _category(table: Table, column: schema.CategoryColumn, part: np.ndarray) -> Fit:
    words = cells.words(table, column.name)
    found, cased = place_of(words, column.values)
    gone = pc.is_null(words).to_numpy(zero_copy_only=False)
    unknown = (found < 0) & ~gone
    if column.empty == schema.REFUSE and gone.any():
        _refuse_empty(table, column.name, int(gone.argmax()))
    if column.unknown == schema.REFUSE and unknown.any():
        index = int(unknown.argmax())
        raise BadInput(
            f"{table.at(index, column.name)} is {words[index].as_py()[:60]!r}, which the schema does not "
            "list: agree on a schema that does, or on what an unknown word is"
        )
    listed = list(column.values)
    if column.unknown in listed:
        found[unknown] = listed.index(column.unknown)
    elif column.unknown == schema.OTHER:
        found[unknown] = len(listed)
    if column.empty in listed:
        found[gone] = listed.index(column.empty)
    rows = np.flatnonzero(found >= 0)
    part[rows, found[rows]] = 1.0
    if column.empty == schema.INDICATOR:
        part[:, -1] = gone
    if column.shares:
        known = part[:, : len(listed)]
        shares = np.asarray(column.shares, dtype=np.float32)
        known[:] = np.where((found >= 0)[:, None], _from_usual(known, shares, LEAST), 0.0)
    return Fit(
        column.name,
        column.kind,
        int(len(words) - unknown.sum() - gone.sum()),
        unknown=int(unknown.sum()),
        empty=int(gone.sum()),
        said=f"{cased:,} words differ from the schema's in case" if cased else "",
    )


def place_of(words: Any, listed: Sequence[str]) -> tuple[np.ndarray, int]:
    """The place in a list of each word, -1 where it has none; and how many fit but for case."""
    found = pc.fill_null(pc.index_in(words, value_set=pa.array(list(listed), pa.string())), -1)
    places: np.ndarray = found.to_numpy(zero_copy_only=False).astype(np.int64)
    missing = (places < 0) & pc.is_valid(words).to_numpy(zero_copy_only=False)
    low = [one.lower() for one in listed]
    if not missing.any() or len(set(low)) < len(low):
        return places, 0
    again = pc.index_in(
        pc.utf8_lower(words), value_set=pa.array([one.lower() for one in listed], pa.string())
    )
    folded = pc.fill_null(again, -1).to_numpy(zero_copy_only=False)
    cased = missing & (folded >= 0)
    return np.where(cased, folded, places), int(cased.sum())


def read_as(table: Table, name: str, kind: str) -> Cells:
    """A column as what the schema says it is.

    Raises:
        BadInput: for a cell that is none, with its row.
    """
    read = cells.READS[kind](table, name, True)
    if not read.fits:
        what = {"number": "a number", "yes-no": "yes or no", "date": "a date, such as 2024-05-31"}[kind]
        cell = str(table.columns[name][read.odd].as_py())[:60]
        raise BadInput(
            f"{table.at(read.odd, name)} is {cell!r}, and the schema "
            f"says that it is {what}: mend the cell, or agree on another schema"
        )
    return read


def _refuse_empty(table: Table, name: str, index: int) -> None:
    raise BadInput(
        f"{table.at(index, name)} is empty, which the schema refuses: fill it in, or agree on a value"
    )


def _mended(read: Cells) -> str:
    parts = [f"{read.commas:,} numbers are written with commas"] if read.commas else []
    parts += [f"{read.absent:,} words for nothing are read as empty"] if read.absent else []
    return " and ".join(parts)


# --- labels -------------------------------------------------------------------------------------------------


def answers(table: Table, label: schema.Label, task: Task) -> tuple[np.ndarray, tuple[Fit, ...]]:
    """What is known of rows: as :class:`~secure_fedgraph.graph.schema.Task` says it looks.

    Raises:
        BadInput: for a word that is no class, and for cells that are no number or no yes or no.
    """
    for name in label.columns:
        check_there(table, name)
    if task == Task.LABELS:
        read = [read_as(table, name, "yes-no") for name in label.columns]
        gone = [np.isnan(one.values) for one in read]
        fits = tuple(
            Fit(name, "label", int((~none).sum()), empty=int(none.sum()), said=_mended(one))
            for name, none, one in zip(label.columns, gone, read, strict=True)
        )
        return np.stack([one.values for one in read], axis=1).astype(np.float32), fits
    name = label.columns[0]
    if task == Task.NUMBER:
        one = read_as(table, name, "number")
        values, none = one.values, np.isnan(one.values)
        clipped = np.zeros(len(values), dtype=bool)
        if label.low is not None and label.high is not None:
            clipped = (values < label.low) | (values > label.high)
            values = np.clip(values, label.low, label.high)
        inside = int((~none & ~clipped).sum())
        fit = Fit(name, "label", inside, clipped=int(clipped.sum()), empty=int(none.sum()), said=_mended(one))
        return values.astype(np.float32), (fit,)
    words = cells.words(table, name)
    places, cased = place_of(words, label.classes)
    absent = pc.is_null(words).to_numpy(zero_copy_only=False)
    odd = (places < 0) & ~absent
    if odd.any():
        index = int(odd.argmax())
        word = words[index].as_py()
        nothing = word.lower() in cells.ABSENT
        raise BadInput(
            f"{table.at(index, name)} is {word[:60]!r}, "
            + ("which may be a class or no label" if nothing else "which is no class of the schema")
            + f" (classes are {', '.join(label.classes)[:200]}): leave the cell empty where there is no label"
        )
    said = f"{cased:,} words differ from the schema's in case" if cased else ""
    return places, (Fit(name, "label", int((~absent).sum()), empty=int(absent.sum()), said=said),)
