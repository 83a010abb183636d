"""Processes that are none: tasks run at once, in the test's own process, and fail as in the real ones."""

from __future__ import annotations

import pytest

from secure_fedgraph.experiment.pool import Here


class InThisProcess(Here):
    """As ``secure_fedgraph.experiment.pool.Pool``."""

    def __init__(self, workers: int) -> None:
        super().__init__()

    def __enter__(self) -> InThisProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def at_once(patch: pytest.MonkeyPatch) -> None:
    """The commands ``compare``, ``reproduce`` and ``bench`` start no processes."""
    for command in ("comparing.comparing", "reproducing", "comparing.benching"):
        patch.setattr(f"secure_fedgraph.cli.{command}.Pool", InThisProcess)
