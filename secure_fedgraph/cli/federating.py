"""The work of ``federation init``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from secure_fedgraph.cli.screen import plain_warnings
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.deployment.certificates import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    check_certificate,
    make_certificates,
)
from secure_fedgraph.deployment.federation_file import (
    SCHEMA,
    Approved,
    Card,
    Federation,
    Member,
    Place,
    check_belongs,
    checked_federation,
    fresh_nonce,
    held_by,
    read_card,
    write_federation,
)
from secure_fedgraph.deployment.terms import terms_in
from secure_fedgraph.experiment.config import OPTIONS, Experiment, read_values
from secure_fedgraph.graph.tables.schema import read_schema

CERTIFICATES = "certificates"
"""The folder beside a federation's file with the server's certificate."""
_OF_THE_FILE = ("classes", "holders", "tables")
"""Keys that a federation's file has elsewhere than in its experiment."""


def init(cards: tuple[Path, ...], out: Path, assignments: tuple[str, ...], **given: Any) -> None:
    """Write federation.toml from the silos' cards."""
    by_name: dict[str, Card] = {}
    for path in cards:
        card = read_card(path)
        if card.name in by_name:
            raise BadInput(f"two cards are called {card.name!r}: let one silo take another name")
        by_name[card.name] = card
    if out.exists():
        raise BadInput(f"{out} is there already, and silos may have approved it: give another --out")
    experiment = experiment_values(given, assignments)
    check_belongs(experiment)  # before certificates are made
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
    cards: Mapping[str, Card],
    experiment: dict[str, Any],
    authority: Path,
    out: Path,
    given: Mapping[str, Any],
) -> Approved:
    """Writes the file, once its run is known to be possible."""
    try:
        certificate = authority.read_text()
    except OSError as error:
        raise BadInput(f"{authority} cannot be read ({error.strerror}): give --authority") from None
    tables = None if given.get("tables") is None else read_schema(Path(given["tables"]))
    values = {
        "schema": SCHEMA,
        "name": given["name"],
        "nonce": fresh_nonce(),
        "experiment": experiment,
        "cohort": given["cohort"],
        "data": held_by(cards, given["classes"], given["holders"], tables).model_dump(mode="json"),
        "server": Place(host=given["host"], port=given["port"], authority=certificate).model_dump(),
        "silos": [
            Member(
                name=name,
                identity=cards[name].identity,
                node=cards[name].node,
                columns=cards[name].features if cards[name].rows else 0,
            ).model_dump()
            for name in sorted(cards)
        ],
        **({} if tables is None else {"tables": tables.model_dump(by_alias=True)}),
    }
    federation: Federation = checked_federation(values, "the federation")
    with plain_warnings():
        terms_in(Approved(federation, b""))  # what cannot run is refused before anybody approves it
    out.parent.mkdir(parents=True, exist_ok=True)
    return write_federation(federation, out)
