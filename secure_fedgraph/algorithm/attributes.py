"""What a class of a user's own declares about itself, checked by type."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, get_args, get_origin, get_type_hints

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError

from secure_fedgraph.core.errors import WrongType

if TYPE_CHECKING:
    from secure_fedgraph.algorithm.base import Algorithm

MADE_BY_US = ("answers", "readers", "channels")
"""Class attributes that the base fills from what a class declares."""


def check_attributes(kind: type[Algorithm], base: type) -> None:
    """Holds the class attributes to the types that the base gives them.

    Args:
        kind: a subclass.
        base: of every algorithm.

    Raises:
        WrongType: naming class, attribute and what is due.
    """
    for name, adapter in _attributes(base).items():
        check_type(kind, name, getattr(kind, name), adapter)


@cache
def _attributes(base: type) -> dict[str, TypeAdapter[object]]:
    """Class attributes of the base that subclasses set, and their types."""
    hints = get_type_hints(base, localns={"State": dict[str, torch.Tensor]}, include_extras=True)
    return {
        name: type_of(get_args(hint)[0])
        for name, hint in hints.items()
        if get_origin(hint) is ClassVar and name not in MADE_BY_US
    }


def type_of(kind: Any) -> TypeAdapter[object]:
    """What holds a value to a type, without converting it.

    Args:
        kind: as an annotation has it.
    """
    return TypeAdapter(kind, config=ConfigDict(strict=True, arbitrary_types_allowed=True))


def check_type(kind: type[Algorithm], name: str, value: object, adapter: TypeAdapter[object]) -> None:
    """Holds one declaration to its type; a list may stand for a tuple.

    Args:
        kind: the class that declares.
        name: of the attribute or method.
        value: what it declares.
        adapter: of what is due.

    Raises:
        WrongType: naming class, declaration and what is due.
    """
    try:
        adapter.validate_python(tuple(value) if isinstance(value, list) else value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = "".join(f"[{part!r:.60}]" for part in first["loc"])
        why = first["msg"].replace("Input", f"{name}{where}", 1)
        hint = f"; write ({value!r:.60},)" if _is_one_of_several(value, adapter) else ""
        raise WrongType(f"{kind.__name__}: {name} is {value!r:.60}, and {why}{hint}") from None


def _is_one_of_several(value: object, adapter: TypeAdapter[object]) -> bool:
    """Whether a tuple of the value alone would do."""
    try:
        adapter.validate_python((value,))
    except ValidationError:
        return False
    return True
