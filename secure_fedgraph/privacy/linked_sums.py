"""Sums of neighbours' parts, a row a node: each part is clipped and weighed by how many neighbours it has."""

from __future__ import annotations

import numpy as np
import torch

from secure_fedgraph.errors import BadInput
from secure_fedgraph.privacy.pooling import ROUNDING_MARGIN, clipped
from secure_fedgraph.protocol.channel import WEIGHTS, UnitContributionLinks
from secure_fedgraph.protocol.guarantee import Unit
from secure_fedgraph.protocol.upload import ContributionLinks, Layout, each_once


def linked_sums(
    parts: ContributionLinks, contribution: UnitContributionLinks, unit: Unit, grid: float = 0.0
) -> tuple[Layout, np.ndarray]:
    """The sums ``[nodes, width]`` (float64), and their layout.

    Args:
        grid: a step of which the sums are whole multiples. Parts are rounded towards zero to
            :data:`~secure_fedgraph.protocol.channel.WEIGHTS` of it, so that weighted parts are whole.

    Guarantees:
        - where one node goes with all its links, the rows of the others move by at most
          ``contribution.zeroed`` in L2, on graphs that :func:`check_links` lets pass; where one link goes,
          all rows by at most ``contribution.edge``.

    References:
        ``docs/guarantees.md``, sums over links.
    """
    layout, matrix, pairs = parts.packed(unit)
    # 0 or more: what others gain where a node goes has the opposite sign of what it takes away
    short = clipped(np.maximum(matrix, 0), contribution.norm).astype(np.float64)
    if grid:
        short = np.trunc(short * (ROUNDING_MARGIN / (grid * WEIGHTS)))
    degrees = _degrees(pairs, len(matrix))
    weighted = torch.from_numpy(short * _weights(degrees, contribution)[:, None])
    sums = torch.zeros_like(weighted)
    for one, other in (pairs, pairs.flip(0)):
        sums.index_add_(0, one, weighted[other])
    return layout, sums.numpy() * (grid or 1 / WEIGHTS)  # after the sum, which is exact in whole steps


def check_links(links: torch.Tensor, nodes: int, contribution: UnitContributionLinks, name: str) -> None:
    """Checks that a client's graph is within the public bounds of its sums over links.

    Args:
        links: its own, ``[2, E]``.
        nodes: how many it has.
        name: the client's.

    Raises:
        BadInput: naming the bound that it breaks. Who sees that learns so much about the graph.
    """
    pairs = each_once(links)
    degrees = _degrees(pairs, nodes)
    many = torch.from_numpy(degrees > contribution.rows).to(torch.int64)
    crowds = torch.zeros(nodes, dtype=torch.int64)
    for one, other in (pairs, pairs.flip(0)):
        crowds.index_add_(0, one, many[other])
    of_more = f"neighbours with more than training.neighbours = {contribution.rows} of their own"
    for key, bound, largest, what in (
        ("degree", contribution.degree, int(degrees.max(initial=0)), "neighbours"),
        ("crowd", contribution.crowd, int(crowds.max()) if nodes else 0, of_more),
    ):
        if largest > bound:
            raise BadInput(
                f"training.{key} = {bound}: a node of {name} has more {what}, and the noise for one node is "
                f"planned for as many at most; set training.{key} to a public bound that holds for all owners"
            )


def _degrees(pairs: torch.Tensor, nodes: int) -> np.ndarray:
    return np.bincount(pairs.reshape(-1).numpy(), minlength=nodes)


def _weights(degrees: np.ndarray, contribution: UnitContributionLinks) -> np.ndarray:
    """In whole parts of :data:`WEIGHTS`, one a node."""
    different, where = np.unique(degrees, return_inverse=True)
    table = np.array([contribution.weight(int(degree)) for degree in different], dtype=np.float64)
    return table[where]
