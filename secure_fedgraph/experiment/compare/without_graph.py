"""Beside every private point: the same budget where nothing reads a link."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from secure_fedgraph.algorithms.plugins import algorithm_named
from secure_fedgraph.core.errors import BadInput, Refused
from secure_fedgraph.experiment.compare.points import NOISED, WITHOUT_GRAPH, Point
from secure_fedgraph.experiment.config import Experiment

LINKLESS = "fedridge"
"""The algorithm that keeps a budget without links, in the place of one that cannot do without them."""
WHY_NONE = {
    "client": (
        "without links, noise is for one node, and a client has many: no algorithm that reads no link keeps "
        "a budget for a whole client"
    ),
    "edge": "what reads no link has epsilon 0 for a link, whatever its noise: it spends no such budget",
}
"""Units of which no budget is spent without links, and why."""


@dataclass(frozen=True)
class Reference:
    """What a private point is measured against: its budget, without a graph.

    Args:
        point: the same policy, unit and epsilon, where nothing reads a link; None where there is none.
        reason: why there is none.
    """

    point: Point | None
    reason: str = ""


def references(chosen: Iterable[Point]) -> dict[str, Reference]:
    """Name of a point -> its reference, for every point with a budget that classifies nodes."""
    found = {}
    for point in chosen:
        if point.kind == NOISED:
            given = Experiment(**point.config)
            if given.kind in algorithm_named(LINKLESS).kinds:
                found[point.name] = _reference(point, given)
    return found


def added(chosen: Iterable[Point], beside: Mapping[str, Reference]) -> list[Point]:
    """The references that are no points of the comparison themselves, each once: they are run besides."""
    names = {point.name for point in chosen}
    points = {one.point.name: one.point for one in beside.values() if one.point is not None}
    return [point for name, point in points.items() if name not in names]


def _reference(point: Point, given: Experiment) -> Reference:
    if given.unit in WHY_NONE:
        return Reference(None, WHY_NONE[given.unit])
    own = algorithm_named(point.algorithm).without_links is not None
    name = point.algorithm if own else LINKLESS
    made = _without_links(given, name)
    if made.trains_under_noise:
        return Reference(
            None,
            f"under policy {given.policy} noisy training steps keep this budget, and {name} takes none; "
            "under distributed_dp it keeps one without links",
        )
    try:
        made.make_algorithm()
        made.make_policy()
    except (BadInput, Refused) as error:
        return Reference(None, f"{name} without links: {error}")
    config = made.model_dump(mode="json")
    if config == point.config:
        return Reference(point)
    return Reference(Point(WITHOUT_GRAPH, name, made.policy, made.epsilon, config))


def _without_links(given: Experiment, name: str) -> Experiment:
    """The same data, policy, unit and epsilon, without settings that only another algorithm knows."""
    kind = algorithm_named(name)
    channels = kind.channel_names()
    training = {key: value for key, value in given.training.items() if key in kind.Settings.model_fields}
    changed: dict[str, Any] = {
        "algorithm": name,
        "training": {**training, **(kind.without_links or {})},
        "budget": _of(channels, given.budget),
        "protection": {
            key: kept
            for key, value in given.protection.items()
            if (kept := _of(channels, value) if isinstance(value, Mapping) else value) != {}
        },
        "steps": {},
    }
    return given.model_copy(update=changed)


def _of(channels: Iterable[str], by_channel: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in by_channel.items() if name in channels}
