"""The commands ``list`` and ``report``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from pydantic import JsonValue

from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.cli import names, tables
from secure_fedgraph.cli.options import options
from secure_fedgraph.cli.screen import PlainConsole, to_a_pipe, warn
from secure_fedgraph.core.errors import BadInput

SAYS_WHAT_IT_IS = ("id", "name", "summary", "target", "family", "paper", "package")
"""Of a list's entries: what ``--about`` looks into."""


@click.command(
    "list",
    epilog="\b\nExamples:\n  secure-fedgraph list policies --json\n"
    "  secure-fedgraph list attacks --about labels",
)
@click.argument("what", type=str)
@click.option(
    "--about", "words", multiple=True, metavar="WORD", help="Only what is about this word; repeatable."
)
@options(
    *("verbose", "as_json", "debug"),
    verbose={"help": "All that is known of each."},
    as_json={"help": "One JSON object on stdout."},
    debug={"hidden": True},
)
def list_names(what: str, words: tuple[str, ...], verbose: bool, as_json: bool) -> None:
    """Print what works today: algorithms, policies, attacks, datasets or tables."""
    what = what.lower()
    if what not in names.KINDS:
        raise unknown_name("list", what, names.KINDS)
    rows = [row for row in names.listed(what, warn) if _is_about(row, words)]
    if not rows:
        raise BadInput(f"--about {' '.join(words)}: none of the {what} is about it: leave it out to see all")
    if as_json:
        click.echo(json.dumps({what: rows}, indent=1))
        return
    with to_a_pipe():
        if verbose:
            PlainConsole().print(tables.listing_table(what, rows))
        else:
            click.echo("\n".join(tables.listing_lines(rows)))


def _is_about(row: Mapping[str, JsonValue], words: Sequence[str]) -> bool:
    """Whether what a row says of itself has every word, in whatever case and number."""
    text = json.dumps({key: row[key] for key in SAYS_WHAT_IT_IS if key in row}).lower()
    return all(word.lower().removesuffix("s") in text for word in words)


@click.command(epilog="\b\nExample:\n  secure-fedgraph report runs/masked")
@click.argument("folder", type=click.Path(path_type=Path))
@options(
    *("ledger", "debug"),
    ledger={"help": "The ledger that the run shared with others."},
    debug={"hidden": True},
)
def report(folder: Path, ledger: Path | None) -> None:
    """Rebuild report.html from the JSON in a folder."""
    from secure_fedgraph.report.page import write_report
    from secure_fedgraph.storage import manifest

    if what := manifest.unchecked(folder, ledger):
        warn(f"not checked: {what}")
    click.echo(write_report(folder))
