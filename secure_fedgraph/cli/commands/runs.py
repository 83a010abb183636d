"""The commands that run experiments: run, resume, compare, audit, demo, reproduce."""

from __future__ import annotations

from pathlib import Path

import click

from secure_fedgraph.cli.options import OF_RUNS, options, work

RUN_EXAMPLES = """
\b
Examples:
  secure-fedgraph run --algorithm fedsage --data cora --clients 3 --policy masked --out runs/masked
  secure-fedgraph run --policy local_dp --norm 1.0 --multiplier 1.1 --rounds 10
  secure-fedgraph run --algorithm fedsage --silo bank-a=a/ --silo bank-b=b/ --silo bank-c=c.pt --policy masked
  secure-fedgraph run experiment.toml --set rounds=5 --set training.batch=32
"""


@click.command(epilog=RUN_EXAMPLES)
@click.argument("experiment_file", required=False, type=click.Path(path_type=Path))
@options("policy", *OF_RUNS, "verbose")
@click.option("--anyway", is_flag=True, help="Run although a budget's noise leaves nothing to learn.")
@work("running")
def run() -> None:
    """Train under a policy and write result.json, report.html and the privacy ledger."""


@click.command(epilog="\b\nExample:\n  secure-fedgraph resume runs/masked")
@click.argument("folder", type=click.Path(path_type=Path))
@options(
    *("epsilon", "ledger", "device", "engine", "algorithm", "data", "silos", "quiet", "verbose", "as_json"),
    "debug",
    epsilon={"help": "A larger budget; a round that is done again is paid again."},
    ledger={"help": "The ledger that the run shares, where it was begun with one."},
    device={"help": "Where it goes on, cpu or cuda; as it was begun by default."},
    algorithm={"help": "Your own algorithm as module:Class, where the run is of one."},
    data={"metavar": "PLACE", "help": "Your own data, where the run is of them."},
)
@work("running")
def resume() -> None:
    """Go on with a run that was killed, or stopped by its budget, after its last whole round."""


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
@work("comparing.comparing")
def compare() -> None:
    """Accuracy under privacy, side by side: algorithms, policies, budgets, seeds; resumable."""


AUDIT_EXAMPLES = """
\b
Examples:
  secure-fedgraph audit --algorithm fedsage --data cora --policy plaintext,masked,homomorphic --attack all
  secure-fedgraph audit --policy plaintext --attack a4 --seeds 3 --set rounds=1
  secure-fedgraph audit --algorithm fedsage+ --policy strictest --attack neighgen --effort 20
  secure-fedgraph audit --algorithm fedsage,glasu --policy plaintext,masked --budget-minutes 60
  secure-fedgraph audit runs/masked        # a finished run that kept its transcript
"""


@click.command(epilog=AUDIT_EXAMPLES)
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@options("policy", policy={"help": "Policies, separated by commas."})
@click.option(
    "--attack", default="all", show_default=True, help="Ids, families, module:Class or all; by commas."
)
@click.option(
    "--adversary", help="Who attacks, by commas: server, client, malicious-client, ... All by default."
)
@click.option(
    "--control",
    multiple=True,
    metavar="NAME",
    help="Only these control settings beside the configured ones, by commas; see 'list attacks'.",
)
@click.option(
    "--effort",
    type=float,
    metavar="SECONDS",
    help="Processor seconds that one search of an attack may take; the attack's own limit by default.",
)
@options("workers", workers={"help": "Processes; two by default, one where memory or work is short."})
@click.option(
    "--budget-minutes",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="Run the most telling cells first, for N minutes; the page names those that were not run.",
)
@options(*OF_RUNS, "verbose")
@work("auditing")
def audit() -> None:
    """Measure what an adversary learns, attack by attack and policy by policy."""


DEMO_EXAMPLES = """
\b
Example:
  secure-fedgraph demo --out demo
"""


@click.command(epilog=DEMO_EXAMPLES)
@options(
    *("data", "seed", "out", "overwrite", "quiet", "as_json", "debug"),
    data={"default": "cora", "help": "Nodes with words as features (cora)."},
    seed={"type": click.IntRange(0), "default": 0, "help": "Of data, models and attacks."},
    out={"default": Path("demo"), "help": "A folder for the page."},
    overwrite={"help": "Replace what the folder holds."},
)
@work("demonstrating", quietly=True)
def demo() -> None:
    """See a leak, see it stop, and see what that costs: real data, three owners, half a minute."""


REPRODUCE_EXAMPLES = """
\b
Examples:
  secure-fedgraph list tables
  secure-fedgraph reproduce fedsage-2 --seeds 1
  secure-fedgraph reproduce fedego-2 --only fedego --only fedavg --seeds 2
"""


@click.command(epilog=REPRODUCE_EXAMPLES)
@click.argument("table")
@click.option(
    "--seeds", type=click.IntRange(1, 1000), help="Seeds 0 to N - 1; the paper's number by default."
)
@click.option("--only", multiple=True, metavar="WORD", help="Cells whose row or column holds it; repeatable.")
@click.option("--finished", is_flag=True, help="Print what earlier calls finished, and run nothing.")
@options(
    *("workers", "engine", "out", "as_json", "quiet", "debug"),
    out={"default": Path("runs/reproduce"), "show_default": True, "help": "The folder of all tables' runs."},
    quiet={"help": "Print errors only."},
    debug={"hidden": True},
)
@work("reproducing")
def reproduce() -> None:
    """Make a table of a paper, and print ours beside the paper's; resumable.

    Nothing protects these runs: they are the papers' own figures. TABLE.json in the folder has every cell
    with its seeds, standard error, tolerance and configuration.
    """
