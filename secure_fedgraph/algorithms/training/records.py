"""What algorithms share whose uploads are sums of one part a record."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

import torch

from secure_fedgraph.algorithm.base import Algorithm
from secure_fedgraph.algorithm.settings import Form
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.graph.schema import OF_LINKS, Schema

MOST = 8
"""Results that are kept beside the one that is made."""


class Kept(list[tuple[tuple[torch.Tensor, ...], torch.Tensor]]):
    """The last few results and what they are a function of. Copies of an algorithm share it."""

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def of(self, given: tuple[torch.Tensor, ...], make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """What was made of the same before, or what is made now."""
        for asked, made in self:
            if all(map(torch.equal, asked, given)):
                return made
        self[MOST:] = []
        found = make()
        self.insert(0, (given, found))
        return found


def check_held(held: int, most: int, name: str, of: str) -> None:
    """That sums over an owner's records are not cut.

    Raises:
        BadInput: where it has more of them than ``training.records``.
    """
    if held > most:
        raise BadInput(
            f"training.records = {most}: {name} has {held} {of}s, and sums over more than that are cut: set "
            f"training.records={2 ** (held - 1).bit_length()} or more"
        )


class OfRecords(Algorithm):
    """An algorithm that sums one part a record: a node, a graph, or a link where links are learned."""

    record: Unit = Unit.NODE
    """What one record is of."""
    reads_links: bool = False
    """Whether a record depends on links."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.kept = Kept()  # now, so that the referee's copy of each round finds what the last one made

    def in_form(self, form: Form) -> Self:
        """As the base has it; other settings solve otherwise, so nothing is kept."""
        made = super().in_form(form)
        made.kept = Kept()
        return made

    def made_with(self) -> dict[str, Any]:
        """Nothing but settings: what is kept is made again."""
        return {}

    def for_data(self, schema: Schema) -> Algorithm:
        """As the base has it; where links are learned, a record is a link."""
        if schema.task not in OF_LINKS:
            return super().for_data(schema)
        made = copy.copy(self)
        made.record, made.reads_links = Unit.EDGE, True
        return made
