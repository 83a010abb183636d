"""The command ``budget``."""

from __future__ import annotations

from typing import Any

import click

from secure_fedgraph.cli.options import options

EXAMPLES = """
\b
Examples:
  secure-fedgraph budget --noise-multiplier 1 --sampling-rate 0.01 --steps 1000 --delta 1e-5
  secure-fedgraph budget --noise-multiplier 69.1 --sampling-rate 0.032 --steps 1000 \\
      --unit node --occurrences 43
  secure-fedgraph budget --epsilon 8 --sampling-rate 0.01 --steps 1000     # the noise that it needs
"""


UNITS = ("record", "graph", "client", "node", "edge")
RELATIONS = ("zero-out", "add-remove", "replace")


@click.command(epilog=EXAMPLES)
@click.option(
    "--noise-multiplier", type=float, help="Standard deviation of the noise on the sum, over the clip."
)
@click.option("--epsilon", type=float, help="A budget: prints the noise that it needs.")
@click.option(
    "--sampling-rate", "rate", type=float, default=1.0, show_default=True, help="Poisson rate of a step."
)
@click.option("--steps", type=int, required=True, help="How many steps.")
@click.option("--delta", type=float, default=1e-5, show_default=True, help="The failure probability.")
@click.option(
    "--unit", type=click.Choice(UNITS), default="record", show_default=True, help="Who is protected."
)
@click.option(
    "--relation",
    type=click.Choice(RELATIONS),
    default="zero-out",
    show_default=True,
    help="Which data sets are neighbours.",
)
@click.option(
    "--occurrences",
    type=int,
    help="Records that change at most where one unit is removed (docs/guarantees.md).",
)
@click.option("--records", type=int, help="How many records there are; warns of a delta that is too large.")
@options("as_json", "debug")
def budget(noise_multiplier: float | None, epsilon: float | None, as_json: bool, **asked: Any) -> None:
    """Print what DP-SGD with this noise costs, or the noise that a budget needs."""
    from secure_fedgraph.cli.budgets import budgeting

    budgeting.budget(budgeting.Training(**asked), noise_multiplier, epsilon, as_json)
