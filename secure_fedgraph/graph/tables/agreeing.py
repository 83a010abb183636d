"""A schema of what all owners declare about their tables, where one process sees them and none was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.schema import Task
from secure_fedgraph.graph.tables.cells import ABSENT
from secure_fedgraph.graph.tables.content import (
    CODES,
    DATE,
    NOTHING,
    NUMBER,
    TEXT,
    WORDS,
    YES_NO,
    ZERO_ONE,
    Content,
    content_of,
    in_order,
    label_content_of,
    positive_of,
)
from secure_fedgraph.graph.tables.drafting import ID, LABEL, SOURCE, TARGET, WEIGHT, declared, look_alike
from secure_fedgraph.graph.tables.encoding import PUBLIC_REACH
from secure_fedgraph.graph.tables.owned import OwnTables
from secure_fedgraph.graph.tables.reading import readable
from secure_fedgraph.graph.tables.schema import SCHEMA, TableSchema, checked
from secure_fedgraph.graph.tables.splitting import SPLIT
from secure_fedgraph.graph.tables.table import Table

_CALLED = {
    NUMBER: "numbers",
    ZERO_ONE: "numbers",
    YES_NO: "yes and no",
    WORDS: "words",
    TEXT: "text",
    CODES: "numbers of 15 digits or more",
    DATE: "dates",
}


def agreed_schema(
    given: Mapping[str, OwnTables], rows: str | None = None, alone: bool = False
) -> tuple[TableSchema, str]:
    """One schema of what all owners declare: names, kinds and lists of words, and no ranges.

    Columns may stand in another order at another owner. A column is one of numbers if it is at every owner,
    and its words are those of all owners, sorted. What is learned is in the column ``label``.

    Args:
        given: each owner's tables, by name.
        rows: for an owner of columns, the column that names its rows; labels may then be another owner's.
        alone: whether others may have classes that these owners lack.

    Returns:
        The schema, and a line that says how it was made.

    Raises:
        BadInput: for a column that one owner lacks or that holds another kind at another owner, for labels
            of one class only, naming the column and the owners.
    """
    with readable(next(iter(given.values())).nodes.where):
        return _agreed_schema(given, rows, alone)


def _agreed_schema(given: Mapping[str, OwnTables], rows: str | None, alone: bool) -> tuple[TableSchema, str]:
    nodes = {name: one.nodes for name, one in given.items()}
    ids = {name: rows or table.find(ID) or "" for name, table in nodes.items()}
    labels = {name: table.find(LABEL) for name, table in nodes.items()}
    if rows is None:
        for name, found in labels.items():
            if found is None:
                raise BadInput(
                    f"{nodes[name].where} has no column {LABEL!r}: give it, or name another in a schema "
                    "('secure-fedgraph silo describe --label NAME', then --schema); owners of columns need "
                    "--rows"
                )
    own = {name: {ids[name], labels[name], nodes[name].find(SPLIT)} for name in nodes}
    have_x = any(one.x is not None for one in given.values())
    values: dict[str, Any] = {"schema": SCHEMA, "id": next((one for one in ids.values() if one), "")}
    values["columns"] = [] if have_x else _columns(nodes, own)
    _refuse_columns_beside(given, own)
    if any(labels.values()):
        held = {name: (nodes[name], found) for name, found in labels.items() if found}
        values |= _label(held, alone)
    else:
        values |= {"task": Task.LINKS}  # which needs no label: another owner has it
    links = {name: one.links for name, one in given.items() if one.links is not None}
    if links:
        values["links"] = _links(links)
    where = next(iter(nodes.values())).where
    schema = _alone(values, where) if alone else checked(values, where)
    whose = "all owners declare" if len(given) > 1 else "the tables declare"
    line = f"no schema was given: one was made of what {whose} (names, kinds, lists of words)"
    if schema.incomplete:
        line += (
            f"; numbers without a public range become log1p of their size over log1p of {PUBLIC_REACH:,.0f}, "
            "with their sign: 'secure-fedgraph silo describe' drafts a schema with ranges"
        )
    return schema, "; ".join((line, *look_alike(schema)))


def _alone(values: dict[str, Any], where: str) -> TableSchema:
    """A schema that may name one class: others have the others."""
    try:
        return TableSchema.model_validate(values)
    except ValidationError:
        return checked(values, where)  # which says it in a sentence


def _refuse_columns_beside(given: Mapping[str, OwnTables], own: Mapping[str, set[str | None]]) -> None:
    for name, one in given.items():
        extra = [column for column in one.nodes.columns if one.x is not None and column not in own[name]]
        if extra:
            raise BadInput(
                f"{one.nodes.where} has column {extra[0][:60]!r}, and features are in features.npy: leave "
                "out the column, or features.npy"
            )


def _columns(tables: Mapping[str, Table], own: Mapping[str, set[str | None]]) -> list[dict[str, Any]]:
    """Every column but those with a meaning of their own, in the first owner's order."""
    first, one = next(iter(tables.items()))
    names = [name for name in (*one.columns, *one.unread) if name not in own[first]]
    for other, table in tables.items():
        extra = [
            name
            for name in (*table.columns, *table.unread)
            if name not in own[other] and name.casefold() not in {known.casefold() for known in names}
        ]
        if extra:
            raise BadInput(
                f"{one.where} has no column {extra[0][:60]!r}, and {table.where} has: give all owners' "
                "tables the same columns, or a schema"
            )
    return [_column(name, tables) for name in names]


