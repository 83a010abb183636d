"""Links from a table: their ends are rows of the table of nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.schema import Task
from secure_fedgraph.graph.tables import cells
from secure_fedgraph.graph.tables.encoding import Fit, answers, check_there, encode, read_as
from secure_fedgraph.graph.tables.schema import Links
from secure_fedgraph.graph.tables.splitting import masks_in
from secure_fedgraph.graph.tables.table import Table
from secure_fedgraph.loading import postponed

pa, pc = postponed("pyarrow"), postponed("pyarrow.compute")


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
