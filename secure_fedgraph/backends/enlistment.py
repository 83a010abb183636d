"""What an operator sends a client's process before the run: names and settings, never objects."""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import nn

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.privacy.broadcasts import BroadcastLimits
from secure_fedgraph.privacy.dp_sgd import PrivateSteps
from secure_fedgraph.privacy.input_dp.registry import randomizer_of
from secure_fedgraph.privacy.policies import RECIPES
from secure_fedgraph.privacy.policy import BoundPolicy, PlaintextWarning, Policy
from secure_fedgraph.registry import import_from

ISOLATED = "isolated runs a client in a process of its own"


def algorithm_text(algorithm: Algorithm) -> str:
    """The text from which another process makes the same algorithm.

    Raises:
        BadInput: for one that has no importable name, or holds more than settings and named functions.
    """
    kind = type(algorithm)
    if not issubclass(_definer(kind, "made_with"), _definer(kind, "__init__")):
        raise BadInput(
            f"{ISOLATED} and makes {kind.__name__} again there: with an __init__ of its own it needs a "
            "made_with() that returns its arguments"
        )
    name = _name(kind, "algorithm")
    made_with = {k: _name(_unmade(k, v), k) for k, v in algorithm.made_with().items()}
    return json.dumps(
        {
            "class": name,
            "settings": algorithm.settings.model_dump(mode="json"),
            "device": algorithm.device.type,
            "made_with": made_with,
            "folders": {one: _folder(one) for one in (name, *made_with.values())},
        }
    )


def _unmade(key: str, value: Any) -> Any:
    if isinstance(value, nn.Module):
        raise BadInput(
            f"{ISOLATED} and takes no instance: {key} is of type {type(value).__name__}; give the class, "
            "or a factory at the top level of a module"
        )
    return value


def algorithm_of(text: str) -> Algorithm:
    """The inverse, in the process."""
    config = json.loads(text)
    folders = config["folders"]
    kind: Any = _named(config["class"], folders[config["class"]])
    with_ = {key: _named(name, folders[name]) for key, name in config["made_with"].items()}
    algorithm = kind(**with_, **config["settings"])
    if not isinstance(algorithm, Algorithm):
        raise BadInput(f"{config['class']} is no Algorithm")
    return algorithm.on(config["device"])


def policy_text(bound: BoundPolicy, clients: tuple[str, ...]) -> str:
    """The text from which another process makes the same policy.

    Raises:
        BadInput: for a policy that no recipe by name makes.
    """
    text = json.dumps(_policy(bound.policy))
    channels = [b.channel for b in bound.bounds.values()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlaintextWarning)
        remade = policy_of(text).bind(channels, clients)
    if _terms(remade) != _terms(bound):
        raise BadInput(f"{ISOLATED}: policy {bound.policy.name!r} was changed after its recipe made it")
    return text


def policy_of(text: str) -> Policy:
    """The inverse, in the process."""
    return _recipe(json.loads(text))


def _policy(policy: Policy) -> dict[str, Any]:
    arguments = policy.made_with
    if arguments is None or policy.exceptions or policy.name not in RECIPES:
        raise BadInput(
            f"{ISOLATED}, which makes its own policy by name: {policy.name!r} has "
            f"{'named exceptions' if policy.exceptions else 'a recipe of its own'}; use one of "
            f"{', '.join(RECIPES)}"
        )
    settings = {k: [_policy(p) for p in v] if k == "policies" else v for k, v in arguments.items()}
    steps = None if policy.steps is None else asdict(policy.steps)
    return {
        "name": policy.name,
        "settings": settings,
        "relation": policy.relation,
        "steps": steps,
        "broadcasts": None if policy.broadcasts is None else asdict(policy.broadcasts),
        "scores_noise": policy.scores_noise,
        "randomizers": [one.to_config() for one in policy.randomizers],
    }


def _recipe(config: Mapping[str, Any]) -> Policy:
    settings = dict(config["settings"])
    several = [_recipe(one) for one in settings.pop("policies", ())]
    policy = RECIPES[config["name"]](*several, **settings)
    steps = PrivateSteps(**config["steps"]) if config["steps"] else None
    randomizers = tuple(randomizer_of(one) for one in config["randomizers"])
    broadcasts = BroadcastLimits(**config["broadcasts"]) if config["broadcasts"] else None
    return replace(
        policy,
        relation=config["relation"],
        steps=steps,
        randomizers=randomizers,
        broadcasts=broadcasts,
        scores_noise=config["scores_noise"],
    )


def _terms(bound: BoundPolicy) -> Any:
    return bound.describe(), [(b.releases(), b.sensitivity) for b in bound.bounds.values()]


def _definer(kind: type, attribute: str) -> type:
    return next(base for base in kind.__mro__ if attribute in vars(base))


def _name(value: Any, what: str) -> str:
    module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    try:
        if module != "__main__" and _named(f"{module}:{name}") is value:
            return f"{module}:{name}"
    except (ImportError, AttributeError, ValueError):
        pass
    raise BadInput(
        f"{ISOLATED} and imports {what} {name or type(value).__name__!r} by name: put it at the top level of "
        "a module, so that module:name finds it"
    )


def _folder(name: str) -> str | None:
    """The folder that a named thing's module was imported from: another folder may have one of that name."""
    top = sys.modules[name.partition(":")[0].partition(".")[0]]
    file = getattr(top, "__file__", None)
    if file is None:
        return None
    return str(Path(file).absolute().parents[1 if hasattr(top, "__path__") else 0])


def _named(name: str, folder: str | None = None) -> Any:
    module, _, path = name.partition(":")
    target: Any = importlib.import_module(module) if folder is None else import_from(Path(folder), module)
    for part in path.split("."):
        target = getattr(target, part)
    return target
