"""A schema made of tables: one owner's, with ranges, or what all owners declare where none was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import numpy as np

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.schema import OF_LINKS, Task
from secure_fedgraph.graph.tables import cells, content
from secure_fedgraph.graph.tables.encoding import PUBLIC_REACH, place_of, scale
from secure_fedgraph.graph.tables.owned import OwnTables
from secure_fedgraph.graph.tables.reading import readable
from secure_fedgraph.graph.tables.schema import (
    INDICATOR,
    SCHEMA,
    ZEROS,
    CategoryColumn,
    Column,
    DateColumn,
    IgnoredColumn,
    Label,
    NumberColumn,
    TableSchema,
    YesNoColumn,
    checked,
)
from secure_fedgraph.graph.tables.splitting import SPLIT
from secure_fedgraph.graph.tables.table import Table

LABEL, ID, SOURCE, TARGET, WEIGHT = "label", "id", "source", "target", "weight"
"""Columns that have a meaning without a schema, whatever their case."""
SKEW = 1.5
"""A column of numbers from 0 on that is skewed by more is spread by its logarithm."""


def draft(
    nodes: Table,
    links: Table | None = None,
    *,
    label: str | None = None,
    task: str | None = None,
    positive: str | None = None,
    ident: str | None = None,
) -> TableSchema:
    """A schema of one owner's tables, for its owner to read, to mend and to show to the others.

    Guarantees:
        - no end of a range is a value of the table, but for 0: ends lie on a coarse grid beyond all values;
        - columns of text and of identifiers are ignored, and none of their words is in the schema.

    Args:
        nodes: the table of nodes.
        links: the table of links.
        label: the column of labels, several of yes and no between commas; ``label`` by default.
        task: what is learned; by default what the labels' cells say.
        positive: of two classes, the one that scores are of.
        ident: the column that names rows; ``id`` by default.

    Raises:
        BadInput: where no column is called ``label`` and none is named, and for names that fit no column.
    """
    if task is not None and task not in list(Task):
        raise BadInput(f"task = {task[:40]!r}: give one of {', '.join(Task)}")
    of_links = task in OF_LINKS
    ident = ident or nodes.find(ID) or ""
    _check_column(nodes, ident, "the column of ids")
    names = _labels(nodes, label, not of_links)
    columns = _columns([nodes], [{ident, *names}], ranges=True)
    values: dict[str, Any] = {"schema": SCHEMA, "id": ident, "columns": columns}
    found = Task.LABELS if len(names) > 1 else task
    if names and not of_links:
        if found == Task.LABELS:
            values["label"] = {"columns": names}
        else:
            values["label"], found = _label([(nodes, names[0])], found, positive, ranges=True)
    if links is not None:
        values["links"] = _links([links], label if task == Task.LINK_CLASSES else None, positive, ranges=True)
    elif of_links:
        raise BadInput(f"{nodes.where}: task = {task} needs a table of links: give NODES.csv,EDGES.csv")
    return checked({**values, "task": found or Task.CLASSES}, nodes.where)


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
    tables = [one.nodes for one in given.values()]
    with readable(tables[0].where):
        ids = [rows or table.find(ID) or "" for table in tables]
        labels = [table.find(LABEL) for table in tables]
        if rows is None and None in labels:
            raise BadInput(
                f"{tables[labels.index(None)].where} has no column {LABEL!r}: give it, or name another in a "
                "schema ('secure-fedgraph silo describe --label NAME'); owners of columns need --rows"
            )
        own = [
            {ident, label or "", table.find(SPLIT) or ""}
            for table, ident, label in zip(tables, ids, labels, strict=True)
        ]
        have_x = any(one.x is not None for one in given.values())
        for one, taken in zip(given.values(), own, strict=True):
            extra = [column for column in one.nodes.columns if one.x is not None and column not in taken]
            if extra:
                raise BadInput(
                    f"{one.nodes.where} has column {extra[0][:60]!r}, and features are in features.npy: "
                    "leave out one of the two"
                )
        values: dict[str, Any] = {"schema": SCHEMA, "id": next(filter(None, ids), ""), "task": Task.LINKS}
        values["columns"] = [] if have_x else _columns(tables, own)
        held = [(table, label) for table, label in zip(tables, labels, strict=True) if label]
        if held:  # else another owner has it
            values["label"], values["task"] = _label(held, alone=alone)
        if links := [one.links for one in given.values() if one.links is not None]:
            values["links"] = _links(links)
        schema = checked(values, tables[0].where, learnable=not alone)
    line = "no schema was given: one was made of what the tables declare (names, kinds, lists of words)"
    if schema.incomplete:
        line += (
            f"; numbers without a public range become log1p of their size over log1p of {PUBLIC_REACH:,.0f}, "
            "with their sign: 'secure-fedgraph silo describe' drafts a schema with ranges"
        )
    return schema, "; ".join((line, *look_alike(schema)))


def _check_column(table: Table, name: str, what: str) -> None:
    if name and name not in table.columns:
        raise BadInput(
            f"{table.where} has no column {name[:60]!r} for {what}: give one of "
            f"{', '.join(table.columns)[:300]}"
        )


def _labels(table: Table, label: str | None, needed: bool) -> tuple[str, ...]:
    if label is None:
        found = table.find(LABEL)
        if found is None and needed:
            few = {name: len(column.drop_null().unique()) for name, column in table.columns.items()}
            like = [name for name, count in few.items() if 2 <= count <= content.FEW]
            raise BadInput(
                f"{table.where} has no column {LABEL!r}: name the column of labels with --label"
                + (f"; those with 2 to {content.FEW} different values: {_shown(like)}" if like else "")
            )
        return (found,) if found else ()
    if not needed:
        return ()
    names = (label,) if label in table.columns else tuple(part.strip() for part in label.split(","))
    found_names = tuple(table.find(name) or name for name in names)
    for name in found_names:
        _check_column(table, name, "labels")
    return found_names


def _label(
    held: Sequence[tuple[Table, str]],
    task: str | None = None,
    positive: str | None = None,
    *,
    ranges: bool = False,
    alone: bool = False,
) -> tuple[dict[str, Any], Task]:
    """A part ``label``, and the task that its cells say."""
    name, where = held[0][1], held[0][0].where
    found = [content.label_content_of(table, column) for table, column in held]
    words = content.in_order([word for one in found for word in one.words])
    number = any(one.number for one in found)
    if task == Task.NUMBER or (task is None and number):
        for (table, _), one in zip(held, found, strict=True):
            if one.words and not len(one.values):
                raise BadInput(
                    f"{table.where}: column {name!r} holds words, and numbers are learned: write numbers at "
                    "all owners"
                )
        low, high = rounded(np.concatenate([one.values for one in found])) if ranges else (None, None)
        return {"columns": (name,), "low": low, "high": high}, Task.NUMBER
    if number:
        raise BadInput(
            f"{where}: column {name!r} holds numbers that are not whole or more than {content.FEW} different "
            "ones: give --task number, or another --label"
        )
    for (table, column), one in zip(held, found, strict=True):
        odd = next((word for word in one.words if word.lower() in cells.ABSENT), None)
        if odd is not None:
            raise BadInput(
                f"{table.where}: {column} {odd!r} may be a class or no label: leave the cell empty, or name "
                "the class otherwise"
            )
    if len(words) < 2 and not alone:
        said = f"one class only, {words[0][:40]!r}" if words else "no label"
        raise BadInput(f"{where}: column {name!r} holds {said}: two or more classes can be learned")
    if positive is not None and positive not in words:
        raise BadInput(
            f"positive = {positive[:40]!r} is no class of {name!r}: give one of {', '.join(words)}"
        )
    return {
        "columns": (name,),
        "classes": words,
        "positive": positive or content.positive_of(words),
    }, Task.CLASSES


def _links(
    tables: Sequence[Table], label: str | None = None, positive: str | None = None, ranges: bool = False
) -> dict[str, Any]:
    own = []
    for table in tables:
        found = {key: table.find(key) or "" for key in (SOURCE, TARGET, WEIGHT)}
        for key in (SOURCE, TARGET):
            if not found[key]:
                raise BadInput(
                    f"{table.where} has no column {key!r}: name the links' ends source and target, or give a "
                    "schema that names them"
                )
        own.append(found)
    weighted = [bool(found[WEIGHT]) for found in own]
    if len(set(weighted)) > 1:
        raise BadInput(
            f"{tables[weighted.index(False)].where}: some owners' links have {WEIGHT!r} and some do not: "
            "give it to all"
        )
    made: dict[str, Any] = dict(own[0])
    taken = [{*found.values(), table.find(SPLIT) or ""} for table, found in zip(tables, own, strict=True)]
    if label is not None:
        name = tables[0].find(label) or label
        _check_column(tables[0], name, "labels of links")
        made["label"], _ = _label([(tables[0], name)], Task.CLASSES, positive, ranges=ranges)
        taken[0].add(name)
    made["columns"] = _columns(tables, taken, ranges)
    return made


def _columns(
    tables: Sequence[Table], taken: Sequence[set[str]], ranges: bool = False
) -> list[dict[str, Any]]:
    """Every column but those with a meaning of their own, in the first owner's order."""
    names = [
        [name for name in (*table.columns, *table.unread) if name not in own and name.casefold() != SPLIT]
        for table, own in zip(tables, taken, strict=True)
    ]
    for table, others in zip(tables, names, strict=True):
        known = {name.casefold() for name in names[0]}
        extra = [name for name in others if name.casefold() not in known]
        if extra:
            raise _lacking(tables[0], extra[0], table)
    return [_column(name, tables, ranges) for name in names[0]]


