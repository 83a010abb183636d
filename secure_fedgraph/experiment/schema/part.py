"""What the models of result files share: how strictly they read, and what they hold a writer to."""

from __future__ import annotations

from typing import Annotated, Literal

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


class Part(BaseModel):
    """An object of a result file.

    A reader takes keys that it does not know, and fills in a default for what an older file lacks or has as
    null; a value of another type or out of range is refused, and so is NaN.
    """

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

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
