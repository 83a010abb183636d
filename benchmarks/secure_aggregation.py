"""What a secure sum costs: CPU as a ratio to ``np.mean`` of the same vectors, bytes up as a ratio to float32.

    python benchmarks/secure_aggregation.py [--json] [--sizes 100000 1000000] [--repeats 5]
    python benchmarks/secure_aggregation.py --growth 10 50 200 1000 [--sizes 10000 1000000] [--json]

CPU is one of ten clients (every step of the sum, the fixed point among them), the server (all its steps) and
one opening (back to real numbers), each measured by itself and added up; worker processes count. The
baseline, in the same process, is the mean of a list of arrays, which numpy stacks first.
Not in it: training, what is broadcast, and the key agreement before round 1. Bytes are whole messages of one
client.

Floors. Of masks: one pass of the cipher for each, and one read of the data. Of ciphertexts: SEAL's own calls
in one process, nothing around them.

``--growth``: masked sums of so many clients, each number in a fresh process that simulates every client in
full. A tenth is lost before the upload. The sum is the second of two in a row. A signature that several
clients of the process verify is worked out once; "each alone" is what all would take if every one worked out
every signature. Memory is of the process at its highest, less what it had before the first sum.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from written_pages import options, show

from secure_fedgraph.core import crypto, wire
from secure_fedgraph.core.carriers.homomorphic import native, scheme
from secure_fedgraph.core.carriers.homomorphic.sums import Homomorphic
from secure_fedgraph.core.carriers.secagg import neighbours, ring_words
from secure_fedgraph.core.carriers.secagg.server import Masked
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.crypto import AgreementKey, Identity, verify
from secure_fedgraph.core.message import ANSWER, Message
from secure_fedgraph.core.protection.contracts import BindContext, Carrier, Party, Scope, Sensitivity
from secure_fedgraph.core.protection.fixed_point import FixedPoint
from secure_fedgraph.core.upload import Layout

ROOT = Path(__file__).resolve().parent.parent
CHANNEL = Channel("update", Reveal.SUM)
CLIENTS, LOST = 10, 0.1
"""Of the table, and the share that is lost before the upload with ``--growth``."""


class Room:
    """Clients that have agreed on keys, and one sum after another between them."""

    def __init__(self, carrier: Carrier, clients: int, workers: bool = False) -> None:
        self.names = tuple(f"c{i:04d}" for i in range(clients))
        self.cpu: Callable[[], float] = _cpu if workers else time.process_time
        self.parties = agreed(self.names)
        context = BindContext(CHANNEL, self.names, "zero-out", carrier.ring, 2)
        self.stage, _ = FixedPoint(8.0).bind(Sensitivity(), context)
        self.carrier = carrier.bind(context)
        self.numbers = itertools.count(1)
        self.spent: dict[str, float] = {}
        self.up: dict[str, int] = {}
        self.replies: list[tuple[str, str, Any]] = []
        self.place = self._scope()
        self.carrier.set_up(self.ask, self.names)

    def ask(self, step: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """A step of the carrier's, with each client's time and bytes taken down."""
        place, replies = self._scope(), {}
        for name, tree in given.items():
            replies[name] = self._timed(name, partial(self._answer, step, tree, place, name))
            self.replies.append((step, name, replies[name]))  # counted at the end, at nobody's cost
        return replies

    def sum(self, vector: Callable[[int], np.ndarray], left: int = 0) -> tuple[np.ndarray, dict[str, float]]:
        """The opened sum of everybody's vector, the last few clients gone before they upload.

        Uploads are added up as they come where the carrier can; no two of them are in memory at once then.
        """
        self.replies.clear()
        self.spent, self.up = dict.fromkeys(self.names, 0.0), dict.fromkeys(self.names, 0)
        there = set(self.names[: len(self.names) - left])
        started = self.cpu()
        prepared = self.carrier.prepare(self.ask, self.names, "update")
        parts = prepared.upload_requests(self.names)
        server = self.cpu() - started - sum(self.spent.values())
        self.place, sealed, size = self._scope(), {}, 0
        total, arrived = None, []
        for number, name in enumerate(self.names):
            if name not in there or name not in parts:
                continue
            values = vector(number)
            size = values.size
            layout = Layout((("w", (size,)),))
            data = self._timed(name, partial(self._upload, parts[name], values, name))
            tree = {"domain": "masked", "layout": layout.to_text(), **self.stage.public(), "data": data}
            self._count(ANSWER, name, tree)  # at once: the words are not kept
            started = self.cpu()
            if isinstance(self.carrier, Masked):
                words = ring_words.unpack(data, self.carrier.bits, layout, name)
                if total is None:
                    total = np.zeros(size, dtype=words.dtype)
                total += words
            else:
                sealed[name] = data
            arrived.append(name)
            server += self.cpu() - started
        before, started = sum(self.spent.values()), self.cpu()
        if isinstance(prepared, Masked):
            assert total is not None
            found = prepared.unmasking(arrived, self.place, self.ask)
            ring_words.accumulate(total, plus=found.plus, minus=found.minus)
            matrix = ring_words.centred(total, prepared.bits).reshape(1, size)
        else:
            matrix = prepared.open_sum(sealed, Layout((("w", (size,)),)), self.place, self.ask)
        server += self.cpu() - started - (sum(self.spent.values()) - before)
        started = self.cpu()
        opened = self.stage.undo(matrix, self.place)
        opening = self.cpu() - started
        # of a homomorphic sum the first client opens, which is one client's work once: it is added as such
        for reply in self.replies:
            self._count(*reply)
        one = median(self.spent[n] for n in arrived)
        extra = max(self.spent.values()) - one if isinstance(self.carrier, Homomorphic) else 0.0
        cost = {"client": one, "server": server, "opening": opening + extra}
        return opened, {**cost, "cpu": sum(cost.values()), "up": median(self.up[n] for n in arrived)}

    def _answer(self, step: str, tree: Any, place: Scope, name: str) -> Any:
        return self.carrier.answer(step, dict(tree), place, self.parties[name])

    def _upload(self, part: Any, values: np.ndarray, name: str) -> Any:
        self.carrier.accept(part, self.place, self.parties[name])
        grid = self.stage.apply(values.reshape(1, -1), self.place)
        return self.carrier.seal(grid, self.place, self.parties[name])

    def _timed(self, name: str, work: Callable[[], Any]) -> Any:
        started = self.cpu()
        found = work()
        self.spent[name] = self.spent.get(name, 0.0) + self.cpu() - started
        return found

    def _count(self, step: str, name: str, tree: Any) -> None:
        reply = Message("run", 1, self.place.exchange, "update", step, name, "server", (), wire.pack(tree))
        self.up[name] = self.up.get(name, 0) + len(reply.to_bytes())

    def _scope(self) -> Scope:
        return Scope("run", 1, next(self.numbers), "update", self.names)


def agreed(names: tuple[str, ...]) -> dict[str, Party]:
    """Parties as the key agreement before round 1 leaves them; its n times n signatures are not measured."""
    identities, keys = {n: Identity.generate() for n in names}, {n: AgreementKey.generate() for n in names}
    roster, peers = {n: i.public for n, i in identities.items()}, {n: k.public for n, k in keys.items()}
    return {n: Party(n, identities[n], roster, {"agreement": keys[n], "peers": peers}) for n in names}


def drawn(size: int) -> Callable[[int], np.ndarray]:
    """Client number -> its vector, seeded, made when it is needed."""

    def vector(number: int) -> np.ndarray:
        return np.random.default_rng(number).uniform(-4, 4, size).astype(np.float32)

    return vector


def cases() -> list[tuple[str, Callable[[], Carrier], int, bool]]:
    """Name, carrier, drop-outs, and whether the neighbour graph is forced on a cohort this small."""
    found: list[tuple[str, Callable[[], Carrier], int, bool]] = []
    for bits, graph in ((32, "complete"), (32, "k-regular"), (16, "complete"), (20, "complete")):
        for left in (0, 2):
            name = f"masked, {bits} bits, {graph}, {left} drop-outs"
            found.append((name, partial(Masked, bits=bits), left, graph != "complete"))
    schemes = ("bfv", "ckks")
    return [
        *found,
        *((f"homomorphic, {s.upper()}", partial(Homomorphic, scheme=s), 0, False) for s in schemes),
    ]


def table(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of the first table.

    A size has one baseline, the median over every case's repeats: now and then its 40 MB of fresh pages cost
    ten times as much, and a row that was divided by such a mean would look ten times as good as it is.
    """
    rows = []
    for size in args.sizes:
        vector = drawn(size)
        listed = [vector(i) for i in range(CLIENTS)]
        measured, base = [], list[float]()
        for name, carrier, left, force in cases():
            neighbours.COMPLETE = 2 if force else 32
            neighbours.thresholds.cache_clear()
            room = Room(carrier(), CLIENTS, workers=name.startswith("homomorphic"))
            found = []
            for repeat in range(args.repeats + 1):
                opened, cost = room.sum(listed.__getitem__, left)
                if repeat:  # the first warms the caches
                    found.append(cost)
                    base.append(_time(partial(np.mean, listed, axis=0)))
            _check(opened, listed[: CLIENTS - left], room.stage.public()["grid"] / 2)
            measured.append((name, found, floor(room, left, listed)))
        mean = median(base)
        for name, found, least in measured:
            mid = {key: median(one[key] for one in found) for key in found[0]}
            rows.append(
                {
                    "name": name,
                    "size": f"{CLIENTS} clients, {size} values",
                    "cpu_ratio": round(mid["cpu"] / mean, 2),
                    "floor_ratio": round(least / mean, 2),
                    "bytes_ratio": round(mid["up"] / (4 * size), 4),
                    **{f"{key}_ms": round(1e3 * mid[key], 2) for key in ("client", "server", "opening")},
                    "mean_of_list_ms": round(1e3 * mean, 2),
                }
            )
    return rows


