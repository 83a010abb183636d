"""E5 on FairGraphFL: whether a graph was trained on, from the motifs that an agent lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from secure_fedgraph.attacks.attack import CLIENT, SERVER, Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.prototypes import listed, places
from secure_fedgraph.attacks.weights import ALL
from secure_fedgraph.protocol import View

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
    title = "whether a graph was trained on, from the motifs that an agent lists"
    subject = "membership of graphs by motif lists"
    family = "payoffs"
    summary = "whether a graph was trained on, from an agent's motif list"
    adversaries = (SERVER, CLIENT)
    channel = LISTS
    also_reads = (PRESENCE, VALUED, VOCABULARY)
    first_rounds = 1
    cost = "one pass over the candidates' motifs"
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
            raise Blind(f"{self.id}: {view.why_unreadable(_channel(view))}")
        if len(lists) < 2:
            raise Blind(f"{self.id}: one list shows nothing about how common motifs are")
        values = {}
        for owner in (one for one in pool if one in lists):
            others = np.stack([lists[other][owner] for other in lists if other != owner])
            values[owner] = likelihoods(pool[owner].holds, lists[owner][owner], others)
        owners = tuple(values)
        return Guess(LISTED_MEMBERS, values, {owner: (owner,) for owner in owners}, len(lists))

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
    scores: np.ndarray = holds @ ratio
    return scores


def _channel(view: View) -> str:
    used = view.public.get("channels", {})
    return next((name for name in (LISTS, PRESENCE, VALUED) if name in used), LISTS)


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
