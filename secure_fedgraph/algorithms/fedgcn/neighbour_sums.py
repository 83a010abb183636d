"""Sums of neighbours' features over several owners: what an owner asks for, and what another adds."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.algorithms.fedgcn.gcn import both_ways, symmetric

SHARE = 2.0**-8
"""Sums travel times this, since fixed point carries small numbers: a node's sum may hold values up to 2048
under a limit of 8, in steps of about 1e-5."""
SUMS, COUNTS = "sums", "counts"


class OwnersGraph:
    """One owner's part, with its links to others' nodes.

    Args:
        graph: with ``x``, ``edge_index``; ``cross_links``, ``home`` and ``node_id`` where it has them
            (:func:`~secure_fedgraph.graph.partition.cross_links.note_cross_links`).
        hops: as in the settings; at 0 links to others' nodes do not count.

    Attributes:
        ids: ``[n]`` of the owner's nodes.
        crossing: ``[2, C]``: an own node, and the id of its neighbour at another owner.
        degree: ``[n]`` links of each node, those to others' nodes too, and one for itself.
    """

    def __init__(self, graph: Data, hops: int) -> None:
        assert graph.x is not None
        assert graph.edge_index is not None
        self.x: Tensor = graph.x
        self.links, self.hops = both_ways(graph.edge_index), hops
        nodes = len(self.x)
        # randomised links come without those to others' nodes
        none = torch.zeros(2, 0, dtype=torch.long)
        self.crossing: Tensor = graph.get("cross_links", none) if hops else none
        self.ids: Tensor = graph.get("node_id", torch.arange(nodes))
        self.home: Tensor = graph.get("home", torch.ones(nodes, dtype=torch.bool))
        self.degree = self._degrees()

    def without_crossing(self) -> Self:
        """The same part without links to others' nodes."""
        made = copy.copy(self)
        made.crossing = self.crossing[:, :0]
        made.degree = made._degrees()
        return made

    def _degrees(self) -> Tensor:
        met = torch.cat([self.links[1], self.crossing[0]])
        return torch.bincount(met, minlength=len(self.x)) + 1.0

    @property
    def scaled(self) -> Tensor:
        """Each node's term in its neighbours' sums, ``[n, features]``: ``x_u / sqrt(d_u)``."""
        return self.x * self.degree.rsqrt().unsqueeze(1)

    @property
    def asked(self) -> Tensor:
        """The ids whose sums it asks for: its own nodes', and for two hops those of their neighbours."""
        further = self.crossing[1].unique() if self.hops == 2 else self.ids[:0]
        return torch.cat([self.ids, further])

    def answer(self, asked: Tensor, own: int) -> dict[str, Tensor]:
        """What this owner's nodes add to the sums at the nodes that another asks about.

        The other adds its own nodes itself, so what it says it holds adds nothing here.

        Args:
            asked: ``[rows]`` ids; the first ``own`` are of nodes that the other holds.
            own: how many.

        Returns:
            ``sums [rows, features]`` and ``counts [rows]`` of the terms in them, both times :data:`SHARE`.
        """
        here = torch.arange(len(self.ids))
        counted = self.home & ~torch.isin(self.ids, asked[:own])
        sources = torch.cat([here, self.links[0], self.crossing[0]])
        targets = torch.cat([self.ids, self.ids[self.links[1]], self.crossing[1]])
        return _added(self.scaled, sources[counted[sources]], targets[counted[sources]], asked)

    def completed(self, others: Mapping[str, Tensor] | None) -> tuple[Tensor, Tensor]:
        """The first layer's sums and the second layer's links, as ``Gcn.from_sums``
        takes them.

        Args:
            others: what the other owners' answers add up to, at :attr:`asked`; None before the exchange.

        Returns:
            ``[sources, features]`` and sparse ``[n, sources]``. The first n sources are the owner's nodes.
        """
        nodes = len(self.ids)
        here = torch.arange(nodes)
        if others is None:
            adjacency = symmetric(self.links, self.degree, self.degree)
            return torch.sparse.mm(adjacency, self.x), adjacency
        asked = self.asked
        sources = torch.cat([here, self.links[0], self.crossing[0]])
        targets = torch.cat([self.ids, self.ids[self.links[1]], self.crossing[1]])
        own = _added(self.scaled, sources, targets, asked)
        sums, counts = ((own[key] + others[key]) / SHARE for key in (SUMS, COUNTS))
        # a neighbour's degree is the number of terms in its sum; each is one term at least: the node itself
        degree = torch.cat([self.degree, counts[nodes:].clamp(min=1)])
        links = self.links
        if self.hops == 2:
            order = asked[nodes:]  # ascending, as unique() gives them
            beyond = torch.stack(
                [nodes + torch.searchsorted(order, self.crossing[1].contiguous()), self.crossing[0]]
            )
            links = torch.cat([links, beyond], dim=1)
        return sums * degree.rsqrt().unsqueeze(1), symmetric(links, self.degree, degree)


def _added(terms: Tensor, sources: Tensor, targets: Tensor, asked: Tensor) -> dict[str, Tensor]:
    """The sums of terms at the asked ids, and how many terms there are in each."""
    order = asked.argsort()
    ids, rows = asked[order].unique_consecutive(return_inverse=True)
    place = torch.searchsorted(ids, targets).clamp(max=len(ids) - 1)
    wanted = ids[place] == targets
    place, sources = place[wanted], sources[wanted]
    picks = torch.sparse_coo_tensor(
        torch.stack([place, sources]), torch.full((len(place),), SHARE), (len(ids), len(terms)),
        check_invariants=True,
    )  # fmt: skip
    back = torch.empty_like(order)
    back[order] = rows  # an id that is asked twice gets the same sum twice
    counts = torch.bincount(place, minlength=len(ids)) * SHARE
    return {SUMS: torch.sparse.mm(picks, terms)[back], COUNTS: counts[back]}
