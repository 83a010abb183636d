"""From a matplotlib figure to a picture in a page: inline SVG in the page's own colours, and a PNG."""

from __future__ import annotations

import io
import re
import warnings
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from PIL import Image

# Drawn in these colours; in the page each becomes the style sheet's own: light, dark and print differ.
INK, MUTED, RULE, PAPER = "#1b2430", "#5a6573", "#d5dae1", "#fefefe"
LEAK, TRUE, GUESS, SAFE = "#b3261f", "#3d4d5f", "#c77700", "#1f6b52"
SERIES = ("#0072b2", "#b8730a", "#1f7a5c", "#8a4f9e", "#4a4f57", "#2b8fc7")
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    RULE: "--rule",
    PAPER: "--paper",
    LEAK: "--leak",
    TRUE: "--true",
    GUESS: "--guess",
    SAFE: "--safe",
    **{colour: f"--series-{i}" for i, colour in enumerate(SERIES)},
}
COLOURS = 48
"""How many colours a saved picture has."""
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "secure-fedgraph",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.unicode_minus": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "hatch.linewidth": 0.8,
}


@dataclass(frozen=True)
class Picture:
    """One figure of the page.

    Args:
        name: file name without ending, unique in a page.
        alt: what the picture shows, in words.
        svg: inline SVG, colours as style sheet variables, ids under the picture's name.
        png: the same on a white plate.
    """

    name: str
    alt: str
    svg: str
    png: bytes

    @property
    def data(self) -> str:
        """The PNG as a data URI."""
        return "data:image/png;base64," + b64encode(self.png).decode()


def draw(name: str, alt: str, paint: Callable[[Figure], None], width: float, height: float) -> Picture:
    """Paints a figure once and prints it twice.

    Args:
        paint: draws into the empty figure.
        width, height: inches.
    """
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        # A glyph that the PNG's font lacks shows as a box there; the page itself has the reader's fonts.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        figure = Figure(figsize=(width, height), layout="constrained")
        paint(figure)
        vector = io.StringIO()
        FigureCanvasSVG(figure).print_svg(vector, metadata={"Date": None})
        figure.set_layout_engine("none")  # laid out already; the PNG has the same layout
        figure.set_facecolor("white")
        figure.set_dpi(200)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        pixels = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
        # a few flat colours: a palette holds them in a third of the bytes, and pages carry all their pictures
        png = io.BytesIO()
        pixels.quantize(COLOURS, dither=Image.Dither.NONE).save(png, "PNG", optimize=True)
    return Picture(name, alt, inline(vector.getvalue(), name), png.getvalue())


def inline(svg: str, name: str) -> str:
    """An SVG file's text made fit for a page: no prologue, no style of its own, its ids under a prefix."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, count=1, flags=re.S)
    svg = re.sub(r"<style\b.*?</style>", "", svg, count=1, flags=re.S)
    svg = re.sub(r'<g id="[^"]+"', "<g", svg)  # nothing refers to these
    svg = re.sub(r' d="[^"]+"', _shorter, svg)
    svg = re.sub(r">\s+<", "><", svg).replace("<defs></defs>", "").replace("<defs/>", "")
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'xlink:href="#([^"]+)"', rf'href="#{name}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    head, body = svg.split(">", 1)
    box = re.search(r'viewBox="[^"]+"', head)
    # The words are in the figure's caption and in aria-label; a reader gets them once.
    return f'<svg class="plot" {box.group() if box else ""} aria-hidden="true" focusable="false">{body}'


def _shorter(path: re.Match[str]) -> str:
    """A path's numbers to a hundredth of a point, in one line."""
    return re.sub(r"\s+", " ", re.sub(r"(\.\d\d)\d+", r"\1", path[0]))
