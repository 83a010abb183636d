"""The commands ``federation init`` and ``federation show``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from secure_fedgraph.cli.options import known, schema_option
from secure_fedgraph.cli.screen import loading

INIT_EXAMPLES = """
\b
Example:
  secure-fedgraph federation init bank-a/card.toml bank-b/card.toml bank-c/card.toml \\
      --algorithm fedsage --policy masked --host 192.0.2.10 --out federation.toml
"""
_PATH = click.Path(path_type=Path)
debug = click.option("--debug", is_flag=True, help="Show a traceback with an error.")


@click.group()
def federation() -> None:
    """What a federation of silos does, in a file that each silo approves."""


@federation.command("init", epilog=INIT_EXAMPLES)
@click.argument("cards", nargs=-1, required=True, type=_PATH)
@click.option("--name", default="federation", show_default=True, help="The federation's name, for people.")
@click.option("--host", required=True, help="The name or address under which silos reach the server.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=9092, show_default=True, help="The server's port."
)
@click.option(
    "--authority", type=_PATH, help="The PEM certificate that signed the server's; one is made otherwise."
)
@click.option("--algorithm", callback=known("algorithms"), help="An algorithm's name; see 'list algorithms'.")
@click.option("--policy", callback=known("policies"), help="How uploads are protected; see 'list policies'.")
@click.option("--rounds", type=int, help="Training rounds; the algorithm's own number by default.")
@click.option("--norm", type=float, help="The clip: an L2 norm.")
@click.option("--multiplier", type=float, help="Noise standard deviation over sensitivity.")
@click.option("--epsilon", type=float, help="A privacy budget; noise is planned from it.")
@click.option("--unit", help="Whose data: client, graph, node, edge, label or feature.")
@click.option("--against", help="Whom it holds against: server, peers or outsider.")
@click.option("--delta", type=float, help="For every printed epsilon (1e-5).")
@click.option("--seed", type=int, help="Of sampling and initialisation.")
@click.option("--allow-plaintext", is_flag=True, default=None, help="As for 'run'.")
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any other key of an experiment."
)
@click.option(
    "--cohort", type=click.IntRange(0), default=0, help="How many silos a round asks; all by default."
)
@click.option(
    "--classes", type=click.IntRange(1), help="How many there are, where it is more than labels show."
)
@schema_option
@click.option("--holders", type=click.IntRange(1), default=1, help="How many silos may hold the same node.")
@click.option(
    "--out", type=_PATH, default=Path("federation.toml"), show_default=True, help="The file to write."
)
@debug
def init(**given: Any) -> None:
    """Write federation.toml from the silos' cards, and certificates where you have none.

    The file has the roster, the algorithm, the policy, the budget and the rounds. Give it to every silo.
    """
    loading(given)
    from secure_fedgraph.cli import federating

    federating.init(**given)


@federation.command("show", epilog="\b\nExample:\n  secure-fedgraph federation show federation.toml")
@click.argument("file", type=_PATH)
@debug
def show(file: Path, debug: bool) -> None:
    """Print a file's digest, and what it says."""
    loading({})
    from secure_fedgraph.cli import federating

    federating.show(file)
