"""The commands ``list`` and ``report``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from secure_fedgraph.cli.options import options
from secure_fedgraph.cli.screen import to_a_pipe, visible, warn


@click.command(
    "list",
    epilog="\b\nExamples:\n  secure-fedgraph list policies --json\n  secure-fedgraph list fedsage",
)
@click.argument("what", metavar="KIND|NAME")
@options("as_json", "debug", as_json={"help": "One JSON object on stdout."}, debug={"hidden": True})
def list_names(what: str, as_json: bool) -> None:
    """Print what works today: algorithms, policies, attacks, datasets or tables; or all of one name."""
    from secure_fedgraph.cli import listing

    what = what.lower()
    if what in listing.KINDS:
        made: dict[str, Any] = {what: listing.listed(what)}
        registry = listing.REGISTRIES.get(what)
        for sentence in () if registry is None else registry.left_out:
            warn(sentence)
    else:
        made = listing.of_name(what)
    with to_a_pipe():
        if as_json:
            click.echo(json.dumps(made, indent=1))
        elif what in made:
            names = {str(next(iter(row.values()))): str(row["summary"]) for row in made[what]}
            width = max(map(len, names), default=0)
            for name, summary in names.items():
                click.echo(visible(f"{name:{width}}  {summary}".replace("\n", " ")))
        else:
            for key, value in made.items():
                told = ", ".join(map(str, value)) if isinstance(value, list | dict) else str(value)
                click.echo(visible(f"{key}: {told}"))


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
