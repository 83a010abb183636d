"""The configuration in a result file: keys of an experiment, each of its type, or absent."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, JsonValue, model_validator

from secure_fedgraph.core.guarantee import Reader, Unit
from secure_fedgraph.experiment.schema.part import Count, Delta, JsonTable, Part, ReaderName, UnitName

AtLeastOne = Annotated[int, Field(ge=1)]
NotNegative = Annotated[float, Field(ge=0)]


class Settings(Part):
    """An experiment as it was run.

    An older file may lack keys, and names are not looked up: an algorithm may be another package's. Keys are
    those of :class:`~secure_fedgraph.experiment.config.Experiment`, which needs torch.
    """

    takes_any_key = True
    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)

    algorithm: str = ""
    data: str = ""
    clients: AtLeastOne = 1
    partition: str = ""
    policy: str = ""
    rounds: Count | None = None
    seed: Count = 0
    delta: Delta = 0.0
    relation: str = ""
    epsilon: NotNegative | None = None
    unit: UnitName = Unit.CLIENT
    against: ReaderName = Reader.SERVER
    budget: dict[str, float] = {}
    ledger: str | None = None
    steps: JsonTable = {}
    broadcast: JsonTable = {}
    links: NotNegative | None = None
    labels: NotNegative | None = None
    features: NotNegative | None = None
    feature_range: Annotated[list[float], Field(min_length=2, max_length=2)] = []
    evaluation: str = ""
    evaluate_every: AtLeastOne = 1
    evaluate_sample: AtLeastOne | None = None
    transcript: str = ""
    isolated: bool = False
    device: str = ""
    allow_plaintext: bool = False
    dropouts: Annotated[float, Field(ge=0, le=1)] = 0.0
    answer_within: NotNegative = 0.0
    checkpoint_every: Count = 0
    logging: str | None = None
    training: JsonTable = {}
    protection: JsonTable = {}
    dataset: JsonTable = {}
    split: JsonTable | int = {}
    metric: str | None = None
    silos: dict[str, str] = {}
    rows: str | None = None
    classes: AtLeastOne | None = None
    holders: AtLeastOne = 1
    tables: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: Any) -> Any:
        """Keeps null, which other parts of a file drop: an experiment writes it only where it is allowed."""
        return value


def _of_its_types(table: JsonTable) -> JsonTable:
    """The table as it is written, after a check: a page shows its keys in their order, and no default."""
    Settings.model_validate(table)
    return table


Config = Annotated[JsonTable, AfterValidator(_of_its_types)]
