"""FairGraphFL: agents are valued by gradient and motifs, and given as much of the model as they are worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from secure_fedgraph.algorithm import Algorithm, Form, Settings, State
from secure_fedgraph.algorithms.fairgraphfl import channels, fairness, motifs, prototypes, shared_structure
from secure_fedgraph.algorithms.fairgraphfl import state as names
from secure_fedgraph.algorithms.fairgraphfl.agents import AgentsValuedUnread, AgentsWithSizes, rewards_of
from secure_fedgraph.algorithms.fairgraphfl.moments import FairGraphFLMoments
from secure_fedgraph.algorithms.fairgraphfl.motif_lists import NoLists, lists_of
from secure_fedgraph.algorithms.fairgraphfl.prototypes import NoPrototypes, prototypes_of
from secure_fedgraph.algorithms.fairgraphfl.settings import FairGraphFLSettings
from secure_fedgraph.algorithms.training.gin_classifier import Distance
from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.inputs import Expected
from secure_fedgraph.core.upload import ContributionRows, Upload
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.gin import Gin
from secure_fedgraph.models.parameters import load
from secure_fedgraph.seams import ClientContext, RoundApi

OF_REWARDS = ("beta_fair", "tanh_arg", "budget")
"""Settings that its form under a graph's budget takes over."""


