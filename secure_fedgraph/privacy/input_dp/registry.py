"""The kinds of what clients draw anew, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secure_fedgraph.privacy.input_dp.features import MultiBitFeatures
from secure_fedgraph.privacy.input_dp.labels import RandomisedLabels
from secure_fedgraph.privacy.input_dp.links import RandomisedLinks
from secure_fedgraph.privacy.input_dp.randomizer import Redrawn

DRAWINGS: dict[str, type[Redrawn]] = {
    one.kind: one for one in (MultiBitFeatures, RandomisedLabels, RandomisedLinks)
}
"""In the order in which they are drawn: links are chosen by features, so by those that were drawn."""


def drawing(told: Mapping[str, Any]) -> Redrawn:
    """The inverse of :meth:`~secure_fedgraph.privacy.input_dp.randomizer.Redrawn.told`."""
    settings = dict(told)
    return DRAWINGS[settings.pop("kind")](**settings)


def in_order(drawn: tuple[Redrawn, ...]) -> tuple[Redrawn, ...]:
    """As they are drawn."""
    order = list(DRAWINGS)
    return tuple(sorted(drawn, key=lambda one: order.index(one.kind)))
