"""What comes of owners' own data: a schema, each owner's graph, and the test data that no owner has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch_geometric.data import Data

from secure_fedgraph.graph.partition.result import TestSet
from secure_fedgraph.graph.schema import Schema


@dataclass(frozen=True)
class Silos:
    """Owners' own data, checked.

    Args:
        schema: what they agreed on.
        owners: each owner's graph, by name.
        test_set: what the referee has; nothing, where owners test on their own nodes.
        facts: about the data, for results; JSON.
        names: of features and classes, by key, where owners have some.
    """

    schema: Schema
    owners: Mapping[str, Data] = field(repr=False)
    test_set: TestSet = field(repr=False)
    facts: Mapping[str, Any]
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
