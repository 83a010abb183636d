"""A store: where one party keeps its own memory between rounds, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from secure_fedgraph.core import files, wire
from secure_fedgraph.core.errors import IN_ANOTHER_FOLDER, BadInput, HostileMessage, damaged
from secure_fedgraph.protocol import nested
from secure_fedgraph.protocol.memory import packed

FORMAT = 1
LABEL = re.compile(r"[0-9]{5}-[0-9a-f]{8}")
"""Of a round: its number and a token."""
_LIST = 2**26
"""The most bytes of a list."""


class PartyStore:
    """One party's folder, with a list of parts for every kept round.

    Guarantees:
        - a list is on disk whole or not at all, and names parts that were on disk before it;
        - a part that did not change since the last round is not written again;
        - a damaged file is refused and left as it is;
        - nobody but the owner of the folder reads it, and no link in it or on the way to it is followed.

    Args:
        folder: the party's own.
        owner: whose it is.
        root: the folder of the run, below which no link counts; by default the one around ``folder``.
    """

    def __init__(self, folder: Path, owner: str, root: Path | None = None) -> None:
        for name in (folder.name, owner):
            files.base_name(name, f"the shelf of {owner[:60]!r}")
        self.folder = folder
        self.owner = owner
        self._root = folder.parent if root is None else root

    def save(self, values: Mapping[str, Any], label: str, committed: str = "") -> None:
        """Keeps values under a label.

        Args:
            values: names to nested values; a part is written for each name.
            label: of this round; anything else than five digits and a token is refused.
            committed: the label that a resume would load now. All older ones are dropped.

        Raises:
            BadInput: for a value that the format does not carry.
        """
        if not LABEL.fullmatch(label):
            raise HostileMessage(f"{label[:40]!r} is no label of a round")
        files.private_folder(self.folder, self._root)
        self._drop_all_but(committed)
        parts = {}
        for name, value in values.items():
            if not wire.is_text(name):
                raise BadInput(
                    f"{self.owner}'s memory: the key {name!r:.60} is no text of UTF-8; make it one"
                )
            buffers = packed(name, value, self.owner).buffers
            check = checksum(buffers)
            file = f"{hashlib.sha256(name.encode()).hexdigest()[:12]}-{check:08x}.part"
            if files.size_of(self.folder / file) is None:  # writing the list syncs all of them
                files.write(self.folder / file, buffers, private=True, root=self._root)
            parts[name] = {"file": file, "check": check}
        listing = {"owner": self.owner, "label": label, "parts": parts}
        write_json(self._list(label), listing, self._root)

    def load(self, label: str) -> dict[str, Any]:
        """What was kept under a label.

        Raises:
            BadInput: for a part that is missing or damaged, naming the file.
        """
        listing = read_json(self._list(label), self._root)
        if listing.get("owner") != self.owner or listing.get("label") != label:
            raise BadInput(
                f"{self._list(label)} belongs to {str(listing.get('owner'))[:60]!r}: put {self.owner}'s back"
            )
        return {name: self._part(part) for name, part in self._parts(label, listing).items()}

    def _parts(self, label: str, kept: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
        """Name to file and checksum. A file's name stays a name: nothing outside the folder is read."""
        path, parts = self._list(label), kept.get("parts")
        if not isinstance(parts, dict):
            raise damaged(path, "it lacks 'parts'")
        files_and_checks = {}
        for name, part in parts.items():
            if not (isinstance(part, dict) and part.keys() == {"file", "check"}):
                raise damaged(path, f"part {name[:60]!r} names no file and checksum")
            if type(part["check"]) is not int:
                raise damaged(path, f"the checksum of part {name[:60]!r} is no number")
            files_and_checks[name] = (
                files.base_name(part["file"], f"{path}, part {name[:60]!r},"),
                part["check"],
            )
        return files_and_checks

    def _part(self, part: tuple[str, int]) -> Any:
        file, check = part
        path = self.folder / file
        body = _read(path, self._root)
        try:
            if checksum([body]) != check:
                raise HostileMessage("its checksum is another")
            return nested.unpack(body)
        except HostileMessage as error:
            raise damaged(path, str(error)) from None

    def _list(self, label: str) -> Path:
        if not LABEL.fullmatch(label):
            raise HostileMessage(f"{label[:40]!r} is no label of a round")
        return self.folder / f"{label}.json"

    def _drop_all_but(self, label: str) -> None:
        keep = {f"{label}.json"}
        if label:
            listing = read_json(self._list(label), self._root)
            keep |= {file for file, _ in self._parts(label, listing).values()}
        for path in self.folder.iterdir():
            if path.name not in keep:
                files.remove(path, self._root)


def checksum(buffers: Iterable[Any]) -> int:
    """CRC-32: against accidents, not against somebody who can write to the folder."""
    crc = 0
    for buffer in buffers:
        crc = zlib.crc32(buffer, crc)
    return crc


def write_json(path: Path, value: Mapping[str, Any], root: Path | None = None) -> None:
    """Writes JSON with its format and checksum, whole or not at all, readable by the owner only."""
    text = json.dumps({"schema": f"secure-fedgraph/checkpoint/{FORMAT}", **value})
    head = json.dumps({"check": checksum([text.encode()])}).encode()
    files.write(path, [head, b"\n", text.encode()], private=True, root=root, settle=True)


def read_json(path: Path, root: Path | None = None) -> dict[str, Any]:
    """What :func:`write_json` wrote.

    Raises:
        BadInput: for another format, or a file that is missing or damaged.
    """
    head, _, text = _read(path, root, _LIST).partition(b"\n")
    try:
        check, value = json.loads(head)["check"], json.loads(text)
        schema = value["schema"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise damaged(path, "it is cut off or no checkpoint") from None
    if schema != f"secure-fedgraph/checkpoint/{FORMAT}":
        raise BadInput(
            f"{path} is {str(schema)[:60]!r}, and this version reads secure-fedgraph/checkpoint/{FORMAT}: "
            f"resume with the version that wrote it, or {IN_ANOTHER_FOLDER}"
        )
    if checksum([text]) != check:
        raise damaged(path, "its checksum is another")
    content: dict[str, Any] = value
    return content


def _read(path: Path, root: Path | None = None, most: int = files.MOST) -> bytes:
    try:
        return files.read(path, root=root, most=most)
    except FileNotFoundError:
        raise damaged(path, "it is missing") from None
    except OSError as error:
        raise damaged(path, str(error.strerror)) from None
