"""The noise of a run that has a budget: planned before round 1, for the command and for ``train()`` alike."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.core.accounting.events import Event
from secure_fedgraph.core.channel import Channel, Recipient
from secure_fedgraph.core.errors import BadInput, BudgetExhausted
from secure_fedgraph.core.spending.budget import Budget
from secure_fedgraph.core.spending.ledger import Ledger, events_for
from secure_fedgraph.privacy.budget_warnings import EarlyStopWarning
from secure_fedgraph.privacy.planning import TRAINING, Plan, check_first, costs_of, early_stop, plan, split
from secure_fedgraph.privacy.policies import policy_with_noise
from secure_fedgraph.privacy.policy import NO_UPLOAD, REFEREE_PROTECTION, SCORES, BoundPolicy, Policy
from secure_fedgraph.running.options import RunOptions

NORM = 1.0
"""The clip of a policy of noise that is given by name: the command's, with a budget and no norm."""


SCORES_WEIGHT = 0.25
"""Of the budget, what counting scores for one item weighs beside 1 of what trains."""


@dataclass(frozen=True)
class Forecast:
    """What a run will send, as far as its budget depends on it: known before round 1.

    Args:
        algorithm: in the form that runs.
        channels: all that the run opens; the referee's cost nothing.
        clients: their names; the pool's where the algorithm pools.
        rounds: how many are scored.
        budget: with as many holders as the data have.
        evaluate_every: rounds from one score to the next, where clients send scores.
    """

    algorithm: Algorithm
    channels: Iterable[Channel]
    clients: tuple[str, ...]
    rounds: int
    budget: Budget
    evaluate_every: int = 1

    @property
    def paid(self) -> tuple[Channel, ...]:
        """The channels that cost some of a budget."""
        return tuple(one for one in self.channels if one.to != Recipient.REFEREE)

    @property
    def uses(self) -> dict[str, int]:
        """How often each client is asked, by channel, and how often it trains."""
        return self._uses_in(self.rounds)

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
        shares = {**self.algorithm.budget_shares, **(shares or {})}
        if any(one.name == SCORES and one.unit_contribution is not None for one in self.paid):
            shares = {SCORES: SCORES_WEIGHT, **shares}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # binding warns again when the run starts
            occurrences = occurrences_in(self.algorithm, make({}))
            return plan(self.budget, make, self.paid, self.clients, self.uses, shares, occurrences, before)

    def check_first(self, policy: Policy) -> None:
        """Checks that the budget holds one upload a channel, where noise was set by hand.

        Raises:
            BudgetExhausted: where it does not.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # binding warns again when the run starts
            bound = policy.bind(self.paid, self.clients)
            check_first(self.budget, bound, self.uses, occurrences_in(self.algorithm, policy))

    def warn_of_early_stop(
        self, bound: BoundPolicy, ledger: Path | None = None, sampled: bool = False
    ) -> None:
        """Warns where the budget will stop the run before its last round, and says what would let it end.

        Args:
            ledger: one that other runs share.
            sampled: whether a round asks some of the clients only, so that each may be asked less often.
        """
        try:
            shared = Ledger(ledger)
            before = [shared.costs_of(client) for client in shared.clients]
            occurrences = occurrences_in(self.algorithm, bound.policy)
            stop = early_stop(self.budget, bound, self._uses_in, self.rounds, occurrences, before)
        except (BudgetExhausted, BadInput):  # the run itself says so, at the message that it concerns
            return
        if stop is None:
            return
        stops = "may stop" if sampled else "stops"
        whose = f"the budget of epsilon {self.budget.epsilon:g} for one {self.budget.unit}"
        mends = [f"epsilon {stop.epsilon:g}"] if math.isfinite(stop.epsilon) else []
        mends += [] if stop.more_noise is None else [_larger(bound.policy, stop.more_noise)]
        fewer = f"{stop.after} round{'s' if stop.after > 1 else ''}"
        warnings.warn(
            f"{whose} {stops} this run after {stop.after} of {self.rounds} rounds: give "
            + (f"{', '.join(mends)}, or {fewer}" if mends else fewer),
            EarlyStopWarning,
            stacklevel=4,
        )

    def split(self, bound: BoundPolicy) -> list[dict[str, float | str | int | None]]:
        """How the budget is spent, channel by channel."""
        return split(self.budget, bound, self.uses, occurrences_in(self.algorithm, bound.policy))

    def events(self, bound: BoundPolicy) -> Counter[Event] | None:
        """All that one client is charged for in the whole run at the budget's unit; None without noise."""
        occurrences = occurrences_in(self.algorithm, bound.policy)
        return events_for(self.budget, costs_of(bound, self.uses, self.budget, occurrences))

    def _uses_in(self, rounds: int) -> dict[str, int]:
        clients, whole = len(self.clients), rounds == self.rounds
        return uses_in(self.algorithm, self.paid, clients, rounds, self.evaluate_every, whole)


