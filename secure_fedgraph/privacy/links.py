"""Links that are drawn once in place of a client's own: every pair of nodes by a biased coin."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from secure_fedgraph.crypto import KEY_BYTES, KeyStream
from secure_fedgraph.errors import BadInput
from secure_fedgraph.privacy.accounting import Event, PureRelease

CHUNK = 2**22
"""Pairs at a time."""


@dataclass(frozen=True)
class RandomisedLinks:
    """Randomised response on every pair of nodes of one client, once: what follows costs its links nothing.

    Each pair tells the truth, linked or not, with probability ``e^epsilon / (1 + e^epsilon)``. Of the noisy
    links as many are kept as there were before, by an estimate from the noisy ones alone: those between the
    most similar nodes. Features are no links, so that is post-processing.

    Guarantees:
        - one undirected link more or less changes the probability of any result by at most ``e^epsilon``:
          coins have 64 bits from the operating system, and the lying one is rounded up;
        - the client's own links are read once.

    Args:
        epsilon: of one client's links; clients that hold the same link each pay it.

    Raises:
        BadInput: for an epsilon that is not positive and finite.

    References:
        Warner 1965; Wu et al., LinkTeller, S&P 2022 (section VI: edge-level noise on a graph's adjacency).
    """

    epsilon: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise BadInput(f"links.epsilon = {self.epsilon}: give a positive number")

    def check_relation(self, relation: str) -> None:
        """That it speaks for a relation.

        Raises:
            BadInput: for ``replace``: a link that is put elsewhere changes the answers of two pairs.
        """
        if relation == "replace":
            raise BadInput(
                "relation 'replace': links are drawn anew pair by pair, and a link put elsewhere changes two "
                "pairs, which costs twice the epsilon: set relation=zero-out"
            )

    def costs(self) -> dict[str, tuple[Event, ...]]:
        """What one drawing costs, by unit: nothing leaves the client by it, so it costs links alone."""
        return {"edge": (PureRelease(self.epsilon),), "node": (), "graph": (), "client": ()}

    def drawn(self, edge_index: Tensor, x: Tensor) -> Tensor:
        """Links in both directions ``[2, E]``, in place of a client's own.

        Args:
            edge_index: its own, of either direction or both; loops are dropped.
            x: features ``[nodes, features]``.
        """
        nodes = len(x)
        low, high = edge_index.min(0).values.numpy(), edge_index.max(0).values.numpy()
        own = np.unique((low * nodes + high)[low != high])
        said = np.concatenate([np.empty(0, np.int64), *self._said(own, nodes)])
        lies = self._lie / 2.0**64
        told = max(1 - 2 * lies, 2.0**-50)  # at a half the answers tell nothing
        estimate = (len(said) - lies * nodes * (nodes - 1) / 2) / told
        kept = _most_alike(said, x, round(min(max(estimate, 0), len(said))))
        pair = torch.from_numpy(np.stack([kept // nodes, kept % nodes]))
        return torch.cat([pair, pair.flip(0)], dim=1)

    @property
    def _lie(self) -> int:
        """A coin below this lies."""
        likely = 1 + math.exp(min(self.epsilon, 700.0))  # beyond, a coin of 64 bits lies no more rarely
        return min(math.ceil(2.0**64 / likely) + 2**12, 2**63)

    def _said(self, own: np.ndarray, nodes: int) -> Iterator[np.ndarray]:
        """The pairs, as numbers, that say they are linked; rows of nodes at a time."""
        rows = max(1, CHUNK // nodes)
        for first in range(0, nodes, rows):
            last = min(first + rows, nodes)
            numbers = np.arange(first * nodes, last * nodes)
            numbers = numbers[numbers % nodes > numbers // nodes]
            told = np.isin(numbers, own, assume_unique=True) ^ (_coins(len(numbers)) < np.uint64(self._lie))
            yield numbers[told]


def _coins(count: int) -> np.ndarray:
    words = np.zeros(count, dtype=np.uint64)
    KeyStream(os.urandom(KEY_BYTES)).into(words.data)
    return words


def _most_alike(pairs: np.ndarray, x: Tensor, count: int) -> np.ndarray:
    """The pairs of the most similar features by the cosine; pairs as sorted numbers."""
    nodes = len(x)
    rows = torch.nn.functional.normalize(x.float(), dim=1)
    ends = torch.from_numpy(np.stack([pairs // nodes, pairs % nodes]))
    pieces = torch.split(ends, 2**16, dim=1)
    alike = torch.cat([(rows[a] * rows[b]).sum(1) for a, b in pieces])
    chosen = alike.topk(count).indices.numpy()
    found: np.ndarray = np.sort(pairs[chosen])
    return found
