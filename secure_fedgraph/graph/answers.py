"""Answers: what is known of nodes, graphs or links, and learned of the others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.schema import OF_LINKS, Task

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""Types of features and of answers; torch computes almost nothing on others, such as float8 and uint64."""
_KINDS = (*FLOATS, *WHOLE, torch.bool)
MASKS = ("train_mask", "val_mask", "test_mask")
"""Which nodes (or links, or graphs) are which, booleans ``[N]``."""
MOST_CLASSES = 100
"""Of answers that are floating: with more, whole numbers are numbers."""
NOT_SAID = -1
"""Of which class is the positive one, where an owner does not say."""
MANY = {"node": "nodes", "graph": "graphs", "link": "links"}


@dataclass(frozen=True)
class Target:
    """What is learned of some data, as their owner says or as their answers show.

    Args:
        task: one of :class:`~secure_fedgraph.graph.schema.Task`.
        outputs: as ``Schema.classes`` counts them: the largest class and one, the labels, 1 for a number.
        positive: of two classes, the one that scores are of; -1 where the owner does not say.
        low, high: ends of a number; both 0 where none is learned.
        ranged: whether the owner gave these ends, rather than its numbers.
    """

    task: str
    outputs: int
    positive: int = NOT_SAID
    low: float = 0.0
    high: float = 0.0
    ranged: bool = False

    @property
    def reads(self) -> tuple[str, ...]:
        """The fields of a graph that it is said in."""
        more = ("positive",) if self.positive != NOT_SAID else ()
        links = ("edge_label", "edge_label_index") if self.task in OF_LINKS else ()
        return ("task", *more, *links, *(("low", "high") if self.ranged else ()))

    def positive_of(self, who: str) -> int:
        """The positive class: that which is said, else the second.

        Raises:
            BadInput: where one is said, and there are not two classes.
        """
        if self.positive != NOT_SAID and self.outputs != 2:
            raise BadInput(
                f"{who}: positive = {self.positive} is of two classes, and there are {self.outputs}: "
                "leave it out"
            )
        return 1 if self.positive == NOT_SAID else self.positive


def is_plain(value: object) -> TypeGuard[Tensor]:
    """Whether it is a tensor whose numbers lie one after the other in memory, so that anything can be asked.

    >>> is_plain(torch.ones(2)), is_plain(torch.ones(2).to_sparse()), is_plain([1])
    (True, False, False)
    """
    return (
        isinstance(value, Tensor)
        and not (value.is_nested or value.is_meta or value.is_quantized)
        and value.layout is torch.strided
    )


def tensor_of(
    value: object, place: str, kinds: Sequence[torch.dtype], shape: Sequence[int | None] | None, give: str
) -> Tensor:
    """A plain tensor of one of these types and of this shape, where None is any length.

    Raises:
        BadInput: for anything else, with what to give.
    """
    if not isinstance(value, Tensor):
        has = f"is of type {type(value).__name__}" if value is not None else "is missing"
    elif not is_plain(value):
        has = f"is no plain tensor of numbers ({value.layout})"
    else:
        has = f"has type {value.dtype} and shape {tuple(value.shape)}"
        fits = shape is None or len(shape) == value.dim()
        fits = fits and all(
            want in (None, size) for want, size in zip(shape or (), value.shape, strict=False)
        )
        if fits and value.dtype in kinds:
            return value
    raise BadInput(f"{place} {has}; give {give}")


def answered(y: Tensor) -> Tensor:
    """Which have an answer, ``[n]``: a class from 0 on, or numbers that are all there.

    >>> answered(torch.tensor([0, -1])).tolist(), answered(torch.tensor([1.5, float("nan")])).tolist()
    ([True, False], [True, False])
    """
    if not y.is_floating_point():
        return y >= 0
    return torch.isfinite(y).reshape(len(y), -1).all(dim=1)


def answers_of(y: Tensor, chosen: Tensor) -> Tensor:
    """The same answers for the chosen, and none for the others.

    >>> answers_of(torch.tensor([2, 1]), torch.tensor([True, False])).tolist()
    [2, -1]
    """
    nothing = math.nan if y.is_floating_point() else -1
    return torch.where(chosen.reshape(-1, *[1] * (y.dim() - 1)), y, nothing)


def has_classes(graph: Data) -> bool:
    """Whether each node of a graph, or each graph of a union, is of one of several classes."""
    return not graph.y.is_floating_point() and graph.get("edge_label") is None


def counts_of_classes(owners: Iterable[Data], classes: int) -> dict[str, list[list[int]]]:
    """How many graphs of each class every owner has, for results; nothing where answers are no classes."""
    answers = [one.y for one in owners]
    if any(y.is_floating_point() for y in answers):
        return {}
    return {"classes": [y.bincount(minlength=classes).tolist() for y in answers]}


