"""What owners declare about their data, and the schema that they agree on without showing any."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.answers import NOT_SAID
from secure_fedgraph.graph.schema import NO_EDGE_ATTR, Schema, Task

RESERVED = ("everybody", "outsider", "peers", "pool", "referee", "server")
"""Words that stand for parties of their own, and so for no owner."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Declaration:
    """What one owner says about its data, and all that the others learn for the agreement.

    Args:
        features: columns of ``x``.
        classes: the largest label and one; the number of ``class_names`` where it names them.
        feature_names: of the columns, in order; empty where it names none.
        class_names: of its classes; empty where labels are numbers.
        edge_weight: whether its edges have weights.
        edge_attr: columns of ``edge_attr``, as :class:`~secure_fedgraph.graph.schema.Schema` counts them.
        task: what is learned.
        positive: of two classes, the one that scores are of; -1 where it does not say.
        low, high: ends of a number that is learned; both 0 where none is.
        ranged: whether it gave these ends, rather than its own numbers.
    """

    features: int
    classes: int
    feature_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    edge_weight: bool = False
    edge_attr: int = NO_EDGE_ATTR
    task: str = str(Task.CLASSES)
    positive: int = NOT_SAID
    low: float = 0.0
    high: float = 0.0
    ranged: bool = False


def check_names(names: Mapping[str, object]) -> None:
    """Refuses names that cannot be an owner's: they become folders, and stand in messages and files.

    Raises:
        BadInput: naming the first that cannot.

    >>> check_names({"bank-a": None, "bank-b": None})
    """
    if not names:
        raise BadInput("data holds no owner: give one graph for each, such as {'bank-a': data}")
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BadInput(
                f"owner {str(name)[:70]!r}: give a name of up to 64 letters, digits, '-', '_' and '.', which "
                "begins with a letter or a digit"
            )
        if name.lower() in RESERVED:
            raise BadInput(f"owner {name!r}: this word means a party of its own; give another name")
    folded: dict[str, str] = {}
    for name in names:
        if (other := folded.setdefault(name.lower(), name)) != name:
            raise BadInput(f"owners {other!r} and {name!r} differ only in case: rename one")


def agreed(declared: Mapping[str, Declaration], kind: str, classes: int | None) -> Schema:
    """The schema of owners who hold records of the same columns.

    An owner may lack classes that others have. The number of classes is the largest that is declared, or
    ``classes``; of named classes it is the number of different names.

    Args:
        declared: each owner's declaration, by its name.
        kind: of the data, as ``graph.kinds`` has it.
        classes: how many there are, where owners know; it may be more than any owner has.

    Raises:
        BadInput: where two declarations do not fit each other, naming both owners and what differs.
    """
    first, one = next(iter(declared.items()))
    for name, other in declared.items():
        check_alike(name, other, first, one)
        if one.task == Task.LABELS and (other.classes, other.class_names) != (one.classes, one.class_names):
            raise BadInput(
                f"labels: {name} has {other.class_names or other.classes} and {first} "
                f"{one.class_names or one.classes}; give the same in the same order"
            )
    number = len(class_names(declared)) or max(each.classes for each in declared.values())
    if classes is not None and one.task not in (Task.CLASSES, Task.LINK_CLASSES) and classes != number:
        raise BadInput(f"classes = {classes}: task {one.task!r} has {number} outputs; leave classes out")
    if classes is not None:
        if number > classes:
            most = max(declared, key=lambda name: declared[name].classes)
            raise BadInput(f"classes = {classes}: {most} has labels for {number}; give {number} or more")
        number = classes
    low, high = _range(declared)
    return Schema(
        one.features,
        number,
        kind,
        edge_weight=one.edge_weight,
        edge_attr=one.edge_attr,
        task=one.task,
        positive=_positive(declared, number),
        low=low,
        high=high,
    )


def check_alike(name: str, one: Declaration, other_name: str, other: Declaration) -> None:
    """Refuses two declarations of other columns, another task, or classes with names and without.

    Raises:
        BadInput: naming what differs, and both.
    """
    named = {"feature_names"} if one.feature_names and other.feature_names else set[str]()
    for key in ("features", "task", "edge_weight", "edge_attr", *named):
        mine, theirs = (
            "missing" if (it := getattr(own, key)) == NO_EDGE_ATTR else it for own in (one, other)
        )
        if mine != theirs:
            if key == "feature_names":
                place, (mine, theirs) = next(
                    (n, pair) for n, pair in enumerate(zip(mine, theirs, strict=True)) if pair[0] != pair[1]
                )
                key = f"feature {place}"
            raise BadInput(
                f"{key} is {mine!r} at {name} and {theirs!r} at {other_name}: owners of rows need the same "
                "(owners of columns name their rows, with rows; what is learned can be said, with task)"
            )
    if bool(one.class_names) != bool(other.class_names):
        does, does_not = (name, other_name) if one.class_names else (other_name, name)
        raise BadInput(f"{does} names its classes and {does_not} numbers them: let both do the same")


def _range(declared: Mapping[str, Declaration]) -> tuple[float, float]:
    """The ends of a number that is learned: as owners give them, else as their numbers have them together."""
    given = {name: (one.low, one.high) for name, one in declared.items() if one.ranged}
    least, most = min(one.low for one in declared.values()), max(one.high for one in declared.values())
    if not given:
        return least, most
    first, ends = next(iter(given.items()))
    for name, other in given.items():
        if other != ends:
            raise BadInput(
                f"low, high: {name} has {other[0]:g} to {other[1]:g} and {first} {ends[0]:g} to {ends[1]:g}; "
                "give the same"
            )
    if (least, most) != ends:
        name = next(name for name, one in declared.items() if one.low < ends[0] or one.high > ends[1])
        raise BadInput(
            f"low, high: {first} gives {ends[0]:g} to {ends[1]:g}, and {name} has numbers outside: give low "
            "and high to both"
        )
    return least, most


def _positive(declared: Mapping[str, Declaration], classes: int) -> int:
    """The positive class of two, in the numbers of all owners' classes; the second where nobody says."""
    every = class_names(declared)
    said = {
        name: every.index(one.class_names[one.positive]) if every else one.positive
        for name, one in declared.items()
        if one.positive != NOT_SAID
    }
    if not said:
        return 1
    first, positive = next(iter(said.items()))
    for name, other in said.items():
        if other != positive:
            raise BadInput(f"positive: class {other} at {name} and {positive} at {first}; give the same")
    if classes != 2:
        raise BadInput(f"positive: {first} names one of two classes, and there are {classes}: leave it out")
    return positive


def class_names(declared: Mapping[str, Declaration]) -> tuple[str, ...]:
    """The names of all owners' classes: in their order where it is the same everywhere, else sorted.

    They are empty where labels are numbers.

    >>> one, other = (Declaration(1, 1, class_names=(name,)) for name in ("yes", "no"))
    >>> class_names({"a": one, "b": other})
    ('no', 'yes')
    """
    orders = {one.class_names for one in declared.values()}
    return orders.pop() if len(orders) == 1 else tuple(sorted({name for one in orders for name in one}))
