"""What cells mean: numbers however decimals are written, words, yes and no, dates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.tables.table import Table
from secure_fedgraph.loading import postponed

pa, pc = postponed("pyarrow"), postponed("pyarrow.compute")

_PLAIN = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_COMMA = r"^[+-]?((\d{1,3}(\.\d{3})+|\d+),\d+([eE][+-]?\d+)?|\d{1,3}(\.\d{3}){2,})$"
_ENGLISH = r"^[+-]?(\d{1,3}(,\d{3})+(\.\d+)?)$"
_WHOLE = r"^[+-]?\d+$"
_EITHER_POINT = r"^[+-]?[1-9]\d{0,2}\.\d{3}$"
"""``1.234``: a thousand and more to whoever writes decimal commas."""
_EITHER_COMMA = r"^[+-]?[1-9]\d{0,2},\d{3}$"
"""``1,234``: a thousand and more, or one and a bit."""
ABSENT = ("n/a", "na", "n.a.", "nan", "none", "null", "<na>", "#n/a", "?", "-", ".")
"""Words for an empty cell among numbers. In a column of words each may be a word."""
_ISO = r"^\d{4}-\d{2}-\d{2}$"
_OTHER_DATES = (
    (r"^(\d{4}-\d{2}-\d{2})[T ]\d{2}:\d{2}(:\d{2}([.,]\d+)?)?(Z|[+-]\d{2}:?\d{2})?$", r"\1"),
    (r"^(\d)\.(\d{1,2}\.\d{4})$", r"0\1.\2"),
    (r"^(\d{2})\.(\d)\.(\d{4})$", r"\1.0\2.\3"),
    (r"^(\d{2})\.(\d{2})\.(\d{4})$", r"\3-\2-\1"),
)
_SLASHED = r"^(\d{1,2})/(\d{1,2})/(\d{4})$"
_ABOVE_12 = (r"^(1[3-9]|2\d|3[01])/\d{1,2}/\d{4}$", r"^\d{1,2}/(1[3-9]|2\d|3[01])/\d{4}$")
NEARLY = 0.9
"""The share of a column's cells that say what it was meant to hold."""
_SIGNS, _INFINITE = r"^[€$£¥]\s*|\s*[%€$£¥]$", r"^[+-]?[iI]nf(inity)?$"
YES = ("yes", "true", "y", "t", "ja", "1", "1.0")
NO = ("no", "false", "n", "f", "nein", "0", "0.0")


@dataclass(frozen=True)
class Cells:
    """A column that was understood.

    Args:
        values: float64, NaN where a cell is empty: numbers; 1 for yes and 0 for no; days since 1970.
        absent: how many cells held a word for nothing.
        commas: how many numbers were written with a decimal comma or with commas between thousands.
    """

    values: np.ndarray
    absent: int = 0
    commas: int = 0


def numbers(table: Table, name: str, known: bool = False) -> Cells | None:
    """A column as numbers; None where it holds other words or dates.

    Args:
        table: which has the column.
        name: the column's.
        known: whether it is agreed that these are numbers: words for nothing are empty cells even where no
            number stands beside them.

    Raises:
        BadInput: for numbers that may mean two things, and for numbers that are not finite.
    """
    column = table.columns[name]
    if pa.types.is_date(column.type):
        return None
    if not pa.types.is_string(column.type):
        return Cells(_finite(table, name, _float(column)))
    try:
        quick = _float(pc.cast(column, pa.float64()))
        plain = bool(np.isfinite(quick[pc.is_valid(column).to_numpy(zero_copy_only=False)]).all())
    except pa.lib.ArrowInvalid:
        plain = False
    if plain:
        if table.separator not in ("", ",") and _has_thousands(column) and _writes_commas(table):
            index = _first(pc.match_substring_regex(column, _EITHER_POINT))
            raise BadInput(
                f"{table.at(index, name)} is {column[index].as_py()!r}, and other columns have decimal "
                "commas: write it without the point, or with a comma"
            )
        return Cells(quick)
    return _by_pattern(table, name, column, known)


def _has_thousands(column: Any) -> bool:
    """Whether every number that is not whole looks like thousands with a point."""
    broken = pc.invert(pc.match_substring_regex(column, _WHOLE))
    fits = pc.match_substring_regex(column, _EITHER_POINT)
    return bool(pc.any(broken).as_py() and pc.all(pc.equal(broken, fits)).as_py())


def _writes_commas(table: Table) -> bool:
    for column in table.columns.values():
        if pa.types.is_string(column.type):
            distinct = column.unique()
            comma, either = (pc.match_substring_regex(distinct, one) for one in (_COMMA, _EITHER_COMMA))
            if pc.any(pc.and_not(comma, either)).as_py():
                return True
    return False


