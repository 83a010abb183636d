"""One owner's tables as a graph, by a schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.schema import Task
from secure_fedgraph.graph.tables import cells
from secure_fedgraph.graph.tables.encoding import Fit, answers, check_there, encode, read_as
from secure_fedgraph.graph.tables.reading import read_table, readable
from secure_fedgraph.graph.tables.schema import CONSTANT, Links, TableSchema, feature_names
from secure_fedgraph.graph.tables.splitting import SPLIT, masks_in
from secure_fedgraph.graph.tables.table import Table, empty_cells
from secure_fedgraph.loading import postponed

# Links from a table: their ends are rows of the table of nodes.


@dataclass(frozen=True)
class LinkFields:
    """What a table of links becomes.

    Args:
        fields: ``edge_index``, ``edge_weight``, ``edge_attr``, ``edge_label_index``, ``edge_label`` and
            masks, as PyG calls them; those that there are.
        fits: a line a column.
        notes: on links that are left out.
    """

    fields: dict[str, torch.Tensor] = field(repr=False)
    fits: tuple[Fit, ...] = ()
    notes: tuple[str, ...] = ()


def encode_links(table: Table, links: Links, names: Any, task: Task) -> LinkFields:
    """Links by the schema; each once, and in both directions unless they are directed.

    Links to ids that are no row's, links without an end, and links that stood before with the same values
    are left out and counted.

    Args:
        table: of links.
        links: what the schema says of it.
        names: the ids of the table of nodes, as words, in order.
        task: what is learned.

    Raises:
        BadInput: for a column that is missing, for a link that stands twice with different values, and where
            no link at all has ids of nodes.
    """
    for column in (links.source, links.target, *((links.weight,) if links.weight else ())):
        check_there(table, column)
    notes: list[str] = []
    ends = [_ends(table, column, names) for column in (links.source, links.target)]
    empty = (ends[0] == _EMPTY) | (ends[1] == _EMPTY)
    strange = ((ends[0] < 0) | (ends[1] < 0)) & ~empty
    if (strange | empty).all():
        index = int(strange.argmax())
        raise BadInput(
            f"{table.at(index, links.source)} is {_word(table, links.source, index)!r}, and no link of the "
            "table has two ids of nodes: write ids as in the table of nodes, or leave the table out"
        )
    for count, what in ((int(strange.sum()), "to unknown ids"), (int(empty.sum()), "without an end")):
        if count:
            notes.append(
                f"{count:,} links {what} are left out" if count > 1 else f"1 link {what} is left out"
            )
    kept = ~(strange | empty)
    if not kept.all():
        table, ends = table.kept(kept), [one[kept] for one in ends]
    source, target = ends
    made = encode(table, links.columns, constant=False)
    fits = list(made.fits)
    carried = [made.x.astype(np.float64)]
    if links.weight:
        weight = read_as(table, links.weight, "number").values
        if np.isnan(weight).any():
            raise BadInput(f"{table.at(int(np.isnan(weight).argmax()), links.weight)} is empty: fill it in")
        carried.append(weight[:, None])
        fits.append(Fit(links.weight, "weight", len(weight)))
    label = links.label if task == Task.LINK_CLASSES else None
    masks: dict[str, np.ndarray] = {}
    if label is not None:
        classes, of_label = answers(table, label, Task.CLASSES)
        carried.append(classes[:, None].astype(np.float64))
        fits += of_label
        masks, split_notes = masks_in(table, {*label.columns, *(one.name for one in links.columns)})
        notes += split_notes
    first = _each_once(table, source, target, np.concatenate(carried, axis=1), links, len(names), notes)
    low, high = source[first], target[first]
    if not links.directed:
        low, high = np.minimum(low, high), np.maximum(low, high)
    back = first[low != high] if not links.directed else first[:0]
    turned = low != high if not links.directed else np.zeros(len(first), dtype=bool)
    order = np.concatenate([first, back])
    fields = {"edge_index": np.stack([np.append(low, high[turned]), np.append(high, low[turned])])}
    if links.weight:
        fields["edge_weight"] = weight[order].astype(np.float32)
    if made.x.shape[1]:
        fields["edge_attr"] = made.x[order]
    if label is not None:
        fields["edge_label_index"] = np.stack([source[first], target[first]])
        fields["edge_label"] = classes[first]
        fields |= {key: mask[first] for key, mask in masks.items()}
    tensors = {key: torch.from_numpy(np.ascontiguousarray(one)) for key, one in fields.items()}
    return LinkFields(tensors, tuple(fits), (*table.notes, *notes, *made.notes))


_EMPTY, _STRANGE = -2, -1


def _ends(table: Table, column: str, names: Any) -> np.ndarray:
    words = cells.words(table, column)
    found = pc.fill_null(pc.index_in(words, value_set=names), _STRANGE)
    places: np.ndarray = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return np.where(pc.is_null(words).to_numpy(zero_copy_only=False), _EMPTY, places)


def _word(table: Table, column: str, index: int) -> str:
    return str(table.columns[column][index].as_py())[:60]


def _each_once(
    table: Table,
    source: np.ndarray,
    target: np.ndarray,
    values: np.ndarray,
    links: Links,
    nodes: int,
    notes: list[str],
) -> np.ndarray:
    """The rows where a link stands for the first time, in order."""
    low, high = source, target
    if not links.directed:  # a link that stands in both directions is one
        low, high = np.minimum(source, target), np.maximum(source, target)
    _, first, which = np.unique(low * nodes + high, return_index=True, return_inverse=True)
    before = first[which]
    if len(first) < len(low):
        other = (values != values[before]).any(axis=1)
        if other.any():
            index = int(other.argmax())
            raise BadInput(
                f"{table.at(index, links.source)}: the link {_word(table, links.source, index)!r} to "
                f"{_word(table, links.target, index)!r} stands in row {int(table.rows[before[index]])} with "
                "other values: keep one of them, or their sum"
            )
        one_way = np.sort(source * nodes + target)
        if repeated := int((one_way[1:] == one_way[:-1]).sum()):
            said = "links that stood before are" if repeated > 1 else "link that stood before is"
            notes.append(f"{repeated:,} {said} left out")
    return np.sort(first)


pa, pc = postponed("pyarrow"), postponed("pyarrow.compute")


@dataclass(frozen=True)
class OwnTables:
    """What one owner has in tables, before anything is made of it.

    Args:
        nodes: one row a node.
        links: one row a link, where there are links.
        x: features that come from elsewhere, ``[nodes, features]``; the table then has none.
    """

    nodes: Table
    links: Table | None = None
    x: torch.Tensor | None = field(default=None, repr=False)


@dataclass(frozen=True)
class OwnGraph:
    """A graph of an owner's tables.

    Args:
        data: PyG's ``Data``.
        ids: of its rows, where they have some.
        fits: a line a column.
        notes: on what was repaired, clipped or left out.
    """

    data: Data = field(repr=False)
    ids: tuple[str, ...] = field(default=(), repr=False)
    fits: tuple[Fit, ...] = ()
    notes: tuple[str, ...] = ()


def read_tables(who: str, paths: Sequence[Path], x: torch.Tensor | None = None) -> OwnTables:
    """An owner's table of nodes and, where there is a second file, of links.

    Raises:
        BadInput: as :func:`~secure_fedgraph.graph.tables.reading.read_table`.
    """
    nodes, *links = (read_table(path, f"{who}{path.name}") for path in paths)
    return OwnTables(nodes, links[0] if links else None, x)


def graph_of(tables: OwnTables, schema: TableSchema, rows: str | None = None) -> OwnGraph:
    """The graph of an owner's tables.

    Guarantees:
        - a node becomes the same numbers whatever other nodes are beside it, and at every owner;
        - rows of an id that stood before with the same values, links to unknown ids and columns that the
          schema does not name are left out, and each is counted;
        - nothing is raised but :class:`~secure_fedgraph.core.errors.BadInput`.

    Args:
        tables: the owner's.
        schema: what was agreed on.
        rows: for owners of columns, the column that names the rows. Columns of the schema that this owner
            does not have are others' then.

    Returns:
        ``x``, ``edge_index`` and what else there is of ``y``, masks, ``edge_weight``, ``edge_attr``,
        ``edge_label_index``, ``edge_label``; ``feature_names`` and ``class_names``; ``task``, ``positive`` of
        two classes, ``low`` and ``high`` of a number; the ids, as a field that is called like their column,
        with ``rows``.

    Raises:
        BadInput: for tables that do not fit, with file, row and column.
    """
    with readable(tables.nodes.where):
        return _graph_of(tables, schema, rows)


def _graph_of(tables: OwnTables, schema: TableSchema, rows: str | None) -> OwnGraph:
    key = rows or schema.id
    labels = schema.label.columns if schema.label and schema.task != Task.LINK_CLASSES else ()
    nodes = tables.nodes.renamed([one for one in (key, *labels, *(c.name for c in schema.columns)) if one])
    if key and key not in nodes.columns:
        nodes.find(key)
        what = "--rows" if rows else "the schema"
        raise BadInput(
            f"{nodes.where} has no column {key[:60]!r}, which {what} names: give it, or another name"
        )
    columns = [one for one in schema.columns if rows is None or one.name in nodes.columns]
    nodes = _each_id_once(nodes, key) if key else nodes
    names = {key, *labels, *(one.name for one in columns)}
    x, fits, notes = _features(tables, nodes, schema, columns)
    data = Data(x=x, feature_names=list(schema.feature_names))
    if tables.x is not None:
        data = Data(x=x)
    elif rows is not None:
        data.feature_names = list(schema.model_copy(update={"columns": tuple(columns)}).feature_names)
    masks, split_notes = masks_in(nodes, names)
    if schema.label and labels and (rows is None or set(labels) <= set(nodes.columns)):
        y, of_label = answers(nodes, schema.label, schema.task)
        data.y = torch.from_numpy(y)
        fits = (*fits, *of_label)
    if schema.task != Task.LINK_CLASSES:
        for mask, which in masks.items():
            data[mask] = torch.from_numpy(which)
    left = [one for one in (*nodes.columns, *nodes.unread) if one not in names and one.casefold() != SPLIT]
    extra = [f"{_listed(left)} not in the schema and left out"] if left and tables.x is None else []
    ids = cells.words(nodes, key) if key else pc.cast(pa.array(np.arange(len(nodes))), pa.string())
    more: tuple[str, ...] = ()
    data.update(_no_links(schema))
    if tables.links is not None:
        fields, of_links, more = _links(tables.links, schema, ids)
        data.update(fields)
        fits = (*fits, *of_links)
    if rows is None:
        data.task = str(schema.task.value)
    if schema.class_names and ("y" in data or "edge_label" in data):
        data.class_names = list(schema.class_names)
        if len(schema.class_names) == 2 and schema.task != Task.LABELS and rows is None:
            data.positive = schema.positive
    if schema.task == Task.NUMBER and schema.label and schema.label.low is not None:
        data.low, data.high = schema.label.low, schema.label.high
    words = tuple(ids.to_pylist()) if key else ()
    if rows is not None:
        data[rows] = list(words)
    return OwnGraph(data, words, fits, (*nodes.notes, *split_notes, *notes, *extra, *more))


def _features(
    tables: OwnTables, nodes: Table, schema: TableSchema, columns: Sequence[Any]
) -> tuple[torch.Tensor, tuple[Fit, ...], tuple[str, ...]]:
    if tables.x is not None:
        if len(tables.x) != len(nodes):
            raise BadInput(
                f"{nodes.where} has {len(nodes)} rows, and features.npy has {len(tables.x)}: give one row a "
                "node, in the same order"
            )
        return tables.x, (), ()
    made = encode(nodes, columns)
    if made.x.shape[1] < 2:
        raise BadInput(
            f"{nodes.where} has no column of features: the schema names none but {CONSTANT!r} that is used"
        )
    return torch.from_numpy(made.x), made.fits, made.notes


def _no_links(schema: TableSchema) -> dict[str, torch.Tensor]:
    """What an owner without links has: the fields of the others', with nothing in them."""
    fields = {"edge_index": torch.zeros(2, 0, dtype=torch.long)}
    if schema.links is not None and schema.links.weight:
        fields["edge_weight"] = torch.zeros(0)
    if schema.links is not None and (wide := len(feature_names(schema.links.columns, constant=False))):
        fields["edge_attr"] = torch.zeros(0, wide)
    if schema.task == Task.LINK_CLASSES:
        fields["edge_label_index"] = torch.zeros(2, 0, dtype=torch.long)
        fields["edge_label"] = torch.zeros(0, dtype=torch.long)
    return fields


