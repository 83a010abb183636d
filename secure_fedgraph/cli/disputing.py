"""The work of ``dispute``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from secure_fedgraph.cli.screen import PlainConsole, plain_warnings, warn
from secure_fedgraph.cli.tables import table
from secure_fedgraph.core import files
from secure_fedgraph.core.carriers.secagg.openings import Request
from secure_fedgraph.core.crypto import KEY_BYTES, AgreementKey
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.text import printable
from secure_fedgraph.deployment.federation_file import read_federation
from secure_fedgraph.deployment.terms import terms_in
from secure_fedgraph.disputes import case, judging, record
from secure_fedgraph.experiment.kept_schema import in_folder
from secure_fedgraph.experiment.protect import protect
from secure_fedgraph.experiment.results import begun, bound_of, in_form, make_federation
from secure_fedgraph.storage import manifest

Agreed = tuple[Mapping[str, bytes], Bound]
"""The owners' public keys, and the protection of the disputed channel: neither from the server."""
Typed = Mapping[str, Any]
"""What a folder may not name by itself: ledger, own algorithm, own data, silos."""


def dispute(
    run: Path | None,
    round: int | None,
    channel: str,
    keygen: Path | None,
    auditor: Path | None,
    sign: Path | None,
    opening: Path | None,
    judge: Path | None,
    federation: Path | None,
    as_json: bool,
    ledger: Path | None,
    **own: Any,
) -> None:
    """One step of a dispute; without any, all steps over a simulated run."""
    if keygen is not None:
        case.make_auditor(keygen)
        click.echo(f"{keygen}.pub: whoever begins the dispute needs it; keep {keygen} to yourself")
        return
    if run is None or round is None:
        raise BadInput("give a run's folder, or a dispute's, and the round")
    if auditor is not None:
        folder = case.begin(run, round, channel, _public(auditor))
        click.echo(f"{folder}: hand {case.REQUEST} to every owner, and all of it to the auditor alone")
        return
    steps = [one for one in (sign, opening, judge) if one is not None]
    if len(steps) > 1:
        raise BadInput("give one of --sign, --open and --judge: they are steps of several parties")
    if not steps:
        _simulated(run, round, channel, {"ledger": ledger, **own}, as_json)
        return
    folder = case.find(run, round, channel)
    request = case.request_in(folder, round)
    reader = f"auditor {request.auditor.hex()[:16]}…"
    if sign is not None:
        case.sign(folder, request, case.owner_at(sign, request.run))
        click.echo(
            f"signed for {reader}, and for no other auditor: hand {folder / case.SIGNED} to the others"
        )
    elif opening is not None:
        case.open_upload(folder, request, case.owner_at(opening, request.run, ledger))
        click.echo(f"charged, and opened to {reader}: hand {folder / case.OPENED} to it")
        warn("your epsilon is inf from this opening on")
    else:
        key = case.auditor_of(steps[0])
        if key.public != request.auditor:
            raise BadInput(
                f"{steps[0]} is not the key of the auditor that {folder / case.REQUEST} asks for "
                f"({request.auditor.hex()[:16]}…): judge with that one, or begin another dispute"
            )
        _judge(folder, request, key, _agreed(run, federation, request, {"ledger": ledger, **own}), as_json)


def _simulated(run: Path, round: int, channel: str, typed: Typed, as_json: bool) -> None:
    """All parties' steps, in the folder that holds them all; what was opened before is only judged again."""
    own = run / record.FOLDER / "auditor.key"
    if not (run / record.FOLDER / record.OWNERS).is_dir():
        raise BadInput(
            f"{run} holds no simulated owners that can be asked: its run had no protection.disputes, or its "
            "owners are on machines of their own, and a dispute with them begins with --auditor"
        )
    begun(run, **typed)  # refuses what was not typed, before anything is made
    if files.size_of(own) is None:
        case.make_auditor(own)
    key = case.auditor_of(own)
    folder = case.begin(run, round, channel, key.public)
    request = case.request_in(folder, round)
    places = [run / record.FOLDER / record.OWNERS / name for name in request.owners]
    owners = [case.owner_at(place, request.run, typed["ledger"]) for place in places]
    agreed = _agreed(run, None, request, typed)  # before anything is charged
    for one in owners:
        case.sign(folder, request, one)
    for one in owners:
        if one.party.name not in case.opened_in(folder, request.owners):
            case.open_upload(folder, request, one)
    _judge(folder, request, key, agreed, as_json)


