"""Seconds a round and peak memory from 10^4 to 2.5 million nodes: what grows with the graph, and how.

    python benchmarks/sizes.py [--sizes 10000,100000,500000] [--out benchmarks/results/sizes.json] [--table]
    python benchmarks/sizes.py --mapped [--sizes 300000] [--out ...] [--table]

FedSage over three owners under masks, on made-up graphs as dense as ogbn-products (48 links a node, 100
features): communities by ``louvain_compiled``, batches of 1,024, two rounds of one epoch, and the last round
scored on the whole graph and on a sample of 10,000 test nodes. Every size is a process of its own, with one
thread; its row is written once it is finished, and sizes that have one are not run again. ``--table`` prints
what is there. CPU seconds are the process's own; memory is its largest resident set. The largest size needs
``--sizes 2500000``: 17 GB of memory.

``--mapped`` compares features in memory with ``features.npy`` in the owners' folders, which is mapped: three
owners with data of their own (128 dense features, 10 links a node), each way in a process of its own, two
rounds, scores in band. Private memory is what ``/proc/self/smaps_rollup`` calls Anonymous, its largest of ten
readings a second; the file's pages in memory are the Rss of ``features.npy`` in ``/proc/self/smaps`` at the
end. These are the system's page cache, which it takes back when memory is short.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "benchmarks" / "results" / "sizes.json"
SIZES = (10_000, 100_000, 500_000)
DEGREE, FEATURES, CLASSES, OWNERS, BATCH, SAMPLE = 48.0, 100, 16, 3, 1024, 10_000
SHOWN = {
    "nodes": "nodes",
    "links": "links",
    "generate": "made",
    "partition": "handed out",
    "first_round": "first round",
    "round": "a round",
    "score": "scored whole",
    "score_sample": "scored sample",
    "accuracy": "accuracy",
    "memory_mb": "peak MB",
}


MAPPED_SIZES, MAPPED_DEGREE, MAPPED_FEATURES = (300_000,), 10.0, 128
MAPPED_SHOWN = {
    "nodes": "nodes",
    "way": "features",
    "features_mb": "features, MB",
    "read_mb": "private MB, read",
    "checked_mb": "and checked",
    "most_mb": "at most",
    "file_mb": "pages of the file, MB",
    "rss_mb": "peak resident MB",
    "read_seconds": "reading and checks, s",
    "round": "a round, s",
    "digest": "weights",
}


def measure(nodes: int) -> dict[str, Any]:
    """One size in this process."""
    import torch

    import secure_fedgraph as sfg
    from secure_fedgraph.backends.memory import keep_freed_memory
    from secure_fedgraph.graph.data.datasets import load

    torch.set_num_threads(1)  # two threads on a shared machine measure the neighbours
    keep_freed_memory()
    row: dict[str, Any] = {"nodes": nodes}
    started = time.process_time()
    data = load(
        "synthetic-citation",
        nodes=nodes,
        features=FEATURES,
        classes=CLASSES,
        mean_degree=DEGREE,
        values="dense",
    )
    row["links"] = data.graph.edge_index.shape[1] // 2
    row["generate"] = time.process_time() - started
    os.environ["SECURE_FEDGRAPH_CACHE"] = os.devnull  # no folder: a partition that is kept costs nothing
    started = time.process_time()
    federation = sfg.federate(data, OWNERS, "louvain_compiled", seed=0)
    row["partition"] = time.process_time() - started
    del data
    algorithm = sfg.FedSage(batch=BATCH)
    seconds, inner = [], algorithm.round

    def timed(round: Any, state: Any) -> Any:
        before = time.process_time()
        after = inner(round, state)
        seconds.append(time.process_time() - before)
        return after

    algorithm.round = timed  # type: ignore[method-assign]
    run = sfg.train(algorithm, federation, "masked", rounds=2, seed=0, evaluate_every=2)
    row["first_round"], row["round"] = seconds  # links are sorted in the first
    row["accuracy"] = round(run.accuracy["global"], 4)
    referee = federation.referee
    for key, judge in (("score", referee), ("score_sample", referee.sampled(SAMPLE, 2, 0))):
        started = time.process_time()
        algorithm.predict(run.state, judge.test_set.inputs, federation.schema)
        row[key] = time.process_time() - started
    row["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}


def write_owners(nodes: int, way: str, place: Path) -> None:
    """Each owner's folder: everything in ``graph.pt``, or the features in ``features.npy`` beside it."""
    import numpy as np
    import torch

    from secure_fedgraph.graph.data.datasets import load

    for owner in range(OWNERS):
        made = load(
            "synthetic-citation",
            seed=owner,
            nodes=nodes // OWNERS,
            features=MAPPED_FEATURES,
            classes=CLASSES,
            mean_degree=MAPPED_DEGREE,
            values="dense",
        ).graph
        fields = {key: made[key] for key in ("x", "edge_index", "y")}
        folder = place / f"owner-{owner}"
        folder.mkdir()
        if way == "mapped":
            np.save(folder / "features.npy", fields.pop("x").numpy())
        torch.save(fields, folder / "graph.pt")


