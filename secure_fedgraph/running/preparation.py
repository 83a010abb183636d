"""What is settled before a run's first message: the algorithm's form, its channels, their protections."""

from __future__ import annotations

import json
import logging
import warnings
from dataclasses import asdict, dataclass, replace
from typing import Any

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.client import is_private
from secure_fedgraph.core.channel import Channel, Recipient, Reveal
from secure_fedgraph.core.errors import BadInput, SecureFedGraphError, wrong_type
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.spending.budget import Budget
from secure_fedgraph.core.spending.ledger import HELD
from secure_fedgraph.federation import Federation
from secure_fedgraph.forms import FormWarning, fit, said
from secure_fedgraph.graph.data.own_graph import DataWarning
from secure_fedgraph.graph.kinds import GraphDataset, GraphSetDataset
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.privacy.broadcasts import most_planted
from secure_fedgraph.privacy.dp_sgd import check_on_cpu
from secure_fedgraph.privacy.policies import policy_named, policy_with_noise, takes_multiplier
from secure_fedgraph.privacy.policies.strictest import strictest
from secure_fedgraph.privacy.policy import BoundPolicy, Policy
from secure_fedgraph.protocol.transcript import REFEREE, SERVER
from secure_fedgraph.round import everyone
from secure_fedgraph.running.options import RunOptions
from secure_fedgraph.running.planned_noise import NORM, Forecast, check_any_noise, planned

_LOG = logging.getLogger("secure_fedgraph.running")


@dataclass(frozen=True)
class Prepared:
    """A run whose checks have all passed: it can send its first message.

    Args:
        algorithm: in the form that the policy binds to.
        federation: pooled where the algorithm pools.
        bound: every channel's protection.
        options: as given.
    """

    algorithm: Algorithm
    federation: Federation
    bound: BoundPolicy
    options: RunOptions

    @property
    def evaluation(self) -> str:
        """Who scores."""
        return self.options.evaluation or self.federation.evaluation

    @property
    def rounds(self) -> int:
        """How many are scored."""
        given = self.options.rounds
        return self.algorithm.rounds if given is None else given

    @property
    def last(self) -> int:
        """The number of the last round, the warm-up counted."""
        return self.algorithm.warm_up + self.rounds

    def public(self) -> dict[str, Any]:
        """What everybody knows before round 1, and so every view holds."""
        return {
            **self.algorithm.public(),
            "policy": self.bound.policy.name,
            "clients": list(self.federation.names),
            "schema": {
                "features": self.federation.schema.features,
                "classes": self.federation.schema.classes,
            },
            "channels": {row["name"]: row for row in self.bound.describe()},
        }

    def facts(self) -> dict[str, Any]:
        """What identifies a run, as its checkpoint stores it: plain JSON values."""
        algorithm, bound = self.algorithm, self.bound
        kind = type(algorithm)
        # whether owners combine models changes nothing that a run depends on
        bounds = {name: one for name, one in bound.bounds.items() if name != algorithm.COMBINED.name}
        facts = {
            **algorithm.public(),
            "class": f"{kind.__module__}:{kind.__qualname__}",
            **{key: _called(made) for key, made in algorithm.made_with().items() if key == "model"},
            "policy": bound.policy.name,
            "channels": [row for row in bound.describe() if row["name"] in bounds],
            "protection": {
                key: value
                for key, value in (bound.policy.made_with or {}).items()
                if key != "policies" and (key, value) != ("disputes", 0)
            },
            "noise": {
                name: {
                    reader: [event.to_json() for event in events] for reader, events in b.releases().items()
                }
                for name, b in bounds.items()
            },
            "steps": asdict(bound.steps) if bound.steps else None,
            "randomizers": [one.to_config() for one in bound.randomizers],
            **({"broadcasts": asdict(bound.broadcasts)} if bound.broadcasts else {}),
            "stages": {name: [stage.public() for stage in b.stages] for name, b in bounds.items()},
            "clients": list(self.federation.names),
            "data": {key: value for key, value in self.federation.facts.items() if key != "source"},
            "rounds": self.rounds,
            "seed": self.options.seed,
            "evaluation": self.evaluation,
            **({"evaluate_every": every} if (every := self.options.evaluate_every) > 1 else {}),
            **({"evaluate_sample": size} if (size := self.options.evaluate_sample) else {}),
        }
        events: dict[str, Any] = json.loads(json.dumps(facts, default=str))
        return events


