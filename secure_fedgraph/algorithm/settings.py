"""An algorithm's settings, and the forms that it takes for policies that refuse the one as configured."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, model_validator
from pydantic_core import PydanticCustomError


class Settings(BaseModel):
    """An algorithm's settings: checked on construction, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _no_switch_for_a_number(cls, values: Any) -> Any:
        """True would pass for the number 1."""
        if isinstance(values, Mapping):
            check_switches(cls, values)
        return values


def check_switches(model: type[BaseModel], values: Mapping[str, Any]) -> None:
    """Refuses true and false where a setting takes no switch: true would pass for the number 1."""
    for key, value in values.items():
        field = model.model_fields.get(key)
        inner = value.values() if isinstance(value, Mapping) else value
        several = isinstance(value, list | tuple | Mapping)
        switches = isinstance(value, bool) or (several and any(isinstance(one, bool) for one in inner))
        if field is not None and switches and not re.search("bool|Any", str(field.annotation)):
            raise PydanticCustomError(
                "switch", "{key} = {value}: give a number or a word, not true or false",
                {"key": key, "value": str(value).lower()},
            )  # fmt: skip


def number_or(*words: str, low: float, high: float = math.inf, whole: bool = False) -> BeforeValidator:
    """What a setting takes that is a number in a range or one of some words.

    Args:
        words: that it takes.
        low, high: of numbers, both included.
        whole: whether these are whole.
    """
    span = f"a{' whole' * whole} number from {low:g}" + (f" to {high:g}" if high < math.inf else "")

    def check(value: Any) -> Any:
        number = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
        if number and abs(value) < math.inf and not (whole and isinstance(value, float)):
            return value if whole else float(value)
        if value in words:
            return value
        raise PydanticCustomError("choice", f"give {span}, or {' or '.join(words)}")

    return BeforeValidator(check)


def even_widths(value: tuple[int, ...]) -> tuple[int, ...]:
    """One width a layer, each even."""
    if not value or any(width < 2 or width % 2 for width in value):
        raise PydanticCustomError("hidden", "give one width a layer, each even: a layer has two halves")
    return value


BatchSize = Annotated[int | Literal["full"], number_or("full", low=1, whole=True)]
Widths = Annotated[tuple[int, ...], AfterValidator(even_widths)]


@dataclass(frozen=True)
class Form:
    """Another form of an algorithm, for policies that its paper's form does not fit.

    Args:
        settings: what differs from the form as configured.
        why: in one sentence what the form does otherwise, and so why more policies fit it.
        without_leak: whether it is there to send nothing on a channel that declares a leak: ``strictest``
            takes it then, where no setting that was given by hand is in the way.
    """

    settings: Mapping[str, Any]
    why: str
    without_leak: bool = False

    def __str__(self) -> str:
        return " ".join(f"training.{key}={written(value)}" for key, value in self.settings.items())


def written(value: Any) -> str:
    """A setting as ``--set`` takes it."""
    if isinstance(value, tuple | list):
        return f"[{','.join(map(written, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def plain(value: Any) -> Any:
    """A setting as files have it: a list where it is a tuple."""
    return list(value) if isinstance(value, tuple) else value
