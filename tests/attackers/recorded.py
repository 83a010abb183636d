"""Recorded messages of real runs, changed by the thousand and handed to the clients that they were meant for.

A run is stopped where a request is about to reach a client. A copy of the whole process takes the request and
hands changed forms of it to the client's door, one after the other, each under an exchange number that no
other had; the run itself goes on with the honest request and never learns of it. So clients are met in the
state in which they are asked, at every step of every protocol, and the changes of one copy add up.

What may come of a call is an answer or one of the project's own errors. Anything else is a finding: another
exception, a call that takes too long, memory beyond :data:`ROOM` over the copy's start, a process that ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import select
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import small
from hostile import damaged

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.backends.in_process import InProcess, OneExchange
from secure_fedgraph.client import Client
from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import Refused, SecureFedGraphError
from secure_fedgraph.core.message import Message
from secure_fedgraph.privacy.policies import RECIPES, policy_with_noise
from secure_fedgraph.privacy.policy import Policy
from secure_fedgraph.running import loop as session
from secure_fedgraph.running.options import run_options
from secure_fedgraph.running.preparation import prepare

ROOM = 64 * 2**20
"""Bytes that a copy may take over what it has at its start."""
SECONDS = 20
"""That one call may take."""
LONGEST = 600
"""Seconds that a copy may take."""
DTYPES = ("<f4", "<f8", "<i8", "<u4", "<u8", "<u1", "<i4", "?")
WORST = (np.nan, np.inf, -np.inf, 3e38, -3e38, 1e300, 1e-45, 2.0**63, -1.0, 0.0, 0.5, 1e9)

EVERY_FORM = "plaintext"
FORMS: dict[str, list[dict[str, Any]]] = {
    "fedavg": [{}, {"weighted": True}, {"clip": "adaptive"}],
    "fedsage+": [
        {},
        {"generator": "shared"},
        {"feedback": "prototypes"},
    ],
    "fedego": [{}, {"mash": "client"}, {"mixing": 0.5, "average_reduction": False, "mash": "client"}],
    "fedego-released": [{}, {"mash": "client"}],
    "glasu": [
        {},
        {"sampler": "paper"},
        {"backward": "server"},
    ],
    "glasu-one-label-holder": [{}, {"sampler": "paper", "backward": "server"}],
    "fairgraphfl": [
        {},
        {"vocabulary": "public", "idf": "global"},
        {"idf": "global"},
        {"prototypes": "each"},
        {"valuation": "encrypted", "prototypes": "none", "use_diversity": False},
        {"valuation": "encrypted", "vocabulary": "public", "lists": "valued"},
        {"weighting": "size"},
        {"diversity": "shared"},
        {"diversity": "shared", "copies": "own", "prototypes": "none"},
    ],
    "eu": [{}, {"valuation": "encrypted"}],
    "cffl": [{}, {"valuation": "encrypted"}],
    "cgsv": [{}, {"valuation": "encrypted", "first_weights": "equal"}],
    "fairgraphfl-bounded": [
        {},
        {"lists": "chosen"},
        {"use_diversity": False},
        {"valuation": "encrypted", "lists": "valued"},
        {"weighting": "size"},
    ],
}
"""Settings beside an algorithm's small ones, so that every channel that it can declare is in some run."""


@dataclass(frozen=True)
class Pair:
    """One algorithm in one form under one policy, which binds."""

    algorithm: str
    policy: str
    form: int = 0
    evaluation: str = "referee"

    def __str__(self) -> str:
        form = f" {json.dumps(FORMS[self.algorithm][self.form])}" if self.form else ""
        return f"{self.algorithm}{form} under {self.policy}"

    def make(self) -> sfg.Algorithm:
        """The algorithm, as small as it gets."""
        return small.algorithm(self.algorithm, **FORMS.get(self.algorithm, [{}])[self.form])

    def run(self, together: type[InProcess]) -> None:
        """One run, whose clients are reached through another transport."""
        algorithm = self.make()
        with mock.patch.object(session, "InProcess", together), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sfg.train(
                algorithm,
                small.federation(self.algorithm),
                policy_named(self.policy),
                rounds=2,
                evaluation=self.evaluation,
                allow_plaintext=True,  # what strictest leaves so is sent like anything else
            )


def policy_named(name: str) -> Policy:
    """A recipe with its smallest settings."""
    return policy_with_noise(name, 1.0, {})


