"""A schema drafted from one owner's tables, and what publishing it would give away."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from typing import Any

import numpy as np

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.schema import OF_LINKS, Task
from secure_fedgraph.graph.tables import cells
from secure_fedgraph.graph.tables.content import (
    CODES,
    DATE,
    FEW,
    NUMBER,
    WORDS,
    YES_NO,
    ZERO_ONE,
    Content,
    content_of,
    in_order,
    label_content_of,
    looks_like_a_label,
    positive_of,
)
from secure_fedgraph.graph.tables.encoding import place_of, scale
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
    wanted = _task(task)
    ident = ident or nodes.find(ID) or ""
    _check_column(nodes, ident, "the column of ids")
    of_nodes = wanted not in OF_LINKS
    labels = _labels(nodes, label, of_nodes)
    taken = {ident, *labels}
    columns = [_column(nodes, name) for name in nodes.columns if name not in taken and not _is_split(name)]
    columns += [{"kind": "ignored", "name": name} for name in nodes.unread]
    values: dict[str, Any] = {"schema": SCHEMA, "id": ident, "columns": columns}
    if labels:
        values["label"], found = _label(nodes, labels, wanted if of_nodes else None, positive)
        wanted = wanted or found
    if links is not None:
        values["links"] = _links(links, label if wanted == Task.LINK_CLASSES else None, positive)
    elif wanted in OF_LINKS:
        raise BadInput(f"{nodes.where}: task = {wanted} needs a table of links: give NODES.csv,EDGES.csv")
    return checked({**values, "task": wanted or Task.CLASSES}, nodes.where)


def _task(task: str | None) -> Task | None:
    if task is None:
        return None
    try:
        return Task(task)
    except ValueError:
        raise BadInput(f"task = {task[:40]!r}: give one of {', '.join(Task)}") from None


def _is_split(name: str) -> bool:
    return name.casefold() == SPLIT


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
            like = looks_like_a_label(table)
            raise BadInput(
                f"{table.where} has no column {LABEL!r}: name the column of labels with --label"
                + (f"; those with 2 to {FEW} different values: {_shown(tuple(like))}" if like else "")
            )
        return (found,) if found else ()
    if not needed:
        return ()
    names = (label,) if label in table.columns else tuple(part.strip() for part in label.split(","))
    found_names = [table.find(name) or name for name in names]
    for name in found_names:
        _check_column(table, name, "labels")
    return tuple(found_names)


def _label(
    table: Table, names: tuple[str, ...], task: Task | None, positive: str | None
) -> tuple[dict[str, Any], Task]:
    """The part ``[label]``, and the task that its cells say."""
    if len(names) > 1 or task == Task.LABELS:
        return {"columns": names}, Task.LABELS
    held = label_content_of(table, names[0])
    if task == Task.NUMBER or (task is None and held.number):
        values = held.values
        if not held.number:
            read = content_of(table, names[0])
            values = read.values
        if not np.isfinite(values).any():
            raise BadInput(f"{table.where}: column {names[0]!r} holds no numbers, and task is number")
        low, high = rounded(values)
        return {"columns": names, "low": low, "high": high}, Task.NUMBER
    if held.number:
        raise BadInput(
            f"{table.where}: column {names[0]!r} holds numbers that are not whole or more than 20 different "
            "ones, so they are no classes: give --task number, or another --label"
        )
    return _classes(table, names[0], held.words, positive), Task.CLASSES


def _classes(table: Table, name: str, words: tuple[str, ...], positive: str | None) -> dict[str, Any]:
    if len(words) < 2:
        said = f"one class only, {words[0][:40]!r}" if words else "no label"
        raise BadInput(
            f"{table.where}: column {name!r} holds {said}: two or more can be learned; name others"
        )
    if positive is not None and positive not in words:
        raise BadInput(
            f"positive = {positive[:40]!r} is no class of {name!r}: give one of {', '.join(words)}"
        )
    chosen = positive if positive is not None else positive_of(words)
    return {"columns": (name,), "classes": words, "positive": chosen}


def _links(table: Table, label: str | None, positive: str | None) -> dict[str, Any]:
    found = {key: table.find(key) for key in (SOURCE, TARGET, WEIGHT)}
    for key in (SOURCE, TARGET):
        if found[key] is None:
            raise BadInput(
                f"{table.where} has no column {key!r}: name the links' ends source and target, or write the "
                "schema's part [links] yourself"
            )
    taken = {*found.values()}
    made: dict[str, Any] = {SOURCE: found[SOURCE], TARGET: found[TARGET], WEIGHT: found[WEIGHT] or ""}
    if label is not None:
        name = table.find(label) or label
        _check_column(table, name, "labels of links")
        made["label"] = _classes(table, name, label_content_of(table, name).words, positive)
        taken.add(name)
    made["columns"] = [
        _column(table, name) for name in table.columns if name not in taken and not _is_split(name)
    ]
    return made


def _column(table: Table, name: str) -> dict[str, Any]:
    """A column's part of a schema, with its range."""
    held = content_of(table, name)
    made = declared(name, held)
    given = held.values[np.isfinite(held.values)]
    if held.kind == NUMBER:
        made |= _ranged(given)
        made |= _usual(given, NumberColumn.model_validate(made))
    elif held.kind == DATE:
        latest = date(1970, 1, 1) + timedelta(days=int(given.max()))
        day = date(min(latest.year + 1, 9999), 1, 1)
        low, high = rounded((day - date(1970, 1, 1)).days - given)
        made |= {"day": day, "low": max(low, 0.0), "high": high}
        made |= _usual((day - date(1970, 1, 1)).days - given, DateColumn.model_validate(made))
    if held.kind in (ZERO_ONE, YES_NO):
        made["share"] = float(np.clip(round(float(given.mean()), 1), 0.05, 0.95))
    if held.kind == WORDS:
        words = cells.words(table, name)
        places, _ = place_of(words, made["values"])
        counts = np.bincount(places[places >= 0], minlength=len(made["values"]))
        made["shares"] = [float(one) for one in np.round(counts / max(counts.sum(), 1), 1)]
    return made


