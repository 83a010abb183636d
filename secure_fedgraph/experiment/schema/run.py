"""``result.json``: one run, or the mean of several seeds."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from secure_fedgraph.experiment.schema import part
from secure_fedgraph.experiment.schema.settings import Config


class Accuracy(part.Scores):
    """The last round's scores; beside them the best ones, which are never mixed with them."""

    best_by_validation: part.Scores | None = None
    """The scores of the round that was best on validation nodes, and which ``round`` that was."""
    best_on_test: part.Scores | None = None
    """Each score at its best over all rounds; without test data these rounds could not be chosen."""
    std: part.Scores | None = None
    """Over seeds, where there are several."""


class PartitionFacts(part.Part):
    """How data were split among owners. Further keys are the partition's own."""

    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)
    name: str = ""
    owners: part.Count | None = None
    holders: part.Count | None = None
    """How many owners may hold the same node."""
    nodes: float | None = None
    """A mean over owners."""
    links: float | list[part.Count] | None = None
    """A mean over owners, or each owner's own."""
    missing_links: part.Count | None = None
    """Links between two owners, which nobody has."""
    graphs: part.Count | None = None
    """How many graphs were handed out, where the data are a set of graphs."""
    sizes: list[part.Count] = []
    """Each owner's nodes, graphs or ratings."""


class DataFacts(part.Part):
    """Which data, from where, and how they were split among owners. Further keys are the data set's own."""

    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)
    data: str = ""
    source: str = ""
    digest: str = ""
    nodes: part.Count | None = None
    features: part.Count | None = None
    classes: part.Count | None = None
    feature_names: list[str] = []
    """Of the columns, in their order; where owners name them."""
    class_names: list[str] = []
    partition: PartitionFacts = PartitionFacts()


class TestSample(part.Part):
    """Test nodes that were drawn once, of which scores are shares."""

    nodes: part.Count
    of: part.Count
    """How many test nodes there are."""
    low: Annotated[float, Field(ge=0, le=1)]
    """With ``high``, a 95 % interval (Wilson) of what ``accuracy.global`` is on all of them."""
    high: Annotated[float, Field(ge=0, le=1)]


class Evaluation(part.Part):
    """Who scored the model, and what that means for the guarantee."""

    mode: str = ""
    note: str = ""
    every: Annotated[int, Field(ge=1)] = 1
    """Rounds from one score to the next; the last round has one."""
    sample: TestSample | None = None
    """Where only some test nodes were scored."""


class Claim(part.Part):
    """What one unit of the most exposed client has spent, against the strictest reader."""

    epsilon: part.Epsilon
    delta: Annotated[float, Field(gt=0, lt=1)]
    against: part.ReaderName
    relation: str
    """One relation, or several by commas where charges differ."""
    accountant: str
    holders: Annotated[int, Field(ge=1)] = 1
    """How many clients may hold the same unit."""
    computational: bool = False
    """Whether it rests on the secrecy of masks or ciphertexts."""
    readers: dict[part.ReaderName, part.Epsilon] = {}
    reason: str = ""

    @property
    def has_too_little_noise(self) -> bool:
        """Whether there is noise, and nothing is bounded all the same."""
        return math.isinf(float(self.epsilon)) and self.accountant != "none"


class BudgetReport(part.Part):
    """The budget that was asked for, and what is spent of it."""

    epsilon: Annotated[float, Field(ge=0)]
    delta: part.Delta
    unit: part.UnitName
    against: part.ReaderName
    holders: Annotated[int, Field(ge=1)] = 1
    adaptive: bool = False
    relation: str = ""
    planned: bool = False
    spent: part.Epsilon = "inf"
    spent_by_all_runs: part.Epsilon | None = None
    """The cost of all charges of a shared ledger, if all runs had been planned before the first."""
    guaranteed_for_all_runs: Annotated[float, Field(ge=0)] | None = None
    """The budget, by a filter, for runs planned by what earlier ones released, where all keep to it."""


class PlanRow(part.Part):
    """What one channel, or one randomised input, costs of the budget."""

    channel: str
    unit: part.UnitName
    multiplier: Annotated[float, Field(ge=0)] | None
    uses: part.Count
    epsilon: part.Epsilon


