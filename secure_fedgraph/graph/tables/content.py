"""What a column seems to hold: the same at every owner who looks at it alone, but for its words."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from secure_fedgraph.graph.tables import cells
from secure_fedgraph.graph.tables.table import Table
from secure_fedgraph.loading import postponed

pa, pc = postponed("pyarrow"), postponed("pyarrow.compute")

FEW = 20
"""Different words that any column may have."""
MANY, SHARE, MOST = 50, 0.05, 200
"""A column of more than so many different words, in that share of rows or beyond ``MOST``, is text."""
LONG = 1e14
"""A number from here on has 15 digits, as those of accounts, cards and devices have."""
NUMBER, ZERO_ONE, YES_NO, WORDS, TEXT, CODES, DATE, NOTHING = (
    "number",
    "zero-one",
    "yes-no",
    "words",
    "text",
    "codes",
    "date",
    "nothing",
)


@dataclass(frozen=True)
class Content:
    """What a column holds.

    Args:
        kind: ``number``; ``zero-one``, numbers that are all 0 or 1; ``yes-no``, words for them; ``words``, a
            few; ``text``, many or identifiers; ``codes``, numbers of 15 digits or more; ``date``;
            ``nothing``, where every cell is empty.
        words: the different ones, sorted, of ``words`` and ``yes-no``.
        empty: how many cells are.
        values: of numbers, dates, and yes and no, for ranges and shares; no other owner sees them.
    """

    kind: str
    words: tuple[str, ...] = ()
    empty: int = 0
    values: np.ndarray = field(default_factory=lambda: np.zeros(0), repr=False, compare=False)


def content_of(table: Table, name: str) -> Content:
    """What a column holds, by its cells.

    Raises:
        BadInput: for numbers that may mean two things.
    """
    column = table.columns[name]
    gone = column.null_count
    if gone == len(column):
        return Content(NOTHING, empty=gone)
    if pa.types.is_boolean(column.type):
        return Content(YES_NO, ("False", "True"), gone, cells.yes_no(table, name).values)
    if (dated := cells.days(table, name)).fits:
        return Content(DATE, empty=int(np.isnan(dated.values).sum()), values=dated.values)
    if not _is_code(column) and (read := cells.numbers(table, name)).fits:
        given = read.values[~np.isnan(read.values)]
        if (np.abs(given) >= LONG).any():
            return Content(CODES, empty=len(column) - len(given))
        kind = NOTHING if not len(given) else ZERO_ONE if np.isin(given, (0.0, 1.0)).all() else NUMBER
        return Content(kind, empty=len(column) - len(given), values=read.values)
    words = cells.words(table, name)
    different = words.drop_null().unique()
    yes_or_no = cells.yes_no(table, name)
    if yes_or_no.fits:
        empty = int(np.isnan(yes_or_no.values).sum())
        return Content(YES_NO, tuple(sorted(different.to_pylist())), empty, yes_or_no.values)
    rows = len(column) - gone
    is_text = len(different) > MOST or (len(different) > MANY and len(different) > SHARE * rows)
    if is_text or (len(different) == rows and rows > FEW):
        return Content(TEXT, empty=gone)
    return Content(WORDS, tuple(sorted(different.to_pylist())), gone)


def _is_code(column: object) -> bool:
    """Whether numbers have leading zeros, as codes of places have."""
    return bool(
        pa.types.is_string(column.type)  # type: ignore[attr-defined]
        and pc.any(pc.match_substring_regex(column, r"^0\d+$")).as_py()
    )


@dataclass(frozen=True)
class LabelContent:
    """What a column of labels holds.

    Args:
        words: the different ones, sorted as numbers where all are.
        number: whether it is a number to be learned: not all whole, or more than :data:`FEW` different ones.
        values: of numbers, for their range.
    """

    words: tuple[str, ...]
    number: bool = False
    values: np.ndarray = field(default_factory=lambda: np.zeros(0), repr=False, compare=False)


def label_content_of(table: Table, name: str) -> LabelContent:
    """What a column of labels holds; only an empty cell is no label.

    Raises:
        BadInput: for numbers that may mean two things.
    """
    column = table.columns[name]
    words = in_order(cells.words(table, name).drop_null().unique().to_pylist())
    read = None if pa.types.is_boolean(column.type) else cells.numbers(table, name)
    if read is None or not read.fits or read.absent:
        return LabelContent(words)
    given = np.unique(read.values[~np.isnan(read.values)])
    return LabelContent(words, len(given) > FEW or bool((given != np.round(given)).any()), read.values)


def in_order(words: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Different words in order: as numbers, where all are.

    >>> in_order(["10", "9", "-1"]), in_order(["b", "10", "9"])
    (('-1', '9', '10'), ('10', '9', 'b'))
    """
    different = sorted(set(words))
    try:
        return tuple(sorted(different, key=lambda one: (float(one), one)))
    except ValueError:
        return tuple(different)


NEGATIVE = ("no", "false", "n", "f", "nein", "0", "-1", "negative", "none", "ok", "normal", "legit", "benign")
"""Words of a class that is hardly the one that scores are of."""


def positive_of(classes: tuple[str, ...]) -> str:
    """Of two classes, the one that scores are of: the second, unless words say otherwise.

    >>> positive_of(("-1", "1")), positive_of(("fraud", "ok")), positive_of(("a", "b", "c"))
    ('1', 'fraud', '')
    """
    if len(classes) != 2:
        return ""
    first, second = classes
    turned = second.lower() in NEGATIVE and first.lower() not in NEGATIVE
    return first if turned else second