def _by_pattern(table: Table, name: str, column: Any, known: bool) -> Cells | None:
    coded = column.dictionary_encode()
    distinct = coded.dictionary
    plain, comma, english, whole, point, either = (
        pc.match_substring_regex(distinct, one).to_numpy(zero_copy_only=False)
        for one in (_PLAIN, _COMMA, _ENGLISH, _WHOLE, _EITHER_POINT, _EITHER_COMMA)
    )
    absent = _absent(distinct)
    number = plain | comma | english
    if not (number | absent).all() or not (known or number.any()):
        return None
    decimal, thousand, dotted = comma & ~either, english & ~comma, plain & ~whole & ~point
    codes = coded.indices.to_numpy(zero_copy_only=False)

    def row_of(mask: np.ndarray) -> int:
        return int(np.flatnonzero(np.isin(codes, np.flatnonzero(mask)))[0])

    commas = decimal.any() or (either.any() and not (thousand.any() or dotted.any()))
    points = thousand if commas else decimal
    points = points | dotted if commas else points
    if points.any():
        index, other = row_of(points), row_of(decimal | either)
        raise BadInput(
            f"{table.at(index, name)} is {column[index].as_py()!r}, and row {int(table.rows[other])} has "
            f"{column[other].as_py()!r}: write all decimals with commas, or all with points"
        )
    if commas and not decimal.any() and (table.separator == "," or point.any()):
        index = row_of(either)
        raise BadInput(
            f"{table.at(index, name)} is {column[index].as_py()!r}, which is a thousand and more or has a "
            "decimal comma: write it without the comma, or with a point"
        )
    bare = pc.if_else(pa.array(number), distinct, pa.scalar(None, pa.string()))
    if commas:
        bare = pc.replace_substring(pc.replace_substring(bare, ".", ""), ",", ".")
    else:
        bare = pc.replace_substring(bare, ",", "")
    of_distinct = _float(pc.cast(bare, pa.float64()))
    values = _spread(coded, of_distinct)
    marked = _count(coded, (comma | english) & ~plain)
    return Cells(_finite(table, name, values), _count(coded, absent & ~number), marked)


def _absent(distinct: Any) -> np.ndarray:
    """Which words are for nothing."""
    found: np.ndarray = pc.is_in(pc.utf8_lower(distinct), value_set=pa.array(ABSENT)).to_numpy(
        zero_copy_only=False
    )
    return found


def _spread(coded: Any, of_distinct: np.ndarray) -> np.ndarray:
    """The value of each cell from those of different words; NaN where a cell is empty."""
    valid = coded.is_valid().to_numpy(zero_copy_only=False)
    values = np.full(len(coded), np.nan)
    values[valid] = of_distinct[pc.drop_null(coded.indices).to_numpy(zero_copy_only=False)]
    return values


def _count(coded: Any, which: np.ndarray) -> int:
    """How many cells hold one of these different words."""
    return int(which[pc.drop_null(coded.indices).to_numpy(zero_copy_only=False)].sum())


def _finite(table: Table, name: str, values: np.ndarray) -> np.ndarray:
    odd = np.isinf(values)
    if odd.any():
        raise BadInput(f"{table.at(int(odd.argmax()), name)} is not finite: give a number, or leave it empty")
    return values


def _float(column: Any) -> np.ndarray:
    values: np.ndarray = pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values


def _first(mask: Any) -> int:
    return int(pc.index(mask, True).as_py())


def words(table: Table, name: str) -> Any:
    """A column as words, null where a cell is empty.

    A whole number is the same word however it is stored: 1, 1.0 and the number 1 of a parquet file. Numbers
    with leading zeros stay as they stand.
    """
    column = table.columns[name]
    kinds = pa.types
    if kinds.is_boolean(column.type):
        return pc.if_else(column, "True", "False")
    if kinds.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, pa.float64()), column)
        return _whole_words(column, pc.cast(column, pa.string()))
    if not kinds.is_string(column.type):
        return pc.cast(column, pa.string())
    if not pc.any(pc.match_substring(column, ".")).as_py():
        return column
    coded = column.dictionary_encode()
    distinct = coded.dictionary
    if not pc.all(pc.match_substring_regex(distinct, _PLAIN)).as_py():
        return column
    return _whole_words(pc.cast(distinct, pa.float64()), distinct).take(coded.indices)


def _whole_words(values: Any, as_they_stand: Any) -> Any:
    """Real numbers that are all whole as words of whole numbers; else as they stand."""
    given = pc.drop_null(values).to_numpy(zero_copy_only=False)
    if not (np.isfinite(given).all() and (given == np.round(given)).all() and (np.abs(given) < 2**53).all()):
        return as_they_stand
    return pc.cast(pc.cast(values, pa.int64()), pa.string())


