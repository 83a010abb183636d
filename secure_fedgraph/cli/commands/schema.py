"""The command ``schema``: what a file holds, as a JSON Schema for other programs."""

from __future__ import annotations

import json

import click

from secure_fedgraph.cli.options import option
from secure_fedgraph.experiment.schema import FILES, json_schema

EXAMPLES = """
\b
Examples:
  secure-fedgraph schema result > result.schema.json
  secure-fedgraph schema ledger      # of one line of ledger.jsonl
"""


@click.command(epilog=EXAMPLES)
@click.argument("file", type=click.Choice(list(FILES)))
@option("debug", hidden=True)
def schema(file: str) -> None:
    """Print the JSON Schema of result.json, audit.json, compare.json, or a line of ledger.jsonl."""
    click.echo(json.dumps(json_schema(FILES[file]), indent=1))
