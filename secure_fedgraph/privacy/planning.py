"""Planning: the noise of all channels of a run, from one budget."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from secure_fedgraph.core.accounting.events import Event, GaussianEvent
from secure_fedgraph.core.channel import Channel, Reveal, UnitContributionSampled, noisy_policy
from secure_fedgraph.core.errors import BadInput, BudgetExhausted
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.spending.budget import Budget
from secure_fedgraph.core.spending.ledger import OF_NODES, Cost, events_for
from secure_fedgraph.privacy.noise_needed import least_noise
from secure_fedgraph.privacy.policy import NO_UPLOAD, REFEREE_PROTECTION, BoundPolicy, Policy

WIDTH = 2**24
"""Values of an upload that a plan assumes: what they add to delta is far below anything else."""
TRAINING = "training"
METRICS = "metrics"
"""The channel of owners' scores, :attr:`Algorithm.METRICS <secure_fedgraph.algorithm.Algorithm.METRICS>`."""
"""The name of clients' noisy steps in a plan, beside its channels and randomised inputs."""
FREE = 1e-2
"""The noise multiplier of a channel that costs a budget's unit nothing, where its policy adds some anyway."""
_PRECISION = 1e-4
"""Of planned noise, relative."""
_AGAIN = 1e3
"""How many times more noise than the search gave is tried before planning gives up."""


@dataclass(frozen=True)
class Plan:
    """How often a run may send on each channel, and with how much noise.

    Args:
        policy: with the noise filled in.
        budget: what it keeps to.
        multipliers: channel -> noise multiplier.
        uses: channel -> how often each client is asked on it.
        shares: channel -> its part of the budget; they sum to 1.
        epsilon: of the whole run, as the ledger will count it.
    """

    policy: Policy
    budget: Budget
    multipliers: Mapping[str, float]
    uses: Mapping[str, int]
    shares: Mapping[str, float]
    epsilon: float


def plan(
    budget: Budget,
    make: Callable[[Mapping[str, float]], Policy],
    channels: Sequence[Channel],
    clients: tuple[str, ...],
    uses: Mapping[str, int],
    shares: Mapping[str, float] | None = None,
    occurrences: int = 1,
    before: Sequence[Counter[Cost]] = (),
) -> Plan:
    """The least noise with which a whole run keeps to a budget.

    Gaussian releases compose by 1/z². A channel with share s gets the noise multiplier that contributes s of
    the total 1/z², over all its uploads; of sums that a unit is in with probability q, about q²/z².
    The ledger's own accountant decides whether it is enough.

    Args:
        make: noise multipliers by channel -> the policy.
        uses: channel -> how often each client is asked on it.
        shares: channel -> weight; 1 each by default.
        occurrences: how many training records one unit is in, where clients train under noise.
        before: what each client has spent already.

    Raises:
        BudgetExhausted: where a channel's noise does not protect the unit: no noise is enough then.
        BadInput: for shares of unknown channels, or that are not positive.
    """
    sent = [c for c in channels if c.to != "referee" and c.reveal is not Reveal.NOTHING]
    blind = {c.name for c in sent if budget.unit in c.unread}
    if sent and len(blind) == len(sent):
        one = "link" if budget.unit == Unit.EDGE else budget.unit
        raise BadInput(
            f"epsilon = {budget.epsilon:g}, unit = {budget.unit}: nothing that clients send depends on a "
            f"{one}, so {'an' if budget.unit == Unit.EDGE else 'a'} {budget.unit}'s epsilon is 0 without "
            "noise: leave epsilon out, or give unit=node"
        )
    trial = make({})
    trained = trial.steps is not None and trial.steps.unit == budget.unit
    budgeted = [c.name for c in sent if not (trained and c.trained)]
    if trained:
        budgeted.append(TRAINING)
    kinds = [one.kind for one in trial.randomizers if one.unit == budget.unit]
    budgeted = kinds or budgeted  # all that is sent is computed from these
    parts = _parts(shares or {}, budgeted)
    asked = {name: max(uses.get(name, 1), 1) for name in budgeted}
    # releases compose by their number; an event of steps holds their number itself
    once = (TRAINING, *kinds)
    # a sum that a unit is in by a coin costs about as much as one with noise of 1 / rate times as much
    samples = [(c.name, c.unit_contribution) for c in sent]
    rates = {name: one.rate for name, one in samples if isinstance(one, UnitContributionSampled)}
    # what costs the unit nothing has as little noise as its policy can add
    relative_multipliers = {
        n: FREE if n in blind else rates.get(n, 1.0) * math.sqrt((1 if n in once else asked[n]) / parts[n])
        for n in budgeted
    }

    template = costs_of(make(relative_multipliers).bind(channels, clients), uses, budget, occurrences)

    earlier = _each_once(before)

    def holds(costs: Counter[Cost]) -> bool:
        return _holds(budget, costs, earlier)

    def scaled(scale: float) -> Counter[Cost]:
        return Counter({_scaled(cost, scale): times for cost, times in template.items()})

    low, high = 1e-4, 1.0
    while (log_ratio := _over(budget, scaled(high), earlier)) > 0:
        # epsilon falls with the noise, or with its square where it is large
        low, high = high, high * min(max(math.exp(min(log_ratio, 9.0) / 2), 2.0), 16.0)
        if high > 1e9:
            least = _least(scaled(1e9), earlier, budget)
            by_filter = (
                "" if least > budget.epsilon else "; runs that share a ledger are held to a stricter rule"
            )
            raise BudgetExhausted(
                f"epsilon {budget.epsilon:g} at delta {budget.delta:g} cannot be kept with any noise: what "
                f"does not depend on it, or was spent before, comes to {least:.4g}{by_filter}"
            )
    high = least_noise(lambda scale: _over(budget, scaled(scale), earlier), low, high, _PRECISION)
    most = high * _AGAIN
    while True:
        multipliers = {name: FREE if name in blind else high * z for name, z in relative_multipliers.items()}
        policy = make(multipliers)
        planned = costs_of(policy.bind(channels, clients), uses, budget, occurrences)
        if holds(planned):
            return Plan(policy, budget, multipliers, asked, parts, _epsilon(planned, budget))
        if high > most:
            raise BudgetExhausted(
                f"epsilon {budget.epsilon:g} at delta {budget.delta:g} cannot be kept with the noise that "
                "was set by hand: whatever is planned beside it, it comes to "
                f"{_least(planned, earlier, budget):.4g}; give a larger protection.multiplier"
            )
        # a grid may round differently at other noise; noise that was set by hand does not grow
        high *= 1.001 if high < most / _AGAIN * 1.02 else 1.2


