"""FairGraphFL's first contact: which agents there are, how many graphs they have, which motifs they list."""

from __future__ import annotations

import torch
from torch import Tensor

from secure_fedgraph.algorithm import State
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
from secure_fedgraph.errors import BadInput, HostileMessage
from secure_fedgraph.seams import RoundApi


def meet_agents(round: RoundApi, state: State, settings: FairGraphFLSettings, lists: MotifLists) -> State:
    """In the first round asks for what is asked once; later checks that the agents are the same.

    Returns:
        The state with agents' names, equal values to start from, and their sizes and motifs where they count.

    Raises:
        BadInput: for other agents in a later round.
        HostileMessage: for a number of graphs that is none.
    """
    names = names_to_tensor(round.cohort)
    if AGENTS in state:
        if not torch.equal(state[AGENTS], names):
            raise BadInput("fairgraphfl asks the same agents in every round: their values are shares of one")
        return dict(state)
    agents = len(round.cohort)
    state = {
        **state,
        AGENTS: names,
        VALUES: torch.full((1, agents), 1 / agents, dtype=torch.float64),
        PAYOFFS: torch.zeros(0, agents, dtype=torch.float64),
        DIVERSITY: torch.zeros(agents, dtype=torch.float64),
    }
    if settings.weighting == "size":
        state[SIZES] = _ask_sizes(round)
    return state | lists.exchange(round, state)


def _ask_sizes(round: RoundApi) -> Tensor:
    """``[agents]`` training graphs."""
    sizes = torch.stack([values["graphs"].reshape(()) for values in round.gather(SIZE).values()])
    if not bool((torch.isfinite(sizes) & (sizes > 0)).all()):
        raise HostileMessage("an agent said a number of graphs that is none")
    return sizes.double()
