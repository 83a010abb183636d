"""``bench.json``: one submission to the board, every task, algorithm and budget in a row of its own."""

from __future__ import annotations

from statistics import fmean
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from secure_fedgraph.experiment.schema import part
from secure_fedgraph.experiment.schema.compare import Point

ROUNDING = 1e-6
"""How far a mean may be from that of its seeds."""


class Row(Point):
    """A point of a task's comparison."""

    task: str
    partition: str

    @model_validator(mode="after")
    def _is_a_mean(self) -> Self:
        for key, mean in self.accuracy.named().items() if self.outcome == "ran" else ():
            each = [score for one in self.each if (score := one.accuracy.get(key)) is not None]
            if mean is None or not each or abs(fmean(each) - mean) > ROUNDING:
                raise ValueError(f"{key[:20]!r} is no mean of its seeds")
        return self


class TaskData(part.Part):
    """The data of a task with one partition, or why it was left out."""

    task: str
    partition: str
    title: str = ""
    data: str = ""
    source: str = ""
    digest: str = ""
    reason: str = ""


class BenchResult(part.Part):
    """``bench.json``."""

    written_as: Literal["secure-fedgraph/bench/1"] = Field(alias="schema")
    command: str = ""
    suite: str
    """A digest of the suite's own definition."""
    quick: bool = False
    code: str = ""
    """A digest of this package's code."""
    versions: dict[str, str] = {}
    tasks: Annotated[list[TaskData], Field(max_length=1000)]
    points: Annotated[list[Row], Field(max_length=5000)]
    seconds: part.Seconds | None = None