@cache
def pairs() -> tuple[Pair, ...]:
    """Every algorithm and policy that bind, in the first form that does: the policy is asked, nobody keeps a
    list. Under :data:`EVERY_FORM` every form is there, so that every channel is in some run."""
    found = []
    for name in ALGORITHMS:
        bound: set[str] = set()
        for form in range(len(FORMS.get(name, [{}]))):
            for policy in (EVERY_FORM, *(one for one in RECIPES.own if one != EVERY_FORM)):
                pair = Pair(name, policy, form)
                if policy in bound and policy != EVERY_FORM and Pair(name, EVERY_FORM, form) in found:
                    continue
                with warnings.catch_warnings(), contextlib.suppress(SecureFedGraphError):
                    warnings.simplefilter("ignore")
                    options = run_options({"evaluation": pair.evaluation, "allow_plaintext": True})
                    prepare(pair.make(), small.federation(name), policy_named(policy), options)
                    found.append(pair)
                    bound.add(policy)
    return tuple(found)


# --- recording ----------------------------------------------------------------------------------------------

Visit = Callable[[Client, bytes, int], None]
"""What is done at a request before it reaches its client: the client, the request, its number in the run."""


def visited(pair: Pair, visit: Visit) -> None:
    """Runs a pair, with a visit at every request."""

    class Visited(InProcess):
        def __init__(
            self, clients: Sequence[Client], one_exchange: OneExchange = contextlib.nullcontext
        ) -> None:
            super().__init__(clients, one_exchange)
            self._seen = 0
            self._doors = {client.name: self._door(client) for client in clients}

        def _door(self, client: Client) -> Callable[[bytes], bytes]:
            def door(raw: bytes) -> bytes:
                self._seen += 1
                visit(client, raw, self._seen - 1)
                return client.handle(raw)

            return door

    with contextlib.suppress(Refused):  # of a sum that stays below its quorum: what came before was visited
        pair.run(Visited)


def recorded(pair: Pair) -> list[bytes]:
    """Every request of a run, in order."""
    found: list[bytes] = []
    visited(pair, lambda client, raw, number: found.append(bytes(raw)))
    return found


# --- changing -----------------------------------------------------------------------------------------------