def private_mb() -> float:
    """Memory that is this process's alone and on no disk."""
    found = re.search(r"Anonymous: +(\d+)", Path("/proc/self/smaps_rollup").read_text())
    assert found is not None
    return int(found[1]) * 1024 / 1e6


def file_mb(name: str) -> float:
    """Pages in memory of mapped files of a name."""
    total, counted = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            counted = line.endswith(f"/{name}")
        elif counted and line.startswith("Rss:"):
            total += int(line.split()[1])
    return total * 1024 / 1e6


@contextmanager
def watched() -> Iterator[list[float]]:
    """Readings of private memory, ten a second."""
    readings, ended = [private_mb()], threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            readings.append(private_mb())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield readings
    finally:
        ended.set()
        thread.join()


def measure_mapped(nodes: int, way: str, place: Path) -> dict[str, Any]:
    """One size and one way in this process, on folders that :func:`write_owners` wrote."""
    import torch

    import secure_fedgraph as sfg
    from secure_fedgraph.graph.silos.reading import read_silo

    torch.set_num_threads(1)
    sfg.train(sfg.FedSage(), sfg.federate("synthetic-citation", nodes=60), "masked", rounds=1)  # loads code
    row: dict[str, Any] = {"nodes": nodes, "way": way}
    row["features_mb"] = nodes // OWNERS * OWNERS * MAPPED_FEATURES * 4 / 1e6
    before, started = private_mb(), time.process_time()
    with watched() as readings:
        data = {folder.name: read_silo(folder.name, str(folder)) for folder in sorted(place.iterdir())}
        row["read_mb"] = private_mb() - before
        federation = sfg.federate(data)
        del data
        row["checked_mb"] = private_mb() - before
        row["read_seconds"] = time.process_time() - started
        started = time.process_time()
        run = sfg.train(sfg.FedSage(batch=BATCH), federation, "masked", rounds=2, seed=0)
        row["round"] = (time.process_time() - started) / 2
    row["most_mb"] = max(readings) - before
    row["file_mb"] = file_mb("features.npy")
    row["rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    weights = b"".join(value.numpy().tobytes() for value in run.state.values())
    row["digest"] = hashlib.sha256(weights).hexdigest()[:8]
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}


def both_ways(nodes: int) -> Iterator[dict[str, Any]]:
    """Features in memory, then mapped: processes of their own write and run."""
    for way in ("in memory", "mapped"):
        with tempfile.TemporaryDirectory(prefix="sizes-") as place:
            for step in ("--write", "--one"):
                command = [
                    sys.executable,
                    __file__,
                    "--mapped",
                    step,
                    str(nodes),
                    "--way",
                    way,
                    "--at",
                    place,
                ]
                done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
            yield json.loads(done.stdout.splitlines()[-1])


def mapped_table(rows: list[dict[str, Any]]) -> str:
    """What is there of both ways."""
    lines = [f"| {' | '.join(MAPPED_SHOWN.values())} |", "|" + "---|" * len(MAPPED_SHOWN)]
    for row in rows:
        cells = [f"{row[key]:,.1f}" if isinstance(row[key], float) else f"{row[key]}" for key in MAPPED_SHOWN]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def table(rows: list[dict[str, Any]]) -> str:
    """What is there, and how seconds a round grow from size to size."""
    lines = [f"| {' | '.join(SHOWN.values())} | µs a node |", "|" + "---|" * (len(SHOWN) + 1)]
    for row in rows:
        cells = [f"{row[key]:,}" if isinstance(row[key], int) else f"{row[key]:,.2f}" for key in SHOWN]
        lines.append(f"| {' | '.join(cells)} | {1e6 * row['round'] / row['nodes']:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Runs the sizes that have no row yet, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", help="numbers of nodes, by commas")
    parser.add_argument("--out", type=Path, default=KEPT)
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--mapped", action="store_true", help="features in memory beside features on disk")
    for hidden, kind in (("--one", int), ("--write", int), ("--way", str), ("--at", Path)):
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.write:
        write_owners(args.write, args.way, args.at)
        return
    if args.one:
        print(json.dumps(measure_mapped(args.one, args.way, args.at) if args.mapped else measure(args.one)))
        return
    kept = json.loads(args.out.read_text()) if args.out.exists() else {}
    key, sizes = ("mapped", MAPPED_SIZES) if args.mapped else ("rows", SIZES)
    rows = kept.setdefault(key, [])
    for nodes in [] if args.table else map(int, args.sizes.split(",") if args.sizes else sizes):
        if nodes in [row["nodes"] for row in rows]:
            continue
        rows += both_ways(nodes) if args.mapped else [in_a_process(nodes)]
        rows.sort(key=lambda row: row["nodes"])
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(kept, indent=1) + "\n")
        print(f"{nodes:,} nodes: done", file=sys.stderr)
    print(mapped_table(rows) if args.mapped else table(rows))


def in_a_process(nodes: int) -> dict[str, Any]:
    """One size in a process of its own."""
    command = [sys.executable, __file__, "--one", str(nodes)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


if __name__ == "__main__":
    main()
