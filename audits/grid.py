"""The leakage grid: algorithm x policy x attack x adversary x seed. A cell is refused, blind, or a score."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attacks import ATTACKS, FAMILIES, Attack, Blind, Guess
from audits.case import Case
from audits.judges import JUDGES
from audits.knowledge import knowledge
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.config import Experiment, load
from secure_fedgraph.errors import BadInput, Refused, unknown_name
from secure_fedgraph.protocol import Transcript, View
from secure_fedgraph.protocol.message import digest
from secure_fedgraph.protocol.transcript import Opened, Sent
from secure_fedgraph.results import execute, make_federation, read_json, run_result, write_json

Progress = Callable[[str], None]
EACH, LEFT = "each owner", "what the defence leaves"
AIMS = (EACH, LEFT)
AS_CONFIGURED = "as configured"
LARGE = 200_000_000
"""Bytes sent up in a run beyond which its messages are dropped once it was attacked."""


@dataclass
class Audit:
    """The cells of a grid, the runs behind them, and true against reconstructed values.

    Args:
        controls: the only control settings that were run; None: all that the attacks declare.
        effort: processor seconds that one search could take; None: the attacks' own limits.
    """

    cells: list[dict[str, Any]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    reconstructions: list[dict[str, Any]] = field(default_factory=list)
    controls: tuple[str, ...] | None = None
    effort: float | None = None


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


def adversaries(attacks: Iterable[type[Attack]], named: str | None = None) -> tuple[str, ...]:
    """Who attacks: all that the attacks declare, or the one that was named.

    Raises:
        BadInput: for a name that none of the attacks declares.
    """
    declared = tuple(dict.fromkeys(a for attack in attacks for a in attack.adversaries))
    if named is None:
        return declared
    if named not in declared:
        raise unknown_name("adversary (of the chosen attacks)", named, declared)
    return (named,)


def controls(attacks: Iterable[type[Attack]], named: Iterable[str]) -> tuple[str, ...] | None:
    """The control settings that were named; None where none were: all that the attacks declare.

    Raises:
        BadInput: for a name that none of the attacks declares.
    """
    declared = tuple(dict.fromkeys(c.name for attack in attacks for c in attack.controls))
    chosen = tuple(dict.fromkeys(named))
    for name in chosen:
        if not declared:
            raise BadInput(f"control {name!r}: the chosen attacks declare none, so leave --control out")
        if name not in declared:
            raise unknown_name("control (of the chosen attacks)", name, declared)
    return chosen or None


@dataclass(frozen=True)
class Variant:
    """One setting under which a run is attacked, and by which attacks."""

    name: str
    settings: Mapping[str, Any]
    attacks: tuple[type[Attack], ...]


def variants(
    experiment: Experiment, attacks: Iterable[type[Attack]], controls: Collection[str] | None = None
) -> list[Variant]:
    """The configured run, and one for each setting in which attacks show their reach.

    Attacks share the runs of controls of the same name. An attack whose channel the algorithm lacks needs
    none, and neither does a control that the configured run is already.

    Args:
        controls: these only, by name; None: all that the attacks declare.
    """
    attacks, kind = tuple(attacks), ALGORITHMS[experiment.algorithm]
    used = {channel.name for channel in kind.channels}
    configured = {"training": experiment.make_algorithm().settings.model_dump()}
    found: dict[str, Variant] = {}
    for attack in attacks:
        for control in attack.controls if attack.channel in used else ():
            if controls is not None and control.name not in controls:
                continue
            settings = dict(control.settings)
            if attack.depends_on and all(settings.get(k) == _at(configured, k) for k in attack.depends_on):
                continue  # the configured run shows it
            if "federated_epochs" in kind.Settings.model_fields:  # rounds before the first scored one
                settings.setdefault("training.federated_epochs", 1)
            known = found.get(control.name, Variant(control.name, settings, ()))
            found[control.name] = Variant(control.name, settings, (*known.attacks, attack))
    return [Variant(AS_CONFIGURED, {}, attacks), *found.values()]


def audit(
    experiment: Experiment,
    policies: Iterable[str],
    attacks: Iterable[type[Attack]],
    seeds: Iterable[int],
    out: Path | None = None,
    progress: Progress = lambda text: None,
    adversary: str | None = None,
    controls: Collection[str] | None = None,
    effort: float | None = None,
) -> Audit:
    """Runs the grid.

    For every policy and seed: one run as configured, and one for each setting that attacks declare as
    controls, so that a weak result is seen beside a strong one.

    Args:
        adversary: this one only; by default all that the attacks declare.
        controls: these control settings only, by name; by default all that the attacks declare.
        effort: processor seconds that one search may take; by default the attacks' own limits.
    """
    attacks = list(attacks)
    grid = Audit(controls=None if controls is None else tuple(controls), effort=effort)
    who = adversaries(attacks, adversary)
    for seed in seeds:
        for policy in policies:
            chosen = experiment.under(policy).model_copy(update={"seed": seed})
            for variant in variants(chosen, attacks, controls):
                progress(f"{policy}, seed {seed}: {variant.name}")
                _one_run(grid, chosen, variant, who, out)
    return grid


def cells(
    case: Case,
    experiment: Experiment,
    attacks: Iterable[type[Attack]],
    who: Iterable[str],
    variant: Variant | None = None,
    controls: Collection[str] | None = None,
    effort: float | None = None,
) -> Audit:
    """The cells of one finished run: each attack by each adversary, at single owners and at what is left."""
    grid, who = Audit(controls=None if controls is None else tuple(controls), effort=effort), tuple(who)
    variant = variant or Variant(AS_CONFIGURED, {}, ())
    for attack in attacks:
        for adversary in (a for a in attack.adversaries if a in who):
            view = case.transcript.view(*case.parties(adversary))
            for aim in AIMS:
                blank = _blank(experiment, attack, adversary, aim, variant)
                decides = {key: _at(case.result["config"], key) for key in attack.depends_on}
                blank["settings"] |= decides | _limits(grid, attack)
                _cell(grid, blank, view, case, experiment, attack(effort))
    return grid


def _one_run(
    grid: Audit, chosen: Experiment, variant: Variant, who: tuple[str, ...], out: Path | None
) -> None:
    changes = [f"{key}={json.dumps(value)}" for key, value in variant.settings.items()]
    experiment = load(None, chosen.model_dump(), changes)
    place = f"runs/{chosen.policy}-{chosen.seed}-{variant.name.replace(' ', '-')}"
    folder = out and out / place
    try:
        run = execute(experiment, folder, keep=_Keep(variant.attacks))
    except Refused as refusal:
        for attack in variant.attacks:
            for adversary in (a for a in attack.adversaries if a in who):
                blank = _blank(experiment, attack, adversary, EACH, variant)
                blank["settings"] |= _limits(grid, attack)
                grid.cells.append(
                    {**blank, "outcome": "refused", "verdict": "refused", "reason": str(refusal)}
                )
        return
    result = run_result(run, experiment)
    case = Case.of(run, experiment.seed, result)
    found = cells(case, experiment, variant.attacks, who, variant, grid.controls, grid.effort)
    grid.cells += found.cells
    grid.reconstructions += found.reconstructions
    grid.runs.append(
        {"variant": variant.name, "policy": experiment.policy, "folder": place, "result": result}
    )
    if folder is not None:
        write_json(folder / "result.json", result)
        if experiment.transcript != "full" and run.transcript.traffic()["up"] > LARGE:
            shutil.rmtree(folder / "transcript")


class _Keep:
    """Keeps the channels that attacks read, for as many rounds from a channel's first as they read."""

    def __init__(self, attacks: Iterable[type[Attack]]) -> None:
        self._rounds: dict[str, float] = {}
        self._first: dict[str, int] = {}
        for attack in attacks:
            for channel in (attack.channel, *attack.also_reads):
                rounds = float("inf") if attack.first_rounds is None else attack.first_rounds
                self._rounds[channel] = max(rounds, self._rounds.get(channel, 0))

    def __call__(self, channel: str, round: int) -> bool:
        if channel not in self._rounds:
            return False
        return round < self._first.setdefault(channel, round) + self._rounds[channel]


