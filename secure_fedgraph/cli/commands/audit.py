"""The command ``audit``."""

from __future__ import annotations

from pathlib import Path

import click

from secure_fedgraph.cli.options import OF_RUNS, options, work

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
@click.option("--attack", default="all", show_default=True, help="Ids, slugs, families, or all; by commas.")
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
