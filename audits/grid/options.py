"""What a caller asks of a grid, checked before any work starts: names, types and ranges of every option."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from secure_fedgraph.arguments import several, several_names, several_seeds
from secure_fedgraph.attacks import Attack
from secure_fedgraph.audits.grid.choices import adversaries
from secure_fedgraph.audits.grid.choices import controls as named_controls
from secure_fedgraph.core.errors import BadInput, check_number, check_whole, wrong_type
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.graph.placing import check_device
from secure_fedgraph.running.run import Run

Asked = tuple[list[Experiment], list[str], list[type[Attack]], list[int], Path | None, tuple[str, ...] | None]
"""Experiments, policies, attacks, seeds, the folder, and controls (None: all that the attacks declare)."""


def checked_options(
    experiment: object,
    policies: object,
    attacks: object,
    seeds: object,
    out: object = None,
    adversary: object = None,
    controls: object = None,
    effort: Any = None,
    workers: object = 1,
    budget: Any = None,
    probes: object = False,
) -> Asked:
    """Everything that a grid is asked for, each policy, attack and seed once.

    Args:
        experiment, policies, attacks, seeds, out, adversary, controls, effort, workers, budget,
            probes: as :func:`secure_fedgraph.audits.grid.grid.audit`'s, of whatever type a caller gave.

    Raises:
        BadInput: for what is unknown, of another type or out of range.
        Refused: for a policy that refuses the experiment's settings.
    """
    experiments = _experiments(experiment)
    names = several_names("policies", policies, "masked")
    chosen = checked_attacks(attacks, adversary, effort)
    numbers = several_seeds(seeds)
    wanted = None
    if controls is not None:
        wanted = tuple(several_names("controls", controls, "one full step", empty=True))
        named_controls(chosen, wanted)
    if not isinstance(out, str | Path | None):
        raise wrong_type("out", out, "give a folder")
    if workers is not None:
        check_whole("workers", workers, 1)
    if budget is not None:
        check_number("budget", budget)
        if not 0 < budget < math.inf:
            raise BadInput(f"budget = {budget}: give seconds above 0, or leave it out")
    if not isinstance(probes, bool):
        raise wrong_type("probes", probes, "give True or False")
    for one in experiments:
        check_device(one.device)
        one.make_algorithm()
        for name in names:
            one.with_policy(name).make_policy()
    folder = None if out is None else Path(out)
    if folder is not None and folder.exists() and not folder.is_dir():
        raise BadInput(f"out = {str(folder)!r} is a file: give a folder")
    return experiments, names, chosen, numbers, folder, wanted


def checked_attacks(attacks: object, adversary: object, effort: Any) -> list[type[Attack]]:
    """The attacks of a grid or of a finished run, each once.

    Raises:
        BadInput: for what is no attack, an adversary that none of them declares, or an effort that is no
            number of seconds.
    """
    mend = "give attacks as a list, such as [secure_fedgraph.attacks.ATTACKS['a4-label-counts']]"
    chosen = several("attacks", attacks, mend)
    for attack in chosen:
        if not (isinstance(attack, type) and issubclass(attack, Attack)):
            raise wrong_type("one of attacks", attack, mend)
    if not isinstance(adversary, str | None):
        raise wrong_type("adversary", adversary, "give a name, such as server, or several by commas")
    adversaries(chosen, adversary)
    for attack in chosen:
        attack(effort)
    return list(dict.fromkeys(chosen))


def _experiments(given: object) -> list[Experiment]:
    if isinstance(given, Experiment):
        return [given]
    mend = "give an Experiment, or several as a list: an audit makes its own runs"
    if isinstance(given, dict | Run):
        raise wrong_type("experiment", given, mend)
    experiments = several("experiment", given, mend)
    for one in experiments:
        if not isinstance(one, Experiment):
            raise wrong_type("one of experiment", one, mend)
    return experiments
