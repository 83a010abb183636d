"""What everybody in a federation knows about the data: its shape, not its values."""

from __future__ import annotations

from dataclasses import dataclass


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
    """

    features: int
    classes: int
    kind: str = "node"
    atoms: tuple[int, ...] = ()
    bonds: tuple[int, ...] = ()
