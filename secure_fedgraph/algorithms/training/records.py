"""What algorithms share whose uploads are sums of one part a record."""

from __future__ import annotations

import copy

from secure_fedgraph.algorithm.base import Algorithm
from secure_fedgraph.graph.schema import OF_LINKS, Schema
from secure_fedgraph.protocol import Unit


class OfRecords(Algorithm):
    """An algorithm that sums one part a record: a node, a graph, or a link where links are learned."""

    record: Unit = Unit.NODE
    """What one record is of."""
    reads_links: bool = False
    """Whether a record depends on links."""

    def for_data(self, schema: Schema) -> Algorithm:
        """As the base has it; where links are learned, a record is a link."""
        if schema.task not in OF_LINKS:
            return super().for_data(schema)
        made = copy.copy(self)
        made.record, made.reads_links = Unit.EDGE, True
        return made
