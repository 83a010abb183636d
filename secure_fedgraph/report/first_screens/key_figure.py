"""One of the three figures of a first screen."""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup

from secure_fedgraph.experiment.schema.part import Delta, Epsilon
from secure_fedgraph.report import text

PLAIN = 10.0
"""Up to this epsilon a factor is printed as a number too."""


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

    >>> in_words(2.0, "a node")
    Markup('With and without a node, nothing that is seen is more than 7.4 (e<sup>2</sup>) times as likely.')
    """
    but = "" if delta is None else f" (δ = {text.scientific(delta)})"
    told = Markup("With and without {}, nothing that is seen is more than {} times as likely{}.")
    return told.format(whose, factor(epsilon), but)


def factor(epsilon: Epsilon) -> Markup:
    """How many times as likely something may be; only as a power where the number says nothing any more.

    >>> factor(2.0), factor(30.0)
    (Markup('7.4 (e<sup>2</sup>)'), Markup('e<sup>30.0</sup>'))
    """
    power = Markup("e<sup>{}</sup>").format(text.epsilon(epsilon))
    value = text.real(epsilon)
    if value is None or value > PLAIN:
        return power
    told = f"{math.exp(value):.2g}" if value < math.log(10) else text.count(round(math.exp(value)))
    return Markup("{} ({})").format(told, power)
