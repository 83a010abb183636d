"""The work of ``server start``, ``align`` and ``dev``."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import torch
from torch_geometric.data import Data

from secure_fedgraph.cli import siloing, tables
from secure_fedgraph.cli.options import command_line
from secure_fedgraph.cli.screen import Screen, plain_warnings
from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.deployment import federation_file
from secure_fedgraph.deployment.certificates import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    check_certificate,
    make_certificates,
)
from secure_fedgraph.deployment.flower.grid import Address, Grid
from secure_fedgraph.deployment.flower.releases import check_flower
from secure_fedgraph.deployment.serving import Serving, serve
from secure_fedgraph.deployment.silo_folder import CARD
from secure_fedgraph.deployment.silos import PATIENCE, Silos
from secure_fedgraph.deployment.terms import terms_in
from secure_fedgraph.experiment.config import OPTIONS, Experiment, read_values
from secure_fedgraph.experiment.schema import RunResult, as_read
from secure_fedgraph.federation import federate
from secure_fedgraph.graph.tables.schema import read_schema
from secure_fedgraph.report.page import write_report

# The work of ``federation init``.

CERTIFICATES = "certificates"
"""The folder beside a federation's file with the server's certificate."""
_OF_THE_FILE = ("classes", "holders", "tables")
"""Keys that a federation's file has elsewhere than in its experiment."""


def init(cards: tuple[Path, ...], out: Path, assignments: tuple[str, ...], **given: Any) -> None:
    """Write federation.toml from the silos' cards."""
    by_name: dict[str, federation_file.Card] = {}
    for path in cards:
        card = federation_file.read_card(path)
        if card.name in by_name:
            raise BadInput(f"two cards are called {card.name!r}: let one silo take another name")
        by_name[card.name] = card
    if out.exists():
        raise BadInput(f"{out} is there already, and silos may have approved it: give another --out")
    experiment = experiment_values(given, assignments)
    federation_file.check_belongs(experiment)  # before certificates are made
    place = Path(given["authority"]) if given["authority"] else out.parent / CERTIFICATES / AUTHORITY
    if not given["authority"] and not place.exists():
        make_certificates(place.parent, given["host"])
        click.echo(
            f"made certificates in {place.parent}: {AUTHORITY} is in the file, the rest is the server's"
        )
    if not given["authority"]:
        check_certificate(place.parent / CERTIFICATE, place.parent / KEY, given["host"])
    approved = make_federation(by_name, experiment, place, out, given)
    click.echo(f"{out}: digest {approved.digest}")
    click.echo("give the file to every silo, and its digest by another way: each approves it by that")


def experiment_values(given: Mapping[str, Any], assignments: tuple[str, ...]) -> dict[str, Any]:
    """The experiment's values as flags and assignments have them."""
    keys = [key for key in Experiment.model_fields if key not in _OF_THE_FILE]
    flags = {key: given[key] for key in keys if given.get(key) is not None}
    named = [f"protection.{key}={given[key]}" for key in OPTIONS if given.get(key) is not None]
    return read_values(None, flags, [*named, *assignments])


def make_federation(
    cards: Mapping[str, federation_file.Card],
    experiment: dict[str, Any],
    authority: Path,
    out: Path,
    given: Mapping[str, Any],
) -> federation_file.Approved:
    """Writes the file, once its run is known to be possible."""
    try:
        certificate = authority.read_text()
    except OSError as error:
        raise BadInput(f"{authority} cannot be read ({error.strerror}): give --authority") from None
    tables = None if given.get("tables") is None else read_schema(Path(given["tables"]))
    values = {
        "schema": federation_file.SCHEMA,
        "name": given["name"],
        "nonce": federation_file.fresh_nonce(),
        "experiment": experiment,
        "cohort": given["cohort"],
        "data": federation_file.held_by(cards, given["classes"], given["holders"], tables).model_dump(
            mode="json"
        ),
        "server": federation_file.Place(
            host=given["host"], port=given["port"], authority=certificate
        ).model_dump(),
        "silos": [
            federation_file.Member(
                name=name,
                identity=cards[name].identity,
                node=cards[name].node,
                columns=cards[name].features if cards[name].rows else 0,
            ).model_dump()
            for name in sorted(cards)
        ],
        **({} if tables is None else {"tables": tables.model_dump(by_alias=True)}),
    }
    federation: federation_file.Federation = federation_file.checked_federation(values, "the federation")
    with plain_warnings():
        terms_in(
            federation_file.Approved(federation, b"")
        )  # what cannot run is refused before anybody approves it
    out.parent.mkdir(parents=True, exist_ok=True)
    return federation_file.write_federation(federation, out)


LOG = "superlink.log"


def start(
    file: Path,
    out: Path,
    listen: str | None,
    certificate: Path | None,
    key: Path | None,
    start_with: int,
    wait: float,
    patience: float,
    **flags: Any,
) -> None:
    """Start the SuperLink, wait for the silos, and run the rounds."""
    approved, address = _listening(file, listen, certificate, key)
    run(approved, out, address, Serving(start_with=start_with, wait=wait, patience=patience), flags)


