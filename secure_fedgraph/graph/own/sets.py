"""A user's own set of graphs, which are classified whole: checked, with one kind of answer."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.answers import FLOATS, WHOLE, Target, answered, check_varied, is_plain, target_of
from secure_fedgraph.graph.conversions import plain, plain_masks
from secure_fedgraph.graph.data.own_graph import NAMES, DataWarning, checked_graph, named_columns, words_of
from secure_fedgraph.graph.data.splits import MASKS
from secure_fedgraph.graph.data.store import digest_of_data
from secure_fedgraph.graph.kinds import GraphSetDataset
from secure_fedgraph.graph.sample.packing import pack
from secure_fedgraph.graph.schema import OF_LINKS

NAME = "your graphs"
APART = (*MASKS, "edge_label", "edge_weight", "task")
"""Fields that are not looked at graph by graph, as a graph of nodes would have them."""
MOST_NOTES = 6
"""Of graphs that differ much from each other."""


def own_set(graphs: Sequence[Data], task: str | None = None, notes: Sequence[str] = ()) -> GraphSetDataset:
    """A user's graphs, checked and copied, as one data set.

    Args:
        graphs: each with ``edge_index [2, e]`` and ``y`` of the whole graph, and ``x [n, F]`` where nodes
            have features; optional is ``edge_attr``. Masks are not used, which is said: partitions of sets of
            graphs draw their own.
        task: what is learned, where the answers do not show it.
        notes: what was converted before.

    Raises:
        BadInput: for graphs that cannot be used, naming the graph, the field and the mend.

    Warns:
        DataWarning: names what was converted and what is not used.
    """
    checked, target, said = checked_set(graphs, NAME, task)
    unused = sorted({key for graph in graphs for key in MASKS if graph.get(key) is not None})
    if unused:
        said.append(f"{', '.join(unused)} are not used, as partitions of sets of graphs draw their own")
    check_varied([torch.cat([graph.y for graph in checked])], NAME)
    if said or notes:
        warnings.warn(f"{NAME}: {'; '.join([*notes, *said])}", DataWarning, stacklevel=4)
    features, named = named_columns(graphs[0], checked[0], target, NAME)
    checked = unmasked(checked)
    return GraphSetDataset(
        name=NAME,
        graphs=checked,
        source="given",
        digest=digest_of_data(pack(checked)),
        features=checked[0].x.shape[1],
        classes=target.outputs,
        feature_names=features,
        class_names=named,
        task=target.task,
        positive=target.positive_of(NAME),
        low=target.low,
        high=target.high,
    )


def checked_set(
    graphs: Sequence[Data], name: str, task: str | None = None, column: int | None = None
) -> tuple[list[Data], Target, list[str]]:
    """Copies of the fields of graphs that are used, what is learned of the graphs, and notes.

    Args:
        graphs: as :func:`own_set` takes them.
        name: what messages call them.
        task: what is learned, where the answers do not show it.
        column: which of several splits is used.

    Returns:
        The graphs that have an answer, with ``y [1]`` or, of several labels, ``[1, labels]``, and the masks
        that they have; the target; and notes.

    Raises:
        BadInput: naming the graph, the field and the mend.
    """
    if not graphs:
        raise BadInput(f"{name} has no graphs: give at least one")
    made, answers, notes = list[Data](), list[Tensor](), dict[str, int]()
    columns: list[tuple[object, ...]] = []
    of_nodes = True
    for number, graph in enumerate(graphs):
        place = f"{name}: graph {number}"
        if not isinstance(graph, Data):
            raise BadInput(f"{place} is of type {type(graph).__name__}; give PyG Data")
        given, said = plain(graph, place, whole=True)
        answers.append(_answer(given.get("y"), place))
        x = given.get("x")
        of_nodes &= is_plain(x) and x.dim() > 0 and 1 < len(x) == len(answers[-1]) and given.y.dim() == 1
        nodes = torch.zeros(x.shape[:1] if is_plain(x) else (0,), dtype=torch.long)
        said += plain_masks(given, 1, place, column)
        if given.get("edge_weight") is not None:
            said.append("edge_weight is not used")
        fields: dict[str, Any] = {**given.to_dict(), "y": nodes, **dict.fromkeys(APART)}
        one, _, more = checked_graph(Data(**fields), place, 0, also=(*NAMES, "positive", "low", "high"))
        for note in (*said, *more):
            notes[note] = notes.get(note, 0) + 1
        attributes = "none" if one.get("edge_attr") is None else list(one.edge_attr.shape[1:])
        columns.append((one.x.shape[1], attributes, *(words_of(graph, key, place) for key in NAMES)))
        for key, mine, first in zip(("x", "edge_attr", *NAMES), columns[-1], columns[0], strict=True):
            if mine != first:
                raise BadInput(
                    f"{place}: {key} has columns {str(mine)[:60]}, and in graph 0 {str(first)[:60]}: give "
                    "all graphs the same"
                )
        for key in MASKS:
            if given.get(key) is not None:
                one[key] = _mask(given[key], key, place)
        made.append(one)
    if of_nodes:
        raise BadInput(
            f"{name}: each y has a number a node, and y is the class of the whole graph: of several graphs "
            "of nodes each is an owner's, so leave clients out; several labels of a graph are [1, labels]"
        )
    shapes = {len(one) for one in answers}
    if len(shapes) > 1:
        odd = next(n for n, one in enumerate(answers) if len(one) != len(answers[0]))
        raise BadInput(
            f"{name}: graph {odd}: y is the class of the whole graph, and has {len(answers[odd])} numbers "
            f"where graph 0 has {len(answers[0])}: give one class or number, or as many labels of 0 and 1"
        )
    first = graphs[0]
    said_in = {key: first.get(key) for key in ("task", "positive", "low", "high")}
    stacked = torch.stack(answers)
    whole = Data(**said_in, y=stacked if stacked.shape[1] > 1 else stacked.flatten())
    y, target, said = target_of(whole, len(made), name, task, "graph")
    if target.task in OF_LINKS:
        raise BadInput(f"{name}: task = {str(target.task)!r} is for links of one graph: give one Data")
    known = answered(y)
    for one, answer in zip(made, y, strict=True):
        one.y = answer.reshape(1, -1) if y.dim() == 2 else answer.reshape(1)
    if not bool(known.all()):
        said.append(f"{int((~known).sum())} of {len(made)} graphs have no answer and are left out")
    kept = [one for one, has in zip(made, known.tolist(), strict=True) if has]
    return kept, target, [*_counted(notes, len(made)), *said]


def _answer(y: object, place: str) -> Tensor:
    """A graph's answer as ``[numbers]``."""
    if isinstance(y, bool | float) or (isinstance(y, int) and abs(y) < 2**31):
        y = torch.tensor(y)
    if (
        not is_plain(y)
        or y.dtype not in (*FLOATS, *WHOLE, torch.bool)
        or not y.numel()
        or (y.dim() > 1 and len(y) > 1)
    ):
        shape = f" and has shape {list(y.shape)}" if is_plain(y) else ""
        raise BadInput(
            f"{place}: y is the class of the whole graph{shape}; give one whole number from 0, one number, "
            "or labels of 0 and 1, [1, labels]"
        )
    return y.detach().cpu().reshape(-1)


def _mask(value: object, key: str, place: str) -> Tensor:
    if not is_plain(value) or value.dtype != torch.bool or value.numel() != 1:
        raise BadInput(f"{place} has no {key} of one boolean: give one, or leave masks out")
    return value.reshape(1)


def unmasked(graphs: Sequence[Data]) -> list[Data]:
    """The same graphs without masks, which some may have and some not."""
    return [Data(**{k: v for k, v in one.to_dict().items() if k not in MASKS}) for one in graphs]


def _counted(notes: dict[str, int], graphs: int) -> list[str]:
    """Each note once, with the number of graphs where it is not of all."""
    said = [note if count == graphs else f"in {count} graphs {note}" for note, count in notes.items()]
    more = len(said) - MOST_NOTES
    return [*said[:MOST_NOTES], *([f"{more} notes more of single graphs"] if more > 0 else [])]
