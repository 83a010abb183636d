"""The kinds of what clients randomise, by name."""

from __future__ import annotations

from secure_fedgraph.privacy.input_dp.features import MultiBitFeatures
from secure_fedgraph.privacy.input_dp.labels import RandomisedLabels
from secure_fedgraph.privacy.input_dp.links import RandomisedLinks
from secure_fedgraph.privacy.input_dp.randomizer import InputRandomizer

RANDOMIZERS: dict[str, type[InputRandomizer]] = {
    one.kind: one for one in (MultiBitFeatures, RandomisedLabels, RandomisedLinks)
}
"""In the order in which they are randomised: links are chosen by features, by the randomised ones then."""


def in_order(randomizers: tuple[InputRandomizer, ...]) -> tuple[InputRandomizer, ...]:
    """In the order in which they are randomised."""
    order = list(RANDOMIZERS)
    return tuple(sorted(randomizers, key=lambda one: order.index(one.kind)))
