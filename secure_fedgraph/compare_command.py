"""The command ``compare``: accuracy under privacy, side by side."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from secure_fedgraph import tables
from secure_fedgraph.config import Experiment
from secure_fedgraph.errors import BadInput, Refused, SecureFedGraphError
from secure_fedgraph.options import command_line, default_folder, experiment_options, names, read_experiment
from secure_fedgraph.own_algorithm import check_own
from secure_fedgraph.report import words
from secure_fedgraph.report.page import write_report
from secure_fedgraph.results import fresh_folder, write_json
from secure_fedgraph.run_logs import check_log
from secure_fedgraph.screen import Screen

LONG = 30.0
"""Seconds of work that are said before they pass."""
BLIND = "blind"
COMPARE_EXAMPLES = """
\b
Examples:
  secure-fedgraph compare --algorithm fedsage,fedavg --data pubmed --clients 200 --epsilon 1,8,inf --seeds 3
  secure-fedgraph compare --algorithm fedsage --policy plaintext,masked,homomorphic --rounds 5 --attack a1,a4
"""


@click.command(epilog=COMPARE_EXAMPLES)
@click.option("--policy", help="Policies, by commas; distributed_dp with a budget, else strictest.")
@click.option("--attack", help="Attacks to run under each point, by commas; none by default.")
@click.option("--workers", type=click.IntRange(1), help="Processes; one a core by default.")
@partial(experiment_options, epsilon=str)
def compare(policy: str | None, attack: str | None, workers: int | None, **flags: Any) -> None:
    """Accuracy under privacy, side by side: algorithms, policies, budgets, seeds; resumable."""
    from audits.pool import Pool
    from secure_fedgraph import comparison

    screen, started = Screen(flags), time.perf_counter()
    algorithms = names("algorithm", flags["algorithm"] or "fedsage")
    epsilons = _epsilons(flags.pop("epsilon"))
    budgeted = any(math.isfinite(epsilon) for epsilon in epsilons)
    policies = names("policy", policy or ("distributed_dp" if budgeted else "strictest"))
    base, seeds = read_experiment(
        None, {**flags, "algorithm": algorithms[0], "policy": policies[0], "epsilon": None}, made=False
    )
    check_log(base)
    chosen = comparison.points(base, algorithms, policies, epsilons)
    comparison.make_all(chosen)
    leaks = None if attack is None else _attacks(names("attack", attack), chosen)
    out: Path = flags["out"] or default_folder(base, "compare")
    if not flags["overwrite"]:
        comparison.check_folder(out, base, chosen, seeds)
    for algorithm in algorithms:
        check_own(base.model_copy(update={"algorithm": algorithm}))
    workers = workers or os.cpu_count() or 1
    with Pool(workers) as pool:
        todo = chosen if flags["overwrite"] else comparison.unfinished(chosen, seeds, out)
        with screen.bar("checking", len(todo)) as advance:
            comparison.check(todo, seeds[0], pool, advance)
        if flags["overwrite"]:
            comparison.forget(out)
            fresh_folder(out, True)
        elif not (out / "compare.json").exists() and not comparison.is_begun(out):
            fresh_folder(out, False)
        total = len(chosen) * (len(seeds) + (leaks is not None))
        with screen.bar("comparing", total) as advance:
            rows = comparison.compare(
                chosen,
                seeds,
                out,
                pool,
                workers,
                lambda text, left: advance(f"{text}; {_left(left)} left" if left else text),
                partial(_foresee, screen, total, workers),
                leaks,
            )
    asked = [] if leaks is None else list(leaks.attacks)
    seconds = time.perf_counter() - started
    result = comparison.compare_result(base, rows, seeds, seconds, command_line(), asked)
    write_json(out / "compare.json", result)
    comparison.write_tables(rows, out)
    page = write_report(out)
    screen.finish(result, tables.compare_tables(result), page)
    _raise_for(rows)


def _foresee(screen: Screen, total: int, workers: int, jobs: int, seconds: float) -> None:
    if seconds > LONG:
        on = f"on {workers} process{'es' * (workers > 1)}"
        screen.note(f"{jobs} of {total} runs are left: {_left(seconds)} {on}")


def _left(seconds: float | None) -> str:
    return f"about {words.seconds(float(round(seconds or 0.0)))}"


def _raise_for(rows: Sequence[dict[str, Any]]) -> None:
    """The exit status of a comparison that is written: what failed is no success, whatever else ran.

    Raises:
        Refused: where every point was refused.
        BadInput: where no point ran, and a setting is why.
        SecureFedGraphError: where a point, or attacks on one, failed.
    """
    failed = [row for row in rows if row["outcome"] == "failed"]
    told = [f"{row['name']}: {row['reason']}" for row in failed]
    told += [f"attacks on {row['name']}: {row['leak_failed']}" for row in rows if "leak_failed" in row]
    if all(row["outcome"] == "refused" for row in rows):
        raise Refused(f"every point was refused: {rows[0]['reason']}")
    if not told:
        return
    text = f"{len(told)} of {len(rows)} points failed, and the others are written. {' '.join(told)}"
    if len(failed) == len(rows) and failed[0]["class"] == BadInput.__name__:
        raise BadInput(f"no point ran. {told[0]}")
    raise SecureFedGraphError(text)


def _epsilons(text: Any) -> list[float]:
    """Budgets by commas; ``inf`` is the baseline without privacy, which is there anyway."""
    found = []
    for part in str(text or "").split(","):
        if not part.strip():
            continue
        try:
            found.append(float(part))
        except ValueError:
            found.append(-1.0)
        if not found[-1] > 0:
            raise BadInput(
                f"--epsilon {text}: {part!r} is no budget; give positive numbers or inf, by commas"
            )
    return found


def _attacks(asked: list[str], chosen: Sequence[Any]) -> Attacks:
    """The attacks by name; of a family, or of ``all``, those that an algorithm here is open to.

    Raises:
        BadInput: for a name of which nothing reads a channel of these algorithms.
    """
    from audits import grid

    sent: dict[str, set[str]] = {}
    for point in chosen:
        with suppress(Refused):
            channels = {channel.name for channel in point.experiment(0).make_algorithm().in_use}
            sent.setdefault(point.algorithm, set()).update(channels)
    used = set[str]().union(*sent.values())
    found: dict[str, None] = {}
    for name in asked:
        kinds = grid.choose([name])
        fitting = [kind.id for kind in kinds if _reads(kind) & used]
        if not fitting:
            read = sorted({channel for kind in kinds for channel in _reads(kind)})
            raise BadInput(
                f"--attack {name} reads {' or '.join(read)}, which {' and '.join(sent)} "
                f"{'does' if len(sent) == 1 else 'do'} not send as configured: leave it out, or compare an "
                "algorithm that does"
            )
        found.update(dict.fromkeys(fitting))
    return Attacks(tuple(found))


def _reads(kind: Any) -> set[str]:
    return {kind.channel, *kind.also_reads}


@dataclass(frozen=True)
class Attacks:
    """Attacks on one point's run as configured.

    Args:
        attacks: their ids.
    """

    attacks: tuple[str, ...]

    def key(self, config: dict[str, Any]) -> str:
        """Of the run, the attacks, the code of both, and versions."""
        from audits import grid

        experiment, kinds = self._fitting(config)
        wanted = (
            grid.groups([experiment], [experiment.policy], kinds, [experiment.seed], controls=())
            if kinds
            else []
        )
        told = json.dumps([self.attacks, [group.key for group in wanted]])
        return hashlib.sha256(told.encode()).hexdigest()[:20]

    def __call__(self, config: dict[str, Any]) -> dict[str, Any]:
        """The strongest of what each attack makes of single owners: a score or a word, and what it beats."""
        from audits import grid

        experiment, kinds = self._fitting(config)
        made = grid.Audit()
        if kinds:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = grid.audit(experiment, [experiment.policy], kinds, [experiment.seed], controls=())
        failed = [cell["reason"] for cell in made.not_run]
        if failed:
            raise SecureFedGraphError(failed[0])
        best: dict[str, dict[str, Any]] = {}
        for cell in made.cells:
            # what all owners' sum shows is no single owner's, but what a defence leaves may be
            if cell["settings"]["aim"] == grid.EACH or cell.get("owners") == 1:
                known = best.setdefault(cell["attack"], cell)
                best[cell["attack"]] = max(known, cell, key=_strength)
        told = {attack: best.get(attack, {"outcome": BLIND}) for attack in self.attacks}
        return {
            "leak": {attack: _score(cell) for attack, cell in told.items()},
            "leaks": {attack: _beats(cell) for attack, cell in told.items() if _strength(cell)[0]},
        }

    def _fitting(self, config: dict[str, Any]) -> tuple[Experiment, list[Any]]:
        """The experiment, and the attacks that read what it sends: all others are blind, without a run."""
        from audits import grid

        experiment = Experiment(**{**config, "logging": None})
        sent = {channel.name for channel in experiment.make_algorithm().in_use}
        return experiment, [kind for kind in grid.choose(self.attacks) if _reads(kind) & sent]


def _strength(cell: dict[str, Any]) -> tuple[bool, bool, float]:
    scored = cell.get("score") is not None
    return scored, bool(cell.get("leaks")), float(cell["score"]) if scored else 0.0


def _score(cell: dict[str, Any]) -> float | str:
    return float(cell["score"]) if _strength(cell)[0] else str(cell["outcome"])


def _beats(cell: dict[str, Any]) -> dict[str, Any]:
    return {
        "score": float(cell["score"]),
        "baseline": cell["baseline"],
        "low": cell["low"],
        "leaks": bool(cell["leaks"]),
        "adversary": cell["adversary"],
        "aim": cell["settings"]["aim"],
    }
