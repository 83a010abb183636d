"""Seconds a round and peak memory from 10^4 to 2.5 million nodes: what grows with the graph, and how.

    python benchmarks/sizes.py [--sizes 10000,100000,500000] [--json]

FedSage over three owners under masks, on made-up graphs as dense as ogbn-products (48 links a node, 100
features): communities by ``louvain_compiled``, batches of 1,024, two rounds of one epoch, and the last round
scored on the whole graph and on a sample of 10,000 test nodes. Every size is a process of its own, with one
thread; its row is kept in ``benchmarks/results/sizes.json`` once it is finished, and sizes that have one are
not run again. CPU seconds are the process's own; memory is its largest resident set. The largest size needs
``--sizes 2500000``: 17 GB of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from written_pages import options, show

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "benchmarks" / "results" / "sizes.json"
DEGREE, FEATURES, CLASSES, OWNERS, BATCH, SAMPLE = 48.0, 100, 16, 3, 1024, 10_000


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


def main() -> None:
    """Runs the sizes that have no row yet, and prints the table."""
    parser = options(__doc__)
    parser.add_argument("--sizes", default="10000,100000,500000", help="numbers of nodes, by commas")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one)))
        return
    rows = json.loads(KEPT.read_text())["rows"] if KEPT.exists() else []
    for nodes in map(int, args.sizes.split(",")):
        if nodes in [row["nodes"] for row in rows]:
            continue
        command = [sys.executable, __file__, "--one", str(nodes)]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        rows = sorted([*rows, json.loads(done.stdout.splitlines()[-1])], key=lambda row: row["nodes"])
        KEPT.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    show(rows, args.json)


if __name__ == "__main__":
    main()
