"""One of the three figures of a first screen."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from secure_fedgraph.experiment.schema.part import Delta, Epsilon
from secure_fedgraph.report import text


@dataclass(frozen=True)
class KeyFigure:
    """A figure with what it stands beside.

    Args:
        title: what it is.
        figure: as it is printed; empty where there is none.
        unit: in small letters behind it.
        state: the card's look: ``nothing`` (read, or more than a bound), ``leaks``, ``together``, ``plain``.
        lines: what it stands beside.
    """

    title: str
    figure: str
    unit: str
    state: str
    lines: list[str]


def in_words(epsilon: Epsilon, whose: str, delta: Delta | None = None) -> Markup:
    """What an epsilon says.

    Args:
        whose: the unit, in words.
        delta: where it is known.

    >>> in_words(2.0, "one node")
    Markup('With and without one node, nothing that is seen is more than e<sup>2</sup> times as likely.')
    """
    but = "" if delta is None else f" (δ = {text.scientific(delta)})"
    told = Markup("With and without {}, nothing that is seen is more than e<sup>{}</sup> times as likely{}.")
    return told.format(whose, text.epsilon(epsilon), but)
