"""Links to files outside ``docs/``, and notebooks, become pages of the site."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    """The hook, as MkDocs loads it."""
    pytest.importorskip("mkdocs", reason="the extra docs brings it")
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "docs" / "site_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_files_outside_the_folder_are_linked_to_their_pages(pages: ModuleType) -> None:
    text = "[a](../README.md#policies) [b](../examples/own_attack.py) "
    text += "[c](../tests/vectors/wire.json) [d](cli.md)"
    assert pages.outside("x.md", text) == {
        "README.md",
        "examples/own_attack.py",
        "tests/vectors/wire.json",
    }
    assert pages.relinked("x.md", text) == (
        "[a](repository/README.md#policies) [b](repository/examples/own_attack.py.md) "
        "[c](repository/tests/vectors/wire.json) [d](cli.md)"
    )
    assert pages.relinked("how_to/x.md", "[a](../../LICENSE)") == "[a](../repository/LICENSE.md)"


def test_a_file_of_the_repository_leads_back_into_the_pages(pages: ModuleType) -> None:
    assert pages.relinked("repository/README.md", "[a](docs/cli.md) [b](LICENSE)") == (
        "[a](../cli.md) [b](LICENSE.md)"
    )


def test_what_is_not_there_stays_a_broken_link(pages: ModuleType) -> None:
    assert pages.relinked("x.md", "[a](../nowhere.md)") == "[a](../nowhere.md)"


def test_a_tutorial_is_linked_as_its_page(pages: ModuleType) -> None:
    assert pages.relinked("faq.md", "[a](tutorials/budget.py)") == "[a](tutorials/budget.md)"


def test_a_notebook_becomes_text_and_blocks(pages: ModuleType) -> None:
    text = "# %% [markdown]\n# # Title\n#\n# Text.\n\n# %%\nx = 1\n\n\n# %%\ny = 2\n"
    page = pages.notebook_page(text, "x.py")
    assert page.startswith("# Title\n\nText.\n\n```python\nx = 1\n```\n\n```python\ny = 2\n```\n\n---\n")
    assert 'href="x.py"' in page


def test_every_page_is_in_the_navigation() -> None:
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in ROOT.glob("docs/**/*.md"):
        assert f"{page.relative_to(ROOT / 'docs').as_posix()}\n" in listed