class FairGraphFL(AgentsWithSizes, AgentsValuedUnread):
    """Federated graph classification with fair rewards.

    Each round every agent trains its own GIN on its own graphs, pulled towards motif prototypes, and uploads
    its update and its prototypes. The server values every agent by how its update agrees with all of them and
    by how many kinds of motifs it has; it adds the updates up by value, gives each agent back the part of the
    sum that its value has earned, and pays it its share of a budget.

    Guarantees:
        - an agent is given the ``floor(D tanh(beta r_i) / max tanh(beta r_j))`` largest components of the
          aggregate, and none where its value is not positive;
        - payoffs of a round add up to the budget;
        - graphs, labels, how many graphs hold a motif (but for ``idf=global``), and moments stay with the
          agent.
    Needs:
        - a server that reads every update, or ``valuation="encrypted"``;
        - node features that are one-hot labels, or categories of which the first is: motifs are made of them.

    References:
        Fair Graph Federated Learning via motif prototypes and a value-based reward, AAAI 2024.
    """

    name = "fairgraphfl"
    summary = "graph classification; agents are valued, rewarded and paid by gradient and motif diversity"
    reference = "FairGraphFL, AAAI 2024"
    moments_on_sums: ClassVar[bool] = True
    """Whether :class:`FairGraphFLMoments` stands for it under a graph's budget; a subclass says so itself."""
    Settings: ClassVar[type[Settings]] = FairGraphFLSettings
    settings: FairGraphFLSettings
    forms = (
        Form({"vocabulary": "public"}, "agents say which of all possible motifs they have, as numbers"),
        Form({"valuation": "encrypted"}, "agents are valued on ciphertexts, so the server reads no update"),
        Form(
            {"valuation": "encrypted", "vocabulary": "public", "lists": "valued"},
            "agents are valued on ciphertexts, so the server reads no update and no list of motifs",
        ),
        Form(
            {"valuation": "encrypted", "use_diversity": False, "prototypes": "none"},
            "agents are valued by their updates alone, on ciphertexts, and nobody lists motifs",
        ),
    )

    # --- the paper: the server

    def round(self, round: RoundApi, state: State) -> State:
        """Updates in, values, the aggregate, prototypes; out go rewards."""
        s, state = self.settings, self.meet(round, state)
        earlier, shared = state[names.VALUES], names.parameters_in(state)

        # the updates' sum, weighted by value (Eq. 13), and each one's agreement with it (Eq. 9)
        weights = (
            state[names.SIZES] / state[names.SIZES].sum()
            if s.weighting == "size"
            else fairness.shares(earlier[-1])
        )
        given = {
            names.SEED: int(state[names.SEED]),
            **{k: state[k] for k in (names.PROTOTYPES, names.KNOWN) if k in state},
        }
        updates = self.updates(round, weights, given, shared)
        alignment, step = updates.alignment, s.server_rate * updates.aggregate

        state |= self._prototypes.learn(round, state)  # of all agents, by value (Eq. 12)

        # what every agent is worth now (Eq. 10), is paid (Eq. 5 to 7), and earns of the gradient (Eq. 4)
        nothing = torch.zeros_like(alignment)
        agreement = alignment if s.use_gradient else nothing
        diversity = state[names.DIVERSITY] if s.use_diversity else nothing
        if shared_structure.counts_structure(s):
            agreement = alignment if s.use_gradient else torch.ones_like(alignment)
            values = fairness.next_shared_values(earlier[-1], agreement, diversity, s.value_rate)
        else:
            values = fairness.next_values(earlier[-1], agreement, diversity, s.value_rate, s.beta_div)
        payoffs = fairness.payoffs(values, earlier, s.budget)
        fractions = (
            fairness.fractions(values, s.beta_fair, s.tanh_arg) if s.sparse else torch.ones_like(values)
        )
        round.scatter(channels.REWARD, rewards_of(round.cohort, step, fractions, values, payoffs))

        return state | {
            **names.add_vector(shared, step),
            names.VALUES: torch.cat([earlier, values[None]]),
            names.PAYOFFS: torch.cat([state[names.PAYOFFS], payoffs[None]]),
            names.ALIGNMENT: alignment,
        }

    def meet(self, round: RoundApi, state: State) -> State:
        """As the base has it; in the first round agents list motifs or show what structure they have."""
        if names.AGENTS in state:
            return super().meet(round, state)
        state = super().meet(round, state)
        state[names.DIVERSITY] = torch.zeros(len(round.cohort), dtype=torch.float64)
        state |= self._lists.exchange(round, state)
        if shared_structure.counts_structure(self.settings):
            # nobody is worth anything for being there: two agents are worth what one with both's graphs is
            state[names.DIVERSITY] = shared_structure.exchange(round, self.settings)
            state[names.VALUES] = state[names.DIVERSITY][None]
        return state

    # --- the paper: the agents

    @channels.MOTIFS.answer
    def motif_list(self, client: ClientContext, given: State) -> Upload:
        """The motifs that the agent keeps by TF-IDF (Eq. 16, 17)."""
        return Upload(motifs.list_motifs(client, given, self.settings))

    @channels.SHARED_VOCABULARY.answer
    def vocabulary(self, client: ClientContext, given: State) -> None:
        """Takes over which numbers everybody's motifs have."""
        motifs.take_vocabulary(client, given, self.settings)

    @channels.PROTOTYPE_SUMS.answer
    def prototype_sums(self, client: ClientContext, given: State) -> Upload:
        """The agent's prototypes (Eq. 11), weighted by its value."""
        return Upload(prototypes.weighted_sum(client, self._loaded(client), self.settings))

    def pull(self, client: ClientContext, given: Mapping[str, Any]) -> Distance | None:
        """Eq. 14's term, towards the prototypes."""
        return self._prototypes.distance(client, given)

    def _loaded(self, client: ClientContext) -> Gin:
        """The agent's own model."""
        model = self.model(client.schema)
        load(model, self.own_model(client))
        return model

    # --- answers of ablations, and of the forms that policies ask for

    @channels.PROTOTYPES_OF_EACH.answer
    def prototypes_of_each(self, client: ClientContext, given: State) -> Upload:
        """The agent's prototypes (Eq. 11), in the order of the vocabulary."""
        return Upload(prototypes.in_order(client, self._loaded(client), self.settings))

    @channels.PRESENCE.answer
    def motif_presence(self, client: ClientContext, given: State) -> Upload:
        """Which motifs of the public vocabulary the agent keeps by TF-IDF."""
        return Upload(motifs.list_motifs(client, given, self.settings))

    @channels.VALUED_LISTS.answer
    def valued_lists(self, client: ClientContext, given: State) -> Upload:
        """The same, to be valued without being read."""
        return Upload(motifs.list_motifs(client, given, self.settings))

    @channels.FINGERPRINTS.answer
    def fingerprints(self, client: ClientContext, given: State) -> Upload:
        """Fingerprints of the agent's graphs (``diversity=shared``)."""
        return Upload(shared_structure.own_fingerprints(client))

    @channels.FINGERPRINTS.read
    def count_copies(self, client: ClientContext, others: Mapping[str, State]) -> None:
        """Which of its graphs other agents hold too."""
        shared_structure.count_copies(client, others)

    @channels.STRUCTURE.answer
    def structure(self, client: ClientContext, given: State) -> ContributionRows:
        """Triangles above chance, summed over the agent's distinct graphs (``diversity=shared``)."""
        return shared_structure.structure(client, self.settings)

    # --- what the settings choose

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """What these settings send."""
        s = self.settings
        return (
            *((channels.SIZE,) if self.asks_sizes else ()),
            *self._lists.channels,
            *shared_structure.channels_of(s),
            self.update_channel,
            *self._prototypes.channels,
            channels.REWARD,
        )

    @property
    def asks_sizes(self) -> bool:
        """Where they weigh updates."""
        return self.settings.weighting == "size"

    @property
    def _lists(self) -> NoLists:
        return lists_of(self.settings)

    @property
    def _prototypes(self) -> NoPrototypes:
        return prototypes_of(self.settings)

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """Seeds, motifs, prototypes and rewards, each where it is due."""
        return channels.expected_fields(channel, self.settings) or super().takes(channel, schema)

    def shows(self, channel: str, schema: Schema) -> Expected | None:
        """Other agents' fingerprints."""
        if channel != channels.FINGERPRINTS.name:
            return super().shows(channel, schema)
        return shared_structure.expected_fingerprints()

    # --- what a run has besides

    def on_sums(self, unit: str) -> Algorithm:
        """For one graph :class:`FairGraphFLMoments`, unless settings by hand are of local training."""
        kept = {key: value for key, value in self.by_hand.items() if key in OF_REWARDS}
        own = not vars(type(self)).get("moments_on_sums") or len(kept) < len(self.by_hand)
        return self if own or unit != Unit.GRAPH else FairGraphFLMoments(**kept)

    def check(self, schema: Schema) -> None:
        """As every algorithm, and that a public vocabulary is short enough to list.

        Raises:
            BadInput: for other data.
        """
        super().check(schema)
        self._public_vocabulary(schema)

    def init(self, schema: Schema, seed: int) -> State:
        """First weights, which follow from a public seed, and the public vocabulary where there is one."""
        codes = self._public_vocabulary(schema)
        state = {**super().init(schema, seed), names.LABELS: torch.tensor(motifs.labels_of(schema))}
        return state if codes is None else {**state, names.VOCABULARY: codes}

    def _public_vocabulary(self, schema: Schema) -> Tensor | None:
        if not (self._lists.channels or self._prototypes.channels):
            return None
        return motifs.check_public(self.settings, schema)

    def notes(self, state: State) -> dict[str, Any]:
        """As the base has it, and every agent's diversity."""
        found = super().notes(state)
        if not found:
            return {}
        return found | {"diversity": dict(zip(found["agents"], state[names.DIVERSITY].tolist(), strict=True))}
