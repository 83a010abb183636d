"""Which algorithm a budget is worth most to: chosen before anything is sent, by what everybody knows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.core.channel import Recipient, Reveal
from secure_fedgraph.core.errors import BadInput, SecureFedGraphError
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.experiment.config import Experiment, as_listed, kind_of
from secure_fedgraph.experiment.noise_to_signal import of_a_run, opened
from secure_fedgraph.experiment.protect import protect
from secure_fedgraph.experiment.results import in_form
from secure_fedgraph.experiment.schema.run import NO_LEARNING
from secure_fedgraph.federation import Federation
from secure_fedgraph.graph.data.datasets import KINDS
from secure_fedgraph.graph.partition.registry import BY_KIND
from secure_fedgraph.privacy.dp_sgd import RECORDS
from secure_fedgraph.privacy.input_dp.labels import HOME
from secure_fedgraph.privacy.planning import TRAINING
from secure_fedgraph.running.options import RunOptions
from secure_fedgraph.running.preparation import prepare

UNITS = (Unit.NODE, Unit.GRAPH, Unit.CLIENT)
"""The units that the planner plans for."""
ON_SUMS, IN_STEPS = "distributed_dp", "masked"
"""The policies that are tried where none is named: noise on the sum, and noise in each client's steps."""
FAINT = 0.06
"""A noise-to-signal below which noise decides little: then the model with the most weights is taken. On
PubMed (.05 at a node's epsilon of 4) a network by steps was better than a regression by .01, on DBLP
(.08 at 8, .13 at 4) worse by .02 to .03, on Cora worse at every epsilon up to 8."""
LEAST = "the least noise for its signal"
NARROW = 100
"""Columns up to which the least noise decides: on tables of 15 to 40 columns (German credit, credit
default) one regression was better than steps at every epsilon from 1 to 8."""


@dataclass(frozen=True)
class Candidate:
    """One algorithm that the data's kind allows, in the form with the least noise for its signal.

    Args:
        algorithm: its name.
        policy: that it would run under.
        form: the settings that noise or the policy makes it take; empty as configured.
        noise_multiplier: the noise's standard deviation over what one unit moves; None where it does not run.
        noise_to_signal: as ``experiment.noise_to_signal.of_a_run``; None where it cannot be said.
        weights: how many numbers its model has.
        why: why it is chosen or not, in a sentence.
        runs_as: the name of the form that runs, or of an algorithm of several sums; else empty.
    """

    algorithm: str
    policy: str = ""
    form: str = ""
    noise_multiplier: float | None = None
    noise_to_signal: float | None = None
    weights: int = 0
    why: str = ""
    runs_as: str = ""


@dataclass(frozen=True)
class Choice:
    """What the planner found.

    Args:
        experiment: what was asked for; its algorithm and its policy say nothing.
        candidates: in the order of their names.
        least: the one to take: where noise is faint for several, that with the most weights of these; else
            that with the least noise for its signal.
        alone: the algorithm of owners who do not collaborate.
        by_weights: whether the number of weights decided.
    """

    experiment: Experiment
    candidates: tuple[Candidate, ...]
    least: Candidate
    alone: str
    by_weights: bool = False

    @property
    def learns(self) -> bool:
        """Whether noise leaves anything of the signal."""
        return self.least.noise_to_signal is not None and self.least.noise_to_signal <= NO_LEARNING

    @property
    def chosen(self) -> Candidate:
        """What to run.

        Raises:
            BadInput: where noise exceeds any signal.
        """
        if self.learns:
            return self.least
        raise BadInput(f"epsilon {self.experiment.epsilon:g}: {self.no_learning}")

    @property
    def no_learning(self) -> str:
        """Why nothing is recommended, and the mend."""
        least, asked = self.least, self.experiment
        return (
            f"the least noise for one {asked.unit}, that of {least.algorithm}, is "
            f"{least.noise_to_signal:.3g} times what the signal can be at most (above {NO_LEARNING:g}): "
            "noise exceeds any signal, and this is no learning; give a larger epsilon or more owners "
            f"({asked.clients} now), or leave every owner alone (--algorithm {self.alone})"
        )


