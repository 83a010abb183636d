"""E5 and E6: which graphs an agent's motif list is of, and what payoffs say of quality and sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from secure_fedgraph.attacks.attack import ALL, CLIENT, SERVER, Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.prototypes import listed, places
from secure_fedgraph.protocol import View

QUALITY, GRAPHS_OF_OTHERS = "quality of data", "training graphs of the other agents"
REWARD = "reward"
"""The channel on which FairGraphFL and its baselines give each agent its value and its payoff."""
DIFFERENT, OWN_GRAPHS = "agents differ in quality", "own number of training graphs"
BY_SIZE = "dw"
"""The algorithm whose payoffs are shares of all training graphs."""
LISTED_MEMBERS = "members by motif lists"
POOL = "graphs that may have been trained on"
KEPT = (0.05, 0.95)
"""The least and the largest chance that an agent lists a motif that it has: nothing shows it exactly."""
LISTS, PRESENCE, VALUED, VOCABULARY = "motifs", "motif_presence", "valued_lists", "vocabulary"


@dataclass(frozen=True)
class Candidates:
    """Graphs of which some were trained on, by their motifs.

    Args:
        codes: ``[motifs, width]`` of the motifs of any of them; the whole public list where agents say which
            of it they have.
        holds: ``[graphs, motifs]`` booleans.
    """

    codes: np.ndarray = field(repr=False)
    holds: np.ndarray = field(repr=False)


class ListedMembers(Attack):
    """E5: an agent lists the motifs that its graphs hold, so a graph whose motifs it lists may be its own.

    For each motif of a candidate the score adds ``log P(listed or not | member) - log P(... | not)``. A
    motif that is not a member's is listed as often as the other agents list it; a member's is listed besides
    with the chance that an agent that has the motif lists it: TF-IDF drops motifs that most graphs have. That
    chance follows from how often candidates have the motif and how often agents list it. So rare motifs
    decide.

    Of what is left where nobody reads a list, the union tells no owner from another: a candidate with a motif
    that nobody lists was trained on by nobody.

    References:
        Zhang et al., Inference Attacks Against Graph Neural Networks, USENIX Security 2022, for subgraphs
        that a released summary contains.
    """

    id = "e5-listed-members"
    subject = "membership of graphs by motif lists"
    family = "payoffs"
    summary = "whether a graph was trained on, from an agent's motif list"
    adversaries = (SERVER, CLIENT)
    channel = LISTS
    also_reads = (PRESENCE, VALUED, VOCABULARY)
    first_rounds = 1
    grants = (
        "the candidates: an agent's training graphs and others of its graphs, which it only tests on, mixed",
    )
    needs = (POOL,)
    controls = (
        Control("thirty agents and rings of eight", {"rounds": 1, "clients": 30, "training.rings": 8}),
    )
    depends_on = ("clients", "training.rings", "training.vocabulary", "training.lists", "training.support")
    stops: ClassVar[Mapping[str, str]] = {
        SERVER: "homomorphic or strictest (nobody reads lists); use_diversity=false with prototypes=none",
        CLIENT: "vocabulary=public, where none is handed out",
    }

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """A score for each candidate of each agent ``[candidates]``."""
        pool = self._pool(knowledge)
        lists = _lists(view, pool)
        if not lists:
            channel = self.channel_in_use(view, LISTS, PRESENCE, VALUED)
            raise Blind(f"{self.id}: {view.why_unreadable(channel)}")
        if len(lists) < 2:
            raise Blind(f"{self.id}: one list shows nothing about how common motifs are")
        values = {}
        for owner in (one for one in pool if one in lists):
            others = np.stack([lists[other][owner] for other in lists if other != owner])
            values[owner] = likelihoods(pool[owner].holds, lists[owner][owner], others)
        return Guess.of_owners(LISTED_MEMBERS, values, len(lists))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The same about all agents together: minus the number of motifs that nobody lists."""
        pool = self._pool(knowledge)
        scores = []
        for one in pool.values():
            anybody = self._union(view, one)
            scores.append(-(one.holds & ~anybody).sum(1).astype(float))
        return Guess(LISTED_MEMBERS, {ALL: np.concatenate(scores)}, {ALL: tuple(pool)}, 1)

    def _pool(self, knowledge: Knowledge) -> Mapping[str, Candidates]:
        pool: Mapping[str, Candidates] = knowledge.facts[POOL]
        if not pool:
            raise Blind(f"{self.id}: no agent has graphs that it does not train on, or nobody has motifs")
        return pool

    def _union(self, view: View, one: Candidates) -> np.ndarray:
        """``[motifs]`` which of the candidates' motifs anybody lists."""
        used = view.public.get("channels", {})
        for seen in view.sums(VALUED) if VALUED in used else ():
            return np.asarray(seen.values["present"]).ravel() * len(seen.clients) > 0.5
        for seen in view.asked(VOCABULARY) if VOCABULARY in used else ():
            return places(np.asarray(seen.values["codes"]).astype(np.int64), one.codes) >= 0
        raise Blind(f"{self.id}: no union of lists is in this view")


