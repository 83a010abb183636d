"""The kinds of what clients randomise, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secure_fedgraph.privacy.input_dp.features import MultiBitFeatures
from secure_fedgraph.privacy.input_dp.labels import RandomisedLabels
from secure_fedgraph.privacy.input_dp.links import RandomisedLinks
from secure_fedgraph.privacy.input_dp.randomizer import InputRandomizer

DRAWINGS: dict[str, type[InputRandomizer]] = {
    one.kind: one for one in (MultiBitFeatures, RandomisedLabels, RandomisedLinks)
}
"""In the order in which they are randomised: links are chosen by features, by the randomised ones then."""


def drawing(config: Mapping[str, Any]) -> InputRandomizer:
    """The inverse of :meth:`~secure_fedgraph.privacy.input_dp.randomizer.InputRandomizer.to_config`."""
    settings = dict(config)
    return DRAWINGS[settings.pop("kind")](**settings)


def in_order(drawn: tuple[InputRandomizer, ...]) -> tuple[InputRandomizer, ...]:
    """In the order in which they are randomised."""
    order = list(DRAWINGS)
    return tuple(sorted(drawn, key=lambda one: order.index(one.kind)))
