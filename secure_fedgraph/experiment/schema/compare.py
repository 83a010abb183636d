"""``compare.json``: algorithms under policies and budgets, side by side."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from secure_fedgraph.experiment.schema import part
from secure_fedgraph.experiment.schema.run import LeftOut, MetricReport
from secure_fedgraph.experiment.schema.settings import Config

WORTH, NOT_WORTH, UNDECIDED = "Worth spending", "Not worth spending", "Undecided"
"""How :attr:`Point.worth` begins."""


class EachSeed(part.Part):
    """One seed's scores."""

    seed: int
    accuracy: dict[str, float | None]


class Leak(part.Part):
    """One attack's strongest result on single owners."""

    score: float = 0.0
    baseline: float
    low: float = 0.0
    leaks: bool
    adversary: str = ""
    aim: str = ""


class Gain(part.Part):
    """How much better a point is than local training: the mean over seeds, and its 95 % interval."""

    mean: float
    interval: list[float] | None
    seeds: list[part.Count] = []
    """On how many seeds it is better, and of how many."""


class WithoutGraph(part.Part):
    """The same budget where nothing reads a link: its scores, means over seeds, or why it has none."""

    name: str = ""
    """Of the point; its runs lie below ``runs/`` as those of others."""
    algorithm: str = ""
    spent: part.Epsilon = "inf"
    accuracy: part.Scores = part.Scores()
    seeds: part.Count = 0
    reason: str = ""
    error: str = Field("", alias="class")
    """The error's class, where its run failed."""


MEASURED = ("spent", "accuracy", "seeds", "bytes", "seconds")
"""What is known of every point that ran."""


class Point(part.Part):
    """One algorithm under one policy and one budget: means over seeds, or why there are none."""

    name: str
    kind: str
    algorithm: str
    policy: str
    unit: part.UnitName
    epsilon: part.Epsilon
    budget: Annotated[float, Field(ge=0)] | None = None
    outcome: Literal["ran", "refused", "failed"]
    reason: str = ""
    error: str = Field("", alias="class")
    """The error's class, where a run failed; empty where a process died."""
    spent: part.Epsilon = "inf"
    accountant: str = ""
    computational: bool = False
    units: dict[part.UnitName, part.Epsilon] = {}
    """Each unit's epsilon, of the most exposed client."""
    readers: dict[part.UnitName, dict[str, part.Epsilon]] = {}
    """The same by who reads: server, peers, outsider."""
    larger_units: list[str] = []
    """Why another unit's epsilon is larger than that of the one that the noise is for, in a sentence each."""
    form: part.JsonTable = {}
    measure: str = "accuracy"
    metrics: dict[str, MetricReport] = {}
    """By name: means over seeds."""
    accuracy: part.Scores = part.Scores()
    std: part.Scores = part.Scores()
    interval: dict[str, list[float] | None] = {}
    seeds: part.Count = 0
    each: list[EachSeed] = []
    bytes: part.Count = 0
    seconds: part.Seconds = 0.0
    cpu: part.Seconds | None = None
    """Processor seconds of a run's process, reading the data with it."""
    left_out: list[LeftOut] = []
    """Clients that runs went on without."""
    leak: dict[str, float | str] = {}
    """Attack -> its score, or ``blind`` or ``refused``."""
    leaks: dict[str, Leak] = {}
    leak_failed: str | None = None
    over_alone: dict[str, Gain] = {}
    worth: str = ""
    """Whether the budget is worth spending, in a sentence."""
    without_graph: WithoutGraph | None = None
    """Of a budget for classes of nodes: the same where nothing reads a link."""
    commonest_class: float | None = None
    """What always answering the commonest class of the test data would score."""
    alone: dict[str, float] = {}
    """Metric -> what owners' own models score on the same test items."""

    @model_validator(mode="after")
    def _tells_what_ran(self) -> Self:
        """A default of what was measured would look like a result."""
        missing = [key for key in MEASURED if key not in self.model_fields_set]
        if self.outcome == "ran" and missing:
            raise ValueError(f"a point that ran has no {' and no '.join(missing)}")
        return self

    @property
    def asked(self) -> part.Epsilon | None:
        """The budget that was asked for, None for none; older files tell only the point's epsilon."""
        return self.budget if "budget" in self.model_fields_set else self.epsilon


class CompareResult(part.Part):
    """``compare.json``."""

    written_as: Literal["secure-fedgraph/compare/1"] = Field(alias="schema")
    command: str = ""
    config: Config
    versions: dict[str, str] = {}
    seeds: list[int] = []
    attacks: list[str] = []
    points: list[Point]
    pareto: list[str] = []
    """Names of the points that no other beats in accuracy where it spends as little."""
    seconds: part.Seconds | None = None
