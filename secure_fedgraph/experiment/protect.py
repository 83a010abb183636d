"""An experiment's protection: its policy, with noise from its budget where it has one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.spending.budget import Budget
from secure_fedgraph.core.spending.ledger import HELD
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.federation import Federation
from secure_fedgraph.privacy.planning import Plan
from secure_fedgraph.privacy.policy import Policy
from secure_fedgraph.running.planned_noise import Forecast
from secure_fedgraph.running.preparation import channels_of


@dataclass(frozen=True)
class Protected:
    """What a run is started with: the policy, the budget, and the plan where one was made."""

    policy: Policy
    budget: Budget | None = None
    plan: Plan | None = None


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
    budget = budget_of(experiment, federation)
    assert budget is not None
    if experiment.planned and kept is not None:
        return Protected(experiment.make_policy(kept), budget)
    forecast = Forecast(
        algorithm,
        channels_of(algorithm, federation, experiment.evaluation, experiment.make_policy(), budget),
        federation.names,
        experiment.rounds or algorithm.rounds,
        budget,
        experiment.evaluate_every,
    )
    if experiment.planned:
        made = forecast.plan(experiment.make_policy, experiment.budget, experiment.ledger)
        return Protected(made.policy, budget, made)
    # noise by hand follows no plan; a resumed run may find a torn line in its ledger, which it mends itself
    policy = experiment.make_policy()
    forecast.check_first(policy)
    return Protected(policy, budget)


def budget_of(experiment: Experiment, federation: Federation) -> Budget | None:
    """The budget that an experiment asks for; None where it asks for none.

    Args:
        experiment: as asked for.
        federation: with all data in one place where the algorithm pools.
    """
    if experiment.epsilon is None:
        return None
    holders = federation.holders if experiment.unit in HELD else 1
    shared = experiment.ledger is not None
    return Budget(experiment.epsilon, experiment.delta, experiment.unit, experiment.against, holders, shared)
