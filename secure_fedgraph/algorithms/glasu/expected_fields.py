"""What a request of GLASU holds, by channel: the client's door checks it before anything is computed."""

from __future__ import annotations

from secure_fedgraph.algorithms.glasu.channels import BACKWARD, EXAMINE, HIDDEN, LINKS, SAMPLE, STEP
from secure_fedgraph.algorithms.glasu.checks import MOST_NODES
from secure_fedgraph.algorithms.glasu.settings import GlasuSettings
from secure_fedgraph.core.given import Entries, Expected, Integers, Numbers, Texts, Whole

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
