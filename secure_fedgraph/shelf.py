"""A shelf: where one party keeps its own memory between rounds, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from secure_fedgraph.errors import BadInput, HostileMessage
from secure_fedgraph.protocol import nested

FORMAT = 1
_LABEL = re.compile(r"\d{5}-[0-9a-f]{8}")


class Shelf:
    """One party's folder, with a list of parts for every kept round.

    Guarantees:
        - a list stands there whole or not at all, and names parts that were on disk before it;
        - a part that did not change since the last round is not written again;
        - what is damaged is refused and left as it is.

    Args:
        folder: the party's own.
        owner: whose it is.
    """

    def __init__(self, folder: Path, owner: str) -> None:
        self.folder = folder
        self.owner = owner

    def save(self, values: Mapping[str, Any], label: str, committed: str = "") -> None:
        """Keeps values under a label.

        Args:
            values: names to nested values; a part is written for each name.
            label: of this round; anything else than five digits and a token is refused.
            committed: the label that a resume would ask for now. All older ones are dropped.

        Raises:
            BadInput: for a value that the format does not carry.
        """
        if not _LABEL.fullmatch(label):
            raise HostileMessage(f"{label[:40]!r} is no label of a round")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._drop_all_but(committed)
        parts = {}
        for name, value in values.items():
            try:
                buffers = nested.pack(value).buffers
            except TypeError as error:
                raise BadInput(f"{self.owner}'s memory {name!r}: {error}") from None
            check = checksum(buffers)
            file = f"{hashlib.sha256(name.encode()).hexdigest()[:12]}-{check:08x}.part"
            if not (self.folder / file).exists():
                write_whole(self.folder / file, buffers, settle=False)  # the list settles all of them
            parts[name] = {"file": file, "check": check}
        write_json(self._list(label), {"owner": self.owner, "label": label, "parts": parts})

    def load(self, label: str) -> dict[str, Any]:
        """What was kept under a label.

        Raises:
            BadInput: for a part that is missing or damaged, naming the file.
        """
        kept = read_json(self._list(label))
        if kept.get("owner") != self.owner or kept.get("label") != label:
            raise BadInput(f"{self._list(label)} belongs to {kept.get('owner')!r}: put {self.owner}'s back")
        return {name: self._part(**part) for name, part in kept["parts"].items()}

    def _part(self, file: str, check: int) -> Any:
        path = self.folder / file
        body = _read(path)
        try:
            if checksum([body]) != check:
                raise HostileMessage("its checksum is another")
            return nested.unpack(body)
        except HostileMessage as error:
            raise damaged(path, str(error)) from None

    def _list(self, label: str) -> Path:
        return self.folder / f"{label}.json"

    def _drop_all_but(self, label: str) -> None:
        keep = {f"{label}.json"}
        if label:
            keep |= {part["file"] for part in read_json(self._list(label))["parts"].values()}
        for path in self.folder.iterdir():
            if path.name not in keep:
                path.unlink()


def checksum(buffers: Iterable[Any]) -> int:
    """CRC-32: against accidents, not against somebody who can write the folder anyway."""
    found = 0
    for buffer in buffers:
        found = zlib.crc32(buffer, found)
    return found


def write_whole(path: Path, buffers: Iterable[Any], settle: bool = True) -> None:
    """Writes a file and syncs it; a crash leaves the old one or the new one, never half of one.

    Args:
        settle: sync the folder too, and with it every rename in it so far.
    """
    draft = path.with_name(path.name + ".draft")
    with draft.open("wb") as file:
        for buffer in buffers:
            file.write(buffer)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    if not settle:
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes JSON with its format and checksum."""
    text = json.dumps({"schema": f"secure-fedgraph/checkpoint/{FORMAT}", **value}, indent=1)
    write_whole(path, [json.dumps({"check": checksum([text.encode()])}).encode(), b"\n", text.encode()])


def read_json(path: Path) -> dict[str, Any]:
    """What :func:`write_json` wrote.

    Raises:
        BadInput: for another format, or a file that is missing or damaged.
    """
    head, _, text = _read(path).partition(b"\n")
    try:
        check, value = json.loads(head)["check"], json.loads(text)
        schema = value["schema"]
    except (ValueError, KeyError, TypeError):
        raise damaged(path, "it is cut off or no checkpoint") from None
    if schema != f"secure-fedgraph/checkpoint/{FORMAT}":
        raise BadInput(
            f"{path} is {str(schema)[:60]!r}, and this version reads secure-fedgraph/checkpoint/{FORMAT}: "
            "resume with the version that wrote it, or run again with --overwrite"
        )
    if checksum([text]) != check:
        raise damaged(path, "its checksum is another")
    found: dict[str, Any] = value
    return found


def damaged(path: Path, why: str) -> BadInput:
    """The error for a file of a checkpoint that cannot be used."""
    return BadInput(f"{path} is damaged ({why}): put a copy back, or run again with --overwrite")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise damaged(path, "it is missing") from None