def _lacking(table: Table, name: str, other: Table) -> BadInput:
    return BadInput(
        f"{table.where} has no column {name[:60]!r}, and {other.where} has: give all owners' tables the same "
        "columns, or a schema"
    )


def _column(name: str, tables: Sequence[Table], ranges: bool) -> dict[str, Any]:
    """A column's part of a schema."""
    if any(name in table.unread for table in tables):
        return {"name": name, "kind": "ignored"}
    found = [table.find(name) for table in tables]
    if None in found:
        raise _lacking(tables[found.index(None)], name, tables[0])
    held = [content.content_of(table, str(one)) for table, one in zip(tables, found, strict=True)]
    one = _merged(name, held, tables)
    empty = INDICATOR if one.empty else ZEROS
    if one.kind in (content.NUMBER, content.DATE):
        made: dict[str, Any] = {"name": name, "kind": one.kind, "empty": empty}
    elif one.kind in (content.ZERO_ONE, content.YES_NO):
        made = {"name": name, "kind": "yes-no", "empty": empty}
    elif one.kind == content.WORDS:
        made = {"name": name, "kind": "category", "values": content.in_order(one.words), "empty": empty}
    else:
        return {"name": name, "kind": "ignored"}
    return made | _usual(tables[0], name, held[0], made) if ranges else made


