"""The work of ``reproduce``: a paper's table, ours beside it."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from secure_fedgraph.cli.options import command_line
from secure_fedgraph.cli.screen import PlainConsole, Screen, to_a_pipe
from secure_fedgraph.cli.tables import table as table_of
from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput, SecureFedGraphError
from secure_fedgraph.experiment.pool import Pool
from secure_fedgraph.experiment.ray_pool import on_ray
from secure_fedgraph.experiment.reproduce import PaperTable, table_named
from secure_fedgraph.experiment.reproduce.outcome import Outcome, Score, counts, outcomes, share_reached
from secure_fedgraph.experiment.reproduce.running import Reproduction
from secure_fedgraph.experiment.results import versions, write_json
from secure_fedgraph.report import text as words


def reproduce(
    table: str,
    seeds: int | None,
    only: tuple[str, ...],
    finished: bool,
    workers: int | None,
    engine: str | None,
    out: Path,
    **flags: Any,
) -> None:
    """Runs what is not finished, and prints the table.

    Raises:
        SecureFedGraphError: after the table is printed, where a run failed.
    """
    screen, started = Screen(flags), time.perf_counter()
    asked = table_named(table.lower()).only(only)
    words_in_name = ["".join(c if c.isalnum() or c in "+.=" else "-" for c in word) for word in only]
    path = out / f"{'-'.join([asked.name, *words_in_name])}.json"
    made = Reproduction(asked, range(seeds or asked.seeds), out)
    left = made.look()
    if not finished:
        try:
            files.private_folder(out)
        except OSError as error:
            raise BadInput(f"--out {out} cannot be made ({error.strerror}): give another folder") from None
        cores = workers or os.cpu_count() or 1
        about = words.seconds(60.0 * sum(case.minutes for case, _ in left) / cores)
        screen.lead(
            f"{asked.name}, {asked.title} ({asked.paper}): {len(left)} of "
            f"{len(asked.cases) * len(made.seeds)} runs are left, about {about} on {cores} "
            f"process{'es' * (cores > 1)}"
        )
        bar = screen.bar(asked.name, len(left))
        with Pool(cores) as here, on_ray(engine, out, workers) as there, bar as advance:
            made.run(left, there or here, advance)
    found = outcomes(asked, made.results, made.failures)
    result = _result(asked, made, found, bool(only), time.perf_counter() - started)
    if not finished:
        write_json(path, result)
    if screen.shows_tables:
        _show(asked, found, result)
    else:
        screen.say("", result)
    if made.failures and not finished:
        raise SecureFedGraphError(
            f"{len(made.failures)} of {len(asked.cases)} experiments ended with an error: "
            + "; ".join(f"{name}: {reason}" for name, reason in made.failures.items())
        )


def _result(
    asked: PaperTable, made: Reproduction, found: Sequence[Outcome], part: bool, seconds: float
) -> dict[str, Any]:
    """What ``TABLE.json`` holds: every cell, and by what it was made."""
    share = share_reached(found)
    return {
        "schema": "reproduce-1",
        "table": asked.name,
        "title": asked.title,
        "paper": asked.paper,
        "part": part,
        "selection": asked.selection,
        "seeds": list(made.seeds),
        "marks": counts(found),
        "share_reached": None if math.isnan(share) else share,
        "cells": [one.plain() for one in found],
        "versions": versions(),
        "code": sorted(made.codes),
        "command": command_line(),
        "seconds": seconds,
    }


def _show(asked: PaperTable, found: Sequence[Outcome], result: dict[str, Any]) -> None:
    share = result["share_reached"]
    verdict = "" if share is None else f"{share:.0%} of the cells that can be run are within the tolerance."
    marks = ", ".join(f"{count} {mark}" for mark, count in result["marks"].items())
    with to_a_pipe():
        console = PlainConsole()
        which = {"last": "last round", "best_by_validation": "best round by validation"}.get(
            asked.selection, "best round on test, as the paper has it"
        )
        console.print(*table_of(f"{asked.name}: {asked.title}; {which}", _rows(asked, found)))
        for reason in dict.fromkeys(one.reason for one in found if one.reason):
            console.print(f"* {reason}", soft_wrap=True)
        console.print(f"{marks}. {verdict}", soft_wrap=True)


def _rows(asked: PaperTable, found: Sequence[Outcome]) -> Iterator[dict[str, str]]:
    for one in found:
        cell, ours = one.cell, one.scores.get(asked.selection) or one.scores.get("last")
        paper = {} if cell.paper is None else {"paper": f"{cell.paper:.3f}", "within": f"{cell.tolerance:g}"}
        last, mark = _score(one.scores.get("last")), one.mark + ("*" if one.reason else "")
        about = {"row": cell.row, "column": cell.column}
        yield {**about, "ours": _score(ours), "last": last, **paper, "mark": mark}


def _score(score: Score | None) -> str:
    if score is None:
        return ""
    error = "" if math.isnan(score.standard_error) else f" ± {score.standard_error:.3f}"
    return f"{score.mean:.3f}{error}"
