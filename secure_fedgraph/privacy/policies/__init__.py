"""The recipes: each with ``@recipe`` in a module here, which registers it."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, SecureFedGraphError
from secure_fedgraph.core.protection.contracts import Stage
from secure_fedgraph.privacy.policies.recipe import Amount, is_recipe, recipe
from secure_fedgraph.privacy.policy import PlaintextWarning, Policy
from secure_fedgraph.registry import Registry, modules_below, named_if_it_fails, named_settings


def _own() -> dict[str, Callable[..., Policy]]:
    modules = modules_below(sys.modules[__name__])
    recipes = [one for module in modules for one in vars(module).values() if is_recipe(one, module.__name__)]
    return {one.__name__: one for one in sorted(recipes, key=lambda one: one.__name__)}


def _checked(name: str, candidate: object) -> Callable[..., Policy]:
    """Another package's recipe: as one of this folder, its arguments are checked, and kept for processes."""
    if not inspect.isfunction(candidate):
        raise BadInput(f"give a function that returns a Policy, not {candidate!r}")
    spelled = [
        one.replace(annotation=_spelled(one.annotation))
        for one in inspect.signature(candidate).parameters.values()
    ]

    @functools.wraps(candidate)
    def make(*args: Any, **kwargs: Any) -> Policy:
        with named_if_it_fails(f"policy {name!r}", candidate):
            policy = candidate(*args, **kwargs)
        if not isinstance(policy, Policy) or policy.name != name:
            what = repr(policy.name) if isinstance(policy, Policy) else f"a {type(policy).__name__}"
            raise BadInput(
                f"policy {name!r}: {candidate.__module__}.{candidate.__name__} gave {what}; give a Policy "
                f"of that name"
            )
        return policy

    make.__signature__ = inspect.Signature(spelled)  # type: ignore[attr-defined]
    return recipe(make)


def _spelled(annotation: object) -> object:
    """An annotation as this folder's recipes have it: ``float`` and ``Amount`` as words, however imported."""
    if annotation == Amount:
        return "Amount"
    name = getattr(annotation, "__name__", annotation)
    return "Amount" if isinstance(name, str) and name.endswith(".Amount") else name


RECIPES: Registry[Callable[..., Policy]] = Registry("policy", "secure_fedgraph.policies", _own, _checked)
"""The recipes by the names that the command line uses: those of this folder, and of other packages."""


def policy_named(name: str) -> Policy:
    """The recipe of that name with its defaults, as the command line makes it.

    Raises:
        BadInput: for an unknown name, or a recipe that needs a norm and noise.

    >>> policy_named("masked").name
    'masked'
    """
    if name not in RECIPES:
        raise unknown_name("policy", name, RECIPES)
    missing = [key for key, one in named_settings(RECIPES[name]).items() if one.default is one.empty]
    if missing:
        how_much = (
            "; `secure-fedgraph budget --epsilon E --sampling-rate 1 --steps ROUNDS` says which multiplier "
            "keeps a budget, and train(..., budget=...) plans it by itself"
        )
        raise BadInput(
            f"policy {name!r} needs {' and '.join(missing)}: give "
            f"policies.{name}({', '.join(f'{key}=1.0' for key in missing)})"
            + (how_much if "multiplier" in missing else "")
        )
    return RECIPES[name]()


def takes_multiplier(name: str) -> bool:
    """Whether how much noise a recipe adds is its argument ``multiplier``, so that a budget can plan it.

    >>> takes_multiplier("local_dp"), takes_multiplier("masked")
    (True, False)
    """
    return name in RECIPES and "multiplier" in named_settings(RECIPES[name])


def needs_multiplier(name: str) -> bool:
    """Whether a recipe cannot be made before somebody says how much noise it adds."""
    return takes_multiplier(name) and _multiplier(name).default is inspect.Parameter.empty


def takes_by_channel(name: str) -> bool:
    """Whether a recipe's ``multiplier`` may be one number by channel: where it is annotated as ``Amount``."""
    return takes_multiplier(name) and _multiplier(name).annotation == "Amount"


def planned_amount(name: str, multipliers: Mapping[str, float]) -> Amount:
    """The noise of a plan as a recipe takes it: by channel, or the most of all where it takes one number."""
    if name == "strictest" or takes_by_channel(name):  # whose candidates take it
        return multipliers or 1.0
    return max(multipliers.values(), default=1.0)


def policy_with_noise(name: str, norm: float, multipliers: Mapping[str, float]) -> Policy:
    """The named recipe with that clip, and that much noise by channel."""
    recipe = RECIPES[name]
    settings = {"norm": norm, "multiplier": planned_amount(name, multipliers)}
    return recipe(**{key: value for key, value in settings.items() if key in named_settings(recipe)})


def _multiplier(name: str) -> inspect.Parameter:
    return named_settings(RECIPES[name])["multiplier"]


def is_noised(name: str) -> bool:
    """Whether a recipe adds noise: as much as its ``multiplier`` says, or noise of its own.

    >>> is_noised("central_dp"), is_noised("masked")
    (True, False)
    """
    return takes_multiplier(name) or (
        name in RECIPES and any(one.noise() is not None for one in _stages(RECIPES[name]) or ())
    )


def only_scales(name: str) -> bool:
    """Whether every stage of a recipe leaves values in proportion (:attr:`Stage.scales`), on a trial sum.

    >>> only_scales("distributed_dp"), only_scales("masked")
    (True, True)
    """
    stages = _stages(RECIPES[name]) if name in RECIPES else None
    return stages is not None and all(one.scales for one in stages)


@functools.cache
def _stages(make: Callable[..., Policy]) -> tuple[Stage, ...] | None:
    """The stages that a recipe, with a clip and noise of 1 where it takes them, puts on a sum to the server;
    None where it needs other arguments, or sends no such sum."""
    amounts = {key: 1.0 for key in ("norm", "multiplier") if key in named_settings(make)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlaintextWarning)
        try:
            return make(**amounts)._bind(Channel("trial", Reveal.SUM), tuple("abcd")).stages
        except SecureFedGraphError:
            return None
