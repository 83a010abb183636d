"""One owner's columns in the common order of rows, and what the owner of labels gives the referee."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.checks import UNLABELLED
from secure_fedgraph.graph.silos.columns import Table, masks_of, part_of, table_of


@dataclass(frozen=True)
class AlignedTable:
    """An owner's table, and where the common rows stand in it.

    Args:
        name: the owner's.
        table: its own columns, rows in its own order.
        place: ``[N]``, the number in its own table of each common row.
        labels: whether its labels count.
        seed: of the split, where its data have no masks.
    """

    name: str
    table: Table = field(repr=False)
    place: torch.Tensor = field(repr=False)
    labels: bool
    seed: int

    @property
    def rows(self) -> int:
        """How many rows all owners have."""
        return len(self.place)

    @property
    def _y(self) -> torch.Tensor:
        y = self.table.data.get("y") if self.labels else None
        return torch.full((self.rows,), UNLABELLED) if y is None else y.detach().long()[self.place]

    def graph(self, train: torch.Tensor) -> Data:
        """The owner's part of the federation, with labels of training rows alone.

        Args:
            train: ``[N]``, which rows are trained on; everybody has the same.

        Raises:
            BadInput: for another number of rows, or a training row without a label.
        """
        if train.shape != self.place.shape:
            raise BadInput(f"{len(train)} rows are split, and {self.name} has {self.rows} aligned ones")
        y = self._y
        known = torch.where(train, y, UNLABELLED)
        if self.labels and bool((known[train] < 0).any()):
            raise BadInput(
                f"{self.name} has no label for some training rows: let all owners of labels label the same"
            )
        return part_of(self.table, self.place, known, train)

    def exam(self) -> dict[str, np.ndarray]:
        """The split, and the labels of validation and test rows (-1 elsewhere): for the referee alone."""
        y = self._y
        train, validation, test = masks_of(
            {self.name: self.table}, [self.name], {self.name: self.place}, y, self.seed
        )
        shown = torch.where(validation | test, y, UNLABELLED)
        return {
            "train": train.to(torch.uint8).numpy(),
            "validation": validation.to(torch.uint8).numpy(),
            "test": test.to(torch.uint8).numpy(),
            "labels": shown.numpy(),
        }


def digest_of_training_rows(train: np.ndarray) -> str:
    """What all owners and the server must have alike.

    Args:
        train: ``[N]`` uint8, which of the common rows are trained on.
    """
    return hashlib.sha256(b"training rows" + train.astype(np.uint8).tobytes()).hexdigest()


def aligned(name: str, data: Data, rows: str, order: Sequence[str], labels: bool, seed: int) -> AlignedTable:
    """An owner's table in the common order.

    Args:
        name: the owner's.
        data: its table.
        rows: the field that names its rows.
        order: the names of the common rows, in order.
        labels: whether its labels count.
        seed: of the split.

    Raises:
        BadInput: for a table that cannot be used, or one without a row of the order.
    """
    table = table_of(name, data, rows)
    missing = next((row for row in order if row not in table.place), None)
    if missing is not None:
        raise BadInput(
            f"{name}'s data lack a row that was aligned: use the data that 'silo align' read, or align again"
        )
    if labels and data.get("y") is None:
        raise BadInput(
            f"{name} has no labels, and the federation's file says that it has: give a column of labels"
        )
    return AlignedTable(name, table, torch.tensor([table.place[row] for row in order]), labels, seed)
