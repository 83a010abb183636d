"""The command ``compare``."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from secure_fedgraph.cli.options import experiment_options, known
from secure_fedgraph.cli.screen import loading

COMPARE_EXAMPLES = """
\b
Examples:
  secure-fedgraph compare --algorithm fedsage,fedavg --data pubmed --clients 200 --epsilon 1,8,inf --seeds 3
  secure-fedgraph compare --algorithm fedsage --policy plaintext,masked,homomorphic --rounds 5 --attack a1,a4
  secure-fedgraph compare --data pubmed --unit node --epsilon 1,2,4,8
"""


@click.command(epilog=COMPARE_EXAMPLES)
@click.option(
    "--policy",
    callback=known("policies"),
    help="Policies, by commas; distributed_dp with a budget, else strictest.",
)
@click.option("--attack", help="Attacks to run under each point, by commas; none by default.")
@click.option(
    "--skip-without-graph", is_flag=True, help="Do not run each budget once more where nothing reads a link."
)
@click.option("--workers", type=click.IntRange(1), help="Processes; one a core by default.")
@partial(experiment_options, epsilon=str)
def compare(**given: Any) -> None:
    """Accuracy under privacy, side by side: algorithms, policies, budgets, seeds; resumable."""
    loading(given)
    from secure_fedgraph.cli import comparing

    comparing.compare(**given)