def _merged(name: str, held: Sequence[content.Content], tables: Sequence[Table]) -> content.Content:
    """What a column holds at all owners together."""
    kinds = {one.kind for one in held} - {content.NOTHING}
    empty = sum(one.empty for one in held)
    words = tuple(word for one in held for word in one.words)
    if len(kinds) == 1:
        return content.Content(kinds.pop(), words, empty)
    for together, kind in (
        ({content.NUMBER, content.ZERO_ONE}, content.NUMBER),
        ({content.YES_NO, content.ZERO_ONE}, content.YES_NO),
        ({content.YES_NO, content.WORDS}, content.WORDS),
        ({content.YES_NO, content.WORDS, content.TEXT}, content.TEXT),
    ):
        if kinds and kinds <= together:
            return content.Content(kind, words, empty)
    if not kinds:
        return content.Content(content.NOTHING)
    (kind, where), (other, second) = list(
        {
            one.kind: table.where
            for one, table in zip(held, tables, strict=True)
            if one.kind != content.NOTHING
        }.items()
    )[:2]
    raise BadInput(
        f"column {name[:60]!r} holds {kind} in {where} and {other} in {second}: write the same at all "
        "owners, or give a schema"
    )


# --- ranges and shares, which are public --------------------------------------------------------------------


def _usual(table: Table, name: str, held: content.Content, made: Mapping[str, Any]) -> dict[str, Any]:
    """A column's range, and where its cells usually are."""
    given = held.values[np.isfinite(held.values)]
    if held.kind == content.NUMBER:
        more = _ranged(given)
        return more | _middle(given, NumberColumn.model_validate({**made, **more}))
    if held.kind == content.DATE:
        latest = date(1970, 1, 1) + timedelta(days=int(given.max()))
        day = date(min(latest.year + 1, 9999), 1, 1)
        ages = (day - date(1970, 1, 1)).days - given
        low, high = rounded(ages)
        more = {"day": day, "low": max(low, 0.0), "high": high}
        return more | _middle(ages, DateColumn.model_validate({**made, **more}))
    if held.kind == content.WORDS:
        places, _ = place_of(cells.words(table, name), made["values"])
        counts = np.bincount(places[places >= 0], minlength=len(made["values"]))
        return {"shares": [float(one) for one in np.round(counts / max(counts.sum(), 1), 1)]}
    return {"share": float(np.clip(round(float(given.mean()), 1), 0.05, 0.95))}


