"""The kinds of what clients randomise, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secure_fedgraph.privacy.input_dp.features import MultiBitFeatures
from secure_fedgraph.privacy.input_dp.labels import DividedLabels, RandomisedLabels
from secure_fedgraph.privacy.input_dp.links import DividedLinks, RandomisedLinks
from secure_fedgraph.privacy.input_dp.randomizer import InputRandomizer

RANDOMIZERS: dict[str, type[InputRandomizer]] = {
    one.kind: one for one in (MultiBitFeatures, RandomisedLabels, RandomisedLinks)
}
"""In the order in which they are randomised: links are chosen by features, by the randomised ones then."""


def randomizer_of(config: Mapping[str, Any]) -> InputRandomizer:
    """The inverse of :meth:`~secure_fedgraph.privacy.input_dp.randomizer.InputRandomizer.to_config`."""
    settings = dict(config)
    kind = RANDOMIZERS[settings.pop("kind")]
    divided: dict[str, type[InputRandomizer]] = {"clients": DividedLinks, "homes": DividedLabels}
    return next((divided[key] for key in divided if key in settings), kind)(**settings)


def in_order(randomizers: tuple[InputRandomizer, ...]) -> tuple[InputRandomizer, ...]:
    """In the order in which they are randomised."""
    order = list(RANDOMIZERS)
    return tuple(sorted(randomizers, key=lambda one: order.index(one.kind)))
