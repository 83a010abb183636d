"""The commands ``server start``, ``align`` and ``dev``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from secure_fedgraph.cli.options import known
from secure_fedgraph.cli.screen import loading

_PATH = click.Path(path_type=Path)
debug = click.option("--debug", is_flag=True, help="Show a traceback with an error.")
START_EXAMPLES = "\b\nExample:\n  secure-fedgraph server start federation.toml --out runs/banks"
DEV_EXAMPLES = (
    "\b\nExample:\n  secure-fedgraph server dev --silos 3 --algorithm fedsage --policy masked --rounds 3"
)


@click.group()
def server() -> None:
    """Run a federation's server. It holds no data."""


@server.command("start", epilog=START_EXAMPLES)
@click.argument("file", type=_PATH)
@click.option(
    "--out", type=_PATH, required=True, help="Folder for results; a run that was killed goes on there."
)
@click.option("--listen", help="The address to listen on; by default the host of the file.")
@click.option(
    "--certificate", type=_PATH, help="The server's, PEM; by default certificates/ beside the file."
)
@click.option("--key", type=_PATH, help="Its private key, PEM.")
@click.option("--start-with", type=click.IntRange(0), default=0, help="Begin when so many silos are there.")
@click.option(
    "--wait", type=float, default=600.0, show_default=True, help="Seconds that silos are waited for."
)
@click.option("--patience", type=float, default=3600.0, show_default=True, help="Seconds for one answer.")
@click.option("--quiet", is_flag=True, help="Print nothing but warnings and errors.")
@click.option("--verbose", "-v", is_flag=True, help="All tables: metrics, privacy, noise, channels.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
@debug
def start(**given: Any) -> None:
    """Start the SuperLink, wait for the silos, and run the rounds."""
    loading(given)
    from secure_fedgraph.cli import serving

    serving.start(**given)


@server.command(
    "align", epilog="\b\nExample:\n  secure-fedgraph server align federation.toml --log runs/align"
)
@click.argument("file", type=_PATH)
@click.option("--log", "out", type=_PATH, required=True, help="Folder for the SuperLink's log.")
@click.option("--listen", help="The address to listen on; by default the host of the file.")
@click.option(
    "--certificate", type=_PATH, help="The server's, PEM; by default certificates/ beside the file."
)
@click.option("--key", type=_PATH, help="Its private key, PEM.")
@click.option(
    "--wait", type=float, default=600.0, show_default=True, help="Seconds that silos are waited for."
)
@debug
def align(**given: Any) -> None:
    """Carry the letters of 'silo align' between the silos of a vertical federation."""
    loading(given)
    from secure_fedgraph.cli import serving

    serving.align(**given)


@server.command("dev", epilog=DEV_EXAMPLES)
@click.option("--silos", type=click.IntRange(2, 20), default=3, show_default=True, help="How many silos.")
@click.option("--data", default="cora", show_default=True, callback=known("datasets"), help="What is cut up.")
@click.option("--algorithm", callback=known("algorithms"), default="fedsage", show_default=True)
@click.option("--policy", callback=known("policies"), default="masked", show_default=True)
@click.option("--rounds", type=int, default=3, show_default=True)
@click.option("--epsilon", type=float, help="A privacy budget.")
@click.option("--unit", help="Whose data it is about.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="A free one by default.")
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any other key of an experiment."
)
@click.option("--out", type=_PATH, required=True, help="Folder for files, keys, logs and results.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
@click.option("--quiet", is_flag=True, help="Print nothing but warnings and errors.")
@debug
def dev(**given: Any) -> None:
    """Bring a whole federation up on this machine, certificates and all, to try it out."""
    loading(given)
    from secure_fedgraph.cli import serving

    serving.dev(**given)
