"""FairGraphFL: agents are valued by gradient and motifs, and given as much of the model as they are worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from secure_fedgraph.algorithm import Algorithm, Form, Settings, State
from secure_fedgraph.algorithms.fairgraphfl import channels, fairness, motifs, prototypes, shared_structure
from secure_fedgraph.algorithms.fairgraphfl.first_contact import meet_agents
from secure_fedgraph.algorithms.fairgraphfl.moments import FairGraphFLMoments
from secure_fedgraph.algorithms.fairgraphfl.motif_lists import MotifLists, lists_of
from secure_fedgraph.algorithms.fairgraphfl.prototypes import Prototypes, prototypes_of
from secure_fedgraph.algorithms.fairgraphfl.rewards import (
    VALUATIONS,
    ValueUpdates,
    check_reward,
    rewarded,
    rewards_of,
)
from secure_fedgraph.algorithms.fairgraphfl.settings import FairGraphFLSettings
from secure_fedgraph.algorithms.fairgraphfl.state import (
    AGENTS,
    ALIGNMENT,
    DIVERSITY,
    KNOWN,
    LABELS,
    PAYOFFS,
    PROTOTYPES,
    SEED,
    SIZES,
    VALUES,
    VOCABULARY,
    add_vector,
    flatten,
    names_from_tensor,
    parameters_in,
    shared_part,
)
from secure_fedgraph.algorithms.training.gin_classifier import GinClassifier, seed_of
from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.given import Expected
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.upload import ContributionRows, Upload
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.gin import Gin
from secure_fedgraph.models.parameters import load
from secure_fedgraph.seams import ClientContext, RoundApi

OF_REWARDS = ("beta_fair", "tanh_arg", "budget")
"""Settings that its form under a graph's budget takes over."""


