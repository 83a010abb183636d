"""The command ``export``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from secure_fedgraph.cli.screen import loading

EXAMPLES = """
\b
Examples:
  secure-fedgraph export runs/masked --to state_dict --out model.pt
  secure-fedgraph export runs/masked --to torchscript --out model.ts
  secure-fedgraph export runs/masked --to onnx --out model.onnx
"""


@click.command(epilog=EXAMPLES)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--to", "form", type=click.Choice(["state_dict", "torchscript", "onnx"]), default="state_dict",
    show_default=True, help="Plain tensors by name, or a program that torch alone runs, or any ONNX runtime.",
)  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The file to write.")
@click.option("--algorithm", help="Your own algorithm as module:Class, where the run is of one.")
@click.option("--ledger", type=click.Path(path_type=Path), help="The ledger that the run shared with others.")
@click.option("--overwrite", is_flag=True, help="Replace earlier files.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
@click.option("--debug", is_flag=True, help="Show a traceback with an error.")
def export(**given: Any) -> None:
    """Write the released model of a finished run for other programs, and a model card beside it."""
    loading(given)
    from secure_fedgraph.cli.exporting import exporting

    exporting.export(**given)
