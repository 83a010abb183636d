"""The race: ours beside other systems and a loop by hand, whole processes side by side in one run.

    python benchmarks/race.py [--openfgl CHECKOUT] [--federatedscope CHECKOUT] [--fedgraph FOLDER]
                              [--only fedsage+] [--repeats 3] [--out runs/race] [--json]
                              [--keep | --check]

Every contestant is a process of its own with one thread. It runs twice, short and long: the difference over
the rounds between is a round, the rest is its start (imports, reading and dividing Cora, set-up). CPU is user
and system seconds of all its processes, memory the largest of one. Contestants take turns, so that a slow
minute of the machine hits them all; our modules are compiled to bytecode first, as pip leaves them and as
those of all others are. The table has medians, and ratios to the row's first contestant that runs
here. Each measurement is kept as it is made (``DIR/measured.jsonl``), so a race that was stopped goes on.

OpenFGL and FederatedScope run from checkouts and FedGraph from its unpacked wheel (``pip download --no-deps
fedgraph``), all unchanged (``openfgl.py``, ``federatedscope.py`` and ``fedgraph.py`` in ``race_contestants``
say what is stood in for). What is not installed is left out by name. ``--keep`` puts the
events that were measured into ``benchmarks/results/race.json`` and writes ``docs/speed.md`` from it;
``--check`` measures nothing, and ends with status 1 where the page has other figures than the file.
"""

from __future__ import annotations

import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from written_pages import options, show, with_part, write_or_check

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "benchmarks" / "race_contestants"
KEPT, PAGE = ROOT / "benchmarks" / "results" / "race.json", ROOT / "docs" / "speed.md"
BEGIN = "<!-- written by benchmarks/race.py -->"
BY_HAND, OURS = "by hand", "ours"
OPENFGL, FEDSCOPE, FEDGRAPH = "OpenFGL", "FederatedScope", "FedGraph"
RATE, TRAINING_NODES = 0.2, 1624
"""Of noisy steps: the share of Cora's training nodes that each takes."""


@dataclass(frozen=True)
class Places:
    """Where the contestants find things.

    Args:
        data: a folder with Cora as PyTorch Geometric, OpenFGL and FederatedScope have it.
        out: what is measured.
        openfgl, federatedscope, fedgraph: two checkouts, and a folder with a package, if there are any.
    """

    data: Path
    out: Path
    openfgl: Path | None
    federatedscope: Path | None
    fedgraph: Path | None


Command = Callable[[Places, int], list[str]]
"""A number of rounds -> what to run; it prints JSON with ``accuracy`` and ``bytes`` (up, of a client)."""


@dataclass(frozen=True)
class Event:
    """One row of the race.

    Args:
        name: what is done.
        short, long: numbers of rounds; the longer is the whole run.
        contestants: name -> command.
        unit: what one round is, in the table.
        work: contestant -> how much of the unit one of its rounds is, where they differ.
        fewer: contestant -> its longer number, where as many as the others' would take minutes.
    """

    name: str
    short: int
    long: int
    contestants: Mapping[str, Command]
    unit: str = "a round"
    work: Mapping[str, float] | None = None
    fewer: Mapping[str, int] = field(default_factory=dict)

    def spans(self, name: str) -> tuple[int, int]:
        """How many rounds a contestant runs, short and long."""
        return self.short, self.fewer.get(name, self.long)


def _script(name: str, *more: str) -> Command:
    return lambda places, rounds: [
        sys.executable, str(HERE / name), "--rounds", str(rounds), *more,
        *(() if name == "ours.py" else ("--data", str(places.data))),
        *(("--path", str(places.openfgl)) if name == "openfgl.py" else ()),
        *(("--path", str(places.federatedscope)) if name == "federatedscope.py" else ()),
        *(("--path", str(places.fedgraph)) if name == "fedgraph.py" else ()),
    ]  # fmt: skip


def _run(*more: str) -> Command:
    return lambda places, rounds: [
        sys.executable, "-m", "secure_fedgraph", "run", "--data", "cora", "--clients", "3", "--json",
        "--overwrite", "--rounds", str(rounds), "--out", str(places.out / "run"), *more,
    ]  # fmt: skip


