"""Finished runs to try attacks on, what an attack guesses from one, and the score of its judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secure_fedgraph.attacks import Attack, Guess
from secure_fedgraph.attacks.attack import Control
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.scoring import Score
from secure_fedgraph.audits.surfaces.registry import JUDGES, knowledge
from secure_fedgraph.experiment.config import load
from secure_fedgraph.experiment.results import execute, run_result
from secure_fedgraph.protocol.transcript import everything


def settings_of(control: Control) -> list[str]:
    """A control's settings as ``KEY=VALUE``."""
    return [f"{key}={value}" for key, value in control.settings.items()]


def made(base: Mapping[str, Any], policy: str, *changes: str, **how: Any) -> FinishedRun:
    """A run of these settings under this policy; it keeps every message, unless ``how`` says otherwise."""
    chosen = load(None, {**base, "policy": policy}, changes)
    run = execute(chosen, None, **{"keep": everything, **how})
    return FinishedRun.of(run, chosen.seed, run_result(run, chosen))


def guessed(case: FinishedRun, attack: Attack, who: str | tuple[str, ...] = "", aim: str = "run") -> Guess:
    """By an adversary of this name, or whoever reads these parties' messages; else the attack's first one."""
    who = who or attack.adversaries[0]
    parties = case.parties(who) if isinstance(who, str) else who
    guess: Guess = getattr(attack, aim)(case.transcript.view(*parties), knowledge(attack, case))
    return guess


def score_of(guess: Guess, case: FinishedRun) -> Score:
    return JUDGES[guess.about](guess, case).score


def judged(case: FinishedRun, attack: Attack, who: str | tuple[str, ...] = "", aim: str = "run") -> Score:
    return score_of(guessed(case, attack, who, aim), case)
