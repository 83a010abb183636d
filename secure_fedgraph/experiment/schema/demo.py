"""``demo.json``: what a server reads in the open and under a budget, and what the budget costs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from secure_fedgraph.experiment.schema.part import Count, Epsilon, Part, Seconds

Share = Annotated[float, Field(ge=0, le=1)]


class LabelsRead(Part):
    """One owner's training labels by class, and what the server read of them."""

    owner: str
    true: list[Count]
    read: list[int] | None
    """None where the server had nothing to read."""


class NodeRead(Part):
    """One node that the server named, beside the truth."""

    owner: str
    node: Count
    """Its place in the owner's graph."""
    true: list[Count]
    """The numbers of its words."""
    read: list[Count]


class Scene(Part):
    """The same attacks on the same training, under one policy."""

    policy: str
    epsilon: Epsilon
    """For a node, in each of the two runs."""
    labels: list[LabelsRead]
    node: NodeRead | None
    """An example; None where none was named."""
    named: Count
    """How many nodes the server named."""
    right: Count
    """How many of these are some owner's node in every word."""
    uploads: Count
    """Single uploads that were sent."""
    readable: Count
    """How many of them the server could read one by one."""
    reasons: list[str]
    """Why an attack had nothing to read."""


class Price(Part):
    """What a model scores, as shares of right answers."""

    name: str
    epsilon: Epsilon
    everybody: Share
    """On all owners' test nodes."""
    own: Share
    """Mean over owners, each on its own test nodes."""


class DemoData(Part):
    """The data."""

    name: str
    source: str
    digest: str
    nodes: Count
    features: Count
    classes: Count


class DemoResult(Part):
    """The whole demonstration."""

    written_as: Literal["secure-fedgraph/demo/1"] = Field(alias="schema")
    command: str
    seed: Count
    seconds: Seconds
    data: DemoData
    owners: list[str]
    open: Scene
    masked: Scene
    protected: Scene
    prices: list[Price]
