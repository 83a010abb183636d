"""The command ``compare``."""

from __future__ import annotations

import click

from secure_fedgraph.cli.options import OF_RUNS, options, work

COMPARE_EXAMPLES = """
\b
Examples:
  secure-fedgraph compare --algorithm fedsage,fedavg --data pubmed --clients 200 --epsilon 1,8,inf --seeds 3
  secure-fedgraph compare --algorithm fedsage --policy plaintext,masked,homomorphic --rounds 5 --attack a1,a4
  secure-fedgraph compare --data pubmed --unit node --epsilon 1,2,4,8
"""


@click.command(epilog=COMPARE_EXAMPLES)
@options("policy", policy={"help": "Policies, by commas; distributed_dp with a budget, else strictest."})
@click.option("--attack", help="Attacks to run under each point, by commas; none by default.")
@click.option(
    "--skip-without-graph", is_flag=True, help="Do not run each budget once more where nothing reads a link."
)
@options("workers", *OF_RUNS, epsilon={"type": str})
@work("comparing")
def compare() -> None:
    """Accuracy under privacy, side by side: algorithms, policies, budgets, seeds; resumable."""
