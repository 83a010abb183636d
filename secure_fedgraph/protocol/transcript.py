"""The record of a run, and the views that are taken from it.

Every message is recorded as sent and every value as opened: in full for the channels and rounds that an
audit needs, otherwise as size and digest. A :class:`View` holds what one party (or several that
collude) saw. It is the only thing an attack gets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.core import files, wire
from secure_fedgraph.core.channel import OF_ROWS, Domain
from secure_fedgraph.core.errors import BadInput, HostileMessage, damaged
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.message import ANSWER, CARRIER, Message, digest
from secure_fedgraph.core.parcel import OFFER, READ, Bundle, Parcel
from secure_fedgraph.core.upload import Layout

SERVER = "server"
PEER = "peer"
REFEREE = "referee"
NOTES = "notes.jsonl"
"""The file of all notes, a line each."""
INDEX = "index.json"
"""The file of what everybody knows, which a run writes at its end."""
BODY = ".sfg"
"""How the name of a file ends that holds a message or a value as it was."""
MOST_TALLIES = 8
"""Tallies that may follow the values of one upload."""

Keep = Callable[[str, int], bool]
"""Whether a channel's messages of a round are kept in full."""
Number = Annotated[int, Field(ge=0, lt=2**40)]
"""Of a note: all notes of a run share one running number."""
Names = Annotated[tuple[str, ...], Field(strict=False)]


def nothing(channel: str, round: int) -> bool:
    """Keep sizes and digests only."""
    return False


def everything(channel: str, round: int) -> bool:
    """Keep every message in full."""
    return True