def _check(opened: np.ndarray, vectors: list[np.ndarray], off: float) -> None:
    plain = np.sum(vectors, axis=0, dtype=np.float64)
    assert np.abs(opened.reshape(-1) - plain).max() <= len(vectors) * off


def floor(room: Room, left: int, listed: list[np.ndarray]) -> float:
    """The least seconds that the protection itself could cost."""
    if isinstance(room.carrier, Masked):
        return masks_alone(room, left, listed[0].size)
    return ciphertexts_alone(room, listed)


def ciphertexts_alone(room: Room, listed: list[np.ndarray]) -> float:
    """SEAL's calls for one upload, the sum of all and one opening, here and with nothing around them."""
    parameters = room.carrier.parameters  # type: ignore[attr-defined]
    key = room.parties[room.names[0]].secrets["homomorphic/key"]
    grids = [room.stage.apply(v.reshape(1, -1), room.place).reshape(-1) for v in listed]
    slots = [list(key._slots(grid, b"")) for grid in grids]
    uploads = [native.split(native.encrypt(parameters.ring, key._key, one)) for one in slots]
    ring, seconds = parameters.ring, list[float]()
    with native.Scratch() as file:

        def shown(parts: Iterable[bytes]) -> Iterator[str]:
            for part in parts:
                file.write(part)
                yield file.path

        def add() -> bytes:
            return native.add(ring, len(uploads), shown(itertools.chain(*zip(*uploads, strict=True))))

        summed = native.split(add())
        for _ in range(3):
            alone = _time(lambda: native.encrypt(ring, key._key, slots[0])) + _time(add)
            seconds.append(
                alone + _time(lambda: native.open_sum(ring, key._seed, shown(summed), stamped=True))
            )
    return min(seconds)


