"""DW, EU, CFFL and CGSV: agents are given the part of the mean update that they are worth."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from secure_fedgraph.algorithm import Form, Settings, State
from secure_fedgraph.algorithms.fairgraphfl import agents, channels, fairness
from secure_fedgraph.algorithms.fairgraphfl import state as kept
from secure_fedgraph.algorithms.fairgraphfl.fairness import SMALL
from secure_fedgraph.algorithms.fairgraphfl.settings import RewardSettings
from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.inputs import Expected
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.seams import RoundApi

LEAST = 1e-3
"""CGSV keeps every reputation at this or more before it divides by their sum, so that none vanishes."""


def of_equal_length(gradients: Tensor, length: float) -> Tensor:
    """Each agent's gradient brought to one length; a zero gradient stays zero (CGSV).

    Args:
        gradients: ``[agents, D]``.
        length: the L2 norm.

    >>> of_equal_length(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), 0.5)
    tensor([[0.3000, 0.4000],
            [0.0000, 0.0000]])
    """
    return gradients * _ratio(gradients, length)


def at_most_of_length(gradients: Tensor, length: float) -> Tensor:
    """Each agent's gradient, shortened to a length where it is longer (RFFL).

    Args:
        gradients: ``[agents, D]``.
        length: the L2 norm.
    """
    return gradients * _ratio(gradients, length).clamp(max=1)


def moving_reputations(values: Tensor, alignment: Tensor, rate: float) -> Tensor:
    """``[agents]``: CGSV's reputations, ``(1 - rate) r + rate cos``, at least :data:`LEAST`, of sum 1.

    >>> moving_reputations(torch.zeros(2), torch.tensor([0.9, 0.3]), 0.05)
    tensor([0.7500, 0.2500], dtype=torch.float64)
    """
    raw = ((1 - rate) * values.double() + rate * alignment.double()).clamp(min=LEAST)
    return raw / raw.sum()


def surviving_reputations(values: Tensor, alignment: Tensor, rate: float, removes: bool) -> Tensor:
    """``[agents]``: RFFL's reputations, of sum 1; an agent of 0 is out, and stays out.

    Where nobody's would be positive they stay as they were.

    Args:
        values: of the round before; agents of 0 are removed.
        alignment: cosines with the aggregate.
        rate: of the moving mean.
        removes: whether agents below a third of the mean reputation are removed now.

    >>> surviving_reputations(torch.tensor([0.45, 0.45, 0.1]), torch.tensor([1.0, 1.0, -1.0]), 0.05, True)
    tensor([0.5000, 0.5000, 0.0000], dtype=torch.float64)
    """
    values = values.double()
    raw = torch.where(values > 0, (1 - rate) * values + rate * alignment.double(), 0.0).clamp(min=0)
    if float(raw.sum()) <= SMALL:
        return values
    raw = raw / raw.sum()
    if removes:
        raw = torch.where(raw < 1 / (3 * int((raw > 0).sum())), 0.0, raw)
    return raw / raw.sum()


def nearness(distances: Tensor) -> Tensor:
    """``[agents]``: shares of sum 1 that fall with the distance from the aggregate, ``1 / (1 + d)`` (EU).

    The paper's table names a Euclidean score and leaves its map open; this one is ours.

    >>> nearness(torch.tensor([0.0, 1.0]))
    tensor([0.6667, 0.3333], dtype=torch.float64)
    """
    scores = 1 / (1 + distances.double())
    return scores / scores.sum()


def fractions_of(values: Tensor) -> Tensor:
    """``[agents]`` in [0, 1]: each value over the largest; 0 where none is positive."""
    positive = values.double().clamp(min=0)
    most = float(positive.max()) if len(positive) else 0.0
    return positive / most if most > 0 else positive


def _ratio(gradients: Tensor, length: float) -> Tensor:
    ratio: Tensor = length / gradients.norm(dim=-1, keepdim=True).clamp(min=1e-30)
    return ratio


ENCRYPTED = Form(
    {"valuation": "encrypted"}, "agents are valued on ciphertexts, so the server reads no update"
)


class SizeRewardSettings(RewardSettings):
    """As :class:`RewardSettings`, where the server is told how many graphs each agent has.

    Args:
        valuation: ``plain`` always: what an agent is worth is public with its number of graphs.
    """

    valuation: Literal["plain"] = "plain"


class CgsvSettings(RewardSettings):
    """As :class:`RewardSettings`, and CGSV's own.

    Args:
        reading: ``revert``: agents give their own update up for the reward, as CGSV prints it.
        length: that every update is brought to.
        rate: of the moving mean of reputations.
        beta_fair: the beta of the reward's tanh.
        first_weights: of the first round's mean, before there are reputations: ``size``, by number of graphs
            as printed, which agents tell the server; or ``equal``.
    """

    reading: Literal["fill", "add", "revert"] = "revert"
    length: float = Field(0.5, gt=0, allow_inf_nan=False)
    rate: float = Field(0.05, gt=0, le=1)
    beta_fair: float = Field(1.0, gt=0, allow_inf_nan=False)
    first_weights: Literal["size", "equal"] = "size"


class CfflSettings(RewardSettings):
    """As :class:`RewardSettings`, and RFFL's own.

    Args:
        length: that longer updates are shortened to.
        rate: of the moving mean of reputations.
        stays: rounds in which nobody is removed.
    """

    length: float = Field(0.5, gt=0, allow_inf_nan=False)
    rate: float = Field(0.05, gt=0, le=1)
    stays: int = Field(10, ge=0)


class RewardedAgents(agents.PaidAgents):
    """What the four have in common.

    Every agent trains its own GIN and uploads its update. The server takes their weighted mean, says what
    every agent is worth, gives it that share of the mean's largest components (of each tensor), and pays it
    that share of a budget. Subclasses say what an agent is worth.

    Guarantees:
        - an agent of value 0 is given nothing;
        - payoffs of a round add up to the budget.
    """

    def worth(self, state: State, updates: agents.Updates, number: int) -> Tensor:
        """``[agents]`` what each is worth after a round: not negative, of sum 1.

        Args:
            state: with the values of earlier rounds.
            updates: of this round.
            number: of the round.
        """
        raise NotImplementedError

    def weights(self, state: State) -> Tensor:
        """``[agents]`` of the mean, of sum 1: what each was worth before."""
        return state[kept.VALUES][-1]

    def fractions(self, values: Tensor) -> Tensor:
        """``[agents]`` in [0, 1]: which part of the mean's components each is given."""
        return fractions_of(values)

    def round(self, round: RoundApi, state: State) -> State:
        """Updates in, values and payoffs; out go rewards."""
        state = self.meet(round, state)
        parameters = kept.parameters_in(state)
        updates = self.updates(round, self.weights(state), {kept.SEED: int(state[kept.SEED])}, parameters)
        values = self.worth(state, updates, round.number)
        payoffs = self.settings.budget * fairness.shares(values)
        step = self.settings.server_rate * updates.aggregate
        sizes = [p.numel() for p in parameters.values()]
        rewards = agents.rewards_of(round.cohort, step, self.fractions(values), values, payoffs, sizes)
        round.scatter(channels.REWARD, rewards)
        return state | {
            **kept.add_vector(parameters, step),
            kept.VALUES: torch.cat([state[kept.VALUES], values[None]]),
            kept.PAYOFFS: torch.cat([state[kept.PAYOFFS], payoffs[None]]),
            kept.ALIGNMENT: updates.alignment,
        }

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """As agents of all kinds: this round gives nothing else, which has to be said beside it."""
        return super().takes(channel, schema)

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """What these settings send."""
        return (*((channels.SIZE,) if self.asks_sizes else ()), self.update_channel, channels.REWARD)


