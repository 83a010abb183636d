"""The commands of a silo's whole life."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from secure_fedgraph.cli.options import schema_option
from secure_fedgraph.cli.screen import loading

_PATH = click.Path(path_type=Path)
_FOLDER = click.argument("folder", type=_PATH)
_FILE = click.argument("file", type=_PATH)
_DATA = click.option(
    "--data",
    required=True,
    metavar="PLACE",
    help="Your own data: a folder, NODES.csv,EDGES.csv, a .pt file or module:function.",
)
debug = click.option("--debug", is_flag=True, help="Show a traceback with an error.")

EXAMPLES = """
\b
A silo's life:
  secure-fedgraph silo keygen my-silo --name bank-a --data bank-a/    # send my-silo/card.toml to the operator
  secure-fedgraph silo check my-silo federation.toml --data bank-a/   # what would leave, at which epsilon
  secure-fedgraph silo approve my-silo federation.toml
  secure-fedgraph silo start my-silo --data bank-a/
  secure-fedgraph silo ledger my-silo
"""

DESCRIBE_EXAMPLES = """
\b
Examples:
  secure-fedgraph silo describe bank-a/ --label GoodCustomer --out schema.toml
  secure-fedgraph silo describe accounts.csv,transfers.csv --label fraud --task link-classes
"""
CHECK_EXAMPLES = """
\b
Examples:
  secure-fedgraph silo check my-silo federation.toml --data bank-a/
  secure-fedgraph silo check bank-b/ --schema schema.toml
"""


@click.group(epilog=EXAMPLES)
def silo() -> None:
    """Take part in a federation with your own data, on your own machine."""


@silo.command("describe", epilog=DESCRIBE_EXAMPLES)
@click.argument("place", metavar="FOLDER-OR-NODES.csv[,EDGES.csv]")
@click.option("--out", type=_PATH, default=Path("schema.toml"), show_default=True, help="The file to write.")
@click.option("--label", metavar="NAME", help="The column of labels; 'label' by default.")
@click.option("--task", help="What is learned: classes, labels, number, links or link-classes.")
@click.option("--positive", metavar="CLASS", help="Of two classes, the one that scores are of.")
@click.option("--id", "ident", metavar="NAME", help="The column that names rows; 'id' by default.")
@debug
def describe(**given: Any) -> None:
    """Draft a schema from your own tables: what each column means, and what publishing that gives away."""
    loading(given)
    from secure_fedgraph.cli import siloing

    siloing.describe(**given)


@silo.command("keygen")
@_FOLDER
@click.option("--name", required=True, help="The silo's name: letters, digits, '-', '_' and '.'.")
@_DATA
@click.option("--rows", help="For columns of the same rows as other silos: the column of row names.")
@schema_option
@debug
def keygen(**given: Any) -> None:
    """Make this silo's keys, and card.toml for the operator: public keys and what the data are like."""
    loading(given)
    from secure_fedgraph.cli import siloing

    siloing.keygen(**given)


@silo.command("check", epilog=CHECK_EXAMPLES)
@_FOLDER
@click.argument("file", type=_PATH, required=False)
@click.option("--data", metavar="PLACE", help="Your own data, as 'silo keygen' had them.")
@schema_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@debug
def check(**given: Any) -> None:
    """Print what would leave under a federation's FILE, for whom, at which epsilon. Nothing is sent.

    Where the file has a schema, your tables are held to it, a line a column. Without a FILE, the folder (or
    NODES.csv,EDGES.csv) is held to --schema.
    """
    loading(given)
    from secure_fedgraph.cli import siloing

    siloing.check(**given)


@silo.command("approve")
@_FOLDER
@_FILE
@click.option(
    "--digest", help="The digest that the operator told you by another way; it has to be the file's."
)
@debug
def approve(**given: Any) -> None:
    """Take part under a federation's file, and under no other."""
    loading(given)
    from secure_fedgraph.cli import siloing

    siloing.approve(**given)


@silo.command("start")
@_FOLDER
@_DATA
@debug
def start(**given: Any) -> None:
    """Answer the federation's server until you end it. Keys, ledger and memory stay in the folder."""
    loading(given)
    from secure_fedgraph.cli import siloing

    siloing.start(**given)


@silo.command("align")
@_FOLDER
@_DATA
@debug
def align(**given: Any) -> None:
    """Agree with the other silos on the common rows, without showing any other (vertical federations)."""
    loading(given)
    from secure_fedgraph.cli import siloing

    siloing.align(**given)


@silo.command("status")
@_FOLDER
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@debug
def status(**given: Any) -> None:
    """Print who this silo is, what it approved, and how far it came."""
    loading(given)
    from secure_fedgraph.cli import siloing

    siloing.status(**given)


@silo.command("ledger")
@_FOLDER
@click.option("--delta", type=float, default=1e-5, show_default=True, help="Of the epsilons.")
@click.option("--page", type=_PATH, help="Also write a page for people: an HTML file.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@debug
def ledger(**given: Any) -> None:
    """Print what this silo spent, run by run, from its own ledger."""
    loading(given)
    from secure_fedgraph.cli import siloing

    siloing.ledger(**given)
