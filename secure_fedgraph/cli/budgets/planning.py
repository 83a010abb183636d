"""The work of ``plan``, and of ``--algorithm auto``: what the planner chooses, and why."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from secure_fedgraph.cli import screen
from secure_fedgraph.cli.options import AUTO, typed
from secure_fedgraph.cli.tables import table
from secure_fedgraph.core.guarantee import Reader
from secure_fedgraph.experiment.config import TRUSTED, Experiment, read_values
from secure_fedgraph.experiment.planner import Candidate, Choice, asked_experiment, choose
from secure_fedgraph.experiment.results import make_federation
from secure_fedgraph.experiment.schema.run import NO_LEARNING

AS_CONFIGURED = "as configured"


def plan(policy: str | None, assignments: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Prints every candidate with its noise, and what the planner takes."""
    values = read_values(None, given, assignments)
    if policy in TRUSTED:
        values.setdefault("against", Reader.PEERS)  # the server adds the noise, and sees what is under it
    with screen.plain_warnings():
        choice = _choice(values, policy)
    with screen.to_a_pipe():
        if as_json:
            click.echo(json.dumps(_described(choice)))
            return
        click.echo(screen.visible("\n".join(_recommended(choice, assignments))))
        asked = choice.experiment
        title = f"{asked.data}, {asked.clients} clients, epsilon {asked.epsilon:g} for one {asked.unit}"
        screen.PlainConsole().print(*table(title, _rows(choice)))
        click.echo(screen.visible("\n".join(_remarks(choice))))


def settled(path: Path | None, flags: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Flags in which ``auto`` is the algorithm that the planner chooses, and a note on it for the first line.

    Other flags come back as they are, with an empty note.

    Raises:
        BadInput: for ``auto`` without an epsilon, and where noise exceeds any signal.
    """
    values = read_values(*typed(path, flags))
    if str(values.get("algorithm", "")).lower() != AUTO:
        return dict(flags), ""
    with screen.said_later():
        choice = _choice(values, values.get("policy"))
    chosen, asked = choice.chosen, choice.experiment
    handed_out = {} if asked.silos else {"clients": asked.clients, "partition": asked.partition}
    left = [one for one in flags["assignments"] if not one.startswith("algorithm=")]
    changed = {"algorithm": chosen.algorithm, "policy": chosen.policy, **handed_out, "assignments": left}
    return {**flags, **changed}, f"; chosen by {AUTO}: {_taken(chosen)}"


def _choice(values: Mapping[str, Any], policy: str | None) -> Choice:
    asked = asked_experiment(values)
    return choose(asked, make_federation(asked), policy)


def _taken(chosen: Candidate) -> str:
    """What the planner takes, in a line."""
    return (
        f"{chosen.algorithm} under policy {chosen.policy}, {chosen.form or AS_CONFIGURED}, with a "
        f"noise-to-signal of {chosen.noise_to_signal:.4g}: {chosen.why}"
    )


def _rows(choice: Choice) -> Iterator[dict[str, Any]]:
    compared = [one for one in choice.candidates if one.noise_to_signal is not None]
    for one in sorted(compared, key=lambda one: (one is not choice.least, one.noise_to_signal)):
        taken = choice.learns and one is choice.least
        yield {
            "algorithm": one.algorithm,
            "form": one.form.replace("training.", "") or AS_CONFIGURED,
            "noise": one.noise_multiplier,
            "noise-to-signal": one.noise_to_signal,
            "chosen, or why not": "chosen" if taken else one.why,
        }


def _recommended(choice: Choice, assignments: Sequence[str]) -> list[str]:
    """What to run, and the whole command."""
    asked, least = choice.experiment, choice.least
    if not choice.learns:
        return [f"Recommended: every owner alone ({choice.alone}). Why: {choice.no_learning}."]
    against = "" if asked.against == Reader.SERVER else f" --against {asked.against}"
    if asked.silos:
        data = " ".join(shlex.quote(f"--silo={name}={place}") for name, place in asked.silos.items())
        data += f" --rows {shlex.quote(asked.rows)}" if asked.rows else ""
        data += f" --schema {shlex.quote(asked.tables)}" if asked.tables else ""
    else:
        data = f"--data {shlex.quote(asked.data)} --clients {asked.clients} --partition {asked.partition}"
    command = [
        f"secure-fedgraph run {data} --algorithm {least.algorithm} --policy {least.policy}",
        f"--epsilon {asked.epsilon:g} --unit {asked.unit}{against}",
        *([f"--seed {asked.seed}"] if asked.seed else []),
        *([f"--delta {asked.delta:g}"] if asked.delta != Experiment.model_fields["delta"].default else []),
        *(f"--set {shlex.quote(one)}" for one in assignments),
    ]
    return [f"Recommended: {_taken(least)}.", f"To run it: {' '.join(command)}"]


def _remarks(choice: Choice) -> list[str]:
    """What the columns mean, and why some algorithms have no row."""
    return [
        "Noise is in multiples of what one unit moves. Noise-to-signal is how long the noise on the opened "
        f"sums is over how long their signal can be at most; above {NO_LEARNING:g} nothing is recommended.",
        *(
            f"{one.algorithm} is not compared: {one.why}."
            for one in choice.candidates
            if one.noise_to_signal is None
        ),
    ]


def _described(choice: Choice) -> dict[str, Any]:
    """The choice as JSON."""
    asked = choice.experiment.model_dump(mode="json")
    rows = {
        one: {key: value for key, value in vars(one).items() if key != "runs_as"} for one in choice.candidates
    }
    return {
        **{
            key: asked[key] for key in ("data", "clients", "partition", "unit", "epsilon", "delta", "against")
        },
        "chosen": rows[choice.least] if choice.learns else None,
        "recommended": choice.least.algorithm if choice.learns else choice.alone,
        "why": choice.least.why if choice.learns else choice.no_learning,
        "no_learning_above": NO_LEARNING,
        "candidates": list(rows.values()),
    }
