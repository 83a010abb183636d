"""``audit.json``: every attack on every run, and the checks and measured epsilons of the same runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from secure_fedgraph.experiment.schema import part
from secure_fedgraph.experiment.schema.run import Accuracy, RunResult
from secure_fedgraph.experiment.schema.settings import Config


class CellSettings(part.Part):
    """Whom an attack is about, and in which variant of the run; further keys are settings that affect it."""

    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)

    aim: str = ""
    variant: str = ""

    def others(self) -> part.JsonTable:
        """Every setting but these two, in the order of the file."""
        return dict(self.__pydantic_extra__)


class CellClaim(part.Part):
    """The claim that bounds a score."""

    unit: part.UnitName
    epsilon: Annotated[float, Field(ge=0)]
    delta: part.Delta = 0.0
    against: part.ReaderName = Field("server", validate_default=True)
    units: int = 1
    """How many units the guess is about."""


class Cell(part.Part):
    """One attack by one adversary on one run."""

    algorithm: str = ""
    policy: str
    attack: str
    title: str = ""
    """The attack's, in words."""
    subject: str = ""
    """What it guesses, in words."""
    adversary: str
    behaviour: str = ""
    channel: str = ""
    form: part.JsonTable = {}
    outcome: Literal["refused", "blind", "score"]
    metric: str | None = None
    score: float | None = None
    low: float | None = None
    high: float | None = None
    surely_at_least: float | None = None
    """A lower bound that is wrong once in ten thousand times."""
    baseline: float | None = None
    """The best of the trivial guesses."""
    baselines: dict[str, float] = {}
    ceiling: float | None = None
    """The best score that the claim allows any attack."""
    claim: CellClaim | None = None
    owners: int | None = None
    """How many owners the widest guess is about."""
    leaks: bool = False
    verdict: str = ""
    reason: str = ""
    stops: str = ""
    seed: int = 0
    accuracy: Accuracy | None = None
    bytes: part.Bytes | None = None
    seconds: part.Seconds | None = None
    settings: CellSettings = CellSettings()
    details: dict[str, float] = {}
    messages: part.Count | None = None


class NotRun(part.Part):
    """A cell that was not run."""

    algorithm: str = ""
    policy: str
    seed: int = 0
    attack: str
    title: str = ""
    subject: str = ""
    adversary: str = ""
    variant: str = ""
    reason: str = ""
    failed: bool = False


class Neighbourhood(part.Part):
    """A node with its true and its guessed neighbours, and all links among them."""

    centre: int
    nodes: list[int]
    true: list[list[int]]
    guess: list[list[int]]
    left_out: part.Count = 0
    """How many more neighbours the node has, true or guessed."""


class Target(part.Part):
    """True against guessed values of one owner, or of several together."""

    owner: str
    true: JsonValue
    guess: JsonValue
    graph: part.JsonTable = {}
    """A :class:`Neighbourhood`; empty where no pair is linked."""


class Reconstruction(part.Part):
    """What one attack wrote down."""

    algorithm: str = ""
    policy: str
    seed: int = 0
    attack: str
    adversary: str = "server"
    aim: str
    variant: str
    kind: str
    """What the guess is about."""
    subject: str = ""
    """The same, in words."""
    stopped: str = ""
    targets: list[Target] = []


class Conformance(part.Part):
    """One check of one run."""

    algorithm: str = ""
    policy: str
    seed: int = 0
    variant: str = ""
    check: str
    says: str = ""
    outcome: str
    count: part.Count = 0
    findings: list[str] = []
    reason: str = ""


class Empirical(part.Part):
    """One noise, measured on worst-case neighbours; without figures where it was not audited."""

    algorithm: str = ""
    policy: str
    seed: int = 0
    variant: str = ""
    noise: str
    of: str
    unit: str = ""
    relation: str = ""
    reader: str = ""
    unseen: str
    """What its audit is blind to."""
    claim: Annotated[float, Field(ge=0)] | None = None
    delta: part.Delta | None = None
    lower: float | None = None
    ceiling: float | None = None
    trials: part.Count | None = None
    method: str | None = None
    confidence: float | None = None
    outcome: str
    reason: str = ""


class Estimate(part.Part):
    """What the runs of a grid were estimated to take, after the first of them."""

    runs: int = 0
    seconds: part.Seconds = 0.0
    workers: int = 1
    sentence: str = ""


class AuditedRun(part.Part):
    """A run that was attacked."""

    variant: str
    algorithm: str = ""
    policy: str
    folder: str = ""
    result: RunResult


class AuditResult(part.Part):
    """``audit.json``."""

    written_as: Literal["secure-fedgraph/audit/1"] = Field(alias="schema")
    command: str = ""
    config: Config
    configs: list[Config] = []
    """Of every algorithm, where there are several."""
    policies: list[str] = []
    seed: list[int] = []
    controls: list[str] | None = None
    effort: float | None = None
    versions: dict[str, str] = {}
    verdict: str = ""
    broken: list[str] = []
    """Claims that the audit saw fail, a sentence each."""
    seconds: part.Seconds | None = None
    cells: list[Cell]
    not_run: list[NotRun] = []
    estimate: Estimate | None = None
    conformance: list[Conformance] = []
    empirical: list[Empirical] = []
    runs: list[AuditedRun] = []
    reconstructions: list[Reconstruction] = []
