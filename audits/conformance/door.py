"""What a client shows besides its answer: the same answers on other data, other answers in the same shape.

Here clients answer by a script and not from their data. What they send must then depend on the script alone,
not on their data or on earlier answers. A script decides values, never whether, when or how much is sent.
"""

from __future__ import annotations

import copy
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.audits.conformance.dependence import other_data
from secure_fedgraph.audits.conformance.rehearsal import (
    SECONDS,
    Answer,
    OutOfTime,
    Rehearsal,
    Shown,
    tensors_of,
    with_tensors,
)
from secure_fedgraph.audits.conformance.twins import NoTwins, copies
from secure_fedgraph.audits.record import Finding
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import SecureFedGraphError
from secure_fedgraph.core.message import ANSWER, CARRIER, Message
from secure_fedgraph.core.upload import ContributionSample
from secure_fedgraph.core.wire import decode
from secure_fedgraph.protocol.transcript import REFEREE, SERVER, everything
from secure_fedgraph.running.run import Run
from secure_fedgraph.seams import ClientContext

ROUNDS = 2
"""Rounds of scripted answers, which need no training."""
LENGTH = 0.5
"""The norm of a scripted answer."""
LONG = 1e6
"""How many times as long an answer is that is far beyond any clip."""
PLAIN, ZEROS, FAR, BROKEN = "short", "all zeros", "a million times as long", "not finite"
EXTREMES = (ZEROS, FAR, BROKEN)
TWICE = "short, with a second part of each unit"
EQUAL_RUNS = 8
"""How many equal runs have to agree before a difference counts."""
Place = tuple[int, str, str, int]
"""Exchange, channel, sender, step's place."""
Trace = dict[Place, tuple[int, str]]
"""Where something was sent -> bytes and layout."""


class Tape:
    """Replaces the operating system's random bytes by bytes that repeat after each :meth:`rewind`."""

    def __init__(self) -> None:
        self.place, self.count = "", 0

    def rewind(self, place: str) -> None:
        """Starts a place's own bytes from their beginning."""
        self.place, self.count = place, 0

    def __call__(self, size: int) -> bytes:
        """So many bytes."""
        self.count += 1
        return hashlib.shake_256(f"{self.place}/{self.count}".encode()).digest(size)

    @contextmanager
    def playing(self) -> Iterator[None]:
        """Use it in a copy of the process only: all randomness comes from the tape."""
        with mock.patch.object(os, "urandom", self):
            yield


@dataclass
class Script:
    """Scripted answers, in the shapes that clients really send.

    Args:
        shapes: (channel, client) -> what it answered in one round, in order.
        kind: how values are made: :data:`PLAIN`, :data:`TWICE` or one of :data:`EXTREMES`.
        changed: rounds with values other than usual.
    """

    shapes: Shown
    kind: str = PLAIN
    changed: frozenset[int] = frozenset()
    tape: Tape | None = None
    _asked: Counter[tuple[int, str, str]] = field(default_factory=Counter)

    def answer(self, channel: Channel, client: ClientContext) -> Any:
        """A client's next answer on a channel."""
        place = client.round, channel.name, client.name
        number = self._asked[place]
        self._asked[place] += 1
        if self.tape is not None:
            self.tape.rewind(f"{place} {number}")
        known = self.shapes.get((channel.name, client.name))
        if channel.reveal is Reveal.NOTHING or not known:
            return None
        example = known[number % len(known)]
        if channel.exact:
            return example
        seed = f"{place} {number} {client.round in self.changed}"
        made = _filled(example, seed, self.kind)
        if self.kind == TWICE and isinstance(made, ContributionSample):
            return ContributionSample(
                {name: torch.cat([value, value]) for name, value in made.values.items()},
                torch.cat([made.units, made.units]),
            )
        return made


def _filled(example: Answer, seed: str, kind: str) -> Answer:
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:7], "little")
    generator = torch.Generator().manual_seed(number)
    made = {
        name: torch.randn(value.shape, generator=generator) for name, value in tensors_of(example).items()
    }
    length = sum(float(value.square().sum()) for value in made.values()) ** 0.5
    scale = {ZEROS: 0.0, FAR: LONG}.get(kind, 1.0) * LENGTH / max(length, 1e-30)
    values = {name: value * scale for name, value in made.items()}
    if kind == BROKEN:
        for value in values.values():
            value.reshape(-1)[::2] = float("nan")
            value.reshape(-1)[1::4] = float("inf")
    return with_tensors(example, values)


def scripted(algorithm: Algorithm, script: Script) -> Algorithm:
    """A copy of an algorithm whose clients answer by a script, and read nothing."""
    made = copy.copy(algorithm)
    by_name = {channel.name: channel for channel in (*algorithm.in_use, *algorithm.examiners())}
    for name, method in algorithm.answers.items():
        if name in by_name and by_name[name].to != REFEREE:
            setattr(made, method, _by(script, by_name[name], getattr(algorithm, method)))
    for method in algorithm.readers.values():
        setattr(made, method, lambda client, read: None)
    return made