def uses_in(
    algorithm: Algorithm,
    channels: Iterable[Channel],
    clients: int,
    rounds: int,
    evaluate_every: int,
    whole: bool = True,
) -> dict[str, int]:
    """How often each client is asked in so many rounds, by channel, and how often it trains.

    Args:
        evaluate_every: rounds from one score to the next, where clients send scores.
        whole: whether the last of these rounds is the run's, which is scored in any case.
    """
    scored = rounds // evaluate_every + (whole and bool(rounds % evaluate_every))
    counted = scored if evaluate_every > 1 else 1  # once, at the end, unless asked for more often
    of_scores = {algorithm.METRICS.name: scored, algorithm.SCORES.name: counted}
    asked = {one.name: algorithm.uses(one, of_scores.get(one.name, rounds), clients) for one in channels}
    return {TRAINING: rounds, **asked}


def occurrences_in(algorithm: Algorithm, policy: Policy) -> int:
    """In how many records of noisy steps one unit occurs, at most."""
    return 1 if policy.steps is None else algorithm.occurrences(policy.steps.unit)


def _larger(policy: Policy, times: float) -> str:
    """Noise that is so many times larger, in words."""
    given = (policy.made_with or {}).get("multiplier")
    if policy.steps is None and isinstance(given, int | float):
        return f"multiplier {_rounded_up(given * times):g}"
    return f"noise that is {_rounded_up(times):g} times as large"


def _rounded_up(number: float) -> float:
    """To three digits.

    >>> _rounded_up(1.2301), _rounded_up(0.5)
    (1.24, 0.5)
    """
    step = 10.0 ** (math.floor(math.log10(number)) - 2)
    return math.ceil(number / step - 1e-9) * step


def planned(name: str, forecast: Forecast, options: RunOptions) -> Policy:
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
    return forecast.plan(lambda noises: policy_with_noise(name, NORM, noises), ledger=shared).policy


def check_any_noise(bound: BoundPolicy, budget: Budget) -> None:
    """Checks, before anything is sent, that a policy adds any noise where a run has a budget.

    Raises:
        BadInput: where it adds none, so that the first upload of round 1 would exceed any budget.
    """
    if bound.steps is not None or bound.randomizers:
        return
    sent = [one for one in bound.bounds.values() if one.protection not in (REFEREE_PROTECTION, NO_UPLOAD)]
    sent = [one for one in sent if budget.unit not in one.channel.unread]
    if sent and not any(stage.noise() is not None for one in sent for stage in one.stages):
        raise BadInput(
            f"budget of epsilon {budget.epsilon:g}: {bound.policy.name} adds no noise, and train() plans "
            "none for it: give policies.distributed_dp(norm=..., multiplier=...), or policy='distributed_dp' "
            "by name, whose noise the budget plans, or use `secure-fedgraph run --epsilon`"
        )
