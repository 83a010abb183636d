"""The commands ``export`` and ``predict``: what a released model is for."""

from __future__ import annotations

from pathlib import Path

import click

from secure_fedgraph.cli.options import options, work

EXPORT_EXAMPLES = """
\b
Example:
  secure-fedgraph export runs/masked --out model.pt
"""
PREDICT_EXAMPLES = """
\b
Examples:
  secure-fedgraph predict runs/banks next-week.csv --out scores.csv
  secure-fedgraph predict runs/banks/released.model nodes.csv edges.csv --threshold best --out scores.csv
  secure-fedgraph predict my-silo/runs/DIGEST nodes.csv edges.csv --out scores.csv
"""


@click.command(epilog=EXPORT_EXAMPLES)
@click.argument("folder", type=click.Path(path_type=Path))
@options(
    *("out", "algorithm", "ledger", "overwrite", "as_json", "debug"),
    out={"required": True, "help": "The file to write."},
    algorithm={"help": "Your own algorithm as module:Class, where the run is of one."},
    ledger={"help": "The ledger that the run shared with others."},
    overwrite={"help": "Replace earlier files."},
)
@work("exporting.exporting")
def export() -> None:
    """Write the released model of a finished run for other programs, and a model card beside it."""


@click.command(epilog=PREDICT_EXAMPLES)
@click.argument("model", metavar="RUN-OR-MODEL", type=click.Path(path_type=Path))
@click.argument("nodes", metavar="NODES.csv")
@click.argument("edges", metavar="[EDGES.csv]", required=False)
@options("out", out={"required": True, "help": "The CSV file to write."})
@click.option(
    "--schema", type=click.Path(path_type=Path), metavar="FILE",
    help="The schema.toml that the model learned by, where it does not hold it.",
)  # fmt: skip
@click.option(
    "--threshold", metavar="NUMBER|best",
    help="From which probability on the positive class is named; best: as the run chose on validation nodes.",
)  # fmt: skip
@options(
    *("algorithm", "overwrite", "as_json", "debug"),
    algorithm={"help": "Your own algorithm as module:Class, where the model is of one."},
    overwrite={"help": "Replace an earlier file."},
)
@work("predicting.predicting")
def predict() -> None:
    """Score a table by a released model: a row a node, with what is predicted and a score a class."""
