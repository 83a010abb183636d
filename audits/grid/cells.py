"""The cells of one run: each attack by each adversary; refused, blind, or a score."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from secure_fedgraph.attacks import Attack, Blind, Guess
from secure_fedgraph.audits.dp_bounds import Claims
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.grid.choices import AS_CONFIGURED, Variant, at, unscored
from secure_fedgraph.audits.judgement import Judgement
from secure_fedgraph.audits.surfaces import rounds
from secure_fedgraph.audits.surfaces.registry import judge_of, knowledge
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.pool import in_words
from secure_fedgraph.experiment.schema import score_verdict
from secure_fedgraph.experiment.schema.audit import Cell
from secure_fedgraph.protocol import View

AIMS = (score_verdict.SINGLE_OWNERS, score_verdict.RESIDUAL)
UNJUDGED = (
    "clients on other machines do not show the updates that they made, so a guess cannot be scored: "
    "audit the same run in one process"
)


@dataclass(repr=False)
class Audit:
    """The cells of a grid, the runs behind them, and true against reconstructed values.

    Args:
        conformance: for each run what its own record shows, check by check.
        empirical: for each run tests of the noise that it was charged for, with worst-case neighbours.
        not_run: cells that were left out, each with a reason.
        estimate: of the time, made before the grid started.
        controls: the only control settings that were run; None: all that the attacks declare.
        effort: processor seconds that one search could take; None: the attacks' own limits.
    """

    cells: list[dict[str, Any]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    reconstructions: list[dict[str, Any]] = field(default_factory=list)
    conformance: list[dict[str, Any]] = field(default_factory=list)
    empirical: list[dict[str, Any]] = field(default_factory=list)
    not_run: list[dict[str, Any]] = field(default_factory=list)
    estimate: dict[str, Any] | None = None
    controls: tuple[str, ...] | None = None
    effort: float | None = None

    def __repr__(self) -> str:
        """How much there is of each; every value would be thousands of lines."""
        leaks = sum(bool(cell.get("leaks")) for cell in self.cells)
        return f"Audit({len(self.cells)} cells, {leaks} leak, {len(self.not_run)} not run)"


def cells(
    finished: FinishedRun,
    experiment: Experiment,
    attacks: Iterable[type[Attack]],
    who: Iterable[str],
    variant: Variant | None = None,
    effort: float | None = None,
    claims: Claims | None = None,
) -> Audit:
    """The cells of one finished run: each attack by each adversary, on single owners and on what is left;
    each lie.

    Args:
        claims: what the run claims at every delta; by default what its result says at its own.
    """
    claims = claims or Claims.from_result(finished.result)
    audit, who = Audit(effort=effort), tuple(who)
    variant = variant or Variant(AS_CONFIGURED, {}, ())
    for attack in attacks:
        for adversary in (a for a in attack.adversaries if a in who):
            view = finished.transcript.view(*finished.parties(adversary))
            for aim in (score_verdict.HARM,) if attack.harms else AIMS:
                blank = blank_cell(experiment, attack, adversary, aim, variant)
                decides = {key: at(finished.result["config"], key) for key in attack.depends_on}
                blank["settings"] |= decides
                blank["form"] = finished.result.get("form", {})
                _cell(audit, blank, view, finished, experiment, attack(effort), claims)
    return audit


def _cell(
    audit: Audit,
    blank: dict[str, Any],
    view: View,
    finished: FinishedRun,
    experiment: Experiment,
    attack: Attack,
    claims: Claims,
) -> None:
    aim = blank["settings"]["aim"]
    try:
        scored, reconstruction = _scored(blank, view, finished, experiment, attack, claims)
    except Blind as reason:
        audit.cells.append({**blank, "outcome": "blind", "verdict": "blind", "reason": str(reason)})
    except Exception as error:  # an attack and its judge are anybody's code, and cost their own cell alone
        audit.not_run.append(
            {
                **unscored(experiment, type(attack), blank["adversary"], blank["settings"]["variant"]),
                "reason": f"{attack.id}, {aim}: {in_words(error)}",
                "failed": True,
            }
        )
    else:
        audit.cells.append(scored)
        audit.reconstructions.append(reconstruction)


def _scored(
    blank: dict[str, Any],
    view: View,
    finished: FinishedRun,
    experiment: Experiment,
    attack: Attack,
    claims: Claims,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A cell with its score, and what the attack wrote down.

    Raises:
        Blind: as :func:`_judged`.
        Exception: whatever the attack or its judge raises, errors of this package among it.
    """
    started, aim = time.perf_counter(), blank["settings"]["aim"]
    guess, judgement, seconds = _judged(aim, view, finished, attack, started)
    score = judgement.score
    # an exact guess has nothing left to find, whatever ended its search
    short = stopped(guess) if score_verdict.is_lower_bound(score.value, len(guess.stopped)) else ""
    verdict = score_verdict.verdict_on(score.value, score.baseline, score.leaks, aim)
    about = describe_owners(guess, finished.federation.names) if aim == score_verdict.RESIDUAL else ""
    details = dict(score.details)
    if guess.stopped:
        details |= {"searches_stopped": len(guess.stopped), "stopped_after": max(guess.stopped.values())}
    reconstruction = {
        "algorithm": experiment.algorithm,
        "policy": experiment.policy,
        "seed": experiment.seed,
        "attack": attack.id,
        "subject": blank["subject"],
        "adversary": blank["adversary"],
        "aim": aim,
        "variant": blank["settings"]["variant"],
        "kind": guess.about,
        "stopped": stopped(guess),
        "targets": judgement.targets(),
    }
    cell = {
        **blank,
        "outcome": "score",
        "metric": score.metric,
        "score": score.value,
        "low": score.low,
        "high": score.high,
        "surely_at_least": score.surely_at_least,
        "baseline": score.baseline,
        "baselines": dict(score.baselines),
        **claims.over(guess, score, blank["adversary"], attack.behaviour).to_json(),
        "leaks": score.leaks,
        "verdict": score_verdict.with_notes(verdict, short, about),
        "owners": owners_of(guess),
        "reason": f"{attack.id}: {short}" if short else "",
        "stops": attack.stopped_by().get(blank["adversary"], "") if score.leaks else "",
        "details": details,
        "messages": guess.messages,
        "accuracy": finished.result["accuracy"],
        "bytes": finished.result["bytes"],
        "seconds": round(seconds, 3),
    }
    return cell, reconstruction


