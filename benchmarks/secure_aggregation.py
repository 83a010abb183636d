"""What a secure sum costs: CPU as a ratio to ``np.mean`` of the same vectors, bytes up as a ratio to float32.

    python benchmarks/secure_aggregation.py [--json] [--clients 10] [--sizes 100000 1000000] [--repeats 5]
    python benchmarks/secure_aggregation.py --growth 10 30 100 300 1000 [--plot growth.svg] [--json]

CPU is one client (every step of the sum, the fixed point among them), the server (all its steps) and one
opening (back to real numbers), each measured by itself and added up; worker processes count. Two baselines in
the same process: the mean of a list of arrays, which numpy stacks first, and of a stacked array. Not in it:
training, what is broadcast, and the key agreement before round 1. Bytes are whole messages of one client.

Floors. Of masks: one pass of the cipher for each, and one read of the data. Of ciphertexts: SEAL's own calls
in one process, nothing around them; their bytes: the coefficients' bits, and a seed.

``--growth``: 100,000 values, a tenth of the clients lost before their upload, uploads added up as they come,
each number of clients in a fresh process whose peak memory is taken. Every client is simulated in full.
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
from secure_aggregation_others import others

from secure_fedgraph.core import crypto, wire
from secure_fedgraph.core.carriers.homomorphic import native, scheme
from secure_fedgraph.core.carriers.homomorphic.sums import Homomorphic
from secure_fedgraph.core.carriers.secagg import neighbours, ring_words
from secure_fedgraph.core.carriers.secagg.server import Masked
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.crypto import AgreementKey, Identity
from secure_fedgraph.core.message import ANSWER, Message
from secure_fedgraph.core.protection.contracts import BindContext, Carrier, Scope, Sensitivity
from secure_fedgraph.core.protection.fixed_point import FixedPoint
from secure_fedgraph.core.protection.party import Party
from secure_fedgraph.core.upload import Layout

ROOT = Path(__file__).resolve().parent.parent
CHANNEL = Channel("update", Reveal.SUM)
VALUES_IN_GROWTH = 100_000
FEWEST = 5
"""Clients of the table."""


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
    masked: list[tuple[str, Callable[[], Carrier], int, bool]] = [
        (
            f"masked, {bits} bits, {graph}, {left} drop-outs",
            partial(Masked, bits=bits),
            left,
            graph != "complete",
        )
        for bits, graph in ((32, "complete"), (32, "k-regular"), (16, "complete"), (20, "complete"))
        for left in (0, 2)
    ]
    schemes = [
        (f"homomorphic, {s.upper()}", partial(Homomorphic, scheme=s), 0, False) for s in ("bfv", "ckks")
    ]
    return [*masked, *schemes]


def table(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of the first table.

    A size has one baseline, the median over every case's repeats: now and then its 40 MB of fresh pages cost
    ten times as much, and a row that was divided by such a mean would look ten times as good as it is.
    """
    rows = []
    for size in args.sizes:
        vector = drawn(size)
        listed = [vector(i) for i in range(args.clients)]
        whole, measured = np.stack(listed), []
        base: list[float] = []
        stacked: list[float] = []

        def beside(listed: list[np.ndarray] = listed, whole: np.ndarray = whole) -> None:
            base.append(_time(partial(np.mean, listed, axis=0)))  # noqa: B023
            stacked.append(_time(partial(np.mean, whole, axis=0)))  # noqa: B023

        for name, carrier, left, force in cases():
            if args.case and args.case not in name:
                continue
            neighbours.COMPLETE = 2 if force else 32
            neighbours.thresholds.cache_clear()
            room = Room(carrier(), args.clients, workers=name.startswith("homomorphic"))
            found = []
            for repeat in range(args.repeats + 1):
                opened, cost = room.sum(listed.__getitem__, left)
                if repeat:  # the first warms the caches
                    found.append(cost)
                    beside()
            _check(opened, listed[: args.clients - left], room.stage.public()["grid"] / 2)
            measured.append((name, found, *floor(room, left, listed)))
        for name, left, costs in others(listed, args.repeats + 1, lambda n: not args.case or args.case in n):
            found = []
            for opened, cost in itertools.islice(costs, args.repeats + 1):  # noqa: B007
                found.append({**cost, "cpu": cost["client"] + cost["server"] + cost["opening"]})
                beside()
            _check(opened, listed[: args.clients - left], 1e-5)
            measured.append((name, found[1:], None, None))
        mean, dense = median(base), median(stacked)
        for name, found, least, least_bytes in measured:
            mid = {key: median(one[key] for one in found) for key in found[0]}
            rows.append(
                {
                    "name": name,
                    "size": f"{args.clients} clients, {size} values",
                    "cpu_ratio": round(mid["cpu"] / mean, 2),
                    "cpu_ratio_to_stacked": round(mid["cpu"] / dense, 2),
                    "floor_ratio": None if least is None else round(least / mean, 2),
                    "bytes_ratio": round(mid["up"] / (4 * size), 4),
                    "floor_bytes_ratio": None if least_bytes is None else round(least_bytes / (4 * size), 4),
                    "bytes_over": int(mid["up"] - 4 * size),
                    **{f"{key}_ms": round(1e3 * mid[key], 2) for key in ("client", "server", "opening")},
                    "mean_of_list_ms": round(1e3 * mean, 2),
                    "mean_of_list_ms_range": [round(1e3 * min(base), 2), round(1e3 * max(base), 2)],
                }
            )
    return rows