class Dw(RewardedAgents, agents.AgentsWithSizes):
    """Rewards by data volume: an agent is worth its share of all training graphs.

    Agents of equal size are given everything, and with ``reading="fill"`` that is FedAvg with optimisers that
    stay at home.

    References:
        The baseline DW of FairGraphFL, AAAI 2024, table 2.
    """

    name = "dw"
    summary = "agents are given the mean update by how many graphs they have (FairGraphFL's baseline)"
    reference = "baseline of FairGraphFL"
    Settings: ClassVar[type[Settings]] = SizeRewardSettings

    @property
    def asks_sizes(self) -> bool:
        """Always."""
        return True

    def weights(self, state: State) -> Tensor:
        """By number of graphs."""
        return state[kept.SIZES] / state[kept.SIZES].sum()

    def worth(self, state: State, updates: agents.Updates, number: int) -> Tensor:
        """By number of graphs."""
        return self.weights(state)


class Eu(RewardedAgents, agents.AgentsValuedUnread):
    """Rewards by nearness: an agent is worth the more, the nearer its update is to the mean.

    The score is ``1 / (1 + ||u_i - u||)`` of the round alone; FairGraphFL leaves the map open.

    References:
        The baseline EU of FairGraphFL, AAAI 2024, table 2.
    """

    name = "eu"
    summary = "agents are given the mean update by their distance from it (FairGraphFL's baseline)"
    reference = "baseline of FairGraphFL"
    forms = (ENCRYPTED,)

    def worth(self, state: State, updates: agents.Updates, number: int) -> Tensor:
        """By distance from the mean."""
        return nearness(updates.distances)


class Cffl(RewardedAgents, agents.AgentsValuedUnread):
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
        return at_most_of_length(update, self.settings.length)

    def worth(self, state: State, updates: agents.Updates, number: int) -> Tensor:
        """A moving mean of cosines."""
        s = self.settings
        removes = number > s.stays
        return surviving_reputations(state[kept.VALUES][-1], updates.alignment, s.rate, removes)


class Cgsv(RewardedAgents, agents.AgentsWithSizes, agents.AgentsValuedUnread):
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
    def asks_sizes(self) -> bool:
        return self.settings.first_weights == "size"

    def scaled(self, update: Tensor) -> Tensor:
        """Exactly ``length`` long."""
        return of_equal_length(update, self.settings.length)

    def weights(self, state: State) -> Tensor:
        """By number of graphs in the first round where agents tell it, then by reputation."""
        if len(state[kept.VALUES]) == 1 and kept.SIZES in state:
            return state[kept.SIZES] / state[kept.SIZES].sum()
        return state[kept.VALUES][-1]

    def worth(self, state: State, updates: agents.Updates, number: int) -> Tensor:
        """A moving mean of cosines, from nothing."""
        values = state[kept.VALUES]
        before = torch.zeros_like(values[-1]) if len(values) == 1 else values[-1]
        return moving_reputations(before, updates.alignment, self.settings.rate)

    def fractions(self, values: Tensor) -> Tensor:
        """By the hyperbolic tangent of reputations."""
        return fairness.fractions(values, self.settings.beta_fair)
