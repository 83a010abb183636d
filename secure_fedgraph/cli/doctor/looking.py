"""The work of ``doctor``: looks at everything, prints a line each, and fails where a run would."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Sequence

import click

from secure_fedgraph.cli.doctor import data, machine, packages
from secure_fedgraph.cli.doctor.finding import Finding, Verdict, summary
from secure_fedgraph.cli.screen import to_a_pipe, visible
from secure_fedgraph.core.errors import SecureFedGraphError

WIDEST = 110
COLOURS = {Verdict.OK: "green", Verdict.NOTE: "yellow", Verdict.PROBLEM: "red"}


def doctor(as_json: bool) -> None:
    """Prints what is there and what is missing.

    Raises:
        SecureFedGraphError: where something is missing that every run needs.
    """
    found = [*packages.findings(), *data.findings(), *machine.findings()]
    with to_a_pipe():
        if as_json:
            click.echo(json.dumps(summary(found)))
        else:
            _print(found)
    problems = [one.name for one in found if one.verdict == Verdict.PROBLEM]
    if problems:
        raise SecureFedGraphError(f"runs will fail here until this is mended: {', '.join(problems)}")


def _print(found: Sequence[Finding]) -> None:
    """A line each: verdict, name, what is there; the mend below it. A path stays whole, to be copied."""
    width = min(shutil.get_terminal_size((80, 24)).columns, WIDEST)
    names = max(len(one.name) for one in found) + 2
    group = ""
    for one in found:
        if one.group != group:
            click.secho(("\n" if group else "") + one.group, bold=True)
            group = one.group
        head = click.style(f"  {one.verdict:8}", fg=COLOURS[one.verdict])
        indent = " " * (10 + names)
        texts = [one.there, *([f"mend: {one.mend}"] if one.mend else [])]
        lines = [
            line
            for text in texts
            for line in textwrap.wrap(
                visible(text), max(width - len(indent), 20), break_long_words=False, break_on_hyphens=False
            )
        ]
        click.echo(f"{head}{one.name:{names}}{lines[0] if lines else ''}")
        for line in lines[1:]:
            click.echo(f"{indent}{line}")
    counts = {verdict: sum(one.verdict == verdict for one in found) for verdict in Verdict}
    ok, notes, problems = (counts[verdict] for verdict in Verdict)
    click.echo(f"\n{ok} ok, {notes} notes (optional), {problems} problems")
