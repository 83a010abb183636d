"""What a reader read, drawn over the truth: bars of counts, strips of words, links around a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from secure_fedgraph.report.figures.ego_graphs import INVENTED, LOOKS, MISSED, RIGHT, Sample, paint_graph
from secure_fedgraph.report.figures.svg import GUESS, INK, MUTED, SAFE, TRUE, Picture, draw

WIDE, TALL = 5.2, 2.35
"""Inches of one panel: two pictures stand side by side on a desk, and are readable on a phone."""
MOST_NAMES = 4
"""Of words that are listed below a strip."""
NOTHING = "nothing was read"
LINK_KINDS = (MISSED, INVENTED, RIGHT)
"""Of links, in the order in which they are drawn."""


@dataclass(frozen=True)
class Bars:
    """Numbers by class or by feature.

    Args:
        title: whose numbers, and of what.
        true, read: as many of each; ``read`` is None where there was nothing to read.
        names: of the bars.
        unit: what a bar counts, for sentences.
        why: what is printed where nothing was read.
    """

    title: str
    true: np.ndarray
    read: np.ndarray | None
    names: Sequence[str]
    unit: str = ""
    why: str = NOTHING

    tall = 1.0

    def paint(self, axes: Axes) -> None:
        places = np.arange(len(self.true))
        low, high = min(0.0, float(self.true.min())), max(float(self.true.max()), 1e-9)
        if self.read is not None:
            shown = np.clip(self.read, 1.2 * low, 1.2 * high)
            axes.bar(places, shown, width=0.62, color=GUESS)
            for place, value in zip(places.tolist(), self.read.tolist(), strict=True):
                if value > 1.2 * high:
                    axes.text(place, 1.22 * high, _short(value), ha="center", color=INK, fontsize=8)
        axes.bar(places, self.true, width=0.78, fill=False, edgecolor=TRUE, linewidth=1.6)
        many = len(places) > 10
        axes.set_xticks([] if many else list(places), [] if many else list(self.names))
        axes.set_title(self.title)
        axes.set_ylim(1.28 * low, 1.36 * high)
        axes.tick_params(length=0, labelsize=8.5)
        if self.read is None:
            _say(axes, self.why)

    def said(self) -> str:
        if self.read is None:
            return f"{self.title}: {self.why}."
        near = min(
            0.5, 0.02 * float(np.abs(self.true).max())
        )  # half a node of counts; little of small values
        right = int(np.isclose(self.read, self.true, atol=near, rtol=0.02).sum())
        return f"{self.title}: {right} of {len(self.true)} {self.unit or 'values'} read right."

    def rows(self) -> list[list[object]]:
        read = ["–"] * len(self.true) if self.read is None else [f"{value:.4g}" for value in self.read]
        return [
            [f"{self.title}, {name}", f"{true:.4g}", got]
            for name, true, got in zip(self.names, self.true, read, strict=True)
        ]


@dataclass(frozen=True)
class Words:
    """Which of many words a node, or an owner, has.

    Args:
        title: whose words.
        true, read: the places of the words; ``read`` is None where there was nothing to read.
        of: how many words there are.
        names: of all words, where the data have them.
        why: what is printed where nothing was read.
    """

    title: str
    true: np.ndarray
    read: np.ndarray | None
    of: int
    names: Sequence[str] = ()
    why: str = NOTHING

    @property
    def tall(self) -> float:
        return 0.62 if self._listed() else 0.5

    def paint(self, axes: Axes) -> None:
        axes.vlines(self.true, 0.08, 1, color=TRUE, linewidth=1.3)
        axes.axhline(0, color=MUTED, linewidth=0.8)
        if self.read is not None:
            axes.vlines(self.read, -1, -0.08, color=GUESS, linewidth=1.3)
        axes.set_xlim(-0.015 * self.of, self.of * 1.015)
        axes.set_ylim(-1.15, 1.15)
        axes.set_yticks([0.55, -0.55], ["true", "read"])
        axes.set_xticks([])
        axes.set_title(f"{self.title}: {self._counted()}")
        if listed := self._listed():
            axes.set_xlabel(listed, fontsize=8.5)
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        axes.tick_params(length=0)
        if self.read is None:
            axes.text(self.of / 2, -0.55, self.why, ha="center", va="center", color=SAFE, fontsize=10.5)

    def _counted(self) -> str:
        if self.read is None:
            return f"none of {len(self.true):,} read"
        right = len(np.intersect1d(self.true, self.read))
        wrong = len(self.read) - right
        more = f", {wrong:,} wrong" if wrong else ""
        return f"{right:,} of {len(self.true):,} read{more}"

    def _listed(self) -> str:
        """A few of the words that were read and are right, by name."""
        if self.read is None or not self.names:
            return ""
        right = np.intersect1d(self.true, self.read)[:MOST_NAMES]
        return "read: " + ", ".join(str(self.names[place])[:24] for place in right) if len(right) else ""

    def said(self) -> str:
        return f"{self.title}, of {self.of:,} words: {self._counted()}."

    def rows(self) -> list[list[object]]:
        def told(places: np.ndarray | None) -> str:
            if places is None:
                return "–"
            shown = [str(self.names[p]) if self.names else str(p) for p in places[:40]]
            return ", ".join(shown) + (", …" if len(places) > 40 else "")

        return [[self.title, told(self.true), told(self.read)]]


@dataclass(frozen=True)
class Links:
    """The links around a node.

    Args:
        title: whose links.
        sample: true and guessed.
        read: whether there was anything to read.
    """

    title: str
    sample: Sample
    read: bool

    tall = 1.35

    def paint(self, axes: Axes) -> None:
        paint_graph(axes, self.sample, LINK_KINDS if self.read else (MISSED,), unread=not self.read)
        axes.set_title(f"{self.title}: {self._counted()}")

    def _counted(self) -> str:
        links = len(self.sample.true)
        if not self.read:
            return f"none of {links} read"
        wrong = len(self.sample.of(INVENTED))
        more = f", {wrong} invented" if wrong else ""
        return f"{len(self.sample.of(RIGHT))} of {links} read{more}"

    def said(self) -> str:
        more = f"; {self.sample.left_out} more neighbours not drawn" if self.sample.left_out else ""
        return f"{self.title}: {self._counted()}{more}."

    def rows(self) -> list[list[object]]:
        kinds, names = (RIGHT, MISSED, INVENTED), self.sample.names
        told = ((a, b, kind) for kind in kinds for a, b in sorted(self.sample.of(kind)))
        return [
            [f"link {names[a]}–{names[b]} (nodes {a} and {b})", "no" if kind == INVENTED else "yes",
             "–" if not self.read else "no" if kind == MISSED else "yes"]
            for a, b, kind in told
            if self.read or kind != INVENTED
        ]  # fmt: skip


Panel = Bars | Words | Links
"""One thing that a reader wanted, and what it got: it paints itself, says so, and has its numbers."""


def _short(value: float) -> str:
    """A number above a bar that is cut.

    >>> _short(12345.6), _short(0.3099)
    ('12,346', '0.31')
    """
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.2g}"


def _say(axes: Axes, what: str) -> None:
    """A few words in the empty place above bars."""
    axes.text(0.5, 0.9, what, transform=axes.transAxes, ha="center", va="center", color=SAFE, fontsize=12)


def stolen(name: str, caption: str, panels: Sequence[Panel], reader: str) -> Picture:
    """One picture of what a reader read under one policy.

    Args:
        name: of the picture.
        caption: that stands above it.
        panels: one below the other.
        reader: in the legend, such as ``the server``.
    """

    def paint(figure: Figure) -> None:
        several = figure.subplots(len(panels), 1, squeeze=False, height_ratios=[one.tall for one in panels])
        for axes, panel in zip(several[:, 0], panels, strict=True):
            panel.paint(axes)
        handles: list[Artist] = [
            Patch(fill=False, edgecolor=TRUE, linewidth=1.6, label="true"),
            Patch(color=GUESS, label=f"read by {reader}"),
        ]
        if not any(isinstance(panel, Bars | Words) for panel in panels):
            handles = []
        if any(isinstance(panel, Links) for panel in panels):
            handles += [Line2D([], [], **LOOKS[kind], label=f"link {kind}") for kind in LINK_KINDS]
        if handles:
            figure.legend(handles=handles, loc="outside lower left", ncols=3, fontsize=8.5, handlelength=2.6)

    alt = f"{caption}. {' '.join(panel.said() for panel in panels)}"
    return draw(name, alt, paint, WIDE, 0.4 + TALL * sum(panel.tall for panel in panels))
