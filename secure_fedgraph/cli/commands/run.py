"""The commands ``run`` and ``resume``."""

from __future__ import annotations

from pathlib import Path

import click

from secure_fedgraph.cli.options import OF_RUNS, options, work

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
@options("policy", *OF_RUNS, "verbose")
@click.option("--anyway", is_flag=True, help="Run although a budget's noise leaves nothing to learn.")
@work("running")
def run() -> None:
    """Train under a policy and write result.json, report.html and the privacy ledger."""


@click.command(epilog="\b\nExample:\n  secure-fedgraph resume runs/masked")
@click.argument("folder", type=click.Path(path_type=Path))
@options(
    *("epsilon", "ledger", "device", "algorithm", "data", "silos", "quiet", "verbose", "as_json"),
    "debug",
    epsilon={"help": "A larger budget; a round that is done again is paid again."},
    ledger={"help": "The ledger that the run shares, where it was begun with one."},
    device={"help": "Where it goes on, cpu or cuda; as it was begun by default."},
    algorithm={"help": "Your own algorithm as module:Class, where the run is of one."},
    data={"metavar": "PLACE", "help": "Your own data, where the run is of them."},
)
@work("running")
def resume() -> None:
    """Go on with a run that was killed, or stopped by its budget, after its last whole round."""