def _usual(values: np.ndarray, column: NumberColumn | DateColumn) -> dict[str, float]:
    """Where cells usually are on their scale, and how far from there: to a tenth of it."""
    scaled = scale(values, column)[0]
    spread = float(np.clip(round(float(scaled.std()), 1), 0.1, 1.0))
    return {"middle": round(float(scaled.mean()), 1) + 0.0, "spread": spread}


def declared(name: str, held: Content) -> dict[str, Any]:
    """A column's part of a schema, without a range."""
    empty = INDICATOR if held.empty else ZEROS
    if held.kind in (NUMBER, DATE):
        return {"name": name, "kind": held.kind, "empty": empty}
    if held.kind in (ZERO_ONE, YES_NO):
        return {"name": name, "kind": "yes-no", "empty": empty}
    if held.kind == WORDS:
        return {"name": name, "kind": "category", "values": in_order(held.words), "empty": empty}
    return {"name": name, "kind": "ignored"}


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


def doubts(table: Table, columns: Iterable[Column]) -> tuple[str, ...]:
    """What a draft says of columns that were perhaps meant otherwise, a sentence each.

    Args:
        table: the owner's.
        columns: the draft's of this table.
    """
    found = []
    for one in columns:
        if not isinstance(one, IgnoredColumn | CategoryColumn) or one.name not in table.columns:
            continue
        if said := cells.nearly(table, one.name):
            found.append(
                f"column {one.name[:60]!r}: {said} and draft the schema again, or leave kind = {one.kind!r}"
            )
        elif isinstance(one, IgnoredColumn) and content_of(table, one.name).kind == CODES:
            found.append(
                f"column {one.name[:60]!r} has numbers of 15 digits or more, as accounts and "
                "cards have, and is ignored: write amounts in a larger unit"
            )
    return tuple(found)


