"""What a command shows: a progress bar, tables at the end, or one JSON object."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from secure_fedgraph.core.text import printable

if TYPE_CHECKING:
    from secure_fedgraph.experiment.config import Experiment


class PlainConsole(Console):
    """A terminal on which names, paths and other people's sentences are only text.

    Brackets in them are no markup, and nothing in them steers the terminal.
    """

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False)

    def print(self, *shown: Any, **given: Any) -> None:
        """Prints; no table cuts a name, and one that goes into a pipe or a file has no lines around it."""
        for one in shown:
            if isinstance(one, Table):
                for column in one.columns:
                    column.overflow = "fold"
                if not self.is_terminal:
                    one.box = None
        super().print(*shown, **given)

    def render_str(self, text: str, **given: Any) -> Text:
        return super().render_str(visible(text), **given)  # before its width is measured

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


Cells = Sequence[str | Text]


def table_of(title: str, heads: Sequence[str], rows: Iterable[Cells], whole: Sequence[str] = ()) -> Table:
    """A table with its rows.

    Args:
        whole: heads of columns that are never wrapped.
    """
    table = Table(title=title)
    for head in heads:
        table.add_column(head, no_wrap=head in whole)
    for row in rows:
        table.add_row(*row)
    return table


def visible(text: str) -> str:
    """Lines without anything that steers a terminal.

    >>> visible("red: \x1b[31m\\nnext")
    'red: ?[31m\\nnext'
    """
    return "\n".join(printable(line, len(line)) for line in text.split("\n"))


class Screen:
    """What the user sees: a progress bar on a terminal, tables at the end, or one JSON object."""

    def __init__(self, flags: dict[str, Any]) -> None:
        self._json, self._quiet = flags["as_json"], flags["quiet"]
        self.shows_tables = not self._json and not self._quiet
        self.verbose = bool(flags.get("verbose"))
        self._console = PlainConsole(stderr=True)

    @contextmanager
    def bar(self, text: str, total: int) -> Iterator[Callable[..., None]]:
        hidden = not self.shows_tables or not self._console.is_terminal
        described = TextColumn("{task.description}", markup=False)
        reached = TextColumn("{task.fields[score]}", markup=False)
        columns = (described, BarColumn(None), MofNCompleteColumn(), reached, TimeRemainingColumn())
        with Progress(*columns, console=self._console, disable=hidden, transient=True) as progress:
            task = progress.add_task(text, total=total, score="")

            def advance(note: object = None) -> None:
                description = note if isinstance(note, str) else None
                progress.update(task, advance=1, description=description, score=_reached(note))

            yield advance

    def note(self, text: str) -> None:
        """One line on standard error, before work that takes a while."""
        if not self._quiet:
            self._console.print(text, soft_wrap=True)

    def lead(self, text: str) -> None:
        """The first line of output: what is about to run. JSON says it by its keys."""
        if self.shows_tables:
            with to_a_pipe():
                click.echo(visible(text))

    def say(self, text: str, result: dict[str, Any]) -> None:
        """One line, or the result as JSON."""
        with to_a_pipe():
            if self._json:
                click.echo(json.dumps(result))
            elif not self._quiet:
                click.echo(visible(text))

    def finish(self, result: dict[str, Any], tables: list[Any], page: Path) -> None:
        """Tables and where the page is, or the result as JSON."""
        if not self.shows_tables:
            self.say("", result)
            return
        with to_a_pipe():
            console = PlainConsole()
            for table in tables:
                console.print(table)
            console.print(f"Report: {page}", soft_wrap=True)


def _reached(row: object) -> str:
    """The score of a round, where a row of one is given.

    >>> _reached({"accuracy": {"local": 0.5, "global": 0.75}}), _reached("next")
    ('global 0.750', '')
    """
    scores = row.get("accuracy") if isinstance(row, dict) else None
    numbers = {k: v for k, v in (scores or {}).items() if isinstance(v, int | float)}
    shown = next((k for k in ("global", "auc", "mae", "local") if k in numbers), None)
    return "" if shown is None else f"{shown} {numbers[shown]:.3f}"


def loading(flags: Mapping[str, Any]) -> None:
    """Says on a terminal that something happens, before torch is imported: that takes seconds."""
    if not flags.get("as_json") and not flags.get("quiet") and sys.stderr.isatty():
        click.echo("loading torch and the data ...", err=True)


@contextmanager
def to_a_pipe() -> Iterator[None]:
    """Output whose reader may leave early, as ``head`` does: what is computed and written goes on."""
    try:
        yield
    except BrokenPipeError:
        leave_the_pipe()
    except SystemExit:  # what rich makes of a broken pipe
        leave_the_pipe()


def leave_the_pipe() -> None:
    """Whatever else is printed goes nowhere, so that Python's last flush finds no broken pipe."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def warn(text: str) -> None:
    """A warning in one line on standard error."""
    click.echo(f"secure-fedgraph: warning: {visible(text)}", err=True)


def say_of_data(experiment: Experiment) -> set[str]:
    """Says once what there is to say of own data, which many runs read; returns what was said."""
    from secure_fedgraph.experiment.results import make_federation

    said: set[str] = set()
    if experiment.silos or experiment.own_data:
        with plain_warnings(said):
            make_federation(experiment)
    return said


@contextmanager
def said_later() -> Iterator[None]:
    """In it, nothing is said about data that are read: whatever runs on them says it."""
    from secure_fedgraph.graph.data.own_graph import DataWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        yield


@contextmanager
def plain_warnings(said: set[str] | None = None) -> Iterator[None]:
    """Channels in plaintext, deltas, budgets, data, cut uploads, clients left out: each once, in one line.

    Args:
        said: what was said before, which is not said again.
    """
    from secure_fedgraph.core.protection.bound import CutWarning
    from secure_fedgraph.graph.data.own_graph import DataWarning
    from secure_fedgraph.privacy.budget_warnings import DeltaWarning, EarlyStopWarning
    from secure_fedgraph.privacy.policy import PlaintextWarning
    from secure_fedgraph.protocol.courier import LeftOutWarning

    shown = set() if said is None else said

    def say(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            warn(str(message))

    with warnings.catch_warnings():
        kinds = (DataWarning, PlaintextWarning, DeltaWarning, EarlyStopWarning, CutWarning, LeftOutWarning)
        for kind in kinds:
            warnings.simplefilter("always", kind)
        warnings.showwarning = say
        yield
