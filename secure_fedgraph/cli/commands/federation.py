"""The command ``federation init``."""

from __future__ import annotations

from pathlib import Path

import click

from secure_fedgraph.cli.options import options, work

INIT_EXAMPLES = """
\b
Example:
  secure-fedgraph federation init bank-a/card.toml bank-b/card.toml bank-c/card.toml \\
      --algorithm fedsage --policy masked --host 192.0.2.10 --out federation.toml
"""
_PATH = click.Path(path_type=Path)


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
@options(
    *("algorithm", "policy", "rounds", "norm", "multiplier", "epsilon", "unit", "against", "delta", "seed"),
    *("allow_plaintext", "assignments"),
    algorithm={"help": "An algorithm's name; see 'list algorithms'."},
    seed={"help": "Of sampling and initialisation."},
    allow_plaintext={"help": "As for 'run'."},
    assignments={"help": "Any other key of an experiment."},
)
@click.option(
    "--cohort", type=click.IntRange(0), default=0, help="How many silos a round asks; all by default."
)
@click.option(
    "--classes", type=click.IntRange(1), help="How many there are, where it is more than labels show."
)
@options("tables")
@click.option("--holders", type=click.IntRange(1), default=1, help="How many silos may hold the same node.")
@options(
    *("out", "debug"),
    out={"default": Path("federation.toml"), "show_default": True, "help": "The file to write."},
)
@work("serving")
def init() -> None:
    """Write federation.toml from the silos' cards, and certificates where you have none.

    The file has the roster, the algorithm, the policy, the budget and the rounds. Give it to every silo.
    """
