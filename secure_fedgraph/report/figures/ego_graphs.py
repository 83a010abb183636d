"""Guessed links as graphs: a node's neighbourhood as it is, and beside it as an attack had it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from secure_fedgraph.experiment.schema.audit import Neighbourhood, Reconstruction, Target
from secure_fedgraph.experiment.schema.part import JsonTable
from secure_fedgraph.loading import postponed
from secure_fedgraph.report import text
from secure_fedgraph.report.figures.drawn import Drawn, Table
from secure_fedgraph.report.figures.plots import WIDTH
from secure_fedgraph.report.figures.svg import INK, LEAK, PAPER, SERIES, TRUE, Picture, draw
from secure_fedgraph.report.grouping import alike, beside, by_place, stem

nx = postponed("networkx")
MOST_TARGETS = 3
RIGHT, MISSED, INVENTED, THERE = "right", "missed", "invented", "true"
# told apart by dash and width as well as by colour
LOOKS: Mapping[str, dict[str, Any]] = {
    THERE: {"color": TRUE, "linewidth": 1.8, "linestyle": "-"},
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
            THERE: self.true,
            RIGHT: self.true & self.guess,
            MISSED: self.true - self.guess,
            INVENTED: self.guess - self.true,
        }[kind]

    def places(self) -> dict[int, tuple[float, float]]:
        """One place for each node, the same on both sides: what is linked on either side pulls together."""
        union = nx.Graph()
        union.add_nodes_from(self.nodes)
        union.add_edges_from(sorted(self.true | self.guess))
        around = nx.circular_layout(self.nodes)
        layout = nx.kamada_kawai_layout(union, pos=around) if nx.is_connected(union) else around
        return {v: (float(x), float(y)) for v, (x, y) in layout.items()}

    def counts(self) -> str:
        """How many links there are of each kind, in words."""
        counts = ", ".join(f"{len(self.of(kind))} {kind}" for kind in (RIGHT, MISSED, INVENTED))
        return f"{counts} of {len(self.true)} true"


def ego_graphs(code: str, guesses: Sequence[Reconstruction]) -> list[Drawn]:
    """A picture for each policy, adversary and aim, as configured, or in the first control where not run.

    Policies under which the attack said the same share one.
    """
    drawn = []
    records = by_place(guesses, lambda record: bool(samples_of(record)))
    for group in alike(records, lambda one, other: _graphs(one) == _graphs(other)):
        samples, policies = samples_of(group.record), group.policies
        who = text.named(text.ADVERSARIES, group.record.adversary)
        caption = f"{text.listed(policies)}: links that {who} reads, around a random node{beside(group)}"
        counts = "; ".join(f"{s.owner}: {s.counts()}" for s in samples)
        name = stem(code, policies[0], group.record)
        drawn.append(Drawn(picture(name, samples, f"{caption}. {counts}."), caption, _table(samples)))
    return drawn


def samples_of(record: Reconstruction) -> list[Sample]:
    """The neighbourhoods of a few targets that have one."""
    samples = []
    for target in record.targets:
        if target.graph:
            with suppress(ValueError):
                samples.append(Sample(target))
    return samples[:MOST_TARGETS]


def picture(name: str, samples: Sequence[Sample], alt: str) -> Picture:
    """Two small graphs a sample, true on the left and guessed on the right."""

    def paint(figure: Figure) -> None:
        panels = figure.subplots(len(samples), 2, squeeze=False)
        for (left, right), sample in zip(panels, samples, strict=True):
            paint_graph(left, sample, (THERE,))
            paint_graph(right, sample, (MISSED, INVENTED, RIGHT))
            left.set_title(f"{sample.owner}: true", fontweight="bold")
            right.set_title("guessed", fontweight="bold")
        handles = [Line2D([], [], **LOOKS[kind], label=kind) for kind in (RIGHT, MISSED, INVENTED)]
        figure.legend(handles=handles, loc="outside lower center", ncols=3, handlelength=3.0)

    return draw(name, alt, paint, WIDTH, 0.45 + 2.2 * len(samples))


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


def _table(samples: Sequence[Sample]) -> Table:
    """Every true or guessed link, by the letters in the picture and the nodes' numbers."""
    rows = []
    for sample in samples:
        more = f" ({sample.left_out} more neighbours not drawn)" if sample.left_out else ""
        for kind in (RIGHT, MISSED, INVENTED):
            for one, other in sorted(sample.of(kind), key=lambda link: sample.centre not in link):
                if other == sample.centre:
                    one, other = other, one
                letters = f"{sample.names[one]}\u2013{sample.names[other]}"
                rows.append([f"{sample.owner}{more}", letters, f"{one}\u2013{other}", kind])
    return Table(["owner", "link", "nodes", "the guess"], rows)


def _graphs(record: Reconstruction) -> list[tuple[str, JsonTable]]:
    return [(target.owner, target.graph) for target in record.targets]


def _links(pairs: Sequence[Sequence[int]]) -> set[Link]:
    return {(min(a, b), max(a, b)) for a, b in pairs}


def _letters() -> itertools.chain[str]:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return itertools.chain(alphabet, (f"{a}{b}" for a in alphabet for b in alphabet))
