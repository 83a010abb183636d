"""``schema.toml``: what every column of owners' tables means. It is public, and owners agree on it."""

from __future__ import annotations

import datetime
import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.schema import OF_LINKS, Task

SCHEMA: Literal["secure-fedgraph/tables/1"] = "secure-fedgraph/tables/1"
NAME = "schema.toml"
LARGEST = 2**22
"""Bytes of a schema's file."""
_DEEP = "too many lists or tables in each other"
_SAID = {
    "model_type": "it is no table of keys",
    "too_long": "it has more than {max_length:,} parts",
    "union_tag_not_found": "it has no kind",
    "union_tag_invalid": "kind = {tag!r}: give one of {expected_tags}",
}
"""What pydantic says of programs, of a file."""
CONSTANT = "constant"
"""The name of the column of ones."""
OTHER, EMPTY, ZEROS, REFUSE, INDICATOR = "other", "is empty", "zeros", "refuse", "indicator"
MOST_WORDS, MOST_FEATURES = 10_000, 100_000
"""Of a column, and of all columns together."""

_Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=300)]
_Number: TypeAlias = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-1e15, le=1e15)]
_Share: TypeAlias = Annotated[float, Field(strict=True, ge=0, le=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Ranged(_Part):
    name: _Name
    low: _Number | None = None
    high: _Number | None = None
    empty: _Number | Literal["indicator", "zeros", "refuse"] = "zeros"
    middle: float = Field(0.0, strict=True, ge=-1, le=1)
    spread: float = Field(1.0, strict=True, ge=0.05, le=1)

    @model_validator(mode="after")
    def _is_a_range(self) -> _Ranged:
        if (self.low is None) != (self.high is None):
            raise ValueError(f"column {self.name!r}: give low and high, or neither")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"column {self.name!r}: low = {self.low:g} is not below high = {self.high:g}")
        return self

    @property
    def incomplete(self) -> bool:
        """Whether its range is still missing."""
        return self.low is None


class NumberColumn(_Ranged):
    """A number.

    Args:
        name: the column's.
        low, high: its public range; values outside are clipped, and counted.
        scale: how it is spread over [-1, 1]: ``linear``; ``log``, of ``log1p`` with the number's sign; or
            ``quantiles``, linear between each two of ``quantiles``.
        quantiles: cut points in increasing order.
        empty: what an empty cell is: a number; ``zeros``, the middle; ``indicator``, the same with one more
            column that says so; or ``refuse``.
        middle, spread: where on the scale cells usually are, and how far from there: owners learn from the
            distance from the middle, in spreads. Public, and rounded where a draft names them.
    """

    kind: Literal["number"] = "number"
    scale: Literal["linear", "log", "quantiles"] = "linear"
    quantiles: tuple[_Number, ...] = Field((), max_length=1000)

    @model_validator(mode="after")
    def _has_cuts(self) -> NumberColumn:
        if (self.scale == "quantiles") != bool(self.quantiles):
            raise ValueError(f"column {self.name!r}: scale = 'quantiles' and quantiles go together")
        if self.quantiles and (
            len(self.quantiles) < 2
            or any(a >= b for a, b in zip(self.quantiles, self.quantiles[1:], strict=False))
        ):
            raise ValueError(f"column {self.name!r}: give two quantiles or more, in increasing order")
        return self

    @property
    def incomplete(self) -> bool:
        """Whether its range is still missing."""
        return self.low is None and not self.quantiles


class DateColumn(_Ranged):
    """A date, as its age in days on a public day.

    Args:
        name, low, high, empty, middle, spread: as :class:`NumberColumn` has them, in days.
        day: the public day.
    """

    kind: Literal["date"] = "date"
    day: datetime.date = Field(datetime.date(2000, 1, 1), strict=True)


class CategoryColumn(_Part):
    """One of several words, each of which becomes a column of 0 and 1.

    Args:
        name: the column's.
        values: the words, in order.
        unknown: what another word is: ``other``, a column of its own; one of the words; ``zeros``, none of
            them; or ``refuse``.
        empty: what an empty cell is: one of the words; ``zeros``, none of them; ``indicator``, a column of
            its own; or ``refuse``.
        shares: how often each word stands, about; public. Owners learn from the distance from it.
    """

    kind: Literal["category"] = "category"
    name: _Name
    values: tuple[_Name, ...] = Field(min_length=1, max_length=MOST_WORDS)
    unknown: str = OTHER
    empty: str = ZEROS
    shares: tuple[_Share, ...] = Field((), max_length=MOST_WORDS)

    @model_validator(mode="after")
    def _knows_its_words(self) -> CategoryColumn:
        _check_different(f"column {self.name!r}: values", self.values)
        if self.shares and len(self.shares) != len(self.values):
            raise ValueError(
                f"column {self.name!r}: {len(self.shares)} shares, {len(self.values)} values: give one each"
            )
        for key, also in (("unknown", (OTHER, ZEROS, REFUSE)), ("empty", (INDICATOR, ZEROS, REFUSE))):
            if getattr(self, key) not in (*also, *self.values):
                raise ValueError(
                    f"column {self.name!r}: {key} = {getattr(self, key)!r}: give {', '.join(also)}, or one "
                    "of its values"
                )
        return self


class YesNoColumn(_Part):
    """Yes or no: 1 or -1, or how far that is from the usual share.

    Args:
        name: the column's.
        empty: what an empty cell is: ``yes``; ``no``; ``zeros``, between the two; ``indicator``, the same
            with one more column that says so; or ``refuse``.
        share: how often it is yes, about; public. Owners learn from the distance from it.
    """

    kind: Literal["yes-no"] = "yes-no"
    name: _Name
    empty: Literal["yes", "no", "indicator", "zeros", "refuse"] = "zeros"
    share: _Share = 0.5


class IgnoredColumn(_Part):
    """A column that is not used: a text, an identifier, or what nobody should learn from."""

    kind: Literal["ignored"] = "ignored"
    name: _Name


Column: TypeAlias = Annotated[
    NumberColumn | CategoryColumn | YesNoColumn | DateColumn | IgnoredColumn, Field(discriminator="kind")
]


class Label(_Part):
    """What is learned.

    Args:
        columns: one; several columns of yes and no for several labels.
        classes: of one of several classes, their words in order: numbers of classes follow it.
        positive: of two classes, the one that scores are of; the second by default.
        low, high: the public range of a number; values outside are clipped.
    """

    columns: tuple[_Name, ...] = Field(min_length=1, max_length=1000)
    classes: tuple[_Name, ...] = Field((), max_length=MOST_WORDS)
    positive: str = ""
    low: _Number | None = None
    high: _Number | None = None

    @model_validator(mode="after")
    def _fits(self) -> Label:
        _check_different("label.columns", self.columns)
        _check_different("label.classes", self.classes)
        if self.positive and self.positive not in self.classes:
            raise ValueError(f"label.positive = {self.positive!r} is none of label.classes")
        if (self.low is None) != (self.high is None):
            raise ValueError("label: give low and high, or neither")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"label.low = {self.low:g} is not below label.high = {self.high:g}")
        return self


