"""The command ``reproduce``."""

from __future__ import annotations

from pathlib import Path

import click

from secure_fedgraph.cli.options import options, work

EXAMPLES = """
\b
Examples:
  secure-fedgraph list tables
  secure-fedgraph reproduce fedsage-2 --seeds 1
  secure-fedgraph reproduce fedego-2 --only fedego --only fedavg --seeds 2
"""


@click.command(epilog=EXAMPLES)
@click.argument("table")
@click.option(
    "--seeds", type=click.IntRange(1, 1000), help="Seeds 0 to N - 1; the paper's number by default."
)
@click.option("--only", multiple=True, metavar="WORD", help="Cells whose row or column holds it; repeatable.")
@click.option("--finished", is_flag=True, help="Print what earlier calls finished, and run nothing.")
@options(
    *("workers", "out", "as_json", "quiet", "debug"),
    out={"default": Path("runs/reproduce"), "show_default": True, "help": "The folder of all tables' runs."},
    quiet={"help": "Print errors only."},
    debug={"hidden": True},
)
@work("reproducing")
def reproduce() -> None:
    """Make a table of a paper, and print ours beside the paper's; resumable.

    Nothing protects these runs: they are the papers' own figures. TABLE.json in the folder has every cell
    with its seeds, standard error, tolerance and configuration.
    """
