"""``report.html``: one self-contained page for what a folder holds, and its pictures as files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, TemplateError

from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.schema import (
    AuditResult,
    BenchResult,
    CompareResult,
    DemoResult,
    RunResult,
    of_kind,
    read,
)
from secure_fedgraph.report import text
from secure_fedgraph.report.figures.svg import Picture
from secure_fedgraph.report.first_screens.key_figure import factor
from secure_fedgraph.report.sections.audit_page import audit_story
from secure_fedgraph.report.sections.bench_page import bench_story, board_story
from secure_fedgraph.report.sections.compare_page import compare_story
from secure_fedgraph.report.sections.demo_page import demo_story
from secure_fedgraph.report.sections.officer_page import officer_story
from secure_fedgraph.report.sections.parts import Story
from secure_fedgraph.report.sections.run_page import run_story

Result = RunResult | AuditResult | CompareResult | DemoResult | BenchResult
# The first file found is what the folder is about: an audit of a finished run leaves both.
KINDS: dict[str, tuple[str, type[Result], Callable[[Any], Story]]] = {
    "compare": ("compare.json", CompareResult, compare_story),
    "audit": ("audit.json", AuditResult, audit_story),
    "run": ("result.json", RunResult, run_story),
    "demo": ("demo.json", DemoResult, demo_story),
    "bench": ("bench.json", BenchResult, bench_story),
}


def write_report(folder: Path) -> Path:
    """Writes ``report.html`` and ``plots/*.png`` from the JSON in a folder.

    **Guarantees:**
        - the page fetches nothing, and every value from the JSON is escaped;
        - the same JSON gives the same page, byte for byte; a crash leaves the old page or the new one.

    Args:
        folder: of a finished run or audit.

    Returns:
        The page's path.

    Raises:
        BadInput: where the folder holds neither, or a file that this version cannot read.
    """
    folder = Path(folder)
    page, drawn = render_page(_load(folder), folder)
    plots = files.private_folder(folder / "plots", folder)
    for stale in set(plots.glob("*.png")) - {plots / f"{p.name}.png" for p in drawn}:
        files.remove(stale, folder)
    for picture in drawn:
        files.write(plots / f"{picture.name}.png", [picture.png], private=False, root=folder)
    files.write(folder / "report.html", [page.encode("utf-8", errors="replace")], private=False)
    return folder / "report.html"


def write_officer_page(folder: Path, signed: str, opened: Sequence[int] = ()) -> Path:
    """Writes ``officer.html``: a run's promises, measurements and gaps for who has to sign.

    Args:
        folder: of a finished run; where ``audit.json`` lies beside its result, it says what attacks read.
        signed: which key signs the folder, in a sentence.
        opened: rounds whose uploads an auditor read in a dispute, or may.

    Raises:
        BadInput: for a folder of no run, an audit of another run, and as :func:`write_report`.
    """
    if not (folder / KINDS["run"][0]).exists():
        raise BadInput(f"{folder} holds no {KINDS['run'][0]}: give the folder of one finished run")
    result = _read(folder, "run")
    audit = _read(folder, "audit") if (folder / KINDS["audit"][0]).exists() else None
    page, _ = _rendered(
        "officer", folder / KINDS["run"][0], lambda: officer_story(result, audit, signed, opened)
    )
    files.write(folder / "officer.html", [page.encode("utf-8", errors="replace")], private=False)
    return folder / "officer.html"


def render_page(result: Result, folder: Path) -> tuple[str, list[Picture]]:
    """The page's text and its pictures.

    Raises:
        BadInput: for values that no run, audit or comparison writes, naming the file.
    """
    kind, (name, _, tell) = next(one for one in KINDS.items() if isinstance(result, one[1][1]))
    return _rendered(kind, folder / name, lambda: tell(result))


def write_board(submitted: Sequence[tuple[str, BenchResult]], out: Path) -> Path:
    """Writes one page of several ``bench.json``, with :func:`write_report`'s guarantees.

    Args:
        submitted: each under the name that its rows show.

    Raises:
        BadInput: for files of different suites, and for values that no bench writes.
    """
    page, _ = _rendered("bench", out, lambda: board_story(submitted))
    files.write(out, [page.encode("utf-8", errors="replace")], private=False)
    return out


def _rendered(kind: str, source: Path, tell: Callable[[], Story]) -> tuple[str, list[Picture]]:
    try:
        story = tell()
        return _environment().get_template(f"{kind}.html").render(**story.told), story.pictures
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TemplateError,
        TypeError,
        ValueError,
    ) as error:
        if isinstance(error, BadInput):
            raise
        what = f"key {error}" if isinstance(error, KeyError) else str(error).partition("\n")[0][:120]
        raise BadInput(
            f"{source} holds values that cannot be shown ({what}): put a copy back, or "
            f"write it again with 'secure-fedgraph {source.stem.replace('result', 'run')}'"
        ) from error


def _load(folder: Path) -> Result:
    """What the folder is about, checked against its model: blanks would look like a result."""
    for kind, (name, *_) in KINDS.items():
        if (folder / name).exists():
            found: Result = _read(folder, kind)
            return found
    names = ", no ".join(name for name, *_ in KINDS.values())
    raise BadInput(f"{folder} holds no {names}: give the folder of a finished run, audit, comparison or demo")


def _read(folder: Path, kind: str) -> Any:
    name, model, _ = KINDS[kind]
    return read(model, of_kind(folder / name, kind, partial(files.read, folder / name)), folder / name)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("secure_fedgraph.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    tellers = (text.percent, text.share, text.count, text.size, text.seconds, text.epsilon, text.sentence)
    for tell in (*tellers, text.spread, text.plain, text.scientific):
        environment.filters[tell.__name__] = tell
    for name in ("UNITS", "READERS", "REVEALS", "DOMAINS", "DATA"):
        environment.filters[name.lower()] = partial(text.named, getattr(text, name))
    environment.filters["factor"] = factor
    environment.tests["bounded"] = text.bounded
    return environment
