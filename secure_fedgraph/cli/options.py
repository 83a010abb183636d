"""Shared by the commands that make experiments: their flags, and the experiment that the flags describe."""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from secure_fedgraph.cli.screen import loading
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.schema.settings import Keys

if TYPE_CHECKING:
    from secure_fedgraph.experiment.config import Experiment

Command = Callable[..., Any]
AUTO = "auto"
"""In place of an algorithm's name: what the planner chooses."""
ENGINE = re.compile(r"local|ray(://(\[[\da-fA-F:.]+\]|[^\s/:@\[\]]+):\d{1,5})?")
"""Where runs are made."""


def _named_files(
    context: click.Context, option: click.Parameter, given: tuple[str, ...]
) -> dict[str, str] | None:
    silos: dict[str, str] = {}
    for one in given:
        name, separator, place = one.partition("=")
        if not separator or not name or not place or name in silos:
            raise BadInput(f"--silo {one}: write NAME=FILE, such as bank-a=bank.csv, once for each owner")
        silos[name] = place
    return silos or None


def _known_engine(context: click.Context, option: click.Parameter, given: str | None) -> str | None:
    if given is not None and not ENGINE.fullmatch(given):
        raise BadInput(f"--engine {given}: give local, ray (this machine) or ray://HOST:PORT (a cluster)")
    if given not in (None, "local") and find_spec("ray") is None:
        raise BadInput(f"--engine {given} needs Ray: run: pip install 'secure-fedgraph[ray]'")
    return given


class Flags(Keys):
    """What commands take: an experiment's keys, and these. ``--help`` has the first line of each."""

    norm: float | None = None
    """The clip: an L2 norm."""
    multiplier: float | None = None
    """Noise standard deviation over sensitivity."""
    seeds: int | None = None
    """That many runs, --seed (0) and those after it; their mean."""
    assignments: tuple[str, ...] = ()
    """Overrides any key."""
    out: Path | None = None
    """Folder for results."""
    overwrite: bool = False
    """Replace an earlier result in --out."""
    quiet: bool = False
    """Print nothing but warnings and errors."""
    as_json: bool = False
    """One JSON object on stdout, nothing else."""
    debug: bool = False
    """Show a traceback with an error."""
    verbose: bool = False
    """All tables: metrics, privacy, noise, channels."""
    workers: int | None = None
    """Processes; one a core by default."""
    engine: str | None = None
    """Where runs are made: local, ray, or ray://HOST:PORT."""


SPELT: dict[str, tuple[str, ...]] = {
    "silos": ("--silo",),
    "tables": ("--schema",),
    "assignments": ("--set",),
    "as_json": ("--json",),
    "verbose": ("--verbose", "-v"),
}
"""Those whose option has another name."""
TYPES = {int: int, float: float, Path: click.Path(path_type=Path)}
TAKES: dict[str, dict[str, Any]] = {
    "silos": {"multiple": True, "metavar": "NAME=FILE", "callback": _named_files},
    "tables": {"metavar": "FILE"},
    "allow_plaintext": {"default": None},  # else it would be named by nobody
    "assignments": {"multiple": True, "metavar": "KEY=VALUE"},
    "seeds": {"type": click.IntRange(1)},
    "workers": {"type": click.IntRange(1)},
    "engine": {"callback": _known_engine, "metavar": "local|ray|ray://HOST:PORT"},
    "debug": {"expose_value": False},  # `main` looks for it among all words
}
"""What an option takes, where its type does not say it all."""
OF_RUNS = (
    *("algorithm", "data", "silos", "tables", "rows", "clients", "partition", "rounds", "norm", "multiplier"),
    *("epsilon", "unit", "against", "ledger", "relation", "delta", "seed", "seeds", "assignments"),
    *("allow_plaintext", "evaluate_every", "evaluate_sample", "device", "engine", "out", "overwrite"),
    *("quiet", "as_json", "debug"),
)
"""The options of every command that makes runs."""


def option(name: str, **changes: Any) -> Callable[[Command], Command]:
    """One of :class:`Flags` as an option of a command.

    Args:
        changes: what is another for one command, as click takes it.
    """
    field = Flags.model_fields[name]
    kinds = [*get_args(field.annotation), field.annotation]
    kind: dict[str, Any] = {"is_flag": True} if bool in kinds else {
        "type": next((made for one, made in TYPES.items() if one in kinds), None)
    }  # fmt: skip
    told = (field.description or "").partition("\n")[0]
    spelt = SPELT.get(name, (f"--{name.replace('_', '-')}",))
    return click.option(*spelt, name, **{**kind, "help": told, **TAKES.get(name, {}), **changes})


def options(*names: str, **changes: dict[str, Any]) -> Callable[[Command], Command]:
    """Several of them, in this order.

    Args:
        changes: by name, as :func:`option` takes them.
    """

    def add(command: Command) -> Command:
        for name in reversed(names):
            command = option(name, **changes.get(name, {}))(command)
        return command

    return add


def work(place: str, quietly: bool = False) -> Callable[[Command], Command]:
    """A command whose work is a function of another module, which is imported when it is called.

    Args:
        place: the module below ``secure_fedgraph.cli``, and after a colon the function where it has another
            name than the command.
        quietly: whether nothing is said while it is imported.
    """

    def described(command: Command) -> Command:
        module, _, name = place.partition(":")

        @wraps(command)
        def call(**given: Any) -> None:
            if not quietly:
                loading(given)
            found = import_module(f"secure_fedgraph.cli.{module}")
            getattr(found, name or command.__name__)(**given)

        return call

    return described


def typed(path: Path | None, flags: Mapping[str, Any]) -> tuple[Path | None, dict[str, Any], list[str]]:
    """What a user wrote, as ``load`` and ``read_values`` take it: a file, flags and assignments.

    The settings of a policy that have options of their own are assignments too.
    """
    from secure_fedgraph.experiment.config import OPTIONS, Experiment

    named = {key: flags.get(key) for key in Experiment.model_fields}
    protection = [f"protection.{key}={flags[key]}" for key in OPTIONS if flags[key] is not None]
    return path, named, [*protection, *flags["assignments"]]


def asked_for(path: Path | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """What a user named in a file, by flags and by ``--set``, by dotted key."""
    from secure_fedgraph.experiment.config import read_values
    from secure_fedgraph.experiment.intent import given_keys

    return given_keys(read_values(*typed(path, flags)))


def read_experiment(
    path: Path | None, flags: dict[str, Any], made: bool = True
) -> tuple[Experiment, list[int]]:
    """The experiment that a file and flags describe, and its seeds."""
    from secure_fedgraph.experiment.config import load
    from secure_fedgraph.graph.placing import check_device

    experiment = load(*typed(path, flags))
    check_device(experiment.device)
    experiment.make_algorithm()
    if made:
        experiment.with_default_budget().make_policy()
    return experiment, list(range(experiment.seed, experiment.seed + (flags["seeds"] or 1)))


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
