"""What handing out a data set gives: every owner's own part, and the referee's exam."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch_geometric.data import Data

EVERYBODY = "everybody"
"""Stands for all owners where test nodes are nobody's own."""


@dataclass(frozen=True)
class TestSet:
    """The referee's test data: what it asks about, and the answers that it keeps to itself.

    Args:
        question: what is shown to be predicted: features and links where the test graph has them, and never
            a label. Where owners hold the features, only the number of nodes.
        labels: ``[N]`` the classes of the question's nodes.
        tests: owner, or :data:`EVERYBODY`, -> its test nodes in the question's numbering.
        validations: the same for validation nodes; empty where only the owners hold some.
        trainings: owner -> its training nodes; for what may be trained on pooled data.
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
    """A data set handed out.

    Args:
        owners: each owner's own graph, with ``train_mask``, ``val_mask`` and ``test_mask``.
        exam: what the referee keeps.
        facts: of the partition, for results; JSON.
        pool: everything in one owner's hands, for baselines that are not federated.
    """

    owners: tuple[Data, ...] = field(repr=False)
    test_set: TestSet
    facts: Mapping[str, Any]
    pool: Data | None = field(default=None, repr=False)


def owner_names(owners: int) -> tuple[str, ...]:
    """Public names, which sort in their order.

    >>> owner_names(2)
    ('owner-0', 'owner-1')
    """
    width = len(str(max(owners - 1, 0)))
    return tuple(f"owner-{number:0{width}d}" for number in range(owners))
