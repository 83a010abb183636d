"""Processes that are none: tasks run at once, in the test's own process, and fail as in the real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from secure_fedgraph.experiment.pool import tried


class InThisProcess:
    """As ``secure_fedgraph.experiment.pool.Pool``."""

    def __init__(self, workers: int) -> None:
        self.ended: list[tuple[Any, Any]] = []
        self.memory = 0

    def __enter__(self) -> InThisProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def free(self) -> bool:
        return not self.ended

    @property
    def working(self) -> bool:
        return bool(self.ended)

    def start(self, name: Any, work: Callable[..., Any], *arguments: Any) -> None:
        self.ended.append((name, tried(work, *arguments)))

    def finished(self, deadline: float | None = None) -> list[tuple[Any, Any]]:
        return [self.ended.pop()]


def at_once(patch: pytest.MonkeyPatch) -> None:
    """The command ``compare`` starts no processes."""
    patch.setattr("secure_fedgraph.cli.comparing.Pool", InThisProcess)