def asked_experiment(values: Mapping[str, Any]) -> Experiment:
    """What a user asks the planner about.

    Args:
        values: keys of an :class:`~secure_fedgraph.experiment.config.Experiment`. The algorithm counts for
            nothing. Data, owners and partition are by default those of every experiment, and not those of
            an algorithm's paper: they are given before an algorithm is chosen.

    Raises:
        BadInput: without an epsilon, and for what no experiment takes.
    """
    fields = Experiment.model_fields
    values = {key: value for key, value in values.items() if key not in ("algorithm", "policy")}
    if values.get("epsilon") is None:
        raise BadInput("no epsilon: the planner chooses by the noise that a budget needs; give --epsilon 4")
    if not values.get("silos"):
        data = values.setdefault("data", fields["data"].default)
        kind = kind_of(as_listed("data", data)) if isinstance(data, str) else ""
        if not kind:
            raise unknown_name("dataset", str(data), KINDS)
        values.setdefault("clients", fields["clients"].default)
        values.setdefault("partition", next(iter(BY_KIND.get(kind, {})), fields["partition"].default))
    return Experiment(**values)


def choose(asked: Experiment, federation: Federation, policy: str | None = None) -> Choice:
    """The algorithm, its form and its noise, by :func:`~secure_fedgraph.experiment.noise_to_signal.of_a_run`.

    The least of it decides; where it is below :data:`FAINT` for several, the most weights of these.

    Guarantees:
        - what is read is public: the schema, the owners' names, sizes, and the experiment. Owners' graphs are
          taken away before anything is computed.

    Args:
        asked: as :func:`asked_experiment` makes it.
        federation: its data.
        policy: that everything is to run under; by default noise on the sum (``distributed_dp``), or in each
            client's steps (``masked``) where a record is the unit.

    Raises:
        BadInput: for a unit that these data or the planner do not have, or where no algorithm covers it.
    """
    _check_unit(asked, federation)
    homes = {HOME: torch.ones(0, dtype=torch.bool)} if federation.knows_homes else {}
    public = replace(federation, owners={name: Data(**homes) for name in federation.names}, pool=None)
    kind = federation.schema.kind
    fitting = [one for one in ALGORITHMS.values() if kind in one.kinds and not one.pools]
    if not asked.silos:
        fitting = [one for one in fitting if asked.partition in one.partitions]
    under = [policy] if policy else [ON_SUMS, *([IN_STEPS] if asked.unit in RECORDS else [])]
    fitting = [one for one in fitting if _sends(one)]
    made = [_candidate(one, asked, public, under) for one in fitting]
    forms = {form.name for one in fitting if not isinstance(form := one().on_sums(asked.unit), one)}
    found = [replace(one, runs_as=one.algorithm) if one.algorithm in forms else one for one in made]
    known = [one for one in found if one.noise_to_signal is not None]
    if not known:
        why = found[0].why if found else f"no algorithm sends sums of data of kind {kind!r}"
        raise BadInput(
            f"unit {str(asked.unit)!r} at epsilon {asked.epsilon:g} under {' or '.join(under)}: no algorithm "
            f"covers it: {why}"
        )
    wide = federation.schema.features > NARROW
    least = min(known, key=lambda one: _rank(one, wide))
    alone = ALGORITHMS[least.algorithm].alone
    by_weights = wide and not least.runs_as and (least.noise_to_signal or 0.0) < FAINT
    choice = Choice(asked, tuple(found), least, alone, by_weights)
    told = tuple(replace(one, why=one.why or _why(one, choice)) for one in found)
    return replace(choice, candidates=told, least=told[found.index(least)])


def _check_unit(asked: Experiment, federation: Federation) -> None:
    if asked.unit not in UNITS or asked.unit not in federation.units:
        record = Unit.GRAPH if Unit.GRAPH in federation.units else Unit.NODE
        raise BadInput(
            f"unit {str(asked.unit)!r}: the planner has no candidates for it on these data; plan with --unit "
            f"{record}, which covers its links, label and features, or --unit {Unit.CLIENT}"
        )


