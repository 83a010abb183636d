"""A dispute as files that parties hand to each other: a request, owners' signatures, what they opened."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secure_fedgraph.core import files, wire
from secure_fedgraph.core.carriers.secagg import openings
from secure_fedgraph.core.carriers.secagg.openings import Request
from secure_fedgraph.core.crypto import KEY_BYTES, AgreementKey, Identity, verify
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.protection.contracts import Party
from secure_fedgraph.core.spending.ledger import Ledger
from secure_fedgraph.disputes.record import FOLDER, IDENTITY, SUMS, identity_in, read_sums

SCHEMA, REQUEST, SIGNED, OPENED = "secure-fedgraph/dispute/1", "request.json", "signed", "opened"
JUDGEMENT = "judgement.json"
_ASKED = {"schema": str, "run": str, "round": int, "channel": str, "owners": list, "auditor": str}
_MOST = 2**24
"""Bytes of a party's file."""


def make_auditor(path: Path) -> bytes:
    """Makes an auditor's key; the public half, for whoever begins a dispute, lies beside it in ``.pub``.

    Raises:
        BadInput: where the file is there.
    """
    if os.path.lexists(path):
        raise BadInput(f"{path} is there already: give another file")
    seed = os.urandom(KEY_BYTES)
    try:
        files.write(path, [seed], private=True, settle=True)
    except OSError as error:
        raise BadInput(f"{path} cannot be written ({error.strerror}): give a folder that is there") from None
    public = AgreementKey.from_seed(seed).public
    files.write(Path(f"{path}.pub"), [public.hex().encode()], private=False)
    return public


def auditor_of(path: Path) -> AgreementKey:
    """The auditor's key.

    Raises:
        BadInput: for a file that holds none.
    """
    seed = files.read(path, most=KEY_BYTES) if files.size_of(path) == KEY_BYTES else b""
    if not seed:
        raise BadInput(f"{path} is no auditor's key: make one with 'dispute --keygen FILE'")
    return AgreementKey.from_seed(seed)


def usable(auditor: bytes) -> None:
    """Checks that something can be sealed to an auditor's public key.

    Raises:
        HostileMessage: where nothing can.
    """
    AgreementKey.generate().shared_with(auditor, b"an auditor's key")


def begin(out: Path, round: int, channel: str, auditor: bytes) -> Path:
    """Makes the folder of a dispute from the server's record: the request, and the sums for the auditor.

    Args:
        channel: by default the one channel that the record has, or ``update``.

    Raises:
        BadInput: for a round that is not recorded, or whose dispute was begun for another auditor.
    """
    record = read_sums(out / FOLDER / SUMS, round)
    channels = sorted({one["channel"] for one in record})
    channel = channel or (channels[0] if len(channels) == 1 else "update")
    record = [one for one in record if one["channel"] == channel]
    if not record:
        raise BadInput(
            f"{out} has no record of a sum of round {round} on {channel!r} (of this round it has "
            f"{', '.join(channels) or 'none'}): protection.disputes says for how many rounds records are kept"
        )
    owners = sorted({key.removeprefix("upload/") for one in record for key in one if key[:7] == "upload/"})
    folder = files.private_folder(out / FOLDER / f"{round:05d}-{channel}", out)
    if files.size_of(folder / REQUEST) is not None and request_in(folder, round).auditor != auditor:
        raise BadInput(f"{folder} is a dispute over this round that was begun for another auditor")
    for one in record:
        path = files.private_folder(folder / SUMS, out) / f"{round:05d}-{one['exchange']:09d}-{channel}.sum"
        files.write(path, wire.pack(one).buffers, private=True, root=out)
    said = {"run": record[0]["run"], "round": round, "channel": channel, "owners": owners}
    write(folder / REQUEST, {"schema": SCHEMA, **said, "auditor": auditor.hex()})
    return folder


def find(place: Path, round: int, channel: str = "") -> Path:
    """The folder of a dispute: the place itself where a request lies there, or the one of a run's folder.

    Raises:
        BadInput: where there is none, or are several.
    """
    if files.size_of(place / REQUEST) is not None:
        return place
    found = sorted((place / FOLDER).glob(f"{round:05d}-{channel or '*'}/{REQUEST}"))
    if len(found) != 1:
        raise BadInput(
            f"{place} holds {len(found) or 'no'} disputes over round {round}: begin one with --auditor, or "
            "name its --channel"
        )
    return found[0].parent


def request_in(folder: Path, round: int) -> Request:
    """What a dispute asks for.

    Raises:
        BadInput: for a damaged file, or one about another round than the user typed.
    """
    said = _read(folder / REQUEST)
    try:
        if {key: type(value) for key, value in said.items()} != _ASKED or said["schema"] != SCHEMA:
            raise TypeError
        owners = tuple(files.base_name(one, "the request") for one in said["owners"])
        request = Request(said["run"], said["round"], said["channel"], owners, bytes.fromhex(said["auditor"]))
        usable(request.auditor)
        if not owners or list(owners) != sorted({*owners}) or not request.statement:
            raise ValueError
    except (HostileMessage, TypeError, ValueError):
        raise BadInput(f"{folder / REQUEST} is no request of a dispute: ask for it again") from None
    if request.round != round:
        raise BadInput(f"{folder / REQUEST} asks for round {request.round}, and round {round} was typed")
    return request


@dataclass(frozen=True)
class Owner:
    """An owner at its own machine: a silo's folder, or a simulated owner's.

    Args:
        party: who it is, with the roster that it had in the run.
        folder: its own.
        ledger: where its run charged.
    """

    party: Party
    folder: Path
    ledger: Path


