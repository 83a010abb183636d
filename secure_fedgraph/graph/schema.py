"""What everybody in a federation knows about the data: its shape, not its values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schema:
    """Public facts that models are built from.

    Args:
        features: columns of the feature matrix.
        classes: number of node classes.
    """

    features: int
    classes: int
