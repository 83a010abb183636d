"""An experiment's protection: its policy, with noise from its budget where it has one."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.errors import BadInput
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.federation import Federation
from secure_fedgraph.privacy.policy import BoundPolicy, Policy
from secure_fedgraph.privacy.spending.budget import Budget
from secure_fedgraph.privacy.spending.ledger import HELD, Ledger
from secure_fedgraph.privacy.spending.planning import Plan, check_first, plan, split
from secure_fedgraph.protocol.channel import Recipient
from secure_fedgraph.running.planned_noise import uses_of
from secure_fedgraph.running.preparation import channels_of


@dataclass(frozen=True)
class Protected:
    """What a run is started with: the policy, the budget, and the plan where one was made."""

    policy: Policy
    budget: Budget | None = None
    plan: Plan | None = None
    foreseen: float | None = None
    """The epsilon that the whole run will cost, where it has a budget. Above the budget the run will stop."""


def protect(
    experiment: Experiment,
    algorithm: Algorithm,
    federation: Federation,
    kept: Mapping[str, float] | None = None,
) -> Protected:
    """The policy of an experiment, calibrated to its budget.

    Args:
        kept: the multipliers that a resumed run was planned with. A new plan would give others, since a
            shared ledger holds what this run and others have spent since then.

    Raises:
        BudgetExhausted: where no noise fits the budget, or not even one round does.
        BadInput, Refused: as making and binding the policy would.
    """
    if experiment.epsilon is None:
        return Protected(experiment.make_policy())
    units = federation.units_of_budgets
    if experiment.unit not in units:
        raise BadInput(f"unit {experiment.unit!r}: these data have {', '.join(units)}; give one of them")
    federation = federation.pooled() if algorithm.pools else federation
    holders = federation.holders if experiment.unit in HELD else 1
    shared = experiment.ledger is not None
    budget = Budget(
        experiment.epsilon, experiment.delta, experiment.unit, experiment.against, holders, shared
    )
    if experiment.planned and kept is not None:
        return Protected(experiment.make_policy(kept), budget)
    # noise by hand follows no plan; a resumed run may find a torn line in its ledger, which it mends itself
    ledger = Ledger(experiment.ledger if experiment.planned else None)
    before = [ledger.costs_of(name) for name in ledger.clients]
    every = channels_of(algorithm, federation, experiment.evaluation)
    channels = tuple(c for c in every if c.to != Recipient.REFEREE)
    rounds = experiment.rounds or algorithm.rounds
    uses = uses_of(algorithm, channels, rounds, len(federation.names))
    occurrences = _occurrences(algorithm, experiment.make_policy())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # binding warns again when the run starts
        if experiment.planned:
            made = plan(
                budget,
                experiment.make_policy,
                channels,
                federation.names,
                uses,
                experiment.budget,
                occurrences,
                before,
            )
            return Protected(made.policy, budget, made, made.epsilon)
        policy = experiment.make_policy()
        foreseen = check_first(budget, policy.bind(channels, federation.names), uses, occurrences)
        return Protected(policy, budget, None, foreseen)


def split_of(
    budget: Budget, policy: BoundPolicy, algorithm: Algorithm, rounds: int, clients: int
) -> list[dict[str, float | str | int | None]]:
    """How a run's budget is spent: ``privacy.spending.planning.split`` of its bound policy."""
    channels = tuple(one.channel for one in policy.bounds.values())
    uses = uses_of(algorithm, channels, rounds, clients)
    return split(budget, policy, uses, _occurrences(algorithm, policy.policy))


def _occurrences(algorithm: Algorithm, policy: Policy) -> int:
    return 1 if policy.steps is None else algorithm.occurrences(policy.steps.unit)
