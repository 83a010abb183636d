"""The commands of a silo's whole life."""

from __future__ import annotations

from pathlib import Path

import click

from secure_fedgraph.cli.options import option, options, work

_PATH = click.Path(path_type=Path)
_FOLDER = click.argument("folder", type=_PATH)
_FILE = click.argument("file", type=_PATH)
_DATA = click.option(
    "--data",
    required=True,
    metavar="PLACE",
    help="Your own data: a folder, NODES.csv,EDGES.csv, a .pt file or module:function.",
)
ON_STDOUT = {"help": "One JSON object on stdout."}

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
@option("debug")
@work("siloing")
def describe() -> None:
    """Draft a schema from your own tables: what each column means, and what publishing that gives away."""


@silo.command("keygen")
@_FOLDER
@click.option("--name", required=True, help="The silo's name: letters, digits, '-', '_' and '.'.")
@_DATA
@click.option("--rows", help="For columns of the same rows as other silos: the column of row names.")
@options("tables", "debug")
@work("siloing")
def keygen() -> None:
    """Make this silo's keys, and card.toml for the operator: public keys and what the data are like."""


@silo.command("check", epilog=CHECK_EXAMPLES)
@_FOLDER
@click.argument("file", type=_PATH, required=False)
@click.option("--data", metavar="PLACE", help="Your own data, as 'silo keygen' had them.")
@options("tables", "as_json", "debug", as_json=ON_STDOUT)
@work("siloing")
def check() -> None:
    """Print what would leave under a federation's FILE, for whom, at which epsilon. Nothing is sent.

    Where the file has a schema, your tables are held to it, a line a column. Without a FILE, the folder (or
    NODES.csv,EDGES.csv) is held to --schema.
    """


@silo.command("approve")
@_FOLDER
@_FILE
@click.option(
    "--digest", help="The digest that the operator told you by another way; it has to be the file's."
)
@option("debug")
@work("siloing")
def approve() -> None:
    """Take part under a federation's file, and under no other."""


@silo.command("start")
@_FOLDER
@_DATA
@option("debug")
@work("siloing")
def start() -> None:
    """Answer the federation's server until you end it. Keys, ledger and memory stay in the folder."""


@silo.command("align")
@_FOLDER
@_DATA
@option("debug")
@work("siloing")
def align() -> None:
    """Agree with the other silos on the common rows, without showing any other (vertical federations)."""


@silo.command("status")
@_FOLDER
@options("as_json", "debug", as_json=ON_STDOUT)
@work("siloing")
def status() -> None:
    """Print who this silo is, what it approved, and how far it came."""


@silo.command("ledger")
@_FOLDER
@click.option("--delta", type=float, default=1e-5, show_default=True, help="Of the epsilons.")
@options("as_json", "debug", as_json=ON_STDOUT)
@work("siloing")
def ledger() -> None:
    """Print what this silo spent, run by run, from its own ledger."""