def _middle(values: np.ndarray, column: NumberColumn | DateColumn) -> dict[str, float]:
    """Where cells usually are on their scale, and how far from there: to a tenth of it."""
    scaled = scale(values, column)[0]
    spread = float(np.clip(round(float(scaled.std()), 1), 0.1, 1.0))
    return {"middle": round(float(scaled.mean()), 1) + 0.0, "spread": spread}


def _ranged(values: np.ndarray) -> dict[str, Any]:
    low, high = rounded(values)
    spread = values.std()
    skew = float((((values - values.mean()) / spread) ** 3).mean()) if spread > 0 else 0.0
    if values.min() >= 0 and skew > SKEW and len(np.unique(values)) > 10:
        positive = values[values > 0]
        low = 0.0 if len(positive) < len(values) else _step_below(float(values.min()))
        return {"scale": "log", "low": low, "high": _step_above(float(values.max()))}
    return {"low": low, "high": high}


def rounded(values: np.ndarray) -> tuple[float, float]:
    """A range around values whose ends are none of them: on a grid of about a tenth of the range.

    >>> rounded(np.array([19.0, 75.0])), rounded(np.array([0.0, 0.37]))
    ((15.0, 80.0), (0.0, 0.38))
    """
    given = values[np.isfinite(values)]
    least, most = float(given.min()), float(given.max())
    step = _nice((most - least) / 10 or max(abs(most), 1.0) / 10)
    if (given == np.round(given)).all():
        step = max(step, 1.0)
    low, high = (np.ceil(least / step) - 1) * step, (np.floor(most / step) + 1) * step
    if least >= 0:
        low = max(low, 0.0)
    return _tidy(low, step), _tidy(high, step)


def _nice(size: float) -> float:
    """1, 2 or 5 times a power of ten, at most ``size``."""
    power = 10.0 ** np.floor(np.log10(size))
    return float(max(one for one in (1, 2, 5) if one * power <= size * (1 + 1e-9)) * power)


def _step_below(value: float) -> float:
    step = _nice(value)
    return _tidy(step if step < value else _nice(value * 0.999), step)


def _step_above(value: float) -> float:
    power = 10.0 ** np.floor(np.log10(value))
    return _tidy(next(one * power for one in (1, 2, 5, 10, 20) if one * power > value), power)


def _tidy(value: float, step: float) -> float:
    """Without the digits that computing added."""
    return float(round(value, max(0, 3 - int(np.floor(np.log10(step))))))


# --- what its owner should look at -------------------------------------------------------------------------


