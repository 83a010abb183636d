"""DW, EU, CFFL and CGSV: agents are given the part of the mean update that they are worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from secure_fedgraph.algorithm import Form, Settings, State
from secure_fedgraph.algorithms.fairgraphfl import channels, fairness
from secure_fedgraph.algorithms.fairgraphfl.baselines import reputations
from secure_fedgraph.algorithms.fairgraphfl.baselines.settings import (
    CfflSettings,
    CgsvSettings,
    RewardSettings,
    SizeRewardSettings,
)
from secure_fedgraph.algorithms.fairgraphfl.first_contact import are_known, ask_sizes
from secure_fedgraph.algorithms.fairgraphfl.rewards import check_reward, rewarded
from secure_fedgraph.algorithms.fairgraphfl.state import (
    AGENTS,
    ALIGNMENT,
    PAYOFFS,
    SEED,
    SIZES,
    VALUES,
    add_vector,
    flatten,
    names_from_tensor,
    names_to_tensor,
    parameters_in,
    vector_of,
)
from secure_fedgraph.algorithms.training.gin_classifier import GinClassifier, seed_of
from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.given import NOTHING, Expected, Whole
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.seams import ClientContext, RoundApi

ENCRYPTED = Form(
    {"valuation": "encrypted"}, "agents are valued on ciphertexts, so the server reads no update"
)


@dataclass(frozen=True)
class Updates:
    """What the server learns of a round's updates, whether it reads them or not.

    Args:
        aggregate: ``[D]`` their weighted mean.
        alignment: ``[agents]`` cosines with it.
        distances: ``[agents]`` Euclidean distances from it.
    """

    aggregate: Tensor
    alignment: Tensor
    distances: Tensor


class RewardedAgents(GinClassifier):
    """What the four have in common.

    Every agent trains its own GIN and uploads its update. The server takes their weighted mean, says what
    every agent is worth, gives it that share of the mean's largest components (of each tensor), and pays it
    that share of a budget. Subclasses say what an agent is worth.

    Guarantees:
        - an agent of value 0 is given nothing;
        - payoffs of a round add up to the budget.
    Needs:
        - the same agents in every round: values are shares of one.
    """

    alone: ClassVar[str] = "gin-local"
    Settings: ClassVar[type[Settings]] = RewardSettings
    settings: RewardSettings
    needs_sizes: ClassVar[bool] = False

    # --- what subclasses say

    def worth(self, state: State, updates: Updates, number: int) -> Tensor:
        """``[agents]`` what each is worth after a round: not negative, of sum 1.

        Args:
            state: with the values of earlier rounds.
            updates: of this round.
            number: of the round.
        """
        raise NotImplementedError

    def weights(self, state: State) -> Tensor:
        """``[agents]`` of the mean, of sum 1: what each was worth before."""
        return state[VALUES][-1]

    def fractions(self, values: Tensor) -> Tensor:
        """``[agents]`` in [0, 1]: which part of the mean's components each is given."""
        return reputations.fractions_of(values)

    def scaled(self, update: Tensor) -> Tensor:
        """An update ``[..., D]`` as it is taken into the mean."""
        return update

    # --- the server

    def round(self, round: RoundApi, state: State) -> State:
        """Updates in, values and payoffs; out go rewards."""
        state = self._with_agents(round, state)
        parameters = parameters_in(state)
        updates = self._updates(round, self.weights(state), int(state[SEED]), parameters)
        values = self.worth(state, updates, round.number)
        payoffs = self.settings.budget * fairness.shares(values)
        step = self.settings.server_rate * updates.aggregate
        sizes = [p.numel() for p in parameters.values()]
        rewards = {}
        for i, (agent, fraction) in enumerate(
            zip(round.cohort, self.fractions(values).tolist(), strict=True)
        ):
            places = reputations.largest_by_layer(step, sizes, fraction).nonzero().flatten()
            rewards[agent] = {
                "places": places.int(),
                "amounts": step[places],
                "value": float(values[i]),
                "payoff": float(payoffs[i]),
            }
        round.scatter(channels.REWARD, rewards)
        return state | {
            **add_vector(parameters, step),
            VALUES: torch.cat([state[VALUES], values[None]]),
            PAYOFFS: torch.cat([state[PAYOFFS], payoffs[None]]),
            ALIGNMENT: updates.alignment,
        }

    def _with_agents(self, round: RoundApi, state: State) -> State:
        if are_known(round, state, self.name):
            return dict(state)
        agents = len(round.cohort)
        equal = torch.full((1, agents), 1 / agents, dtype=torch.float64)
        sizes = {SIZES: ask_sizes(round)} if self._asks_sizes else {}
        met = {**state, AGENTS: names_to_tensor(round.cohort), VALUES: equal, **sizes}
        return {**met, PAYOFFS: torch.zeros(0, agents, dtype=torch.float64)}

    def _updates(self, round: RoundApi, weights: Tensor, seed: int, like: State) -> Updates:
        given = {SEED: seed}
        if self.settings.valuation == "encrypted":
            by_agent = dict(zip(round.cohort, weights.tolist(), strict=True))
            valued = round.value(channels.VALUED_UPDATE, by_agent, given=given)
            aggregate = vector_of(valued.aggregate, like, "the aggregate")
            alignment, lengths = (
                torch.tensor([one[name] for name in round.cohort], dtype=torch.float64)
                for one in (valued.alignment, valued.lengths)
            )
            whole = float(aggregate.double().norm())
            squared = lengths**2 + whole**2 - 2 * alignment * lengths * whole
            return Updates(aggregate, alignment, squared.clamp(min=0).sqrt())
        uploads = round.gather(channels.UPDATE, given=given)
        # an agent has scaled its update already, if it follows the protocol
        gradients = self.scaled(torch.stack([vector_of(uploads[one], like, one) for one in round.cohort]))
        aggregate = (weights @ gradients.double()).float()
        distances = (gradients.double() - aggregate.double()).norm(dim=1)
        return Updates(aggregate, fairness.cosines(gradients, aggregate), distances)

    # --- the agents

    @channels.UPDATE.answer
    def update(self, client: ClientContext, given: State) -> Upload:
        """Trains its own model and returns how it moved."""
        return Upload(self._train(client, given))

    @channels.REWARD.answer
    def reward(self, client: ClientContext, given: State) -> None:
        """Makes the agent's next model of its old one, its own update and what it has earned."""
        after = self.own_model(client)
        before, reward = check_reward(client, given, len(flatten(after)))
        client.memory["model"] = rewarded(before, after, reward, self.settings.reading)

    def _train(self, client: ClientContext, given: State) -> State:
        start = client.memory.get("model") or self.start(client.schema, seed_of(client, given.get(SEED)))
        client.memory["model"] = self.fit(client, start)
        client.memory["before"] = start
        moved = flatten(client.memory["model"]) - flatten(start)
        return add_vector({k: torch.zeros_like(v) for k, v in start.items()}, self.scaled(moved))

    # --- what the settings choose, and what a run has besides

    @property
    def _asks_sizes(self) -> bool:
        return self.needs_sizes

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """What these settings send."""
        valued = self.settings.valuation == "encrypted"
        update = channels.VALUED_UPDATE if valued else channels.UPDATE
        return (*((channels.SIZE,) if self._asks_sizes else ()), update, channels.REWARD)

    def uses(self, channel: Channel, rounds: int, clients: int) -> int:
        """Sizes once, the rest every round."""
        return channels.ASKS.get(channel.name, rounds)

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """The public seed, and rewards."""
        if channel == channels.REWARD.name:
            return channels.expected_reward(len(flatten(self.start(schema, 0))))
        return ({SEED: Whole()},) if channel == channels.UPDATE.name else super().takes(channel, schema)

    def init(self, schema: Schema, seed: int) -> State:
        """First weights, which follow from a public seed."""
        return {SEED: torch.tensor(seed), **self.start(schema, seed)}

    def released(self, state: State) -> State:
        """The global model."""
        return parameters_in(state)

    def notes(self, state: State) -> dict[str, Any]:
        """Every agent's value and payoff, by round, and how the last updates agreed."""
        if AGENTS not in state:
            return {}
        agents = names_from_tensor(state[AGENTS])
        rows = {"values": state[VALUES], "payoffs": state[PAYOFFS]}
        return {
            "agents": agents,
            "budget": self.settings.budget,
            **{k: dict(zip(agents, row[-1].tolist(), strict=True)) for k, row in rows.items()},
            "alignment": dict(zip(agents, state[ALIGNMENT].tolist(), strict=True)),
            "by_round": {k: row.tolist() for k, row in rows.items()},
        }

    def _marked(self, client: ClientContext, given: State) -> dict[str, Tensor]:
        # an agent's own tests are for its own model, also where a global one exists
        return super()._marked(client, {})