def identity_of(folder: Path) -> Identity:
    """The key of an owner's folder, which has one.

    Raises:
        BadInput: where it has none.
    """
    if files.size_of(folder / IDENTITY) is None:
        raise BadInput(
            f"{folder} has no {IDENTITY}: give a silo's folder, or one of {FOLDER}/owners of a run"
        )
    return identity_in(folder)


def owner_at(folder: Path, run: str, ledger: Path | None = None) -> Owner:
    """The owner whose folder this is.

    Args:
        ledger: that a simulated run shared with others, where it did. A silo has its own.

    Raises:
        BadInput: for a folder without a key, or without seeds of that run; a ledger beside a silo's own.
    """
    identity = identity_of(folder)
    for path in (folder / openings.FILE, *sorted((folder / "runs").glob(f"*/{openings.FILE}"))):
        kept = openings.read_file(path)
        roster = {name: bytes.fromhex(public) for name, public in kept.get("roster", {}).items()}
        name = next((one for one, public in roster.items() if public == identity.public), "")
        if name and any(one["run"] == run for one in kept["sums"]):
            silo, party = path.parent != folder, Party(name, identity, roster, folder=path.parent)
            if silo and ledger is not None:
                raise BadInput(f"--ledger {ledger}: {folder} is a silo's, which charges its own: drop it")
            around = path.parent if silo else Path(os.path.abspath(folder / "../../.."))
            return Owner(party, folder, ledger or around / "ledger.jsonl")
    raise BadInput(
        f"{folder} keeps no seeds of the run {run[:40]}: it took no part, or protection.disputes was 0"
    )


def sign(folder: Path, request: Request, owner: Owner) -> None:
    """One owner agrees that a round is opened to one auditor: its signature, as a file for the others.

    Raises:
        Refused: as :func:`~secure_fedgraph.core.carriers.secagg.openings.agreed`.
    """
    place = _place(folder / SIGNED, owner)
    with _at_rest(owner):
        write(place, {"signature": openings.agreed(request, owner.party).hex()})


def open_upload(folder: Path, request: Request, owner: Owner) -> None:
    """One owner's seeds, sealed to the auditor, as a file for the auditor. Its ledger is charged first.

    Raises:
        BadInput: where its ledger is missing, or never charged it for this run.
        Refused: as :func:`~secure_fedgraph.core.carriers.secagg.openings.opened`.
    """
    if files.size_of(owner.ledger) is None:
        raise BadInput(f"{owner.ledger} is missing, and an opening is charged: name it with --ledger")
    ledger, name = Ledger(owner.ledger), owner.party.name
    if ledger.answered(name, request.run) < 0:
        raise BadInput(f"{owner.ledger} has no charge of {name} in this run: name its own with --ledger")
    place, signatures = _place(folder / OPENED, owner), signatures_in(folder, request, owner.party.roster)
    with _at_rest(owner):
        tree = openings.opened(request, signatures, owner.party, ledger)
    write(place, {key: value.hex() for key, value in tree.items() if isinstance(value, bytes)})


def _place(folder: Path, owner: Owner) -> Path:
    """Where an owner's file goes, before anything is charged or noted."""
    path = files.private_folder(folder, folder.parent) / f"{owner.party.name}.json"
    if path.is_dir():
        raise BadInput(f"{path} is a folder where a file goes: take it away")
    return path


@contextmanager
def _at_rest(owner: Owner) -> Iterator[None]:
    """No silo writes in the owner's folder meanwhile."""
    try:
        with files.lock(owner.folder / "lock", timeout=0):
            yield
    except TimeoutError:
        raise BadInput(f"a silo is running in {owner.folder}: end it first") from None


def signatures_in(folder: Path, request: Request, roster: Mapping[str, bytes]) -> dict[str, bytes]:
    """Owners' signatures of the request, by name.

    Raises:
        HostileMessage: naming the file, for one that is not its owner's of this request.
    """
    of = {name: bytes(tree.get("signature", b"")) for name, tree in _of(folder / SIGNED, roster).items()}
    for name, signature in of.items():
        try:
            verify(roster[name], signature, request.statement)
        except HostileMessage:
            raise HostileMessage(
                f"{folder / SIGNED / name}.json is not {name}'s signature of this request: ask for it again"
            ) from None
    return of


def opened_in(folder: Path, owners: Iterable[str]) -> dict[str, wire.Tree]:
    """What owners opened, by name."""
    return _of(folder / OPENED, owners)


def _of(folder: Path, owners: Iterable[str]) -> dict[str, wire.Tree]:
    there = {name: folder / f"{name}.json" for name in owners}
    return {name: _bytes(path) for name, path in there.items() if os.path.lexists(path)}


def _bytes(path: Path) -> wire.Tree:
    """Another party's file of bytes."""
    try:
        return {key: bytes.fromhex(value) for key, value in _read(path).items()}
    except (TypeError, ValueError):
        raise BadInput(f"{path} is damaged: ask whoever made it again") from None


def write(path: Path, said: Mapping[str, Any]) -> None:
    """Writes one of the files that parties hand to each other."""
    files.write(path, [json.dumps(said, indent=1).encode() + b"\n"], private=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        said: dict[str, Any] = {} | json.loads(files.read(path, most=_MOST))
        return said
    except (ValueError, TypeError, OSError, RecursionError):
        raise BadInput(f"{path} is missing or damaged: ask whoever made it again") from None