def yes_no(table: Table, name: str, known: bool = False) -> Cells | None:
    """A column of yes and no as 1 and 0; None where it holds anything else."""
    column = table.columns[name]
    if pa.types.is_boolean(column.type):
        return Cells(_float(pc.cast(column, pa.int8())))
    if pa.types.is_date(column.type):
        return None
    coded = words(table, name).dictionary_encode()
    low = pc.utf8_lower(coded.dictionary)
    yes, no = (pc.is_in(low, value_set=pa.array(one)).to_numpy(zero_copy_only=False) for one in (YES, NO))
    absent = _absent(coded.dictionary)
    if not (yes | no | absent).all() or not (known or (yes | no).any()):
        return None
    return Cells(_spread(coded, np.where(absent, np.nan, yes)), _count(coded, absent))


def days(table: Table, name: str, known: bool = False) -> Cells | None:
    """A column of dates as days since 1970; None where it holds anything else.

    Dates are of a type of their own, or written 2024-05-31 (a time after it is cut off), 31.05.2024, or
    31/05/2024 or 05/31/2024 where a day above 12 shows which of the two.
    """
    column = table.columns[name]
    if pa.types.is_date(column.type):
        return Cells(_float(pc.cast(column, pa.int32())))
    if not pa.types.is_string(column.type):
        return None
    coded = column.dictionary_encode()
    absent = _absent(coded.dictionary)
    dated = pc.if_else(pa.array(absent), pa.scalar(None, pa.string()), coded.dictionary)
    iso = _iso(dated)
    if not (known or pc.any(pc.is_valid(iso)).as_py()):
        return None
    if not pc.all(pc.match_substring_regex(iso, _ISO)).as_py() and pc.any(pc.is_valid(iso)).as_py():
        return None
    try:
        of_distinct = _float(pc.cast(pc.cast(iso, pa.date32()), pa.int32()))
    except pa.lib.ArrowInvalid:  # of the 31st of February
        return None
    return Cells(_spread(coded, of_distinct), _count(coded, absent))


def _iso(texts: Any) -> Any:
    """A column's dates as 2024-05-31, and its other cells as they stand."""
    first, second = (bool(pc.any(pc.match_substring_regex(texts, one)).as_py()) for one in _ABOVE_12)
    if first != second:
        texts = pc.replace_substring_regex(
            texts, pattern=_SLASHED, replacement=r"\1.\2.\3" if first else r"\2.\1.\3"
        )
    for pattern, replacement in _OTHER_DATES:
        texts = pc.replace_substring_regex(texts, pattern=pattern, replacement=replacement)
    return texts


def misfit(table: Table, name: str, kind: str) -> int:
    """The number of the first row whose cell is no ``number``, ``yes-no`` or ``date``."""
    column = table.columns[name]
    given = pc.is_valid(column).to_numpy(zero_copy_only=False)
    if pa.types.is_string(column.type):
        column = _iso(column) if kind == "date" else column
        for index in np.flatnonzero(given):  # one at a time: it ends at the first
            alone = Table(table.where, {name: column.slice(index, 1)}, table.rows[index : index + 1])
            if _READS[kind](alone, name, True) is None:
                return int(index)
    return int(given.argmax())


def nearly(table: Table, name: str) -> str:
    """Of words, that nine of ten cells or more are like numbers or dates, and the first that is none.

    Signs of percent and of currencies, infinite numbers, and days that may be months are counted as well, and
    are named as none.
    """
    column = table.columns[name]
    if not pa.types.is_string(column.type):
        return ""
    coded = column.dictionary_encode()
    distinct = coded.dictionary
    absent = _absent(distinct)
    bare, dates = pc.replace_substring_regex(distinct, _SIGNS, ""), _iso(distinct)
    exact = np.array([_is_day(text) for text in dates.to_pylist()], dtype=bool)
    numeric = (_PLAIN, _COMMA, _ENGLISH)
    for what, like, sure in (
        ("plain numbers", _matches(bare, *numeric, _INFINITE), _matches(distinct, *numeric)),
        ("2024-05-31, like all dates", _matches(dates, _ISO, _SLASHED), exact),
    ):
        given, found = _count(coded, ~absent), _count(coded, like & ~absent)
        odd = np.flatnonzero(~sure & ~absent)
        if len(odd) and given and found >= NEARLY * given:
            index = _first(pc.is_in(coded.indices, value_set=pa.array(odd, coded.indices.type)))
            cell = column[index].as_py()[:60]
            return (
                f"{found:,} of {given:,} cells look like {what.split()[-1]}; row {int(table.rows[index])} is "
                f"{cell!r}: write such cells as {what}"
            )
    return ""


def _matches(texts: Any, *patterns: str) -> np.ndarray:
    found = [pc.match_substring_regex(texts, one).to_numpy(zero_copy_only=False) for one in patterns]
    return np.asarray(np.logical_or.reduce(found))


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


_READS: dict[str, Callable[[Table, str, bool], Cells | None]] = {
    "number": numbers,
    "yes-no": yes_no,
    "date": days,
}
