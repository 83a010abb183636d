"""Beside every private point: the same budget where nothing reads a link."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from secure_fedgraph.algorithms.plugins import algorithm_named
from secure_fedgraph.core.errors import BadInput, Refused
from secure_fedgraph.experiment.compare.points import NOISED, WITHOUT_GRAPH, Point
from secure_fedgraph.experiment.config import Experiment

LINKLESS = "fedridge"
"""The algorithm that keeps a budget without links, in the place of one that cannot do without them."""


def references(chosen: Iterable[Point]) -> dict[str, Point | str]:
    """Name of a point -> its budget without a graph, or why there is none.

    Every point with a budget that classifies nodes has one.
    """
    found = {}
    for point in chosen:
        if point.kind == NOISED:
            given = Experiment(**point.config)
            if given.kind in algorithm_named(LINKLESS).kinds:
                found[point.name] = _reference(point, given)
    return found


def added(chosen: Iterable[Point], beside: Mapping[str, Point | str]) -> list[Point]:
    """The references that are no points of the comparison themselves, each once: they are run besides."""
    names = {point.name for point in chosen}
    points = {one.name: one for one in beside.values() if isinstance(one, Point)}
    return [point for name, point in points.items() if name not in names]


def _reference(point: Point, given: Experiment) -> Point | str:
    own = algorithm_named(point.algorithm).without_links is not None
    name = point.algorithm if own else LINKLESS
    made = _without_links(given, name)
    if given.unit in ("client", "edge") or made.trains_under_noise:
        return (
            f"without links {name} keeps no budget of one {given.unit} under policy {given.policy}; it does "
            "for a node, under distributed_dp"
        )
    try:
        made.make_algorithm()
        made.make_policy()
    except (BadInput, Refused) as error:
        return f"{name} without links: {error}"
    config = made.model_dump(mode="json")
    return point if config == point.config else Point(WITHOUT_GRAPH, name, made.policy, made.epsilon, config)


def _without_links(given: Experiment, name: str) -> Experiment:
    """The same data, policy, unit and epsilon, without settings that only another algorithm knows."""
    kind = algorithm_named(name)
    channels = kind.channel_names()
    training = {key: value for key, value in given.training.items() if key in kind.Settings.model_fields}
    protection = {key: _of(channels, value) for key, value in given.protection.items()}
    changed: dict[str, Any] = {
        "algorithm": name,
        "training": {**training, **(kind.without_links or {})},
        "budget": _of(channels, given.budget),
        "protection": {key: kept for key, kept in protection.items() if kept != {}},
        "steps": {},
    }
    return given.model_copy(update=changed)


def _of(channels: Iterable[str], value: Any) -> Any:
    """Of values by channel, those of these channels."""
    return {k: one for k, one in value.items() if k in channels} if isinstance(value, Mapping) else value
