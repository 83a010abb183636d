"""Processor time of the light commands, each a process of its own: none of them loads torch.

    python benchmarks/startup.py [--repeats 5] [--json]

The median of user and system seconds. ``list`` is asked once before it is timed: what it prints is kept on
the machine until the code, the installed packages or the data folders change. ``budget`` with a noise
multiplier also asks Opacus, which loads torch; ``--accountant pld,rdp`` leaves it out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median

COMMANDS = (
    "--help",
    "list algorithms",
    "list policies",
    "list attacks",
    "list datasets",
    "lst",
    "run --polcy masked",
    "run --algorithm fedsagee",
    "run --policy maskd --data coral",
    "run --help",
    "schema result",
    "budget --help",
    "budget --epsilon 8 --sampling-rate 0.01 --steps 1000",
    "budget --noise-multiplier 1 --sampling-rate 0.01 --steps 1000 --accountant pld,rdp",
    "budget --noise-multiplier 1 --sampling-rate 0.01 --steps 1000",
)


def processor_seconds(command: str) -> float:
    """Of one call."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    program = str(Path(sys.executable).with_name("secure-fedgraph"))
    subprocess.run([program, *command.split()], capture_output=True, check=False, env=os.environ)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Prints a row a command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows = []
    for command in COMMANDS:
        processor_seconds(command)
        seconds = median(processor_seconds(command) for _ in range(asked.repeats))
        rows.append({"name": command, "cpu_seconds": round(seconds, 2)})
        if not asked.json:
            print(f"{seconds:6.2f} s  secure-fedgraph {command}", flush=True)
    if asked.json:
        print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
