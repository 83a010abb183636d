"""The work of ``audit``: what an adversary learns, attack by attack and policy by policy."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from secure_fedgraph.algorithms.plugins import is_own
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
from secure_fedgraph.experiment import results
from secure_fedgraph.experiment.config import OPTIONS, Experiment
from secure_fedgraph.experiment.intent import check_intent
from secure_fedgraph.experiment.kept_schema import keep_schema
from secure_fedgraph.experiment.ray_pool import on_ray
from secure_fedgraph.experiment.schema import AuditResult, as_read
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
    screen = Screen(flags)
    attacks = options.checked_attacks(choices.choose(names("attack", attack)), adversary, effort)
    attacks = choices.played_by(attacks, adversary)
    started = time.perf_counter()
    if folder is not None:
        own = flags["algorithm"] if is_own(flags["algorithm"] or "") else None
        of = flags["data"] if is_place(flags["data"] or "") else None
        typed = {"algorithm": own, "data": of, "silos": flags["silos"], "ledger": flags["ledger"]}
        changes: dict[str, Any] = {"budget-minutes": budget_minutes, "workers": workers}
        changes |= {"policy": policy, "control": control or None, "engine": flags["engine"]}
        changes |= {"set": flags["assignments"] or None, "seeds": flags["seeds"]}
        changes |= {key: flags.get(key) for key in (*OPTIONS, *Experiment.model_fields) if key != "policy"}
        for name, value in changes.items():
            if value is not None and value != typed.get(name):
                raise BadInput(
                    f"--{name} cannot change the finished run in {folder}: drop it, or drop the folder"
                )
        out: Path = flags["out"] or folder
        if out.resolve() == folder.resolve() and (folder / "audit.json").exists() and not flags["overwrite"]:
            raise BadInput(f"{folder} already holds audit.json: give another --out, or --overwrite")
        if attack == "all":
            attacks = (
                choices.readers(folders.read_folder(folder, own, flags["silos"], of)[1], attacks) or attacks
            )
        with plain_warnings():
            experiment, audited = folders.audit_folder(
                folder, attacks, adversary, effort, own, flags["silos"], of, flags["ledger"]
            )
        if out.resolve() != folder.resolve():
            if flags["overwrite"] and (dropped := results.dropped_charges(out)):
                warn(dropped)
            results.fresh_folder(out, flags["overwrite"])
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
        grid_of = {
            "configs": [one.model_dump(mode="json") for one in experiments],
            "policies": policies,
            "seed": seeds,
            "controls": None if controls is None else list(controls),
            "effort": effort,
        }
        total = len(grid.planned_runs(experiments, policies, attacks, seeds, adversary, controls, effort))
        flags["out"] = flags["out"] or default_folder(experiment, "audit")
        with (
            on_ray(flags["engine"], flags["out"], workers, experiment) as pool,
            screen.bar("auditing", total) as advance,
            plain_warnings(said),
        ):
            out = _folder_for_grid(flags, experiments, grid_of)
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
                pool=pool,
            )
    result = audit_result(
        audited, experiment, policies, seeds, time.perf_counter() - started, command_line(), more
    )
    results.write_json(out / "audit.json", result)
    keep_schema(experiment, out)
    page = write_report(out)
    shown = tables.audit_tables if screen.verbose else tables.audit_lines
    screen.finish(result, shown(as_read(AuditResult, result)), page)
    if result["broken"]:
        raise BrokenClaim(" ".join(result["broken"]))
    failed = {cell["reason"] for cell in audited.not_run if cell["failed"]}
    if failed:
        raise SecureFedGraphError(f"some cells have no result: {'; '.join(sorted(failed))}")
    if not audited.cells and not audited.empirical:
        why = audited.not_run[0]["reason"] if audited.not_run else "no attack was asked for"
        raise SecureFedGraphError(f"nothing was run: {why}")


def _experiments(flags: dict[str, Any]) -> tuple[list[Experiment], list[int]]:
    """One for each algorithm, on its default data or the data that are named."""
    algorithms = listed("algorithm", flags["algorithm"]) if flags["algorithm"] else [None]
    made = [read_experiment(None, {**flags, "algorithm": algorithm}) for algorithm in algorithms]
    return [experiment for experiment, _ in made], made[0][1]


def _folder_for_grid(flags: dict[str, Any], experiments: list[Experiment], asked: dict[str, Any]) -> Path:
    """A fresh folder, or one in which the same grid was begun: it goes on with what is missing.

    Args:
        asked: what the grid is made of, as ``audit.json`` has it.
    """
    out: Path = flags["out"]
    if flags["overwrite"]:
        with said_later():
            results.check_can_start(experiments[0].with_policy("plaintext"))
        if dropped := results.dropped_charges(out):
            warn(dropped)
    elif (out / "cells").is_dir():
        earlier = results.read_json(out / "audit.json", "audit") if (out / "audit.json").is_file() else asked
        configs = earlier.get("configs") or [earlier.get("config")]
        if {**{key: earlier.get(key) for key in asked}, "configs": configs} == asked:
            return out
    return results.fresh_folder(out, flags["overwrite"])
