"""Guessed links as a graph: a node's neighbourhood, with what an attack read, missed and invented."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from secure_fedgraph.experiment.schema.audit import Neighbourhood, Target
from secure_fedgraph.loading import postponed
from secure_fedgraph.report.figures.svg import INK, LEAK, PAPER, SERIES, TRUE

nx = postponed("networkx")
RIGHT, MISSED, INVENTED = "right", "missed", "invented"
# told apart by dash and width as well as by colour
LOOKS: Mapping[str, dict[str, Any]] = {
    RIGHT: {"color": SERIES[0], "linewidth": 2.8, "linestyle": "-"},
    MISSED: {"color": TRUE, "linewidth": 1.3, "linestyle": (0, (1, 2))},
    INVENTED: {"color": LEAK, "linewidth": 1.6, "linestyle": (0, (5, 2))},
}
Link = tuple[int, int]


class Sample:
    """A neighbourhood, true and guessed.

    Args:
        target: whose ``graph`` is a neighbourhood.

    Raises:
        ValueError: where it is not.
    """

    def __init__(self, target: Target) -> None:
        graph = Neighbourhood.model_validate(target.graph)
        self.owner, self.centre, self.left_out = target.owner, graph.centre, graph.left_out
        self.nodes = [graph.centre, *(node for node in graph.nodes if node != graph.centre)]
        self.true, self.guess = _links(graph.true), _links(graph.guess)
        self.names = dict(zip(self.nodes, _letters(), strict=False))

    def of(self, kind: str) -> set[Link]:
        """The links of a kind."""
        return {
            RIGHT: self.true & self.guess,
            MISSED: self.true - self.guess,
            INVENTED: self.guess - self.true,
        }[kind]

    def places(self) -> dict[int, tuple[float, float]]:
        """One place for each node: what is linked, or was guessed to be, pulls together."""
        union = nx.Graph()
        union.add_nodes_from(self.nodes)
        union.add_edges_from(sorted(self.true | self.guess))
        around = nx.circular_layout(self.nodes)
        layout = nx.kamada_kawai_layout(union, pos=around) if nx.is_connected(union) else around
        return {v: (float(x), float(y)) for v, (x, y) in layout.items()}


def paint_graph(axes: Axes, sample: Sample, kinds: Sequence[str], *, unread: bool = False) -> None:
    """The nodes of a neighbourhood, and its links of some kinds.

    Args:
        unread: whether nothing was guessed, so that every true link was missed.
    """
    places, gap = sample.places(), (np.nan, np.nan)
    for kind in kinds:  # one line with gaps for all links of a kind: a small page
        links = sample.true if unread else sample.of(kind)
        ends = [place for a, b in sorted(links) for place in (places[a], places[b], gap)]
        if ends:
            axes.plot(*zip(*ends, strict=True), **LOOKS[kind], zorder=1, solid_capstyle="round")
    xs, ys = zip(*places.values(), strict=True)
    axes.plot(xs, ys, "o", markersize=13, markeredgecolor=INK, markerfacecolor=PAPER, zorder=2)
    axes.plot(*places[sample.centre], "o", markersize=13, markeredgecolor=INK, markerfacecolor=INK, zorder=3)
    for node, (x, y) in places.items():
        ink = PAPER if node == sample.centre else INK
        axes.text(
            x, y, sample.names[node], ha="center", va="center_baseline", zorder=4, fontsize=8, color=ink
        )
    axes.margins(0.12)
    axes.set_axis_off()


def _links(pairs: Sequence[Sequence[int]]) -> set[Link]:
    return {(min(a, b), max(a, b)) for a, b in pairs}


def _letters() -> itertools.chain[str]:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return itertools.chain(alphabet, (f"{a}{b}" for a in alphabet for b in alphabet))