FULL, SMALL = ("--set", "training.batch=full"), ("--set", "training.batch=64")
EVENTS = (
    Event(
        "FedAvg, all nodes a step, 20 rounds", 1, 20,
        {
            BY_HAND: _script("by_hand.py"),
            OURS: _run("--algorithm", "fedavg", "--policy", "plaintext", *FULL),
            f"{OURS}, masked": _run("--algorithm", "fedavg", "--policy", "masked", *FULL),
            OPENFGL: _script("openfgl.py"),
            FEDSCOPE: _script("federatedscope.py"),
        },
    ),
    Event(
        "FedAvg, 64 nodes a step, 20 rounds", 1, 20,
        {
            BY_HAND: _script("by_hand.py", "--batch", "64"),
            OURS: _run("--algorithm", "fedavg", "--policy", "plaintext", *SMALL),
            f"{OURS}, masked": _run("--algorithm", "fedavg", "--policy", "masked", *SMALL),
        },
    ),
    Event(
        "FedSage+, federated epochs of the generator", 1, 4,
        {
            OPENFGL: _script("openfgl.py", "--algorithm", "fedsage_plus"),
            FEDSCOPE: _script("federatedscope.py", "--algorithm", "fedsage_plus"),
            OURS: _script("ours.py", "--what", "generator", "--asked", "810"),
            f"{OURS}, by default": _script("ours.py", "--what", "generator", "--asked", "64"),
        },
        unit="an epoch",
    ),
    Event(
        "FedGCN under ciphers: sums over neighbours and a round of training", 1, 11,
        {
            FEDGRAPH: _script("fedgraph.py"),
            f"{OURS}, BFV": _script("ours.py", "--what", "neighbours"),
        },
        unit="a time",
        fewer={FEDGRAPH: 2},
    ),
    Event(
        "noisy steps on single records", 5, 105,
        {
            "by hand, no noise": _script("by_hand.py", "--steps", "plain"),
            "by hand, Opacus": _script("by_hand.py", "--steps", "opacus"),
            f"{OURS}, masked": _script("ours.py", "--what", "steps"),
            OPENFGL: _script("openfgl.py", "--steps", "gaussian"),
        },
        unit="1,000 records",
        work={OPENFGL: TRAINING_NODES / 1000, "": RATE * TRAINING_NODES / 1000},
        fewer={OPENFGL: 25},
    ),
)  # fmt: skip


def measure(command: list[str]) -> dict[str, float]:
    """One process: its CPU and wall seconds, its memory in MB, and what it printed.

    Raises:
        SystemExit: where it fails.
    """
    own = {"PYTHONPATH": str(ROOT), **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")}
    started = time.perf_counter()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env={**os.environ, **own})
        _, status, used = os.wait4(process.pid, 0)  # of this process and of those that it waited for
        wall, process.returncode = time.perf_counter() - started, os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        printed, said = out.read().decode(), err.read().decode(errors="replace")
    if process.returncode:
        sys.exit(f"{' '.join(command)}\nended with {process.returncode}:\n{said[-2000:]}")
    told = json.loads(printed.strip().splitlines()[-1])
    if "schema" in told:  # a result of ours
        each = told["bytes"]["up"] / told["config"]["clients"] / told["config"]["rounds"]
        told = {"accuracy": told["accuracy"]["global"], "bytes": each}
    cpu = used.ru_utime + used.ru_stime
    return {"cpu": cpu, "wall": wall, "memory": used.ru_maxrss / 1024, **told}


def left_out(name: str, places: Places) -> str | None:
    """Why a contestant cannot run here."""
    needed = {
        OPENFGL: ("--openfgl CHECKOUT", places.openfgl),
        FEDSCOPE: ("--federatedscope CHECKOUT", places.federatedscope),
        FEDGRAPH: ("--fedgraph FOLDER", places.fedgraph),
    }
    if name in needed and needed[name][1] is None:
        return f"{name}: no {needed[name][0]}"
    return None


def race(events: list[Event], places: Places, repeats: int) -> None:
    """Measures what is not measured yet, contestants in turn."""
    done = {(m["event"], m["contestant"], m["rounds"], m["repeat"]) for m in measured(places.out)}
    for repeat in range(repeats):
        for event in events:
            for name, command in event.contestants.items():
                if left_out(name, places):
                    continue
                for rounds in event.spans(name):
                    if (event.name, name, rounds, repeat) in done:
                        continue
                    found = measure(command(places, rounds))
                    line = {"event": event.name, "contestant": name, "rounds": rounds, "repeat": repeat}
                    with (places.out / "measured.jsonl").open("a") as kept:
                        kept.write(json.dumps(line | found) + "\n")
                    print(f"{event.name}: {name}, {rounds}: {found['cpu']:.1f} s", file=sys.stderr)


def measured(out: Path) -> Iterator[dict[str, Any]]:
    """What was measured so far."""
    if (out / "measured.jsonl").is_file():
        yield from map(json.loads, (out / "measured.jsonl").read_text().splitlines())