class Note:
    """One line of a record."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True)
    number: Number


@dataclass(frozen=True)
class Sent(Note):
    """One message as sent: who, what, how many bytes on the wire."""

    number: Number
    round: int
    exchange: int
    channel: str
    step: str
    sender: str
    recipient: str
    bytes: int
    digest: str
    kept: bool


@dataclass(frozen=True)
class Opened(Note):
    """One value as its reader opened it."""

    number: Number
    reader: str
    round: int
    exchange: int
    channel: str
    contributors: Names
    bytes: int
    digest: str
    kept: bool


@dataclass(frozen=True)
class LeftOut(Note):
    """A client that an exchange went on without, and why: invalid answer, refusal, or not reached.

    A reason names what was wrong and holds nothing of what was sent.
    """

    number: Number
    round: int
    exchange: int
    channel: str
    step: str
    client: str
    reason: str


@dataclass(frozen=True)
class Cut(Note):
    """How many uploads of one exchange held more than their protection carries, and its limit.

    The reader learns the number, not which uploads: it is a coordinate of the same sum.
    """

    number: Number
    reader: str
    round: int
    exchange: int
    channel: str
    uploads: int
    of: int
    limit: float


@dataclass(frozen=True)
class Stopped(Note):
    """The last exchange that was charged for when a run was stopped and resumed: replies may be missing."""

    number: Number
    exchange: int


@dataclass(frozen=True)
class Seen:
    """Values that a party could read: an upload of one client, or the sum of several."""

    round: int
    exchange: int
    clients: tuple[str, ...]
    values: Mapping[str, np.ndarray] = field(repr=False)


KINDS: dict[str, type[Note]] = {
    "sent": Sent,
    "opened": Opened,
    "made": Opened,
    "left_out": LeftOut,
    "cut": Cut,
    "stopped": Stopped,
}
"""What there are notes of, as :data:`NOTES` names it."""
_READ = {name: TypeAdapter(kind) for name, kind in KINDS.items()}


class Transcript:
    """Records a run.

    Guarantees:
        - evaluation traffic (to or from the referee) is counted, and is in no party's view;
        - with a folder, bodies go to disk as they come and are not held in memory.

    Args:
        folder: where bodies and the index go; in memory without one.
        keep: what is kept in full.
        public: what everybody knows: the algorithm, its settings, the schema, the protections.
        go_on: read the notes of a run that was killed: what it sent is part of the record.
    """

    def __init__(
        self,
        folder: Path | None = None,
        keep: Keep = nothing,
        public: Mapping[str, Any] | None = None,
        go_on: bool = False,
    ) -> None:
        self.folder = folder
        self.keep = keep
        self.public: dict[str, Any] = dict(public or {})
        self.sent: list[Sent] = []
        self.opened: list[Opened] = []
        self.left_out: list[LeftOut] = []
        self.cut: list[Cut] = []
        self.stopped: list[Stopped] = []
        self.made: list[Opened] = []
        """What clients uploaded, before it was hidden; each knows its own. Kept in full or not at all."""
        self._bodies: dict[int, bytes] = {}
        self._next = 0
        self._notes = None if folder is None else files.AppendedFile(folder / NOTES, folder.parent)
        if folder is not None:
            files.private_folder(folder, folder.parent)
            if go_on:
                self._take_up(folder / NOTES)
            else:
                files.remove(folder / NOTES, folder.parent)

    def record(self, message: Message, raw: bytes) -> None:
        """Notes a message as it goes over the wire."""
        number, kept = self._store(message.channel, message.round, raw)
        place = (message.round, message.exchange, message.channel, message.step)
        parties = (message.sender, message.recipient)
        self._note("sent", number, *place, *parties, len(raw), digest(raw), kept)

    def record_opened(
        self,
        reader: str,
        round: int,
        exchange: int,
        channel: str,
        contributors: Collection[str],
        values: Mapping[str, Any],
    ) -> None:
        """Notes what a reader opened from the replies of an exchange.

        Nobody opens its own reply, so a value whose one contributor is the reader is the reader's upload.
        """
        own = tuple(contributors) == (reader,)
        if own and not self.keep(channel, round):
            return
        raw = wire.pack(values)  # joined only where it is kept in memory
        number, kept = self._store(channel, round, raw)
        place = (reader, round, exchange, channel)
        kind = "made" if own else "opened"
        self._note(kind, number, *place, tuple(contributors), raw.length, digest(raw), kept)

    def leave_out(self, request: Message, client: str, reason: str) -> None:
        """Notes that an exchange goes on without a client."""
        place = (request.round, request.exchange, request.channel, request.step)
        self._note("left_out", self._numbered(), *place, client, reason)

    def note_cut(self, reader: str, request: Message, uploads: int, of: int, limit: float) -> None:
        """Notes how many uploads of an exchange were cut to what their protection carries."""
        place = (request.round, request.exchange, request.channel)
        self._note("cut", self._numbered(), reader, *place, uploads, of, limit)

    def note_stopped(self, exchange: int) -> None:
        """Notes that the run was stopped in or after an exchange, and goes on."""
        self._note("stopped", self._numbered(), exchange)

    def sync(self) -> int:
        """Brings the notes to disk.

        Returns:
            How many there are, which a checkpoint keeps.
        """
        if self._notes is not None:
            self._notes.append(b"", sync=True)
        return self._next

    def check_whole(self, notes: int) -> None:
        """Checks that a record that goes on has the notes that a checkpoint counted.

        Raises:
            BadInput: where notes are missing.
        """
        if self.folder is not None and self._next < notes:
            raise damaged(self.folder / NOTES, f"it ends after {self._next} of {notes} notes")

    def body(self, number: int) -> bytes:
        """The bytes kept under a number.

        Raises:
            OSError: where the file is gone.
        """
        if self.folder is None:
            return self._bodies[number]
        return files.read(self._place(self.folder, number), root=self.folder.parent)

    def close(self) -> None:
        """Writes what everybody knows, so that a later process can read the folder."""
        if self.folder is not None:
            index = json.dumps({"public": self.public}).encode()
            files.write(self.folder / INDEX, [index], private=True, root=self.folder.parent)

    @classmethod
    def load(cls, folder: Path) -> Transcript:
        """A finished run's transcript.

        Raises:
            BadInput: where the folder holds none, or the index is damaged, naming the key.
        """
        path = folder / INDEX
        if files.size_of(path) is None:
            raise BadInput(f"no transcript in {folder}: run again with --set transcript=full to keep one")
        try:
            index = json.loads(files.read(path, root=folder.parent))
        except (ValueError, RecursionError):
            raise damaged(path, "it is no JSON") from None
        if not isinstance(index, dict):
            raise damaged(path, "it holds no named keys")
        _check_public(path, index.get("public"))
        transcript = cls(None, public=index["public"])
        transcript.folder = folder
        if transcript._read_notes(folder / NOTES) is not None:
            raise damaged(folder / NOTES, "its last line is cut off")
        return transcript

    @staticmethod
    def is_begun(folder: Path) -> bool:
        """Whether notes of messages lie in a folder, of a run that is finished or not."""
        return bool(files.size_of(folder / NOTES))

    def view(self, *parties: str) -> View:
        """What these parties together saw.

        Raises:
            BadInput: for a party that the run does not have.
        """
        known = {SERVER, *self.public.get("clients", ())}
        for party in parties:
            if self.public and party not in known:
                raise unknown_name("party", party, known)
        return View(self, frozenset(parties))

    def traffic(self) -> dict[str, int]:
        """Bytes on the wire: up, down, and apart from them the referee's."""
        up = sum(s.bytes for s in self.sent if s.recipient == SERVER)
        down = sum(s.bytes for s in self.sent if s.sender == SERVER)
        total = sum(s.bytes for s in self.sent)
        return {"up": up, "down": down, "evaluation": total - up - down}

    def _numbered(self) -> int:
        """The number of one more note."""
        self._next += 1
        return self._next - 1

    def _note(self, kind: str, *fields: Any) -> None:
        """Adds a note and writes it at once: a run may not reach its end."""
        note = KINDS[kind](*fields)
        getattr(self, kind).append(note)
        if self._notes is not None:
            line = json.dumps({"kind": kind, **vars(note)}) + "\n"
            self._notes.append(line.encode())

    def _take_up(self, path: Path) -> None:
        whole = self._read_notes(path, missing=b"")
        if whole is not None:  # the process was killed in a note; the ledger has charged the message itself
            files.write(path, [whole], private=True, root=path.parents[1])
        for body in self._unnamed_bodies(path.parent):  # the process was killed between a body and its note
            files.remove(body, path.parents[1])

    def _read_notes(self, path: Path, missing: bytes | None = None) -> bytes | None:
        """Adds the notes of a file.

        Args:
            missing: what a file that is not there holds; by default it is damaged.

        Returns:
            The file without its last line, where that is cut off; else None.
        """
        try:
            notes = files.read(path, root=path.parents[1])
        except FileNotFoundError:
            if missing is None:
                raise damaged(path, "it is missing") from None
            notes = missing
        *lines, torn = notes.split(b"\n")
        for place, line in enumerate(lines, start=1):
            try:
                kind = json.loads(line)["kind"]
                note = _READ[kind].validate_json(line)
            except ValidationError as error:
                key = ".".join(map(str, error.errors()[0]["loc"]))[:40]
                raise damaged(path, f"line {place} holds a note whose {key} is missing or wrong") from None
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise damaged(path, f"line {place} is no note") from None
            if note.number != self._next:
                raise damaged(path, f"line {place} is note {note.number}, and {self._next} is due")
            getattr(self, kind).append(note)
            self._next += 1
        return notes[: -len(torn)] if torn else None

    def _unnamed_bodies(self, folder: Path) -> list[Path]:
        """Files of bodies that no note says were kept."""
        notes: list[Sent | Opened] = [*self.sent, *self.opened, *self.made]
        kept = {note.number for note in notes if note.kept}
        named = {self._place(folder, number).name for number in kept}
        return sorted(body for body in folder.glob(f"*{BODY}") if body.name not in named)

    def _store(self, channel: str, round: int, raw: bytes | wire.Parts) -> tuple[int, bool]:
        number, kept = self._numbered(), self.keep(channel, round)
        if kept and self.folder is None:
            self._bodies[number] = bytes(raw)
        elif kept and self.folder is not None:
            # not synced one by one: killing the process loses nothing, and digests show other losses
            buffers = raw.buffers if isinstance(raw, wire.Parts) else [raw]
            files.write(
                self._place(self.folder, number), buffers, private=True, root=self.folder.parent, sync=False
            )
        return number, kept

    @staticmethod
    def _place(folder: Path, number: int) -> Path:
        return folder / f"{number:06d}{BODY}"


