"""The command ``doctor``."""

from __future__ import annotations

from typing import Any

import click

EXAMPLES = """
\b
Examples:
  secure-fedgraph doctor
  secure-fedgraph doctor --json      # for a bug report
"""


@click.command(epilog=EXAMPLES)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
@click.option("--debug", is_flag=True, hidden=True)
def doctor(**given: Any) -> None:
    """Look at packages, data, cores, memory and folders; status 1 where a run would fail.

    Nothing is installed, downloaded, changed or sent.
    """
    from secure_fedgraph.cli.doctor import looking

    looking.doctor(**given)