def check_first(budget: Budget, bound: BoundPolicy, uses: Mapping[str, int], occurrences: int = 1) -> float:
    """Checks before round 1, where noise was set by hand, that the budget holds one upload a channel.

    Returns:
        The epsilon of the whole run; where that exceeds the budget, the run will stop.

    Raises:
        BudgetExhausted: naming the smallest budget that does.
    """
    once = _epsilon(costs_of(bound, dict.fromkeys(uses, 1), budget, occurrences), budget)
    if math.isinf(once):
        raise BudgetExhausted(
            f"epsilon {budget.epsilon:g} is too small for one round with this noise, which has no finite "
            "epsilon, so no budget covers it: give a larger --multiplier or, for noisy steps, steps.noise"
        )
    if once > budget.epsilon:
        raise BudgetExhausted(
            f"epsilon {budget.epsilon:g} is too small for one round with this noise, which takes "
            f"{math.ceil(once * 100) / 100:g}; give that, or a larger --multiplier"
        )
    return _epsilon(costs_of(bound, uses, budget, occurrences), budget)


@dataclass(frozen=True)
class EarlyStop:
    """Where a budget stops a run, and what would let it end.

    Args:
        after: the whole rounds that the budget holds, at least 1.
        epsilon: a budget that holds all rounds; rounded up, and infinite where none does.
        more_noise: how many times larger the noise has to be for the budget as it is; None where no noise is
            large enough.
    """

    after: int
    epsilon: float
    more_noise: float | None


