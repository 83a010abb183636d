"""The column ``split``: which rows an owner trains, chooses and tests on."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.splits import MASKS
from secure_fedgraph.graph.tables import cells
from secure_fedgraph.graph.tables.encoding import place_of
from secure_fedgraph.graph.tables.table import Table
from secure_fedgraph.loading import postponed

pc = postponed("pyarrow.compute")

SPLIT = "split"
_PARTS = {"train": 0, "training": 0, "val": 1, "validation": 1, "valid": 1, "dev": 1, "test": 2}


def masks_in(table: Table, taken: Iterable[str]) -> tuple[dict[str, np.ndarray], list[str]]:
    """The three masks of a table with a column of that name, and notes; nothing where there is none.

    Args:
        table: of nodes or links.
        taken: columns that have another meaning, whatever they are called.

    Raises:
        BadInput: for a word that is no part, with its row.
    """
    name = table.find(SPLIT)
    if name is None or name in taken:
        return {}, []
    words = cells.words(table, name)
    places, _ = place_of(words, list(_PARTS))
    odd = (places < 0) & pc.is_valid(words).to_numpy(zero_copy_only=False)
    if odd.any():
        index = int(odd.argmax())
        raise BadInput(
            f"{table.at(index, name)} is {words[index].as_py()[:40]!r}: give train, val, test or nothing"
        )
    part = np.append(list(_PARTS.values()), -1)[places]
    return {mask: part == number for number, mask in enumerate(MASKS)}, (
        [] if name == SPLIT else [f"column {name!r} is taken for {SPLIT!r}"]
    )
