"""How many malformed messages were tried, and what came of them.

    python benchmarks/hostile_messages.py [--seconds 60] [--first 0] [--recorded 0] [--files 0] [--json]

Every parser, and every exchange of the protocol with one message of it changed, in turn until the time is
over. A row is a parser or an exchange, a column what came of it. Then as many calls of ``Client.handle`` as
``--recorded`` says, on changed messages of real runs of every algorithm under every policy that binds, and as
many changed files as ``--files`` says, for everything that reads one. Ends with status 1 where anything
crashed, hung, allocated too much, said something of the data, or changed a sum without being noticed; the
seed is named, and ``--first SEED --seconds 1`` begins with it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in (".", "tests/attackers", "tests/federations")]

import torch  # noqa: E402
from damaged_files import files_summed  # noqa: E402
from hostile import NOT_CHANGED, TRIALS, Passed, count  # noqa: E402
from recorded import summed  # noqa: E402

torch.set_num_threads(1)
AT_ONCE = {"parser": 500, "homomorphic": 5, "set-up: homomorphic key": 1}
FEW = 20
OUTCOMES = {
    "refused": "refused",
    "read": "read",
    "the exact sum": "exact sum",
    "the exact sum of the others": "of the others",
    "another upload of its sender": "its sender's word",
}


def at_once(name: str) -> int:
    """Trials of one kind in a row; they take very different times."""
    return next((many for start, many in AT_ONCE.items() if name.startswith(start)), FEW)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--recorded", type=int, default=0, help="calls on recorded messages")
    parser.add_argument("--files", type=int, default=0, help="changed files")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    until = time.monotonic() + args.seconds
    found: dict[str, Counter[str]] = {name: Counter() for name in TRIALS}
    wrong: list[str] = []
    next_seed = dict.fromkeys(TRIALS, args.first)
    while time.monotonic() < until and len(wrong) < 10:
        for name, trial in TRIALS.items():
            seeds = range(next_seed[name], next_seed[name] + at_once(name))
            next_seed[name] = seeds.stop
            try:
                count(trial, seeds, found[name])
            except Passed as error:
                wrong.append(f"{name}: {error}")
            if time.monotonic() >= until:
                break
    for counts in found.values():
        counts.pop(NOT_CHANGED, None)
    for calls, work in ((args.recorded, summed), (args.files, files_summed)):
        if calls:
            together, each = work(calls, args.first)
            wrong += together.findings
            for name, outcome in each.items():
                read, refused = outcome.answered.total(), outcome.refused.total()
                found[name] = Counter({"read": read, "refused": refused})
    tried = sum(counts.total() for counts in found.values()) + len(wrong)
    rows = [{"kind": name, "tried": c.total(), **{o: c[o] for o in OUTCOMES}} for name, c in found.items()]
    if args.json:
        print(json.dumps({"rows": rows, "tried": tried, "wrong": wrong}))
    else:
        print(f"{'':26}{'tried':>9}" + "".join(f"{short:>19}" for short in OUTCOMES.values()))
        for row in rows:
            print(f"{row['kind']:26}{row['tried']:>9}" + "".join(f"{row[name]:>19}" for name in OUTCOMES))
        print(f"{tried} malformed messages; crashed, hung or passed: {len(wrong)}")
        for line in wrong:
            print(line)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
