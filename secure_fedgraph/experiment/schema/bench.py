"""``bench.json``: one submission to the board, every task, algorithm and budget in a row of its own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from secure_fedgraph.experiment.schema import part
from secure_fedgraph.experiment.schema.compare import Point


class Row(Point):
    """A point of a task's comparison."""

    task: str
    partition: str


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
