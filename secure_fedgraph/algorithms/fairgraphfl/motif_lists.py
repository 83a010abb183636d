"""FairGraphFL's motif lists at the server: who has which motifs, and the vocabulary that numbers them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fairgraphfl import fairness
from secure_fedgraph.algorithms.fairgraphfl.channels import SHARED_VOCABULARY, VALUED_LISTS, of_chosen_lists
from secure_fedgraph.algorithms.fairgraphfl.motifs import CODES, COUNTED, IDF
from secure_fedgraph.algorithms.fairgraphfl.settings import FairGraphFLSettings
from secure_fedgraph.algorithms.fairgraphfl.state import DIVERSITY, LABELS, PRESENT, VOCABULARY, numbers_in
from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.graph import motifs
from secure_fedgraph.seams import RoundApi, Valuation


def lists_of(settings: FairGraphFLSettings) -> NoLists:
    """The way that settings ask for."""
    by_motifs = settings.use_diversity and settings.diversity == "printed"
    if not by_motifs and settings.prototypes not in ("sum", "each"):
        return NoLists(settings)
    return ValuedLists(settings) if settings.lists == "valued" else ChosenLists(settings)


class NoLists:
    """Nothing needs them: values without diversity, and prototypes without lists, or none."""

    def __init__(self, settings: FairGraphFLSettings) -> None:
        self.settings = settings

    @property
    def channels(self) -> tuple[Channel, ...]:
        """What they send."""
        return ()

    def exchange(self, round: RoundApi, state: State) -> State:
        """Asks the agents, once a run.

        Returns:
            What the state gains: at least each agent's diversity, where agents list motifs.
        """
        return {}


class ChosenLists(NoLists):
    """The paper's: every agent lists the motifs that it keeps by TF-IDF, and the server reads the list."""

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The lists, and the way back for a vocabulary that is made of them."""
        s = self.settings
        numbered = s.vocabulary == "exchanged" and s.prototypes != "none"
        return (of_chosen_lists(s), *((SHARED_VOCABULARY,) if numbered else ()))

    def exchange(self, round: RoundApi, state: State) -> State:
        """Asks for counts first, where the idf is over all agents' graphs, then for lists."""
        s, codes, labels = self.settings, state.get(VOCABULARY), int(state[LABELS])
        channel, *way_back = self.channels
        idf: Mapping[str, Tensor] = {}
        if s.idf == "global":
            idf = idf_of_all(round.gather(channel, given={COUNTED: 1}), codes, s, labels)
        vocabulary, present = merge_lists(round.gather(channel, given=idf), codes, s, labels)
        for one in way_back:
            round.scatter(one, {name: {CODES: vocabulary} for name in round.cohort})
        return {VOCABULARY: vocabulary, PRESENT: present, DIVERSITY: fairness.diversity(present)}


class ValuedLists(NoLists):
    """The same lists over the public vocabulary, valued unread: the server opens no list."""

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The lists."""
        return (VALUED_LISTS,)

    def exchange(self, round: RoundApi, state: State) -> State:
        """Asks for lists of zeros and ones."""
        valued = round.value(VALUED_LISTS, dict.fromkeys(round.cohort, 1.0))
        return {DIVERSITY: _diversity_unread(valued, round.cohort, len(state[VOCABULARY]))}


def _diversity_unread(valued: Valuation, agents: tuple[str, ...], motif_count: int) -> Tensor:
    """``[agents]`` each one's share of all distinct motifs (definition 2), from lengths of lists of ones."""
    mean = numbers_in(valued.aggregate, "present", (motif_count,), "the agents' motifs")
    everywhere = int((mean * len(agents) > 0.5).sum())
    # opened values carry the noise of their ciphertexts, and are whole
    own = torch.tensor([round(valued.lengths[name] ** 2) for name in agents], dtype=torch.float64)
    return (own / everywhere).clamp(max=1) if everywhere else torch.ones_like(own)


def merge_lists(
    lists: Mapping[str, Mapping[str, Tensor]],
    codes: Tensor | None,
    settings: FairGraphFLSettings,
    labels: int,
) -> tuple[Tensor, Tensor]:
    """The vocabulary of all agents, and ``[agents, vocabulary]`` who has listed what.

    Args:
        lists: agent -> what it uploaded.
        codes: the public vocabulary, or None.
        labels: how many a motif may name.

    Raises:
        HostileMessage: for a list that no agent makes.
    """
    if codes is not None:
        rows = [numbers_in(values, "present", (len(codes),), name) > 0.5 for name, values in lists.items()]
        return codes, torch.stack(rows)
    by_agent = {name: _codes(name, values, settings, labels) for name, values in lists.items()}
    vocabulary = torch.cat(list(by_agent.values())).unique(dim=0)
    present = torch.zeros(len(by_agent), len(vocabulary), dtype=torch.bool)
    for row, listed in zip(present, by_agent.values(), strict=True):
        row[motifs.places(listed, vocabulary)] = True
    return vocabulary, present


def idf_of_all(
    counted: Mapping[str, Mapping[str, Tensor]],
    codes: Tensor | None,
    settings: FairGraphFLSettings,
    labels: int,
) -> dict[str, Tensor]:
    """The idf over all agents' graphs, which every agent is given; with the motifs it is of, if not public.

    Args:
        counted: agent -> in how many of its graphs each motif is, and of how many.
        codes: the public vocabulary, or None.
        labels: how many a motif may name.

    Raises:
        HostileMessage: for counts that no agent makes.
    """
    vocabulary = codes
    own = {} if codes is not None else {n: _codes(n, v, settings, labels) for n, v in counted.items()}
    if vocabulary is None:
        vocabulary = torch.cat(list(own.values())).unique(dim=0)
    holding, graphs = torch.zeros(len(vocabulary), dtype=torch.float64), 0
    for name, values in counted.items():
        at = motifs.places(own[name], vocabulary) if own else torch.arange(len(vocabulary))
        holding.index_add_(0, at, numbers_in(values, "graphs", (len(at),), name).double().clamp(min=0))
        of = numbers_in(values, "of", (len(at),), name)
        graphs += round(float(of.mean())) if len(of) else 0
    idf = {IDF: motifs.idf(holding, max(graphs, 0))}
    return idf if codes is not None else {**idf, CODES: vocabulary}


def _codes(name: str, values: Mapping[str, Tensor], settings: FairGraphFLSettings, labels: int) -> Tensor:
    codes = values.get(CODES, torch.zeros(0))
    wrong = motifs.check_codes(codes, labels, settings.rings)
    if wrong:
        raise HostileMessage(f"the motif list of {name} holds {wrong}")
    return codes.long()