class AgentsWithSizes(RewardedAgents):
    """Agents who tell the server how many training graphs they have."""

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """As all, and nothing where sizes are asked for."""
        return NOTHING if channel == channels.SIZE.name else super().takes(channel, schema)

    @channels.SIZE.answer
    def size(self, client: ClientContext, given: State) -> Upload:
        """How many training graphs the agent has."""
        return Upload({"graphs": client.graph.train_mask.sum().float().reshape(1)})


class AgentsValuedUnread(RewardedAgents):
    """Agents who can be valued on ciphertexts."""

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """As all, and the public seed for an update that nobody reads."""
        unread = channel == channels.VALUED_UPDATE.name
        return super().takes(channels.UPDATE.name if unread else channel, schema)

    @channels.VALUED_UPDATE.answer
    def valued_update(self, client: ClientContext, given: State) -> Upload:
        """The update, to be valued without being read."""
        return Upload(self._train(client, given))


class Dw(AgentsWithSizes):
    """Rewards by data volume: an agent is worth its share of all training graphs.

    Agents of equal size are given everything, and with ``reading="fill"`` that is FedAvg with optimisers that
    stay at home.

    References:
        The baseline DW of FairGraphFL, AAAI 2024, table 2.
    """

    name = "dw"
    summary = "agents are given the mean update by how many graphs they have (FairGraphFL's baseline)"
    reference = "baseline of FairGraphFL"
    needs_sizes: ClassVar[bool] = True
    Settings: ClassVar[type[Settings]] = SizeRewardSettings

    def weights(self, state: State) -> Tensor:
        """By number of graphs."""
        return state[SIZES] / state[SIZES].sum()

    def worth(self, state: State, updates: Updates, number: int) -> Tensor:
        """By number of graphs."""
        return self.weights(state)


