"""Which releases of Flower silos work with, and where its private parts are used."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.deployment.flower.releases import BELOW, FIRST, check_flower

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = {"flwr.app", "flwr.serverapp"}


@pytest.mark.parametrize(("version", "known"), [("1.39.9", 0), ("1.40.0", 1), ("1.42.9", 1), ("1.43.0", 0)])
def test_a_release_outside_the_range_is_refused(
    monkeypatch: pytest.MonkeyPatch, version: str, known: bool
) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: version)
    if known:
        check_flower()
    else:
        with pytest.raises(BadInput, match=f"flwr {version} is installed.*run: pip install"):
            check_flower()


def test_the_range_is_what_the_extra_installs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"flwr>={FIRST},<{BELOW}" in project["optional-dependencies"]["flower"]


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module)
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names)


def test_private_parts_of_flower_are_used_in_one_file() -> None:
    users = {
        path.name
        for path in (ROOT / "secure_fedgraph" / "deployment").rglob("*.py")
        for name in _imports(path)
        if name.split(".")[0] == "flwr" and name not in PUBLIC
    }
    assert users == {"private.py"}
