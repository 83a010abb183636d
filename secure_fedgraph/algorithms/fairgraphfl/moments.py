"""What FairGraphFL becomes under a graph's budget: moments once, and what each agent added to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fairgraphfl import channels, fairness
from secure_fedgraph.algorithms.fairgraphfl.agents import earned, rewards_of
from secure_fedgraph.algorithms.fairgraphfl.state import (
    AGENTS,
    ALIGNMENT,
    OWN,
    PAYOFFS,
    VALUES,
    names_from_tensor,
    names_to_tensor,
)
from secure_fedgraph.algorithms.fedridge.algorithm import WEIGHTS
from secure_fedgraph.algorithms.fedridge.forms import FedAvgMoments, MomentSettings, personal_weights
from secure_fedgraph.algorithms.fedridge.settings import RidgeSettings
from secure_fedgraph.algorithms.fedsgd.heads import exact
from secure_fedgraph.core.channel import Channel, Reveal, UnitContributionSampled
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.inputs import Expected, Numbers
from secure_fedgraph.core.upload import ContributionSample
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models import ridge
from secure_fedgraph.seams import ClientContext, RoundApi

EARNED = "earned"
"""In an agent's memory: the part of the shared model that its value earned."""
NOISE = f"{OWN}noise"
_BITS = 22


class FairMomentSettings(MomentSettings):
    """As :class:`MomentSettings`, and how agents are rewarded and paid.

    Args:
        beta_fair, tanh_arg, budget: as of FairGraphFL.
        share: of a budget, what the values weigh beside 1 of the moments.
    """

    beta_fair: float = Field(0.5, gt=0, allow_inf_nan=False)
    tanh_arg: Literal["r", "Kr"] = "r"
    budget: float = Field(1.0, ge=0, allow_inf_nan=False)
    share: float = Field(0.5, gt=0, le=1e6)


