"""The audit of a finished run's folder: its result, its transcript, and what its owners held."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from secure_fedgraph.algorithms.plugins import check_own_name
from secure_fedgraph.attacks import Attack
from secure_fedgraph.audits.conformance.rows import OF_CHARGES, PASSED, conformance_rows, probe_rows, row
from secure_fedgraph.audits.empirical_dp.empirical import empirical_or_why_not, not_audited
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.grid.cells import Audit, cells
from secure_fedgraph.audits.grid.choices import AS_CONFIGURED, adversaries
from secure_fedgraph.audits.grid.options import checked_attacks
from secure_fedgraph.core import wire
from secure_fedgraph.core.channel import Reveal
from secure_fedgraph.core.errors import BadInput, HostileMessage, wrong_type
from secure_fedgraph.core.message import Message, digest
from secure_fedgraph.core.spending.ledger import Charge, read_ledger
from secure_fedgraph.core.upload import all_finite
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
from secure_fedgraph.experiment.schema.settings import short
from secure_fedgraph.privacy.planning import TRAINING
from secure_fedgraph.privacy.policy import Policy
from secure_fedgraph.protocol import Transcript
from secure_fedgraph.protocol.transcript import BODY, INDEX, Sent
from secure_fedgraph.running.preparation import channels_of
from secure_fedgraph.running.run import Run
from secure_fedgraph.storage import manifest

WIDTHS = {"hidden", "encoder", "generator_hidden"}
"""Settings that a model's size follows from; with ``layers``, where one width is of all."""
MOST_WEIGHTS, A_LAYER = 2**29, 2**16
"""Of a model that is built because a file says so, and what a layer counts for beside its own."""
WHOLE = "every file is as it was signed by the run's key {key}; whoever holds run.key can sign anew"


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
        BadInput: for a folder that is not whole; where it holds no result or no transcript; for attacks that
            are none, an adversary that is unknown, or an effort that is no number of seconds.
    """
    if not isinstance(folder, str | Path):
        raise wrong_type("folder", folder, "give the folder of a finished run")
    folder, attacks = Path(folder), checked_attacks(attacks, adversary, effort)
    signed = manifest.check(folder, ledger)
    result, experiment = read_folder(folder, own, silos, data)
    if "seeds" in result and (of_one := sorted(folder.glob("seed-*"))):
        raise BadInput(f"{folder} is of several seeds: give the folder of one, as {of_one[0]}")
    transcript = _read_transcript(folder / "transcript")
    kept = [sent for sent in transcript.sent if sent.kept]
    if not kept:
        raise BadInput(f"{folder} kept sizes only: run again with --set transcript=full")
    federation = make_federation(experiment)
    if federation.facts["digest"] != result["data"]["digest"]:
        raise BadInput(
            f"{experiment.data} has another content hash here than in {folder}: the truth cannot be rebuilt"
        )
    algorithm, policy = experiment.make_algorithm(), experiment.make_policy(_planned_noise(folder, result))
    if algorithm.pools:  # as in the run, whose one party holds everybody's data
        federation = federation.pooled()
    public, schema = {"channels": {}, **transcript.public}, federation.schema
    due: dict[str, Any] = {
        "algorithm": algorithm.name,
        "settings": experiment.training,
        "clients": list(federation.names),
        "schema": {"features": schema.features, "classes": schema.classes},
        "channels": {one["name"]: one for one in result["channels"]},
    }
    told = {name: {**due["channels"].get(name, {}), **one} for name, one in public["channels"].items()}
    if why := _differing({**{key: public.get(key) for key in due}, "channels": told}, due, "public"):
        raise _damaged(folder / "transcript" / INDEX, f"{why}, as in result.json or the data")
    _check_size(algorithm.settings.model_dump(), schema.features, folder / "result.json")
    who = adversaries(attacks, adversary)
    finished_run = FinishedRun(federation, algorithm, transcript, experiment.seed, result)
    audit = cells(finished_run, experiment, attacks, who, effort=effort)
    about = {"algorithm": experiment.algorithm, "policy": experiment.policy, "seed": experiment.seed}
    about["variant"] = AS_CONFIGURED
    name = Message.from_bytes(transcript.body(kept[0].number)).run
    charges, why = _charges(folder, signed, ledger, name, result)
    run = _as_run(finished_run, experiment, policy, result, charges)
    rows = conformance_rows(
        run, unseen=dict.fromkeys(OF_CHARGES, why) if why else None, result=RunResult.model_validate(result)
    )
    if unkept := len(transcript.sent) - len(kept):
        lost = f"{unkept} of {len(transcript.sent)} messages were not kept: their content is not checked"
        rows = [{**row, "reason": lost} if row["check"] == "domains" else row for row in rows]
    whole = row("whole", PASSED, [], {"whole": WHOLE.format(key=signed["public"])})
    audit.conformance += [{**about, **row} for row in (whole, *rows, *probe_rows(run))]
    if not why:
        measured = empirical_or_why_not(run, experiment.delta) if charges else []
    else:
        measured = [not_audited(why)] if experiment.adds_noise else []
    audit.empirical += [{**about, **row} for row in measured]
    audit.runs.append({"variant": AS_CONFIGURED, "policy": experiment.policy, "result": result})
    return experiment, audit


def _charges(
    folder: Path, signed: Mapping[str, Any], shared: Path | None, run: str, result: Mapping[str, Any]
) -> tuple[list[Charge], str]:
    """What a run charged, and why there is no ledger to read: empty where there is one, or none is due.

    Args:
        signed: the folder's manifest.
        shared: the ledger that the user named.
        run: its name in messages; a ledger that several runs share names others besides.
        result: its result.
    """
    head = signed["ledger"]
    if head is not None and (shared is not None or head["own"]):
        path = shared or folder / manifest.LEDGER
        return [charge for charge in read_ledger(path) if charge.counts_for(run)], ""
    if head is not None:
        place = str(result["config"].get("ledger"))[:200]
        return [], (
            f"the run charged the ledger {place!r}, which no audit opens because a file names it: what was "
            "charged is not checked; name that ledger by --ledger"
        )
    due = any(row["uploads"] and row["reveal"] != Reveal.NOTHING for row in result["channels"])
    return [], "no ledger is in the folder (owners on machines of their own keep theirs)" if due else ""


def _as_run(
    finished: FinishedRun,
    experiment: Experiment,
    policy: Policy,
    result: dict[str, Any],
    charges: Sequence[Charge],
) -> Run:
    """The run as far as its folder holds it: no state; the policy is bound again."""
    algorithm, federation, scores = finished.algorithm, finished.federation, experiment.evaluation
    channels = channels_of(algorithm, federation, scores, policy, budget_of(experiment, federation))
    bound, seconds = policy.bind(channels, federation.names), float(result.get("seconds") or 0.0)
    rounds = result.get("rounds") or []
    return Run(algorithm, federation, bound, {}, rounds, finished.transcript, charges, seconds, scores)


def _planned_noise(folder: Path, result: Mapping[str, Any]) -> dict[str, float] | None:
    """The noise that a run was planned with; None for one without a plan.

    What costs the budget's unit nothing has no row in the result's plan: the note of before the run has it.
    """
    plan: dict[str, float] = {}
    for one in result.get("plan") or []:
        # steps are named after the channel that shows them; randomised data have an epsilon only
        name = TRAINING if one["channel"].endswith(f" ({TRAINING})") else one["channel"]
        plan[name] = 1 / float(one["epsilon"]) if one["multiplier"] is None else float(one["multiplier"])
    return {**(noted_noise(folder / "checkpoint" / PLANNED) or {}), **plan} if plan else None


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
        read = [result[key] for key in ("accuracy", "bytes", "seed")] + [result["data"]["digest"]]
        read += [(row["name"], row["domain"]) for row in result["channels"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}".splitlines()[0]) from None
    if None in read:
        raise _damaged(path, "a value is missing")
    return result, experiment


def _check_size(settings: Mapping[str, Any], features: int, path: Path) -> None:
    """Before a model is built: a file cannot ask for one of any size."""
    layers = settings.get("layers", 1)
    repeated = min(layers, MOST_WEIGHTS // A_LAYER + 1) if isinstance(layers, int) else 1
    for key in WIDTHS & settings.keys():
        given = settings[key]
        widths = given if isinstance(given, list | tuple) else [given] * repeated
        numbers = [features, *(one for one in widths if isinstance(one, int))]  # an own one's may be others
        if sum(one * other + A_LAYER for one, other in pairwise(numbers)) > MOST_WEIGHTS:
            raise _damaged(path, f"config.training.{key} = {short(given)} is more than any model has")


def _read_transcript(folder: Path) -> Transcript:
    """A transcript whose messages and values are as its notes say, and finite."""
    transcript = Transcript.load(folder)
    notes: Iterable[Any] = (*transcript.sent, *transcript.opened, *transcript.made)
    for note in (one for one in notes if one.kept):
        try:
            raw = transcript.body(note.number)
            tree = Message.from_bytes(raw).tree() if isinstance(note, Sent) else wire.decode(raw)
            floats = (one for one in tree.values() if isinstance(one, np.ndarray) and one.dtype.kind == "f")
            if digest(raw) != note.digest or not all(map(all_finite, floats)):
                raise HostileMessage("it is not as notes.jsonl has it, or not finite")
        except (OSError, HostileMessage) as error:
            why = "it is missing" if isinstance(error, OSError) else str(error)
            raise _damaged(folder / f"{note.number:06d}{BODY}", why) from None
    return transcript


def _differing(said: Any, due: Any, place: str) -> str:
    """Where two values differ first, and how; empty where they do not."""
    if isinstance(said, dict) and isinstance(due, dict):
        inside = (_differing(said.get(key), due.get(key), f"{place}.{key[:60]}") for key in {**due, **said})
        return next(filter(None, inside), "")
    return "" if json.dumps(said) == json.dumps(due) else f"{place} is {short(said)}, not {short(due)}"


def _damaged(path: Path, why: str) -> BadInput:
    return BadInput(f"{path} is damaged ({why}): put a copy back, or run again with --set transcript=full")
