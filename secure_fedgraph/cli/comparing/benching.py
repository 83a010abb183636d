"""The work of ``bench``: the suite and its file, runs of it made again, and the board."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from secure_fedgraph.algorithms.plugins import algorithm_named
from secure_fedgraph.audits.grid.choices import choose
from secure_fedgraph.cli import options
from secure_fedgraph.cli.comparing.compare_attacks import Attacks, attacks_on
from secure_fedgraph.cli.screen import Screen, said_later, warn
from secure_fedgraph.cli.tables import table
from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput, BrokenClaim, SecureFedGraphError
from secure_fedgraph.experiment.bench import suite as public
from secure_fedgraph.experiment.bench.running import check_known, drawn, run_again, run_part
from secure_fedgraph.experiment.code_digest import of_rooms
from secure_fedgraph.experiment.compare import Point
from secure_fedgraph.experiment.pool import Pool
from secure_fedgraph.experiment.ray_pool import on_ray
from secure_fedgraph.experiment.results import versions, write_json
from secure_fedgraph.experiment.schema import BenchResult, as_read, of_kind, read
from secure_fedgraph.experiment.schema.bench import Row
from secure_fedgraph.report import text as words
from secure_fedgraph.report.page import write_board, write_report
from secure_fedgraph.report.sections.bench_page import HEADS, cells
from secure_fedgraph.storage import manifest

FILE = "bench.json"
MOST = 2**25
"""Bytes of a stranger's file that are read."""


def bench(
    quick: bool,
    task: str | None,
    algorithm: str | None,
    attack: str | None,
    workers: int | None,
    engine: str | None,
    out: Path,
    **flags: Any,
) -> None:
    """Makes the runs of the suite that are not finished, and writes ``bench.json`` and its page."""
    screen, started, suite = Screen(flags), time.perf_counter(), public.SUITE
    parts = suite.parts([] if task is None else options.names("task", task), quick)
    asked = [] if algorithm is None else options.listed("algorithm", algorithm)
    for name in asked:
        algorithm_named(name)
    own_attacks = [] if attack is None else options.names("attack", attack)
    choose(own_attacks)
    cores = workers or os.cpu_count() or 1
    each = [len(asked or p.algorithms) * (len(p.epsilons) + 1) * (len(p.seeds) + 1) for p in parts]
    estimate = sum(n * part.of.seconds for n, part in zip(each, parts, strict=True)) / cores
    files.private_folder(out)
    screen.lead(f"{len(parts)} comparisons, at most {sum(each)} runs and audits; from nothing about "
                f"{words.seconds(estimate)} on {cores} processes; what is finished is kept")  # fmt: skip
    tasks, rows = list[dict[str, Any]](), list[dict[str, Any]]()
    bar = screen.bar("bench", sum(each))
    with said_later(), Pool(cores) as here, on_ray(engine, out, workers) as there, bar as advance:
        for part in parts:
            leaks_on = partial(_fitting, own_attacks or part.of.attacks)
            told, found = run_part(part, asked or part.algorithms, out, there or here, advance, leaks_on)
            tasks.append(told)
            rows += found
    result = {
        "schema": "secure-fedgraph/bench/1",
        "command": options.command_line(),
        "suite": suite.digest,
        "quick": quick,
        "code": of_rooms(),
        "versions": versions(),
        "tasks": tasks,
        "points": rows,
        "seconds": round(time.perf_counter() - started, 1),
    }
    write_json(out / FILE, result)
    manifest.write(out)
    page = write_report(out)
    screen.finish(result, _tables(tasks, rows), page)
    broken = [f"{row['task']}, {row['name']}: {row.get('leak_failed') or row['reason']}" for row in rows
              if row["outcome"] == "failed" or row.get("leak_failed")]  # fmt: skip
    if not rows:
        raise BadInput(f"no task ran: {'; '.join(str(one['reason']) for one in tasks)}")
    if broken:
        raise SecureFedGraphError(f"{len(broken)} of {len(rows)} rows failed: {'; '.join(broken)}")


def _fitting(names: Sequence[str], points: Sequence[Point]) -> Attacks | None:
    """The attacks that read something that these points send; None where there are none."""
    found, code = dict[str, None](), ""
    for name in names:
        with suppress(BadInput):  # it reads nothing of theirs: no row has it
            made = attacks_on(points, [name])
            found, code = {**found, **dict.fromkeys(made.attacks)}, code + made.code
    return Attacks(tuple(found), code) if found else None


def verify(
    file: Path, algorithm: str | None, draw: int | None, workers: int | None, engine: str | None, **flags: Any
) -> None:
    """Checks the signature of a file, and makes a random tenth of its runs again.

    Raises:
        BrokenClaim: where a run came out another, by name.
    """
    screen, suite = Screen(flags), public.SUITE
    held = _read(file)
    check_known(held, suite, [] if algorithm is None else options.names("algorithm", algorithm))
    same = held.versions == versions() and held.code == of_rooms()
    if not same:
        warn(f"{file} was made by other code or packages: its scores are held to the wider tolerance")
    runs = drawn(held.points, draw)
    with TemporaryDirectory() as scratch:
        out, cores = Path(scratch), workers or os.cpu_count() or 1
        bar = screen.bar("verify", len(runs))
        with said_later(), Pool(cores) as here, on_ray(engine, out, workers) as there, bar as advance:
            found = list(run_again(runs, held, suite, out, there or here, advance, same))
    keys = ("run", "outcome", "as_said")
    result = {"file": str(file), "runs": [dict(zip(keys, one, strict=True)) for one in found]}
    lines = [f"{'as said' if near else 'DIFFERS'}: {name}: {outcome}" for name, outcome, near in found]
    screen.say("\n".join(lines), result)
    if wrong := [name for name, _, near in found if not near]:
        raise BrokenClaim(f"{file}: {len(wrong)} of {len(found)} runs came out otherwise: {'; '.join(wrong)}")


def page(file: tuple[Path, ...], out: Path) -> None:
    """Writes the board of several files."""
    if out.is_dir() or (out.exists() and out.suffix != ".html"):
        raise BadInput(f"--out {out} is a folder, or no page: give the name of an .html file")
    print(write_board([(str(one), _read(one)) for one in file], out))


def _read(file: Path) -> BenchResult:
    """A file that is as it was signed, perhaps a stranger's."""
    path = file / FILE if file.is_dir() else file
    content = of_kind(path, "bench", partial(files.read, path, root=path.parent, most=MOST))
    if path.name != FILE:
        raise BadInput(f"{path}: its manifest signs {FILE}: give the folder of a submission, or that file")
    manifest.check(path.parent)
    return read(BenchResult, content, path)


def _tables(tasks: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> list[Any]:
    missing = [one for one in tasks if "reason" in one]
    shown = [{"task": f"{one['task']}, {one['partition']}", "reason": one["reason"]} for one in missing]
    for row in (as_read(Row, one) for one in rows):
        texts = dict(zip(HEADS, (text for text, _ in cells("", row)), strict=True))
        left_out = {key: texts[key] for key in HEADS[:4]} | {"reason": row.reason}
        shown.append(texts if row.outcome == "ran" else left_out)
    return table("The suite", shown, " ".join((*HEADS[:7], "reason")))
