"""FairGraphFL's first contact: which agents there are, how many graphs they have, which motifs they list."""

from __future__ import annotations

import torch
from torch import Tensor

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fairgraphfl import shared_structure
from secure_fedgraph.algorithms.fairgraphfl.channels import SIZE
from secure_fedgraph.algorithms.fairgraphfl.motif_lists import MotifLists
from secure_fedgraph.algorithms.fairgraphfl.settings import FairGraphFLSettings
from secure_fedgraph.algorithms.fairgraphfl.state import (
    AGENTS,
    DIVERSITY,
    PAYOFFS,
    SIZES,
    VALUES,
    names_to_tensor,
)
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.seams import RoundApi


def meet_agents(round: RoundApi, state: State, settings: FairGraphFLSettings, lists: MotifLists) -> State:
    """In the first round asks for what is asked once; later checks that the agents are the same.

    Returns:
        The state with agents' names, equal values to start from, and their sizes and motifs where they count.

    Raises:
        BadInput: for other agents in a later round.
        HostileMessage: for a number of graphs that is none.
    """
    if are_known(round, state, "fairgraphfl"):
        return dict(state)
    agents = len(round.cohort)
    state = {
        **state,
        AGENTS: names_to_tensor(round.cohort),
        VALUES: torch.full((1, agents), 1 / agents, dtype=torch.float64),
        PAYOFFS: torch.zeros(0, agents, dtype=torch.float64),
        DIVERSITY: torch.zeros(agents, dtype=torch.float64),
    }
    if settings.weighting == "size":
        state[SIZES] = ask_sizes(round)
    state |= lists.exchange(round, state)
    if shared_structure.counts_structure(settings):
        # nobody is worth anything for being there: two agents are worth what one with both's graphs is
        state[DIVERSITY] = shared_structure.exchange(round, settings)
        state[VALUES] = state[DIVERSITY][None]
    return state


def are_known(round: RoundApi, state: State, algorithm: str) -> bool:
    """Whether the state has the agents already.

    Args:
        algorithm: whose agents they are, for the refusal.

    Raises:
        BadInput: where it has others.
    """
    known = state.get(AGENTS)
    if known is not None and not torch.equal(known, names_to_tensor(round.cohort)):
        raise BadInput(f"{algorithm} asks the same agents in every round: their values are shares of one")
    return known is not None


def ask_sizes(round: RoundApi) -> Tensor:
    """``[agents]`` training graphs, at least 1: noise may leave less of a number.

    Raises:
        HostileMessage: for a number that is not finite.
    """
    sizes = torch.stack([values["graphs"].reshape(()) for values in round.gather(SIZE).values()])
    if not bool(torch.isfinite(sizes).all()):
        raise HostileMessage("an agent's number of graphs is not finite")
    return sizes.double().clamp(min=1)
