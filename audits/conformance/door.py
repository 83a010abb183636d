"""What leaves a client depends on its answer alone, and data decide neither whether nor how much it sends."""

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
    Answer,
    Answers,
    OutOfTime,
    Rehearsal,
    tensors_of,
    with_tensors,
)
from secure_fedgraph.audits.conformance.twins import NoTwins, copies
from secure_fedgraph.audits.record import Finding
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import SecureFedGraphError
from secure_fedgraph.core.message import ANSWER, CARRIER, Message
from secure_fedgraph.core.wire import decode
from secure_fedgraph.protocol.transcript import SERVER, everything
from secure_fedgraph.running.run import Run
from secure_fedgraph.seams import ClientContext

ROUNDS = 2
"""Rounds of scripted answers, which need no training."""
PLAIN, ZEROS, FAR, BROKEN = "short", "all zeros", "a million times as long", "not finite"
LENGTHS = {PLAIN: 0.5, ZEROS: 0.0, FAR: 0.5e6, BROKEN: 0.5}
"""Kind of scripted answer -> its norm."""
EQUAL_RUNS = 8
"""How many equal runs have to agree before a difference counts."""
Place = tuple[int, str, str, int]
"""Exchange, channel, sender, step's place."""


@dataclass(frozen=True)
class Shown:
    """Size and layout of a message, and how many bytes the server had sent to its sender before."""

    bytes: int
    layout: str
    told: int = field(compare=False)


Trace = dict[Place, Shown]


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
        kind: one of :data:`LENGTHS`.
        changed: rounds with values other than usual.
    """

    shapes: Answers
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
        return _filled(example, f"{place} {number} {client.round in self.changed}", self.kind)


def _filled(example: Answer, seed: str, kind: str) -> Answer:
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:7], "little")
    generator = torch.Generator().manual_seed(number)
    made = {
        name: torch.randn(value.shape, generator=generator) for name, value in tensors_of(example).items()
    }
    length = sum(float(value.square().sum()) for value in made.values()) ** 0.5
    values = {name: value * (LENGTHS[kind] / max(length, 1e-30)) for name, value in made.items()}
    if kind == BROKEN:
        for value in values.values():
            value.reshape(-1)[::2] = float("nan")
            value.reshape(-1)[1::4] = float("inf")
    return with_tensors(example, values)


def scripted(algorithm: Algorithm, script: Script) -> Algorithm:
    """A copy of an algorithm whose clients answer by a script, and read nothing."""
    made = copy.copy(algorithm)
    by_name = {channel.name: channel for channel in algorithm.in_use}
    for name, method in algorithm.answers.items():
        if name in by_name:
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

    All runs have the same randomness; each is made in a copy of this process.

    Raises:
        NoTwins: where no copies can be made, or runs do not repeat.
    """
    shapes, federation = rehearsal.answers, rehearsal.federation
    others = {
        name: other_data(graph, federation.schema.classes, 3) for name, graph in federation.owners.items()
    }
    last = rehearsal.algorithm.warm_up + ROUNDS

    def sample(
        owners: Mapping[str, Data] | None = None, changed: frozenset[int] = frozenset()
    ) -> Callable[[], dict[str, np.ndarray]]:
        def played() -> dict[str, np.ndarray]:
            tape = Tape()
            with tape.playing():
                return dict(_values(_play(rehearsal, Script(shapes, PLAIN, changed, tape), owners)))

        return played

    worlds = [sample(), sample(), sample(others), sample(changed=frozenset(range(1, last)))]
    one, again, on_others, after_others = copies(worlds)
    steady = {key for key in one if _same(one, again, key)}
    if not steady:
        raise NoTwins("what clients send differs from run to run with the same randomness")
    findings = []
    in_last = {key for key in steady if int(key.split("/")[0]) == last}
    for which, world, why in (
        (steady, on_others, "its data"),
        (in_last, after_others, "its earlier answers"),
    ):
        wrong = sorted(key for key in which if not _same(one, world, key))
        if wrong:
            _, channel, whose, _ = wrong[0].split("/")
            what = f"what {whose} sends depends on {why}, not on its answer only"
            findings.append(Finding("answer alone", channel, what))
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
        yield f"{place}/{numbers[place]}", np.asarray(value, dtype=np.float64).reshape(-1)


