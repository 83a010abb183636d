"""Agents who are valued, rewarded and paid: what FairGraphFL and its reward baselines share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from secure_fedgraph.algorithm import Settings, State
from secure_fedgraph.algorithms.fairgraphfl import channels, fairness
from secure_fedgraph.algorithms.fairgraphfl import state as kept
from secure_fedgraph.algorithms.fairgraphfl.settings import RewardSettings
from secure_fedgraph.algorithms.training.gin_classifier import Distance, GinClassifier
from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.inputs import NOTHING, Expected, Whole
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.finite import all_finite
from secure_fedgraph.seams import ClientContext, RoundApi


@dataclass(frozen=True)
class Updates:
    """What the server learns of a round's updates, whether it reads them or not.

    Args:
        aggregate: ``[D]`` their weighted sum (Eq. 13).
        alignment: ``[agents]`` cosines with it (Eq. 9).
        distances: ``[agents]`` Euclidean distances from it.
    """

    aggregate: Tensor
    alignment: Tensor
    distances: Tensor


class PaidAgents(GinClassifier):
    """Agents whose updates the server values, who are given a part of the aggregate for it, and paid.

    Needs:
        - the same agents in every round: values are shares of one.
    """

    alone: ClassVar[str] = "gin-local"
    Settings: ClassVar[type[Settings]] = RewardSettings
    settings: RewardSettings

    # --- what subclasses say

    @property
    def update_channel(self) -> Channel:
        """The channel of updates; ciphertexts, where they are valued without being opened."""
        return channels.VALUED_UPDATE if self.settings.valuation == "encrypted" else channels.UPDATE

    @property
    def asks_sizes(self) -> bool:
        """Whether agents tell how many training graphs they have."""
        return False

    def scaled(self, update: Tensor) -> Tensor:
        """An update ``[..., D]`` as it is taken into the aggregate."""
        return update

    def pull(self, client: ClientContext, given: Mapping[str, Any]) -> Distance | None:
        """A further term of an agent's loss; none here."""
        return None

    # --- the server

    def meet(self, round: RoundApi, state: State) -> State:
        """The state with agents' names, equal values to start from, and their sizes where they count.

        Raises:
            BadInput: for other agents than in the first round.
        """
        if are_known(round, state, self.name):
            return dict(state)
        agents = len(round.cohort)
        return {
            **state,
            kept.AGENTS: kept.names_to_tensor(round.cohort),
            kept.VALUES: torch.full((1, agents), 1 / agents, dtype=torch.float64),
            kept.PAYOFFS: torch.zeros(0, agents, dtype=torch.float64),
            **({kept.SIZES: ask_sizes(round)} if self.asks_sizes else {}),
        }

    def updates(self, round: RoundApi, weights: Tensor, given: Mapping[str, Any], like: State) -> Updates:
        """The round's updates, weighted, read one by one or on ciphertexts.

        Args:
            weights: ``[agents]``.
            given: what every agent is given.
            like: the parameters that are exchanged.
        """
        if self.settings.valuation == "encrypted":
            by_agent = dict(zip(round.cohort, weights.tolist(), strict=True))
            valued = round.value(channels.VALUED_UPDATE, by_agent, given=given)
            aggregate = kept.vector_of(valued.aggregate, like, "the aggregate")
            alignment, lengths = (
                torch.tensor([one[name] for name in round.cohort], dtype=torch.float64)
                for one in (valued.alignment, valued.lengths)
            )
            whole = float(aggregate.double().norm())
            squared = lengths**2 + whole**2 - 2 * alignment * lengths * whole
            return Updates(aggregate, alignment, squared.clamp(min=0).sqrt())
        uploads = round.gather(channels.UPDATE, given=given)
        # an agent has scaled its update already, if it follows the protocol
        gradients = self.scaled(
            torch.stack([kept.vector_of(uploads[one], like, one) for one in round.cohort])
        )
        aggregate = (weights @ gradients.double()).float()
        distances = (gradients.double() - aggregate.double()).norm(dim=1)
        return Updates(aggregate, fairness.cosines(gradients, aggregate), distances)

    # --- the agents

    @channels.UPDATE.answer
    def update(self, client: ClientContext, given: State) -> Upload:
        """Trains the agent's own model and returns how its shared part moved."""
        return Upload(self._train(client, given))

    @channels.REWARD.answer
    def reward(self, client: ClientContext, given: State) -> None:
        """Makes the agent's next model of its old one, its own update and what it has earned.

        Each update is rewarded once, so what it started from leaves the memory here.
        """
        before, after = client.memory.pop("before", None), self.own_model(client)
        if before is None:
            raise HostileMessage(f"{client.name} was given a reward before it sent anything")
        places, amounts = earned(client, given)
        moved = kept.flatten(after) - kept.flatten(before)
        if self.settings.reading == "revert":
            moved = torch.zeros_like(moved)
        amounts = amounts.to(moved.dtype)  # a server may send doubles
        moved[places] = moved[places] + amounts if self.settings.reading == "add" else amounts
        client.memory["model"] = self.own_model(client) | all_finite(kept.add_vector(before, moved))
        client.memory["value"] = float(given["value"])

    def _train(self, client: ClientContext, given: State) -> State:
        """One round of local training: how the shared part of the agent's model moved."""
        start = client.memory.get("model") or self.start(client.schema, int(given[kept.SEED]))
        client.memory["model"] = self.fit(client, start, self.pull(client, given))
        client.memory["before"] = before = start
        moved = kept.flatten(client.memory["model"]) - kept.flatten(before)
        return kept.add_vector({k: torch.zeros_like(v) for k, v in before.items()}, self.scaled(moved))

    # --- what a run has besides

    def uses(self, channel: Channel, rounds: int, clients: int) -> int:
        """What is asked once or twice, and the rest every round."""
        return channels.ASKS.get(channel.name, rounds)

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """The public seed, and rewards."""
        if channel == channels.REWARD.name:
            return channels.expected_reward(len(kept.flatten(self.start(schema, 0))))
        if channel == channels.SIZE.name:
            return NOTHING
        seeded = channel in (channels.UPDATE.name, channels.VALUED_UPDATE.name)
        return ({kept.SEED: Whole()},) if seeded else super().takes(channel, schema)

    def init(self, schema: Schema, seed: int) -> State:
        """First weights, which follow from a public seed."""
        return {kept.SEED: torch.tensor(seed), **self.start(schema, seed)}

    def released(self, state: State) -> State | None:
        """The global model."""
        return kept.parameters_in(state)

    def notes(self, state: State) -> dict[str, Any]:
        """Every agent's value and payoff, by round, and how the last updates agreed."""
        if kept.AGENTS not in state:
            return {}
        agents = kept.names_from_tensor(state[kept.AGENTS])
        rows = {"values": state[kept.VALUES], "payoffs": state[kept.PAYOFFS]}
        return {
            "agents": agents,
            "budget": self.settings.budget,
            **{k: dict(zip(agents, row[-1].tolist(), strict=True)) for k, row in rows.items()},
            "alignment": dict(zip(agents, state[kept.ALIGNMENT].tolist(), strict=True)),
            "by_round": {k: row.tolist() for k, row in rows.items()},
        }

    def _marked(self, client: ClientContext, given: State) -> dict[str, Tensor]:
        # an agent's own tests are for its own model, also where a global one exists
        return super()._marked(client, {})


