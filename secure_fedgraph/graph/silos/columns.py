"""Owners of columns: each has some features of the same rows, and perhaps links and labels of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.answers import check_varied, is_plain, target_of, tensor_of
from secure_fedgraph.graph.conversions import plain, plain_masks
from secure_fedgraph.graph.data.checks import UNLABELLED, check_inputs
from secure_fedgraph.graph.data.own_graph import NAMES, DataWarning, words_of
from secure_fedgraph.graph.data.splits import MASKS
from secure_fedgraph.graph.kinds import GraphDataset
from secure_fedgraph.graph.partition.vertical import class_split, examined
from secure_fedgraph.graph.sample.links import undirected_links
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.graph.silos.result import Silos

VALIDATION, TEST = 500, 1000
"""The largest numbers of validation and test rows that are drawn, as GLASU's paper draws them."""


@dataclass(frozen=True)
class Table:
    """One owner's columns.

    Args:
        names: of its rows, each once.
        place: a row's name -> its number in ``data``.
        data: ``x [n, F]``; ``edge_index`` between its own rows, ``y [n]`` and masks where it has them.
        notes: on fields that were converted.
    """

    names: tuple[str, ...]
    place: Mapping[str, int]
    data: Data
    notes: tuple[str, ...] = ()


def owners_of_columns(given: Mapping[str, Data], rows: str, seed: int, classes: int | None) -> Silos:
    """Owners of columns, on the rows that all of them have.

    Rows that not every owner has are left out, and so are links to them; a warning counts them. The order of
    the rows follows from ``seed`` and says nothing about any owner's own. Every node is held by all owners.

    Guarantees:
        - labels of validation and test rows leave their owner only for the referee, who stands outside the
          federation and scores: no client keeps one;
        - owners who label the same row agree on its class.

    Args:
        given: each owner's table, by name, sorted: ``x``, the field of row names, and ``y`` at one or all.
            The masks of an owner with labels are kept to; the others' masks are not read.
        rows: the field that names an owner's rows: a list of words or whole numbers, or a tensor of whole
            numbers, each once.
        seed: of the order of the rows, and of the split where no owner of labels gives masks.
        classes: how many there are, where that is known.

    Raises:
        BadInput: for a table that cannot be used, for fewer than two owners, for owners without a common row,
            and for labels that are missing, contradict each other, or belong to some owners and not to one or
            all.
    """
    if len(given) < 2:
        raise BadInput(f"rows = {rows!r}: owners of columns are at least two, and data holds one")
    tables = {name: table_of(name, data, rows) for name, data in given.items()}
    common = set.intersection(*(set(table.names) for table in tables.values()))
    if not common:
        raise BadInput(f"no value of {rows!r} is at every owner: check that all name their rows the same way")
    order = np.random.default_rng(sub_seed(seed, "rows")).permutation(len(common))
    ordered = np.array(sorted(common), dtype=object)[order]
    places = {name: torch.tensor([table.place[row] for row in ordered]) for name, table in tables.items()}
    _warn(tables, len(common), rows)
    holders = [name for name, table in tables.items() if table.data.get("y") is not None]
    if not holders or len(holders) not in (1, len(tables)):
        raise BadInput(
            f"y is at {' and '.join(holders) or 'no owner'}: labels are one owner's or everybody's; "
            + ("drop the others'" if holders else "give one owner's table a y")
        )
    if len(holders) == 1 and holders[0] != next(iter(tables)):
        raise BadInput(
            f"{holders[0]} has the labels and {next(iter(tables))} comes first by name: the owner with the "
            "labels has to, so rename one of them"
        )
    labels, named = _one_numbering({name: tables[name].data for name in holders})
    y = _labels({name: labels[name][places[name]] for name in holders}, ordered)
    found = max(int(y.max()) + 1, named)
    _check_classes(y, found, classes, holders)
    check_varied([y], " and ".join(holders))
    masks = masks_of(tables, holders, places, y, seed)
    known = torch.where(masks[0], y, UNLABELLED)
    owners = {
        name: part_of(
            table, places[name], known if name in holders else torch.full_like(y, UNLABELLED), masks[0]
        )
        for name, table in tables.items()
    }
    labelled = "all" if len(holders) == len(tables) else "one"
    test_set, facts = examined(tuple(owners.values()), y, masks, labelled)
    return Silos(Schema(sum(facts["columns"]), classes or found, GraphDataset.kind), owners, test_set, facts)


def table_of(name: str, data: Data, rows: str) -> Table:
    given = data.get(rows)
    if given is None:
        raise BadInput(f"{name} has no field {rows!r}: give the names of its rows, one a row")
    if isinstance(given, torch.Tensor):
        listed = given.layout is torch.strided and not given.is_meta and given.dim() == 1
        if not listed or given.is_floating_point() or given.is_complex():
            raise BadInput(f"{name}: {rows} is no list of whole numbers or words")
        given = given.tolist()
    names = list(given) if isinstance(given, list | tuple | np.ndarray) and np.ndim(given) == 1 else [None]
    if not all(isinstance(one, str | int | np.integer) and not isinstance(one, bool) for one in names):
        raise BadInput(f"{name}: {rows} is no list of whole numbers or words")
    words = tuple(str(one) for one in names)
    place = {word: number for number, word in enumerate(words)}
    if len(place) < len(words):
        twice = next(word for number, word in enumerate(words) if place[word] != number)
        raise BadInput(f"{name}: {rows} has {twice[:60]!r} more than once; give each row once")
    nodes = len(words)
    data, notes = plain(data, name)
    if data.get("y") is not None:
        data.y, _, said = target_of(data, nodes, name, Task.CLASSES)
        notes += [*said, *plain_masks(data, nodes, name)]
    links = data.get("edge_index")
    filled = {
        "x": data.get("x"),
        "edge_index": torch.zeros(2, 0, dtype=torch.long) if links is None else links,
    }
    if is_plain(filled["x"]) and filled["x"].dim() == 2 and filled["x"].shape[0] != nodes:
        raise BadInput(f"{name}: {rows} names {nodes} rows, and x has {filled['x'].shape[0]}")
    check_inputs(Data(**filled), name)
    return Table(words, place, data, tuple(notes))


