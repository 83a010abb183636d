"""Errors, one class for each thing that the user has to do.

Every message is one or two sentences that name the key or the channel, the value and the mend.
The command line turns the class into its exit status (``docs/cli.md``); libraries catch the class.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class SecureFedGraphError(Exception):
    """Anything this package raises on purpose."""

    exit_status = 1


class BadInput(SecureFedGraphError, ValueError):
    """An argument, a configuration key or a data set that cannot be used as given."""

    exit_status = 2


class WrongType(BadInput, TypeError):
    """What an algorithm of the user's own declares or returns is of another type than its method promises."""


class Refused(SecureFedGraphError):
    """Refused for privacy: nothing was sent beyond what the declaration allows."""

    exit_status = 3


class Incompatible(Refused):
    """A protection cannot give a channel what the channel declares."""


class Unbound(Refused):
    """A stage needs a bounded upload and nothing before it bounds one, or a channel has no protection."""


class LeftInPlaintext(Refused):
    """A policy would leave a channel in plaintext, which was not allowed."""


class HostileMessage(Refused):
    """Bytes from the network that no honest party sends: wrong shape, type, size, number or signature."""


class BudgetExhausted(Refused):
    """The next message would spend more than the budget."""


class Terminated(KeyboardInterrupt):
    """SIGTERM reached a run; like Ctrl-C it is no error of the run, which can be resumed."""

    exit_status = 143


class BrokenClaim(SecureFedGraphError):
    """An audit measured more than the claim allows."""

    exit_status = 4


IN_ANOTHER_FOLDER = (
    "run in another folder and name the run's ledger by --ledger, so that what was spent counts"
)
"""The way to begin a run again that drops no charge."""


def damaged(path: object, why: str) -> BadInput:
    """The error for a file of a run's record or checkpoint that cannot be used.

    >>> print(damaged("run/notes.jsonl", "it is cut off"))  # doctest: +ELLIPSIS
    run/notes.jsonl is damaged (it is cut off): put a copy back, or run in another folder ...
    """
    return BadInput(f"{path} is damaged ({why}): put a copy back, or {IN_ANOTHER_FOLDER}")


def wrong_type(argument: str, value: object, mend: str) -> BadInput:
    """The error for an argument of a type that it cannot have.

    Args:
        argument: its name.
        value: what was given.
        mend: what to give instead.

    >>> print(wrong_type("rounds", "5", "give a whole number from 1"))
    rounds is a str ('5'): give a whole number from 1
    >>> print(wrong_type("algorithm", int, "give an instance"))
    algorithm is the class int: give an instance
    """
    if isinstance(value, type):
        what = f"the class {value.__name__}"
    else:
        name = type(value).__name__
        what = f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
        if isinstance(value, str | int | float):
            what += f" ({str(value)[:40]!r})" if isinstance(value, str) else f" ({value})"
    return BadInput(f"{argument} is {what}: {mend}")


def check_whole(argument: str, value: object, least: int) -> None:
    """Checks that an argument is a whole number, ``least`` or more.

    Raises:
        BadInput: where it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(argument, value, f"give a whole number from {least}")
    if value < least:
        raise BadInput(f"{argument} = {value}: give a whole number from {least}")


def check_number(argument: str, value: object) -> None:
    """Checks that an argument is a number; the caller checks the range.

    Raises:
        BadInput: where it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(argument, value, "give a number")