class AgentsWithSizes(PaidAgents):
    """Agents who can tell the server how many training graphs they have."""

    @channels.SIZE.answer
    def size(self, client: ClientContext, given: State) -> Upload:
        """How many training graphs the agent has."""
        return Upload({"graphs": client.graph.train_mask.sum().float().reshape(1)})


class AgentsValuedUnread(PaidAgents):
    """Agents who can be valued on ciphertexts."""

    @channels.VALUED_UPDATE.answer
    def valued_update(self, client: ClientContext, given: State) -> Upload:
        """The update, to be valued without being read."""
        return Upload(self._train(client, given))


def are_known(round: RoundApi, state: State, algorithm: str) -> bool:
    """Whether the state has the agents already.

    Args:
        algorithm: whose agents they are, for the refusal.

    Raises:
        BadInput: where it has others.
    """
    known = state.get(kept.AGENTS)
    if known is not None and not torch.equal(known, kept.names_to_tensor(round.cohort)):
        raise BadInput(f"{algorithm} asks the same agents in every round: their values are shares of one")
    return known is not None


def ask_sizes(round: RoundApi) -> Tensor:
    """``[agents]`` training graphs, at least 1: noise may leave less of a number.

    Raises:
        HostileMessage: for a number that is not finite.
    """
    uploads = round.gather(channels.SIZE)
    return (
        torch.cat([kept.numbers_in(one, "graphs", (1,), name) for name, one in uploads.items()])
        .double()
        .clamp(1)
    )


def rewards_of(
    agents: Sequence[str],
    step: Tensor,
    fractions: Tensor,
    values: Tensor,
    payoffs: Tensor,
    sizes: Sequence[int] = (),
) -> dict[str, dict[str, Any]]:
    """Agent -> the largest components of the step that it has earned, its new value and its payoff.

    Args:
        step: ``[D]`` what is added to the global model.
        fractions: ``[agents]`` of its components (Eq. 4).
        values: ``[agents]`` after this round.
        payoffs: ``[agents]`` of this round.
        sizes: of the step's tensors, where each gives its own largest components.
    """
    rewards, pieces = {}, step.split(list(sizes) or [len(step)])
    for agent, fraction, value, payoff in zip(
        agents, fractions.tolist(), values.tolist(), payoffs.tolist(), strict=True
    ):
        chosen = torch.cat([fairness.largest(piece, fraction) for piece in pieces])
        places = chosen.nonzero().flatten()
        rewards[agent] = {
            "places": places.int(), "amounts": step[places], "value": value, "payoff": payoff,
        }  # fmt: skip
    return rewards


def earned(client: ClientContext, given: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Which components a reward is of, and their amounts; that both are numbers in range the door has seen.

    Raises:
        HostileMessage: for places that repeat, or more or fewer than there are amounts.
    """
    places, amounts = given["places"].long(), given["amounts"]
    if places.shape != amounts.shape or len(places.unique()) < len(places):
        raise HostileMessage(f"{client.name} was given a reward that is none")
    return places, amounts
