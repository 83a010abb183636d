"""Every tutorial runs as a script, offline, and prints what its page says it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    "tutorial",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else [])
        for path in TUTORIALS
    ],
)
def test_it_runs_and_prints_what_its_page_says(tutorial: Path, tmp_path: Path) -> None:
    if tutorial.stem in NEEDS:
        pytest.importorskip(NEEDS[tutorial.stem])
    nowhere = {
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
        "no_proxy": "127.0.0.1",
    }
    own = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning:__main__", str(tutorial)],
        cwd=tmp_path,
        env={**os.environ, **nowhere, **own},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    expected = printed_by_the_page(tutorial.read_text(encoding="utf-8"))
    assert expected
    lines = "\n".join(line.strip() for line in done.stdout.splitlines())
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
