"""The commands ``run`` and ``resume``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from secure_fedgraph.cli.options import experiment_options, known, silo_option
from secure_fedgraph.cli.screen import loading

RUN_EXAMPLES = """
\b
Examples:
  secure-fedgraph run --algorithm fedsage --data cora --clients 3 --policy masked --out runs/masked
  secure-fedgraph run --policy local_dp --norm 1.0 --multiplier 1.1 --rounds 10
  secure-fedgraph run --algorithm fedsage --silo bank-a=a/ --silo bank-b=b/ --silo bank-c=c.pt --policy masked
  secure-fedgraph run experiment.toml --set rounds=5 --set training.batch=32
"""


@click.command(epilog=RUN_EXAMPLES)
@click.argument("experiment_file", required=False, type=click.Path(path_type=Path))
@click.option("--policy", callback=known("policies"), help="How uploads are protected; see 'list policies'.")
@experiment_options
@click.option("--verbose", "-v", is_flag=True, help="All tables: metrics, privacy, noise, channels.")
@click.option("--anyway", is_flag=True, help="Run although a budget's noise leaves nothing to learn.")
def run(**given: Any) -> None:
    """Train under a policy and write result.json, report.html and the privacy ledger."""
    loading(given)
    from secure_fedgraph.cli import running

    running.run(**given)


@click.command(epilog="\b\nExample:\n  secure-fedgraph resume runs/masked")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--epsilon", type=float, help="A larger budget; a round that is done again is paid again.")
@click.option(
    "--ledger",
    type=click.Path(path_type=Path),
    help="The ledger that the run shares, where it was begun with one.",
)
@click.option("--device", help="Where it goes on, cpu or cuda; as it was begun by default.")
@click.option("--log", "logging", help="The log that the run was begun with.")
@click.option("--algorithm", help="Your own algorithm as module:Class, where the run is of one.")
@click.option("--data", metavar="PLACE", help="Your own data, where the run is of them.")
@silo_option
@click.option("--quiet", is_flag=True, help="Print nothing but warnings and errors.")
@click.option("--verbose", "-v", is_flag=True, help="All tables: metrics, privacy, noise, channels.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
@click.option("--debug", is_flag=True, help="Show a traceback with an error.")
def resume(**given: Any) -> None:
    """Go on with a run that was killed, or stopped by its budget, after its last whole round."""
    loading(given)
    from secure_fedgraph.cli import running

    running.resume(**given)