class Links(_Part):
    """The table of links.

    Args:
        source, target: the columns of its ends.
        weight: the column of weights; empty where links have none.
        directed: whether a link goes one way.
        columns: its other columns.
        label: what is learned of links.
    """

    source: _Name = "source"
    target: _Name = "target"
    weight: str = ""
    directed: bool = Field(False, strict=True)
    columns: tuple[Column, ...] = Field((), max_length=20_000)
    label: Label | None = None

    @model_validator(mode="after")
    def _has_each_once(self) -> Links:
        own = (self.source, self.target, *((self.weight,) if self.weight else ()))
        labels = self.label.columns if self.label else ()
        _check_different("links", (*own, *labels, *(one.name for one in self.columns)))
        return self


class TableSchema(_Part):
    """What owners agree on about their tables, before anybody reads two of them together.

    Guarantees:
        - two schemas of the same words and numbers have the same digest, however their files are written.

    Args:
        schema_: the format.
        task: what is learned, as :class:`~secure_fedgraph.graph.schema.Task` has it.
        id: the column that names rows; empty where they have no names.
        label: the column of labels; none where links are learned.
        columns: every other column, in the order in which they become features.
        links: the table of links; owners without links have none.

    >>> age = NumberColumn(name="age", low=18, high=80)
    >>> made = TableSchema(label=Label(columns=("ok",), classes=("no", "yes")), columns=(age,))
    >>> made.task, made.incomplete
    (<Task.CLASSES: 'classes'>, ())
    >>> parsed(schema_text(made), "here") == made
    True
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_: Literal["secure-fedgraph/tables/1"] = Field(SCHEMA, alias="schema")
    task: Task = Task.CLASSES
    id: str = "id"
    label: Label | None = None
    columns: tuple[Column, ...] = Field((), max_length=20_000)
    links: Links | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> TableSchema:
        named = (*((self.id,) if self.id else ()), *(self.label.columns if self.label else ()))
        _check_different("the schema", (*named, *(one.name for one in self.columns)))
        _check_different("features", feature_names(self.columns))
        if self.links is not None:
            _check_different("features of links", feature_names(self.links.columns, constant=False))
        label = self.answers
        if label is None and self.task != Task.LINKS:
            where = "[links.label]" if self.task == Task.LINK_CLASSES else "[label]"
            raise ValueError(f"task = {self.task.value!r} needs {where} with its columns")
        if label is not None and self.task in (Task.CLASSES, Task.LINK_CLASSES) and not label.classes:
            raise ValueError("label.classes is empty: name two classes or more, in order")
        if label is not None and self.task != Task.LABELS and len(label.columns) != 1:
            raise ValueError(
                f"label.columns names {len(label.columns)} columns, and task = {self.task.value!r} has one"
            )
        return self

    @property
    def incomplete(self) -> tuple[str, ...]:
        """The columns that still need a range: numbers and dates without low and high."""
        every = (*self.columns, *(self.links.columns if self.links else ()))
        return tuple(
            one.name for one in every if isinstance(one, NumberColumn | DateColumn) and one.incomplete
        )

    @property
    def answers(self) -> Label | None:
        """The label that is learned, of nodes or of links."""
        if self.task not in OF_LINKS:
            return self.label
        return self.links.label if self.links else None

    @property
    def class_names(self) -> tuple[str, ...]:
        """What a model's outputs are called: the classes, or the labels; nothing of a number."""
        if self.answers is None or self.task == Task.NUMBER:
            return ()
        return self.answers.columns if self.task == Task.LABELS else self.answers.classes

    @property
    def positive(self) -> int:
        """The number of the positive class."""
        label = self.answers
        return label.classes.index(label.positive) if label and label.positive else 1

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The columns of ``x``."""
        return feature_names(self.columns)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of what it says."""
        return hashlib.sha256(schema_text(self).encode()).hexdigest()


