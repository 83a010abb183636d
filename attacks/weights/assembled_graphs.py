"""Graphs whose nodes have given trees around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import nnls

from secure_fedgraph.attacks.weights.rooted_trees import Clock, Level

FITS = 3e-4
"""Counts explain an embedding where they are off by this share of its length at most."""
NEARLY = 0.02
"""A count this far from a whole number is taken for it."""
ROUNDS = 30
STEPS = 20_000
"""Links that are tried for one graph."""


@dataclass(frozen=True)
class Assembled:
    """One graph.

    Attributes:
        nodes: ``[nodes]`` which tree of the last level each has.
        links: ``[2, links]`` pairs of nodes, each once.
    """

    nodes: np.ndarray = field(repr=False)
    links: np.ndarray = field(repr=False)


def counted(level: Level, embedding: np.ndarray) -> np.ndarray | None:
    """``[trees]`` how many nodes have each tree, from the sum of what the network makes of the nodes.

    Links have two ends: as many nodes of one tree see another as the other way round. Where the least squares
    are not whole numbers everywhere, those that nearly are get fixed, and the rest is solved again.

    Args:
        level: the last one.
        embedding: ``[width]`` a graph's.

    Returns:
        None where no whole numbers fit.
    """
    size = float(np.linalg.norm(embedding))
    if not len(level) or not size:
        return None
    ends = _ends(level)
    system = np.concatenate([level.made.T, ends * size / 10])
    wanted = np.concatenate([embedding, np.zeros(len(ends))])
    counts, free = np.zeros(len(level)), np.ones(len(level), dtype=bool)
    for _ in range(ROUNDS):
        counts[free], _ = nnls(system[:, free], wanted - system[:, ~free] @ counts[~free], maxiter=10**4)
        whole = np.rint(counts)
        if np.linalg.norm(whole @ level.made - embedding) <= FITS * size and not np.any(ends @ whole):
            return whole.astype(int)
        near = free & (np.abs(counts - whole) <= max(NEARLY, float(np.abs(counts - whole)[free].min())))
        counts[near] = whole[near]
        free &= ~near
        if not free.any():
            break
    return None


def _ends(level: Level) -> np.ndarray:
    """``[pairs, trees]``: ends of a kind of link at a node, less those of the other direction."""
    pairs: dict[tuple[int, int], int] = {}
    entries: list[tuple[int, int, float]] = []
    for tree, (parent, around) in enumerate(zip(level.parents.tolist(), level.around, strict=True)):
        for other in around:
            if parent == other:
                continue
            key = (min(parent, other), max(parent, other))
            row = pairs.setdefault(key, len(pairs))
            entries.append((row, tree, 1.0 if parent < other else -1.0))
    matrix = np.zeros((len(pairs), len(level)))
    for row, tree, value in entries:
        matrix[row, tree] += value
    return matrix


def assemble(level: Level, counts: np.ndarray, clock: Clock) -> Assembled | None:
    """A graph of nodes with these trees, connected where there is one; depth first, from one node outwards.

    Args:
        level: the last one.
        counts: ``[trees]``.
        clock: of the search.
    """
    nodes = np.repeat(np.arange(len(level)), counts)
    if not len(nodes):
        return None
    built = _Building(level, nodes, clock)
    built.search()
    links = built.connected if built.connected is not None else built.other
    if links is None:
        return None
    return Assembled(nodes, np.array(sorted(links), dtype=int).reshape(-1, 2).T)


class _Building:
    """A graph being built; ``connected`` and ``other`` are the first whole ones of either kind."""

    def __init__(self, level: Level, nodes: np.ndarray, clock: Clock) -> None:
        self.parent = level.parents[nodes].tolist()
        self.tree = nodes.tolist()
        self.open = [Counter(level.around[tree]) for tree in self.tree]
        self.links: set[tuple[int, int]] = set()
        self.touched: list[int] = []
        self.connected: set[tuple[int, int]] | None = None
        self.other: set[tuple[int, int]] | None = None
        self.steps, self.clock = 0, clock
        self.pieces = 0

    def search(self) -> bool:
        """Whether a connected graph was completed."""
        node = next((n for n in self.touched if self.open[n]), None)
        if node is None:
            return self._next_piece()
        wanted = next(iter(self.open[node]))
        tried: set[tuple[int, bool, tuple[int, ...]]] = set()
        for other in self._partners(node, wanted):
            fresh = other not in self.touched
            key = (self.tree[other], fresh, tuple(sorted(self.open[other].elements())))
            # fresh nodes of one tree are alike; touched ones stand in different places
            if fresh and key in tried:
                continue
            tried.add(key)
            self.steps += 1
            if self.steps > STEPS or self.clock.over():
                return False
            self._join(node, other, fresh)
            if self.search():
                return True
            self._part(node, other, fresh)
        return False

    def _next_piece(self) -> bool:
        left = next((n for n in range(len(self.tree)) if n not in self.touched), None)
        if left is None:
            if self.pieces <= 1:
                self.connected = set(self.links)
                return True
            self.other = self.other or set(self.links)
            return False
        self.touched.append(left)
        self.pieces += 1
        done = self.search()
        self.pieces -= 1
        self.touched.pop()
        return done

    def _partners(self, node: int, wanted: int) -> list[int]:
        """Ring closures first: in a molecule a node that was reached already is likelier."""
        fits = [
            other
            for other in range(len(self.tree))
            if other != node
            and self.parent[other] == wanted
            and self.open[other][self.parent[node]] > 0
            and (min(node, other), max(node, other)) not in self.links
        ]
        return sorted(fits, key=lambda other: other not in self.touched)

    def _join(self, node: int, other: int, fresh: bool) -> None:
        self.links.add((min(node, other), max(node, other)))
        for one, another in ((node, other), (other, node)):
            self.open[one][self.parent[another]] -= 1
            if not self.open[one][self.parent[another]]:
                del self.open[one][self.parent[another]]
        if fresh:
            self.touched.append(other)

    def _part(self, node: int, other: int, fresh: bool) -> None:
        self.links.remove((min(node, other), max(node, other)))
        for one, another in ((node, other), (other, node)):
            self.open[one][self.parent[another]] += 1
        if fresh:
            self.touched.pop()


def atoms_of(levels: Sequence[Level], nodes: np.ndarray) -> np.ndarray:
    """Which kind of atom each node is, as a number in the list that the search started from."""
    for level in reversed(levels[1:]):
        nodes = level.parents[nodes]
    kinds: np.ndarray = levels[0].parents[nodes]
    return kinds
