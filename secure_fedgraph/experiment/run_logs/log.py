"""The interface of a run's log, and the numbers that a log gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Log(Protocol):
    """One run's log."""

    def round(self, row: Mapping[str, Any]) -> None:
        """A round's scores."""

    def result(self, result: Mapping[str, Any]) -> None:
        """The run's result: last scores, epsilons, bytes, seconds."""

    def close(self, whole: bool) -> None:
        """The end; ``whole`` where nothing failed."""


class Nowhere:
    """No log."""

    def round(self, row: Mapping[str, Any]) -> None:
        """Nothing."""

    def result(self, result: Mapping[str, Any]) -> None:
        """Nothing."""

    def close(self, whole: bool) -> None:
        """Nothing."""


def scores(row: Mapping[str, Any]) -> dict[str, float]:
    """A round's numbers by name.

    >>> scores({"round": 1, "loss": None, "accuracy": {"global": 0.5}})
    {'accuracy/global': 0.5}
    """
    numbers = {f"accuracy/{key}": value for key, value in row["accuracy"].items()}
    numbers["loss"] = row.get("loss")
    return {key: float(value) for key, value in numbers.items() if isinstance(value, int | float)}


def totals(result: Mapping[str, Any]) -> dict[str, float]:
    """A result's numbers by name; an epsilon that nothing bounds is left out."""
    numbers: dict[str, Any] = {f"bytes/{key}": value for key, value in result["bytes"].items()}
    numbers["seconds"] = result["seconds"]
    for unit, entry in result["privacy"].items():
        numbers |= {f"epsilon/{unit}/{reader}": value for reader, value in entry["readers"].items()}
    return {key: float(value) for key, value in numbers.items() if isinstance(value, int | float)}


def flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """A configuration with dotted keys.

    >>> flat({"a": 1, "b": {"c": 2}})
    {'a': 1, 'b.c': 2}
    """
    flattened: dict[str, Any] = {}
    for key, value in values.items():
        flattened |= flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return flattened