def likelihoods(holds: np.ndarray, listed: np.ndarray, others: np.ndarray) -> np.ndarray:
    """``[graphs]``: how much likelier an agent's list is if the graph is one of its own.

    Args:
        holds: ``[graphs, motifs]`` booleans. An agent has about as many graphs as there are candidates.
        listed: ``[motifs]`` booleans: the agent's list.
        others: ``[agents, motifs]`` booleans: the other agents' lists.

    >>> holds, others = np.array([[True, False], [False, True]]), np.array([[False, True]])
    >>> int(likelihoods(holds, np.array([True, False]), others).argmax())
    0
    """
    usual = (others.sum(0) + 0.5) / (len(others) + 1)
    held = 1 - (1 - (holds.sum(0) + 0.5) / (len(holds) + 1)) ** len(holds)
    kept = np.clip(usual / held, *KEPT)
    member = usual + (1 - usual) * kept
    ratio = np.where(listed, np.log(member / usual), np.log((1 - member) / (1 - usual)))
    return np.asarray(holds @ ratio)


def _lists(view: View, pool: Mapping[str, Candidates]) -> dict[str, dict[str, np.ndarray]]:
    """Agent -> owner of candidates -> ``[motifs]`` which of these candidates' motifs the agent lists."""
    used = view.public.get("channels", {})
    if PRESENCE in used:
        return {
            seen.clients[0]: dict.fromkeys(pool, np.asarray(seen.values["present"]).ravel() > 0.5)
            for seen in view.uploads(PRESENCE)
            if "present" in seen.values
        }
    return {
        agent: {owner: places(mine.codes, one.codes) >= 0 for owner, one in pool.items()}
        for agent, mine in listed(view).items()
    }


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
    subject = "quality of data"
    family = "payoffs"
    summary = "whose data are of low quality, from payoffs"
    channel = REWARD
    nothing_left = "a sum of payoffs is the budget, which everybody knows"
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
    stops = "a reward that does not follow quality (dw; the printed diversity); no policy"

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """A score of each agent's quality ``[1]``: its mean payoff."""
        paid = payoffs(self.id, view)
        if not knowledge.facts[DIFFERENT]:
            raise Blind(f"{self.id}: the agents' data are all of one quality, so there is nothing to rank")
        if len(paid) < 2:
            raise Blind(f"{self.id}: the payoff of one agent ranks nobody")
        values = {agent: np.array([mine.mean()]) for agent, mine in paid.items()}
        return Guess.of_owners(QUALITY, values, sum(map(len, paid.values())))


class PayoffSizes(Attack):
    """E6: an agent that is paid by its share of all graphs learns how many graphs the others have.

    With ``n`` graphs of its own and a share ``s`` of the budget, the others have ``n (1 - s) / s``. Of two
    agents that is the other's number.
    """

    id = "e6-payoff-sizes"
    subject = "numbers of the others' training graphs"
    family = "payoffs"
    summary = "the others' number of training graphs, from one's own payoff"
    adversaries = (CLIENT,)
    channel = REWARD
    first_rounds = 1
    grants = ("its own number of training graphs, which every agent knows",)
    needs = (OWN_GRAPHS,)
    controls = (Control("two agents of uneven sizes", {"rounds": 1, "clients": 2, "partition": "dirichlet"}),)
    depends_on = ("algorithm", "clients")
    stops = "rewards by another measure (eu, cffl, cgsv)"

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
