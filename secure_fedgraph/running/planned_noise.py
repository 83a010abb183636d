"""The noise of a run that names a policy and has a budget: planned before round 1, as the command does."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.errors import BadInput
from secure_fedgraph.federation import Federation
from secure_fedgraph.privacy.policies import policy_with_noise
from secure_fedgraph.privacy.policy import NO_UPLOAD, REFEREE_PROTECTION, BoundPolicy, Policy
from secure_fedgraph.privacy.spending.budget import Budget
from secure_fedgraph.privacy.spending.ledger import Cost, Ledger
from secure_fedgraph.privacy.spending.planning import TRAINING, plan
from secure_fedgraph.protocol.channel import Channel
from secure_fedgraph.running.options import RunOptions

NORM = 1.0
"""The clip of a policy of noise that is given by name: the command's, with a budget and no norm."""


def uses_of(algorithm: Algorithm, channels: Iterable[Channel], rounds: int, clients: int) -> dict[str, int]:
    """How often each client is asked, by channel, and how often it trains."""
    return {TRAINING: rounds, **{c.name: algorithm.uses(c, rounds, clients) for c in channels}}


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
    asked = [one for one in channels if one.to != "referee"]
    ledger = Ledger() if shared is None else Ledger(shared)
    before: list[Counter[Cost]] = [ledger.costs_of(client) for client in ledger.clients]
    rounds = algorithm.rounds if options.rounds is None else options.rounds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # binding warns again when the run starts
        made = plan(
            budget,
            lambda multipliers: policy_with_noise(name, NORM, multipliers),
            asked,
            federation.names,
            uses_of(algorithm, asked, rounds, len(federation.names)),
            before=before,
        )
    return made.policy


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
