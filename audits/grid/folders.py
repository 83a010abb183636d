"""The audit of a finished run's folder: its result, its transcript, and what its owners held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from secure_fedgraph.algorithms.plugins import check_own_name
from secure_fedgraph.attacks import Attack
from secure_fedgraph.audits.conformance.rows import OF_CHARGES, conformance_rows
from secure_fedgraph.audits.empirical_dp.empirical import empirical_or_why_not
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.grid.cells import Audit, cells
from secure_fedgraph.audits.grid.choices import AS_CONFIGURED, adversaries
from secure_fedgraph.audits.grid.options import checked_attacks
from secure_fedgraph.audits.probes.rows import probe_rows
from secure_fedgraph.errors import BadInput, wrong_type
from secure_fedgraph.experiment.config import Experiment, experiment_of
from secure_fedgraph.experiment.results import make_federation, read_json, typed_data, typed_silos
from secure_fedgraph.experiment.schema import RunResult
from secure_fedgraph.privacy.spending.ledger import read_ledger
from secure_fedgraph.protocol import Transcript
from secure_fedgraph.protocol.message import has_digest
from secure_fedgraph.protocol.transcript import Opened, Sent
from secure_fedgraph.running.preparation import channels_of
from secure_fedgraph.running.run import Run

UNSEEN = ("secrets",)
"""Checks of what a folder does not hold: the server's objects."""


def audit_folder(
    folder: Path | str,
    attacks: Iterable[type[Attack]],
    adversary: str | None = None,
    effort: float | None = None,
    own: str | None = None,
    silos: Mapping[str, str] | None = None,
    data: str | None = None,
) -> tuple[Experiment, Audit]:
    """The cells of a finished run that kept its transcript.

    The truth is rebuilt from the run's own configuration: same data, same seeds.

    Args:
        own: the run's algorithm, where it is an own one (``module:Class``): a file alone gets no code to run.
        silos: the files of the run's silos, where owners have data of their own: no file is opened because
            another names it.
        data: the run's own data, likewise.

    Raises:
        BadInput: where the folder holds no result or no transcript, or damaged ones; for attacks that are
            none, an adversary that is unknown, or an effort that is no number of seconds.
    """
    if not isinstance(folder, str | Path):
        raise wrong_type("folder", folder, "give the folder of a finished run")
    folder, attacks = Path(folder), checked_attacks(attacks, adversary, effort)
    result, experiment = read_folder(folder, own, silos, data)
    transcript = _read_transcript(folder / "transcript", attacks)
    if not any(sent.kept for sent in transcript.sent):
        raise BadInput(f"{folder} kept sizes only: run again with --set transcript=full")
    federation = make_federation(experiment)
    if federation.facts["digest"] != result["data"]["digest"]:
        raise BadInput(
            f"{experiment.data} has another content hash here than in {folder}: the truth cannot be rebuilt"
        )
    who = adversaries(attacks, adversary)
    finished_run = FinishedRun(federation, experiment.make_algorithm(), transcript, experiment.seed, result)
    audit = cells(finished_run, experiment, attacks, who, effort=effort)
    about = {"algorithm": experiment.algorithm, "policy": experiment.policy, "seed": experiment.seed}
    about["variant"] = AS_CONFIGURED
    run = _as_run(folder, finished_run, experiment, result)
    charged = bool(run.charges)
    told, unseen = RunResult.model_validate(result), UNSEEN if charged else (*UNSEEN, *OF_CHARGES)
    audit.conformance += [{**about, **row} for row in conformance_rows(run, unseen=unseen, result=told)]
    audit.conformance += [{**about, **row} for row in probe_rows(run)]
    audit.empirical += [
        {**about, **row} for row in (empirical_or_why_not(run, experiment.delta) if charged else ())
    ]
    audit.runs.append({"variant": AS_CONFIGURED, "policy": experiment.policy, "result": result})
    return experiment, audit


def _as_run(folder: Path, finished: FinishedRun, experiment: Experiment, result: dict[str, Any]) -> Run:
    """The run as far as its folder holds it: no state; the policy is bound again, with the planned noise."""
    algorithm, federation = finished.algorithm, finished.federation
    plan = {row["channel"]: _planned(row) for row in result.get("plan") or []}
    channels = channels_of(algorithm, federation, experiment.evaluation)
    bound = experiment.make_policy(plan or None).bind(channels, federation.names)
    path = folder / "ledger.jsonl"
    charges = read_ledger(path) if path.is_file() else []
    rounds = result.get("rounds") or []
    return Run(
        algorithm,
        federation,
        bound,
        {},
        rounds,
        _undamaged(finished.transcript),
        charges,
        float(result.get("seconds") or 0.0),
        experiment.evaluation,
    )


def _planned(row: Mapping[str, Any]) -> float:
    """The noise of one row of a plan, as ``make_policy`` takes it: what is randomised has an epsilon only."""
    return 1 / float(row["epsilon"]) if row["multiplier"] is None else float(row["multiplier"])


def _undamaged(transcript: Transcript) -> Transcript:
    """The record without damaged messages. No attack needs those: they would have been refused before."""

    def whole(note: Sent) -> Sent:
        try:
            kept = note.kept and has_digest(transcript.body(note.number), note.digest)
        except OSError:
            kept = False
        return note if kept == note.kept else replace(note, kept=False)

    transcript.sent = [whole(note) for note in transcript.sent]
    return transcript


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
        experiment = experiment_of({**result["config"], "silos": named, **place})
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
