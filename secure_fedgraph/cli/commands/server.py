"""The commands ``server start``, ``align`` and ``dev``."""

from __future__ import annotations

from pathlib import Path

import click

from secure_fedgraph.cli.options import Command, option, options, work

_PATH = click.Path(path_type=Path)
START_EXAMPLES = "\b\nExample:\n  secure-fedgraph server start federation.toml --out runs/banks"
DEV_EXAMPLES = (
    "\b\nExample:\n  secure-fedgraph server dev --silos 3 --algorithm fedsage --policy masked --rounds 3"
)
_WAIT = click.option(
    "--wait", type=float, default=600.0, show_default=True, help="Seconds that silos are waited for."
)


def _at_its_address(command: Command) -> Command:
    key = click.option("--key", type=_PATH, help="Its private key, PEM.")
    certificate = click.option(
        "--certificate", type=_PATH, help="The server's, PEM; by default certificates/ beside the file."
    )
    listen = click.option("--listen", help="The address to listen on; by default the host of the file.")
    return listen(certificate(key(command)))


@click.group()
def server() -> None:
    """Run a federation's server. It holds no data."""


@server.command("start", epilog=START_EXAMPLES)
@click.argument("file", type=_PATH)
@click.option(
    "--out", type=_PATH, required=True, help="Folder for results; a run that was killed goes on there."
)
@_at_its_address
@click.option("--start-with", type=click.IntRange(0), default=0, help="Begin when so many silos are there.")
@_WAIT
@click.option("--patience", type=float, default=3600.0, show_default=True, help="Seconds for one answer.")
@options("quiet", "verbose", "as_json", "debug")
@work("serving")
def start() -> None:
    """Start the SuperLink, wait for the silos, and run the rounds."""


@server.command(
    "align", epilog="\b\nExample:\n  secure-fedgraph server align federation.toml --log runs/align"
)
@click.argument("file", type=_PATH)
@click.option("--log", "out", type=_PATH, required=True, help="Folder for the SuperLink's log.")
@_at_its_address
@_WAIT
@option("debug")
@work("serving")
def align() -> None:
    """Carry the letters of 'silo align' between the silos of a vertical federation."""


@server.command("dev", epilog=DEV_EXAMPLES)
@click.option("--silos", type=click.IntRange(2, 20), default=3, show_default=True, help="How many silos.")
@options(
    *("data", "algorithm", "policy", "rounds", "epsilon", "unit"),
    data={"default": "cora", "show_default": True, "help": "What is cut up."},
    algorithm={"default": "fedsage", "show_default": True, "help": None},
    policy={"default": "masked", "show_default": True, "help": None},
    rounds={"default": 3, "show_default": True, "help": None},
    epsilon={"help": "A privacy budget."},
    unit={"help": "Whose data it is about."},
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="A free one by default.")
@options(
    *("assignments", "out", "as_json", "quiet", "debug"),
    assignments={"help": "Any other key of an experiment."},
    out={"required": True, "help": "Folder for files, keys, logs and results."},
)
@work("serving")
def dev() -> None:
    """Bring a whole federation up on this machine, certificates and all, to try it out."""
