"""Shared by the commands that make experiments: their flags, and the experiment that the flags describe."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from secure_fedgraph.cli.names import check_names
from secure_fedgraph.core.errors import BadInput

if TYPE_CHECKING:
    from secure_fedgraph.experiment.config import Experiment

Command = Callable[..., Any]
AUTO = "auto"
"""In place of an algorithm's name: what the planner chooses."""


def known(
    kind: str, also: tuple[str, ...] = ()
) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """For an option that takes names of a kind: refuses a misspelt one before torch is imported.

    Args:
        also: words that it takes besides.
    """

    def check(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
        if value is not None:
            check_names(kind, ",".join(one for one in value.split(",") if one.strip().lower() not in also))
        return value

    return check


def _named_files(
    context: click.Context, option: click.Parameter, given: tuple[str, ...]
) -> dict[str, str] | None:
    silos: dict[str, str] = {}
    for one in given:
        name, separator, place = one.partition("=")
        if not separator or not name or not place:
            raise BadInput(f"--silo {one}: write NAME=FILE, such as bank-a=bank.csv")
        if name in silos:
            raise BadInput(f"--silo {one}: {name} has {silos[name]!r} already; give each owner once")
        silos[name] = place
    return silos or None


silo_option = click.option(
    "--silo",
    "silos",
    multiple=True,
    metavar="NAME=FILE",
    callback=_named_files,
    help="An owner's own data: a folder, NODES.csv,EDGES.csv, a .pt file or module:function; once an owner.",
)


schema_option = click.option(
    "--schema",
    "tables",
    metavar="FILE",
    help="What the columns of your tables mean: a schema.toml, as 'silo describe' drafts it.",
)


def experiment_options(command: Command, epsilon: Any = float) -> Command:
    options = [
        click.option(
            "--algorithm",
            callback=known("algorithms", also=(AUTO,)),
            help="An algorithm's name; see 'list algorithms'. With a budget, auto: what 'plan' chooses.",
        ),
        click.option(
            "--data",
            callback=known("datasets"),
            help="A data set's name ('list datasets'), or your own: FILE.pt, FOLDER/, module:function.",
        ),
        silo_option,
        schema_option,
        click.option("--rows", help="For silos with columns of the same rows: the column of row names."),
        click.option("--clients", type=int, help="How many owners."),
        click.option("--partition", help="How nodes are handed out; the paper's by default."),
        click.option("--rounds", type=int, help="Training rounds; the algorithm's own number by default."),
        click.option("--norm", type=float, help="The clip: an L2 norm."),
        click.option("--multiplier", type=float, help="Noise standard deviation over sensitivity."),
        click.option("--epsilon", type=epsilon, help="A privacy budget; noise is planned from it."),
        click.option("--unit", help="Whose data: client, graph, node, edge, label or feature."),
        click.option("--against", help="Whom it holds against: server, peers or outsider."),
        click.option("--ledger", type=click.Path(path_type=Path), help="A ledger that several runs share."),
        click.option("--relation", help="Neighbouring relation: zero-out, add-remove or replace."),
        click.option("--delta", type=float, help="For every printed epsilon (1e-5)."),
        click.option("--seed", type=int, help="One run with this seed; the first, with --seeds."),
        click.option(
            "--seeds",
            type=click.IntRange(1),
            help="That many runs, --seed (0) and those after it; their mean.",
        ),
        click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Overrides any key."),
        click.option(
            "--allow-plaintext",
            is_flag=True,
            default=None,
            help="Run although strictest leaves a channel in plaintext.",
        ),
        click.option("--evaluate-every", type=int, help="Score every so many rounds, and the last."),
        click.option(
            "--evaluate-sample", type=int, help="Score so many test nodes, drawn once, with an interval."
        ),
        click.option(
            "--device", help="Where clients train and models are scored: cpu (the default) or cuda."
        ),
        click.option("--log", "logging", help="Also to mlflow:URI or tensorboard:FOLDER."),
        click.option("--out", type=click.Path(path_type=Path), help="Folder for results."),
        click.option("--overwrite", is_flag=True, help="Replace an earlier result in --out."),
        click.option("--quiet", is_flag=True, help="Print nothing but warnings and errors."),
        click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else."),
        click.option("--debug", is_flag=True, help="Show a traceback with an error."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def asked_for(path: Path | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """What a user named in a file, by flags and by ``--set``, by dotted key."""
    from secure_fedgraph.experiment.config import Experiment, read_values
    from secure_fedgraph.experiment.intent import given_keys

    named = {key: flags.get(key) for key in Experiment.model_fields}
    given = given_keys(read_values(path, named, flags["assignments"]))
    return given | protection_in(flags)


def protection_in(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a policy that were given by options of their own, by dotted key."""
    from secure_fedgraph.experiment.config import OPTIONS

    return {f"protection.{key}": flags[key] for key in OPTIONS if flags[key] is not None}


def read_experiment(
    path: Path | None, flags: dict[str, Any], made: bool = True
) -> tuple[Experiment, list[int]]:
    """The experiment that a file and flags describe, and its seeds."""
    from secure_fedgraph.experiment.config import Experiment, load
    from secure_fedgraph.graph.placing import check_device

    protection = protection_in(flags)
    keys = Experiment.model_fields.keys() & flags.keys()
    given = {key: flags[key] for key in keys if flags[key] is not None}
    given |= protection
    assigned = [f"{key}={value}" for key, value in protection.items()]
    experiment = load(path, {key: flags[key] for key in keys}, [*assigned, *flags["assignments"]])
    _no_contradiction(given, flags["assignments"])
    check_device(experiment.device)
    experiment.make_algorithm()
    if made:
        experiment.with_default_budget().make_policy()
    return experiment, list(range(experiment.seed, experiment.seed + (flags["seeds"] or 1)))


def _no_contradiction(given: Mapping[str, Any], assignments: Iterable[str]) -> None:
    """Refuses a setting that a flag and ``--set`` give differently: neither is silently the stronger."""
    for assignment in assignments:
        key, _, text = assignment.partition("=")
        if key in given and not _same(given[key], text):
            option = key.removeprefix("protection.")
            raise BadInput(
                f"--{option} {given[key]} and --set {assignment} contradict each other: give one of them"
            )


def _same(given: Any, text: str) -> bool:
    try:
        return float(given) == float(text)
    except (TypeError, ValueError):
        return str(given) == text.strip("\"'")


def names(option: str, given: str) -> list[str]:
    """The names between the commas, each once."""
    names = [name.strip() for name in given.split(",")]
    if not all(names):
        raise BadInput(f"--{option} {given!r} leaves a name empty: give names, separated by commas")
    return list(dict.fromkeys(names))


def listed(option: str, given: str) -> list[str]:
    """The same, of algorithms, data or policies, as ``list`` prints them."""
    from secure_fedgraph.experiment.config import as_listed

    return list(dict.fromkeys(as_listed(option, name) for name in names(option, given)))


def default_folder(experiment: Experiment, kind: str) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    data = "own" if experiment.own_data else experiment.data
    return Path("runs") / f"{kind}-{experiment.algorithm}-{data}-{stamp}"


def command_line() -> str:
    return shlex.join(["secure-fedgraph", *sys.argv[1:]])
