"""E6: what payoffs say: whose data are of low quality, and how many graphs the other agents have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from secure_fedgraph.attacks.attack import CLIENT, SERVER, Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.protocol import View

QUALITY, GRAPHS_OF_OTHERS = "quality of data", "training graphs of the other agents"
REWARD = "reward"
"""The channel on which FairGraphFL and its baselines give each agent its value and its payoff."""
DIFFERENT, OWN_GRAPHS = "agents differ in quality", "own number of training graphs"
BY_SIZE = "dw"
"""The algorithm whose payoffs are shares of all training graphs."""


def payoffs(attack: str, view: View) -> dict[str, np.ndarray]:
    """Agent -> its payoff of each round, of the agents whose rewards this view shows.

    Raises:
        Blind: where it shows none.
    """
    paid: dict[str, list[float]] = {}
    if REWARD in view.public.get("channels", {}):
        for seen in view.asked(REWARD):
            paid.setdefault(seen.clients[0], []).append(float(np.asarray(seen.values["payoff"])))
    if not paid:
        raise Blind(f"{attack}: no payoff is in this view")
    return {agent: np.array(mine) for agent, mine in sorted(paid.items())}


class PayoffQuality(Attack):
    """E6: the agent that is paid least has the worst data, where the reward pays for quality.

    The server makes the payoffs, also where it values the updates unread; so would anybody who reads a public
    list of them. It ranks agents by what they were paid on average over the rounds. That is what such a
    reward is for: the attack measures how much one learns by it, and of which rewards one learns nothing.

    References:
        Xu et al., Gradient-Driven Rewards to Guarantee Fairness in Collaborative Machine Learning, NeurIPS
        2021, for values that follow the quality of data.
    """

    id = "e6-payoff-quality"
    title = "whose data are of low quality, from payoffs"
    subject = "quality of data"
    family = "payoffs"
    summary = "whose data are of low quality, from payoffs"
    channel = REWARD
    cost = "one mean an agent"
    grants = ("that the agents' data differ in quality",)
    needs = (DIFFERENT,)
    controls = (
        Control(
            "thirty agents of three qualities and shared diversity",
            {"rounds": 5, "clients": 30, "split.perturbed": True, "training.diversity": "shared"},
        ),
        Control("thirty agents of three qualities", {"rounds": 5, "clients": 30, "split.perturbed": True}),
    )
    depends_on = ("algorithm", "clients", "rounds", "training.diversity")
    stops: ClassVar[Mapping[str, str]] = {
        SERVER: "a reward that does not follow quality (dw; the printed diversity); no policy"
    }

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """A score of each agent's quality ``[1]``: its mean payoff."""
        paid = payoffs(self.id, view)
        if not knowledge.facts[DIFFERENT]:
            raise Blind(f"{self.id}: the agents' data are all of one quality, so there is nothing to rank")
        if len(paid) < 2:
            raise Blind(f"{self.id}: the payoff of one agent ranks nobody")
        values = {agent: np.array([mine.mean()]) for agent, mine in paid.items()}
        return Guess(QUALITY, values, {agent: (agent,) for agent in values}, sum(map(len, paid.values())))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """Nothing: payoffs are never summed."""
        raise Blind(f"{self.id}: a sum of payoffs is the budget, which everybody knows")


class PayoffSizes(Attack):
    """E6: an agent that is paid by its share of all graphs learns how many graphs the others have.

    With ``n`` graphs of its own and a share ``s`` of the budget, the others have ``n (1 - s) / s``. Of two
    agents that is the other's number.
    """

    id = "e6-payoff-sizes"
    title = "how many training graphs the other agents have, from one's own payoff"
    subject = "numbers of the others' training graphs"
    family = "payoffs"
    summary = "the others' number of training graphs, from one's own payoff"
    adversaries = (CLIENT,)
    channel = REWARD
    first_rounds = 1
    cost = "one division"
    grants = ("its own number of training graphs, which every agent knows",)
    needs = (OWN_GRAPHS,)
    controls = (Control("two agents of uneven sizes", {"rounds": 1, "clients": 2, "partition": "dirichlet"}),)
    depends_on = ("algorithm", "clients")
    stops: ClassVar[Mapping[str, str]] = {CLIENT: "rewards by another measure (eu, cffl, cgsv)"}

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """The other agent's number of training graphs ``[1]``, where there is one other."""
        others, number = self._others(view, knowledge)
        if len(others) > 1:
            raise Blind(f"{self.id}: {len(others)} agents share what is not paid to this one")
        return Guess(GRAPHS_OF_OTHERS, {others[0]: number}, {others[0]: others}, 1)

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The number of all others together ``[1]``."""
        others, number = self._others(view, knowledge)
        return Guess(GRAPHS_OF_OTHERS, {"the others": number}, {"the others": others}, 1)

    def _others(self, view: View, knowledge: Knowledge) -> tuple[tuple[str, ...], np.ndarray]:
        paid = payoffs(self.id, view)
        if view.public["algorithm"] != BY_SIZE:
            raise Blind(f"{self.id}: agents are not paid by size here")
        (mine,) = paid.values()
        share = mine[0] / view.public["settings"]["budget"] if view.public["settings"]["budget"] else 0.0
        if not share:
            raise Blind(f"{self.id}: nothing is paid")
        others = tuple(name for name in view.public["clients"] if name not in paid)
        return others, np.array([knowledge.facts[OWN_GRAPHS] * (1 - share) / share])
