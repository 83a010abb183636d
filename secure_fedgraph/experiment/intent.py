"""Whatever was asked for is used: a key that an experiment would drop in silence is refused by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from secure_fedgraph.algorithms.fedavg import FedAvg
from secure_fedgraph.algorithms.plugins import algorithm_named
from secure_fedgraph.algorithms.training.settings import TrainingSettings
from secure_fedgraph.core.errors import BadInput, Refused
from secure_fedgraph.experiment.config import SURVIVE, Experiment
from secure_fedgraph.privacy.policies import RECIPES, needs_multiplier
from secure_fedgraph.privacy.policies.strictest import LADDER

TABLES = ("protection", "steps", "broadcast", "budget", "training")
"""Tables of the configuration whose keys are looked at one by one."""
RUN_ONLY = {
    "audit": {"checkpoint_every": "an audit keeps no checkpoints"},
    "compare": {"checkpoint_every": "a comparison sets it itself"},
}
"""Command -> keys that it has no use for, and why."""


def given_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """What a user named, by dotted key."""
    named: dict[str, Any] = {}
    for key, value in values.items():
        if key in TABLES and isinstance(value, Mapping):
            named |= {f"{key}.{inner}": one for inner, one in value.items()}
        else:
            named[key] = value
    return named


def check_intent(given: Mapping[str, Any], experiments: Iterable[Experiment], command: str = "run") -> None:
    """Refuses what none of the experiments uses.

    A key with its default value asks for nothing. Of several experiments, as in a comparison, it is enough
    that one uses a key: one set of flags serves a list of policies.

    Args:
        given: dotted key -> value, as the user wrote them.
        experiments: what they made.
        command: the one that asks.

    Raises:
        BadInput: naming the key, the value and the mend.
    """
    resolved = [one.with_default_budget() for one in experiments]
    for key, value in given.items():
        field = Experiment.model_fields.get(key)
        if field is not None and value == field.default:
            continue
        reason = RUN_ONLY.get(command, {}).get(key) or _unused(key, resolved, command)
        if reason:
            raise BadInput(f"{_flag(key)} {_written(value)} would be ignored: {reason}")


def _unused(key: str, experiments: Sequence[Experiment], command: str) -> str:
    """Why no experiment uses a key; empty where one does."""
    if key == "unit" and command == "compare":  # the table prints what was spent of this unit
        return ""
    name, _, inner = key.partition(".")
    rule = RULES.get(name)
    reasons = [rule(one, inner) for one in experiments] if rule is not None else [""]
    return "" if "" in reasons else reasons[0]


def _no_budget(experiment: Experiment, inner: str) -> str:
    return "" if experiment.epsilon is not None else "there is no budget, so give --epsilon too"


def _unit(experiment: Experiment, inner: str) -> str:
    return "" if experiment.steps else _no_budget(experiment, inner)


def _weights(experiment: Experiment, inner: str) -> str:
    if experiment.epsilon is not None and not experiment.planned:
        return "the noise was set by hand, so a budget plans none"
    return _no_budget(experiment, inner)


def _epsilon(experiment: Experiment, inner: str) -> str:
    if experiment.epsilon is not None:
        return ""
    return f"{experiment.policy} adds no noise that could keep this budget for a {experiment.unit}"


def _noised(experiment: Experiment, inner: str) -> str:
    return "" if experiment.adds_noise else (
        f"{experiment.policy} adds no noise, so no epsilon depends on it; give --epsilon or a policy of noise"
    )  # fmt: skip


def _range(experiment: Experiment, inner: str) -> str:
    return (
        "" if "features" in experiment.randomised_kinds else "no features are randomised, so set features too"
    )


def _patience(experiment: Experiment, inner: str) -> str:
    return "" if experiment.isolated else "it is for clients in processes of their own, so set isolated=true"


def _dropouts(experiment: Experiment, inner: str) -> str:
    return "" if experiment.policy in SURVIVE else (
        f"{experiment.policy} needs an answer of every client; drop-outs are for masked and distributed_dp"
    )  # fmt: skip


def _protection(experiment: Experiment, inner: str) -> str:
    used = _recipes(experiment)
    if any(inner in inspect.signature(RECIPES[name]).parameters for name in used):
        return ""
    having_it = [n for n, recipe in RECIPES.items() if inner in inspect.signature(recipe).parameters]
    if experiment.policy == "strictest":
        if "multiplier" not in experiment.protection and inner in ("norm", "multiplier", "rows"):
            return "strictest clips and noises nothing unless --multiplier or --epsilon says how much"
        if "norm" not in experiment.protection and inner == "multiplier":
            return "strictest adds noise only where --norm says what is clipped"
    if experiment.trains_under_noise and inner in ("norm", "multiplier"):
        key = {"norm": "clip", "multiplier": "noise"}[inner]
        return f"clients' steps are clipped and noised, and {experiment.policy} is not; set steps.{key}"
    return f"{experiment.policy} has no such setting; {', '.join(having_it)} have"


UNDER_NOISY_STEPS = ("places", "crowd")
"""Settings of training that count only where clients take noisy steps."""
UNDER_EXACT_STEPS = {
    "batch": "each record is drawn by a coin; set steps.rate",
    "epochs": "a round has its own number of them; set steps.steps",
    "share": "each record is drawn by a coin; set steps.rate",
    "largest_gradient": "each record's gradient is clipped; set steps.clip",
}
"""Settings of training that count only where they do not, and what does instead."""


def _training(experiment: Experiment, inner: str) -> str:
    kind = algorithm_named(experiment.algorithm)
    known = kind.Settings.model_fields.get(inner)
    if known is None or not issubclass(kind.Settings, TrainingSettings):
        return ""
    if experiment.training.get(inner, known.default) == known.default:  # asks for nothing
        return ""
    if inner == "heaviest" and not experiment.training.get("weighted"):
        return "it bounds the weights of a weighted mean, so set training.weighted=true"
    if inner in UNDER_NOISY_STEPS and not experiment.trains_under_noise:
        return "it limits noisy training steps, and this policy has none; give --epsilon and --unit node"
    fanout = experiment.training.get("fanout")
    if inner in UNDER_NOISY_STEPS and isinstance(fanout, list | tuple) and fanout and not any(fanout):
        return "with training.fanout=0 one node is one record; leave it out"
    if inner in UNDER_EXACT_STEPS and experiment.trains_under_noise and issubclass(kind, FedAvg):
        return f"under noisy steps {UNDER_EXACT_STEPS[inner]}"
    return ""


def _recipes(experiment: Experiment) -> list[str]:
    """The recipes that an experiment's policy is made of."""
    if experiment.policy != "strictest":
        return [experiment.policy]
    try:
        made = experiment.make_policy()
    except (BadInput, Refused):  # making the experiment reports what is wrong with it
        return list(LADDER)
    candidates = [one.name for one in getattr(made, "candidates", ())]
    return candidates or [name for name in LADDER if not needs_multiplier(name)]


Rule = Callable[[Experiment, str], str]
RULES: dict[str, Rule] = {
    "unit": _unit,
    "against": _no_budget,
    "budget": _weights,
    "epsilon": _epsilon,
    "delta": _noised,
    "relation": _noised,
    "feature_range": _range,
    "answer_within": _patience,
    "dropouts": _dropouts,
    "protection": _protection,
    "training": _training,
}
"""Key -> why an experiment would not use it; empty where it does. Every other key is always used."""


def _flag(key: str) -> str:
    if key in ("protection.norm", "protection.multiplier"):
        return f"--{key.removeprefix('protection.')} ({key})"
    return f"--{key}" if key in ("unit", "against", "epsilon", "delta", "relation") else key


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
