"""The command ``plan``."""

from __future__ import annotations

from typing import Any

import click

from secure_fedgraph.cli.options import known
from secure_fedgraph.cli.screen import loading

EXAMPLES = """
\b
Examples:
  secure-fedgraph plan --data pubmed --clients 10 --unit node --epsilon 1
  secure-fedgraph plan --data proteins --clients 10 --unit graph --epsilon 4 --policy local_dp --json
"""

UNITS = ("node", "graph", "client", "edge", "label", "feature")
POLICIES = ("distributed_dp", "local_dp", "central_dp")


@click.command(epilog=EXAMPLES)
@click.option("--data", callback=known("datasets"), help="A data set's name; see 'list datasets'.")
@click.option("--clients", type=int, help="How many owners; 3 by default.")
@click.option("--unit", type=click.Choice(UNITS), required=True, help="Whose data is protected.")
@click.option("--epsilon", type=float, required=True, help="The budget of a whole run.")
@click.option("--delta", type=float, help="The failure probability (1e-5).")
@click.option(
    "--policy",
    type=click.Choice(POLICIES),
    help="Where noise is added; by default distributed_dp, or in the clients' steps where that is less.",
)
@click.option("--partition", help="How data are handed out; louvain by default, random for sets of graphs.")
@click.option("--seed", type=int, help="Of the partition.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any key of an experiment.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
@click.option("--debug", is_flag=True, help="Show a traceback with an error.")
def plan(**given: Any) -> None:
    """Print which algorithm a budget is worth most to, in which form and with how much noise."""
    loading(given)
    from secure_fedgraph.cli.budgets import planning

    planning.plan(**given)
