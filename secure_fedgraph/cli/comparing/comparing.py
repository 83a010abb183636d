"""The work of ``compare``: accuracy under privacy, side by side."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from secure_fedgraph.cli import options, tables
from secure_fedgraph.cli.comparing.compare_attacks import attacks_on
from secure_fedgraph.cli.screen import Screen, say_of_data, warn
from secure_fedgraph.core.errors import BadInput, Refused, SecureFedGraphError
from secure_fedgraph.experiment import compare as comparison
from secure_fedgraph.experiment.intent import check_intent
from secure_fedgraph.experiment.kept_schema import keep_schema
from secure_fedgraph.experiment.pool import Pool
from secure_fedgraph.experiment.ray_pool import on_ray
from secure_fedgraph.experiment.results import dropped_charges, fresh_folder, write_json
from secure_fedgraph.experiment.schema import CompareResult, as_read
from secure_fedgraph.report.page import write_report


def compare(
    policy: str | None, attack: str | None, workers: int | None, skip_without_graph: bool, **flags: Any
) -> None:
    """Accuracy under privacy, side by side: algorithms, policies, budgets, seeds; resumable."""
    screen, started = Screen(flags), time.perf_counter()
    budgets = flags.pop("epsilon")
    epsilons = _epsilons(budgets)
    budgeted = any(math.isfinite(epsilon) for epsilon in epsilons)
    algorithms = options.listed("algorithm", flags["algorithm"] or "fedsage")
    if options.AUTO in algorithms:
        raise BadInput(f"--algorithm {options.AUTO}: 'run' takes what 'plan' chooses; name what is compared")
    policies = options.listed("policy", policy or ("distributed_dp" if budgeted else "strictest"))
    base, seeds = options.read_experiment(
        None, {**flags, "algorithm": algorithms[0], "policy": policies[0], "epsilon": None}, made=False
    )
    cores = workers or os.cpu_count() or 1
    chosen = comparison.checked_points(base, algorithms, policies, epsilons, cores)
    asked = options.asked_for(None, {**flags, "policy": policy, "epsilon": budgets if budgeted else None})
    compared = [point.experiment(0) for point in chosen if point.kind != comparison.ALONE]
    check_intent(asked, compared, "compare")
    beside = {} if skip_without_graph else comparison.references(chosen)
    leaks = None if attack is None else attacks_on(chosen, options.names("attack", attack))
    out: Path = flags["out"] or options.default_folder(base, "compare")
    if not flags["overwrite"]:
        comparison.check_folder(out, base, chosen, seeds)
    say_of_data(base)
    with Pool(cores) as here, on_ray(flags["engine"], out, workers, base) as there:
        # a reference is checked where it runs: nobody asked for it by name, and its row says what is wrong
        todo = chosen if flags["overwrite"] else comparison.unfinished(chosen, seeds, out)
        with screen.bar("checking", len(todo)) as advance:
            comparison.check(todo, seeds[0], here, advance)
        if flags["overwrite"]:
            if dropped := dropped_charges(out):
                warn(dropped)
            fresh_folder(out, True)
        elif not (out / "compare.json").exists() and not comparison.is_begun(out):
            fresh_folder(out, False)
        runs = len(chosen) + len(comparison.added(chosen, beside))
        total = runs * len(seeds) + len(chosen) * (leaks is not None)
        with screen.bar("comparing", total) as advance:
            rows = comparison.compare(chosen, seeds, out, there or here, advance, leaks, beside)
    attacks = [] if leaks is None else list(leaks.attacks)
    seconds = time.perf_counter() - started
    result = comparison.compare_result(base, rows, seeds, seconds, options.command_line(), attacks)
    write_json(out / "compare.json", result)
    keep_schema(base, out)
    comparison.write_table(rows, out)
    page = write_report(out)
    screen.finish(result, tables.compare_tables(as_read(CompareResult, result)), page)
    _raise_for(rows)


def _raise_for(rows: Sequence[dict[str, Any]]) -> None:
    """Sets the exit status of a comparison that is written: a failed point is a failure, whatever else ran.

    Raises:
        Refused: where every point was refused.
        BadInput: where no point ran, and a setting is why.
        SecureFedGraphError: where a point, or attacks on one, failed.
    """
    if all(row["outcome"] == "refused" for row in rows):
        raise Refused(f"every point was refused: {rows[0]['reason']}")
    failed = {row["name"]: row for row in rows if row["outcome"] == "failed"}
    broken = {f"attacks on {row['name']}": row["leak_failed"] for row in rows if "leak_failed" in row}
    broken |= {name: row["reason"] for name, row in failed.items()}
    told = " ".join(f"{name}: {reason}" for name, reason in broken.items())
    if len(failed) == len(rows) and all(row["class"] == BadInput.__name__ for row in rows):
        raise BadInput(f"no point ran. {told}")
    if broken:
        raise SecureFedGraphError(
            f"{len(broken)} of {len(rows)} points failed, and the others are written. {told}"
        )


def _epsilons(text: str | None) -> list[float]:
    """Budgets by commas; ``inf`` is the baseline without privacy, which is there anyway."""
    try:
        return [] if text is None else [float(one) for one in text.split(",")]
    except ValueError:
        raise BadInput(f"--epsilon {text}: give positive numbers or inf, by commas") from None
