"""Shared by recipes: checked arguments, amounts by channel, two readers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.errors import BadInput, wrong_type
from secure_fedgraph.core.protection.contracts import MAJORITY, Quorum
from secure_fedgraph.core.protection.gaussian import Clip, Gaussian
from secure_fedgraph.privacy.policy import Policy

Make = TypeVar("Make", bound=Callable[..., Policy])
Amount = float | Mapping[str, float]
"""One number for all channels, or one by a channel's name."""
_MARK = "__recipe__"


def recipe(make: Make) -> Make:
    """Registers a function that makes a policy of the function's name, from arguments that are checked.

    The policy keeps what it was made with, so that another process can make it again. An argument that is
    annotated as ``int``, ``float``, ``str``, ``bool``, ``Amount`` or ``Policy`` has to be one.
    """
    signature = inspect.signature(make)

    @functools.wraps(make)
    def checked(*args: Any, **kwargs: Any) -> Policy:
        try:
            arguments = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise BadInput(f"policies.{make.__name__}{signature}: {error}") from None
        arguments.apply_defaults()
        amounts = {}
        for key, value in arguments.arguments.items():
            annotation = str(signature.parameters[key].annotation)
            _check_type(f"policies.{make.__name__}: {key}", value, annotation)
            if annotation == "Amount" and isinstance(value, Mapping):
                amounts[key] = value
        policy = make(*args, **kwargs)
        return replace(policy, made_with=dict(arguments.arguments), amounts={**policy.amounts, **amounts})

    vars(checked)[_MARK] = True
    return cast("Make", checked)


def is_recipe(value: object, module: str) -> bool:
    """Whether a value is a function that :func:`recipe` registered, in a module of that name."""
    return callable(value) and hasattr(value, _MARK) and value.__module__ == module


_NUMBERS = {"int": (int,), "float": (int, float)}


def _check_type(key: str, value: Any, annotation: str) -> None:
    if annotation == "Policy":  # of *policies
        for one in value:
            if not isinstance(one, Policy):
                raise wrong_type(key, one, "give policies, such as policies.masked()")
    elif annotation == "Amount" and isinstance(value, Mapping):
        for channel, one in value.items():
            _check_type(f"{key}[{channel!r}]", one, "float")
    elif annotation in ("Amount", *_NUMBERS):
        number = isinstance(value, _NUMBERS.get(annotation, (int, float))) and not isinstance(value, bool)
        if not number:
            mend = "give a whole number" if annotation == "int" else "give a number"
            raise wrong_type(key, value, mend + (", or one by channel" if annotation == "Amount" else ""))
    elif annotation in ("str", "bool") and not isinstance(value, {"str": str, "bool": bool}[annotation]):
        raise wrong_type(key, value, "give a word" if annotation == "str" else "give True or False")


def check_amounts(norm: Amount, multiplier: Amount) -> None:
    """Refuses amounts that no channel can be clipped or noised with, before any channel is known."""
    for kind, amount in ((Clip, norm), (Gaussian, multiplier)):
        for one in amount.values() if isinstance(amount, Mapping) else (amount,):
            kind(one)


def amount_of(key: str, amount: Amount, channel: Channel) -> float:
    if not isinstance(amount, Mapping):
        return amount
    if channel.name not in amount:
        raise BadInput(
            f"channel {channel.name!r} has no {key}, and others have one each: set "
            f"protection.{key}.{channel.name}"
        )
    return amount[channel.name]


def check_quorum(quorum: Quorum) -> Quorum:
    if quorum != MAJORITY and (quorum <= 0 or 1 <= quorum < 2):
        raise BadInput(f"quorum {quorum}: a sum of one upload is that upload; use 2 or more")
    if quorum != MAJORITY and quorum > 1 and quorum % 1:
        raise BadInput(
            f"quorum {quorum}: give a whole number of clients from 2, a share below 1, or {MAJORITY}"
        )
    return quorum