def _column(name: str, tables: Mapping[str, Table]) -> dict[str, Any]:
    held: dict[str, Content] = {}
    for owner, table in tables.items():
        if name in table.unread:
            return {"name": name, "kind": "ignored"}
        found = table.find(name)
        if found is None:
            other = next(one.where for one in tables.values() if one.find(name) is not None)
            raise BadInput(
                f"{table.where} has no column {name[:60]!r}, and {other} has: give all owners' tables the "
                "same columns, or a schema"
            )
        held[owner] = content_of(table, found)
    return declared(name, _merged(name, held, tables))


def _merged(name: str, held: Mapping[str, Content], tables: Mapping[str, Table]) -> Content:
    kinds = {one.kind for one in held.values()} - {NOTHING}
    empty = sum(one.empty for one in held.values())
    words = in_order([word for one in held.values() for word in one.words])
    if not kinds:
        return Content(NOTHING)
    if kinds <= {NUMBER, ZERO_ONE}:
        return Content(NUMBER if NUMBER in kinds else ZERO_ONE, empty=empty)
    if kinds <= {YES_NO, ZERO_ONE}:
        return Content(YES_NO, empty=empty)
    if kinds <= {YES_NO, WORDS, TEXT}:
        return Content(TEXT if TEXT in kinds else WORDS, words, empty)
    if len(kinds) == 1:
        return Content(kinds.pop(), empty=empty)
    of = {one.kind: owner for owner, one in held.items() if one.kind != NOTHING}
    (kind, owner), (other, second) = list(of.items())[:2]
    raise BadInput(
        f"column {name[:60]!r} holds {_CALLED[kind]} in {tables[owner].where} and {_CALLED[other]} in "
        f"{tables[second].where}: write the same at all owners, or give a schema"
    )


def _label(held: Mapping[str, tuple[Table, str]], alone: bool) -> dict[str, Any]:
    """The parts ``label`` and ``task``."""
    name = next(iter(held.values()))[1]
    found = {owner: label_content_of(table, column) for owner, (table, column) in held.items()}
    words = in_order([word for one in found.values() for word in one.words])
    for owner, one in found.items():
        odd = next((word for word in one.words if word.lower() in ABSENT), None)
        if odd is not None:
            table, column = held[owner]
            raise BadInput(
                f"{table.where}: {column} {odd!r} may be a class or no label: leave the cell empty, or name "
                "the class otherwise"
            )
    if any(one.number for one in found.values()) or (len(words) > 20 and _numeric(words)):
        if not _numeric(words):
            owner = next(owner for owner, one in found.items() if one.words and not _numeric(one.words))
            raise BadInput(
                f"{held[owner][0].where}: column {name!r} holds words, and numbers at another owner: write "
                "the same at all owners"
            )
        return {"task": Task.NUMBER, "label": {"columns": (name,)}}
    if not words and not alone:
        where = next(iter(held.values()))[0].where
        raise BadInput(f"{where}: column {name!r} holds no label: give some rows one")
    if len(words) == 1 and not alone:
        where = next(iter(held.values()))[0].where
        raise BadInput(
            f"{where}: every label in column {name!r} is {words[0][:60]!r} "
            + ("at all owners " if len(held) > 1 else "")
            + "and one class only cannot be learned: give rows of another class"
        )
    return {
        "task": Task.CLASSES,
        "label": {"columns": (name,), "classes": words, "positive": positive_of(words)},
    }


def _numeric(words: Sequence[str]) -> bool:
    try:
        return bool([float(word) for word in words] or True)
    except ValueError:
        return False


def _links(tables: Mapping[str, Table]) -> dict[str, Any]:
    ends: dict[str, str] = {}
    own: dict[str, set[str | None]] = {}
    for name, table in tables.items():
        found = {key: table.find(key) for key in (SOURCE, TARGET, WEIGHT)}
        for key in (SOURCE, TARGET):
            if found[key] is None:
                raise BadInput(
                    f"{table.where} has no column {key!r}: name the links' ends source and target, or give a "
                    "schema that names them"
                )
        ends = ends or {key: one or "" for key, one in found.items()}
        if bool(ends[WEIGHT]) != bool(found[WEIGHT]):
            raise BadInput(
                f"{table.where}: some owners' links have {WEIGHT!r} and some do not; give it to all"
            )
        own[name] = {*found.values(), table.find(SPLIT)}
    return {**ends, "columns": _columns(tables, own)}
