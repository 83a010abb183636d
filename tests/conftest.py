"""What every test shares: where the real data lies, one thread per worker, hypothesis without deadlines."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

# Before torch is imported anywhere: xdist runs one process per core.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "agg")

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from secure_fedgraph import Federation

ROOT = Path(__file__).resolve().parent.parent
DATA = "SECURE_FEDGRAPH_DATA"

if not os.environ.get(DATA) and (ROOT.parent / "shared" / "data").is_dir():
    os.environ[DATA] = str(ROOT.parent / "shared" / "data")

# Derandomised, so that a red run can be repeated; the machine is shared, so no deadline per example.
settings.register_profile(
    "default",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("default")


def _missing_data(folders: tuple[str, ...]) -> str | None:
    """Why a test that needs these folders of the data root cannot run here, or None."""
    root = os.environ.get(DATA)
    if not root:
        return f"${DATA} is not set and ../shared/data is not there"
    absent = [folder for folder in (*folders, ".") if not (Path(root) / folder).is_dir()]
    return f"not under ${DATA}={root}: {', '.join(absent)}" if absent else None


@cache
def _sees_a_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _slow() -> frozenset[str]:
    """The tests that ``slow_tests.txt`` leaves to ``make slow``: files, classes, functions or cases."""
    lines = (Path(__file__).parent / "slow_tests.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(line.split(maxsplit=1)[1] for line in lines if line and not line.startswith("#"))


def _parts(test: str) -> list[str]:
    """Every name that the list of slow tests may use for a test: of its file, class, function, itself."""
    file, *inner = test.partition("[")[0].split("::")
    return [test, *("::".join([file, *inner[:depth]]) for depth in range(len(inner) + 1))]


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is slow, and skips what needs real data that this machine does not have, and says which."""
    slow = _slow()
    for item in items:
        if not slow.isdisjoint(_parts(item.nodeid)):
            item.add_marker(pytest.mark.slow)
        for mark in item.iter_markers("needs_data"):
            if reason := _missing_data(mark.args):
                item.add_marker(pytest.mark.skip(reason=reason))
        if item.get_closest_marker("cuda") and not _sees_a_gpu():
            item.add_marker(pytest.mark.skip(reason="torch sees no GPU"))


@pytest.fixture(scope="session")
def federation() -> Federation:
    """Three owners of sixty nodes, for whole runs that need no more; no test changes it."""
    from secure_fedgraph import federate

    return federate("synthetic-citation", clients=3, nodes=60, features=16, seed=0)