class Changes:
    """Changed forms of a recorded request.

    Args:
        record: of the same run, and of others: what pieces are taken from.
    """

    def __init__(self, record: Sequence[bytes]) -> None:
        self.record = list(record)
        self.messages = [Message.from_bytes(raw) for raw in self.record]
        self.by_kind: dict[tuple[str, str], list[Message]] = {}
        for message in self.messages:
            self.by_kind.setdefault((message.channel, message.step), []).append(message)
        self.channels = [*sorted({m.channel for m in self.messages}), "update", "carrier/keys", "eve"]
        self.steps = [*sorted({m.step for m in self.messages}), "read", "unmask", ""]

    def of(self, raw: bytes, exchange: int, rng: Random) -> bytes:
        """One changed form, under a number that is new to its client, most of the time."""
        message = replace(Message.from_bytes(raw), exchange=exchange)
        how = rng.random()
        if how < 0.08:
            return damaged(message.to_bytes(), rng, self.record)
        if how < 0.14:
            return replace(message, **self._envelope(message, rng)).to_bytes()
        if how < 0.22:  # another's body, of this kind or of any
            others = self.by_kind.get((message.channel, message.step), self.messages)
            other = rng.choice(others if rng.random() < 0.7 else self.messages)
            return replace(message, body=bytes(other.body)).to_bytes()
        if how < 0.27:
            other = rng.choice(self.messages)
            kept = {"recipient": message.recipient, "exchange": exchange, "cohort": message.cohort}
            return replace(other, **(kept if rng.random() < 0.8 else {})).to_bytes()
        if how < 0.31:
            body = bytes(message.body)
            return replace(message, body=damaged(body, rng, self.record) if body else b"\0").to_bytes()
        tree = wire.decode(bytes(message.body))
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            tree = self.tree(tree, message, rng)
        try:
            return replace(message, body=wire.encode(tree)).to_bytes()
        except (TypeError, ValueError):  # a change that the format does not carry
            return replace(message, body=damaged(bytes(message.body), rng, self.record)).to_bytes()

    def tree(self, tree: wire.Tree, message: Message, rng: Random) -> wire.Tree:
        """Another tree: entries that are missing, added, renamed, of other types, shapes and values."""
        found = dict(tree)
        names = list(found)
        how = rng.random()
        if not names or how < 0.1:
            donor = wire.decode(bytes(rng.choice(self.messages).body))
            name = rng.choice([*donor, "eve", "carrier/shares", "parcel/generator", "reply/owner-1"])
            found[name] = donor.get(name, b"")
            return found
        name = rng.choice(names)
        if how < 0.18:
            found.pop(name)
        elif how < 0.24:
            found[rng.choice([name + "x", name[:-1] or "y", "eve", *names])] = found.pop(name)
        elif how < 0.3:
            other = rng.choice(names)
            found[name], found[other] = found[other], found[name]
        elif how < 0.4:
            same = self.by_kind.get((message.channel, message.step), self.messages)
            donor = wire.decode(bytes(rng.choice(same).body))
            found[name] = donor.get(name, found[name])
        elif how < 0.44:
            found[name] = _anything(rng)
        else:
            found[name] = self._value(found[name], message, rng)
        return found

    def _value(self, value: Any, message: Message, rng: Random) -> Any:
        if isinstance(value, np.ndarray):
            return _array(value, rng)
        if isinstance(value, bytes | memoryview):
            with contextlib.suppress(SecureFedGraphError):
                inner = wire.decode(bytes(value))  # a parcel, a reply, a body in a body
                return wire.encode(self.tree(inner, message, rng))
            return damaged(bytes(value), rng, self.record) if value else b"\0"
        if isinstance(value, str):
            others = [value[::-1], value + "\n" + value, value.partition("\n")[2], value[:-1], value.upper()]
            fixed = ["", "eve", "\n", "\0", "9" * 30, "owner-0\nowner-1", -1, 0.5]
            return rng.choice([*others, *fixed, value + ":"])
        if isinstance(value, tuple):
            changed = [value[::-1], value[:-1], value * 2, (*value, "eve"), (), ("9" * 300,), ("",) * 60_000]
            return rng.choice([*changed, "\n".join(value), *value])
        if isinstance(value, bool):
            return rng.choice([not value, int(value), 0.5, ""])
        if isinstance(value, int):
            near = [value - 1, value + 1, -value, value * 2]
            far = [0, 1, -1, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63)]
            near = [n for n in near if -(2**63) <= n < 2**63]
            return rng.choice([*near, *far, float(value), True, "1", b"1"])
        return rng.choice([*WORST, -value, value * 2, 1, True, "0.5", np.full(2, value)])

    def _envelope(self, message: Message, rng: Random) -> dict[str, Any]:
        cohort, number = message.cohort, message.exchange
        choices: list[tuple[str, Any]] = [
            ("run", rng.choice(["", message.run[::-1], message.run + "x"])),
            ("round", rng.choice([0, message.round + 1, message.round - 1, 2**62, 2**63 - 1, -1])),
            ("exchange", rng.choice([0, number - 1, number - 2, 2**63 - 1, -1])),
            ("channel", rng.choice(self.channels)),
            ("step", rng.choice(self.steps)),
            ("sender", rng.choice(["referee", "server", "", "owner-0", "owner-1", "eve"])),
            ("recipient", rng.choice(["", "server", "owner-0", "owner-1", "owner-2"])),
            ("cohort", rng.choice([(), cohort[::-1], cohort[:1], cohort[1:], cohort * 2, (*cohort, "eve")])),
        ]
        return dict(rng.sample(choices, rng.choice([1, 1, 2])))