def _judged(
    aim: str, view: View, finished: FinishedRun, attack: Attack, started: float
) -> tuple[Guess, Judgement, float]:
    """A guess, what it is worth, and the seconds that it took.

    Raises:
        Blind: where there is nothing to read, nothing was guessed, or nobody can tell how near a guess is.
        TypeError: for an attack that gives no guess, or a judge that gives no judgement.
    """
    if not set(attack.reads()) & set(view.public.get("channels", {})):
        raise Blind(f"{attack.id}: {view.why_unreadable(attack.channel)}")  # nor are there facts to grant
    work = attack.residual if aim == score_verdict.RESIDUAL else attack.run
    guess: object = work(view, knowledge(attack, finished))
    if not isinstance(guess, Guess):
        raise TypeError(f"{work.__name__} gave {guess!r:.60}: return a Guess, or raise Blind")
    if not guess.values:  # judges average over what was said
        raise Blind(f"{attack.id}: the attack said nothing about anybody")
    if guess.about in rounds.JUDGES and not rounds.updates(finished):
        raise Blind(f"{attack.id}: {UNJUDGED}")
    seconds = time.perf_counter() - started
    judgement: object = judge_of(type(attack), guess)(guess, finished)
    if not isinstance(judgement, Judgement):
        raise TypeError(f"the judge gave {judgement!r:.60}: return a Judgement")
    return guess, judgement, seconds


def stopped(guess: Guess) -> str:
    """A sentence that says that a search was stopped early; empty where none was."""
    if not guess.stopped:
        return ""
    seconds = " or ".join(f"{limit:g}" for limit in sorted(set(guess.stopped.values())))
    some = len(guess.stopped) < len(guess.targets)
    what = f"{len(guess.stopped)} of {len(guess.targets)} searches" if some else "search"
    return f"{what} stopped after {seconds} s: a lower bound"


def owners_of(guess: Guess) -> int:
    """How many owners the widest of a guess's targets is about."""
    return max((len(set(of)) for of in guess.targets.values()), default=1)


def describe_owners(guess: Guess, names: Collection[str]) -> str:
    """Whom a guess at what a defence leaves is about, in words: it may still be about single owners."""
    owners = owners_of(guess)
    if owners == 1:
        return "about single owners"
    return "about all owners together" if owners == len(names) else "about several owners together"


def blank_cell(
    experiment: Experiment, attack: type[Attack], adversary: str, aim: str, variant: Variant
) -> dict[str, Any]:
    """A cell of an attack that was refused, read nothing, or has yet to be scored."""
    blank = Cell(
        algorithm=experiment.algorithm,
        policy=experiment.policy,
        attack=attack.id,
        adversary=adversary,
        behaviour=attack.behaviour,
        channel=attack.channel,
        outcome="blind",
        seed=experiment.seed,
    )
    settings = {"aim": aim, "variant": variant.name, **variant.settings}
    about = blank.model_dump(exclude={"title", "subject", "details", "messages", "settings"})
    return {**about, **attack.in_words(), "settings": settings}
