"""The result of partitioning a data set: every owner's own part, and the referee's test set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch_geometric.data import Data

EVERYBODY = "everybody"
"""Stands for all owners where test nodes belong to no single owner."""


@dataclass(frozen=True)
class TestSet:
    """The referee's test data: the inputs that it shows, and the labels that it keeps to itself.

    Args:
        inputs: what the referee shows for prediction: features and links where the test graph has them, and
            never a label. Where owners hold the features, only the number of nodes.
        labels: ``[N]`` the classes (or numbers, or labels) of the nodes or graphs of ``inputs``; where links
            are classified, of the links of its ``edge_label_index``.
        tests: owner, or :data:`EVERYBODY`, -> its test nodes, numbered as in ``inputs``.
        validations: the same for validation nodes; empty where only the owners hold some.
        trainings: owner -> its training nodes; for models that may be trained on pooled data.
        own_tests: whether owners hold test nodes of their own, which they score themselves.
    """

    inputs: Data = field(repr=False)
    labels: Tensor = field(repr=False)
    tests: Mapping[str, Tensor] = field(repr=False)
    validations: Mapping[str, Tensor] = field(repr=False)
    trainings: Mapping[str, Tensor] = field(default_factory=dict, repr=False)
    own_tests: bool = False


@dataclass(frozen=True)
class Partition:
    """A partitioned data set.

    Args:
        owners: each owner's own graph, with ``train_mask``, ``val_mask`` and ``test_mask``.
        test_set: what the referee keeps.
        facts: about the partition, for results; JSON.
        pool: all data as one owner's, for baselines that are not federated.
    """

    owners: tuple[Data, ...] = field(repr=False)
    test_set: TestSet
    facts: Mapping[str, Any]
    pool: Data | None = field(default=None, repr=False)


def owner_names(owners: int) -> tuple[str, ...]:
    """Public names of owners; sorted names keep the owners' order.

    >>> owner_names(2)
    ('owner-0', 'owner-1')
    """
    width = len(str(max(owners - 1, 0)))
    return tuple(f"owner-{number:0{width}d}" for number in range(owners))
