"""The audit of a finished run's folder: its result, its transcript, and what its owners held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from secure_fedgraph.algorithms.plugins import check_own_name
from secure_fedgraph.attacks import Attack
from secure_fedgraph.audits.conformance.rows import OF_CHARGES, conformance_rows
from secure_fedgraph.audits.empirical_dp.empirical import empirical_or_why_not, not_audited
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.grid.cells import Audit, cells
from secure_fedgraph.audits.grid.choices import AS_CONFIGURED, adversaries
from secure_fedgraph.audits.grid.evidence import charges_of, check_evidence, check_header, owes
from secure_fedgraph.audits.grid.figures import rows_of_files
from secure_fedgraph.audits.grid.options import checked_attacks
from secure_fedgraph.audits.probes.rows import probe_rows
from secure_fedgraph.core.errors import BadInput, wrong_type
from secure_fedgraph.core.message import has_digest
from secure_fedgraph.core.spending.ledger import Charge
from secure_fedgraph.experiment.config import Experiment, experiment_of
from secure_fedgraph.experiment.kept_schema import in_folder
from secure_fedgraph.experiment.protect import budget_of
from secure_fedgraph.experiment.results import (
    PLANNED,
    make_federation,
    noted_noise,
    read_json,
    typed_data,
    typed_silos,
)
from secure_fedgraph.experiment.schema import RunResult
from secure_fedgraph.privacy.planning import TRAINING
from secure_fedgraph.privacy.policy import Policy
from secure_fedgraph.protocol import Transcript
from secure_fedgraph.protocol.transcript import Opened, Sent
from secure_fedgraph.running.preparation import channels_of
from secure_fedgraph.running.run import Run

UNSEEN = {
    "secrets": "the server's objects are in no folder: leave DIR out, and the audit trains a run of its own"
}
"""Checks of what a folder does not hold, and why."""


def audit_folder(
    folder: Path | str,
    attacks: Iterable[type[Attack]],
    adversary: str | None = None,
    effort: float | None = None,
    own: str | None = None,
    silos: Mapping[str, str] | None = None,
    data: str | None = None,
    ledger: Path | None = None,
) -> tuple[Experiment, Audit]:
    """The cells of a finished run that kept its transcript.

    The truth is rebuilt from the run's own configuration: same data, same seeds.

    Args:
        own: the run's algorithm, where it is an own one (``module:Class``): a file alone gets no code to run.
        silos: the files of the run's silos, where owners have data of their own: no file is opened because
            another names it.
        data: the run's own data, likewise.
        ledger: the ledger that the run shares with others, likewise.

    Raises:
        BadInput: where the folder holds no result or no transcript, or damaged ones; for attacks that are
            none, an adversary that is unknown, or an effort that is no number of seconds.
    """
    if not isinstance(folder, str | Path):
        raise wrong_type("folder", folder, "give the folder of a finished run")
    folder, attacks = Path(folder), checked_attacks(attacks, adversary, effort)
    result, experiment = read_folder(folder, own, silos, data)
    if "seeds" in result and (of_one := sorted(folder.glob("seed-*"))):
        raise BadInput(f"{folder} is of several seeds: give the folder of one, as {of_one[0]}")
    transcript = _read_transcript(folder / "transcript", attacks)
    if not any(sent.kept for sent in transcript.sent):
        raise BadInput(f"{folder} kept sizes only: run again with --set transcript=full")
    federation = make_federation(experiment)
    if federation.facts["digest"] != result["data"]["digest"]:
        raise BadInput(
            f"{experiment.data} has another content hash here than in {folder}: the truth cannot be rebuilt"
        )
    algorithm, policy = experiment.make_algorithm(), experiment.make_policy(_planned_noise(folder, result))
    if algorithm.pools:  # as in the run, whose one party holds everybody's data
        federation = federation.pooled()
    check_evidence(folder, result, experiment, federation, policy, transcript)
    who = adversaries(attacks, adversary)
    finished_run = FinishedRun(federation, algorithm, transcript, experiment.seed, result)
    audit = cells(finished_run, experiment, attacks, who, effort=effort)
    about = {"algorithm": experiment.algorithm, "policy": experiment.policy, "seed": experiment.seed}
    about["variant"] = AS_CONFIGURED
    bodies = _readable(folder, transcript)
    charges, why = charges_of(folder, experiment, bodies.runs, ledger)
    run = _as_run(finished_run, experiment, policy, result, charges)
    why = why if owes(run) else ""  # without uploads a run has no ledger
    told, unseen = RunResult.model_validate(result), UNSEEN | (dict.fromkeys(OF_CHARGES, why) if why else {})
    rows = conformance_rows(run, unseen=unseen, result=told)
    rows = [
        {**row, "reason": bodies.lost} if row["check"] == "bytes" and bodies.lost else row for row in rows
    ]
    rows += rows_of_files(folder, result)
    audit.conformance += [{**about, **row} for row in (*rows, *probe_rows(run))]
    if not why:
        measured = empirical_or_why_not(run, experiment.delta) if charges else []
    else:
        measured = [not_audited(why)] if experiment.adds_noise else []
    audit.empirical += [{**about, **row} for row in measured]
    audit.runs.append({"variant": AS_CONFIGURED, "policy": experiment.policy, "result": result})
    return experiment, audit


def _as_run(
    finished: FinishedRun,
    experiment: Experiment,
    policy: Policy,
    result: dict[str, Any],
    charges: Sequence[Charge],
) -> Run:
    """The run as far as its folder holds it: no state; the policy is bound again."""
    algorithm, federation = finished.algorithm, finished.federation
    budget = budget_of(experiment, federation)
    channels = channels_of(algorithm, federation, experiment.evaluation, policy, budget)
    bound = policy.bind(channels, federation.names)
    rounds = result.get("rounds") or []
    return Run(
        algorithm,
        federation,
        bound,
        {},
        rounds,
        finished.transcript,
        charges,
        float(result.get("seconds") or 0.0),
        experiment.evaluation,
    )


def _planned_noise(folder: Path, result: Mapping[str, Any]) -> dict[str, float] | None:
    """The noise that a run was planned with; None for one without a plan.

    What costs the budget's unit nothing has no row in the result's plan: the note of before the run has it.
    """
    rows = result.get("plan") or []
    named = ((str(row["channel"]), _planned(row)) for row in rows)
    # rows of noisy steps are named after the channel that shows them
    plan = {TRAINING if name.endswith(f" ({TRAINING})") else name: noise for name, noise in named}
    return {**(noted_noise(folder / "checkpoint" / PLANNED) or {}), **plan} if plan else None


def _planned(row: Mapping[str, Any]) -> float:
    """The noise of one row of a plan, as ``make_policy`` takes it: what is randomised has an epsilon only."""
    return 1 / float(row["epsilon"]) if row["multiplier"] is None else float(row["multiplier"])


@dataclass(frozen=True)
class _Bodies:
    """What the kept messages of a folder show: the runs that they name, and what of them cannot be read."""

    runs: frozenset[str]
    lost: str


def _readable(folder: Path, transcript: Transcript) -> _Bodies:
    """Takes damaged messages and values out of a record: no attack needs them, or they were refused before.

    Raises:
        BadInput: for a message that says something else of itself than its note.
    """
    runs: set[str] = set()
    lost: list[int] = []
    unkept = sum(not note.kept for note in transcript.sent)

    def raw(note: Sent | Opened) -> bytes | None:
        try:
            body = transcript.body(note.number) if note.kept else b""
        except OSError:
            body = None
        if body is None or (note.kept and not has_digest(body, note.digest)):
            lost.append(note.number)
            return None
        return body

    def message(note: Sent) -> Sent:
        body = raw(note)
        if body:
            runs.add(check_header(folder, note, body))
        return note if body is not None else replace(note, kept=False)

    transcript.sent = [message(note) for note in transcript.sent]
    for notes in (transcript.opened, transcript.made):
        notes[:] = [note if raw(note) is not None else replace(note, kept=False) for note in notes]
    said = [f"{unkept} of {len(transcript.sent)} messages were not kept"] if unkept else []
    if lost:
        said.append(f"the files of {len(lost)} are missing or hold something else, first {min(lost):06d}.sfg")
    return _Bodies(frozenset(runs), f"{'; '.join(said)}: their content is not checked" if said else "")


def read_folder(
    folder: Path, own: str | None = None, silos: Mapping[str, str] | None = None, data: str | None = None
) -> tuple[dict[str, Any], Experiment]:
    """A run's result and its configuration; it is checked that they hold all that an audit reads.

    Args:
        own, silos, data: as :func:`audit_folder`'s.

    Raises:
        BadInput: where there is none, it is damaged, or it names an own algorithm that is not given here, or
            code that lies in the folder itself.
    """
    path = folder / "result.json"
    result = read_json(path, "run")
    check_own_name(result["config"].get("algorithm"), own, folder)
    named = typed_silos(result["config"].get("silos"), silos, folder)
    place = typed_data(result["config"].get("data"), data, folder)
    try:
        experiment = experiment_of(in_folder({**result["config"], "silos": named, **place}, folder))
        experiment.make_algorithm()
        read = [result["data"]["digest"], result["accuracy"], result["bytes"], result["seed"]]
        read += [(row["name"], row["domain"]) for row in result["channels"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, _first_line(error)) from None
    if None in read:
        raise _damaged(path, "a value is missing")
    return result, experiment


def _read_transcript(folder: Path, attacks: Iterable[type[Attack]]) -> Transcript:
    """A transcript whose messages, as far as the attacks read them, are those that were sent."""
    index = folder / "index.json"
    try:
        transcript = Transcript.load(folder)
        notes: list[Sent | Opened] = [sent for sent in transcript.sent if sent.kept]
        notes += [opened for opened in transcript.opened if opened.kept]
        int(transcript.public["schema"]["features"]), transcript.public["channels"].keys()
    except BadInput:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(index, _first_line(error)) from None
    channels = {channel for attack in attacks for channel in attack.reads()}
    for note in notes:
        if note.channel in channels:
            path = folder / f"{note.number:06d}.sfg"
            try:
                whole = has_digest(transcript.body(note.number), note.digest)
            except OSError as error:
                raise _damaged(path, str(error.strerror)) from None
            if not whole:
                raise _damaged(path, "its content is not what was recorded")
    return transcript


def _damaged(path: Path, why: str) -> BadInput:
    return BadInput(f"{path} is damaged ({why}): put a copy back, or run again with --set transcript=full")


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
