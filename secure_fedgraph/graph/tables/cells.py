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
_LIKE = {
    "plain numbers": r"^[€$£¥]?\s*[+-]?(0|[1-9][\d.,]{0,13}|0?[.,]\d+)\s*[%€$£¥]?$",
    "2024-05-31, like all dates": r"^\d{1,4}[-./]\d{1,2}[-./]\d{1,4}$",
}
"""How cells should be written, and what is meant as such."""
YES = ("yes", "true", "y", "t", "ja", "1", "1.0")
NO = ("no", "false", "n", "f", "nein", "0", "0.0")
EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class Cells:
    """A column as it was read.

    Args:
        values: float64, NaN where a cell is empty: numbers; 1 for yes and 0 for no; days since 1970.
        absent: how many cells held a word for nothing.
        commas: how many numbers were written with a decimal comma or with commas between thousands.
        odd: the index of the first cell that is none; -1 where all fit.
    """

    values: np.ndarray
    absent: int = 0
    commas: int = 0
    odd: int = -1

    @property
    def fits(self) -> bool:
        """Whether the whole column was understood."""
        return self.odd < 0


def numbers(table: Table, name: str, known: bool = False) -> Cells:
    """A column as numbers.

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
        return _none(column)
    if not pa.types.is_string(column.type):
        return Cells(_finite(table, name, _float(column)))
    try:
        quick = _float(pc.cast(column, pa.float64()))
        plain = bool(np.isfinite(quick[pc.is_valid(column).to_numpy(zero_copy_only=False)]).all())
    except pa.lib.ArrowInvalid:
        plain = False
    if not plain:
        return _by_pattern(table, name, column, known)
    if table.separator not in ("", ","):
        broken = pc.invert(pc.match_substring_regex(column, _WHOLE))
        thousands = pc.match_substring_regex(column, _EITHER_POINT)
        looks = pc.any(broken).as_py() and pc.all(pc.equal(broken, thousands)).as_py()
        if looks and any(map(_has_commas, table.columns.values())):
            index = int(pc.index(thousands, True).as_py())
            raise BadInput(
                f"{table.at(index, name)} is {column[index].as_py()!r}, and other columns have decimal "
                "commas: write it without the point, or with a comma"
            )
    return Cells(quick)


def _has_commas(column: Any) -> bool:
    """Whether a column has decimal commas beyond doubt."""
    if not pa.types.is_string(column.type):
        return False
    comma, either = (pc.match_substring_regex(column.unique(), one) for one in (_COMMA, _EITHER_COMMA))
    return bool(pc.any(pc.and_not(comma, either)).as_py())


def _by_pattern(table: Table, name: str, column: Any, known: bool) -> Cells:
    coded = column.dictionary_encode()
    distinct = coded.dictionary
    plain, comma, english, whole, point, either = (
        _matches(distinct, one) for one in (_PLAIN, _COMMA, _ENGLISH, _WHOLE, _EITHER_POINT, _EITHER_COMMA)
    )
    absent, number = _absent(distinct), plain | comma | english
    odd = _odd(coded, number | absent, known or bool(number.any()))
    if odd >= 0:
        return Cells(np.zeros(0), odd=odd)
    decimal, thousand, dotted = comma & ~either, english & ~comma, plain & ~whole & ~point
    commas = decimal.any() or (either.any() and not (thousand.any() or dotted.any()))
    doubtful = thousand | dotted if commas else decimal
    if commas and not decimal.any() and (table.separator == "," or point.any()):
        doubtful = doubtful | either
    if (index := _odd(coded, ~doubtful)) >= 0:
        raise BadInput(
            f"{table.at(index, name)} is {column[index].as_py()!r}, which may be read in two ways beside the "
            "column's other cells: write all decimals with points, or all with commas, and no thousands apart"
        )
    bare = pc.if_else(pa.array(number), distinct, pa.scalar(None, pa.string()))
    if commas:
        bare = pc.replace_substring(pc.replace_substring(bare, ".", ""), ",", ".")
    else:
        bare = pc.replace_substring(bare, ",", "")
    values = _spread(coded, _float(pc.cast(bare, pa.float64())))
    marked = _count(coded, (comma | english) & ~plain)
    return Cells(_finite(table, name, values), _count(coded, absent & ~number), marked)


def _none(column: Any) -> Cells:
    return Cells(np.zeros(0), odd=_first(pc.is_valid(column)))


def _odd(coded: Any, fits: np.ndarray, some: bool = True) -> int:
    """The index of the first cell whose word does not fit; of any, where there are none of a kind."""
    wrong = pa.array(np.flatnonzero(~fits) if some else np.arange(len(fits)), coded.indices.type)
    return _first(pc.is_in(coded.indices, value_set=wrong, skip_nulls=True)) if len(wrong) else -1


def _first(mask: Any) -> int:
    return int(pc.index(mask, True).as_py())


def _matches(texts: Any, pattern: str) -> np.ndarray:
    return np.asarray(pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False))


def _absent(distinct: Any) -> np.ndarray:
    """Which words are for nothing."""
    return np.asarray(
        pc.is_in(pc.utf8_lower(distinct), value_set=pa.array(ABSENT)).to_numpy(zero_copy_only=False)
    )


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
    return np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False))


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


def yes_no(table: Table, name: str, known: bool = False) -> Cells:
    """A column of yes and no as 1 and 0."""
    column = table.columns[name]
    if pa.types.is_boolean(column.type):
        return Cells(_float(pc.cast(column, pa.int8())))
    if pa.types.is_date(column.type):
        return _none(column)
    coded = words(table, name).dictionary_encode()
    low = pc.utf8_lower(coded.dictionary)
    yes, no = (pc.is_in(low, value_set=pa.array(one)).to_numpy(zero_copy_only=False) for one in (YES, NO))
    absent = _absent(coded.dictionary)
    odd = _odd(coded, yes | no | absent, known or bool((yes | no).any()))
    return Cells(_spread(coded, np.where(absent, np.nan, yes)), _count(coded, absent), odd=odd)


def days(table: Table, name: str, known: bool = False) -> Cells:
    """A column of dates as days since 1970.

    Dates are of a type of their own, or written 2024-05-31 (a time after it is cut off), 31.05.2024, or
    31/05/2024 or 05/31/2024 where a day above 12 shows which of the two.
    """
    column = table.columns[name]
    if pa.types.is_date(column.type):
        return Cells(_float(pc.cast(column, pa.int32())))
    if not pa.types.is_string(column.type):
        return _none(column)
    coded = column.dictionary_encode()
    absent, texts = _absent(coded.dictionary), coded.dictionary
    first, second = (bool(_matches(texts, one).any()) for one in _ABOVE_12)
    if first != second:
        order = r"\1.\2.\3" if first else r"\2.\1.\3"
        texts = pc.replace_substring_regex(texts, pattern=_SLASHED, replacement=order)
    for pattern, replacement in _OTHER_DATES:
        texts = pc.replace_substring_regex(texts, pattern=pattern, replacement=replacement)
    like = _matches(texts, _ISO)
    found = np.array(
        [_day(text) if fits else np.nan for text, fits in zip(texts.to_pylist(), like, strict=True)]
    )
    odd = _odd(coded, absent | ~np.isnan(found), known or bool(like.any()))
    return Cells(_spread(coded, found), _count(coded, absent), odd=odd)


def _day(text: str) -> float:
    try:
        return float((date.fromisoformat(text) - EPOCH).days)
    except ValueError:  # of the 31st of February
        return np.nan


def nearly(table: Table, name: str) -> str:
    """Of words, that nine of ten cells or more are like numbers or dates, and the first that is none.

    Signs of percent and of currencies, and days that may be months, are counted as well.
    """
    column = table.columns[name]
    if not pa.types.is_string(column.type):
        return ""
    coded = column.dictionary_encode()
    absent = _absent(coded.dictionary)
    given = _count(coded, ~absent)
    for what, pattern in _LIKE.items():
        like = _matches(coded.dictionary, pattern)
        found = _count(coded, like & ~absent)
        if given and found >= NEARLY * given:
            index = _odd(coded, like | absent) if found < given else _odd(coded, absent)
            return (
                f"{found:,} of {given:,} cells look like {what.split()[-1]}; row {int(table.rows[index])} is "
                f"{column[index].as_py()[:60]!r}: write such cells as {what}"
            )
    return ""


READS: dict[str, Callable[[Table, str, bool], Cells]] = {"number": numbers, "yes-no": yes_no, "date": days}
"""What reads a column that a schema says to be of a kind."""