class View:
    """What some parties saw, together: the messages they sent or got, and the values they opened.

    Guarantees:
        - nothing of another party is in it, and nothing of the referee's;
        - an upload that the parties cannot read is not returned as if they could.

    Args:
        transcript: the record that it is taken from.
        parties: party names; the server is ``"server"``.
    """

    def __init__(self, transcript: Transcript, parties: frozenset[str]) -> None:
        self.parties = parties
        self.public: Mapping[str, Any] = transcript.public
        self.sent: tuple[Sent, ...] = tuple(
            s
            for s in transcript.sent
            if parties & {s.sender, s.recipient} and REFEREE not in (s.sender, s.recipient)
        )
        self.opened: tuple[Opened, ...] = tuple(o for o in transcript.opened if o.reader in parties)
        self.cut: tuple[Cut, ...] = tuple(one for one in transcript.cut if one.reader in parties)
        # What others opened and only these parties had sent: they know it, sealed or not.
        self._own: tuple[Opened, ...] = tuple(
            o for o in transcript.opened if o.reader != REFEREE and parties.issuperset(o.contributors)
        )
        self._made: tuple[Opened, ...] = tuple(o for o in transcript.made if o.reader in parties)
        self._body = transcript.body

    def __repr__(self) -> str:
        return (
            f"View({', '.join(sorted(self.parties))}: {len(self.sent)} messages, {len(self.opened)} opened)"
        )

    def asked(self, channel: str) -> list[Seen]:
        """What the clients were given with each request on a channel, where it was kept."""
        seen = []
        for note in self._kept(self.sent, channel):
            if note.sender == SERVER and note.step == ANSWER:
                tree = Message.from_bytes(self._body(note.number)).tree()
                given = {k: v for k, v in tree.items() if not k.startswith(CARRIER)}
                seen.append(Seen(note.round, note.exchange, (note.recipient,), given))
        return seen

    def uploads(self, channel: str, exchange: int | None = None) -> list[Seen]:
        """The single uploads that these parties can read: empty where masks or ciphers hide them.

        Args:
            exchange: only of this one; bodies are read from disk one by one.
        """
        seen = []
        for note in self._replies(channel):
            if exchange is not None and note.exchange != exchange:
                continue
            values = readable(self._reply(note), Unit(self._terms(channel)["unit"]))
            if values is not None:
                seen.append(Seen(note.round, note.exchange, (note.sender,), values))
        return seen

    def own_uploads(self, channel: str) -> list[Seen]:
        """What these parties added to sums themselves under masks, ciphers or noise, as they made it."""
        return [
            Seen(o.round, o.exchange, o.contributors, wire.decode(self._body(o.number)))
            for o in self._kept(self._made, channel)
        ]

    def sums(self, channel: str) -> list[Seen]:
        """The sums that these parties opened."""
        return [
            Seen(o.round, o.exchange, o.contributors, wire.decode(self._body(o.number)))
            for o in self._kept(self.opened, channel)
            if len(o.contributors) > 1
        ]

    def delivered(self, channel: str) -> list[Seen]:
        """The single replies behind the sums that these parties were delivered by the server.

        Only replies in the clear are given, and sealed ones without masks under the seal.
        """
        unit, seen = Unit(self._terms(channel)["unit"]), []
        for note in self._kept(self.sent, channel):
            if note.step == READ and note.sender == SERVER and note.recipient in self.parties:
                request = Message.from_bytes(self._body(note.number))
                bundle = Bundle.from_tree(request.tree(), channel, note.recipient, note.round)
                for name, tree in bundle.replies.items():
                    values = readable(tree, unit)
                    if values is not None:
                        seen.append(Seen(bundle.round, bundle.exchange, (name,), values))
        for note in self._kept(self.opened, channel):
            if len(note.contributors) == 1:
                values = wire.decode(self._body(note.number))
                seen.append(Seen(note.round, note.exchange, note.contributors, values))
        return seen

    def offer(self, channel: str, exchange: int) -> Seen | None:
        """The offer that an exchange on a peer channel answered; None where these parties cannot read it.

        They can read it where it passed them unsealed, and where it was their own.
        """
        for note in self._kept(self.sent, channel):
            if note.exchange == exchange and note.step == ANSWER and note.sender == SERVER:
                given = Message.from_bytes(self._body(note.number)).tree()
                for parcel in (Parcel.from_bytes(v) for k, v in given.items() if k.startswith(OFFER)):
                    values = readable(parcel.tree, Unit(self._terms(parcel.channel)["unit"]))
                    if values is not None:
                        return Seen(parcel.round, parcel.exchange, (parcel.sender,), values)
        for delivered in (o for o in self.opened if o.channel == channel and o.exchange == exchange):
            asker = (delivered.round, (delivered.reader,))
            for own in self._own:
                if own.kept and own.channel != channel and (own.round, own.contributors) == asker:
                    values = wire.decode(self._body(own.number))
                    return Seen(own.round, own.exchange, own.contributors, values)
        return None

    def why_unreadable(self, channel: str) -> str:
        """One sentence: why no single upload of a channel can be read from this view."""
        if channel not in self.public.get("channels", {}):
            return f"the algorithm has no channel {channel!r}"
        replies = self._replies(channel)
        if not replies:
            return f"no upload of channel {channel!r} was kept in full in this view"
        domains = sorted({str(self._reply(note).get("domain")) for note in replies})
        policy = self._terms(channel).get("policy", "its protection")
        return f"every upload of channel {channel!r} is {' or '.join(domains)} under policy {policy}"

    def _terms(self, channel: str) -> Mapping[str, Any]:
        terms: Mapping[str, Any] | None = self.public.get("channels", {}).get(channel)
        if terms is None:
            raise damaged(INDEX, f"'public.channels' lacks {channel[:60]}")
        return terms

    def _replies(self, channel: str) -> list[Sent]:
        return [s for s in self._kept(self.sent, channel) if s.step == ANSWER and s.sender != SERVER]

    def _reply(self, note: Sent) -> wire.Tree:
        return Message.from_bytes(self._body(note.number)).tree()

    @staticmethod
    def _kept(notes: Iterable[Any], channel: str) -> list[Any]:
        return [note for note in notes if note.kept and note.channel == channel]