def _judge(folder: Path, request: Request, key: AgreementKey, agreed: Agreed, as_json: bool) -> None:
    signed, opened = case.signatures_in(folder, request, agreed[0]), case.opened_in(folder, request.owners)
    sums = record.read_sums(folder / record.SUMS, request.round)
    found = judging.judge(request, signed, opened, sums, key, *agreed)
    rows = [asdict(one) for one in found.findings]
    said = {"schema": case.SCHEMA, "run": request.run, "round": request.round, "channel": request.channel}
    said |= {"owners": rows, "named": found.named, "adds_up": found.sums}
    case.write(folder / case.JUDGEMENT, said)
    if as_json:
        click.echo(json.dumps(said))
        return
    shown = [{**row, "norm": f"{row['norm']:.4g}", "cosine": f"{row['cosine']:.2f}"} for row in rows]
    shown = [{**row, "reasons": "; ".join(row["reasons"])} for row in shown]
    title = f"round {request.round}, {request.channel}: what owners opened"
    for one in table(title, shown, "name verdict norm cosine reasons"):
        PlainConsole().print(one)
    if found.sums is None:
        click.echo("whether the server used the sum of these uploads cannot be said: not all were opened")
    elif not found.sums:
        warn("the server used another sum than that of these uploads")
    named = [f"{verdict}: {', '.join(names)}" for verdict, names in found.named.items()]
    click.echo(f"{'; '.join(named) or 'named: nobody'}; {folder / case.JUDGEMENT}")


def _agreed(run: Path, federation: Path | None, request: Request, typed: Typed) -> Agreed:
    """From the file that silos approved, whose digest names the run; or from a simulated run's own folder."""
    place = run / record.FOLDER / record.OWNERS
    if federation is None and not place.is_dir():
        raise BadInput(f"{run} holds no simulated run: give --federation FILE, the one that silos approved")
    with plain_warnings():
        if federation is not None:
            approved = read_federation(federation)
            if approved.run != request.run:
                raise BadInput(
                    f"{federation} is the file of run {approved.run}, and the dispute is over run "
                    f"{printable(request.run, 40)}: give the very file that its silos approved"
                )
            roster, bound = approved.federation.roster, terms_in(approved).prepared.bound
        else:
            manifest.unchecked(run, typed["ledger"])  # refuses one that was changed since
            experiment = begun(run, **typed)[0]
            experiment = experiment.model_copy(update=in_folder({"tables": experiment.tables}, run))
            owners = make_federation(experiment)
            algorithm = in_form(experiment, owners)
            policy = protect(experiment, algorithm, owners).policy
            bound = bound_of(experiment, algorithm, owners, policy)
            roster = {name: case.identity_of(place / name).public for name in owners.names}
    if request.channel not in bound.bounds or not {*request.owners} <= roster.keys():
        raise BadInput(
            f"{federation or run} has other owners or channels than the request asks for: ask for it again"
        )
    return roster, bound[request.channel]


def _public(path: Path) -> bytes:
    try:
        public = bytes.fromhex(files.read(path, most=2**10).decode().strip())
    except (OSError, ValueError):
        public = b""
    if len(public) != KEY_BYTES:
        raise BadInput(f"{path} is no auditor's public key: 'dispute --keygen FILE' makes FILE.pub")
    return public