def early_stop(
    budget: Budget,
    bound: BoundPolicy,
    uses: Callable[[int], Mapping[str, int]],
    rounds: int,
    occurrences: int = 1,
    before: Sequence[Counter[Cost]] = (),
) -> EarlyStop | None:
    """Where a budget stops a run whose noise was set by hand.

    Args:
        uses: a number of rounds -> channel -> how often each client is asked on it in these.
        before: what each client has spent already.

    Returns:
        None where the budget holds all rounds, or not even one: the first round says that itself.
    """
    earlier = _each_once(before)

    def costs(number: int) -> Counter[Cost]:
        return costs_of(bound, uses(number), budget, occurrences)

    whole = costs(rounds)
    if _holds(budget, whole, earlier) or not _holds(budget, costs(1), earlier):
        return None
    after, over = 1, rounds
    while over - after > 1:
        middle = (after + over) // 2
        after, over = (middle, over) if _holds(budget, costs(middle), earlier) else (after, middle)
    enough = max(_least(whole, earlier, budget), budget.epsilon)
    while math.isfinite(enough) and not _holds(
        replace(budget, epsilon=enough), whole, earlier
    ):  # a filter takes more than the sum
        enough *= 1.01
    rounded = math.ceil(enough * 100) / 100 if math.isfinite(enough) else math.inf
    return EarlyStop(after, rounded, _more_noise(budget, whole, earlier))


def _more_noise(budget: Budget, costs: Counter[Cost], earlier: Sequence[Counter[Cost]]) -> float | None:
    def holds(scale: float) -> bool:
        scaled = Counter({_scaled(cost, scale): times for cost, times in costs.items()})
        return _holds(budget, scaled, earlier)

    low, high = 1.0, 2.0
    while not holds(high):
        low, high = high, high * 2
        if high > 1e6:
            return None
    return least_noise(lambda scale: -math.inf if holds(scale) else math.inf, low, high, 1e-3)


def _each_once(before: Sequence[Counter[Cost]]) -> list[Counter[Cost]]:
    """What clients have spent already; clients that spent the same are one."""
    return [Counter(costs) for costs in {frozenset(c.items()): dict(c) for c in before}.values()]


def _holds(budget: Budget, costs: Counter[Cost], earlier: Sequence[Counter[Cost]]) -> bool:
    return all(budget.holds(events_for(budget, costs + spent)) for spent in earlier or [Counter[Cost]()])


def _over(budget: Budget, costs: Counter[Cost], earlier: Sequence[Counter[Cost]]) -> float:
    """The logarithm of what is spent over the budget; where a filter decides, only whether it is too much."""
    if budget.adaptive:
        return -math.inf if _holds(budget, costs, earlier) else math.inf
    worst = max(budget.epsilon_of(events_for(budget, costs + spent)) for spent in earlier or [Counter()])
    return math.log(worst / budget.epsilon) if worst else -math.inf


def _parts(shares: Mapping[str, float], budgeted: Sequence[str]) -> dict[str, float]:
    for name, value in shares.items():
        if name not in budgeted:
            raise BadInput(f"budget.{name}: no channel of that name pays; they are {', '.join(budgeted)}")
        if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
            raise BadInput(f"budget.{name} = {value!r}: a channel's weight is a positive number")
    weights = {name: float(shares.get(name, 1.0)) for name in budgeted}
    return {name: weight / sum(weights.values()) for name, weight in weights.items()}


def split(
    budget: Budget, bound: BoundPolicy, uses: Mapping[str, int], occurrences: int = 1
) -> list[dict[str, float | str | int | None]]:
    """How a budget is spent: one row for each part that costs some of it.

    Returns:
        ``channel`` (or what is randomised, or ``training``); the ``unit`` that its noise was scaled to; its
        noise ``multiplier``, None where it is no Gaussian; its ``uses``; the ``epsilon`` of all these uses if
        nothing else were sent. These add up to more than the epsilon of the whole, as they compose better.
    """
    rows: list[dict[str, float | str | int | None]] = []
    noise = 0.0 if bound.steps is None else bound.steps.noise
    for name, cost, times in charged(bound, uses, occurrences):
        events = cost.at(budget.unit, budget.against, budget.holders)
        if events is not None and not events:
            continue  # computed from randomised inputs
        trained = budget.unit in dict(cost.steps)
        row: dict[str, float | str | int | None] = {
            "channel": name,
            "unit": cost.unit,
            "multiplier": None,
            "uses": times,
        }
        if name in bound.bounds:
            released = dict(cost.releases).get(budget.against, ())
            row["multiplier"] = max(
                (e.noise_multiplier for e in released if isinstance(e, GaussianEvent)), default=None
            )
            if trained and bound.steps is not None:
                row |= {"channel": f"{name} ({TRAINING})", "unit": bound.steps.unit, "multiplier": noise}
        rows.append({**row, "epsilon": _epsilon({cost: times}, budget)})
    return rows


