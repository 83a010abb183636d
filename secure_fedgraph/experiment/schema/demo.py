"""``demo.json``: what a server reads in the open and under a budget, and what the budget costs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from secure_fedgraph.experiment.schema.part import Count, Epsilon, Part, Seconds

Share = Annotated[float, Field(ge=0, le=1)]
Few = Field(max_length=1000)
"""Owners, classes, reasons: pictures have one mark for each."""
Words = Annotated[list[Count], Field(max_length=10_000)]


class LabelsRead(Part):
    """One owner's training labels by class, and what the server read of them."""

    owner: str
    true: Annotated[list[Count], Field(min_length=1, max_length=1000)]
    read: Annotated[list[int], Few] | None
    """None where the server had nothing to read."""


class NodeRead(Part):
    """One node that the server named, beside the truth."""

    owner: str
    node: Count
    """Its place in the owner's graph."""
    true: Words
    """The numbers of its words."""
    read: Words


class Scene(Part):
    """The same attacks on the same training, under one policy."""

    policy: str
    epsilon: Epsilon
    """For a node, in each of the two runs."""
    labels: Annotated[list[LabelsRead], Field(min_length=1, max_length=1000)]
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
    reasons: Annotated[list[str], Few]
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
    owners: Annotated[list[str], Few]
    open: Scene
    masked: Scene
    protected: Scene
    prices: Annotated[list[Price], Field(min_length=3, max_length=3)]