class ChannelReport(part.Part):
    """What one channel sent, under which protection, and what that cost."""

    name: str
    reveal: str
    unit: part.UnitName
    to: str = ""
    policy: str = ""
    domain: str = ""
    relation: str = ""
    excess: list[str] = []
    """What readers can learn beyond the channel's declaration."""
    bytes_up: part.Count | None = None
    bytes_down: part.Count | None = None
    messages: part.Count | None = None
    uploads: part.Count | None = None
    """Answers of single clients that reached the server, in whatever form."""
    read_singly: part.Count | None = None
    """How many of them the server could read one by one, with noise or without."""
    epsilon: part.Epsilon | None = None
    """Against the server; None where nothing was charged."""
    epsilon_unit: part.UnitName | None = None
    epsilon_by_reader: dict[part.ReaderName, part.Epsilon] = {}


class CarrierReport(part.Part):
    """What a carrier's own messages took: keys and shares."""

    name: str
    bytes: part.Count
    messages: part.Count


class LeftOut(part.Part):
    """A client that a sum went on without."""

    seed: int | None = None
    """Of the run, where the result is of several."""
    round: int
    channel: str
    step: str
    client: str
    reason: str


class Cut(part.Part):
    """Uploads of one exchange that held more than their protection carries."""

    seed: int | None = None
    """Of the run, where the result is of several."""
    round: int
    channel: str
    uploads: part.Count
    of: part.Count
    limit: float


class MetricReport(part.Part):
    """One metric of the last round."""

    value: float = Field(alias="global")
    """Over all test items together."""
    local: float | None = None
    """The mean over owners, where it is known."""
    low: float
    """With ``high``, a 95 % interval that holds the sample's chance and the noise's."""
    high: float
    std: float | None = None
    """Over seeds, where there are several."""


class Alone(part.Part):
    """What owners score who do not collaborate, by the headline's metric on their own test items."""

    best: float | None = None
    """The best that each does alone, chosen on its own validation items: the mean over owners."""
    paper: float | None = None
    """The algorithm's own network, trained alone, where that was run."""
    metrics: dict[str, float] = {}
    """Every metric of the best, over all owners' test items."""


class Baselines(part.Part):
    """What a score stands beside."""

    commonest: float | None = None
    """The accuracy of always naming the commonest class."""
    alone: Alone = Alone()


class RoundReport(part.Part):
    """One round's scores."""

    round: int
    loss: float | None = None
    owners: dict[str, float] = {}
    """Owner -> the score of its own test nodes."""
    accuracy: part.Scores = part.Scores()


class SeedReport(part.Part):
    """One seed of several."""

    seed: int
    accuracy: Accuracy
    data: DataFacts = DataFacts()
    weights: str | None = None


NO_LEARNING = 10.0
"""A noise-to-signal above which nothing is recommended. The sum that is opened then has a cosine of at most
``1 / sqrt(1 + 10^2)``, a tenth, with the sum that it stands for: a hundredth of its squared length is signal.
That is where all records of a class, or all updates, point the same way; of real ones it is less."""


class RunResult(part.Part):
    """``result.json``."""

    written_as: Literal["secure-fedgraph/run/1"] = Field(alias="schema")
    command: str = ""
    config: Config
    seed: int | list[int] | None = None
    versions: dict[str, str] = {}
    form: part.JsonTable = {}
    """The settings by which the policy changed the algorithm; empty as configured."""
    form_why: str = ""
    federated: bool = True
    data: DataFacts = DataFacts()
    evaluation: Evaluation = Evaluation()
    metric: str = "accuracy"
    accuracy: Accuracy
    metrics: dict[str, MetricReport] = {}
    """By name: what was counted of all test items in the last round."""
    headline: str = "accuracy"
    """The metric that says most on these data."""
    baselines: Baselines = Baselines()
    commonest_class: float | None = None
    """What always answering the commonest class of the referee's test data would score."""
    privacy: dict[part.UnitName, Claim] = {}
    noise_to_signal: float | None = None
    """How long the noise on opened sums is over how long their signal can be at most; of one sum a round."""
    released_exactly: list[str] = []
    """What this file says that no epsilon covers."""
    budget: BudgetReport | None = None
    plan: list[PlanRow] | None = None
    bytes: part.Bytes = part.Bytes()
    channels: list[ChannelReport] = []
    carriers: list[CarrierReport] = []
    left_out: list[LeftOut] = []
    cut: list[Cut] = []
    seconds: part.Seconds | None = None
    weights: str | list[str | None] | None = None
    """SHA-256 of the final state."""
    notes: part.JsonTable = {}
    rounds: list[RoundReport] = []
    findings: part.JsonTable = {}
    seeds: list[SeedReport] = []

    def of_seed(self, seed: SeedReport) -> RunResult:
        """One of several seeds: its scores and its data, beside what all of them share."""
        own = [name for name in SeedReport.model_fields if name in seed.model_fields_set]
        return self.model_copy(update={name: getattr(seed, name) for name in own})