def _by(script: Script, channel: Channel, work: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def answer(client: ClientContext, given: Any) -> Any:
        if channel.reveal is not Reveal.NOTHING and (channel.name, client.name) not in script.shapes:
            return work(client, given)  # it was not asked before
        return script.answer(channel, client)

    return answer


def answer_alone(rehearsal: Rehearsal) -> list[Finding]:
    """That what a client sends depends on its answer and randomness, not on data or earlier answers.

    And, of sums of sampled units, on the first part of each unit alone.

    All runs have the same randomness; each is made in a copy of this process.

    Raises:
        NoTwins: where no copies can be made, or runs do not repeat.
    """
    shapes = rehearsal.unchanged_round().answers
    classes, graphs = rehearsal.federation.schema.classes, rehearsal.federation.owners
    others = {name: other_data(graph, classes, 3) for name, graph in graphs.items()}
    last = rehearsal.algorithm.warm_up + ROUNDS

    def sample(
        owners: Mapping[str, Data] | None = None, changed: frozenset[int] = frozenset(), kind: str = PLAIN
    ) -> Callable[[], dict[str, np.ndarray]]:
        def played() -> dict[str, np.ndarray]:
            tape = Tape()
            script = Script(shapes, kind, changed, tape)
            with tape.playing():
                run = _play(rehearsal, script, owners)
            return dict(_values(run))

        return played

    earlier = frozenset(range(1, last))
    sampled = {name for (name, _), answers in shapes.items() if isinstance(answers[0], ContributionSample)}
    worlds = [sample(), sample(), sample(others), sample(changed=earlier)]
    one, again, on_others, after_others, *twice = copies([*worlds, *[sample(kind=TWICE)] * bool(sampled)])
    steady = {key for key in one if _same(one, again, key)}
    if not steady:
        raise NoTwins("what clients send differs from run to run with the same randomness")
    findings = []
    for which, world, why in (
        (steady, on_others, "its data"),
        ({key for key in steady if int(key.split("/")[0]) == last}, after_others, "its earlier answers"),
        *(
            ({k for k in steady if k.split("/")[1] in sampled}, world, "a unit's second part")
            for world in twice
        ),
    ):
        wrong = sorted(key for key in which if not _same(one, world, key))
        if wrong:
            _, channel, whose, _ = wrong[0].split("/")
            findings.append(
                Finding(
                    "answer alone", channel, f"what {whose} sends depends on {why}, not on its answer only"
                )
            )
    return findings


def _same(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], key: str) -> bool:
    a, b = one.get(key), other.get(key)
    return a is not None and b is not None and a.shape == b.shape and bool(np.array_equal(a, b))


def _play(rehearsal: Rehearsal, script: Script, owners: Mapping[str, Data] | None = None) -> Run:
    made = replace(rehearsal, algorithm=scripted(rehearsal.algorithm, script))
    return made.play(ROUNDS, owners=owners, keep=everything)


def _values(run: Run) -> Iterator[tuple[str, np.ndarray]]:
    """What anybody can read: uploads that are readable as they are sent, and opened values of the others."""
    numbers: Counter[str] = Counter()
    for place, value in (*_sent(run), *_opened(run)):
        numbers[place] += 1
        yield f"{place}/{numbers[place]}", value


def _sent(run: Run) -> Iterator[tuple[str, np.ndarray]]:
    for sent in run.transcript.sent:
        bound = run.policy.bounds.get(sent.channel)
        if bound is None or sent.sender == SERVER or sent.step != ANSWER or bound.channel.to == REFEREE:
            continue
        data = Message.from_bytes(run.transcript.body(sent.number)).tree().get("data")
        if bound.carrier.gives.readable and isinstance(data, np.ndarray):
            yield f"{sent.round}/{sent.channel}/{sent.sender}", np.asarray(data, dtype=np.float64).reshape(-1)


def _opened(run: Run) -> Iterator[tuple[str, np.ndarray]]:
    for note in run.transcript.opened:
        if not note.kept or note.reader == REFEREE or note.contributors == (note.reader,):
            continue
        values = decode(run.transcript.body(note.number))
        flat = [
            np.asarray(v, dtype=np.float64).reshape(-1)
            for v in values.values()
            if not isinstance(v, str | bytes)
        ]
        if flat:
            yield f"{note.round}/{note.channel}/the cohort", np.concatenate(flat)


