"""The commands of the board: bench, bench verify, bench page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from secure_fedgraph.cli.options import options, work

_PATH = click.Path(path_type=Path)
EXAMPLES = """
\b
Examples:
  secure-fedgraph bench --quick --out runs/bench
  secure-fedgraph bench --task cora-nodes --algorithm my.module:Mine,fedridge --out runs/mine
  secure-fedgraph bench verify runs/mine/bench.json --algorithm my.module:Mine
  secure-fedgraph bench page runs/*/bench.json --out board.html
"""
_ALGORITHM = click.option(
    "--algorithm", metavar="NAMES", help="In place of each task's own, by commas; your own as module:Class."
)


@click.group(epilog=EXAMPLES, invoke_without_command=True)
@click.option("--quick", is_flag=True, help="One partition, seed, budget and algorithm a task: ten minutes.")
@click.option("--task", metavar="NAMES", help="Only these tasks, by commas.")
@_ALGORITHM
@click.option("--attack", metavar="NAMES", help="In place of each task's own, by commas, or module:Class.")
@options(
    *("workers", "engine", "out", "quiet", "as_json", "debug"),
    out={"default": Path("runs/bench"), "show_default": True, "help": "The folder of all runs."},
)
@click.pass_context
def bench(context: click.Context, /, **given: Any) -> None:
    """Run a fixed suite of tasks, or check and show what others' files say of it; resumable."""
    if context.invoked_subcommand is None:
        work("comparing.benching:bench")(lambda: None)(**given)


@bench.command(epilog="\b\nExample:\n  secure-fedgraph bench verify theirs/bench.json")
@click.argument("file", type=_PATH)
@_ALGORITHM
@click.option("--seed", "draw", type=click.IntRange(0), help="Draws the same runs again.")
@options("workers", "engine", "quiet", "as_json", "debug")
@work("comparing.benching")
def verify() -> None:
    """Check that a file is as it was signed, and make a random tenth of its runs again.

    Status 4 where they come out otherwise.
    """


@bench.command(epilog="\b\nExample:\n  secure-fedgraph bench page a/bench.json b/bench.json --out board.html")
@click.argument("file", type=_PATH, nargs=-1, required=True)
@options(
    *("out", "debug"), out={"default": Path("board.html"), "show_default": True, "help": "The page to write."}
)
@work("comparing.benching")
def page() -> None:
    """Make the board of several files: a table that sorts, and accuracy, epsilon and leak in one picture."""