def doubts(table: Table, columns: Sequence[Column]) -> tuple[str, ...]:
    """What a draft says of columns that were perhaps meant otherwise, a sentence each.

    Args:
        table: the owner's.
        columns: the draft's of this table.
    """
    words = [one for one in columns if isinstance(one, IgnoredColumn | CategoryColumn)]
    found = {one: cells.nearly(table, one.name) for one in words if one.name in table.columns}
    return tuple(
        f"column {one.name[:60]!r}: {said} and draft the schema again, or leave kind = {one.kind!r}"
        for one, said in found.items()
        if said
    )


def look_alike(schema: TableSchema) -> tuple[str, ...]:
    """Classes and words that differ in case or in spaces only, a sentence for each two.

    >>> label = Label(columns=("ok",), classes=("No", "Yes", "no"))
    >>> look_alike(TableSchema(label=label))
    ("ok: 'No' and 'no' differ in case or in spaces only, and are two: write them the same",)
    """
    links = schema.links
    lists = [(one.columns[0], one.classes) for one in (schema.label, links and links.label) if one]
    every = (*schema.columns, *(links.columns if links else ()))
    lists += [(one.name, one.values) for one in every if isinstance(one, CategoryColumn)]
    found = []
    for name, words in lists:
        first: dict[str, str] = {}
        for word in words:
            other = first.setdefault("".join(word.split()).casefold(), word)
            if other != word:
                found.append(
                    f"{name[:60]}: {other[:60]!r} and {word[:60]!r} differ in case or in spaces only, and "
                    "are two: write them the same"
                )
    return tuple(found)


def described(schema: TableSchema) -> tuple[str, ...]:
    """A line a column: what the schema says of it, and so what whoever has it learns.

    >>> age = NumberColumn(name="Age", low=15, high=80)
    >>> made = TableSchema(label=Label(columns=("ok",), classes=("no", "yes")), columns=(age,))
    >>> for line in described(made):
    ...     print(line)
    id: names the rows
    ok: label, task classes, classes 'no', 'yes'
    Age: number, 15 to 80
    """
    links, label = schema.links, schema.label
    lines = [f"{schema.id}: names the rows"] if schema.id else []
    if label is not None:
        lines.append(f"{', '.join(label.columns)}: label, task {schema.task.value}{_of_label(label)}")
    lines += [_line(one) for one in schema.columns]
    if links is not None:
        lines.append(
            f"{links.source}, {links.target}: ends of links, {'directed' if links.directed else 'both ways'}"
        )
        if links.weight:
            lines.append(f"{links.weight}: weight of links")
        if links.label is not None:
            lines.append(f"{', '.join(links.label.columns)}: label of links{_of_label(links.label)}")
        lines += [f"{_line(one)} (of links)" for one in links.columns]
    return tuple(lines)


def _of_label(label: Label) -> str:
    if label.low is not None:
        return f", {label.low:g} to {label.high:g}"
    classes = f", classes {_shown(label.classes)}" if label.classes else ""
    return classes + (f", positive {label.positive!r}" if label.positive else "")


def _line(column: Column) -> str:
    if isinstance(column, IgnoredColumn):
        return f"{column.name}: ignored (text, identifiers, or nothing)"
    said: list[str] = [column.kind]
    if isinstance(column, CategoryColumn):
        said = [f"category of {len(column.values)} words: {_shown(column.values)}"]
        said += ["and about how often each stands"] if column.shares else []
    elif isinstance(column, YesNoColumn):
        said = ["yes or no", f"about {column.share:.0%} are yes"]
    else:
        said += ["without a range"] if column.incomplete else []
        if column.low is not None:
            days = f" days before {column.day}" if isinstance(column, DateColumn) else ""
            said.append(f"{column.low:g} to {column.high:g}{days}")
        if isinstance(column, NumberColumn) and column.scale != "linear":
            said.append(f"scale {column.scale}")
        said += ["with the middle and spread of its cells"] if "middle" in column.model_fields_set else []
    empty = "; it has empty cells, which become a column of their own" if column.empty == INDICATOR else ""
    return f"{column.name}: {', '.join(said)}{empty}"


def _shown(words: Sequence[str]) -> str:
    return ", ".join(repr(word[:40]) for word in words[:12]) + (", …" if len(words) > 12 else "")
