"""The command ``demo``."""

from __future__ import annotations

from pathlib import Path

import click

from secure_fedgraph.cli.options import options, work

EXAMPLES = """
\b
Example:
  secure-fedgraph demo --out demo
"""


@click.command(epilog=EXAMPLES)
@options(
    *("data", "seed", "out", "overwrite", "quiet", "as_json", "debug"),
    data={"default": "cora", "help": "Nodes with words as features (cora)."},
    seed={"type": click.IntRange(0), "default": 0, "help": "Of data, models and attacks."},
    out={"default": Path("demo"), "help": "A folder for the page."},
    overwrite={"help": "Replace what the folder holds."},
)
@work("demonstrating", quietly=True)
def demo() -> None:
    """See a leak, see it stop, and see what that costs: real data, three owners, half a minute."""