def feature_names(columns: Sequence[Column], constant: bool = True) -> tuple[str, ...]:
    """What the columns become.

    >>> feature_names([CategoryColumn(name="use", values=("car", "home"), empty="indicator")])
    ('constant', 'use=car', 'use=home', 'use=other', 'use is empty')
    """
    return ((CONSTANT,) if constant else ()) + tuple(one for column in columns for one in _become(column))


def _become(column: Column) -> Iterator[str]:
    if isinstance(column, IgnoredColumn):
        return
    if isinstance(column, CategoryColumn):
        yield from (f"{column.name}={value}" for value in column.values)
        if column.unknown == OTHER and OTHER not in column.values:
            yield f"{column.name}={OTHER}"
    else:
        yield f"{column.name}=yes" if isinstance(column, YesNoColumn) else column.name
    if column.empty == INDICATOR:
        yield f"{column.name} {EMPTY}"


def _check_different(where: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise ValueError(f"{where}: {twice[:60]!r} stands twice; rename one")
    if len(names) > MOST_FEATURES:
        raise ValueError(f"{where}: {len(names):,} names, and at most {MOST_FEATURES:,} are taken")


# --- files --------------------------------------------------------------------------------------------------


def read_schema(path: Path) -> TableSchema:
    """A schema from its file.

    Raises:
        BadInput: naming the file, the key and the mend.
    """
    try:
        content = files.read(path.resolve(), most=LARGEST)  # a link is its user's own
    except FileNotFoundError:
        raise BadInput(f"{path} is missing: write one with 'secure-fedgraph silo describe'") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror})") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{path} is no UTF-8: save it as UTF-8") from None
    return parsed(text, str(path))


