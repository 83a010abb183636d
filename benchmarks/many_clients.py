"""Processor seconds and memory of one masked sum by the number of clients and of values, with drop-outs.

    python benchmarks/many_clients.py --out /tmp/many [--clients 10 50 200 1000] [--sizes 10000 1000000]
    python benchmarks/many_clients.py --out /tmp/many --table

Every row is a fresh process, and is written to ``--out`` once it is finished: a run that was stopped goes on
with the rows that are missing. ``--table`` prints what is there and measures nothing.

A process simulates every client in full, and the server. A client's vector is made when the client uploads,
and its masked words are added to one total at once, so at no time are two vectors in memory. A tenth of the
clients is lost before the upload. The sum is the second of two in a row: sealing keys that a pair of clients
agreed on for the first serve the second too, where they are neighbours again.

*All clients*: processor seconds of every step of every client, the fixed point among them. *Server*: of all
its steps, and of one addition a client. A signature that several clients of the process verify is worked out
once, as in a simulated run. *Each alone* is what all clients and the server would take if every client worked
every signature out itself: the seconds measured, and for each verification that was remembered the median
seconds of one. *Memory*: of the process at its highest, less what it had before the first sum, with the
clients' identities and agreed keys.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from secure_aggregation import Room, drawn

from secure_fedgraph.core import crypto
from secure_fedgraph.core.carriers.secagg import neighbours
from secure_fedgraph.core.carriers.secagg.server import Masked
from secure_fedgraph.core.crypto import Identity, verify

ROOT = Path(__file__).resolve().parent.parent
CLIENTS, SIZES, SHARE = (10, 50, 200, 1000), (10_000, 1_000_000), 0.1


def measure(clients: int, values: int, share: float) -> dict[str, Any]:
    """One row, in this process."""
    room, vector, left = Room(Masked(), clients), drawn(values), int(clients * share)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    room.sum(drawn(1), left)  # agrees on most of the keys that seal shares
    remembered = crypto._verified.cache_info().hits
    started = time.perf_counter()
    opened, cost = room.sum(vector, left)
    wall = time.perf_counter() - started
    remembered = crypto._verified.cache_info().hits - remembered
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _check(opened, vector, clients - left, values, room)
    everybody = sum(room.spent.values())
    numbers = neighbours.thresholds(clients, clients, 0.1, 0.2)
    return {
        "clients": clients,
        "values": values,
        "drop_outs": left,
        "neighbours": numbers.degree,
        "client_ms": round(1e3 * cost["client"], 1),
        "clients_s": round(everybody, 2),
        "server_s": round(cost["server"], 2),
        "crypto_s": round(everybody + cost["server"], 2),
        "each_alone_s": round(everybody + cost["server"] + remembered * _seconds_of_a_verification(), 2),
        "bytes_ratio": round(cost["up"] / (4 * values), 4),
        "sum_mb": round((after - before) / 1e3),
        "peak_mb": round(after / 1e3),
        "wall_s": round(wall, 1),
    }


def _check(opened: np.ndarray, vector: Any, contributors: int, values: int, room: Room) -> None:
    plain = np.zeros(values)
    for number in range(contributors):
        plain += vector(number)
    step: float = room.stage.step  # type: ignore[attr-defined]
    assert np.abs(opened.reshape(-1) - plain).max() <= contributors * step / 2


def _seconds_of_a_verification() -> float:
    identity, spent = Identity.generate(), []
    for number in range(301):  # each once: what was verified is remembered
        message = number.to_bytes(150)
        signature = identity.sign(message)
        started = time.process_time()
        verify(identity.public, signature, message)
        spent.append(time.process_time() - started)
    return median(spent)


def table(folder: Path) -> str:
    """The rows that are there, as the page has them."""
    rows = sorted(
        (json.loads(path.read_text()) for path in folder.glob("*.json")),
        key=lambda row: (row["values"], row["clients"]),
    )
    lines = [
        "| clients | values | drop-outs | neighbours | one client, ms | all clients, s | server, s "
        "| crypto in all, s | each alone, s | bytes over float32 | memory of the sum, MB |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['clients']:,} | {row['values']:,} | {row['drop_outs']} | {row['neighbours']} "
        f"| {row['client_ms']} | {row['clients_s']} | {row['server_s']} | {row['crypto_s']} "
        f"| {row['each_alone_s']} | {row['bytes_ratio']} | {row['sum_mb']} |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Measures the rows that are missing, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="a folder for the rows")
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--share", type=float, default=SHARE, help="of clients lost before their upload")
    parser.add_argument("--table", action="store_true", help="print what is there, measure nothing")
    parser.add_argument("--one", type=int, nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(*args.one, args.share)))
        return
    args.out.mkdir(parents=True, exist_ok=True)
    for values in () if args.table else sorted(args.sizes):
        for clients in sorted(args.clients):
            path = args.out / f"{clients}x{values}x{args.share:g}.json"
            if path.exists():
                continue
            command = [sys.executable, __file__, "--out", str(args.out), "--share", str(args.share)]
            command += ["--one", str(clients), str(values)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            draft = path.with_suffix(".draft")
            draft.write_text(done.stdout.splitlines()[-1] + "\n")
            draft.rename(path)
    print(table(args.out))


if __name__ == "__main__":
    main()
