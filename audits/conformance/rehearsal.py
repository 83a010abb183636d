"""A run's algorithm and protections on a small federation whose clients can be watched while they answer."""

from __future__ import annotations

import copy
import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
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
from secure_fedgraph.protocol.transcript import Keep, everything, nothing
from secure_fedgraph.running.loop import train
from secure_fedgraph.running.run import Run

MOST_CLIENTS = 8
SMALL = 3_000
"""A run's own data of at most so many nodes are used, where no synthetic data fit its algorithm."""
SECONDS = 15.0
"""Of processor time, that one probe's runs may take together."""

Answer = AnyUpload
Answers = Mapping[tuple[str, str], list[Answer]]
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


@dataclass
class Rehearsal:
    """A small run to repeat: an algorithm on a small federation, under the protections of the audited run.

    Args:
        algorithm: the audited run's, with its settings.
        federation: small.
        policy: gives every channel the protection that the run gave it.
    """

    algorithm: Algorithm
    federation: Federation
    policy: Policy
    started: float = field(default_factory=time.process_time)

    @classmethod
    def of(cls, run: Run) -> Rehearsal:
        """On synthetic data of the run's kind; on the run's own where those do not fit and these are small.

        Raises:
            SecureFedGraphError: where neither fits.
        """
        refusal: SecureFedGraphError | None = None
        for federation in _federations(run):
            made = cls(run.algorithm, federation, same_protections(run, federation))
            try:
                if made.answers or not run.transcript.sent:
                    return made
            except SecureFedGraphError as error:
                refusal = refusal or error
        raise refusal or OutOfTime("the run's own data are too large to run again")

    @cached_property
    def bound(self) -> BoundPolicy:
        """The protections of the algorithm's channels."""
        return self.policy.bind(self.algorithm.in_use, self.federation.names)

    def fresh(self) -> Rehearsal:
        """The same with its whole time limit."""
        self.started = time.process_time()
        return self

    @cached_property
    def answers(self) -> Answers:
        """What clients answer on each channel, in the first round in which they are asked."""
        answers: dict[tuple[str, str], list[Answer]] = {}
        first: dict[tuple[str, str], int] = {}

        def after(client: Client, channel: str, made: Any) -> None:
            place = channel, client.name
            if isinstance(made, Answer) and first.setdefault(place, client.round) == client.round:
                answers.setdefault(place, []).append(made)

        self.play(1, after=after, keep=everything)
        return answers

    def play(
        self,
        rounds: int,
        before: BeforeAnswer | None = None,
        after: AfterAnswer | None = None,
        owners: Mapping[str, Data] | None = None,
        keep: Keep = nothing,
    ) -> Run:
        """A run.

        Args:
            before, after: called around every answer.
            owners: other data in the owners' place.

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
        options: dict[str, Any] = {"evaluation": "at_home", "keep": keep, "allow_plaintext": True}
        log = logging.getLogger("secure_fedgraph")  # such runs are about data that nobody owns
        with warnings.catch_warnings(), ExitStack() as after_it:
            warnings.simplefilter("ignore")
            after_it.callback(log.setLevel, log.level)
            log.setLevel(logging.CRITICAL)
            algorithm = _watched(self.algorithm, in_time, after)
            return train(algorithm, federation, self.policy, rounds=rounds, **options)


def _watched(algorithm: Algorithm, before: BeforeAnswer, after: AfterAnswer | None) -> Algorithm:
    """A copy of an algorithm that calls ``before`` before each answer, and ``after`` with the answer."""
    shown = copy.copy(algorithm)
    for channel, name in algorithm.answers.items():
        setattr(shown, name, _around(getattr(algorithm, name), channel, before, after))
    return shown


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
    if partition not in names() or partition in ("label_skew", "dirichlet"):  # which split no little data
        partition = "vertical" if "columns" in split else "random"
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        GraphDataset.kind: ("synthetic-citation", {"nodes": 30 * max(clients, 3), "features": 16}),
        GraphSetDataset.kind: ("synthetic-molecules", {"graphs": 20 * max(clients, 3)}),
    }
    if run.federation.schema.kind in kinds:
        data, size = kinds[run.federation.schema.kind]
        yield federate(load(data, seed=sub_seed(0, "data"), **size), clients, partition, 0)
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