def parsed(text: str, where: str) -> TableSchema:
    """A schema from TOML.

    Raises:
        BadInput: as :func:`read_schema`.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{where} is no TOML: {str(error)[:160]}") from None
    except RecursionError:
        raise BadInput(f"{where}: {_DEEP}") from None
    except ValueError:  # of Python's limit on digits
        raise BadInput(f"{where}: a number has thousands of digits: write it shorter") from None
    return checked(values, where)


def checked(values: Mapping[str, Any], where: str, learnable: bool = True) -> TableSchema:
    """A schema from its values; a ``learnable`` one has two classes or more.

    Raises:
        BadInput: naming the key, the value and the mend.
    """
    if "schema" not in values:
        raise BadInput(f"{where}: schema is missing: write schema = {SCHEMA!r} first")
    try:
        schema = TableSchema.model_validate(values)
        if learnable:
            check_learnable(schema, where)
        return schema
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] in _SAID:
            first |= {"type": "missing", "msg": _SAID[first["type"]].format(**first.get("ctx", {}))}
        key = ".".join(str(part) for part in first["loc"]) or "the schema"
        own = first["type"] == "value_error"
        given = "" if own or first["type"] == "missing" else f" = {repr(first['input'])[:60]}"
        said = first["msg"].removeprefix("Value error, ")
        raise BadInput(f"{where}: {'' if own else key[:120] + given + ': '}{said[:300]}") from None
    except RecursionError:
        raise BadInput(f"{where}: {_DEEP}") from None


def check_learnable(schema: TableSchema, where: str) -> None:
    """Refuses one class only.

    Raises:
        BadInput: naming it.
    """
    if schema.task in (Task.CLASSES, Task.LINK_CLASSES) and len(schema.class_names) < 2:
        raise BadInput(
            f"{where}: label.classes = {list(schema.class_names)}: one class only cannot be learned; name "
            "two or more, in order"
        )


def schema_text(schema: TableSchema) -> str:
    """A schema as TOML, the same for equal schemas."""
    values = schema.model_dump(by_alias=True, exclude_none=True)
    return "\n".join(_lines(values, ())).strip() + "\n"


def write_schema(schema: TableSchema, path: Path, private: bool = False) -> None:
    """Writes a schema as TOML."""
    files.write(path, [schema_text(schema).encode()], private=private)


def _lines(values: Mapping[str, Any], at: tuple[str, ...]) -> Iterator[str]:
    """A table: its values, then the tables in it."""
    given = {key: one for key, one in values.items() if one != ()}
    first = [key for key in ("name", "kind") if key in given]  # as people look for them
    tables = {key: one for key, one in given.items() if _holds_tables(one)}
    for key in [*first, *(key for key in given if key not in (*first, *tables))]:
        yield f"{key} = {_written(given[key])}"
    for key, one in tables.items():
        head = ".".join((*at, key))
        for table in [one] if isinstance(one, dict) else one:
            yield from ("", f"[{head}]" if table is one else f"[[{head}]]", *_lines(table, (*at, key)))


def _holds_tables(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, tuple) and isinstance(value[0], dict))


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_written, value)) + "]"
    if isinstance(value, datetime.date):
        return value.isoformat()
    return repr(value)
