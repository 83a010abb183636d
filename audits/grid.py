"""The leakage grid: algorithm x policy x attack x seed. A cell is refused, blind, or a score."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attacks import ATTACKS, FAMILIES, Attack, Blind, Knowledge
from audits.judges import JUDGES
from secure_fedgraph.config import Experiment, load
from secure_fedgraph.errors import BadInput, Refused, unknown_name
from secure_fedgraph.federation import Federation, federate
from secure_fedgraph.protocol import Transcript, View
from secure_fedgraph.results import execute, read_json, run_result, write_json

Progress = Callable[[str], None]
EACH, LEFT = "each owner", "what the defence leaves"
AIMS = (EACH, LEFT)


@dataclass
class Audit:
    """The cells of a grid, the runs behind them, and true against reconstructed values."""

    cells: list[dict[str, Any]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    reconstructions: list[dict[str, Any]] = field(default_factory=list)


def choose(names: Iterable[str]) -> list[type[Attack]]:
    """Attacks by id, slug, family, or ``all``.

    Raises:
        BadInput: for a name that is none of these.
    """
    found: dict[str, type[Attack]] = {}
    for name in names:
        chosen = [a for a in ATTACKS.values() if name in ("all", a.family, a.id, *a.id.split("-", 1))]
        if not chosen:
            raise unknown_name("attack", name, [*ATTACKS, *FAMILIES, "all"])
        found.update({a.id: a for a in chosen})
    return list(found.values())


def audit(
    experiment: Experiment,
    policies: Iterable[str],
    attacks: Iterable[type[Attack]],
    seeds: Iterable[int],
    out: Path | None = None,
    progress: Progress = lambda text: None,
) -> Audit:
    """Runs the grid.

    For every policy and seed: one run as configured, and one for each attack that has settings under which it
    must succeed (its positive control), so that a weak result is seen beside a strong one.
    """
    grid, attacks = Audit(), list(attacks)
    for seed in seeds:
        for policy in policies:
            chosen = experiment.model_copy(update={"policy": policy, "seed": seed})
            variants = [("as configured", chosen, attacks)]
            for attack in attacks:
                if attack.works_best:
                    changes = [f"{key}={value}" for key, value in attack.works_best.items()]
                    best = load(None, chosen.model_dump(), changes)
                    variants.append((f"positive control of {attack.id}", best, [attack]))
            for variant, setting, wanted in variants:
                progress(f"{policy}, seed {seed}: {variant}")
                _one_run(grid, setting, variant, wanted, out)
    return grid


def cells(
    transcript: Transcript,
    federation: Federation,
    experiment: Experiment,
    result: Mapping[str, Any],
    attacks: Iterable[type[Attack]],
    variant: str,
) -> Audit:
    """The cells of one finished run: each attack at single owners, and at what the defence leaves."""
    grid = Audit()
    view = transcript.view("server")
    for attack in attacks:
        for aim in AIMS:
            _cell(grid, view, federation, experiment, result, attack(), aim, variant)
    return grid


def _one_run(
    grid: Audit, experiment: Experiment, variant: str, attacks: list[type[Attack]], out: Path | None
) -> None:
    channels = {attack.channel for attack in attacks}
    folder = out and out / "runs" / f"{experiment.policy}-{experiment.seed}-{variant.replace(' ', '-')}"
    try:
        run = execute(experiment, folder, keep=lambda channel, round: channel in channels)
    except Refused as refusal:
        grid.cells += [_blank(experiment, a, EACH, variant, "refused", str(refusal)) for a in attacks]
        return
    result = run_result(run, experiment)
    found = cells(run.transcript, run.federation, experiment, result, attacks, variant)
    grid.cells += found.cells
    grid.reconstructions += found.reconstructions
    grid.runs.append({"variant": variant, "policy": experiment.policy, "result": result})
    if folder is not None:
        write_json(folder / "result.json", result)


def _cell(
    grid: Audit,
    view: View,
    federation: Federation,
    experiment: Experiment,
    result: Mapping[str, Any],
    attack: Attack,
    aim: str,
    variant: str,
) -> None:
    started = time.perf_counter()
    try:
        work = attack.run if aim == EACH else attack.residual
        guess = work(view, Knowledge(attack.grants))
    except Blind as reason:
        grid.cells.append(_blank(experiment, type(attack), aim, variant, "blind", str(reason)))
        return
    seconds = time.perf_counter() - started
    judgement = JUDGES[guess.about](guess, federation, experiment.make_algorithm())
    score = judgement.score
    grid.reconstructions.append(
        {
            "policy": experiment.policy,
            "seed": experiment.seed,
            "attack": attack.id,
            "aim": aim,
            "variant": variant,
            "kind": guess.about,
            "targets": judgement.targets(),
        }
    )
    grid.cells.append(
        {
            **_blank(experiment, type(attack), aim, variant, "score", ""),
            "metric": score.metric,
            "score": score.value,
            "low": score.low,
            "high": score.high,
            "baseline": score.baseline,
            "baselines": dict(score.baselines),
            "leaks": score.leaks,
            "verdict": score.verdict if aim == EACH else f"{score.verdict}, about all owners together",
            "reason": "",
            "details": dict(score.details),
            "messages": guess.messages,
            "accuracy": result["accuracy"],
            "bytes": result["bytes"],
            "seconds": round(seconds, 3),
        }
    )


def _blank(
    experiment: Experiment, attack: type[Attack], aim: str, variant: str, outcome: str, reason: str
) -> dict[str, Any]:
    settings: Mapping[str, Any] = {
        "aim": aim,
        "variant": variant,
        **(attack.works_best if variant != "as configured" else {}),
    }
    return {
        "algorithm": experiment.algorithm,
        "policy": experiment.policy,
        "attack": attack.id,
        "adversary": attack.adversary,
        "behaviour": attack.behaviour,
        "channel": attack.channel,
        "outcome": outcome,
        "metric": None,
        "score": None,
        "low": None,
        "high": None,
        "baseline": None,
        "baselines": {},
        "ceiling": None,
        "leaks": False,
        "verdict": outcome,
        "reason": reason,
        "seed": experiment.seed,
        "accuracy": None,
        "bytes": None,
        "seconds": None,
        "settings": dict(settings),
    }


def audit_folder(folder: Path, attacks: Iterable[type[Attack]]) -> tuple[Experiment, Audit]:
    """The cells of a finished run that kept its transcript.

    The truth is rebuilt from the run's own configuration: same data, same seeds.

    Raises:
        BadInput: where the folder holds no result or no transcript.
    """
    result = read_json(folder / "result.json", "run")
    experiment = Experiment(**result["config"])
    transcript = Transcript.load(folder / "transcript")
    if not any(sent.kept for sent in transcript.sent):
        raise BadInput(f"{folder} kept sizes only: run again with --set transcript=full")
    federation = federate(
        experiment.data, experiment.clients, experiment.partition, experiment.seed, **experiment.dataset
    )
    if federation.facts["digest"] != result["data"]["digest"]:
        raise BadInput(
            f"{experiment.data} has another content hash here than in {folder}: the truth cannot be rebuilt"
        )
    found = cells(transcript, federation, experiment, result, attacks, "as configured")
    found.runs.append({"variant": "as configured", "policy": experiment.policy, "result": result})
    return experiment, found
