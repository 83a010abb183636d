"""FairGraphFL's channels: what leaves an agent, what the server learns of it, and what an agent is given."""

from __future__ import annotations

from dataclasses import replace

from secure_fedgraph.algorithms.fairgraphfl import motifs
from secure_fedgraph.algorithms.fairgraphfl.settings import FairGraphFLSettings
from secure_fedgraph.algorithms.fairgraphfl.state import KNOWN, PROTOTYPES, SEED
from secure_fedgraph.core.channel import Channel, Reveal, UnitContribution
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.inputs import NOTHING, Entries, Expected, Integers, Numbers, Real, Whole

OF_VALUE = (
    "an agent's value is its own gradient's agreement with the rest "
    "(training.valuation=encrypted computes it unread)"
)
OF_DIVERSITY = "an agent's diversity is its own share of all motifs"
OF_ROWS = (
    "with training.prototypes=each rows are matched to what their agent said it has (use "
    "training.prototypes=sum or none, or the algorithm fairgraphfl-bounded)"
)

UPDATE = Channel("update", Reveal.EACH, why=OF_VALUE)
MOTIFS = Channel("motifs", Reveal.EACH, Unit.GRAPH, exact=True, why=OF_DIVERSITY)
SHARED_VOCABULARY = Channel("vocabulary", Reveal.NOTHING)
PROTOTYPE_SUMS = Channel("prototype_sums", Reveal.SUM, Unit.GRAPH)
REWARD = Channel("reward", Reveal.NOTHING, alike=False)

# ablations and readings of the paper
SIZE = Channel("size", Reveal.EACH)
PROTOTYPES_OF_EACH = Channel("prototypes", Reveal.EACH, Unit.GRAPH)

# what policies ask for instead
VALUED_UPDATE = Channel("valued_update", Reveal.VALUES)
PRESENCE = Channel("motif_presence", Reveal.EACH, Unit.GRAPH, why=OF_DIVERSITY)
VALUED_LISTS = Channel("valued_lists", Reveal.VALUES, Unit.GRAPH)

# diversity that is shared
SHARE = 1 / 1024
"""What one graph adds at most to a sum over graphs, so that those of some thousands fit the default limit."""
FINGERPRINTS = Channel(
    "fingerprints",
    Reveal.EACH,
    Unit.GRAPH,
    to="peer",
    exact=True,
    why="agents see by them which of their graphs others hold too (training.copies=own does without)",
)
STRUCTURE = Channel(
    "structure",
    Reveal.EACH,
    Unit.GRAPH,
    why="an agent's diversity is its own share of all structure",
    unit_contribution=UnitContribution(1, SHARE),
)

ONCE = (FINGERPRINTS, STRUCTURE, SIZE, VALUED_LISTS)
ASKS = {**dict.fromkeys((one.name for one in ONCE), 1), MOTIFS.name: 2, PRESENCE.name: 2}
"""How often an agent is asked in a run, at most; on other channels it is asked every round."""


def of_chosen_lists(settings: FairGraphFLSettings) -> Channel:
    """The channel of motif lists that are chosen by TF-IDF and read one by one."""
    if settings.vocabulary == "exchanged":
        return MOTIFS
    if settings.prototypes == "each":  # an agent's rows are matched to the motifs that it listed
        return replace(PRESENCE, exact=True, why=OF_ROWS)
    return PRESENCE


def expected_fields(channel: str, settings: FairGraphFLSettings) -> Expected | None:
    """What an agent may be given on a channel, but for rewards; None for a channel of none of these names."""
    if channel in (UPDATE.name, VALUED_UPDATE.name):
        seed: Entries = {SEED: Whole()}
        prototypes: Entries = {PROTOTYPES: Numbers((None, settings.hidden)), KNOWN: Integers((None,), 0, 1)}
        return (seed,) if settings.prototypes == "none" else (seed, {**seed, **prototypes})
    if channel in (MOTIFS.name, PRESENCE.name):
        return motifs.expected_idf(settings)
    if channel == SHARED_VOCABULARY.name:
        return ({motifs.CODES: motifs.expected_codes(settings)},)
    given_nothing = (FINGERPRINTS, STRUCTURE, VALUED_LISTS, PROTOTYPES_OF_EACH, PROTOTYPE_SUMS)
    return NOTHING if channel in [one.name for one in given_nothing] else None


def expected_reward(components: int) -> Expected:
    """The form of a reward: some of the aggregate's components, the agent's new value and its payoff.

    Args:
        components: how many the aggregate has.
    """
    places = Integers((None,), 0, components - 1)
    return ({"places": places, "amounts": Numbers((None,)), "value": Real(), "payoff": Real()},)