def look_alike(schema: TableSchema) -> tuple[str, ...]:
    """Classes and words that differ in case or in spaces only, a sentence for each two.

    >>> label = Label(columns=("ok",), classes=("No", "Yes", "no"))
    >>> look_alike(TableSchema(label=label))
    ("ok: 'No' and 'no' differ in case or in spaces only, and are two: write them the same",)
    """
    links = schema.links
    labels = [one for one in (schema.label, links.label if links else None) if one is not None]
    lists = [(one.columns[0], one.classes) for one in labels]
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


# --- what it gives away -------------------------------------------------------------------------------------


def gives_away(schema: TableSchema) -> tuple[str, ...]:
    """What whoever reads the schema learns of the table that it was drafted from, a line each.

    >>> age = NumberColumn(name="Age", low=15, high=80)
    >>> made = TableSchema(label=Label(columns=("ok",), classes=("no", "yes")), columns=(age,))
    >>> for line in gives_away(made):
    ...     print(line)
    the names of 3 columns
    2 classes of ok: no, yes
    the range of Age (15 to 80)
    """
    links = schema.links
    every = (*schema.columns, *(links.columns if links else ()))
    names = (schema.id, *(schema.label.columns if schema.label else ()), *(one.name for one in every))
    ends = (links.source, links.target, links.weight) if links else ()
    lines = [f"the names of {len([name for name in (*names, *ends) if name])} columns"]
    for label in (schema.label, links.label if links else None):
        if label is not None and label.classes:
            lines.append(f"{len(label.classes)} classes of {label.columns[0]}: {_shown(label.classes)}")
        if label is not None and label.low is not None:
            lines.append(f"the range of {label.columns[0]} ({label.low:g} to {label.high:g})")
    return (*lines, *(line for one in every for line in _given_away(one)))


def _given_away(column: Column) -> Iterable[str]:
    if isinstance(column, CategoryColumn):
        shares = ", and about how often each stands" if column.shares else ""
        yield f"{len(column.values)} words of {column.name}: {_shown(column.values)}{shares}"
    if isinstance(column, NumberColumn) and column.quantiles:
        yield f"{len(column.quantiles)} quantiles of {column.name}"
    elif isinstance(column, NumberColumn | DateColumn) and column.low is not None:
        unit = f" days before {column.day}" if isinstance(column, DateColumn) else ""
        yield f"the range of {column.name} ({column.low:g} to {column.high:g}{unit}){_usually(column)}"
    if isinstance(column, YesNoColumn) and "share" in column.model_fields_set:  # a half says as much
        yield f"that about {column.share:.0%} of {column.name} are yes"
    if not isinstance(column, IgnoredColumn) and column.empty == INDICATOR:
        yield f"that {column.name} has empty cells"


def _usually(column: NumberColumn | DateColumn) -> str:
    drafted = {"middle", "spread"} & column.model_fields_set
    return ", and about where in it cells are" if drafted else ""


def _shown(words: tuple[str, ...]) -> str:
    return ", ".join(word[:40] for word in words[:12]) + (", …" if len(words) > 12 else "")


def described(schema: TableSchema) -> tuple[str, ...]:
    """A line a column: what the schema says of it."""
    links = schema.links
    label = schema.label
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
    return classes + (f", positive {label.positive}" if label.positive else "")


def _line(column: Column) -> str:
    said = {"category": "category", "ignored": "ignored", "yes-no": "yes or no"}.get(column.kind, column.kind)
    if isinstance(column, CategoryColumn):
        said += f" of {len(column.values)} words: {_shown(column.values)}"
    if isinstance(column, NumberColumn | DateColumn):
        said += " without a range" if column.incomplete else ""
        said += f", {column.low:g} to {column.high:g}" if column.low is not None else ""
    if isinstance(column, DateColumn):
        said += f" days before {column.day}"
    if isinstance(column, NumberColumn) and column.scale != "linear":
        said += f", scale {column.scale}"
    if isinstance(column, IgnoredColumn):
        said += " (text, identifiers, or nothing)"
    elif column.empty == INDICATOR:
        said += "; an empty cell has a column of its own"
    return f"{column.name}: {said}"