def masks_alone(room: Room, left: int, size: int) -> float:
    """One pass of the cipher and one addition for each mask, and one read of the data, in seconds."""
    carrier, clients = room.carrier, len(room.names)
    assert isinstance(carrier, Masked)
    degree = neighbours.thresholds(clients, clients, carrier.colluders, carrier.dropouts).degree
    streams = degree + 1 + (clients - left) + left * min(degree, clients - left)
    words = np.zeros(size, dtype=ring_words.word(carrier.bits))
    keys = [bytes([i]) * 32 for i in range(8)]
    one = min(_time(lambda: ring_words.accumulate(words, plus=keys)) for _ in range(3)) / 8
    read = min(_time(lambda: ring_words.accumulate(words, [words])) for _ in range(3))
    return streams * one + (clients - left) * read


def grow(clients: int, values: int) -> dict[str, Any]:
    """One number of clients and of values, in this process."""
    room, vector, left = Room(Masked(), clients), drawn(values), int(clients * LOST)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    room.sum(drawn(1), left)  # agrees on most of the keys that seal shares
    remembered = crypto._verified.cache_info().hits
    opened, cost = room.sum(vector, left)
    remembered = crypto._verified.cache_info().hits - remembered
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    plain = np.zeros(values)
    for number in range(clients - left):
        plain += vector(number)
    step: float = room.stage.step  # type: ignore[attr-defined]
    assert np.abs(opened.reshape(-1) - plain).max() <= (clients - left) * step / 2
    everybody = sum(room.spent.values()) + cost["server"]
    return {
        "clients": clients,
        "values": values,
        "neighbours": neighbours.thresholds(clients, clients, 0.1, 0.2).degree,
        "one client, ms": round(1e3 * cost["client"], 1),
        "server, s": round(cost["server"], 2),
        "all crypto, s": round(everybody, 2),
        "each alone, s": round(everybody + remembered * seconds_of_a_verification(), 2),
        "bytes over float32": round(cost["up"] / (4 * values), 4),
        "memory, MB": round((after - before) / 1e3),
    }


def seconds_of_a_verification() -> float:
    """The median."""
    identity, spent = Identity.generate(), []
    for number in range(301):  # each once: what was verified is remembered
        message = number.to_bytes(150)
        signature = identity.sign(message)
        spent.append(_time(partial(verify, identity.public, signature, message)))
    return median(spent)


def growth(args: argparse.Namespace) -> list[dict[str, Any]]:
    """A fresh process for each number of clients and of values."""
    rows = []
    for values, clients in itertools.product(args.sizes, args.growth):
        command = [sys.executable, __file__, "--one", str(clients), str(values)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    return rows


def _time(work: Callable[[], Any]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _cpu() -> float:
    workers = (*scheme._server_side, scheme._client_side)
    running = [worker._process.pid for worker in workers if worker._process is not None]
    # Linux: the processor-time clock of another process (clock_getcpuclockid), to the nanosecond
    return time.process_time() + sum(time.clock_gettime(~pid << 3 | 2) for pid in running)


def main() -> None:
    """Prints the rows."""
    parser = options(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--growth", type=int, nargs="+", help="numbers of clients, instead of the table")
    parser.add_argument("--one", type=int, nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(grow(*args.one)))
        return
    if not args.growth:
        # a process remembers valid signatures; here every client and the server works each out itself
        crypto._verified = crypto._verified.__wrapped__  # type: ignore[assignment]
    show(growth(args) if args.growth else table(args), args.json)


if __name__ == "__main__":
    main()
