"""The command ``demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from secure_fedgraph.cli.options import known

EXAMPLES = """
\b
Example:
  secure-fedgraph demo --out demo
"""


@click.command(epilog=EXAMPLES)
@click.option(
    "--data", default="cora", callback=known("datasets"), help="Nodes with words as features (cora)."
)
@click.option("--seed", type=click.IntRange(0), default=0, help="Of data, models and attacks.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("demo"), help="A folder for the page.")
@click.option("--overwrite", is_flag=True, help="Replace what the folder holds.")
@click.option("--quiet", is_flag=True, help="Print nothing but warnings and errors.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
@click.option("--debug", is_flag=True, help="Show a traceback with an error.")
def demo(**given: Any) -> None:
    """See a leak, see it stop, and see what that costs: real data, three owners, half a minute."""
    from secure_fedgraph.cli.demonstration import showing

    showing.demo(**given)
