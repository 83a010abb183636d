"""The commands ``budget`` and ``plan``: what noise costs, and which algorithm a budget is worth most to."""

from __future__ import annotations

import click

from secure_fedgraph.cli.options import options, work

BUDGET_EXAMPLES = """
\b
Examples:
  secure-fedgraph budget --noise-multiplier 1 --sampling-rate 0.01 --steps 1000 --delta 1e-5
  secure-fedgraph budget --noise-multiplier 69.1 --sampling-rate 0.032 --steps 1000 \\
      --unit node --occurrences 43
  secure-fedgraph budget --epsilon 8 --sampling-rate 0.01 --steps 1000     # the noise that it needs
"""


@click.command(epilog=BUDGET_EXAMPLES)
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
    "--unit",
    type=click.Choice(("record", "graph", "client", "node", "edge")),
    default="record",
    show_default=True,
    help="Who is protected.",
)
@click.option(
    "--relation",
    type=click.Choice(("zero-out", "add-remove", "replace")),
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
@work("budgets.budgeting", quietly=True)
def budget() -> None:
    """Print what DP-SGD with this noise costs, or the noise that a budget needs."""


PLAN_EXAMPLES = """
\b
Examples:
  secure-fedgraph plan --data pubmed --clients 10 --unit node --epsilon 1
  secure-fedgraph plan --data proteins --clients 10 --unit graph --epsilon 4 --policy local_dp --json
"""


@click.command(epilog=PLAN_EXAMPLES)
@options(
    *("data", "clients", "unit", "epsilon", "delta", "policy", "partition", "seed", "assignments"),
    *("as_json", "debug"),
    data={"help": "A data set's name; see 'list datasets'."},
    clients={"help": "How many owners; 3 by default."},
    unit={
        "type": click.Choice(("node", "graph", "client", "edge", "label", "feature")),
        "required": True,
        "help": "Whose data is protected.",
    },
    epsilon={"required": True, "help": "The budget of a whole run."},
    delta={"help": "The failure probability (1e-5)."},
    policy={
        "type": click.Choice(("distributed_dp", "local_dp", "central_dp")),
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