def charged(bound: BoundPolicy, uses: Mapping[str, int], occurrences: int) -> Iterator[tuple[str, Cost, int]]:
    """What the ledger will charge one client in a run: name, cost of one use, number of uses."""
    free = {one.unit: () for one in bound.randomizers}
    for name, one in bound.bounds.items():
        if one.protection in (REFEREE_PROTECTION, NO_UPLOAD) or not uses.get(name):
            continue
        releases, steps = frozenset(one.releases(WIDTH).items()), bound.steps
        taken: dict[str, tuple[Event, ...]] = dict(free)
        taken |= dict.fromkeys(one.channel.unread, ())
        if steps is not None and one.channel.trained:
            taken[steps.unit] = steps.events(occurrences, one.bind_context.relation, WIDTH)
        once = one.channel.one_holder
        yield name, Cost(one.unit.value, one.relation, releases, frozenset(taken.items()), once), uses[name]
    for randomizer in bound.randomizers:
        costs = frozenset(randomizer.costs().items())
        yield randomizer.kind, Cost(randomizer.unit, bound.policy.relation, frozenset(), costs), 1


def costs_of(bound: BoundPolicy, uses: Mapping[str, int], budget: Budget, occurrences: int) -> Counter[Cost]:
    """All that the ledger will charge, counted."""
    costs: Counter[Cost] = Counter()
    for name, cost, times in charged(bound, uses, occurrences):
        if cost.at(budget.unit, budget.against, budget.holders) is None:
            protection = bound[name].protection.name
            raise BudgetExhausted(
                f"channel {name!r} with protection {protection}: no noise protects one {budget.unit} "
                f"against the {budget.against}, so its epsilon is infinite and no budget holds it: "
                + _mend(name, budget, bound, cost)
            )
        costs[cost] += times
    return costs


def _mend(channel: str, budget: Budget, bound: BoundPolicy, cost: Cost) -> str:
    protection, one_of = bound[channel].protection.name, bound[channel].unit.value
    noisy = noisy_policy(one.channel for one in bound.bounds.values())
    if channel == METRICS and budget.unit != "client":
        return "evaluation=at_home leaves each owner's scores with it, evaluation=referee puts them outside"
    if protection.startswith("central_dp") and budget.against == "server":
        return "the server sees it before the noise; give --against outsider, or use distributed_dp"
    if one_of != "client" and budget.unit == "client":
        whole = "an algorithm whose uploads are clipped whole, such as fedsgc"
        why = f"noise on this channel is for one {one_of}, and a client has many: give"
        if cost.at(one_of, budget.against, budget.holders) is not None:
            return f"{why} --unit {one_of}, or take {whole}"
        return f"{why} --policy {noisy} --unit {one_of}, or --policy {noisy} and {whole}"
    if budget.unit == "client":
        return "use distributed_dp, or local_dp where each upload is read"
    if one_of == budget.unit:
        return "use distributed_dp, or strictest where clients train by noisy steps besides"
    if budget.unit in OF_NODES:
        return f"use a policy without noise of its own, as masked: the {budget.unit}s are then randomised"
    if one_of == "client":  # noise for a client is noise for all that it holds
        return f"use --policy {noisy}, whose noise is for one client and all that it holds"
    return "use --unit client, or settings of the algorithm that bound what one unit touches"


def _scaled(cost: Cost, scale: float) -> Cost:
    def scaled(
        released: frozenset[tuple[str, tuple[Event, ...]]],
    ) -> frozenset[tuple[str, tuple[Event, ...]]]:
        return frozenset(
            (who, tuple(event.with_noise_scaled(scale) for event in events)) for who, events in released
        )

    return replace(cost, releases=scaled(cost.releases), steps=scaled(cost.steps))


def _least(costs: Counter[Cost], earlier: Sequence[Counter[Cost]], budget: Budget) -> float:
    return max(_epsilon(costs + spent, budget) for spent in earlier or [Counter[Cost]()])


def _epsilon(costs: Mapping[Cost, int], budget: Budget) -> float:
    return budget.epsilon_of(events_for(budget, costs))