def _array(value: np.ndarray, rng: Random) -> Any:
    flat = value.reshape(-1)
    how = rng.choice(["cast", "shape", "one", "all", "order", "size", "other", "bit"])
    if how == "cast":
        with np.errstate(all="ignore"):
            return value.astype(rng.choice(DTYPES), copy=True)
    if how == "shape":
        shapes = [flat, flat[None], flat[:, None], flat.reshape(1, 1, -1), value.T, value[None]]
        return np.ascontiguousarray(rng.choice(shapes))
    if how == "size":
        ends = [flat[:-1], flat[1:], flat[:0], flat[:1], np.repeat(flat, 2), np.tile(flat, 3)]
        rows = [value[:-1], value[:1], value[:0], np.concatenate([value, value])] if value.ndim else []
        empty = [np.zeros((0, *value.shape[1:]), value.dtype), np.zeros((2**40, 0), value.dtype)]
        return np.ascontiguousarray(rng.choice([*ends, *rows, *empty]))
    if how == "order":
        orders = [flat[::-1], np.sort(flat), np.roll(flat, 1)]
        return np.ascontiguousarray(rng.choice(orders).reshape(value.shape))
    if how == "other" or not flat.size:
        return _anything(rng)
    changed = np.array(flat, copy=True)
    at = rng.randrange(flat.size) if how != "all" else slice(None)
    if how == "bit":
        view = changed.view(np.uint8)
        view[rng.randrange(len(view))] ^= (1 << rng.randrange(8)) if changed.dtype != bool else 1
        return changed.reshape(value.shape)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if changed.dtype.kind == "f":
            changed[at] = rng.choice(WORST)
        elif changed.dtype.kind == "b":
            changed[at] = ~changed[at]
        else:
            limits = np.iinfo(changed.dtype)
            most = [limits.min, limits.max, limits.max - 1, 0, 1, 2]
            changed[at] = rng.choice(most)
    return changed.reshape(value.shape)


def _anything(rng: Random) -> Any:
    choices: list[Any] = [
        "", "eve", "x" * 3000, b"", b"SFG\x01", rng.randbytes(50), 0, -1, 2**40, True, 0.5, float("nan"),
        float("inf"), np.zeros(0, "<f4"), np.full(5, np.nan, "<f4"), np.zeros((3, 64), "u1"),
        np.full(5, 2**32 - 1, "<u4"), np.zeros((1, 5)), np.zeros(2, "?"), np.zeros((1,) * 8, "<f4"),
        np.full(3, 2**64 - 1, "<u8"), np.zeros((2, 0, 3), "<i8"), (), ("eve",) * 3000,
    ]  # fmt: skip
    return rng.choice(choices)


# --- calling ------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What came of calls.

    Args:
        answered, refused: calls by (pair, channel/step).
        findings: what may not come of a call, a line each.
    """

    answered: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    @property
    def calls(self) -> int:
        """How many."""
        return self.answered.total() + self.refused.total() + len(self.findings)

    def add(self, other: Outcome) -> None:
        """Takes another's counts over."""
        self.answered += other.answered
        self.refused += other.refused
        self.findings += other.findings


class Slow(BaseException):
    """A call that took longer than it may."""


