"""What a defence costs: the same run with it and without it, for accuracy, bytes, processor seconds, epsilon.

No command of its own: ``attack_defences.py`` prints the table. Nobody attacks these runs. A run is kept under
what it is made of, so defences that are the same settings of the same algorithm share theirs. A run that was
stopped is begun again, since its seconds went with its process; so two calls at once on the same ``--out``
must not both measure costs.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from attack_table import told
from policies_by_name import score
from resumable import CPU, run_once
from rich.table import Table

from secure_fedgraph.core.errors import SecureFedGraphError
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import mean_result, read_json, write_json

COST_ROUNDS = 20
"""Rounds of a cost run: minutes of every algorithm, and enough to part a model that learns from noise."""
REFUSED = "refused.json"
Run = Mapping[str, Any]


@dataclass(frozen=True)
class Pair:
    """A defence's two runs, of any one seed.

    Args:
        name: the defence's.
        settings: what the defence is, in words.
        instead: what stands in its place without it, in words.
        defended, bare: the run with it, and the same without it.
        shared: what both have beside the algorithm's defaults, in words.
    """

    name: str
    settings: str
    instead: str
    defended: Experiment
    bare: Experiment
    shared: str = ""


def place(experiment: Experiment) -> str:
    """A folder's name for all seeds of an experiment: two are alike exactly where their settings are."""
    settings = {**experiment.model_dump(mode="json"), "seed": None}
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:10]
    return f"{experiment.algorithm.replace('+', 'plus')}-{experiment.data}-{experiment.policy}-{digest}"


def measure(pairs: Sequence[Pair], seeds: int, out: Path) -> None:
    """Runs what is not there yet: all pairs with the first seed, then all with the next."""
    for seed in range(seeds):
        for pair in pairs:
            for one in (pair.bare, pair.defended):
                _measure(one.model_copy(update={"seed": seed}), pair.name, out)


def _measure(experiment: Experiment, name: str, out: Path) -> None:
    folder = _folder(experiment, out)
    if (folder / "result.json").is_file():
        return
    shutil.rmtree(folder, ignore_errors=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing protects the bare run is the point
        try:
            run_once(experiment, folder, name, "benchmarks/attack_defences.py --costs")
        except SecureFedGraphError as error:
            write_json(folder / REFUSED, {"reason": str(error)})
            print(f"{name} seed {experiment.seed}: {error}", file=sys.stderr)


def _folder(experiment: Experiment, out: Path) -> Path:
    return out / place(experiment) / f"seed-{experiment.seed}"


def kept(experiment: Experiment, seed: int, out: Path) -> Run | None:
    """What a run left: its result, or why there is none; None where it was not made."""
    folder = _folder(experiment.model_copy(update={"seed": seed}), out)
    if (folder / "result.json").is_file():
        seconds = json.loads((folder / CPU).read_text())["rounds"]
        return {**read_json(folder / "result.json", "run"), "cpu": seconds}
    if (folder / REFUSED).is_file():
        return {"reason": json.loads((folder / REFUSED).read_text())["reason"]}
    return None


def rows(pairs: Sequence[Pair], seeds: int, out: Path) -> list[dict[str, Any]]:
    """One row a pair that has a run of each kind, or a refusal."""
    found = []
    for pair in pairs:
        runs = [(kept(pair.defended, seed, out), kept(pair.bare, seed, out)) for seed in range(seeds)]
        made = [(one, other) for one, other in runs if one is not None and other is not None]
        if made:
            found.append(row_of(pair, made))
    return found


def row_of(pair: Pair, runs: Sequence[tuple[Run, Run]]) -> dict[str, Any]:
    """What a defence costs.

    Args:
        runs: with it and without it, a pair a seed.
    """
    both = [(one, other) for one, other in runs if "reason" not in one and "reason" not in other]
    row: dict[str, Any] = {
        "defence": pair.name,
        "settings": pair.settings,
        "without": pair.instead,
        "shared": pair.shared,
        "algorithm": pair.defended.algorithm,
        "data": pair.defended.data,
        "rounds": pair.defended.rounds,
        "seeds": [one["seed"] for one, _ in both],
        "otherwise": sorted({run["reason"] for runs_ in runs for run in runs_ if "reason" in run}),
    }
    defended, bare = [one for one, _ in both], [other for _, other in both]
    for key, measured in (("accuracy", _accuracy), ("bytes", bytes_up), ("cpu", cpu_seconds)):
        row[key] = [measured(run) for run in defended]
        row[f"{key}_without"] = [measured(run) for run in bare]
    row["points"] = [100 * (a - b) for a, b in zip(row["accuracy"], row["accuracy_without"], strict=True)]
    for key in ("bytes", "cpu"):
        row[f"{key}_ratio"] = [_ratio(a, b) for a, b in zip(row[key], row[f"{key}_without"], strict=True)]
    of, without = claims(defended), claims(bare)
    row["epsilon"] = {unit: claim["epsilon"] for unit, claim in of.items()}
    row["epsilon_without"] = {unit: claim["epsilon"] for unit, claim in without.items()}
    row["infinite"] = sorted({claim["reason"] for claim in of.values() if claim["epsilon"] == "inf"})
    return row


def _accuracy(run: Run) -> float:
    return score(dict(run))


def bytes_up(run: Run) -> float:
    """Bytes that a client sends the server a round; what comes before the first is shared out over all."""
    return float(run["bytes"]["up"] / (run["config"]["clients"] * len(run["rounds"])))


def cpu_seconds(run: Run) -> float:
    """Processor seconds a round of all parties together, without the last, which the referee scores."""
    return fmean(run["cpu"][:-1])


def claims(runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """Unit -> what ledgers say of it, of the seed with the largest epsilon."""
    if not runs:
        return {}
    results = [{key: one for key, one in run.items() if key != "cpu"} for run in runs]
    found: dict[str, dict[str, Any]] = mean_result(results)["privacy"]
    return found


def _ratio(one: float, other: float) -> float | None:
    return one / other if other else None


def told_epsilons(found: Mapping[str, float | str]) -> str:
    """``client 6.57, node 15.5``; ``infinite`` where no unit has another."""
    if all(value == "inf" for value in found.values()):
        return "infinite" if found else "-"
    return ", ".join(f"{unit} {float(value):.3g}" for unit, value in found.items())


def table(found: Iterable[Mapping[str, Any]]) -> Table:
    """As printed."""
    heads = ("defence", "of", "is", "beside", "accuracy", "without", "points", "bytes", "CPU", "epsilon")
    title = f"what a defence costs over {COST_ROUNDS} rounds: bytes and CPU seconds a round are ratios"
    made = Table(*heads, title=title)
    for row in found:
        if not row["seeds"]:
            why = "; ".join(row["otherwise"])[:90]
            cells = ["-", "-", "-", "-", "-", why]
        else:
            measured = ("accuracy", "accuracy_without", "points", "bytes_ratio", "cpu_ratio")
            cells = [*(told(row[key]) for key in measured), told_epsilons(row["epsilon"])]
        of = f"{row['algorithm']} {row['shared']}".strip()
        made.add_row(row["defence"], of, row["settings"], row["without"], *cells)
    return made