def any_answer(rehearsal: Rehearsal) -> list[Finding]:
    """That any answer is sent, and in the same form, on channels that hide something."""
    answers = rehearsal.unchanged_round().answers

    def play(kind: str) -> Run:
        return _play(rehearsal, Script(answers, kind))

    return _changes("any answer", "answers that are {}", rehearsal, _trace(play(PLAIN)), play, EXTREMES)


def behaviour(rehearsal: Rehearsal) -> list[Finding]:
    """That data decide neither whether nor when nor how much clients send on channels that hide something.

    Raises:
        OutOfTime: where a round takes too long to be played on other data.
    """
    usual = rehearsal.unchanged_round()
    if usual.seconds * len(CHANGES) > SECONDS:
        raise OutOfTime(f"its first round took {usual.seconds:.0f} s, too long for other data")

    def play(kind: str) -> Run:
        return rehearsal.play(1, owners=_owners(rehearsal, kind), keep=everything)

    return _changes("behaviour", "data with {}", rehearsal, _trace(usual.run), play, tuple(CHANGES))


def _changes(
    check: str,
    sentence: str,
    rehearsal: Rehearsal,
    usual: Trace,
    play: Callable[[str], Run],
    kinds: tuple[str, ...],
) -> list[Finding]:
    """What clients show of each kind of change, but not between two equal runs."""
    bounds = rehearsal.bound().bounds
    hidden = {
        n for n, b in bounds.items() if not b.carrier.gives.readable or any(s.noise() for s in b.stages)
    }
    equal: list[Trace] = []

    def differs_by_itself(key: Place) -> bool:
        """Coins, such as who opens a sum, may fall alike in a few runs."""
        for number in range(EQUAL_RUNS):
            if number == len(equal):
                equal.append(_trace(play(PLAIN)))
            if equal[number].get(key) != usual.get(key):
                return True
        return False

    findings: dict[str, Finding] = {}
    for kind in kinds:
        where = sentence.format(kind)
        try:
            trace = _trace(play(kind))
        except OutOfTime:
            raise
        except SecureFedGraphError as error:
            channel = next((name for name in hidden if repr(name) in str(error)), "all")
            findings.setdefault(channel, Finding(check, channel, f"{where} end the run: {error}"))
            continue
        for key in sorted(usual.keys() | trace.keys()):
            _, channel, sender, _ = key
            if channel not in hidden or usual.get(key) == trace.get(key):
                continue
            if not differs_by_itself(key):  # what differs between equal runs says nothing
                instead = f"{_shown(trace.get(key))} instead of {_shown(usual.get(key))}"
                findings.setdefault(
                    channel, Finding(check, channel, f"{where} change what {sender} shows: {instead}")
                )
    return list(findings.values())


def _shown(one: tuple[int, str] | None) -> str:
    return "no answer" if one is None else f"{one[0]} bytes"


def _trace(run: Run) -> Trace:
    trace: Trace = {}
    places: Counter[tuple[int, str, str]] = Counter()
    for sent in run.transcript.sent:
        if (
            sent.sender == SERVER
            or REFEREE in (sent.sender, sent.recipient)
            or sent.channel.startswith(CARRIER)
        ):
            continue
        place = sent.exchange, sent.channel, sent.sender
        places[place] += 1
        layout = Message.from_bytes(run.transcript.body(sent.number)).tree().get("layout", "")
        trace[*place, places[place]] = sent.bytes, str(layout)
    return trace


def _without_a_class(graph: Data, classes: int) -> Data:
    made, y = graph.clone(), graph.get("y")
    if isinstance(y, torch.Tensor) and not y.is_floating_point() and classes > 1:
        made.y = torch.where(y == 0, 1, y)
    return made


def _with_fewer_links(graph: Data, classes: int) -> Data:
    made = graph.clone()
    if graph.edge_index is not None and graph.get("graph") is None:
        low, high = graph.edge_index.min(0).values, graph.edge_index.max(0).values
        made.edge_index = graph.edge_index[:, (low + high) % 2 == 0]
    return made


def _without_features(graph: Data, classes: int) -> Data:
    made = graph.clone()
    if graph.x is not None:
        made.x = torch.zeros_like(graph.x)
    return made


CHANGES: Mapping[str, Callable[[Data, int], Data]] = {
    "other values and a class less": lambda graph, classes: _without_a_class(
        other_data(graph, classes, 4), classes
    ),
    "fewer links and no features": lambda graph, classes: _without_features(
        _with_fewer_links(graph, classes), classes
    ),
}


def _owners(rehearsal: Rehearsal, kind: str) -> dict[str, Data] | None:
    if kind == PLAIN:
        return None
    classes = rehearsal.federation.schema.classes
    graphs = rehearsal.federation.owners
    # one owner's data change: the others' answers must be as they were
    first = min(graphs)
    return {name: CHANGES[kind](graph, classes) if name == first else graph for name, graph in graphs.items()}
