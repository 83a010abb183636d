"""What stays in a run's folder for disputes: the server's record of sums, and simulated owners' folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from secure_fedgraph.core import files, wire
from secure_fedgraph.core.crypto import KEY_BYTES, Identity
from secure_fedgraph.core.errors import BadInput, HostileMessage

FOLDER, SUMS, OWNERS, IDENTITY = "disputes", "sums", "owners", "identity.key"
TOTAL = "total/"
"""Before the name of a tensor of the sum that the server used."""


_SAID = {"run": str, "round": int, "channel": str, "exchange": int}


class SumRecord:
    """The server's record of the last rounds' masked sums: what owners signed, and what it made of it.

    Args:
        out: the run's folder.
        after: the last round that a resumed run keeps; 0 for a run that begins.
    """

    def __init__(self, out: Path, after: int) -> None:
        self._out = out
        if not after:
            files.remove_folder(out / FOLDER, out)
        for path in self._sums():
            if _round_of(path) > after:  # these are asked for again
                files.remove(path, out)

    def keep(self, evidence: wire.Tree, total: Mapping[str, torch.Tensor]) -> None:
        """Keeps one sum, and drops those of rounds that are over for disputes."""
        if not evidence:
            return
        number, rounds = int(evidence["round"]), int(evidence["kept"])
        files.private_folder(self._out / FOLDER / SUMS, self._out)
        for path in self._sums():
            if _round_of(path) <= number - rounds:
                files.remove(path, self._out)
        body = wire.pack({**evidence, **{TOTAL + name: value for name, value in total.items()}})
        path = self._out / FOLDER / SUMS / f"{number:05d}-{evidence['exchange']}-{evidence['channel']}.sum"
        files.write(path, body.buffers, private=True, root=self._out)

    def _sums(self) -> list[Path]:
        files.refuse_link(self._out / FOLDER)
        return list((self._out / FOLDER / SUMS).glob("[0-9]*.sum"))


def read_sums(folder: Path, round: int) -> list[wire.Tree]:
    """The server's record of a round's sums, of all channels, in order.

    Raises:
        BadInput: for a damaged file.
    """
    found = []
    for path in folder.glob(f"{round:05d}-*.sum"):
        try:
            one = wire.decode(files.read(path))
        except (HostileMessage, OSError):
            one = {}
        if {key: type(one.get(key)) for key in _SAID} != _SAID or one["round"] != round:
            raise BadInput(f"{path} is damaged: put a copy back, or nobody is judged by it")
        found.append(one)
    return sorted(found, key=lambda one: int(one["exchange"]))


def owner_folder(out: Path, name: str) -> Path:
    """A simulated owner's own folder in a run's folder."""
    return files.private_folder(out / FOLDER / OWNERS / name, out)


def identity_in(folder: Path) -> Identity:
    """The signing key in an owner's folder; a new one where it has none yet."""
    path = folder / IDENTITY
    if files.size_of(path) is None:
        files.write(path, [Identity.generate().to_bytes()], private=True, settle=True)
    return Identity.from_bytes(files.read(path, most=KEY_BYTES))


def _round_of(path: Path) -> int:
    return int(path.name.partition("-")[0])
