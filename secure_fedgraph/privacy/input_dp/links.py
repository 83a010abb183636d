"""Links that a client randomises once, in place of its own: every pair of nodes by a biased coin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from secure_fedgraph.privacy.input_dp import randomizer
from secure_fedgraph.privacy.input_dp.randomizer import CHUNK, InputRandomizer, flip_threshold

if TYPE_CHECKING:
    from torch_geometric.data import Data


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
        noisy = np.concatenate([np.empty(0, np.int64), *self._said(own, nodes)])
        lies = self._lie / 2.0**64
        contrast = max(1 - 2 * lies, 2.0**-50)  # at one half the answers hold nothing
        estimate = (len(noisy) - lies * nodes * (nodes - 1) / 2) / contrast
        kept = _most_alike(noisy, x, round(min(max(estimate, 0), len(noisy))))
        pair = torch.from_numpy(np.stack([kept // nodes, kept % nodes]))
        return torch.cat([pair, pair.flip(0)], dim=1)

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
            numbers = numbers[numbers % nodes > numbers // nodes]
            lies = randomizer.coins(len(numbers)) < np.uint64(self._lie)
            yield numbers[np.isin(numbers, own, assume_unique=True) ^ lies]


def _most_alike(pairs: np.ndarray, x: Tensor, count: int) -> np.ndarray:
    """The pairs of the most similar features by the cosine; pairs as sorted numbers."""
    nodes = len(x)
    rows = torch.nn.functional.normalize(x.float(), dim=1)
    ends = torch.from_numpy(np.stack([pairs // nodes, pairs % nodes]))
    pieces = torch.split(ends, 2**16, dim=1)
    alike = torch.cat([(rows[a] * rows[b]).sum(1) for a, b in pieces])
    chosen = alike.topk(count).indices.numpy()
    kept: np.ndarray = np.sort(pairs[chosen])
    return kept
