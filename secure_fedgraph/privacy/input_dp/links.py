"""Links that a client randomises once, in place of its own: every pair of nodes by a biased coin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from secure_fedgraph.core.accounting.events import Event, OneHolderRelease
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.inputs import link_holder
from secure_fedgraph.privacy.input_dp import randomizer
from secure_fedgraph.privacy.input_dp.randomizer import CHUNK, InputRandomizer, flip_threshold

if TYPE_CHECKING:
    from torch_geometric.data import Data

CROSS_LINKS = "cross_links"
"""The entry of an owner's graph with its links to nodes of other owners: nobody randomises these, so where
links are protected it is taken away."""


@dataclass(frozen=True)
class RandomisedLinks(InputRandomizer):
    """Randomised response on every pair of nodes of one client, once: later steps cost its links nothing.

    Each pair keeps its truth, linked or not, with probability ``e^epsilon / (1 + e^epsilon)``. Of the noisy
    links about as many are kept as there were true ones, estimated from the noisy links alone: those between
    the most similar nodes. Features are no links, so that is post-processing.

    Guarantees:
        - one undirected link more or less changes the probability of any result by at most ``e^epsilon``.

    Args:
        epsilon: of one client's links; clients that hold the same link each pay it.

    Raises:
        BadInput: for an epsilon that is not positive and finite.

    References:
        Warner 1965; Wu et al., LinkTeller, S&P 2022 (section VI: edge-level noise on a graph's adjacency).
    """

    kind: ClassVar[str] = "links"
    unit: ClassVar[str] = "edge"
    place: ClassVar[str] = "edge_index"
    unsupported_relations: ClassVar[Mapping[str, str]] = {
        "replace": "links are randomised pair by pair, and a link put elsewhere changes two pairs, which "
        "costs twice the epsilon: set relation=zero-out"
    }

    def randomize(self, graph: Data, classes: int) -> Tensor:
        """Links in both directions ``[2, E]``."""
        edge_index, x = graph.edge_index, graph.x
        assert edge_index is not None
        assert x is not None
        return self.randomized(edge_index, x)

    def randomized(self, edge_index: Tensor, x: Tensor) -> Tensor:
        """Links in both directions ``[2, E]``, in place of a client's own.

        Args:
            edge_index: its own, of either direction or both; loops are dropped.
            x: features ``[nodes, features]``.
        """
        nodes = len(x)
        low, high = edge_index.min(0).values.numpy(), edge_index.max(0).values.numpy()
        own = np.unique((low * nodes + high)[low != high])
        own = own[self._answered(own, nodes)]
        noisy = np.concatenate([np.empty(0, np.int64), *self._said(own, nodes)])
        lies = self._lie / 2.0**64
        contrast = max(1 - 2 * lies, 2.0**-50)  # at one half the answers hold nothing
        estimate = (len(noisy) - lies * self._pairs(nodes)) / contrast
        kept = _most_alike(noisy, x, round(min(max(estimate, 0), len(noisy))))
        pair = torch.from_numpy(np.stack([kept // nodes, kept % nodes]))
        return torch.cat([pair, pair.flip(0)], dim=1)

    def _answered(self, pairs: np.ndarray, nodes: int) -> np.ndarray:
        """Which pairs, as numbers, this client answers about: all."""
        return np.ones(len(pairs), dtype=bool)

    def _pairs(self, nodes: int) -> int:
        """How many pairs it answers about."""
        return nodes * (nodes - 1) // 2

    @property
    def _lie(self) -> int:
        """A coin below this lies."""
        return flip_threshold(self.epsilon)

    def _said(self, own: np.ndarray, nodes: int) -> Iterator[np.ndarray]:
        """The pairs, as numbers, that are linked after the coins; some rows of nodes at a time."""
        rows = max(1, CHUNK // nodes)
        for first in range(0, nodes, rows):
            last = min(first + rows, nodes)
            numbers = np.arange(first * nodes, last * nodes)
            numbers = numbers[(numbers % nodes > numbers // nodes) & self._answered(numbers, nodes)]
            lies = randomizer.coins(len(numbers)) < np.uint64(self._lie)
            yield numbers[np.isin(numbers, own, assume_unique=True) ^ lies]


@dataclass(frozen=True)
class DividedLinks(RandomisedLinks):
    """The same where several clients hold the same links: each pair of nodes is one client's to answer about.

    A pair belongs to the client whose place is the sum of the two node numbers modulo the number of clients.
    That client alone randomises it, and answers nothing about any other pair; then clients hand each other
    their answers (the algorithm's channel ``links``) and all use all of them.

    Guarantees:
        - a link of any number of holders is one client's answer: one epsilon in all, against every reader,
          and whoever works together; nobody shares coins, so nobody can take another's noise off;
        - what an owner knows of pairs that are not its own is not used at all.

    Needs:
        The same nodes under the same numbers at every client (a vertical split), and the same list of
        clients.

    Args:
        epsilon: of one link, all its holders together.
        clients: how many clients divide the pairs.
        index: this client's place among them, from 0; negative in a policy, which is everybody's.

    Raises:
        BadInput: as :class:`RandomisedLinks`, for fewer than two clients, and where another number of them
            takes part.

    >>> thirds = [DividedLinks(50.0, clients=3).at(place, 3) for place in range(3)]
    >>> links = torch.tensor([[0, 0, 1], [1, 2, 2]])
    >>> [one.randomized(links, torch.ones(3, 1)).tolist() for one in thirds]
    [[[1, 2], [2, 1]], [[0, 1], [1, 0]], [[0, 2], [2, 0]]]
    """

    divided: ClassVar[bool] = True

    clients: int
    index: int = -1

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.clients) is not int or self.clients < 2:
            raise BadInput(
                f"links.clients = {self.clients!r}: pairs are divided among 2 clients or more; leave links "
                "undivided"
            )
        if type(self.index) is not int or not -1 <= self.index < self.clients:
            raise BadInput(f"links.index = {self.index!r}: give a place from 0 to {self.clients - 1}")

    def at(self, place: int, clients: int) -> DividedLinks:
        """The part of the client at a place.

        Raises:
            BadInput: where other than the declared number of clients take part.
        """
        if clients != self.clients:
            raise BadInput(
                f"links are divided among {self.clients} clients and {clients} take part: make the "
                f"policy for {clients}"
            )
        return replace(self, index=place)

    def costs(self) -> dict[str, tuple[Event, ...]]:
        """The cost by unit: whoever else holds a link releases nothing about it."""
        return {**super().costs(), self.unit: (OneHolderRelease(self.epsilon),)}

    def to_config(self) -> dict[str, Any]:
        """Its kind, epsilon and number of clients."""
        return {"kind": self.kind, "epsilon": self.epsilon, "clients": self.clients}

    def _answered(self, pairs: np.ndarray, nodes: int) -> np.ndarray:
        low, high = torch.from_numpy(pairs // nodes), torch.from_numpy(pairs % nodes)
        return (link_holder(low, high, self.clients) == self._index).numpy()

    def _pairs(self, nodes: int) -> int:
        numbers = np.bincount(np.arange(nodes) % self.clients, minlength=self.clients)
        # pairs of residues that add up to the place; those of one node with itself are none
        both = int(sum(numbers[r] * numbers[(self._index - r) % self.clients] for r in range(self.clients)))
        itself = int((2 * np.arange(nodes) % self.clients == self._index).sum())
        return (both - itself) // 2

    @property
    def _index(self) -> int:
        if self.index < 0:
            raise BadInput("links that clients divide are randomised by one of them: ask .at(place, clients)")
        return self.index


def _most_alike(pairs: np.ndarray, x: Tensor, count: int) -> np.ndarray:
    """The pairs of the most similar features by the cosine; pairs as sorted numbers."""
    nodes = len(x)
    rows = torch.nn.functional.normalize(x.float(), dim=1)
    ends = torch.from_numpy(np.stack([pairs // nodes, pairs % nodes]))
    pieces = torch.split(ends, 2**16, dim=1)
    alike = torch.cat([(rows[a] * rows[b]).sum(1) for a, b in pieces])
    chosen = alike.topk(count).indices.numpy()
    return np.sort(pairs[chosen])
