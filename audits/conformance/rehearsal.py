"""A run's algorithm and protections on a small federation whose clients can be watched while they answer."""

from __future__ import annotations

import copy
import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.client import Client
from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.errors import SecureFedGraphError
from secure_fedgraph.core.protection.binding import Protection
from secure_fedgraph.core.upload import AnyUpload, ContributionMoments, Upload
from secure_fedgraph.federation import Federation, federate
from secure_fedgraph.graph.data.datasets import load
from secure_fedgraph.graph.kinds import GraphDataset, GraphSetDataset
from secure_fedgraph.graph.partition.registry import names
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.privacy.policy import BoundPolicy, Policy
from secure_fedgraph.protocol.transcript import REFEREE, Keep, everything, nothing
from secure_fedgraph.running.loop import played
from secure_fedgraph.running.options import RunOptions
from secure_fedgraph.running.preparation import prepare
from secure_fedgraph.running.run import Run

MOST_CLIENTS = 8
SMALL = 3_000
"""A run's own data of at most so many nodes are used, where no synthetic data fit its algorithm."""
SPLITS: Mapping[str, Mapping[str, Any]] = {
    "label_skew": {"local_tests": 5, "local_share": 0.4},
    "dirichlet": {"concentration": 5.0},
}
"""Settings with which these partitions can split little data."""
SECONDS = 15.0
"""Of processor time, that one probe's runs may take together."""

Answer = AnyUpload
Shown = Mapping[tuple[str, str], list[Answer]]
"""(channel, client) -> what it answered in one round, in order."""
BeforeAnswer = Callable[[Client], None]
"""Called with the client, before it answers."""
AfterAnswer = Callable[[Client, str, Any], None]
"""Called with the client, the channel and the answer."""


def tensors_of(answer: Answer) -> dict[str, torch.Tensor]:
    """The values of an answer by name, one row a unit where it has units."""
    if isinstance(answer, ContributionMoments):
        return {"records": answer.records, "targets": answer.targets}
    return dict(answer.values)


def with_tensors(answer: Answer, values: dict[str, torch.Tensor]) -> Answer:
    """The same answer with other values."""
    if isinstance(answer, ContributionMoments):
        return ContributionMoments(**values)
    return Upload(values) if isinstance(answer, Upload) else replace(answer, values=values)


class OutOfTime(SecureFedGraphError):
    """A probe's runs took longer than they may; nothing is known then."""


@dataclass(frozen=True)
class UnchangedRound:
    """The first round of a run in which nothing is changed.

    Args:
        run: with every message kept.
        answers: of the clients.
        seconds: of processor time.
    """

    run: Run
    answers: Shown
    seconds: float


@dataclass(frozen=True)
class Rehearsal:
    """A small run to repeat: an algorithm on a small federation, under the protections of the audited run.

    Args:
        algorithm: the audited run's, with its settings.
        federation: small.
        policy: gives every channel the protection that the run gave it.
        evaluation: the run's.
        examined: the channels on which clients' scores are asked for, as the run has them.
        known: its first round, where it already ran.
    """

    algorithm: Algorithm
    federation: Federation
    policy: Policy
    evaluation: str = "referee"
    examined: tuple[Channel, ...] = ()
    known: UnchangedRound | None = field(default=None, repr=False)
    started: float = field(default_factory=time.process_time)

    @classmethod
    def of(cls, run: Run) -> Rehearsal:
        """On synthetic data of the run's kind; on the run's own where those do not fit and these are small.

        Raises:
            SecureFedGraphError: where neither fits.
        """
        refusal: SecureFedGraphError | None = None
        for federation in _federations(run):
            policy, examined = same_protections(run, federation), same_scores(run, federation)
            made = cls(run.algorithm, federation, policy, run.evaluation, examined)
            try:
                made.federation.check(made.algorithm, made.evaluation)
                made.bound()
                return replace(made, known=made.unchanged_round())
            except SecureFedGraphError as error:
                refusal = refusal or error
        raise refusal or OutOfTime("the run's own data are too large to run again")

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Those that the algorithm uses, and those on which clients' scores are asked for."""
        return (*self.algorithm.in_use, *self.examined)

    def bound(self) -> BoundPolicy:
        """The protections of :attr:`channels`."""
        return self.policy.bind(self.channels, self.federation.names)

    def fresh(self) -> Rehearsal:
        """The same with its whole time limit."""
        return replace(self, started=time.process_time())

    def unchanged_round(self) -> UnchangedRound:
        """The first round; of each channel the first round in which clients are asked."""
        if self.known is not None:
            return self.known
        answers: dict[tuple[str, str], list[Answer]] = {}
        first: dict[tuple[str, str], int] = {}

        def after(client: Client, channel: str, made: Any) -> None:
            place = channel, client.name
            if isinstance(made, Answer) and first.setdefault(place, client.round) == client.round:
                answers.setdefault(place, []).append(made)

        started = time.process_time()
        run = self.play(1, after=after, keep=everything)
        return UnchangedRound(run, answers, time.process_time() - started)

    def play(
        self,
        rounds: int,
        before: BeforeAnswer | None = None,
        after: AfterAnswer | None = None,
        owners: Mapping[str, Data] | None = None,
        policy: Policy | None = None,
        keep: Keep = nothing,
    ) -> Run:
        """A run.

        Args:
            before, after: called around every answer, except those about the owners' own tests.
            owners: other data in the owners' place.
            policy: another one.

        Raises:
            OutOfTime: beyond :data:`SECONDS`.
        """
        federation = self.federation if owners is None else replace(self.federation, owners=owners)

        def in_time(client: Client) -> None:
            if time.process_time() - self.started > SECONDS:
                raise OutOfTime(f"a probe's runs took more than {SECONDS:g} s of processor time")
            if before is not None:
                before(client)

        # allowed as it was to the audited run, where it needed to
        options = RunOptions(rounds=rounds, evaluation=self.evaluation, keep=keep, allow_plaintext=True)
        with watched(self.algorithm, in_time, after) as algorithm, silence():
            if self.evaluation != "in_band":
                return played(prepare(algorithm, federation, policy or self.policy, options))
            # what scores are asked for depends on the run's budget, which a rehearsal does not have
            at_home = replace(options, evaluation="at_home")
            prepared = prepare(algorithm, federation, policy or self.policy, at_home)
            asked = (*(one.channel for one in prepared.bound.bounds.values()), *self.examined)
            bound = prepared.bound.policy.bind(asked, prepared.federation.names)
            return played(replace(prepared, bound=bound, options=options))