def prepare(
    algorithm: Algorithm, federation: Federation, policy: Policy | str | None, options: RunOptions
) -> Prepared:
    """Binds every channel of a run, or raises before anything is sent.

    Raises:
        Refused, BadInput: as :func:`~secure_fedgraph.running.loop.train`.
    """
    _check_subjects(algorithm, federation)
    algorithm = algorithm.on(options.device).for_data(federation.schema)
    by_name = policy if isinstance(policy, str) and options.budget and takes_multiplier(policy) else None
    policy = _policy(policy) if by_name is None else policy_with_noise(by_name, NORM, {})
    if algorithm.pools:
        federation = federation.pooled()
    evaluation = options.evaluation or federation.evaluation
    federation.check(algorithm, evaluation)
    if evaluation == "at_home" and options.evaluate_every > 1:
        raise BadInput(
            f"evaluate_every = {options.evaluate_every}: with evaluation at_home nobody scores; leave it out"
        )
    federation = _with_sampled_tests(federation, algorithm, evaluation, options)
    configured = algorithm
    budget = options.budget
    algorithm = fitted(
        algorithm, policy, federation, evaluation, options.allow_plaintext, budget, by_name is not None
    )
    if algorithm is not configured:
        warnings.warn(said(algorithm, policy.name), FormWarning, stacklevel=3)
    channels = channels_of(algorithm, federation, evaluation, policy, budget)
    if options.budget is not None and options.budget.unit in HELD:  # every holder of a unit pays for it
        held = max(options.budget.holders, federation.holders)
        options = replace(options, budget=replace(options.budget, holders=held))
    for _ in range(2):  # what noise there is decides the form, and the form what is sent
        if by_name is not None and options.budget is not None:
            policy = planned(by_name, _forecast(algorithm, channels, federation, options), options)
        bound = policy.bind(channels, federation.names)
        suited = _suited(algorithm, bound, federation)
        if suited is algorithm:
            break
        warnings.warn(said(suited, policy.name), FormWarning, stacklevel=3)
        algorithm, channels = suited, channels_of(suited, federation, evaluation, policy, budget)
    # own models read two links by degrees, of which a sample's graph has not all
    combined = evaluation == "referee" and is_private(bound) and options.evaluate_sample is None
    unscored = evaluation != "referee" or options.evaluate_sample is not None
    if unscored and (mend := getattr(algorithm.settings, "mend", "none")) != "none":
        raise BadInput(
            f"training.mend = {mend!r} is for owners' personal models, and evaluation = {evaluation!r} or a "
            "sample makes none of them: give --set evaluation=referee without a sample, or leave mend out"
        )
    if combined and algorithm.combines(federation.schema):
        bound = policy.bind((*channels, algorithm.COMBINED), federation.names)
    if bound.broadcasts is not None:
        bound = _limited(bound, algorithm, federation, options)
    if options.budget is not None:
        check_any_noise(bound, options.budget)
        if bound.disputes:
            raise BadInput(
                f"protection.disputes under epsilon {options.budget.epsilon:g}: an upload that is opened to "
                "an auditor counts as one without noise, which exceeds every budget; leave one of the two out"
            )
    _check_inside(bound, algorithm, federation)
    if options.budget is not None and not options.resume:  # noise by hand; a resumed run was warned before
        forecast = _forecast(algorithm, channels, federation, options)
        forecast.warn_of_early_stop(bound, options.shared_ledger, options.sampler is not everyone)
    tolerant = any(
        one.carrier.tolerates_dropouts or one.channel.without_lost for one in bound.bounds.values()
    )
    if options.dropouts is not None and not tolerant:
        raise BadInput(
            f"dropouts: under policy {policy.name} {algorithm.name} needs an answer of every client; use "
            "masked or distributed_dp, or leave dropouts out"
        )
    unread = sorted(set(federation.schema.edge_fields) - set(algorithm.reads(federation.schema)))
    if unread:
        warnings.warn(
            f"{' and '.join(unread)}: {algorithm.name}'s model does not read it", DataWarning, stacklevel=3
        )
    asked = (one.name for one in channels if one.to != Recipient.REFEREE)
    if unchecked := [name for name in asked if algorithm.expected(name, federation.schema) is None]:
        said_of = f"{algorithm.name}: clients check nothing of what they are given on {', '.join(unchecked)}"
        _LOG.warning("%s: declare it in takes()", said_of)
    return Prepared(algorithm, federation, bound, options)


def _forecast(
    algorithm: Algorithm, channels: tuple[Channel, ...], federation: Federation, options: RunOptions
) -> Forecast:
    rounds = algorithm.rounds if options.rounds is None else options.rounds
    assert options.budget is not None
    return Forecast(algorithm, channels, federation.names, rounds, options.budget, options.evaluate_every)


