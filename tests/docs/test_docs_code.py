"""The pages keep their word: every python block runs, every internal link resolves.

On the pages of ``WHOLE`` every block counts, in the page's order and in one folder: a block with a title
is written as that file, commands of ``sh`` blocks run, and the lines of a ``text`` block are in what the
block before printed. A command that does not end with status 0 says so: ``# exit status 3``. Blocks after
the slow mark are left to ``make slow``.
"""

from __future__ import annotations

import io
import re
import shlex
import sys
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from secure_fedgraph.cli.main import main
from secure_fedgraph.forms import FormWarning

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
NOT_THERE = {"secure_fedgraph/train.py", "attacks.py", "audits.py"}
"""Modules that a page names to say that there is none, or that they are the reader's own."""
WHOLE = sorted([*ROOT.glob("docs/start/*.md"), *ROOT.glob("docs/how_to/*.md"), ROOT / "docs" / "faq.md"])
"""Pages whose blocks run together."""
NO_RUN, SLOW = "<!-- no-run -->", "<!-- slow -->"
FENCE = re.compile(r'^(?P<fence>```+|~~~+)(?P<language>[\w+-]*)(?: title="(?P<title>[^"]*)")?.*$')
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)")


@dataclass(frozen=True)
class Block:
    """One fenced block: its page, the line its code starts on, its language and the code.

    Args:
        marked: whether it is not to be run.
        slow: whether it is left to ``make slow``.
        title: the name of the file that it shows; empty for none.
    """

    page: Path
    line: int
    language: str
    code: str
    marked: bool
    slow: bool = False
    title: str = ""

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks_of(page: Path, text: str) -> list[Block]:
    """The fenced blocks of a page; ``marked`` where the last line of text before it is the no-run mark."""
    found: list[Block] = []
    lines = text.splitlines()
    before, number = "", 0
    while number < len(lines):
        opening = FENCE.match(lines[number])
        if not opening:
            before = lines[number].strip() or before
            number += 1
            continue
        start = end = number + 1
        while end < len(lines) and not lines[end].startswith(opening["fence"]):
            end += 1
        code = "\n".join(lines[start:end]) + "\n"
        marks = (before == NO_RUN, before == SLOW)
        found.append(Block(page, start + 1, opening["language"], code, *marks, opening["title"] or ""))
        before, number = "", end + 1
    return found


def prose_of(text: str) -> str:
    """A page without its fenced blocks and code spans, where brackets are not links."""
    kept, fence = [], None
    for line in text.splitlines():
        opening = FENCE.match(line)
        if fence is None and opening:
            fence = opening["fence"]
        elif fence is not None:
            fence = None if line.startswith(fence) else fence
        else:
            kept.append(re.sub(r"`[^`]*`", "", line))
    return "\n".join(kept)