def rows(events: list[Event], places: Places) -> Iterator[dict[str, Any]]:
    """One row a contestant: medians, and ratios to the event's first."""
    every = list(measured(places.out))
    for event in events:
        first: dict[str, float] | None = None
        for name in event.contestants:
            mine = [m for m in every if (m["event"], m["contestant"]) == (event.name, name)]
            of = {rounds: [m for m in mine if m["rounds"] == rounds] for rounds in event.spans(name)}
            if not all(of.values()):
                continue
            first_rounds, last_rounds = event.spans(name)
            short, long = (median(m["cpu"] for m in of[n]) for n in (first_rounds, last_rounds))
            work = (event.work or {}).get(name, (event.work or {}).get("", 1.0))
            one = (long - short) / (last_rounds - first_rounds) / work
            last = of[last_rounds]
            memory = [m["memory"] for m in last if "memory" in m]
            row = {
                "event": event.name,
                "unit": event.unit,
                "contestant": name,
                "repeats": len(last),
                "start": max(short - one * work * first_rounds, 0.0),
                "one": one,
                "whole": long,
                **{key: median(m[key] for m in last) for key in ("wall", "bytes", "accuracy")},
                "memory": median(memory) if memory else None,
            }
            first = first or row
            yield {**row, "one_ratio": one / first["one"], "whole_ratio": long / first["whole"]}


def _megabytes(row: Mapping[str, Any]) -> str:
    return "" if row["memory"] is None else f"{row['memory']:.0f}"


def page(table: list[dict[str, Any]]) -> str:
    """``docs/speed.md`` with these figures."""
    lines = []
    for name in dict.fromkeys(row["event"] for row in table):
        mine = [row for row in table if row["event"] == name]
        lines += ["", f"### {name[0].upper()}{name[1:]}", ""]
        lines += [f"| | start, s | {mine[0]['unit']}, s | ratio | whole, s | ratio | memory, MB | score |"]
        lines += ["|---" * 8 + "|"]
        lines += [
            f"| {row['contestant']} | {row['start']:.1f} | {row['one']:.3f} | {row['one_ratio']:.2f} "
            f"| {row['whole']:.1f} | {row['whole_ratio']:.2f} | {_megabytes(row)} | {row['accuracy']:.3f} |"
            for row in mine
        ]
    return with_part(PAGE.read_text(encoding="utf-8"), BEGIN, [*lines, ""])


def merged(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is kept: an event that was measured now takes the place of its rows of before."""
    measured = {row["event"] for row in now}
    every = [*(row for row in before if row["event"] not in measured), *now]
    return [row for event in EVENTS for row in every if row["event"] == event.name]


def prepared(out: Path) -> Path:
    """Cora from the data root, where PyTorch Geometric, OpenFGL and FederatedScope look for it."""
    root = os.environ.get("SECURE_FEDGRAPH_DATA") or ROOT.parent / "shared" / "data"
    raw = Path(root) / "planetoid" / "Cora" / "raw"
    if not raw.is_dir():
        sys.exit(f"{raw} is not there: set SECURE_FEDGRAPH_DATA to a folder with planetoid/Cora/raw")
    for folder in ("Cora", "global/subgraph_fl/Cora", "federatedscope/cora"):
        if not (out / "data" / folder / "raw").is_dir():
            shutil.copytree(raw, out / "data" / folder / "raw")
    return out / "data"


def main() -> None:
    """Reads the options, measures, prints."""
    asked = options(__doc__, page=True)
    asked.add_argument("--openfgl", type=Path, help="a checkout of OpenFGL")
    asked.add_argument("--federatedscope", type=Path, help="a checkout of FederatedScope")
    asked.add_argument("--fedgraph", type=Path, help="a folder with the package of FedGraph")
    asked.add_argument("--only", default="", help="events whose name holds this")
    asked.add_argument("--repeats", type=int, default=3)
    asked.add_argument("--out", type=Path, default=Path("runs/race"))
    asked.add_argument("--keep", action="store_true", help="keep the table, and write the page from it")
    given = asked.parse_args()
    if given.check:
        write_or_check(PAGE, page(json.loads(KEPT.read_text())), check=True)
    events = [event for event in EVENTS if given.only.lower() in event.name.lower()]
    if not events:
        sys.exit(f"--only {given.only}: no event is named so; they are {', '.join(e.name for e in EVENTS)}")
    given.out.mkdir(parents=True, exist_ok=True)
    paths = (given.openfgl, given.federatedscope, given.fedgraph)
    others = (path and path.resolve() for path in paths)
    places = Places(prepared(given.out).resolve(), given.out.resolve(), *others)
    for folder in ("secure_fedgraph", "attacks", "audits"):
        compileall.compile_dir(ROOT / folder, quiet=1)
    race(events, places, given.repeats)
    table = list(rows(events, places))
    if given.keep:
        kept = merged(json.loads(KEPT.read_text()) if KEPT.exists() else [], table)
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
        write_or_check(PAGE, page(kept), check=False)
    show(table, given.json)
    for reason in sorted({r for e in events for name in e.contestants if (r := left_out(name, places))}):
        print(f"left out: {reason}")


if __name__ == "__main__":
    main()
