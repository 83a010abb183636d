"""Every tutorial runs as a script, offline, and prints what its page says it prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scripts import offline, printed  # noqa: F401 - a fixture

ROOT = Path(__file__).resolve().parent.parent.parent
TUTORIALS = sorted(ROOT.glob("docs/tutorials/*.py"))
SLOW = ("silos_on_flower",)
"""It starts a dozen processes."""
NEEDS = {
    "silos_on_flower": "flwr",
    "vertical_alignment": "private_set_intersection",
    "three_banks": "tomlkit",
}
"""The module that a tutorial's extra brings."""
CELL = re.compile(r"^# %%(?P<kind>.*)\n", flags=re.MULTILINE)


def printed_by_the_page(text: str) -> list[str]:
    """The lines of the ``text`` blocks in a notebook's cells of text."""
    page = re.sub(r"^# ?", "", text, flags=re.MULTILINE)
    blocks = re.findall(r"^```text\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    return [line.strip() for block in blocks for line in block.splitlines() if line.strip()]


def whole(line: str) -> str:
    """A whole line, as a pattern; … stands for digits or words that the page leaves out."""
    return f"^{'.*'.join(map(re.escape, line.split('…')))}$"


def cases() -> Iterator[Any]:
    """Each in this process, where torch is loaded already; and by ``make slow`` in one of its own."""
    for path in TUTORIALS:
        if path.stem not in SLOW:
            yield pytest.param(path, False, id=path.stem)
        yield pytest.param(path, True, id=f"{path.stem}-apart", marks=pytest.mark.slow)


@pytest.mark.parametrize(("tutorial", "apart"), list(cases()))
@pytest.mark.usefixtures("offline")
def test_it_runs_and_prints_what_its_page_says(
    tutorial: Path, apart: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    if tutorial.stem in NEEDS:
        pytest.importorskip(NEEDS[tutorial.stem])
    expected = printed_by_the_page(tutorial.read_text(encoding="utf-8"))
    assert expected
    lines = "\n".join(line.strip() for line in printed(tutorial, apart, capfd).splitlines())
    assert [line for line in expected if not re.search(whole(line), lines, re.MULTILINE)] == []


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_it_is_a_notebook_in_percent_format(tutorial: Path) -> None:
    text = tutorial.read_text(encoding="utf-8")
    assert text.startswith("# %% [markdown]\n# # ")
    kinds = [cell["kind"].strip() for cell in CELL.finditer(text)]
    assert set(kinds) == {"", "[markdown]"}
    for cell in re.split(r"^# %% \[markdown\]\n", text, flags=re.MULTILINE)[1:]:
        prose = cell.split("# %%", 1)[0]
        assert all(line.startswith("#") for line in prose.splitlines() if line), prose


def test_lines_that_a_page_promises_are_read() -> None:
    text = "# %% [markdown]\n# # A\n#\n# ```text\n# one\n# two  2\n# ```\n\n# %%\nprint('# ```text')\n"
    assert printed_by_the_page(text) == ["one", "two  2"]