def anchors_of(text: str) -> set[str]:
    """The anchors that a page's headings get on the forges: lower case, spaces to hyphens, signs dropped."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, flags=re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(slug if slug not in found else f"{slug}-1")
    return found


def dead_links(page: Path, text: str) -> list[str]:
    """The links of a page that lead nowhere inside this repository; links to other sites are not asked."""
    dead = []
    for link in LINK.finditer(prose_of(text)):
        path, _, anchor = link["target"].partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        target = (page.parent / path).resolve() if path else page
        inside = target.is_relative_to(ROOT) or target.is_relative_to(page.parent)
        lands = inside and target.exists()
        if lands and anchor:
            lands = anchor in anchors_of(target.read_text(encoding="utf-8"))
        if not lands:
            dead.append(link["target"])
    return dead


BLOCKS = [block for page in PAGES for block in blocks_of(page, page.read_text(encoding="utf-8"))]


def commands_of(code: str) -> list[tuple[list[str], int]]:
    """The commands of a block, each with the exit status that the page says; 0 where it says none."""
    lines = [line for line in code.replace("\\\n", " ").splitlines() if line.strip()]
    found = []
    for line in lines:
        command, _, said = line.partition("# exit status ")
        found.append((shlex.split(command, comments=True), int(said or 0)))
    return found


def run_command(words: Sequence[str], status: int) -> str:
    """What a command prints, which has to end with the status that the page says."""
    assert words[0] == "secure-fedgraph", f"{words[0]}: mark what cannot run here with {NO_RUN}"
    with warnings.catch_warnings():
        warnings.simplefilter("default", FormWarning)  # a page may show a run that says which form it takes
        done = CliRunner().invoke(main, list(words[1:]))
    assert done.exit_code == status, f"{shlex.join(words)}\n{done.output}"
    return done.output


def run_page(blocks: Sequence[Block], slow: bool) -> None:
    """Runs the blocks of one page in the working folder."""
    names: dict[str, object] = {"__name__": "__main__"}
    printed: str | None = None
    for block in blocks:
        if block.marked or (block.slow and not slow):
            printed = None
        elif block.title:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.code, encoding="utf-8")
        elif block.language == "sh":
            printed = "".join(run_command(words, status) for words, status in commands_of(block.code))
        elif block.language == "python":
            padded = "\n" * (block.line - 1) + block.code
            with redirect_stdout(io.StringIO()) as out:
                exec(compile(padded, str(block.page), "exec", dont_inherit=True), names)
            printed = out.getvalue()
        elif block.language == "text" and printed is not None:
            for line in block.code.splitlines():
                parts = (re.escape(" ".join(part.split())) for part in line.split("…"))
                assert re.search(".*".join(parts), " ".join(printed.split())), f"{block}: {line!r}\n{printed}"


RUN_WHOLE = [(page, [b for b in BLOCKS if b.page == page]) for page in WHOLE]


@pytest.mark.parametrize(
    ("blocks", "slow"),
    [
        *[pytest.param(blocks, False, id=page.name) for page, blocks in RUN_WHOLE if blocks],
        *[
            pytest.param(blocks, True, id=f"{page.name}-slow", marks=pytest.mark.slow)
            for page, blocks in RUN_WHOLE
            if any(block.slow for block in blocks)
        ],
    ],
)
def test_the_page_runs(
    blocks: list[Block], slow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = {Path(block.title).stem for block in blocks if block.title.endswith(".py")}
    try:
        run_page(blocks, slow)
    finally:
        for name in own:
            sys.modules.pop(name, None)


@pytest.mark.parametrize(
    "block", [b for b in BLOCKS if b.language in ("python", "py") and b.page not in WHOLE], ids=str
)
def test_the_block_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if block.marked:
        pytest.skip("marked no-run on the page")
    monkeypatch.chdir(tmp_path)
    padded = "\n" * (block.line - 1) + block.code  # so that a traceback names the page's own line
    exec(compile(padded, str(block.page), "exec", dont_inherit=True), {"__name__": "__main__"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_internal_link_resolves(page: Path) -> None:
    assert dead_links(page, page.read_text(encoding="utf-8")) == []


@cache
def modules() -> list[str]:
    rooms = ("secure_fedgraph", "attacks", "audits", "tests", "examples", "benchmarks", "docs")
    return [
        f"/{path.relative_to(ROOT).as_posix()}" for room in rooms for path in ROOT.glob(f"{room}/**/*.py")
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_module_that_a_page_names_is_there(page: Path) -> None:
    """A page names a module by the end of its path. Code blocks and names of its own are left out."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    named = set(re.findall(r"`([\w/]+\.py)\b", prose)) - NOT_THERE
    assert [name for name in sorted(named) if not any(m.endswith(f"/{name}") for m in modules())] == []


def test_the_blocks_are_found_and_the_mark_is_read() -> None:
    text = f"Text.\n\n```python\nx = 1\n```\n\n{NO_RUN}\n\n```python\ny = 2\n```\n\n```\nz\n```\n"
    found = blocks_of(ROOT / "page.md", text)
    assert [(b.language, b.code, b.marked, b.line) for b in found] == [
        ("python", "x = 1\n", False, 4),
        ("python", "y = 2\n", True, 10),
        ("", "z\n", False, 14),
    ]


def test_files_commands_and_what_they_print_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (
        '```toml title="a/b.toml"\nrounds = 1\n```\n\n```sh\nsecure-fedgraph list \\\n  policies\n'
        f"secure-fedgraph run --policy maskd # exit status 2\n```\n\n"
        f"```text\ndid you mean 'masked'?\n```\n\n{SLOW}\n"
        "```python\nraise RuntimeError\n```\n"
    )
    blocks = blocks_of(tmp_path / "page.md", text)
    run_page(blocks, slow=False)
    assert (tmp_path / "a" / "b.toml").read_text() == "rounds = 1\n"
    with pytest.raises(RuntimeError):
        run_page(blocks, slow=True)
    for wrong in ("did you mean", "# exit status 2"):
        with pytest.raises(AssertionError):
            run_page(blocks_of(tmp_path / "page.md", text.replace(wrong, "x y")), slow=False)
    with pytest.raises(AssertionError, match="no-run"):
        run_command(["rm", "-r", "x"], 0)


def test_dead_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A Heading, here\n")
    text = (
        "# Top\n[a](there.md) [b](there.md#a-heading-here) [c](#top) [d](https://example.org)\n"
        "`[code](nowhere.md)`\n```\n[code](nowhere.md)\n```\n[e](nowhere.md) [f](there.md#no) [g](#no)\n"
    )
    (tmp_path / "page.md").write_text(text)
    assert dead_links(tmp_path / "page.md", text) == ["nowhere.md", "there.md#no", "#no"]