def _one_numbering(given: Mapping[str, Data]) -> tuple[dict[str, torch.Tensor], int]:
    """Every owner's labels by the names of all owners' classes, and how many names there are."""
    names = {name: words_of(data, "class_names", name) for name, data in given.items()}
    every = sorted({word for words in names.values() for word in words})
    labels = {}
    for name, data in given.items():
        labels[name] = y = data.y.long()
        if every and int(y.max()) >= len(names[name]):
            raise BadInput(
                f"{name}: class_names has {len(names[name])} names, and y goes up to {int(y.max())}: name "
                "all classes at every owner of labels, or at none"
            )
        if every:
            place = torch.tensor([every.index(word) for word in names[name]])
            labels[name] = torch.where(y >= 0, place[y.clamp(min=0)], UNLABELLED)
    return labels, len(every)


def _check_classes(y: torch.Tensor, found: int, classes: int | None, holders: list[str]) -> None:
    who, labelled = " and ".join(holders), int((y >= 0).sum())
    if not labelled:
        raise BadInput(f"{who}: no row that every owner has has a label; give some")
    if classes is not None and not found <= classes <= labelled:
        raise BadInput(
            f"classes = {classes}: {who} have labels for {found}, of {labelled} rows; give {found} to "
            f"{labelled}"
        )
    if found > labelled:  # of labels that are not numbers of classes, such as ids
        raise BadInput(
            f"{who}: label {found - 1} makes {found} classes for {labelled} labelled rows; relabel them from "
            "0 without gaps"
        )


def _labels(given: Mapping[str, torch.Tensor], rows: np.ndarray) -> torch.Tensor:
    """What all owners of labels say together; -1 where none does."""
    together = torch.full((len(rows),), UNLABELLED)
    for name, y in given.items():
        both = (together >= 0) & (y >= 0) & (together != y)
        if bool(both.any()):
            row = int(both.nonzero()[0])
            raise BadInput(
                f"{name} and another owner label {int(both.sum())} rows differently, the first is "
                f"{str(rows[row])[:60]!r}: give them the same class, or -1 at one of them"
            )
        together = torch.where(together >= 0, together, y)
    return together


def masks_of(
    tables: Mapping[str, Table],
    holders: list[str],
    places: Mapping[str, torch.Tensor],
    y: torch.Tensor,
    seed: int,
) -> tuple[torch.Tensor, ...]:
    given = [name for name in holders if any(tables[name].data.get(key) is not None for key in MASKS)]
    if not given:
        return class_split(y, sub_seed(seed, "split"), 0, VALIDATION, TEST)
    first = given[0]
    every = {
        name: [_mask(name, tables[name], key)[places[name]] & (y >= 0) for key in MASKS] for name in given
    }
    masks = every[first]
    if bool((torch.stack(masks).sum(0) > 1).any()):
        raise BadInput(f"{first}: some rows are in two masks; put each into one")
    for name in given[1:]:
        for key, mask, other in zip(MASKS, masks, every[name], strict=True):
            if not torch.equal(other, mask):
                raise BadInput(
                    f"{key} at {name} and at {first} differ: give the same split, or one owner's alone"
                )
    for key, mask in zip(MASKS, masks, strict=True):
        if not bool(mask.any()) and key != "val_mask":
            raise BadInput(f"{first}: {key} names no common row with a label; give one that does")
    return tuple(masks)


def _mask(name: str, table: Table, key: str) -> torch.Tensor:
    give = "a boolean a row in all three masks, or none of them"
    return tensor_of(table.data.get(key), f"{name}: {key}", (torch.bool,), (len(table.names),), give)


def part_of(table: Table, place: torch.Tensor, y: torch.Tensor, train: torch.Tensor) -> Data:
    number = torch.full((len(table.names),), -1, dtype=torch.long)
    number[place] = torch.arange(len(place))
    links = table.data.get("edge_index")
    both = torch.zeros(2, 0, dtype=torch.long)
    if links is not None and links.numel():
        kept = number[links.long()]
        once = undirected_links(kept[:, (kept >= 0).all(dim=0)])
        both = torch.cat([once, once.flip(0)], dim=1)
    nothing = torch.zeros_like(train)
    masks = dict(zip(MASKS, (train, nothing, nothing.clone()), strict=True))
    return Data(x=table.data.x.detach().float()[place], y=y, edge_index=both, **masks)


def _warn(tables: Mapping[str, Table], common: int, rows: str) -> None:
    lost = {name: len(table.names) - common for name, table in tables.items()}
    notes = [f"{number} of {name}" for name, number in lost.items() if number]
    if notes:
        notes = [f"rows that not every owner has by {rows!r} are left out: {', '.join(notes)}"]
    for name, table in tables.items():
        notes += [f"{name}: {one}" for one in table.notes]
        used = {rows, "x", "y", "edge_index", "num_nodes", "task", *NAMES}
        if table.data.get("y") is not None:
            used |= {*MASKS}
        unused = sorted(key for key in set(table.data.keys()) - used if table.data[key] is not None)
        notes += (
            [f"{name}: {', '.join(unused)} {'is' if len(unused) == 1 else 'are'} not used"] if unused else []
        )
    if notes:
        warnings.warn("; ".join(notes), DataWarning, stacklevel=5)