def _cell(
    grid: Audit, blank: dict[str, Any], view: View, case: Case, experiment: Experiment, attack: Attack
) -> None:
    started, aim = time.perf_counter(), blank["settings"]["aim"]
    try:
        work = attack.run if aim == EACH else attack.residual
        guess = work(view, knowledge(attack, case))
    except Blind as reason:
        grid.cells.append({**blank, "outcome": "blind", "verdict": "blind", "reason": str(reason)})
        return
    seconds = time.perf_counter() - started
    judgement = JUDGES[guess.about](guess, case)
    score = judgement.score
    # an exact guess has nothing left to find, whatever ended its search
    short = _stopped(guess) if score.value < 1 else ""
    verdict = f"{score.verdict}; {short}" if short else score.verdict
    details = dict(score.details)
    if guess.stopped:
        details |= {"searches_stopped": len(guess.stopped), "stopped_after": max(guess.stopped.values())}
    grid.reconstructions.append(
        {
            "policy": experiment.policy,
            "seed": experiment.seed,
            "attack": attack.id,
            "adversary": blank["adversary"],
            "aim": aim,
            "variant": blank["settings"]["variant"],
            "kind": guess.about,
            "stopped": _stopped(guess),
            "targets": judgement.targets(),
        }
    )
    grid.cells.append(
        {
            **blank,
            "outcome": "score",
            "metric": score.metric,
            "score": score.value,
            "low": score.low,
            "high": score.high,
            "baseline": score.baseline,
            "baselines": dict(score.baselines),
            "leaks": score.leaks,
            "verdict": verdict if aim == EACH else f"{verdict}, about all owners together",
            "reason": f"{attack.id}: {short}" if short else "",
            "stops": attack.stops.get(blank["adversary"], "") if score.leaks else "",
            "details": details,
            "messages": guess.messages,
            "accuracy": case.result["accuracy"],
            "bytes": case.result["bytes"],
            "seconds": round(seconds, 3),
        }
    )


