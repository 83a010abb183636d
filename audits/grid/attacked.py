"""One run of a grid and the attacks on it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from secure_fedgraph.attacks import Attack
from secure_fedgraph.attacks.sparse_rows import one_thread
from secure_fedgraph.audits.conformance.rows import conformance_rows, probe_rows
from secure_fedgraph.audits.dp_bounds import Claims
from secure_fedgraph.audits.empirical_dp.empirical import empirical_or_why_not
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.grid.cells import Audit, blank_cell, cells
from secure_fedgraph.audits.grid.planned_runs import PlannedRun
from secure_fedgraph.core import files
from secure_fedgraph.core.errors import Refused, SecureFedGraphError
from secure_fedgraph.experiment.pool import in_words
from secure_fedgraph.experiment.results import execute, run_result, write_json
from secure_fedgraph.experiment.schema import RunResult
from secure_fedgraph.experiment.schema.score_verdict import SINGLE_OWNERS
from secure_fedgraph.storage import manifest

LARGE = 200_000_000
"""Bytes sent up in a run beyond which its messages are dropped once it was attacked."""


def attacked(planned: PlannedRun, out: Path | None, quietly: bool = False) -> dict[str, Any]:
    """Runs it and attacks it.

    Args:
        quietly: in a process of its own, which warns nobody: what is left in plaintext is a row of the table.

    Returns:
        ``cells``, ``runs``, ``reconstructions``, ``conformance``, ``empirical`` and ``seconds``, as JSON; and
        ``not_run``, the cells whose run stopped after it had started, or whose attacks failed.
    """
    started, grid = time.perf_counter(), Audit()
    with one_thread(), warnings.catch_warnings():
        if quietly:
            warnings.simplefilter("ignore")
        _one_run(grid, planned, out)
    kept = ("cells", "runs", "reconstructions", "conformance", "empirical", "not_run")
    made = {name: getattr(grid, name) for name in kept}
    return {**made, "seconds": round(time.perf_counter() - started, 3)}


def _one_run(audit: Audit, planned: PlannedRun, out: Path | None) -> None:
    experiment, variant, who = planned.experiment, planned.variant, planned.who
    # tables name the algorithm that was chosen, also where a control runs a variant of it
    named = experiment.model_copy(update={"algorithm": planned.chosen.algorithm})
    folder = out and out / planned.place
    if folder is not None:
        files.remove_folder(folder, out)  # of a call that was killed
        files.private_folder(folder, out)
    started: list[str] = []  # all checks have passed, and messages begin
    try:
        run = execute(
            experiment,
            folder,
            keep=KeepReadChannels(variant.attacks),
            plays=variant.plays,
            on_form=started.append,
        )
    except Exception as error:
        if started:  # something may have been sent: whatever ended it, that is no refusal
            own = isinstance(error, SecureFedGraphError)
            reason = f"its run stopped: {f'{type(error).__name__}: {error}' if own else in_words(error)}"
            audit.not_run += [{**cell, "reason": reason, "failed": True} for cell in planned.cells()]
            return
        if not isinstance(error, Refused):
            raise
        for attack in variant.attacks:
            for adversary in (a for a in attack.adversaries if a in who):
                blank = blank_cell(named, attack, adversary, SINGLE_OWNERS, variant)
                audit.cells.append(
                    {**blank, "outcome": "refused", "verdict": "refused", "reason": str(error)}
                )
        return
    result = run_result(run, experiment)
    finished = FinishedRun.of(run, experiment.seed, result)
    claims = Claims.from_charges(run.charges, run.federation.holders, run.federation.units, result)
    attacked_run = cells(finished, named, variant.attacks, who, variant, planned.effort, claims)
    audit.cells += attacked_run.cells
    audit.reconstructions += attacked_run.reconstructions
    audit.not_run += attacked_run.not_run
    if variant.plays is None:  # of a party that plays its own game nothing was promised
        about = _about(planned)
        audit.conformance += [
            {**about, **row} for row in conformance_rows(run, result=RunResult.model_validate(result))
        ]
        if planned.probed:
            audit.conformance += [{**about, **row} for row in probe_rows(run)]
        if planned.configured:  # controls change what is learned from, and no noise
            audit.empirical += [{**about, **row} for row in empirical_or_why_not(run, experiment.delta)]
    audit.runs.append(
        {
            "variant": variant.name,
            "algorithm": named.algorithm,
            "policy": experiment.policy,
            "folder": planned.place,
            "result": result,
        }
    )
    if folder is not None:
        write_json(folder / "result.json", result)
        if experiment.transcript != "full" and run.transcript.traffic()["up"] > LARGE:
            files.remove_folder(folder / "transcript", out)
        manifest.write(folder, experiment.ledger)


def _about(planned: PlannedRun) -> dict[str, Any]:
    return {
        "algorithm": planned.chosen.algorithm,
        "policy": planned.chosen.policy,
        "seed": planned.chosen.seed,
        "variant": planned.variant.name,
    }


class KeepReadChannels:
    """Keeps the channels that attacks read, for as many rounds from a channel's first as they read.

    Of all others the first round is kept, and of what carriers send, for conformance: also where attacks read
    nothing but the released model.
    """

    def __init__(self, attacks: Iterable[type[Attack]]) -> None:
        self._rounds: dict[str, float] = {}
        self._first: dict[str, int] = {}
        for attack in attacks:
            for channel in attack.reads():
                rounds = float("inf") if attack.first_rounds is None else attack.first_rounds
                self._rounds[channel] = max(rounds, self._rounds.get(channel, 1))

    def __call__(self, channel: str, round: int) -> bool:
        return round < self._first.setdefault(channel, round) + self._rounds.get(channel, 1)
