"""Small owners trained at once beside one by one: processor seconds a round of FedSage on PubMed.

    python benchmarks/cohorts.py [--owners 50,200,1000] [--rounds 4] [--check]

Both ways run in one process, one after the other, with one thread. Scores have to be equal up to rounding,
bytes and charges in every digit, or the script ends with an error. A round is the median but for the first.
The figures are kept in ``benchmarks/results/cohorts.json``, from which ``docs/speed.md`` has its table;
``--check`` changes nothing and ends with status 1 where the page has another.
"""

from __future__ import annotations

import json
import statistics
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from written_pages import line, options, with_part, write_or_check

import secure_fedgraph as sfg
from secure_fedgraph.evaluation import Evaluator
from secure_fedgraph.protocol import meeting

ROOT = Path(__file__).resolve().parent.parent
KEPT, PAGE = ROOT / "benchmarks" / "results" / "cohorts.json", ROOT / "docs" / "speed.md"
BEGIN = "<!-- written by benchmarks/cohorts.py -->"
POLICIES = {
    "plaintext": sfg.policies.plaintext,
    "masked": sfg.policies.masked,
    "distributed_dp": lambda: sfg.policies.distributed_dp(norm=0.1, multiplier=1.0),
}


def rounds_of(kind: type[sfg.FedAvg], seconds: list[float]) -> type[sfg.FedAvg]:
    """The algorithm, which notes how long each of its rounds takes."""

    def round(self: Any, round: Any, state: Any) -> Any:
        started = time.process_time()
        state = kind.round(self, round, state)
        seconds.append(time.process_time() - started)
        return state

    return type(kind.__name__, (kind,), {"round": round, "__module__": kind.__module__})


def measured(owners: int, policy: str, rounds: int) -> dict[str, Any]:
    """Seconds a round by both ways, and the score."""
    partition = "louvain" if owners <= 200 else "random"
    federation = sfg.federate("pubmed", clients=owners, partition=partition, seed=0)
    found: dict[str, Any] = {"owners": owners, "policy": policy}
    runs = {}
    for way, least in (("at once", meeting.LEAST), ("one by one", owners + 1)):
        kept, meeting.LEAST = meeting.LEAST, least
        seconds: list[float] = []
        timed = rounds_of(sfg.FedSage, seconds)()
        runs[way] = sfg.train(timed, federation, POLICIES[policy](), rounds=1 + rounds, seed=0)
        meeting.LEAST, found[way] = kept, round(statistics.median(seconds[1:]), 3)
    one, other = runs.values()
    charges, sizes = ([] for _ in range(2))
    for run in (one, other):
        charges.append([replace(charge, run="", data="") for charge in run.charges])
        sizes.append([(note.channel, note.recipient, note.bytes) for note in run.transcript.sent])
    if charges[0] != charges[1] or sizes[0] != sizes[1]:
        raise SystemExit(f"{found}: charges or bytes differ")
    if policy != "distributed_dp" and abs(one.accuracy["global"] - other.accuracy["global"]) > 0.005:
        raise SystemExit(f"{found}: {one.accuracy['global']} and {other.accuracy['global']}")
    return {**found, "score": one.accuracy["global"]}


def lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The table as Markdown."""
    yield line("owners", "policy", "one by one, s", "at once, s", "ratio")
    yield f"|{'---|' * 5}"
    for row in rows:
        seconds = row["one by one"], row["at once"]
        yield line(
            str(row["owners"]),
            row["policy"],
            *map(str, seconds),
            f"{seconds[1] / seconds[0]:.2f}",
        )


def main() -> None:
    """The command line."""
    asked = options(__doc__, page=True)
    asked.add_argument("--owners", default="50,200,1000")
    asked.add_argument("--rounds", type=int, default=4)
    given = asked.parse_args()
    if not given.check:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        Evaluator.personal = lambda *_: {}  # type: ignore[method-assign]  # of noise: no part of a round
        kept = [
            measured(int(owners), policy, given.rounds)
            for owners in given.owners.split(",")
            for policy in (POLICIES if int(owners) <= 200 else ("plaintext",))
        ]
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
        print("\n".join(lines(kept)))
    write_or_check(PAGE, with_part(PAGE.read_text(), BEGIN, lines(json.loads(KEPT.read_text()))), given.check)


if __name__ == "__main__":
    main()
