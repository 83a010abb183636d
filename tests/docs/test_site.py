"""Pages that code writes are what it writes, and the site leads to everything that pages link to."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["who_sees_what", "api"])
def test_the_page_is_what_the_code_prints(name: str) -> None:
    command = [sys.executable, str(ROOT / "docs" / f"{name}.py")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert printed == (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def test_every_page_stands_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named: set[str] = set()

    def walk(entry: object) -> None:
        if isinstance(entry, dict):
            for inner in entry.values():
                walk(inner)
        elif isinstance(entry, list):
            for inner in entry:
                walk(inner)
        else:
            named.add(str(entry))

    walk(yaml.safe_load(text[text.index("\nnav:\n") :])["nav"])
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages == {name for name in named if not name.startswith("files/")}


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    pytest.importorskip("mkdocs")  # the extra `docs`: `make site` needs it, `make test` does not
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_out_of_docs_lead_to_pages_of_these_files(hooks: ModuleType) -> None:
    text = "[code](../../attacks/rounds.py) [page](../cli.md#run)\n```\n[a](../../LICENSE)\n```\n[site](https://a.b)"
    assert hooks.outside("attacks/all.md", text) == {"attacks/rounds.py", "LICENSE"}
    made = hooks.rewritten("attacks/all.md", text)
    assert "[code](../files/attacks/rounds.py.md) [page](../cli.md#run)" in made
    assert "```\n[a](../../LICENSE)\n```" in made  # code stays as it is
    assert "[site](https://a.b)" in made


def test_links_of_such_a_page_lead_back(hooks: ModuleType) -> None:
    made = hooks.rewritten(
        "files/README.md.md", "[map\nof it](docs/architecture.md) [code](examples/own_attack.py)"
    )
    assert made == "[map\nof it](../architecture.md) [code](examples/own_attack.py.md)"


def test_links_that_leave_the_repository_stay(hooks: ModuleType) -> None:
    assert hooks.rewritten("cli.md", "[x](../../../etc/passwd)") == "[x](../../../etc/passwd)"
