"""Whatever was asked for is used: a key that an experiment would drop in silence is refused by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
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
UNDER_NOISY_STEPS = ("places", "crowd")
"""Settings of training that count only where clients take noisy steps of nodes with links."""
UNDER_EXACT_STEPS = ("batch", "epochs", "share", "largest_gradient")
"""Settings of training that count only where they take exact ones."""


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
        field, (name, _, inner) = Experiment.model_fields.get(key), key.partition(".")
        if (field is not None and value == field.default) or (key == "unit" and command == "compare"):
            continue  # a comparison prints what was spent of this unit
        uses, why = RULES.get(name, (lambda *_: True, ""))
        if key == "checkpoint_every" and command != "run":
            uses, why = (lambda *_: False), "only 'run' writes checkpoints as it is told"
        if not any(uses(one, inner) for one in resolved):
            option = f"--{inner} ({key})" if key in ("protection.norm", "protection.multiplier") else key
            option = f"--{key}" if key in ("unit", "against", "epsilon", "delta", "relation") else option
            written = f"{value:g}" if isinstance(value, float) else value
            raise BadInput(f"{option} {written} would be ignored under {resolved[0].policy}: {why}")


def _protects(experiment: Experiment, inner: str) -> bool:
    """Whether a recipe that the experiment's policy is made of has this setting."""
    used = [experiment.policy]
    if experiment.policy == "strictest":
        try:
            made = experiment.make_policy()
        except (BadInput, Refused):  # making the experiment reports what is wrong with it
            return True
        candidates = [one.name for one in getattr(made, "candidates", ())]
        used = candidates or [name for name in LADDER if not needs_multiplier(name)]
    return any(inner in inspect.signature(RECIPES[name]).parameters for name in used)


def _trains(experiment: Experiment, inner: str) -> bool:
    """Whether training reads this setting, where it has another value than by default."""
    kind = algorithm_named(experiment.algorithm)
    known, set_to = kind.Settings.model_fields.get(inner), experiment.training
    if known is None or not issubclass(kind.Settings, TrainingSettings):
        return True
    if set_to.get(inner, known.default) == known.default:  # asks for nothing
        return True
    if inner == "heaviest":
        return bool(set_to.get("weighted"))
    if inner in UNDER_NOISY_STEPS:
        fanout = set_to.get("fanout")
        alone = isinstance(fanout, list | tuple) and bool(fanout) and not any(fanout)
        return experiment.trains_under_noise and not alone
    exact = inner in UNDER_EXACT_STEPS and issubclass(kind, FedAvg)
    return not (exact and experiment.trains_under_noise)


Rule = tuple[Callable[[Experiment, str], bool], str]
_BUDGET = "there is no budget, so give --epsilon too"
_NOISE = "nothing adds noise, so no epsilon depends on it; give --epsilon or a policy of noise"
RULES: dict[str, Rule] = {
    "unit": (lambda e, _: e.epsilon is not None or bool(e.steps), _BUDGET),
    "against": (lambda e, _: e.epsilon is not None, _BUDGET),
    "budget": (lambda e, _: e.planned, "no budget plans the noise: give --epsilon, and no noise by hand"),
    "epsilon": (lambda e, _: e.epsilon is not None, "no noise could keep this budget for the unit"),
    "delta": (lambda e, _: e.adds_noise, _NOISE),
    "relation": (lambda e, _: e.adds_noise, _NOISE),
    "feature_range": (lambda e, _: "features" in e.randomised_kinds, "set features too"),
    "dropouts": (
        lambda e, _: e.policy in SURVIVE,
        "every client has to answer; drop-outs are for masked and distributed_dp",
    ),
    "protection": (
        _protects,
        "the policy has no such setting, or noises nothing unless --multiplier or --epsilon says how much; "
        "clients' noisy steps have steps.clip and steps.noise",
    ),
    "training": (
        _trains,
        "places and crowd are for noisy steps (--epsilon, --unit node) of nodes with links; heaviest is for "
        "training.weighted=true; noisy steps have steps.rate, steps.steps and steps.clip",
    ),
}
"""Key -> whether an experiment uses it, and why it may not. Every other key is always used."""
