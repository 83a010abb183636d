"""The commands ``list`` and ``report``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from secure_fedgraph.cli import names, tables
from secure_fedgraph.cli.screen import PlainConsole, to_a_pipe, warn
from secure_fedgraph.errors import unknown_name


@click.command("list", epilog="\b\nExample:\n  secure-fedgraph list policies --json")
@click.argument("what", type=str)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.option("--debug", is_flag=True, hidden=True)
def list_names(what: str, as_json: bool, debug: bool) -> None:
    """Print what works today: algorithms, policies, attacks, datasets or tables."""
    what = what.lower()
    if what not in names.KINDS:
        raise unknown_name("list", what, names.KINDS)
    rows = names.listed(what, warn)
    if as_json:
        click.echo(json.dumps({what: rows}, indent=1))
    else:
        with to_a_pipe():
            PlainConsole().print(tables.listing_table(what, rows))


@click.command(epilog="\b\nExample:\n  secure-fedgraph report runs/masked")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--debug", is_flag=True, hidden=True)
def report(folder: Path, debug: bool) -> None:
    """Rebuild report.html from the JSON in a folder."""
    from secure_fedgraph.audits.conformance.printed import check_printed
    from secure_fedgraph.report.page import write_report

    check_printed(folder)
    click.echo(write_report(folder))