def _sent(run: Run) -> Iterator[tuple[str, Any]]:
    for sent in run.transcript.sent:
        bound = run.policy.bounds.get(sent.channel)
        if bound is None or sent.sender == SERVER or sent.step != ANSWER:
            continue
        data = Message.from_bytes(run.transcript.body(sent.number)).tree().get("data")
        if bound.carrier.gives.readable and isinstance(data, np.ndarray):
            yield f"{sent.round}/{sent.channel}/{sent.sender}", data


def _opened(run: Run) -> Iterator[tuple[str, Any]]:
    for note in run.transcript.opened:
        if note.kept and note.contributors != (note.reader,):
            for value in decode(run.transcript.body(note.number)).values():
                if not isinstance(value, str | bytes):
                    yield f"{note.round}/{note.channel}/the cohort", value


def any_answer(rehearsal: Rehearsal) -> list[Finding]:
    """That any answer is sent, and in the same form, on channels that hide something."""

    def play(kind: str) -> Run:
        return _play(rehearsal, Script(rehearsal.answers, kind))

    return _changes("any answer", "answers that are {}", rehearsal, play, (ZEROS, FAR, BROKEN))


def behaviour(rehearsal: Rehearsal) -> list[Finding]:
    """That data decide neither whether nor when nor how much clients send on channels that hide something."""
    owners, classes = rehearsal.federation.owners, rehearsal.federation.schema.classes
    first = min(owners)  # one owner's data change: the others' answers must be as they were

    def play(kind: str) -> Run:
        changed = {} if kind == PLAIN else {first: _poorer(owners[first], classes)}
        return rehearsal.play(1, owners={**owners, **changed}, keep=everything)

    kinds = ("other values, a class less, fewer links and no features",)
    return _changes("behaviour", "data with {}", rehearsal, play, kinds)


def _poorer(graph: Data, classes: int) -> Data:
    """Other data in the same shape, with a class less, about half of the links, and features of zeros."""
    made = other_data(graph, classes, 4)
    y = made.get("y")
    if isinstance(y, torch.Tensor) and not y.is_floating_point() and classes > 1:
        made.y = torch.where(y == 0, 1, y)
    if made.edge_index is not None and made.get("graph") is None:
        made.edge_index = made.edge_index[:, made.edge_index.sum(0) % 2 == 0]
    if made.x is not None:
        made.x = torch.zeros_like(made.x)
    return made


def _changes(
    check: str, sentence: str, rehearsal: Rehearsal, play: Callable[[str], Run], kinds: tuple[str, ...]
) -> list[Finding]:
    """What clients show of each kind of change, but not between two equal runs."""
    bounds = rehearsal.bound.bounds
    hidden = {
        n for n, b in bounds.items() if not b.carrier.gives.readable or any(s.noise() for s in b.stages)
    }
    usual, equal = _trace(play(PLAIN)), list[Trace]()

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
            same = usual.get(key) == trace.get(key) or _as_told(key, usual, trace)
            if channel in hidden and not same and not differs_by_itself(key):
                instead = f"{_shown(trace.get(key))} instead of {_shown(usual.get(key))}"
                what = f"{where} change what {sender} shows: {instead}"
                findings.setdefault(channel, Finding(check, channel, what))
    return list(findings.values())


def _as_told(key: Place, *traces: Trace) -> bool:
    """Whether a size follows what the server gave, which it knew: of all senders alike, in either run."""
    alike = ({t[k] for k in t if (*k[:2], k[3]) == (*key[:2], key[3])} for t in traces)
    told = {t[key].told for t in traces if key in t}
    return len(told) == len(traces) and all(len(one) == 1 for one in alike)


def _shown(one: Shown | None) -> str:
    return "no answer" if one is None else f"{one.bytes} bytes"


def _trace(run: Run) -> Trace:
    trace: Trace = {}
    places: Counter[tuple[int, str, str]] = Counter()
    told: Counter[str] = Counter()
    for sent in run.transcript.sent:
        if sent.sender == SERVER:
            told[sent.recipient] += sent.bytes
        elif not sent.channel.startswith(CARRIER):
            place = sent.exchange, sent.channel, sent.sender
            places[place] += 1
            layout = Message.from_bytes(run.transcript.body(sent.number)).tree().get("layout", "")
            trace[*place, places[place]] = Shown(sent.bytes, str(layout), told[sent.sender])
    return trace
