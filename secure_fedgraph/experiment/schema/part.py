"""What the models of result files share: how strictly they read, and what they hold a writer to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from secure_fedgraph.core.guarantee import Reader, Unit

Epsilon = Annotated[float, Field(ge=0)] | Literal["inf"]
"""JSON has no infinity: an epsilon that nothing bounds is the text ``inf``."""
Delta = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Seconds = Annotated[float, Field(ge=0)]
JsonTable = dict[str, JsonValue]
"""A table whose keys are an algorithm's, an attack's or a data set's own."""
UnitName = Annotated[Unit, Field(strict=False)]
ReaderName = Annotated[Reader, Field(strict=False)]


def _name_what_is_always_written(schema: dict[str, Any], model: type[Part]) -> None:
    """A key that is written only sometimes is not required of a file, whatever its default."""
    if "required" in schema:
        schema["required"] = [key for key in schema["required"] if key not in model.sometimes]


class Part(BaseModel):
    """An object of a result file.

    A reader takes keys that it does not know, and fills in a default for what an older file lacks or has as
    null; a value of another type or out of range is refused, and so is NaN. A writer writes every declared
    key and no other (:func:`departures`).
    """

    model_config = ConfigDict(
        extra="allow",
        strict=True,
        allow_inf_nan=False,
        json_schema_serialization_defaults_required=True,
        json_schema_extra=_name_what_is_always_written,
    )

    sometimes: ClassVar[tuple[str, ...]] = ()
    """Keys that are written only where they apply."""
    takes_any_key: ClassVar[bool] = False
    """Whether others define its keys: an algorithm its scores, an attack its settings."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        filled_in = {
            field.alias or name
            for name, field in cls.model_fields.items()
            if not field.is_required() and field.default is not None
        }
        return {key: one for key, one in value.items() if one is not None or key not in filled_in}


class Scores(Part):
    """Scores by name: ``global``, ``local``, ``auc``, ``f1``, ``mae`` and what else an algorithm measures."""

    takes_any_key = True
    __pydantic_extra__: dict[str, float | None] = Field(init=False)

    def named(self) -> dict[str, float | None]:
        """Every single score, in the order of the file."""
        return dict(self.__pydantic_extra__)

    def get(self, name: str) -> float | None:
        """One score; None where it was not measured.

        >>> Scores.model_validate({"global": 0.5}).get("global")
        0.5
        """
        return self.__pydantic_extra__.get(name)


class Bytes(Part):
    """Bytes as sent, by direction; what the examiner's questions took is beside them.

    None where a file does not tell: a page must not say that nothing was sent.
    """

    up: Count | None = None
    down: Count | None = None
    evaluation: Count | None = None


def departures(part: Part, at: str = "") -> Iterator[str]:
    """Where a written object departs from its model: keys that it lacks, and keys that are not declared.

    >>> list(departures(Bytes.model_validate({"up": 1, "down": 2, "sideways": 3})))
    ["'evaluation' is missing", "'sideways' is not declared"]
    """
    written = {name: field.alias or name for name, field in type(part).model_fields.items()}
    for name, key in written.items():
        if name not in part.model_fields_set and key not in part.sometimes:
            yield f"'{at}{key}' is missing"
        yield from _within(getattr(part, name), f"{at}{key}")
    if not part.takes_any_key:
        for key in part.__pydantic_extra__ or {}:
            yield f"'{at}{key}' is not declared"


def _within(value: object, at: str) -> Iterator[str]:
    if isinstance(value, Part):
        yield from departures(value, f"{at}.")
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _within(one, f"{at}.{number}")
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _within(one, f"{at}.{key}")