class FairGraphFLMoments(FedAvgMoments):
    """FairGraphFL's form under a graph's budget: one exchange of moments, one of values, then rewards.

    The server solves the noised sum of all agents' moments. It tells the direction ``U`` of the weights, and
    each agent adds up how far each of its graphs is on the side that these say, ``t U^T z``, in a place of
    its own of one more noised sum. So an agent's alignment is the inner product of its class sums, its
    gradient where weights are zero, and everybody's update (Eq. 9, by length in place of the cosine). Values,
    payoffs and rewards follow from these by the paper's equations (Eq. 4 to 7, 10 with a rate of 1), so they
    cost nothing more. An agent is given the components that it has earned, and fits a regression of its own
    to what they leave over (:func:`~secure_fedgraph.algorithms.fedridge.at_home.personal`).

    Left out: motif prototypes and diversity, whose counts by agent would drown in noise, and what they
    regularise, a GIN.

    Guarantees:
        - one graph is one record of either sum over all agents, of a length that the client enforces: it
          moves one agent's alignment by one graph;
        - payoffs add up to the budget; an agent of negative value is given nothing.
    Needs:
        - the same agents in every round.

    Args:
        settings: :class:`FairMomentSettings`.

    References:
        Fair Graph Federated Learning via motif prototypes and a value-based reward, AAAI 2024.
    """

    name = "fairgraphfl-moments"
    summary = "FairGraphFL's form under a graph's budget: a shared regression, values of one noised sum"
    reference = "FairGraphFL, AAAI 2024"
    tasks: ClassVar[tuple[str, ...]] = (Task.CLASSES,)
    Settings: ClassVar[type[RidgeSettings]] = FairMomentSettings
    settings: FairMomentSettings
    beside: ClassVar[str] = (
        "; how far each agent's graphs agree with all is a second noised sum, from which values, payoffs and "
        "rewards follow; there are no motif prototypes and no diversity"
    )

    WORTH = Channel("worth", Reveal.SUM)
    ALONG = "along"

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """The moments, the values, and the rewards that follow from both."""
        contribution = UnitContributionSampled(self._part, rate=1.0, records=self.settings.records)
        worth = replace(self.WORTH, unit=self.record, links=self.reads_links, unit_contribution=contribution)
        return (*super().in_use, worth, channels.REWARD)

    @property
    def _part(self) -> float:
        """What one graph's agreement counts in the sum, which stays within what carriers take."""
        return 1 / self.settings.records

    @property
    def budget_shares(self) -> Mapping[str, float]:
        """What values weigh in a budget beside moments."""
        return {self.WORTH.name: self.settings.share}

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """For values the direction of the weights; for a reward the earned components."""
        shape = (self.width(schema), schema.classes)
        if channel == self.WORTH.name:
            return ({self.ALONG: Numbers(shape)},)
        if channel == channels.REWARD.name:
            return channels.expected_reward(shape[0] * shape[1])
        return super().takes(channel, schema)

    def round(self, round: RoundApi, state: State) -> State:
        """Moments in, values in, rewards out."""
        s, agents = self.settings, sorted(round.cohort)
        state = super().round(round, state)
        along = state[WEIGHTS] / state[WEIGHTS].norm().clamp(min=1e-12)
        opened = round.reduce(self.in_use[1], given={self.ALONG: along})
        alignment = opened.total[self.WORTH.name][0].double() / self._part
        if len(alignment) != len(agents):
            raise BadInput(
                f"{self.name} asks all {len(alignment)} agents in a round, not {len(agents)}: their values "
                "are shares of one; leave the sampler out"
            )
        earlier = torch.full((1, len(agents)), 1 / len(agents), dtype=torch.float64)
        values = fairness.next_values(earlier[0], alignment, torch.zeros_like(alignment), rate=1.0)
        payoffs = fairness.payoffs(values, earlier, s.budget)
        fractions = fairness.fractions(values, s.beta_fair, s.tanh_arg)
        step = state[WEIGHTS].reshape(-1)
        round.scatter(channels.REWARD, rewards_of(agents, step, fractions, values, payoffs))
        rows = {VALUES: values, PAYOFFS: payoffs, ALIGNMENT: alignment, AGENTS: names_to_tensor(agents)}
        return {**state, **rows, NOISE: torch.tensor(opened.deviation / self._part, dtype=torch.float64)}

    @WORTH.answer
    def worth(self, client: ClientContext, given: State) -> ContributionSample:
        """How far each training graph is on the side that the given direction says."""
        graph, chosen = client.graph, client.sampled()
        chosen = chosen[graph.train_mask[chosen]]
        z = exact.on_grid(self.records(graph, client.schema)[chosen], 1.0, _BITS)
        along = exact.on_grid(given[self.ALONG], 1.0, exact.bits_left(_BITS, z.shape[1]))
        targets = ridge.targets(graph.y[chosen], client.schema.classes, 1.0)
        agreement = ((z @ along) * targets).sum(dim=1).float()
        place = sorted(client.clients).index(client.name)
        parts = torch.zeros(len(chosen), len(client.clients))
        parts[:, place] = agreement * self._part
        return ContributionSample({self.WORTH.name: parts}, chosen)

    @channels.REWARD.answer
    def reward(self, client: ClientContext, given: Mapping[str, Any]) -> None:
        """Keeps the components that the agent has earned, and 0 in place of the others."""
        shape = self.width(client.schema), client.schema.classes
        places, amounts = earned(client, given)
        parts = torch.zeros(shape[0] * shape[1])
        parts[places] = amounts.float()
        client.memory[EARNED] = parts.reshape(shape)

    def scores_at_home(self, client: ClientContext, params: State) -> Tensor:
        """Of the agent's own model, made of what it has earned; another's weights are not looked at."""
        shared = client.memory.get(EARNED, torch.zeros_like(params[WEIGHTS]))
        own = {WEIGHTS: personal_weights(self, client, shared)}
        return self.predict(own, client.graph, client.schema)

    def notes(self, state: State) -> dict[str, Any]:
        """Every agent's value, payoff and alignment, and the deviation of the noise on each alignment."""
        if AGENTS not in state:
            return {}
        agents = names_from_tensor(state[AGENTS])
        rows = {"values": VALUES, "payoffs": PAYOFFS, "alignment": ALIGNMENT}
        of = {name: dict(zip(agents, state[key].tolist(), strict=True)) for name, key in rows.items()}
        found = {"agents": agents, "budget": self.settings.budget, **of}
        return {**found, "noise_on_alignment": float(state[NOISE])}
