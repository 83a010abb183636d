"""The noise of a run that has a budget: planned before round 1, for the command and for ``train()`` alike."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.errors import BadInput
from secure_fedgraph.federation import Federation
from secure_fedgraph.privacy.policies import policy_with_noise
from secure_fedgraph.privacy.policy import NO_UPLOAD, REFEREE_PROTECTION, BoundPolicy, Policy
from secure_fedgraph.privacy.spending.budget import Budget
from secure_fedgraph.privacy.spending.ledger import Ledger
from secure_fedgraph.privacy.spending.planning import TRAINING, Plan, check_first, plan, split
from secure_fedgraph.protocol.channel import Channel, Recipient
from secure_fedgraph.running.options import RunOptions

NORM = 1.0
"""The clip of a policy of noise that is given by name: the command's, with a budget and no norm."""


@dataclass(frozen=True)
class Forecast:
    """What a run will send, as far as its budget depends on it: known before round 1.

    Args:
        algorithm: in the form that runs.
        channels: all that the run opens; the referee's cost nothing.
        clients: their names; the pool's where the algorithm pools.
        rounds: how many are scored.
        budget: with as many holders as the data have.
    """

    algorithm: Algorithm
    channels: Iterable[Channel]
    clients: tuple[str, ...]
    rounds: int
    budget: Budget

    @property
    def paid(self) -> tuple[Channel, ...]:
        """The channels that cost some of a budget."""
        return tuple(one for one in self.channels if one.to != Recipient.REFEREE)

    @property
    def uses(self) -> dict[str, int]:
        """How often each client is asked, by channel, and how often it trains."""
        asked = {c.name: self.algorithm.uses(c, self.rounds, len(self.clients)) for c in self.paid}
        return {TRAINING: self.rounds, **asked}

    def plan(
        self,
        make: Callable[[Mapping[str, float]], Policy],
        shares: Mapping[str, float] | None = None,
        ledger: Path | None = None,
    ) -> Plan:
        """The least noise with which the whole run keeps to the budget.

        Args:
            make: noise multipliers by channel -> the policy.
            shares: channel -> weight of its part of the budget.
            ledger: one that other runs share: what they spent is planned around.

        Raises:
            BudgetExhausted: where no noise does.
            BadInput: for shares of unknown channels, or a ledger that cannot be read.
        """
        shared = Ledger(ledger)
        before = [shared.costs_of(client) for client in shared.clients]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # binding warns again when the run starts
            occurrences = self._occurrences(make({}))
            return plan(self.budget, make, self.paid, self.clients, self.uses, shares, occurrences, before)

    def check_first(self, policy: Policy) -> float:
        """Checks that the budget holds one upload a channel, where noise was set by hand.

        Returns:
            The epsilon of the whole run.

        Raises:
            BudgetExhausted: where it does not.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # binding warns again when the run starts
            bound = policy.bind(self.paid, self.clients)
            return check_first(self.budget, bound, self.uses, self._occurrences(policy))

    def split(self, bound: BoundPolicy) -> list[dict[str, float | str | int | None]]:
        """How the budget is spent, channel by channel."""
        return split(self.budget, bound, self.uses, self._occurrences(bound.policy))

    def _occurrences(self, policy: Policy) -> int:
        return 1 if policy.steps is None else self.algorithm.occurrences(policy.steps.unit)


def planned(
    name: str,
    algorithm: Algorithm,
    federation: Federation,
    channels: Iterable[Channel],
    options: RunOptions,
    budget: Budget,
) -> Policy:
    """The named recipe with the least noise with which the whole run keeps to its budget.

    Raises:
        BudgetExhausted: where no noise does.
        BadInput: on resuming a run over a shared ledger, which holds what was spent since its start.
    """
    shared = options.shared_ledger
    if options.resume and shared is not None:
        raise BadInput(
            f"the noise of policy {name!r} was planned from what {shared} held when the run was started: to "
            f"resume it, give policies.{name}(norm=..., multiplier=...) with that noise"
        )
    rounds = algorithm.rounds if options.rounds is None else options.rounds
    forecast = Forecast(algorithm, channels, federation.names, rounds, budget)
    return forecast.plan(lambda noises: policy_with_noise(name, NORM, noises), ledger=shared).policy


def check_any_noise(bound: BoundPolicy, budget: Budget) -> None:
    """Checks, before anything is sent, that a policy adds any noise where a run has a budget.

    Raises:
        BadInput: where it adds none, so that the first upload of round 1 would exceed any budget.
    """
    if bound.steps is not None or bound.randomizers:
        return
    sent = [one for one in bound.bounds.values() if one.protection not in (REFEREE_PROTECTION, NO_UPLOAD)]
    if sent and not any(stage.noise() is not None for one in sent for stage in one.stages):
        raise BadInput(
            f"budget of epsilon {budget.epsilon:g}: {bound.policy.name} adds no noise, and train() plans "
            "none for it: give policies.distributed_dp(norm=..., multiplier=...), or policy='distributed_dp' "
            "by name, whose noise the budget plans, or use `secure-fedgraph run --epsilon`"
        )
