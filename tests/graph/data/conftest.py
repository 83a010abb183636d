"""What tests of data sets share: a machine that has none of them."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from secure_fedgraph.graph.data import packages, sources


def no_network(url: str, **_: object) -> None:
    raise urllib.error.URLError("Name or service not known")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, no data folder, no package and no network; tests put back what they need."""
    monkeypatch.setattr(sources, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(packages, "carried", lambda name: [])
    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    monkeypatch.delenv(sources.VARIABLE, raising=False)
    return tmp_path / "cache"