@contextmanager
def silence() -> Iterator[None]:
    """Mutes log and warnings: such runs are about data that nobody owns."""
    log = logging.getLogger("secure_fedgraph")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


@contextmanager
def watched(
    algorithm: Algorithm, before: BeforeAnswer, after: AfterAnswer | None = None
) -> Iterator[Algorithm]:
    """A copy of an algorithm that calls ``before`` before each answer, and ``after`` with the answer."""
    shown = copy.copy(algorithm)
    for channel, name in algorithm.answers.items():
        if channel not in {one.name for one in algorithm.examiners() if one.to == REFEREE}:
            setattr(shown, name, _around(getattr(algorithm, name), channel, before, after))
    yield shown


def _around(
    work: Callable[[Any, Any], Any], channel: str, before: BeforeAnswer, after: AfterAnswer | None
) -> Callable[[Any, Any], Any]:
    def answer(client: Client, given: Any) -> Any:
        before(client)
        made = work(client, given)
        if after is not None:
            after(client, channel, made)
        return made

    return answer


def _federations(run: Run) -> Iterator[Federation]:
    clients = min(len(run.federation.names), MOST_CLIENTS)
    split = run.federation.facts.get("partition", {})
    partition = str(split.get("name", "random"))
    if partition not in names():  # owners with data of their own
        partition = "vertical" if "columns" in split else "random"
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        GraphDataset.kind: ("synthetic-citation", {"nodes": 30 * max(clients, 3), "features": 16}),
        GraphSetDataset.kind: ("synthetic-molecules", {"graphs": 20 * max(clients, 3)}),
    }
    if run.federation.schema.kind in kinds:
        data, size = kinds[run.federation.schema.kind]
        for settings in (SPLITS[partition], None) if partition in SPLITS else (None,):
            try:
                made = load(data, seed=sub_seed(0, "data"), **size)
                yield federate(made, clients, partition, 0, settings)
            except SecureFedGraphError:
                continue
    if sum(int(graph.num_nodes or 0) for graph in run.federation.owners.values()) <= SMALL:
        yield run.federation


def same_protections(run: Run, federation: Federation) -> Policy:
    """A policy that gives each channel what the run's bound policy gave it; its quorum fits fewer clients."""
    was, now = len(run.federation.names), len(federation.names)

    def recipe(channel: Channel) -> Protection:
        chain = run.policy[channel.name].protection
        quorum = chain.quorum
        if now < was and not isinstance(quorum, str) and quorum > 1:  # shares and majorities scale themselves
            quorum = max(2, math.ceil(quorum * now / was))
        return Protection(chain.carrier, chain.stages, quorum, chain.name)

    about = run.policy.policy
    return Policy(
        about.name, recipe, relation=about.relation, steps=about.steps, randomizers=about.randomizers
    )


def same_scores(run: Run, federation: Federation) -> tuple[Channel, ...]:
    """The channels on which a run asked its clients for scores, for other data of the same kind."""
    asked = {name: b for name, b in run.policy.bounds.items() if b.channel.to != REFEREE}
    algorithm = run.algorithm
    made = [algorithm.METRICS] if algorithm.METRICS.name in asked else []
    if counted := asked.get(algorithm.SCORES.name):
        made.append(algorithm.scores_channel(federation.schema, counted.sums_units))
    return tuple(made)
