"""Motifs of small graphs: labelled bonds and rings, in a form that no numbering of nodes can change."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement, product

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput

Code = tuple[int, ...]
"""A motif: its number of nodes, their labels, for a bond the kind of its link, then -1 up to the width."""

BOND = 2
PUBLIC_MOST = 4096
"""The largest vocabulary that lists every possible motif, whether it occurs or not."""


@dataclass(frozen=True)
class Motifs:
    """The motifs of some graphs: which, in which graph, how often.

    Args:
        codes: ``[k, width]``, each motif once, in lexicographic order.
        graph, motif, count: ``[entries]``; motif number ``motif`` occurs ``count`` times in graph ``graph``.
        graphs: how many graphs were looked at, those without a motif included.
    """

    codes: Tensor
    graph: Tensor
    motif: Tensor
    count: Tensor
    graphs: int

    @property
    def graph_counts(self) -> Tensor:
        """``[k]`` in how many graphs each motif occurs."""
        return torch.bincount(self.motif, minlength=len(self.codes))

    def mean_count(self) -> Tensor:
        """``[k]`` how often each motif occurs in a graph that holds it."""
        totals = torch.bincount(self.motif, weights=self.count.double(), minlength=len(self.codes))
        return totals / self.graph_counts


def width_of(rings: int) -> int:
    """Columns of a code where rings have at most that many nodes."""
    return 1 + max(rings, 3)


@cache
def ring_form(labels: Code) -> Code:
    """The smallest of a ring's label sequences over all rotations and both directions.

    >>> ring_form((2, 0, 1)) == ring_form((1, 0, 2)) == (0, 1, 2)
    True
    """
    turned = (labels[i:] + labels[:i] for i in range(len(labels)))
    return min(form for one in turned for form in (one, one[::-1]))


def rings_of(neighbours: list[set[int]], longest: int) -> Iterator[tuple[int, ...]]:
    """Every chordless cycle of 3 to ``longest`` nodes, once.

    A cycle basis would depend on the numbering of nodes; the set of chordless cycles does not. Looking no
    further than ``longest - 1`` links from each node keeps the work linear in the graph at bounded degree.

    Args:
        neighbours: of each node, without itself.
    """
    for first, around in enumerate(neighbours):
        paths: list[tuple[int, ...]] = [(first, second) for second in around if second > first]
        while paths:
            path = paths.pop()
            inner, last = path[1:-1], path[-1]
            for node in neighbours[last]:
                if node <= first or node in path or any(node in neighbours[other] for other in inner):
                    continue
                if node in around:  # it closes the ring; a longer path through it would have a chord
                    if path[1] < node:  # each ring in one of its two directions
                        yield (*path, node)
                elif len(path) + 1 < longest:
                    paths.append((*path, node))


def motifs_of(packed: Data, chosen: Tensor, rings: int = 4, categories: bool = False) -> Motifs:
    """All bonds and rings of some graphs, in one pass over each.

    A node's label is the position of the largest entry of its features (their one-hot label); a link's kind
    that of its ``edge_attr``, where there is one. A bond is a link that lies on no ring of at most ``rings``
    nodes, and its two labels are sorted.

    Args:
        packed: as :func:`~secure_fedgraph.graph.sample.packing.pack` gives it.
        chosen: ``[g]`` numbers of the graphs that are looked at; ``graph`` of the result counts along it.
        rings: the longest rings that count.
        categories: whether columns are categories (as for molecules): then the first column is the label, and
            the first column of ``edge_attr`` the kind.

    Raises:
        BadInput: for rings of fewer than three nodes.

    References:
        FairGraphFL (AAAI 2024), appendix A.2; its rings are a cycle basis up to rotation.
    """
    if rings < 3:
        raise BadInput(f"rings of at most {rings} nodes: a ring has 3 or more")
    counters: list[Counter[Code]] = []
    for nodes, labels, links in _each(packed, chosen, categories):
        counters.append(_count(nodes, labels, links, rings))
    codes = sorted(set().union(*counters))
    place = {code: i for i, code in enumerate(codes)}
    entries = [
        (g, place[code], n) for g, counted in enumerate(counters) for code, n in sorted(counted.items())
    ]
    table = torch.tensor(entries, dtype=torch.long).reshape(-1, 3)
    return Motifs(
        torch.tensor(codes, dtype=torch.long).reshape(-1, width_of(rings)),
        table[:, 0],
        table[:, 1],
        table[:, 2],
        len(counters),
    )


def _each(
    packed: Data, chosen: Tensor, categories: bool
) -> Iterator[tuple[int, list[int], dict[tuple[int, int], int]]]:
    """Of each graph: how many nodes, their labels, and its links (smaller node first) with their kinds."""
    graphs = len(packed.y)
    labels = (packed.x[:, 0].long() if categories else packed.x.argmax(1)).tolist()
    sizes = torch.bincount(packed.graph, minlength=graphs)
    if not torch.equal(packed.graph, torch.repeat_interleave(torch.arange(graphs), sizes)):
        raise BadInput("the nodes of a packed set of graphs must stand graph by graph: make it with pack")
    starts = (torch.cumsum(sizes, 0) - sizes).tolist()
    attributes = packed.get("edge_attr")
    kinds = None if attributes is None else attributes.reshape(len(attributes), -1)
    of_link = torch.zeros(packed.edge_index.shape[1]) if kinds is None else _kind(kinds, categories)
    once = packed.edge_index[0] < packed.edge_index[1]
    links, of_link = packed.edge_index[:, once], of_link[once].long()
    owner = packed.graph[links[0]]
    order = torch.argsort(owner, stable=True)
    many = torch.bincount(owner, minlength=graphs).tolist()
    by_graph = links[:, order].t().split(many)
    kinds_by_graph = of_link[order].split(many)
    for g in chosen.tolist():
        start, size = starts[g], int(sizes[g])
        pairs = (by_graph[g] - start).tolist()
        kept = {(a, b): kind for (a, b), kind in zip(pairs, kinds_by_graph[g].tolist(), strict=True)}
        yield size, labels[start : start + size], kept


def _kind(attributes: Tensor, categories: bool) -> Tensor:
    return attributes[:, 0] if categories or attributes.shape[1] == 1 else attributes.argmax(1)


def _count(nodes: int, labels: list[int], links: dict[tuple[int, int], int], rings: int) -> Counter[Code]:
    width = width_of(rings)
    neighbours: list[set[int]] = [set() for _ in range(nodes)]
    for a, b in links:
        neighbours[a].add(b)
        neighbours[b].add(a)
    counter: Counter[Code] = Counter()
    on_ring: set[tuple[int, int]] = set()
    for ring in rings_of(neighbours, rings):
        counter[_padded((len(ring), *ring_form(tuple(labels[node] for node in ring))), width)] += 1
        on_ring.update((a, b) if a < b else (b, a) for a, b in zip(ring, ring[1:] + ring[:1], strict=True))
    for (a, b), kind in links.items():
        if (a, b) not in on_ring:
            counter[_padded((BOND, *sorted((labels[a], labels[b])), kind), width)] += 1
    return counter


def _padded(code: Code, width: int) -> Code:
    return code + (-1,) * (width - len(code))


def possible(labels: int, rings: int) -> int:
    """The number of possible motifs over that many labels, with one kind of link.

    >>> possible(3, 4)  # 6 bonds, 10 triangles, 21 squares
    37
    """
    total = labels * (labels + 1) // 2
    for n in range(3, rings + 1):  # necklaces that may be turned over (Burnside)
        turns = sum(labels ** math.gcd(i, n) for i in range(n))
        flips = (
            n * labels ** ((n + 1) // 2) if n % 2 else n // 2 * (labels ** (n // 2) + labels ** (n // 2 + 1))
        )
        total += (turns + flips) // (2 * n)
    return total


@cache
def _every(labels: int, rings: int) -> tuple[Code, ...]:
    width = width_of(rings)
    bonds = {_padded((BOND, *pair, 0), width) for pair in combinations_with_replacement(range(labels), 2)}
    circles = {
        _padded((n, *ring_form(ring)), width)
        for n in range(3, rings + 1)
        for ring in product(range(labels), repeat=n)
    }
    return tuple(sorted(bonds | circles))


def every_motif(labels: int, rings: int = 4) -> Tensor:
    """``[k, width]`` the codes of all motifs over some labels: a vocabulary that depends on no graph.

    Raises:
        BadInput: for more motifs than :data:`PUBLIC_MOST`.
    """
    count = possible(labels, rings)
    if count > PUBLIC_MOST:
        raise BadInput(
            f"{labels} labels make {count} motifs with rings of up to {rings}: a public vocabulary lists at "
            f"most {PUBLIC_MOST}; use training.vocabulary=exchanged"
        )
    return torch.tensor(_every(labels, rings), dtype=torch.long)


def idf(graph_counts: Tensor, graphs: int) -> Tensor:
    """``ln((1 + N) / (1 + N_m)) + 1``: how rare each motif is among ``graphs`` graphs (Eq. 16)."""
    return torch.log((1 + graphs) / (1 + graph_counts.double())) + 1


def most_distinctive(motifs: Motifs, keep: float, rarity: Tensor | None = None, support: int = 1) -> Tensor:
    """The motifs with the highest mean TF-IDF over the graphs that hold them (Eq. 16, 17).

    Args:
        keep: the share of motifs that is kept, rounded down, at least one; ties go to the smaller code.
        rarity: ``[k]`` idf over more graphs than these; by default the idf over these graphs.
        support: motifs in fewer graphs than this are left out first.

    Returns:
        Their numbers, ascending.
    """
    graph_counts = motifs.graph_counts
    rarity = idf(graph_counts, motifs.graphs) if rarity is None else rarity
    score = motifs.mean_count() * rarity
    supported = (graph_counts >= support).nonzero().flatten()
    if not len(supported):
        return supported
    order = torch.argsort(score[supported], descending=True, stable=True)
    return supported[order[: max(1, int(keep * len(supported)))]].sort().values


def places(codes: Tensor, vocabulary: Tensor) -> Tensor:
    """``[k]`` the position of each code in a vocabulary, -1 for a code that is not in it."""
    where = {tuple(code): i for i, code in enumerate(vocabulary.tolist())}
    return torch.tensor([where.get(tuple(code), -1) for code in codes.tolist()], dtype=torch.long)


def check_codes(codes: Tensor, labels: int, rings: int) -> str:
    """What is wrong with a list of codes from another party, in words; empty if nothing is.

    Args:
        codes: ``[k, width]`` of any type.
        labels: the number of labels.
    """
    width = width_of(rings)
    if codes.dim() != 2 or codes.shape[1] != width or not bool(torch.isfinite(codes.double()).all()):
        return f"not finite rows of {width} numbers"
    whole = codes.long()
    if not bool((whole == codes).all()):
        return "numbers that are not whole"
    rows = [tuple(row) for row in whole.tolist()]
    if len(set(rows)) != len(rows):
        return "a motif twice"
    for row in rows:
        size, body = row[0], row[1:]
        own = body[:size] if size in range(3, rings + 1) else body[:2]
        kind = body[2] if size == BOND else 0
        rest = body[3:] if size == BOND else body[size:]
        named = size in range(BOND, rings + 1) and all(0 <= n < labels for n in own) and kind >= 0
        if not named or any(n != -1 for n in rest) or own != ring_form(own):
            return "rows that are no motif in canonical form"
    return ""
