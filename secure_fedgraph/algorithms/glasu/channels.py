"""What leaves a client of GLASU, and who reads it."""

from __future__ import annotations

from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.guarantee import Unit

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