def _with_sampled_tests(
    federation: Federation, algorithm: Algorithm, evaluation: str, options: RunOptions
) -> Federation:
    """The federation with a referee who holds a sample of its test nodes, where one is asked for.

    Raises:
        BadInput: where nobody can score a sample.
    """
    size, tests = options.evaluate_sample, federation.referee.test_set
    if size is None:
        return federation
    reach = algorithm.reach(federation.schema)
    if evaluation != "referee" or not tests.tests or tests.inputs.get("edge_index") is None:
        raise BadInput(
            f"evaluate_sample = {size}: no referee scores test nodes of one graph in this run; leave it out"
        )
    if reach is None or algorithm.measure(federation.schema) != "accuracy":
        raise BadInput(
            f"evaluate_sample = {size}: {algorithm.name} as set scores no node without the whole graph; "
            "leave it out, and give evaluate_every to score fewer rounds"
        )
    referee = federation.referee.sampled(size, reach, sub_seed(options.seed, "evaluation sample"))
    return replace(federation, referee=referee)


def _limited(
    bound: BoundPolicy, algorithm: Algorithm, federation: Federation, options: RunOptions
) -> BoundPolicy:
    """The policy with the seed of the first weights, from which clients make the public start themselves.

    Raises:
        BadInput: where the algorithm gives clients no model that could be compared with it, or one that
            the limits refuse as it starts.
    """
    assert bound.broadcasts is not None
    limits = replace(bound.broadcasts, seed=sub_seed(options.seed, "initialisation"))
    found = (algorithm.given_first(name, federation.schema, limits.seed) for name in bound.bounds)
    starts = [start for start in found if start is not None]
    if not starts:
        raise BadInput(
            f"broadcast: {algorithm.name} gives clients no model whose public start they know, so there is "
            "nothing to compare; leave broadcast out"
        )
    name, share = max((most_planted(start) for start in starts), key=lambda one: one[1])
    if limits.units is not None and share > limits.units:
        raise BadInput(
            f"broadcast.units = {limits.units:g}: {algorithm.name} starts with {share:.0%} of the rows of "
            f"{name} at zero or alike, so clients would refuse its first model; leave broadcast.units out"
        )
    return replace(bound, policy=replace(bound.policy, broadcasts=limits))


def _suited(algorithm: Algorithm, bound: BoundPolicy, federation: Federation) -> Algorithm:
    """The form that suits the noise of a policy."""
    sizes = federation.sizes  # of silos on machines of their own nobody knows them
    for name, one in bound.bounds.items():
        noise = one.deviation(len(federation.names))
        if name in algorithm.channel_names():
            algorithm = algorithm.suited(one.channel, noise, federation.schema, len(federation.names), sizes)
    return algorithm


def _check_subjects(algorithm: object, federation: object) -> None:
    """Checks the types of the algorithm and the federation."""
    if isinstance(algorithm, type) and issubclass(algorithm, Algorithm):
        raise wrong_type("algorithm", algorithm, f"give an instance, {algorithm.__name__}()")
    if not isinstance(algorithm, Algorithm):
        raise wrong_type("algorithm", algorithm, "give an algorithm, such as FedSage()")
    if not isinstance(federation, Federation):
        raise wrong_type("federation", federation, "hand the data out first, with federate(data, clients=3)")


def _policy(policy: object) -> Policy:
    if isinstance(policy, str):
        return policy_named(policy)
    if policy is None:
        return strictest()
    if not isinstance(policy, Policy):
        call = f"call it, policies.{getattr(policy, '__name__', 'masked')}()" if callable(policy) else ""
        raise wrong_type(
            "policy", policy, call or "give one of policies, such as policies.masked(), or its name"
        )
    return policy


def fitted(
    algorithm: Algorithm,
    policy: Policy,
    federation: Federation,
    evaluation: str = "referee",
    allow_plaintext: bool = False,
    budget: Budget | None = None,
    planned: bool = False,
) -> Algorithm:
    """The form of an algorithm that runs over a federation under a policy.

    Args:
        planned: whether the budget plans the noise, so that the algorithm may be exchanged for its form with
            noise on sums. Noise that was set by hand is for the algorithm that was given.

    Raises:
        Refused, BadInput: as :func:`train`.
    """
    if algorithm.pools:
        federation = federation.pooled()
    algorithm = _under_budget(algorithm, policy, federation, budget, planned)
    return fit(
        algorithm,
        policy,
        federation.names,
        allow_plaintext,
        lambda one: channels_of(one, federation, evaluation, policy, budget),
        lambda one: federation.check(one, evaluation),
    )


