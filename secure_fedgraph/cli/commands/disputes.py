"""The command ``dispute``: one round of a masked run, opened to an auditor."""

from __future__ import annotations

from pathlib import Path

import click

from secure_fedgraph.cli.options import options, work

_PATH = click.Path(path_type=Path)
EXAMPLES = """
\b
A simulated run, all owners in its folder:
  secure-fedgraph dispute runs/masked 4
Real silos, each command on its party's machine; the folder of the dispute is handed on:
  secure-fedgraph dispute --keygen auditor.key                   # the auditor; send auditor.key.pub
  secure-fedgraph dispute runs/banks 4 --auditor auditor.key.pub # the operator; makes runs/banks/disputes/…
  secure-fedgraph dispute DISPUTE 4 --sign my-silo               # a quorum of owners
  secure-fedgraph dispute DISPUTE 4 --open my-silo               # every owner; its ledger is charged
  secure-fedgraph dispute DISPUTE 4 --judge auditor.key --federation federation.toml
"""


@click.command(epilog=EXAMPLES)
@click.argument("run", metavar="RUN-OR-DISPUTE", type=_PATH, required=False)
@click.argument("round", type=click.IntRange(1), required=False)
@click.option("--channel", default="", help="Of which sums; where a round has one kind, that one.")
@click.option("--keygen", type=_PATH, metavar="FILE", help="Make an auditor's key, and FILE.pub.")
@click.option("--auditor", type=_PATH, metavar="FILE.pub", help="Begin: who may read the round.")
@click.option("--sign", type=_PATH, metavar="SILO", help="Agree, as the owner of this folder.")
@click.option("--open", "opening", type=_PATH, metavar="SILO", help="Open your upload to the auditor.")
@click.option("--judge", type=_PATH, metavar="FILE", help="Judge what was opened, with the auditor's key.")
@click.option("--federation", type=_PATH, metavar="FILE", help="The file that silos approved.")
@options(
    *("ledger", "algorithm", "data", "silos", "as_json", "debug"),
    ledger={"help": "The ledger that the run shared with others."},
    algorithm={"help": "Your own algorithm as module:Class, where the simulated run is of one."},
    data={"metavar": "PLACE", "help": "Your own data, where the simulated run is of them."},
    as_json={"help": "One JSON object on stdout."},
)
@work("disputing")
def dispute() -> None:
    """Open one round's masked uploads to an auditor, with a quorum of owners, and say who lied."""
