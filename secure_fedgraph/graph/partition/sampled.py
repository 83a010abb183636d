"""A referee's test set cut down to some of its nodes, drawn once: for graphs that take long to score."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.graph.partition.result import TestSet
from secure_fedgraph.graph.sample.links import edge_values

CONFIDENT = 1.959963984540054
"""The standard normal deviate of an interval of 95 %."""


def sampled(test_set: TestSet, size: int, reach: int, seed: int) -> TestSet:
    """The same test set with about ``size`` of its test nodes, and as many validation nodes.

    Guarantees:
        - a node that is asked about gets the scores that it would get on the whole graph, from any model that
          reads means over whole in-neighbourhoods, ``reach`` links far;
        - every owner with test nodes keeps at least one; else owners keep their shares;
        - the same seed draws the same nodes.

    Args:
        test_set: with the test graph's links in its inputs.
        size: how many nodes are drawn of each kind; a kind with no more keeps all.
        reach: how many links from a node its scores read.
        seed: of the draw.
    """
    rng = np.random.default_rng(seed)
    tests, validations = (_drawn(nodes, size, rng) for nodes in (test_set.tests, test_set.validations))
    graph = test_set.inputs
    inside = torch.zeros(int(graph.num_nodes or 0), dtype=torch.bool)
    for nodes in (*tests.values(), *validations.values()):
        inside[nodes] = True
    source, target = graph.edge_index
    read = torch.zeros(len(source), dtype=torch.bool)
    for _ in range(reach):
        read = inside[target]
        inside[source[read]] = True
    near = inside.nonzero().flatten()
    place = torch.full((len(inside),), -1, dtype=torch.long)
    place[near] = torch.arange(len(near))
    inputs = Data(
        x=graph.x[near],
        edge_index=place[graph.edge_index[:, read]],
        num_nodes=len(near),
        **edge_values(graph, read),
    )
    return replace(
        test_set,
        inputs=inputs,
        labels=test_set.labels[near],
        tests={owner: place[nodes] for owner, nodes in tests.items()},
        validations={owner: place[nodes] for owner, nodes in validations.items()},
        trainings={},
    )


def interval(share: float, drawn: int) -> tuple[float, float]:
    """Between what a share of a sample lets one expect the share of all to be, in 95 of 100 samples.

    Wilson's interval (1927): it stays within 0 and 1 and holds for few nodes too. That the sample is drawn
    without replacement, and by owner, makes it no wider.

    >>> [round(end, 4) for end in interval(0.8, 1000)]
    [0.7741, 0.8236]
    """
    square = CONFIDENT**2
    middle = (share + square / (2 * drawn)) / (1 + square / drawn)
    reach = CONFIDENT / (1 + square / drawn)
    reach *= math.sqrt(share * (1 - share) / drawn + square / (4 * drawn**2))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def _drawn(nodes_of: Mapping[str, Tensor], size: int, rng: np.random.Generator) -> dict[str, Tensor]:
    """About ``size`` nodes, of every owner its share."""
    total = sum(len(nodes) for nodes in nodes_of.values())
    if total <= size:
        return dict(nodes_of)
    drawn = {}
    for owner, nodes in nodes_of.items():
        wanted = min(len(nodes), max(1, round(size * len(nodes) / total)))
        picked = np.sort(rng.choice(len(nodes), wanted, replace=False))
        drawn[owner] = nodes[torch.from_numpy(picked)]
    return drawn
