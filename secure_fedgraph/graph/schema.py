"""What everybody in a federation knows about the data: its shape, not its values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

NO_EDGE_ATTR = -1


class Task(StrEnum):
    """What is learned about a node, a whole graph or a link."""

    CLASSES = "classes"
    """One of several classes: ``y [n]`` whole numbers, -1 where there is none."""
    LABELS = "labels"
    """Several yes/no labels: ``y [n, labels]`` of 0 and 1, NaN where there is none."""
    NUMBER = "number"
    """A number: ``y [n]`` real numbers, NaN where there is none."""
    LINKS = "links"
    """Whether two nodes are linked: the links themselves are the answers."""
    LINK_CLASSES = "link-classes"
    """One of several classes of each link."""


OF_LINKS = (Task.LINKS, Task.LINK_CLASSES)
"""The tasks whose answers are of links."""


@dataclass(frozen=True)
class Schema:
    """Public facts that models are built from.

    Args:
        features: columns of the feature matrix.
        classes: how many outputs a model has: the classes of nodes, graphs or links (2 for whether there is
            one); the labels; 1 for a number.
        kind: of the data, as ``graph.kinds`` has it: ``node``, ``graph`` or ``ratings``.
        atoms: where a node's columns are categories, how many values each can take; empty where they are
            numbers.
        bonds: the same of a link's columns; empty where links have none.
        edge_weight: whether each edge has a weight.
        edge_attr: columns of ``edge_attr``; 0 where it is one number an edge, ``[edges]``, and -1 where edges
            have none.
        task: what is learned.
        positive: of two classes, the one that scores are of.
        low, high: public ends of a number that is learned; both 0 where none is.
        ends: where an item is a link, columns of a node; ``features`` are then of a link's row
            (:mod:`secure_fedgraph.graph.own.pairs`).
        own: columns of a link itself.
        directed: whether a link says something else than the same one backwards.
    """

    features: int
    classes: int
    kind: str = "node"
    atoms: tuple[int, ...] = ()
    bonds: tuple[int, ...] = ()
    edge_weight: bool = False
    edge_attr: int = NO_EDGE_ATTR
    task: str = Task.CLASSES
    positive: int = 1
    low: float = 0.0
    high: float = 0.0
    ends: int = 0
    own: int = 0
    directed: bool = False

    @property
    def edge_fields(self) -> tuple[str, ...]:
        """What edges of a graph of nodes carry besides their ends."""
        carried = {"edge_weight": self.edge_weight, "edge_attr": self.edge_attr != NO_EDGE_ATTR}
        return tuple(name for name, present in carried.items() if present)