def _check(opened: np.ndarray, vectors: list[np.ndarray], off: float) -> None:
    plain = np.sum(vectors, axis=0, dtype=np.float64)
    assert np.abs(opened.reshape(-1) - plain).max() <= len(vectors) * off


def floor(room: Room, left: int, listed: list[np.ndarray]) -> tuple[float, float]:
    """The least seconds and bytes that the protection itself could cost."""
    if isinstance(room.carrier, Masked):
        return masks_alone(room, left, listed[0].size), listed[0].size * room.carrier.bits / 8
    return ciphertexts_alone(room, listed)


def ciphertexts_alone(room: Room, listed: list[np.ndarray]) -> tuple[float, float]:
    """SEAL's calls for one upload, the sum of all and one opening, here and with nothing around them."""
    parameters = room.carrier.parameters  # type: ignore[attr-defined]
    key = room.parties[room.names[0]].secrets["homomorphic/key"]
    grids = [room.stage.apply(v.reshape(1, -1), room.place).reshape(-1) for v in listed]
    slots = [list(key._slots(grid, b"")) for grid in grids]
    uploads = [native.split(native.encrypt(parameters.ring, key._key, one)) for one in slots]
    ring, pieces, seconds = parameters.ring, len(slots[0]), []
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
    return min(seconds), pieces * (native.DEGREE * ring.data_bits / 8 + native.SEED_BYTES)


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


def grow(clients: int, share: float) -> dict[str, Any]:
    """One number of clients, in this process."""
    room, vector, left = Room(Masked(), clients), drawn(VALUES_IN_GROWTH), int(clients * share)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    opened, cost = room.sum(vector, left)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    plain = np.zeros(VALUES_IN_GROWTH)
    for number in range(clients - left):
        plain += vector(number)
    assert np.abs(opened.reshape(-1) - plain).max() <= clients * room.stage.step / 2  # type: ignore[attr-defined]
    thresholds = neighbours.thresholds(clients, clients, 0.1, 0.2)
    return {
        "name": f"masked, {clients} clients",
        "size": f"{VALUES_IN_GROWTH} values, {left} drop-outs",
        "clients": clients,
        "neighbours": thresholds.degree,
        "client_ms": round(1e3 * cost["client"], 1),
        "server_ms": round(1e3 * cost["server"], 1),
        "bytes_ratio": round(cost["up"] / (4 * VALUES_IN_GROWTH), 4),
        "peak_mb": round(after / 1e3),
        "sum_mb": round((after - before) / 1e3),
        "simulated_s": round(wall, 1),
    }


def growth(args: argparse.Namespace) -> list[dict[str, Any]]:
    """A fresh process for each number of clients."""
    rows = []
    for clients in args.growth:
        command = [sys.executable, __file__, "--one", str(clients), "--share", str(args.share)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    if args.plot:
        draw(rows, args.plot)
    return rows


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """The growth as a picture."""
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "growth"})
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5))
    clients = [row["clients"] for row in rows]
    for key, label in (("client_ms", "one client"), ("server_ms", "the server")):
        left.loglog(clients, [row[key] for row in rows], "o-", label=label)
    left.set(xlabel="clients", ylabel="CPU, ms a sum", title=f"{VALUES_IN_GROWTH:,} values, a tenth drop out")
    left.legend()
    right.semilogx(clients, [row["neighbours"] for row in rows], "o-", label="neighbours")
    right.semilogx(clients, [row["sum_mb"] for row in rows], "s-", label="memory of a sum, MB")
    right.set(xlabel="clients", title="neighbours and memory")
    right.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one object with rows")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--case", help="only those whose name holds this")
    parser.add_argument("--growth", type=int, nargs="+", help="numbers of clients, instead of the table")
    parser.add_argument(
        "--share", type=float, default=0.1, help="of clients lost before their upload, in --growth"
    )
    parser.add_argument("--plot", type=Path, help="where --growth draws")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.clients < FEWEST:
        parser.error(f"--clients {args.clients}: at least {FEWEST}, since two of them drop out in some rows")
    # a process remembers valid signatures; here every client and the server works each out itself
    crypto._verified = crypto._verified.__wrapped__  # type: ignore[assignment]
    if args.one:
        print(json.dumps(grow(args.one, args.share)))
        return
    rows = growth(args) if args.growth else table(args)
    if args.json:
        print(json.dumps({"rows": rows}))
        return
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