def _sends(kind: type[Algorithm]) -> bool:
    """Whether the algorithm sends anything at all: owners who learn alone send nothing."""
    return any(one.to != Recipient.REFEREE and one.reveal is not Reveal.NOTHING for one in kind.channels)


def _candidate(kind: type[Algorithm], asked: Experiment, public: Federation, under: list[str]) -> Candidate:
    """The algorithm in the form with the least noise, or why it does not run."""
    tried = [_tried(kind, asked.model_copy(update={"policy": policy}), public) for policy in under]
    known = [one for one in tried if one.noise_to_signal is not None]
    return min(known, key=lambda one: one.noise_to_signal or 0.0) if known else tried[0]


def _tried(kind: type[Algorithm], asked: Experiment, public: Federation) -> Candidate:
    """The algorithm under one policy, as a run would prepare it."""
    none = Candidate(kind.name, asked.policy)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the run warns of what concerns the choice
            experiment = asked.model_copy(update={"algorithm": kind.name})
            algorithm = in_form(experiment, public)
            protected = protect(experiment, algorithm, public)
            options = RunOptions(
                rounds=experiment.rounds,
                evaluation=experiment.evaluation,
                budget=protected.budget,
                ledger=experiment.ledger,
                allow_plaintext=experiment.allow_plaintext,
            )
            prepared = prepare(algorithm, public, protected.policy, options)
    except SecureFedGraphError as error:
        return replace(none, why=str(error))
    name = prepared.algorithm.name
    sent, ratio, steps = opened(prepared.algorithm), of_a_run(prepared), prepared.bound.steps
    itself = name == kind.of_kind(public.schema.kind).name and len(sent) == 1
    runs_as = "" if itself else name
    if ratio is None:
        names = " and ".join(one.name for one in sent) or "nothing"
        return replace(none, why=f"nobody knows from public facts how large its sums are ({names})")
    planned = {} if protected.plan is None else protected.plan.multipliers
    form = [runs_as] if runs_as else []
    form += [] if prepared.algorithm.form is None else [str(prepared.algorithm.form)]
    form += [f"noisy steps on {steps.unit}s"] if steps is not None else []
    multiplier = planned.get(sent[0].name if steps is None else TRAINING)
    released = prepared.algorithm.released(prepared.algorithm.init(public.schema, 0)) or {}
    return replace(
        none,
        form="; ".join(form),
        noise_multiplier=multiplier,
        noise_to_signal=ratio,
        weights=sum(one.numel() for one in released.values()),
        runs_as=runs_as,
    )


def _rank(one: Candidate, wide: bool) -> tuple[bool, bool, bool, float, float, int]:
    """The order of candidates: those that learn first, then those that send one sum.

    Of wide data those where noise is faint first, the most weights first; then by noise. Of equal ones an
    algorithm comes before those that are made from it.
    """
    ratio = one.noise_to_signal or 0.0
    faint = wide and ratio < FAINT and not one.runs_as
    made_from = len(ALGORITHMS[one.algorithm].__mro__)
    return ratio > NO_LEARNING, bool(one.runs_as), not faint, -one.weights if faint else 0.0, ratio, made_from


def _why(one: Candidate, choice: Choice) -> str:
    """Why a candidate whose figure is known is chosen or not."""
    least, ratio = choice.least, one.noise_to_signal or 0.0
    if not choice.learns:
        return "noise exceeds any signal"
    if one is least:
        if choice.by_weights:
            return "the most weights of those where noise is faint"
        return LEAST if one.runs_as else f"{LEAST} of all that are made for budgets"
    if choice.by_weights and ratio < FAINT:
        return f"noise is faint, and its model has fewer weights than that of {least.algorithm}"
    form = "; a form, and what is made for budgets comes first" if one.runs_as else ""
    return f"{ratio / (least.noise_to_signal or 1.0):.3g} times that of {least.algorithm}{form}"