def readable(reply: wire.Tree, unit: Unit) -> dict[str, np.ndarray] | None:
    """The values of a sealed upload whose domain needs no key to read; None otherwise.

    Raises:
        HostileMessage: for an upload that does not hold what its layout promises.
    """
    domain = reply.get("domain")
    if domain not in [one.value for one in Domain] or not Domain(domain).readable:
        return None
    data, text, step = reply.get("data"), reply.get("layout"), reply.get("grid")
    layout = Layout.from_text(text if isinstance(text, str) else "")
    size = layout.rows * layout.width
    if not isinstance(data, np.ndarray) or not size <= data.size <= size + MOST_TALLIES:
        raise HostileMessage("an upload does not hold the values that its layout says")
    if not np.isfinite(data).all():
        raise HostileMessage("an upload holds values that are not finite")
    values = np.asarray(data, dtype=np.float64).reshape(-1)[:size]  # tallies may follow
    matrix = values.reshape(layout.rows, layout.width)
    if domain == Domain.RING.value:
        if type(step) is not float:
            raise HostileMessage("an upload in whole steps does not say how large a step is")
        matrix = matrix * step
    named = layout.unpack(matrix, by_row=unit is not Unit.CLIENT)
    return {name: value.numpy() for name, value in named.items()}


def _check_public(path: Path, public: Any) -> None:
    """Checks that the public facts have the form that views read."""
    if not isinstance(public, dict):
        raise damaged(path, "it lacks 'public'")
    clients, channels = public.get("clients", []), public.get("channels", {})
    if not isinstance(clients, list) or not all(isinstance(name, str) for name in clients):
        raise damaged(path, "'public.clients' is no list of names")
    if not isinstance(channels, dict):
        raise damaged(path, "'public.channels' holds no named channels")
    for name, terms in channels.items():
        if not isinstance(terms, dict) or terms.get("unit") not in OF_ROWS:
            raise damaged(path, f"'public.channels.{name[:60]}' names no unit")