def check_classes(graph: Data, who: str, mend: str) -> None:
    """Checks that what is learned of a graph is a class a node.

    Raises:
        BadInput: for a number, several labels and classes of links.
    """
    if not has_classes(graph):
        what = "links" if graph.get("edge_label") is not None else "numbers or of several labels"
        raise BadInput(f"{who} is for one class a node, and the answers are of {what}: {mend}")


def task_of(given: Iterable[object]) -> Task | None:
    """What answers of several owners, or of several graphs, show together; None where they differ in kind.

    Whole numbers and booleans are classes. So are floating ones that are whole, from 0 without gaps; others
    are numbers. Answers of several columns are labels.

    >>> task_of([torch.tensor([0.0, 2.0]), torch.tensor([1.0])]), task_of([torch.tensor([0.5])])
    (<Task.CLASSES: 'classes'>, <Task.NUMBER: 'number'>)
    """
    plain = [one for one in given if is_plain(one) and one.dim()]
    columns = [one.flatten(1) if one.dim() > 1 else one.unsqueeze(1) for one in plain]
    if not columns or len({one.shape[1] for one in columns}) > 1:
        return None
    if columns[0].shape[1] > 1:
        return Task.LABELS
    if not any(one.is_floating_point() for one in columns):
        return Task.CLASSES
    return Task.CLASSES if _are_classes(torch.cat([one.double() for one in columns])) else Task.NUMBER


def target_of(data: Data, rows: int, name: str, task: str | None = None, of: str = "node") -> tuple[Any, ...]:
    """The answers of a graph in the form that is computed on, and what is learned of them.

    Args:
        data: with ``y``, or ``edge_label_index`` and ``edge_label``; it may say ``task``, ``positive``,
            ``low`` and ``high`` itself.
        rows: how many nodes (or graphs, whose answers are one below the other) there are.
        name: what messages call it.
        task: what is learned, where the caller says so.
        of: what an answer is of, in the singular.

    Returns:
        ``(y, target, notes)``: ``y`` as :class:`~secure_fedgraph.graph.schema.Task` has it, or None where
        nothing is answered; the :class:`Target`; and notes on what was converted.

    Raises:
        BadInput: for answers that do not fit the task, or that say none, with the mend.
    """
    said = task_said(data, name, task)
    if said in OF_LINKS or (said is None and data.get("edge_label") is not None):
        return _of_links(data, rows, name, said or Task.LINK_CLASSES)
    y, notes = data.get("y"), list[str]()
    if not isinstance(y, Tensor):
        raise BadInput(
            f"{name}: the graph has no tensor 'y'; give x, edge_index and y (in NetworkX an attribute y of "
            "nodes, a number), or task='links'."
        )
    given = tensor_of(y, f"{name}: y", _KINDS, None, "integer class labels, or numbers in float32")
    y = given.detach().to("cpu", copy=True)
    if y.dim() == 2 and y.shape[1] == 1:
        y = y.squeeze(1)
        notes.append(f"y [{MANY[of]}, 1] became [{MANY[of]}]")
    if y.dim() not in (1, 2) or len(y) != rows or (y.dim() == 2 and not y.shape[1]):
        raise BadInput(
            f"{name}: y has shape {tuple(y.shape)} for {rows} {MANY[of]}; give one label per {of}, [{rows}], "
            f"or several of 0 and 1, [{rows}, labels]."
        )
    found = said or task_of([y])
    if (y.dim() == 2) != (found == Task.LABELS):
        raise BadInput(
            f"{name}: task = {str(found)!r}, and y has shape {tuple(y.shape)}: give y [{MANY[of]}, labels] "
            f"of 0 and 1 for {str(Task.LABELS)!r}, and y [{MANY[of]}] for other tasks"
        )
    if found == Task.LABELS:
        target, said_more = Target(found, y.shape[1]), _check_labels(y, name, of)
        notes += said_more
        y = y.float()
    elif found == Task.NUMBER:
        if not y.is_floating_point():
            notes.append("y of whole numbers is taken as numbers, of which NaN says that there is none")
        y, target = _number(data, y.float(), name, of, said is not None)
        if not target.ranged:
            notes.append(
                f"y has numbers, and the range {target.low:g} to {target.high:g} of its own is public now: "
                "give low and high (in a table's schema under [label]) to publish none of it"
            )
    else:
        y, said_more = _classes(y, name, of, said is not None)
        notes += said_more
        target = Target(Task.CLASSES, int(y.max()) + 1, positive_said(data, name))
    return y, target, notes