class FairGraphFL(GinClassifier):
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
        - the same agents in every round: values are shares of one;
        - a server that reads every update, or ``valuation="encrypted"``;
        - node features that are one-hot labels, or categories of which the first is: motifs are made of them.

    References:
        Fair Graph Federated Learning via motif prototypes and a value-based reward, AAAI 2024.
    """

    name = "fairgraphfl"
    alone: ClassVar[str] = "gin-local"
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
        s, state = self.settings, meet_agents(round, state, self.settings, self._lists)
        earlier, shared = state[VALUES], shared_part(parameters_in(state), s.shared)

        # the updates' sum, weighted by value (Eq. 13), and each one's agreement with it (Eq. 9)
        weights = state[SIZES] / state[SIZES].sum() if s.weighting == "size" else fairness.shares(earlier[-1])
        given = {SEED: int(state[SEED]), **{k: state[k] for k in (PROTOTYPES, KNOWN) if k in state}}
        aggregate, alignment = self._value_updates(round, weights, given, shared)
        step = s.server_rate * aggregate

        state |= self._prototypes.learn(round, state)  # of all agents, by value (Eq. 12)

        # what every agent is worth now (Eq. 10), is paid (Eq. 5 to 7), and earns of the gradient (Eq. 4)
        nothing = torch.zeros_like(alignment)
        agreement = alignment if s.use_gradient else nothing
        diversity = state[DIVERSITY] if s.use_diversity else nothing
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
            **add_vector(shared, step),
            VALUES: torch.cat([earlier, values[None]]),
            PAYOFFS: torch.cat([state[PAYOFFS], payoffs[None]]),
            ALIGNMENT: alignment,
        }

    # --- the paper: the agents

    @channels.MOTIFS.answer
    def motif_list(self, client: ClientContext, given: State) -> Upload:
        """The motifs that the agent keeps by TF-IDF (Eq. 16, 17)."""
        return Upload(motifs.list_motifs(client, given, self.settings))

    @channels.SHARED_VOCABULARY.answer
    def vocabulary(self, client: ClientContext, given: State) -> None:
        """Takes over which numbers everybody's motifs have."""
        motifs.take_vocabulary(client, given, self.settings)

    @channels.UPDATE.answer
    def update(self, client: ClientContext, given: State) -> Upload:
        """Trains its own model, pulled towards the prototypes, and returns how its shared part moved."""
        return Upload(self._train(client, given))

    @channels.PROTOTYPE_SUMS.answer
    def prototype_sums(self, client: ClientContext, given: State) -> Upload:
        """The agent's prototypes (Eq. 11), weighted by its value."""
        return Upload(prototypes.weighted_sum(client, self._loaded(client), self.settings))

    @channels.REWARD.answer
    def reward(self, client: ClientContext, given: State) -> None:
        """Makes the agent's next model of its old one, its own update and the gradient that it has earned."""
        model = self.own_model(client)
        after = shared_part(model, self.settings.shared)
        before, reward = check_reward(client, given, len(flatten(after)))
        client.memory["model"] = model | rewarded(before, after, reward, self.settings.reading)
        client.memory["value"] = reward.value

    def _train(self, client: ClientContext, given: State) -> State:
        """One round of local training with Eq. 14's term: how the shared part of the agent's model moved."""
        start = client.memory.get("model") or self.start(client.schema, seed_of(client, given.get(SEED)))
        client.memory["model"] = self.fit(client, start, self._prototypes.distance(client, given))
        client.memory["before"] = shared_part(start, self.settings.shared)
        return {k: client.memory["model"][k] - v for k, v in client.memory["before"].items()}

    def _loaded(self, client: ClientContext) -> Gin:
        """The agent's own model."""
        model = self.model(client.schema)
        load(model, self.own_model(client))
        return model

    # --- answers of ablations, and of the forms that policies ask for

    @channels.SIZE.answer
    def size(self, client: ClientContext, given: State) -> Upload:
        """How many training graphs the agent has (ablation "aggregation" only)."""
        return Upload({"graphs": client.graph.train_mask.sum().float().reshape(1)})

    @channels.PROTOTYPES_OF_EACH.answer
    def prototypes_of_each(self, client: ClientContext, given: State) -> Upload:
        """The agent's prototypes (Eq. 11), in the order of the vocabulary."""
        return Upload(prototypes.in_order(client, self._loaded(client), self.settings))

    @channels.PERSONAL.answer
    def personal_model(self, client: ClientContext, given: State) -> Upload:
        """The personal model, for the referee, where no global one can be."""
        return Upload(self.own_model(client))

    @channels.PRESENCE.answer
    def motif_presence(self, client: ClientContext, given: State) -> Upload:
        """Which motifs of the public vocabulary the agent keeps by TF-IDF."""
        return Upload(motifs.list_motifs(client, given, self.settings))

    @channels.VALUED_LISTS.answer
    def valued_lists(self, client: ClientContext, given: State) -> Upload:
        """The same, to be valued without being read."""
        return Upload(motifs.list_motifs(client, given, self.settings))

    @channels.VALUED_UPDATE.answer
    def valued_update(self, client: ClientContext, given: State) -> Upload:
        """The update, to be valued without being read."""
        return Upload(self._train(client, given))

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
            *((channels.SIZE,) if s.weighting == "size" else ()),
            *self._lists.channels,
            *shared_structure.channels_of(s),
            VALUATIONS[s.valuation][0],
            *self._prototypes.channels,
            channels.REWARD,
            *((channels.PERSONAL,) if s.shared == "conv" else ()),
        )

    @property
    def _lists(self) -> MotifLists:
        return lists_of(self.settings)

    @property
    def _prototypes(self) -> Prototypes:
        return prototypes_of(self.settings)

    @property
    def _value_updates(self) -> ValueUpdates:
        return VALUATIONS[self.settings.valuation][1]

    def uses(self, channel: Channel, rounds: int, clients: int) -> int:
        """Lists and sizes once or twice, the rest every round."""
        return channels.ASKS.get(channel.name, rounds)

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """Seeds, motifs, prototypes and rewards, each where it is due."""
        if channel == channels.REWARD.name:
            shared = shared_part(self.start(schema, 0), self.settings.shared)
            return channels.expected_reward(len(flatten(shared)))
        fields = channels.expected_fields(channel, self.settings)
        return super().takes(channel, schema) if fields is None else fields

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
        public = {SEED: torch.tensor(seed), LABELS: torch.tensor(motifs.labels_of(schema))}
        state = {**public, **self.start(schema, seed)}
        return state if codes is None else {**state, VOCABULARY: codes}

    def _public_vocabulary(self, schema: Schema) -> Tensor | None:
        if not (self._lists.channels or self._prototypes.channels):
            return None
        return motifs.check_public(self.settings, schema)

    def released(self, state: State) -> State | None:
        """The global model; None where only convolutions are shared, so that it has no head."""
        return None if self.settings.shared == "conv" else parameters_in(state)

    def notes(self, state: State) -> dict[str, Any]:
        """Every agent's value and payoff, by round, and what the last values were made of."""
        if AGENTS not in state:
            return {}
        agents = names_from_tensor(state[AGENTS])
        rows = {"values": state[VALUES], "payoffs": state[PAYOFFS]}
        last = {"alignment": state[ALIGNMENT], "diversity": state[DIVERSITY]}
        return {
            "agents": agents,
            "budget": self.settings.budget,
            **{k: dict(zip(agents, row[-1].tolist(), strict=True)) for k, row in rows.items()},
            **{k: dict(zip(agents, row.tolist(), strict=True)) for k, row in last.items()},
            "by_round": {k: row.tolist() for k, row in rows.items()},
        }

    def _marked(self, client: ClientContext, given: State) -> dict[str, Tensor]:
        # an agent's own tests are for its own model, also where a global one exists
        return super()._marked(client, {})