def _links(
    table: Table, schema: TableSchema, ids: Any
) -> tuple[dict[str, torch.Tensor], tuple[Fit, ...], tuple[str, ...]]:
    if schema.links is None:
        raise BadInput(f"{table.where}: the schema has no links: leave the table out, or agree on [links]")
    links = schema.links
    label = links.label.columns if links.label else ()
    named = (links.source, links.target, links.weight, *label, *(one.name for one in links.columns))
    table = table.renamed([name for name in named if name])
    made = encode_links(table, links, ids, schema.task)
    left = [one for one in (*table.columns, *table.unread) if one not in named and one.casefold() != SPLIT]
    extra = (f"of links, {_listed(left)} not in the schema and left out",) if left else ()
    return made.fields, made.fits, (*made.notes, *extra)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name[:40]) for name in names[:5]) + (", …" if len(names) > 5 else "")
    return f"column {shown} is" if len(names) == 1 else f"{len(names)} columns ({shown}) are"


def _each_id_once(nodes: Table, key: str) -> Table:
    """Rows whose id stood before with the same values, left out.

    Raises:
        BadInput: for a row without an id, and for two rows of one id with different values.
    """
    words = cells.words(nodes, key)
    if words.null_count:
        index = int(empty_cells(words).argmax())
        raise BadInput(f"{nodes.at(index, key)} is empty: give each row an id, or leave the row out")
    codes = words.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    _, first, which = np.unique(codes, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[which] != np.arange(len(codes)))
    if not len(again):
        return nodes
    before = first[which[again]]
    for name, column in nodes.columns.items():
        one, other = (column.take(pa.array(places)) for places in (again, before))
        gone = [empty_cells(part) for part in (one, other)]
        same = pc.fill_null(pc.equal(one, other), False).to_numpy(zero_copy_only=False)
        differs = (gone[0] != gone[1]) | ~(same | gone[0])
        if differs.any():
            at = int(differs.argmax())
            index, earlier = int(again[at]), int(before[at])
            raise BadInput(
                f"{nodes.at(index, key)} is {words[index].as_py()[:60]!r} as in row "
                f"{int(nodes.rows[earlier])}, and {name[:60]!r} differs: keep one of the two rows"
            )
    kept = np.ones(len(codes), dtype=bool)
    kept[again] = False
    said = (
        "rows with an id that stood before are" if len(again) > 1 else "row with an id that stood before is"
    )
    return replace(nodes.kept(kept), notes=(*nodes.notes, f"{len(again):,} {said} left out"))
