"""The work of ``audit``: what an adversary learns, attack by attack and policy by policy."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from secure_fedgraph.algorithms.plugins import algorithm_named, is_own
from secure_fedgraph.audits.grid import choices, folders, grid, options
from secure_fedgraph.audits.grid.report import audit_result
from secure_fedgraph.cli import tables
from secure_fedgraph.cli.options import (
    asked_for,
    command_line,
    default_folder,
    listed,
    names,
    read_experiment,
)
from secure_fedgraph.cli.screen import Screen, plain_warnings, said_later, say_of_data, warn
from secure_fedgraph.core.errors import BadInput, BrokenClaim, SecureFedGraphError
from secure_fedgraph.experiment.compare import forget
from secure_fedgraph.experiment.config import OPTIONS, Experiment
from secure_fedgraph.experiment.intent import check_intent
from secure_fedgraph.experiment.kept_schema import keep_schema
from secure_fedgraph.experiment.results import (
    check_can_start,
    dropped_charges,
    fresh_folder,
    read_json,
    write_json,
)
from secure_fedgraph.experiment.schema import AuditResult, as_read
from secure_fedgraph.graph.data.datasets import KINDS
from secure_fedgraph.graph.silos.places import is_place
from secure_fedgraph.report.page import write_report


def audit(
    folder: Path | None,
    policy: str | None,
    attack: str,
    adversary: str | None,
    control: tuple[str, ...],
    effort: float | None,
    workers: int | None,
    budget_minutes: float | None,
    **flags: Any,
) -> None:
    """Measures what an adversary learns, attack by attack and policy by policy."""
    if flags.get("logging"):
        raise BadInput(f"--log {flags['logging']}: an audit logs no runs; give it to run")
    screen = Screen(flags)
    attacks = options.checked_attacks(choices.choose(names("attack", attack)), adversary, effort)
    attacks = choices.played_by(attacks, adversary)
    started = time.perf_counter()
    if folder is not None:
        own = flags["algorithm"] if is_own(flags["algorithm"] or "") else None
        of = flags["data"] if is_place(flags["data"] or "") else None
        grid_only = {"budget-minutes": budget_minutes, "workers": workers}
        out = _folder_for_audit_of(
            folder,
            {
                **flags,
                "policy": policy,
                "control": control,
                "algorithm": None if own else flags["algorithm"],
                "silos": None,
                "ledger": None,
                "data": None if is_place(flags["data"] or "") else flags["data"],
            },
            grid_only,
        )
        if attack == "all":
            attacks = (
                choices.readers(folders.read_folder(folder, own, flags["silos"], of)[1], attacks) or attacks
            )
        with plain_warnings():
            experiment, audited = folders.audit_folder(
                folder, attacks, adversary, effort, own, flags["silos"], of, flags["ledger"]
            )
        if out != folder:
            if flags["overwrite"] and (dropped := dropped_charges(out)):
                warn(dropped)
            fresh_folder(out, flags["overwrite"])
        policies, seeds = [experiment.policy], [experiment.seed]
        more: list[Experiment] = []
    else:
        policies = ["strictest"] if policy is None else listed("policy", policy)
        experiments, seeds = _experiments({**flags, "policy": policies[0]})
        experiment, *more = experiments
        rows = [one.with_policy(name) for one in experiments for name in policies]
        check_intent(asked_for(None, {**flags, "policy": policy}), rows, "audit")
        if attack == "all" and not more:  # those that read a channel of this algorithm, if any does
            attacks = choices.readers(experiment, attacks) or attacks
        controls = choices.controls(attacks, [name for one in control for name in names("control", one)])
        budget = None if budget_minutes is None else 60 * budget_minutes
        options.checked_options(  # before anything of an earlier audit is replaced
            experiments, policies, attacks, seeds, None, adversary, controls, effort, workers, budget
        )
        said = say_of_data(experiment)
        out = _folder_for_grid(flags, experiments, policies, seeds, controls, effort)
        total = len(grid.planned_runs(experiments, policies, attacks, seeds, adversary, controls, effort))
        with screen.bar("auditing", total) as advance, plain_warnings(said):
            audited = grid.audit(
                experiments,
                policies,
                attacks,
                seeds,
                out,
                advance,
                adversary,
                controls,
                effort,
                workers=workers,
                budget=budget,
                say=screen.note,
                probes=True,
            )
    result = audit_result(
        audited, experiment, policies, seeds, time.perf_counter() - started, command_line(), more
    )
    write_json(out / "audit.json", result)
    keep_schema(experiment, out)
    page = write_report(out)
    screen.finish(result, tables.audit_tables(as_read(AuditResult, result)), page)
    if result["broken"]:
        raise BrokenClaim(" ".join(result["broken"]))
    failed = {cell["reason"] for cell in audited.not_run if cell["failed"]}
    if failed:
        raise SecureFedGraphError(f"some cells have no result: {'; '.join(sorted(failed))}")
    if not audited.cells and not audited.empirical:
        raise SecureFedGraphError(
            f"nothing was run: {audited.not_run[0]['reason']}" if audited.not_run else "nothing was run"
        )


def _experiments(flags: dict[str, Any]) -> tuple[list[Experiment], list[int]]:
    """One for each algorithm: on its default data, or on the first named data set that it can learn from."""
    algorithms: list[str | None] = [None]
    if flags["algorithm"]:
        algorithms = [*listed("algorithm", flags["algorithm"])]
    given = flags["data"] or ""
    data = [given] if is_place(given) else listed("data", given) if given else []
    experiments: list[Experiment] = []
    for algorithm in algorithms:
        mine = {**flags, "algorithm": algorithm, "data": _fitting(algorithm, data)}
        if len(algorithms) > 1:
            mine["assignments"] = [a for a in flags["assignments"] if _known(a, algorithm, algorithms)]
        experiment, seeds = read_experiment(None, mine)
        experiments.append(experiment)
    unused = [name for name in data if name not in {experiment.data for experiment in experiments}]
    if unused:
        raise BadInput(
            f"--data {unused[0]} would be ignored: each algorithm takes the first that it learns from"
        )
    return experiments, seeds


def _fitting(algorithm: str | None, data: list[str]) -> str | None:
    """The first data set of a kind that an algorithm learns from."""
    if len(data) < 2 or algorithm is None:
        return data[0] if data else None
    kinds = algorithm_named(algorithm).kinds
    fits = [name for name in data if KINDS.get(name) in kinds]
    if not fits:
        raise BadInput(f"--data {','.join(data)}: {algorithm} learns from kind {' or '.join(kinds)}; add one")
    return fits[0]


def _known(assignment: str, algorithm: str | None, others: list[str | None]) -> bool:
    """Whether a setting goes to this algorithm: not if only others of the list know it."""
    table, *keys = assignment.partition("=")[0].split(".")
    if table == "training" and keys:
        known = {name: keys[0] in algorithm_named(name).Settings.model_fields for name in others if name}
    elif table == "protection" and len(keys) == 2:  # a number for one channel
        known = {name: keys[1] in algorithm_named(name).channel_names() for name in others if name}
    else:
        return True
    return known.get(algorithm or "", True) or not any(known.values())


def _folder_for_grid(
    flags: dict[str, Any],
    experiments: list[Experiment],
    policies: list[str],
    seeds: list[int],
    controls: tuple[str, ...] | None,
    effort: float | None,
) -> Path:
    """A fresh folder, or one in which the same grid was begun: it goes on with what is missing."""
    out: Path = flags["out"] or default_folder(experiments[0], "audit")
    cells = out / "cells"
    if flags["overwrite"]:
        with said_later():
            check_can_start(experiments[0].with_policy("plaintext"))
        if dropped := dropped_charges(out):
            warn(dropped)
        forget(out)
        fresh_folder(out, True)
    elif cells.is_dir() and _same_grid(out / "audit.json", experiments, policies, seeds, controls, effort):
        return out
    return fresh_folder(out, False)


def _same_grid(
    path: Path,
    experiments: list[Experiment],
    policies: list[str],
    seeds: list[int],
    controls: tuple[str, ...] | None,
    effort: float | None,
) -> bool:
    if not path.is_file():
        return True  # killed before its end: cells of other configurations are not taken
    earlier = read_json(path, "audit")
    configs = earlier.get("configs") or [earlier["config"]]
    asked = {
        "configs": [one.model_dump(mode="json") for one in experiments],
        "policies": policies,
        "seed": seeds,
        "controls": None if controls is None else list(controls),
        "effort": effort,
    }
    return asked == {**{key: earlier.get(key) for key in asked}, "configs": configs}


def _folder_for_audit_of(folder: Path, flags: dict[str, Any], grid_only: dict[str, Any]) -> Path:
    """Where the audit of a finished run goes: beside its result, which stays, or to ``--out``."""
    for name, value in grid_only.items():
        if value:
            raise BadInput(
                f"--{name} {value:g} is for runs that are yet to come: drop it, or drop the folder"
            )
    fixed = ("policy", *OPTIONS, *Experiment.model_fields)
    ignored = [key for key in fixed if flags.get(key) is not None]
    ignored += ["control"] if flags["control"] else []
    if ignored or flags["assignments"] or flags["seeds"] is not None:
        name = (ignored or ["set" if flags["assignments"] else "seeds"])[0]
        raise BadInput(f"--{name} cannot change the finished run in {folder}: drop it, or drop the folder")
    out: Path = flags["out"] or folder
    if out.resolve() != folder.resolve():
        return out
    if (folder / "audit.json").exists() and not flags["overwrite"]:
        raise BadInput(f"{folder} already holds audit.json: give another --out, or --overwrite")
    return folder