class Eu(AgentsValuedUnread):
    """Rewards by nearness: an agent is worth the more, the nearer its update is to the mean.

    The score is ``1 / (1 + ||u_i - u||)`` of the round alone; FairGraphFL leaves the map open.

    References:
        The baseline EU of FairGraphFL, AAAI 2024, table 2.
    """

    name = "eu"
    summary = "agents are given the mean update by their distance from it (FairGraphFL's baseline)"
    reference = "baseline of FairGraphFL"
    forms = (ENCRYPTED,)

    def worth(self, state: State, updates: Updates, number: int) -> Tensor:
        """By distance from the mean."""
        return reputations.nearness(updates.distances)


class Cffl(AgentsValuedUnread):
    """Robust and fair federated learning: reputations that agents can lose for good.

    Updates longer than ``length`` are shortened. A reputation is a moving mean of cosines with the mean
    update. From round ``stays`` on, who has less than a third of the mean reputation is removed: it keeps
    its own model, and its updates weigh nothing.

    FairGraphFL's table says CFFL and cites this paper. CFFL proper scores agents on a validation set of the
    server's, which nobody has here.

    References:
        Xu, Lyu, A Reputation Mechanism Is All You Need: Collaborative Fairness and Adversarial Robustness in
        Federated Learning (RFFL), 2021.
    """

    name = "cffl"
    summary = "agents are given the mean update by reputation, and removed without one (RFFL)"
    reference = "Xu, Lyu 2021 (RFFL)"
    forms = (ENCRYPTED,)
    Settings: ClassVar[type[Settings]] = CfflSettings
    settings: CfflSettings

    def scaled(self, update: Tensor) -> Tensor:
        """At most ``length`` long."""
        return reputations.at_most_of_length(update, self.settings.length)

    def worth(self, state: State, updates: Updates, number: int) -> Tensor:
        """A moving mean of cosines."""
        s = self.settings
        removes = number > s.stays
        return reputations.surviving_reputations(state[VALUES][-1], updates.alignment, s.rate, removes)


class Cgsv(AgentsWithSizes, AgentsValuedUnread):
    """Rewards by the cosine gradient Shapley value.

    Updates are brought to one length. A reputation is a moving mean of cosines with the mean update. Agents
    are given ``tanh(beta r_i) / max tanh(beta r_j)`` of the mean's largest components, in place of their own
    update.

    References:
        Xu, Lyu, Ma, Miao, Foo, Low, Gradient Driven Rewards to Guarantee Fairness in Collaborative Machine
        Learning, NeurIPS 2021.
    """

    name = "cgsv"
    summary = "agents are given the mean update by how their own agrees with it (cosine Shapley value)"
    reference = "Xu et al., NeurIPS 2021"
    forms = (
        Form(
            {"valuation": "encrypted", "first_weights": "equal"},
            "agents are valued on ciphertexts, so the server reads no update and no number of graphs",
        ),
    )
    Settings: ClassVar[type[Settings]] = CgsvSettings
    settings: CgsvSettings

    @property
    def _asks_sizes(self) -> bool:
        return self.settings.first_weights == "size"

    def scaled(self, update: Tensor) -> Tensor:
        """Exactly ``length`` long."""
        return reputations.of_equal_length(update, self.settings.length)

    def weights(self, state: State) -> Tensor:
        """By number of graphs in the first round where agents tell it, then by reputation."""
        if len(state[VALUES]) == 1 and SIZES in state:
            return state[SIZES] / state[SIZES].sum()
        return state[VALUES][-1]

    def worth(self, state: State, updates: Updates, number: int) -> Tensor:
        """A moving mean of cosines, from nothing."""
        values = state[VALUES]
        before = torch.zeros_like(values[-1]) if len(values) == 1 else values[-1]
        return reputations.moving_reputations(before, updates.alignment, self.settings.rate)

    def fractions(self, values: Tensor) -> Tensor:
        """By the hyperbolic tangent of reputations."""
        return fairness.fractions(values, self.settings.beta_fair)