def attack(pair: Pair, calls: int, seed: int, visits: int) -> Outcome:
    """Runs a pair twice: to record its requests, and to hand changed ones to its clients.

    Args:
        calls: of ``Client.handle``, at least.
        visits: copies of the process, at least one for each kind of request.
    """
    record = recorded(pair)
    changes, rng = Changes(record), Random(f"{pair} {seed}")
    chosen = _spread([(m.channel, m.step) for m in changes.messages], visits, rng)
    each, outcome = -(-calls // len(chosen)), Outcome()

    def visit(client: Client, raw: bytes, number: int) -> None:
        if number in chosen:
            outcome.add(in_a_copy(pair, client, bytes(raw), changes, each, rng.randrange(2**32)))

    gc.collect()
    gc.freeze()  # else each copy walks over all of torch, and copies the pages that it walks over
    try:
        visited(pair, visit)
    finally:
        gc.unfreeze()
    return outcome


def _spread(kinds: Sequence[tuple[str, str]], visits: int, rng: Random) -> set[int]:
    """Numbers of requests: every kind first, then as many more as are wanted, kinds in turn."""
    places: dict[tuple[str, str], list[int]] = {}
    for number, kind in enumerate(kinds):
        places.setdefault(kind, []).append(number)
    for numbers in places.values():
        rng.shuffle(numbers)
    chosen: set[int] = set()
    while len(chosen) < max(visits, len(places)) and any(places.values()):
        for numbers in places.values():
            if numbers and (len(chosen) < visits or len(chosen) < len(places)):
                chosen.add(numbers.pop())
    return chosen


Say = Callable[[tuple[str, str, str]], None]
"""Notes a call: ``answered``, ``refused`` or ``finding``, where, and what."""


def in_a_copy(pair: Pair, client: Client, raw: bytes, changes: Changes, calls: int, seed: int) -> Outcome:
    """Hands changed requests to a client in a copy of this process."""

    def work(say: Say) -> None:
        rng, honest, start = Random(seed), Message.from_bytes(raw), _data_in_use()
        place = f"{honest.channel}/{honest.step}"
        for number in range(calls):
            _limit_memory(None)  # whoever changes a message of megabytes holds several, which no client does
            changed = changes.of(raw, honest.exchange + number, rng)
            ctypes.CDLL(None).malloc_trim(0)
            _limit_memory(start + ROOM + len(changed))
            say(called(lambda raw=changed: client.handle(raw), place, f"seed {seed}, call {number}"))

    return in_copy(str(pair), work)


def in_copy(name: str, work: Callable[[Say], None]) -> Outcome:
    """Does work in a copy of this process that may take :data:`ROOM` more than it starts with."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forks beside threads: the copy uses none of them
        child = os.fork()
    if not child:
        os.close(reading)
        status = 1
        try:
            _as_copy(work, writing)
            status = 0
        except BaseException as error:
            traceback.print_exception(error)
        finally:
            os._exit(status)
    os.close(writing)
    try:
        return _told(name, child, reading)
    finally:
        os.close(reading)


def _as_copy(work: Callable[[Say], None], writing: int) -> None:
    def slow(*_: object) -> None:
        raise Slow

    signal.signal(signal.SIGALRM, slow)
    warnings.simplefilter("error")  # a filter of the owner's may turn one into an exception, and a refusal
    warnings.simplefilter("ignore", ResourceWarning)  # of what this process had open when it was copied
    gc.collect()
    gc.freeze()  # collecting what a call leaves behind does not walk over all of torch again
    _limit_memory(_data_in_use() + ROOM)
    with os.fdopen(writing, "w", buffering=1) as out:
        work(lambda row: out.write(json.dumps(row) + "\n") and None)


def _told(name: str, child: int, reading: int) -> Outcome:
    outcome, text, until = Outcome(), b"", time.monotonic() + LONGEST
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, until - time.monotonic()))
        piece = os.read(reading, 2**20) if ready else None
        if piece is None:
            os.kill(child, signal.SIGKILL)
        if not piece:
            break
        text += piece
    _, status = os.waitpid(child, 0)
    lines = text.decode().splitlines()
    for line in lines:
        kind, place, what = json.loads(line)
        if kind == "finding":
            outcome.findings.append(f"{name}, {place}: {what}")
        else:
            (outcome.answered if kind == "answered" else outcome.refused)[f"{name}, {place}"] += 1
    if status:
        how = "took too long" if piece is None else f"ended with status {os.waitstatus_to_exitcode(status)}"
        outcome.findings.append(f"{name}: a copy {how} after {lines[-1:]}")
    return outcome


def called(call: Callable[[], object], place: str, which: str) -> tuple[str, str, str]:
    """What came of one call."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        call()
        return "answered", place, ""
    except SecureFedGraphError:
        return "refused", place, ""
    except Slow:
        return "finding", place, f"took more than {SECONDS} s ({which})"
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = ("/secure_fedgraph/", "/audits/")
        own = [f for f in frames if any(room in f.filename for room in ours)] or list(frames)
        where = f"{own[-1].filename.rpartition('secure_fedgraph/')[2]}:{own[-1].lineno}"
        return "finding", place, f"{type(error).__name__} at {where}: {str(error)[:120]!r} ({which})"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _data_in_use() -> int:
    """Bytes of data that this process has."""
    with open("/proc/self/status") as status:
        (used,) = (int(line.split()[1]) * 1024 for line in status if line.startswith("VmData:"))
    return used


def _limit_memory(to: int | None) -> None:
    """An allocation beyond so many bytes fails, as a MemoryError or a RuntimeError of torch's."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most if to is None else to, most))


def summed(
    calls: int, seed: int = 0, visits: int = 12, chosen: Sequence[Pair] | None = None,
    said: Callable[[str], None] = lambda line: None,
) -> tuple[Outcome, Mapping[str, Outcome]]:  # fmt: skip
    """At least so many calls over pairs, evenly; by pair, and together."""
    chosen = pairs() if chosen is None else chosen
    total, by_pair = Outcome(), {}
    for pair in chosen:
        started = time.monotonic()
        found = attack(pair, -(-calls // len(chosen)), seed, visits)
        by_pair[str(pair)] = found
        total.add(found)
        said(
            f"{time.monotonic() - started:6.1f} s {found.calls:7} calls, {found.answered.total():6} "
            f"answered, {len(found.findings)} findings: {pair}"
        )
        for finding in found.findings:
            said(finding)
    return total, by_pair