def check_varied(given: Sequence[Tensor], who: str) -> None:
    """Checks that answers are not all the same, over all owners together: nothing could be learned of them.

    Args:
        given: each owner's answers.
        who: whose they are.

    Raises:
        BadInput: for one class, or one number.

    >>> check_varied([torch.tensor([1, -1]), torch.tensor([0])], "both")
    >>> check_varied([torch.tensor([1, -1])], "mine")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    secure_fedgraph.core.errors.BadInput: mine: every label is class 1, and there is nothing ...
    """
    known = [y[answered(y)] for y in given]
    rows = [one if one.dim() > 1 else one.unsqueeze(1) for one in known if len(one)]
    ends = [torch.stack([one.amin(0), one.amax(0)]) for one in rows]
    if not ends:
        raise BadInput(f"{who}: no node has a label; give y from 0 for some.")
    both = torch.stack(ends)
    low, high = both[:, 0].amin(0), both[:, 1].amax(0)
    if bool((low < high).any()):
        return
    if given[0].is_floating_point():
        raise BadInput(
            f"{who}: every answer is {float(low[0]):g}, and there is nothing to learn: give others too"
        )
    one = int(low[0])
    mend = "give nodes of another class too"
    if one == 1 and any(bool((y == -1).any()) for y in given):
        mend = "-1 says that there is no label, so where it is a class, give y = (y + 1) // 2"
    raise BadInput(f"{who}: every label is class {one}, and there is nothing else to tell it from: {mend}")


def task_said(data: Data, name: str, task: str | None) -> Task | None:
    """The task that a caller or the data themselves name.

    Raises:
        BadInput: for an unknown one, or two that differ.
    """
    own = data.get("task")
    for value in (own, task):
        if value is not None and not (isinstance(value, str) and value in list(Task)):
            raise BadInput(f"{name}: task = {str(value)[:60]!r}: give one of {', '.join(Task)}")
    if own is not None and task is not None and own != task:
        raise BadInput(
            f"{name}: task = {str(own)!r}, and {str(task)!r} is asked for: leave one of the two out"
        )
    return None if (said := task or own) is None else Task(said)


def positive_said(data: Data, name: str) -> int:
    """Which of two classes is the positive one, as the data say; :data:`NOT_SAID` where they do not."""
    value = data.get("positive")
    if value is None:
        return NOT_SAID
    if isinstance(value, bool) or not isinstance(value, int) or value not in (0, 1):
        raise BadInput(f"{name}: positive = {str(value)[:40]!r}: give 0 or 1, of two classes")
    return value


def _are_classes(y: Tensor) -> bool:
    """Whether floating answers are numbers of classes, -1 and NaN aside: 0 to some number without gaps."""
    known = y[~y.isnan() & (y != -1)].unique()
    return 0 < len(known) <= MOST_CLASSES and bool((known == torch.arange(len(known))).all())


def _classes(y: Tensor, name: str, of: str, said: bool) -> tuple[Tensor, list[str]]:
    """Numbers of classes, -1 where there is none; and notes."""
    notes, made = [], y.long() if not y.is_floating_point() else y.nan_to_num(nan=-1).long()
    if y.is_floating_point():
        odd = ~y.isnan() & ((y != y.round()) | (y.abs() > 2**31))
        if bool(odd.any()):
            row = int(odd.nonzero()[0])
            raise BadInput(
                f"{name}: {of} {row} has label {float(y[row]):g}, which is no whole number: number classes "
                f"from 0, or give task={str(Task.NUMBER)!r}"
            )
        other = "" if said else f" (task={str(Task.NUMBER)!r} takes them as numbers)"
        notes = [f"y of {y.dtype} holds whole numbers and became classes{other}"]
    elif y.dtype == torch.bool:
        notes = ["y of booleans became classes 0 and 1"]
    if int(made.min()) < -1:
        row = int((made < -1).nonzero()[0])
        raise BadInput(
            f"{name}: {of} {row} has label {int(made[row])}; labels count from 0, and -1 says that there is "
            "none."
        )
    if int(made.max()) < 0:
        raise BadInput(f"{name}: no {of} has a label; give y from 0 for some.")
    return made, notes


def _check_labels(y: Tensor, name: str, of: str) -> list[str]:
    """Checks several labels; returns notes."""
    values = y.float()
    known = ~values.isnan()
    odd = known & (values != 0) & (values != 1)
    if bool(odd.any()):
        row, column = odd.nonzero()[0].tolist()
        raise BadInput(
            f"{name}: y has shape {tuple(y.shape)} and {float(values[row, column]):g} at {of} {row}, column "
            f"{column}: several labels are 0 or 1, and NaN where there is none; for one class a {of} give y "
            f"[{MANY[of]}], such as y.argmax(dim=1), and for a number one column"
        )
    some = int((known.any(1) & ~known.all(1)).sum())
    if not bool(known.all(1).any()):
        raise BadInput(f"{name}: no {of} has all of its labels; give 0 and 1 in y for some.")
    notes = [f"{some} {MANY[of]} have some of their labels only, and are not learned from"] if some else []
    if bool((values[known.all(1)].sum(1) == 1).all()):
        notes.append(f"every {of} has one label of several: where they are classes, give y.argmax(dim=1)")
    return notes


