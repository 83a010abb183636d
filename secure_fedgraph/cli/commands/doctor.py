"""The command ``doctor``."""

from __future__ import annotations

import click

from secure_fedgraph.cli.options import options, work

EXAMPLES = """
\b
Examples:
  secure-fedgraph doctor
  secure-fedgraph doctor --json      # for a bug report
"""


@click.command(epilog=EXAMPLES)
@options("as_json", "debug", debug={"hidden": True})
@work("doctoring", quietly=True)
def doctor() -> None:
    """Look at packages, data, cores, memory and folders; status 1 where a run would fail.

    Nothing is installed, downloaded, changed or sent.
    """