def run(
    approved: federation_file.Approved, out: Path, address: Address, how: Serving, flags: dict[str, Any]
) -> None:
    """Runs a federation's server until its result is written."""
    screen = Screen(flags)
    files.private_folder(out)

    def each(row: dict[str, Any]) -> None:
        figures = {k: v for k, v in row["accuracy"].items() if isinstance(v, float)}
        said = ", ".join(f"{k} {v:.3f}" for k, v in figures.items())
        screen.note(f"round {row['round']}{': ' if said else ''}{said}")

    nodes = approved.federation.nodes
    with plain_warnings(), closing(Grid(address, nodes, out / LOG, how.patience + 60)) as grid:
        screen.note(f"listening on {address.host}:{address.port} for {', '.join(approved.federation.names)}")
        result = serve(approved, grid, out, command_line(), how, each, screen.note)
    page = write_report(out)
    shown = tables.run_tables if screen.verbose else tables.run_lines
    screen.finish(result, shown(as_read(RunResult, result)), page)


def align(
    file: Path, out: Path, listen: str | None, certificate: Path | None, key: Path | None, wait: float
) -> None:
    """Carry the letters of 'silo align' between the silos."""
    approved, address = _listening(file, listen, certificate, key)
    if not approved.federation.data.rows:
        raise BadInput(f"{file} is of silos that hold rows of their own: there is nothing to align")
    files.private_folder(out)
    with closing(Grid(address, approved.federation.nodes, out / LOG, PATIENCE + 60)) as grid:
        silos = Silos(grid, approved, on_event=lambda line: click.echo(line, err=True))
        silos.gather(len(silos.names), 0, wait)
        silos.align()
    click.echo("every silo has the common rows, in one order")


def _listening(
    file: Path, listen: str | None, certificate: Path | None, key: Path | None
) -> tuple[federation_file.Approved, Address]:
    check_flower()
    approved = federation_file.read_federation(file)
    beside = file.parent / CERTIFICATES
    certificate, key = certificate or beside / CERTIFICATE, key or beside / KEY
    check_certificate(certificate, key, approved.federation.server.host)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    place = approved.federation.server
    return approved, Address(listen or place.host, place.port, certificate, key)


def dev(silos: int, data: str, port: int, out: Path, assignments: tuple[str, ...], **given: Any) -> None:
    """Bring a whole federation up on this machine, certificates and all."""
    check_flower()
    if out.exists() and any(out.iterdir()):
        raise BadInput(f"{out} holds something already: give another --out")
    screen = Screen(given)
    values = experiment_values(given, assignments)
    federation_file.check_belongs(values)  # before anything is written
    files.private_folder(out)
    places = cut_up(data, silos, out / "data")
    for name, place in places.items():
        siloing.keygen(out / name, name, str(place), None)
    make_certificates(out / CERTIFICATES, "127.0.0.1")
    cards = {name: federation_file.read_card(out / name / CARD) for name in places}
    free = port or _free_port()
    settings = {"name": "dev", "host": "127.0.0.1", "port": free, "cohort": 0, "classes": None, "holders": 1}
    settings["classes"] = max(card.classes for card in cards.values())
    file = out / "federation.toml"
    approved = make_federation(cards, values, out / CERTIFICATES / AUTHORITY, file, settings)
    processes = []
    try:
        for name, place in places.items():
            siloing.approve(out / name, file, None)
            log = (out / name / "log.txt").open("ab")
            command = [sys.executable, "-P", "-m", "secure_fedgraph", "silo", "start"]
            command += [str(out / name), "--data", str(place)]
            processes.append(subprocess.Popen(command, stdout=log, stderr=log))
            log.close()
        address = Address("127.0.0.1", free, out / CERTIFICATES / CERTIFICATE, out / CERTIFICATES / KEY)
        run(approved, out / "results", address, Serving(wait=180), given)
    finally:
        for process in processes:
            process.terminate()
        until = time.monotonic() + 5
        for process in processes:
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    screen.note(f"files, keys and logs of all silos are in {out}")


def cut_up(data: str, silos: int, folder: Path) -> dict[str, Path]:
    """Writes a data set's pieces as the files of so many silos.

    Raises:
        BadInput: for a data set that is no graph of nodes.
    """
    files.private_folder(folder)
    federation = federate(data, clients=silos)
    if federation.schema.kind != "node":
        raise BadInput(f"data = {data!r} is no graph of nodes: give one that is, such as cora")
    places = {}
    for number, graph in enumerate(federation.owners.values()):
        name = f"silo-{number + 1}"
        kept = {key: graph[key] for key in ("x", "edge_index", "y") if key in graph}
        places[name] = folder / f"{name}.pt"
        torch.save(Data(**kept).to_dict(), places[name])
    return places


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])
