"""What everybody in a federation knows about the data: its shape, not its values."""

from __future__ import annotations

from dataclasses import dataclass

NO_EDGE_ATTR = -1


@dataclass(frozen=True)
class Schema:
    """Public facts that models are built from.

    Args:
        features: columns of the feature matrix.
        classes: number of classes, of nodes or of whole graphs.
        kind: of the data, as ``graph.kinds`` has it: ``node``, ``graph`` or ``ratings``.
        atoms: where a node's columns are categories, how many values each can take; empty where they are
            numbers.
        bonds: the same of a link's columns; empty where links have none.
        edge_weight: whether each edge has a weight.
        edge_attr: columns of ``edge_attr``; 0 where it is one number an edge, ``[edges]``, and -1 where edges
            have none.
    """

    features: int
    classes: int
    kind: str = "node"
    atoms: tuple[int, ...] = ()
    bonds: tuple[int, ...] = ()
    edge_weight: bool = False
    edge_attr: int = NO_EDGE_ATTR

    @property
    def edge_fields(self) -> tuple[str, ...]:
        """What edges of a graph of nodes carry besides their ends."""
        carried = {"edge_weight": self.edge_weight, "edge_attr": self.edge_attr != NO_EDGE_ATTR}
        return tuple(name for name, present in carried.items() if present)
