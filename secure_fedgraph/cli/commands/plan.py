"""The command ``plan``."""

from __future__ import annotations

import click

from secure_fedgraph.cli.options import options, work

EXAMPLES = """
\b
Examples:
  secure-fedgraph plan --data pubmed --clients 10 --unit node --epsilon 1
  secure-fedgraph plan --data proteins --clients 10 --unit graph --epsilon 4 --policy local_dp --json
"""

UNITS = ("node", "graph", "client", "edge", "label", "feature")
POLICIES = ("distributed_dp", "local_dp", "central_dp")


@click.command(epilog=EXAMPLES)
@options(
    *(
        "data",
        "clients",
        "unit",
        "epsilon",
        "delta",
        "policy",
        "partition",
        "seed",
        "assignments",
        "as_json",
        "debug",
    ),
    data={"help": "A data set's name; see 'list datasets'."},
    clients={"help": "How many owners; 3 by default."},
    unit={"type": click.Choice(UNITS), "required": True, "help": "Whose data is protected."},
    epsilon={"required": True, "help": "The budget of a whole run."},
    delta={"help": "The failure probability (1e-5)."},
    policy={
        "type": click.Choice(POLICIES),
        "help": "Where noise is added; by default distributed_dp, or in the clients' steps where that is "
        "less.",
    },
    partition={"help": "How data are handed out; louvain by default, random for sets of graphs."},
    seed={"help": "Of the partition."},
    assignments={"help": "Any key of an experiment."},
)
@work("budgets.planning")
def plan() -> None:
    """Print which algorithm a budget is worth most to, in which form and with how much noise."""
