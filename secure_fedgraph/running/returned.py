"""What an algorithm returns, checked by type, so that an error names the method and not a line of ours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from secure_fedgraph.core.errors import WrongType
from secure_fedgraph.core.upload import unlike_real_numbers

if TYPE_CHECKING:
    from secure_fedgraph.algorithm import Algorithm, State


def as_state(returned: object, algorithm: Algorithm, method: str) -> State:
    """A state of the server, as ``init`` or ``round`` returned it.

    Raises:
        WrongType: for anything but a dict from names to dense tensors.
    """
    unfit = "" if isinstance(returned, dict) else type(returned).__name__
    for name, value in returned.items() if isinstance(returned, dict) else ():
        if type(name) is not str:
            unfit = f"a dict with a key of type {type(name).__name__}"
        elif not isinstance(value, torch.Tensor):
            unfit = f"{type(value).__name__} under {name!r:.60}"
        elif kind := unlike_real_numbers(value):
            unfit = f"{kind} under {name!r:.60}"
    if unfit:
        raise WrongType(
            f"{algorithm.name}: {method} returns a dict from names to dense tensors, and it returned {unfit}"
        )
    state: State = returned  # type: ignore[assignment]
    return state


def as_plain(returned: object, algorithm: Algorithm, method: str) -> dict[str, Any]:
    """What goes into a result's file, as ``notes`` or ``findings`` returned it.

    Raises:
        WrongType: for anything but a dict from names to what JSON holds.
    """
    try:
        if isinstance(returned, dict):
            json.dumps(returned, allow_nan=False)
            return returned
        why = type(returned).__name__
    except (TypeError, ValueError, RecursionError) as error:
        why = f"a dict that is no JSON ({error})"
    raise WrongType(
        f"{algorithm.name}: {method} returns a dict from names to what JSON holds, and it returned {why}; "
        "correct it and resume the run: nothing is trained again"
    )