def _number(data: Data, y: Tensor, name: str, of: str, said: bool) -> tuple[Tensor, Target]:
    known = ~y.isnan()
    if bool(y.isinf().any()):
        row = int(y.isinf().nonzero()[0])
        raise BadInput(
            f"{name}: y is {float(y[row])} at {of} {row}: give a number, or NaN where there is none"
        )
    if not bool(known.any()):
        raise BadInput(f"{name}: no {of} has a label; give numbers in y for some.")
    least, most = float(y[known].min()), float(y[known].max())
    if least == -1 and set(y[known].tolist()) == {-1.0, 1.0} and not said:
        raise BadInput(
            f"{name}: y is 1 or -1, and -1 says that there is no label, which leaves one class: give "
            f"y = (y + 1) // 2, or task={str(Task.NUMBER)!r}"
        )
    given = data.get("low"), data.get("high")
    if all(end is None for end in given):
        return y, Target(Task.NUMBER, 1, low=outwards(least, down=True), high=outwards(most, down=False))
    if (
        not all(isinstance(end, int | float) and math.isfinite(end) for end in given)
        or not given[0] < given[1]
    ):
        raise BadInput(
            f"{name}: low = {str(given[0])[:40]}, high = {str(given[1])[:40]}: give two numbers, low first"
        )
    low, high = (float(end) for end in given)
    out = known & ((y < low) | (y > high))
    if bool(out.any()):
        row = int(out.nonzero()[0])
        raise BadInput(
            f"{name}: y is {float(y[row]):g} at {of} {row}, outside of low = {low:g} to high = {high:g}: "
            "widen the range, or clip y"
        )
    return y, Target(Task.NUMBER, 1, low=low, high=high, ranged=True)


def outwards(number: float, down: bool) -> float:
    """A number with two digits that is not above it, or not below.

    >>> outwards(1234, down=True), outwards(1234, down=False), outwards(-0.0567, down=True)
    (1200.0, 1300.0, -0.057)
    """
    if not number:
        return 0.0
    digits = 1 - math.floor(math.log10(abs(number)))
    scaled = number * 10.0**digits
    near = round(scaled)  # of what 0.1 + 0.2 is off, nothing is rounded away
    whole = near if math.isclose(near, scaled, rel_tol=1e-6) else (math.floor if down else math.ceil)(scaled)
    return round(whole / 10.0**digits, max(digits, 0)) if digits > 0 else float(whole * 10**-digits)


def _of_links(data: Data, nodes: int, name: str, task: Task) -> tuple[Any, ...]:
    """Answers of links: the answered links' ends are put into ``edge_label_index``."""
    notes = ["y is not used, as links are learned"] if data.get("y") is not None else []
    label, ends = data.get("edge_label"), data.get("edge_label_index")
    if label is None and task == Task.LINKS:
        return None, Target(task, 2), notes
    if not isinstance(label, Tensor):
        raise BadInput(f"{name}: task = {str(task)!r} needs edge_label, a class for each link: give it")
    label = tensor_of(label, f"{name}: edge_label", _KINDS, None, "integer class labels").detach().cpu()
    if label.dim() == 2 and label.shape[1] == 1:
        label = label.squeeze(1)
    if ends is None and label.shape == data.edge_index.shape[1:]:
        ends = data.edge_index
        notes.append("edge_label_index is missing, so edge_label is of edge_index, in its order")
    fits = is_plain(ends) and ends.dtype in (torch.int32, torch.int64) and ends.dim() == 2 and len(ends) == 2
    if not fits or label.shape != ends.shape[1:] or not len(label):
        shape = tuple(ends.shape) if is_plain(ends) else type(ends).__name__
        raise BadInput(
            f"{name}: edge_label has shape {tuple(label.shape)} and edge_label_index {shape}: give [links] "
            "and [2, links]"
        )
    if int(ends.min()) < 0 or int(ends.max()) >= nodes:
        raise BadInput(f"{name}: edge_label_index names node {int(ends.max())}, and nodes run to {nodes - 1}")
    label, _ = _classes(label, f"{name}: edge_label", "link", True)
    least, most = int(label.min()), int(label.max())
    if (task == Task.LINKS and most > 1) or most >= int((label >= 0).sum()):
        raise BadInput(
            f"{name}: edge_label goes from {least} to {most}: number classes from 0 without gaps, -1 says "
            "that there is none" + (", and a link is 1 or 0" if task == Task.LINKS else "")
        )
    data.edge_label_index = ends.detach().to("cpu", torch.long, copy=True)
    outputs = 2 if task == Task.LINKS else most + 1
    return label, Target(task, outputs, positive_said(data, name)), notes
