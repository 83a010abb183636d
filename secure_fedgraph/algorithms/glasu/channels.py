"""What leaves a client of GLASU, and who reads it; and what a request holds, which the door checks."""

from __future__ import annotations

from secure_fedgraph.algorithms.glasu.checks import MOST_NODES
from secure_fedgraph.algorithms.glasu.settings import GlasuSettings
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.inputs import Entries, Expected, Integers, Numbers, Texts, Whole

_OF_TWO = (
    "the mean goes back to both of 2 clients, and each learns the other's rows by subtracting its own; take "
    "3 clients or more, or accept it with training.accept_two_clients=true"
)

SAMPLE = Channel("sample", Reveal.EACH, Unit.EDGE, exact=True)
"""The nodes that a client sampled."""
LINKS = Channel("randomised_links", Reveal.EACH, Unit.EDGE, to="peer", exact=True)
"""The links that a client randomised, of the pairs of nodes that are its part, for the other clients."""
HIDDEN = Channel("hidden", Reveal.SUM, Unit.NODE, min_clients=3, too_few_message=_OF_TWO)
"""A client's rows of an aggregated layer."""
BACKWARD = Channel("backward", Reveal.SUM, Unit.NODE, min_clients=3, too_few_message=_OF_TWO)
"""The gradient of a client's loss at an aggregated layer."""
STEP = Channel("step", Reveal.NOTHING)
"""The order to update."""
EXAMINE = Channel("examine", Reveal.EACH, Unit.NODE, to="referee")
"""A client's rows on the whole graph, and class scores of all nodes."""

MOST_SEED = 2**32
PARTIES = Texts(most=65_535, longest=255)
MEAN: Entries = {"aggregate": Numbers((None, None)), "summands": Whole(1)}
"""A mean over clients, and over how many."""
ROWS: Expected = ({"rows": Numbers((None, None))},)
"""What a client sends its peers."""
PAIRS: Expected = ({"pairs": Numbers((None, 2))},)
"""Randomised links: two node numbers each, the lower first."""


def task(settings: GlasuSettings) -> Entries:
    """What every request of an iteration holds."""
    return {"step": Whole(0, settings.steps - 1), "seed": Whole(0, MOST_SEED - 1), "parties": PARTIES}


def request(channel: str, settings: GlasuSettings) -> Expected | None:
    """The forms that a request may have.

    Args:
        channel: its name.
        settings: of the algorithm.

    Returns:
        The forms; None for a channel that is not GLASU's.
    """
    whole = task(settings)
    segments = len(settings.aggregated)
    of_segment: Entries = {**whole, "segment": Whole(0, segments - 1)}
    sampled: Entries = {**whole, "segment": Whole(1, segments - 1)}
    nodes: Entries = {"nodes": Integers((None,), 0, MOST_NODES)}
    gradient: Entries = {"gradient": Numbers((None, None))}
    examined: Entries = {"parties": PARTIES, "nodes": Whole(1), "segment": Whole(0, segments)}
    forms: dict[str, Expected] = {
        LINKS.name: ({"parties": PARTIES},),
        SAMPLE.name: (sampled, {**sampled, **nodes}),
        HIDDEN.name: (of_segment, {**of_segment, **nodes}, {**of_segment, **MEAN}),
        BACKWARD.name: ({**of_segment, **MEAN}, {**of_segment, **gradient}),
        STEP.name: ({**whole, **MEAN}, {**whole, **gradient}),
        EXAMINE.name: (examined, {**examined, "aggregate": Numbers((None, None))}),
    }
    return forms.get(channel)
