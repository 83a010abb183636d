"""Checkpoints: what a run keeps after each round, so that a killed run can go on."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from filelock import FileLock, Timeout

from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput, damaged
from secure_fedgraph.storage.party_store import PartyStore, read_json, write_json

SERVER = "server"
BLOCK = 256
"""Exchange numbers are reserved on disk in blocks: after a crash a run goes on above all it may have used."""
RESERVED = "exchange.json"
"""Up to which number they are reserved; nobody is asked anything before it is written."""


class Clients(Protocol):
    """The clients of a run, each of which keeps its memory itself."""

    def save(self, label: str, committed: str) -> None:
        """Has every client keep its memory under a label."""
        ...


@dataclass(frozen=True)
class Progress:
    """How far a run has come."""

    run: str
    round: int = 0
    state: dict[str, Any] = field(default_factory=dict, repr=False)
    history: list[dict[str, Any]] = field(default_factory=list, repr=False)
    seconds: float = 0.0
    ledger: dict[str, Any] = field(default_factory=dict)
    notes: int = 0
    """How many notes the record of what was sent had."""


class Checkpoint:
    """The folder that ``resume`` reads.

    Guarantees:
        - a round is kept whole or not at all: the server's state, every client's memory, the scores;
        - no key and no counter of a key stream is in it: clients agree on fresh keys on resume;
        - exchange numbers are reserved on disk first, so none is used twice, whenever the run is killed;
        - one process at a time: a second one is refused.

    Args:
        folder: ``checkpoint/`` of the run; None keeps nothing.
        facts: what the run depends on. A checkpoint with other facts belongs to another run.
        resume: go on from the checkpoint in the folder.

    Raises:
        BadInput: for a checkpoint that is missing, damaged, in use, of another run or of an older format.
    """

    def __init__(self, folder: Path | None, facts: Mapping[str, Any], resume: bool = False) -> None:
        self.folder = folder
        self.reserved = 0
        self.label = ""
        self._facts = dict(facts)
        self._attempt = secrets.token_hex(4)
        self.progress = Progress(run=secrets.token_hex(8))
        if folder is None:
            if resume:
                raise BadInput("resume needs the folder of the run: give out=")
            return
        self._lock = lock(folder)
        try:
            if resume:
                self.progress = self._load(folder)
            else:
                files.remove(commit_path(folder), folder.parent)
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.folder is not None:
            self._lock.release()

    @property
    def clients(self) -> Path | None:
        """The folder of the clients' stores."""
        return self.folder and self.folder / "clients"

    def reserve(self, exchange: int) -> None:
        """Called before a message is sent under a number: writes a higher number to disk first."""
        if exchange <= self.reserved:
            return
        self.reserved = exchange + BLOCK
        if self.folder is not None:
            write_json(self.folder / RESERVED, {"reserved": self.reserved}, self.folder.parent)

    def commit(
        self,
        round: int,
        state: Mapping[str, Any],
        history: list[Any],
        seconds: float,
        clients: Clients,
        ledger: Mapping[str, Any],
        notes: int,
    ) -> None:
        """Keeps a finished round, and how far the ledger and the record of what was sent had come then."""
        if self.folder is None:
            return
        label = f"{round:05d}-{self._attempt}"
        clients.save(label, self.label)
        store = PartyStore(self.folder / SERVER, SERVER, self.folder.parent)
        store.save({"state": dict(state)}, label, self.label)
        write_json(
            commit_path(self.folder),
            {
                "run": self.progress.run,
                "label": label,
                "round": round,
                "seconds": seconds,
                "history": history,
                "ledger": dict(ledger),
                "notes": notes,
                "facts": self._facts,
            },
            self.folder.parent,
        )
        self.label = label

    def _load(self, folder: Path) -> Progress:
        path, root = commit_path(folder), folder.parent
        if files.size_of(path) is None:
            raise BadInput(f"{folder.parent} holds no checkpoint to resume from: start it with 'run'")
        kept = _typed(path, read_json(path, root), _COMMITTED)
        for key, stored, current in _differences(kept["facts"], self._facts):
            raise BadInput(
                f"{path} belongs to another run: its {key} is {str(stored)[:80]} and this one's is "
                f"{str(current)[:80]}; resume it with what it was started with, or give another folder"
            )
        self.label = kept["label"]
        marks = folder / RESERVED
        if kept["round"] or files.size_of(marks) is not None:  # before the first message the file is missing
            self.reserved = _typed(marks, read_json(marks, root), {"reserved": int})["reserved"]
        state = PartyStore(folder / SERVER, SERVER, root).load(self.label).get("state")
        if not isinstance(state, dict) or kept["round"] < 0 or self.reserved < 0:
            raise damaged(path, "its round or its state is invalid")
        seconds = float(kept["seconds"])
        notes = _typed(path, {"notes": 0, **kept}, {"notes": int})["notes"]
        return Progress(kept["run"], kept["round"], state, kept["history"], seconds, kept["ledger"], notes)


_COMMITTED: dict[str, type | tuple[type, ...]] = {
    "run": str,
    "label": str,
    "round": int,
    "seconds": (int, float),
    "history": list,
    "ledger": dict,
    "facts": dict,
}


def _typed(path: Path, kept: dict[str, Any], kinds: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any]:
    """What a checkpoint's file holds, once every value is of its type.

    Raises:
        BadInput: naming the first key that is missing or of another type.
    """
    for key, kind in kinds.items():
        if key not in kept:
            raise damaged(path, f"it lacks {key!r}")
        if not isinstance(kept[key], kind) or isinstance(kept[key], bool):
            raise damaged(path, f"{key!r} is {str(kept[key])[:40]!r}")
    return kept


def _differences(there: Any, here: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for name in {**there, **here}:
            place = f"{key}.{name}".lstrip(".")
            yield from _differences(there.get(name), here.get(name), place)
    elif there != here:
        yield key, there, here


def commit_path(folder: Path) -> Path:
    """The one file that names the last whole round."""
    return folder / "checkpoint.json"


def lock(folder: Path) -> FileLock:
    """Takes a run's folder for this process; the system frees it when the process ends, however it ends.

    Raises:
        BadInput: where another process has it.
    """
    files.private_folder(folder, folder.parent)
    file_lock = files.lock(folder / "lock", timeout=0)
    try:
        file_lock.acquire()
    except Timeout:
        raise BadInput(f"another process is at work in {folder.parent}: wait for it, or end it") from None
    return file_lock
