"""What a caller meant: lists of names and seeds, and the nearest known name to an unknown one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from secure_fedgraph.core.errors import BadInput, check_whole, wrong_type


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


def unknown_name(kind: str, given: str, known: Iterable[str], others: Sequence[str] = ()) -> BadInput:
    """The error for an unknown name, with the nearest known one.

    Args:
        others: who knows the name, where somebody else does.

    >>> print(unknown_name("policy", "maskd", ["masked", "plaintext"]))
    unknown policy 'maskd': did you mean 'masked'? Known: masked, plaintext.
    >>> print(unknown_name("setting", "lr", ["learning_rate", "clip"]))
    unknown setting 'lr': did you mean 'learning_rate'? Known: clip, learning_rate.
    """
    names = sorted(known)
    near = nearest(given, names)
    hint = f" did you mean {near!r}?" if near else ""
    hint = f" it is one of {', '.join(others)}." if others else hint
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
