"""The keys of an experiment, once: for a file, the command line, Python, and what a result tells of them.

Nothing here needs torch. What follows from keys, and which of them fit each other, is in
:mod:`secure_fedgraph.experiment.config`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Reader, Relation, Unit
from secure_fedgraph.experiment.schema.part import JsonTable, Part, ReaderName, UnitName


def short(value: Any) -> str:
    """A value in a sentence."""
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _checked_split(value: Any) -> Any:
    """The partition's settings, or the number of one of several splits."""
    if isinstance(value, dict) or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise BadInput(
        f"split = {short(value)}: give the partition's settings (split.KEY), or the number of a split of "
        "your data's masks, from 0"
    )


class Keys(BaseModel):
    """Everything that a run is made of. Dotted keys of ``--set`` are the field names here.

    The first line of a key's description is what ``--help`` says of its option, where it has one.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    algorithm: str = "fedsage"
    """An algorithm's name; see 'list algorithms'. With a budget, auto: what 'plan' chooses.

    Your own is ``module:Class``. What is not named of ``data``, ``clients`` and ``partition`` is as in the
    algorithm's paper.
    """
    data: str = "cora"
    """A data set's name ('list datasets'), or your own: FILE.pt, FOLDER/, module:function."""
    clients: int = Field(3, ge=1)
    """How many owners."""
    partition: str = "louvain"
    """How nodes are handed out; the paper's by default."""
    policy: str = "strictest"
    """How uploads are protected; see 'list policies'."""
    rounds: int | None = Field(None, ge=1)
    """Training rounds; the algorithm's own number by default."""
    seed: int = Field(0, ge=0)
    """One run with this seed; the first, with --seeds.

    Of data, partition, split, initialisation and sampling, each by a sub-seed.
    """
    delta: float = Field(1e-5, gt=0, lt=1)
    """For every printed epsilon (1e-5)."""
    relation: Annotated[Relation, Field(strict=False)] = Relation.ZERO_OUT
    """Neighbouring relation: zero-out, add-remove or replace."""
    epsilon: float | None = Field(None, gt=0, allow_inf_nan=False)
    """A privacy budget; noise is planned from it.

    It is planned where none is set by hand, and the run stops before the message that would exceed it.
    """
    unit: UnitName = Unit.CLIENT
    """Whose data: client, graph, node, edge, label or feature.

    By default, with fewer than 50 owners, a node, or a graph where graphs are records.
    """
    against: ReaderName = Reader.SERVER
    """Whom it holds against: server, peers or outsider."""
    budget: dict[str, float] = {}
    """The channels' weights in the budget, e.g. ``budget.update``; 1 each by default."""
    ledger: Path | None = Field(None, strict=False)
    """A ledger that several runs share.

    What runs over the same data spend adds up.
    """
    steps: dict[str, Any] = {}
    """Noisy training steps in the clients, e.g. ``steps.noise``, ``steps.clip``, ``steps.rate``."""
    broadcast: dict[str, Any] = {}
    """What clients refuse of the models that they are given: ``broadcast.change``, ``broadcast.units``."""
    links: float | None = Field(None, gt=0)
    """An epsilon: every client draws its links anew with it, once."""
    labels: float | None = Field(None, gt=0)
    """The same of labels."""
    features: float | None = Field(None, gt=0)
    """The same of features."""
    feature_range: Annotated[tuple[float, float], Field(strict=False)] = (0.0, 1.0)
    """What features lie between, which is public; randomised ones need it."""
    evaluation: Literal["referee", "in_band", "at_home"] = "referee"
    """``referee`` (outside the guarantee), ``in_band``, or ``at_home`` (no score leaves)."""
    evaluate_every: int = Field(1, ge=1)
    """Score every so many rounds, and the last."""
    evaluate_sample: int | None = Field(None, ge=1)
    """Score so many test nodes, drawn once, with an interval.

    By default all.
    """
    transcript: Literal["sizes", "full"] = "sizes"
    """``sizes`` and digests only, or every message in ``full``."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where clients train and models are scored: cpu (the default) or cuda.

    For algorithms that can.
    """
    allow_plaintext: bool = False
    """Run although strictest leaves a channel in plaintext."""
    dropouts: float = Field(0.0, ge=0, le=1)
    """The share of each cohort that a simulation keeps from answering, where the policy survives it."""
    checkpoint_every: int = Field(1, ge=0)
    """That many rounds, for ``resume``; 0 never."""
    training: dict[str, Any] = {}
    """The algorithm's settings, e.g. ``training.batch``."""
    protection: dict[str, Any] = {}
    """The policy's settings, e.g. ``protection.norm``."""
    dataset: dict[str, Any] = {}
    """The data set's settings, e.g. ``dataset.nodes`` of ``synthetic-citation``."""
    split: Annotated[dict[str, Any] | int, BeforeValidator(_checked_split)] = {}
    """The partition's settings, e.g. ``split.delta`` of ``louvain``.

    Or, of own data whose masks have several splits, the number of the one that is used, from 0.
    """
    metric: str | None = None
    """The metric at the head of results; by default the one that says most on the data."""
    silos: dict[str, str] = {}
    """An owner's own data: a folder, NODES.csv,EDGES.csv, a .pt file or module:function; once an owner.

    In place of ``data``, ``clients``, ``partition``: name -> files or a function, as
    :func:`~secure_fedgraph.graph.silos.reading.read_silo` takes them.
    """
    rows: str | None = None
    """For silos with columns of the same rows: the column of row names."""
    classes: int | None = Field(None, ge=1)
    """How many there are, where it may be more than the silos' labels show."""
    holders: int = Field(1, ge=1)
    """How many silos may hold the same node or graph."""
    tables: str | None = None
    """What the columns of your tables mean: a schema.toml, as 'silo describe' drafts it."""


class _Recorded(Part, Keys):
    """An experiment as it was run. An older file may lack keys, and names are not looked up."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: Any) -> Any:
        """Keeps null, which other parts of a file drop: an experiment writes it only where it is allowed."""
        return value


def _of_its_types(table: JsonTable) -> JsonTable:
    """The table as it is written, after a check: a page shows its keys in their order, and no default."""
    _Recorded.model_validate(table)
    return table


Config = Annotated[JsonTable, AfterValidator(_of_its_types)]