def _stopped(guess: Guess) -> str:
    """In words that a search was ended before it was through; empty where none was."""
    if not guess.stopped:
        return ""
    seconds = " or ".join(f"{limit:g}" for limit in sorted(set(guess.stopped.values())))
    some = len(guess.stopped) < len(guess.targets)
    what = f"{len(guess.stopped)} of {len(guess.targets)} searches" if some else "search"
    return f"{what} stopped after {seconds} s: a lower bound"


def _limits(grid: Audit, attack: type[Attack]) -> dict[str, Any]:
    """What bounded an attack, as far as it has controls and a search."""
    found: dict[str, Any] = {}
    if grid.controls is not None and attack.controls:
        found["controls"] = ", ".join(grid.controls)
    if grid.effort is not None and attack.searches:
        found["effort"] = int(grid.effort) if grid.effort == int(grid.effort) else grid.effort
    return found


def _blank(
    experiment: Experiment, attack: type[Attack], adversary: str, aim: str, variant: Variant
) -> dict[str, Any]:
    return {
        "algorithm": experiment.algorithm,
        "policy": experiment.policy,
        "attack": attack.id,
        "adversary": adversary,
        "behaviour": attack.behaviour,
        "channel": attack.channel,
        "outcome": "",
        "metric": None,
        "score": None,
        "low": None,
        "high": None,
        "baseline": None,
        "baselines": {},
        "ceiling": None,
        "leaks": False,
        "verdict": "",
        "reason": "",
        "stops": "",
        "seed": experiment.seed,
        "accuracy": None,
        "bytes": None,
        "seconds": None,
        "settings": {"aim": aim, "variant": variant.name, **variant.settings},
    }


def _at(config: Any, dotted: str) -> Any:
    """A setting of a resolved configuration; None where the algorithm has none of that name."""
    for key in dotted.split("."):
        config = config.get(key) if isinstance(config, Mapping) else None
    return config


def audit_folder(
    folder: Path,
    attacks: Iterable[type[Attack]],
    adversary: str | None = None,
    effort: float | None = None,
) -> tuple[Experiment, Audit]:
    """The cells of a finished run that kept its transcript.

    The truth is rebuilt from the run's own configuration: same data, same seeds.

    Raises:
        BadInput: where the folder holds no result or no transcript, or damaged ones.
    """
    attacks = list(attacks)
    result, experiment = _finished(folder / "result.json")
    transcript = _kept(folder / "transcript", attacks)
    if not any(sent.kept for sent in transcript.sent):
        raise BadInput(f"{folder} kept sizes only: run again with --set transcript=full")
    federation = make_federation(experiment)
    if federation.facts["digest"] != result["data"]["digest"]:
        raise BadInput(
            f"{experiment.data} has another content hash here than in {folder}: the truth cannot be rebuilt"
        )
    who = adversaries(attacks, adversary)
    case = Case(federation, experiment.make_algorithm(), transcript, experiment.seed, result)
    found = cells(case, experiment, attacks, who, effort=effort)
    found.runs.append({"variant": AS_CONFIGURED, "policy": experiment.policy, "result": result})
    return experiment, found


def _finished(path: Path) -> tuple[dict[str, Any], Experiment]:
    """A run's result and its configuration, with all that an audit reads of it."""
    result = read_json(path, "run")
    try:
        experiment = Experiment(**result["config"])
        experiment.make_algorithm()
        read = [result["data"]["digest"], result["accuracy"], result["bytes"], result["seed"]]
        read += [(row["name"], row["domain"]) for row in result["channels"]]
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, _first_line(error)) from None
    if None in read:
        raise _damaged(path, "a value is missing")
    return result, experiment


def _kept(folder: Path, attacks: Iterable[type[Attack]]) -> Transcript:
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
    channels = {channel for attack in attacks for channel in (attack.channel, *attack.also_reads)}
    for note in notes:
        if note.channel in channels:
            path = folder / f"{note.number:06d}.sfg"
            try:
                whole = digest(transcript.body(note.number)) == note.digest
            except OSError as error:
                raise _damaged(path, str(error.strerror)) from None
            if not whole:
                raise _damaged(path, "its content is not what was recorded")
    return transcript


def _damaged(path: Path, why: str) -> BadInput:
    return BadInput(f"{path} is damaged ({why}): put a copy back, or run again with --set transcript=full")


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