def _under_budget(
    algorithm: Algorithm, policy: Policy, federation: Federation, budget: Budget | None, planned: bool
) -> Algorithm:
    """The form that suits a budget, where the policy's noise is on sums, or where it has none."""
    if budget is None or policy.steps is not None:
        return algorithm
    if not policy.randomizers and not any(
        _adds_noise(policy, one, federation.names) for one in algorithm.in_use
    ):
        algorithm = algorithm.untouched_by(budget.unit)
    on_sums = algorithm.on_sums(budget.unit)
    sent = [one for one in on_sums.in_use if one.to == SERVER and one.reveal is not Reveal.NOTHING]
    fits = federation.schema.kind in on_sums.kinds
    if on_sums is not algorithm and not (
        planned and fits and all(_adds_noise(policy, one, federation.names) for one in sent)
    ):
        return algorithm
    return on_sums.under_budget(
        budget.epsilon, budget.delta, budget.unit, federation.schema, federation.sizes
    )


def channels_of(
    algorithm: Algorithm,
    federation: Federation,
    evaluation: str,
    policy: Policy,
    budget: Budget | None = None,
) -> tuple[Channel, ...]:
    """Every channel that a run opens, the referee's included."""
    in_use = algorithm.in_use
    if not federation.knows_homes:  # then every holder counts a node
        ratings = federation.schema.kind == "ratings"  # each at one owner alone
        in_use = tuple(
            replace(one, one_holder=one.one_holder and ratings and one.unit is Unit.EDGE) for one in in_use
        )
    channels = (*in_use, *federation.referee.channels(algorithm))
    if evaluation == "referee":
        return channels
    # there is no referee, so a request in its name is not answered
    scores = _scores(algorithm, federation, policy, budget) if evaluation == "in_band" else ()
    return (*(c for c in channels if c.to != REFEREE), *scores)


def _scores(
    algorithm: Algorithm, federation: Federation, policy: Policy, budget: Budget | None
) -> tuple[Channel, ...]:
    """The channels on which clients' scores are asked for.

    Where noise is for one node, graph or link, items are counted, each in few cells. Where it is for a client
    the mean of their accuracies is asked for; without noise both are.
    """
    if federation.schema.kind == "ratings":
        return (algorithm.METRICS,)
    counted = algorithm.scores_channel(federation.schema, by_item=True)
    noised = _adds_noise(policy, counted, federation.names)
    if budget is not None:
        whole = budget.unit == Unit.CLIENT
        by_item = noised and not whole and budget.unit not in {one.unit for one in policy.randomizers}
    else:
        records = policy.steps is not None or any(
            one.unit_contribution is not None for one in algorithm.in_use
        )
        by_item, whole = noised and records, noised and not records
    if whole or (not noised and _adds_noise(policy, algorithm.METRICS, federation.names)):
        return (algorithm.METRICS,)  # cells of items do not fit under this policy's noise
    return (counted,) if by_item else (algorithm.METRICS, algorithm.SCORES)


def _adds_noise(policy: Policy, channel: Channel, clients: tuple[str, ...]) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            bound = policy.bind((channel,), clients)[channel.name]
        except SecureFedGraphError:
            return False
    return any(stage.noise() for stage in bound.stages)


def _check_inside(bound: BoundPolicy, algorithm: Algorithm, federation: Federation) -> None:
    """Checks, before anything is sent, that noise inside the clients fits the data and the algorithm."""
    kind, carried = federation.schema.kind, federation.schema.edge_fields
    algorithm.check_inputs(bound.divided_inputs)
    if carried and any(one.place == "edge_index" for one in bound.randomizers):
        raise BadInput(
            f"links are randomised, and new links have no {' or '.join(carried)}: leave it out of the data"
        )
    if bound.steps is not None:
        check_on_cpu(algorithm.device.type)
        algorithm.check_records(federation.schema, bound.steps.unit)
        record = "graph" if kind == GraphSetDataset.kind else "edge" if federation.schema.ends else "node"
        if bound.steps.unit != record:
            raise BadInput(
                f"steps.unit = {bound.steps.unit!r}: records of these data are {record}s; set unit={record}"
            )
    if bound.randomizers and federation.schema.ends:
        raise BadInput(
            f"{bound.randomizers[0].kind} can be randomised where nodes are learned, and these data's items "
            "are links: use --policy distributed_dp with fedridge or fedsgd, or noisy steps (steps.unit=edge)"
        )
    if bound.randomizers and kind != GraphDataset.kind:
        raise BadInput(
            f"{bound.randomizers[0].kind} can be randomised in one graph of nodes only, and these data are "
            f"of kind {kind!r}"
        )


def _called(made: object) -> str:
    named = made if hasattr(made, "__qualname__") else type(made)
    return f"{getattr(named, '__module__', '')}:{getattr(named, '__qualname__', '')}"
