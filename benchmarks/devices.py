"""Training and scoring on a GPU beside the same on one processor thread and on all of them.

    python benchmarks/devices.py [--only pubmed] [--out runs/devices.json] [--keep | --check]

FedSage under masks with three owners. Every cell is a process of its own and trains the same rounds from the
same seed; its seconds are wall time, for a GPU's own work is on no process's account. "First round" has the
set-up too: links are sorted, graphs are copied to the GPU and its kernels loaded there. "A round" is the
median of the others; it holds drawing, masks and checks, which stay on the processor. GPU memory is what
PyTorch had allocated at most. A cell is written once it is finished, and one that is there is not run again.
``--keep``
leaves the table in ``benchmarks/results/devices.json`` and writes ``docs/large_graphs.md`` from it;
``--check`` measures nothing, and ends with status 1 where the page has other figures than the file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from written_pages import keep, options, write_part

ROOT = Path(__file__).resolve().parent.parent
KEPT, PAGE = ROOT / "benchmarks" / "results" / "devices.json", ROOT / "docs" / "large_graphs.md"
BEGIN = "<!-- written by benchmarks/devices.py -->"
OWNERS = 3
ONE, ALL, GPU = "1 thread", "all threads", "GPU"
WAYS = (ONE, ALL, GPU)


@dataclass(frozen=True)
class Case:
    """What is trained.

    Args:
        name: said in the table and looked for by ``--only``.
        data: a data set's name.
        training: settings of FedSage.
        rounds: trained, the first among them.
        nodes: of a made-up graph as dense as ogbn-products, as ``sizes.py`` has it.
    """

    name: str
    data: str
    training: Mapping[str, Any]
    rounds: int = 6
    nodes: int = 0

    def federation(self) -> Any:
        """Its owners and their graphs."""
        import secure_fedgraph as sfg

        if not self.nodes:
            return sfg.federate(self.data, OWNERS, "louvain", seed=0)
        dense = {"features": 100, "classes": 16, "mean_degree": 48.0, "values": "dense"}
        return sfg.federate(self.data, OWNERS, "louvain_compiled", seed=0, nodes=self.nodes, **dense)


LARGE, WIDE = {"batch": 1024}, {"batch": 1024, "hidden": [512, 512], "fanout": [10, 10]}
CASES = (
    Case("Cora, 64 nodes a step", "cora", {"batch": 64}),
    Case("PubMed, all nodes a step", "pubmed", {"batch": "full"}),
    Case("100,000 nodes, 1,024 a step", "synthetic-citation", LARGE, nodes=100_000),
    Case("100,000 nodes, 512 units wide", "synthetic-citation", WIDE, 4, 100_000),
    Case("500,000 nodes, 1,024 a step", "synthetic-citation", LARGE, 4, 500_000),
)


def measure(case: Case, way: str) -> dict[str, Any]:
    """One cell in this process."""
    import torch

    import secure_fedgraph as sfg
    from secure_fedgraph.backends.memory import keep_freed_memory

    if way != ALL:
        torch.set_num_threads(1)
    keep_freed_memory()
    device = "cuda" if way == GPU else "cpu"
    federation = case.federation()
    algorithm = sfg.FedSage(**case.training)
    ends = [time.perf_counter()]
    given = {"rounds": case.rounds, "evaluate_every": case.rounds, "device": device}
    run = sfg.train(
        algorithm, federation, "masked", seed=0, on_round=lambda _: ends.append(time.perf_counter()), **given
    )
    seconds = [after - before for before, after in pairwise(ends)]
    row: dict[str, Any] = {"case": case.name, "way": way, "first_round": seconds[0]}
    row["round"] = median(seconds[1:-1])  # the last one is scored
    row["accuracy"] = run.accuracy["global"]
    scoring = []
    for _ in range(3):
        started = time.perf_counter()
        algorithm.on(device).predict(run.state, federation.referee.test_set.inputs, federation.schema)
        scoring.append(time.perf_counter() - started)
    row["score"] = min(scoring)
    row["gpu_mb"] = torch.cuda.max_memory_allocated() / 1e6 if way == GPU else None
    row["threads"] = torch.get_num_threads()
    return row


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    import torch

    return {
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "processor": platform.machine(),
    }


def run(out: Path, only: str) -> None:
    """Measures the cells that are not there, and writes each once it is finished."""
    kept = json.loads(out.read_text()) if out.exists() else {"machine": machine(), "cells": []}
    there = {(cell["case"], cell["way"]) for cell in kept["cells"]}
    for number, case in enumerate(CASES):
        for way in WAYS:
            if only not in case.name or (case.name, way) in there:
                continue
            asked = ["--one", str(number), "--way", way]
            said = subprocess.check_output([sys.executable, __file__, *asked], text=True)
            row = json.loads(said.splitlines()[-1])
            kept["cells"].append(row)
            keep(out, kept)
            print(f"{case.name}, {way}: {row['round']:.2f} s a round", file=sys.stderr, flush=True)


def table(kept: Mapping[str, Any]) -> list[str]:
    """What is there, as a page has it."""
    about = kept["machine"]
    lines = [
        f"Measured on {about['gpu']} beside {about['cores']} processor cores, torch {about['torch']}:",
        "",
        "| FedSage, three owners, masks | on | a round, s | times as fast | scoring, s | GPU memory, MB |",
        "|---|---|---|---|---|---|",
    ]
    for case in CASES:
        cells = {cell["way"]: cell for cell in kept["cells"] if cell["case"] == case.name}
        for way in (way for way in WAYS if way in cells):
            cell = cells[way]
            name = f"all {cell['threads']} threads" if way == ALL else way
            ratio = f"{cells[ONE]['round'] / cell['round']:.1f}" if ONE in cells else "-"
            memory = "-" if cell["gpu_mb"] is None else f"{cell['gpu_mb']:,.0f}"
            lines.append(
                f"| {case.name} | {name} | {cell['round']:.3f} | {ratio} | {cell['score']:.3f} | {memory} |"
            )
    return [*lines, ""]


def main() -> None:
    """Measures what is not there yet, and prints the table."""
    parser = options(__doc__, rows=False, page=True)
    parser.add_argument("--only", default="", help="a part of a case's name")
    parser.add_argument("--out", type=Path, default=Path("runs/devices.json"))
    parser.add_argument("--keep", action="store_true", help="run nothing, write the kept file and the page")
    for hidden, kind in (("--one", int), ("--way", str)):
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.check:
        write_part(PAGE, BEGIN, table(json.loads(KEPT.read_text())), check=True)
    if args.one is not None:
        print(json.dumps(measure(CASES[args.one], args.way)))
        return
    if not args.keep:
        run(args.out, args.only)
    kept = json.loads(args.out.read_text())
    if args.keep:
        keep(KEPT, kept)
        write_part(PAGE, BEGIN, table(kept), check=False)
    print("\n".join(table(kept)))


if __name__ == "__main__":
    main()