def several(argument: str, value: object, mend: str, empty: bool = False) -> list[Any]:
    """What an argument holds that takes several things; what they are is the caller's to check.

    A word is refused: letter by letter it would be several, too.

    Args:
        argument: its name.
        value: what was given.
        mend: what to give instead.
        empty: whether there may be none.

    Raises:
        BadInput: for one thing in the place of several, and for none.

    >>> several("policies", ("masked", "plaintext"), "give names")
    ['masked', 'plaintext']
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise wrong_type(argument, value, mend)
    things = list(value)
    if not things and not empty:
        raise BadInput(f"{argument} is empty: {mend}")
    return things


def several_names(argument: str, value: object, example: str, empty: bool = False) -> list[str]:
    """The names that an argument holds, each once.

    Raises:
        BadInput: as :func:`several`, and for what is no name.
    """
    mend = f"give names as a list, such as [{example!r}]"
    names = several(argument, value, mend, empty)
    for name in names:
        if not isinstance(name, str):
            raise wrong_type(f"one of {argument}", name, mend)
    return list(dict.fromkeys(names))


def several_seeds(value: object) -> list[int]:
    """The seeds that an argument of that name holds, each once.

    Raises:
        BadInput: as :func:`several`, and for what is no whole number from 0.
    """
    seeds = several("seeds", value, "give whole numbers as a list, such as [0, 1, 2]")
    for seed in seeds:
        check_whole("one of seeds", seed, 0)
    return list(dict.fromkeys(seeds))


def unknown_name(kind: str, given: str, known: Iterable[str]) -> BadInput:
    """The error for an unknown name, with the nearest known one.

    >>> print(unknown_name("policy", "maskd", ["masked", "plaintext"]))
    unknown policy 'maskd': did you mean 'masked'? Known: masked, plaintext.
    >>> print(unknown_name("setting", "lr", ["learning_rate", "clip"]))
    unknown setting 'lr': did you mean 'learning_rate'? Known: clip, learning_rate.
    """
    names = sorted(known)
    near = nearest(given, names)
    hint = f" did you mean {near!r}?" if near else ""
    return BadInput(f"unknown {kind} {given!r}:{hint} Known: {', '.join(names)}.")


SYNONYMS = {
    "learning_rate": ("lr", "eta", "step_size", "stepsize"),
    "weight_decay": ("wd", "l2", "decay"),
    "batch": ("batch_size", "bs", "minibatch"),
    "hidden": ("hidden_dim", "hidden_size", "width", "layers", "hidden_channels"),
    "epochs": ("local_epochs", "n_epochs", "num_epochs"),
    "federated_epochs": ("epochs",),
    "rounds": ("n_rounds", "num_rounds", "iterations", "global_rounds", "communication_rounds", "epochs"),
    "clients": ("n_clients", "num_clients", "owners", "parties", "silos_count", "workers"),
    "epsilon": ("eps", "privacy_budget", "target_epsilon"),
    "multiplier": ("noise_multiplier", "sigma", "noise", "noise_scale"),
    "norm": ("clip", "clip_norm", "max_norm", "max_grad_norm", "l2_norm", "sensitivity", "clipping"),
    "data": ("dataset", "graph", "dataset_name"),
    "algorithm": ("algo", "model", "method", "strategy", "alg"),
    "policy": ("protection", "privacy", "defence", "defense"),
    "partition": ("split", "partitioner", "split_by"),
    "seed": ("random_state", "random_seed", "rng"),
    "seeds": ("n_seeds", "repeats", "runs", "trials"),
    "out": ("output", "output_dir", "outdir", "dir", "save", "folder", "o"),
    "set": ("option", "config_override", "override"),
    "log": ("logger", "mlflow", "tensorboard", "track"),
    "attack": ("attacks",),
    "adversary": ("attacker", "threat"),
    "quiet": ("silent", "q"),
    "json": ("as_json", "format"),
    "overwrite": ("force", "f"),
    "silo": ("file", "files", "owner", "data_file"),
    "unit": ("level", "granularity", "privacy_unit"),
}
"""Words of this package -> what other tools call the same."""
TRAINING = ("learning_rate", "weight_decay", "batch", "hidden")
"""Settings of nearly every algorithm's training."""


def nearest(given: str, names: Iterable[str]) -> str | None:
    """The name that was meant: by what other tools call it, by its initials, else by its letters.

    >>> nearest("training.lr", ["training.clip", "training.learning_rate"])
    'training.learning_rate'
    >>> nearest("eps", ["steps", "epsilon"]), nearest("--n-clients", ["--clients"])
    ('epsilon', '--clients')
    """
    known = sorted(names)
    word = _word(given)
    by_meaning = [name for name in known if word in SYNONYMS.get(_word(name), ())]
    by_initials = [name for name in known if len(word) > 1 and _initials(name) == word]
    near = by_meaning or by_initials or difflib.get_close_matches(given, known, n=1, cutoff=0.5)
    return near[0] if near else None


def training_setting(given: str) -> str | None:
    """The setting of training that another tool calls so, as ``--set`` takes it.

    >>> training_setting("--lr"), training_setting("policy")
    ('training.learning_rate', None)
    """
    word = _word(given)
    found = [name for name in TRAINING if word == name or word in SYNONYMS[name]]
    return f"training.{found[0]}" if found else None


def _word(name: str) -> str:
    """A name without its table, its dashes and its case."""
    return name.rpartition(".")[2].lower().lstrip("-").replace("-", "_")


def _initials(name: str) -> str:
    return "".join(word[:1] for word in _word(name).split("_"))
