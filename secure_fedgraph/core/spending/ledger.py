"""The write-ahead privacy ledger: what each client has spent, against whom, written before the reply."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock, get_ident
from typing import Any

from secure_fedgraph.core import files
from secure_fedgraph.core.accounting import epsilon
from secure_fedgraph.core.accounting.epsilon import Spent
from secure_fedgraph.core.accounting.events import (
    DiscreteRelease,
    Event,
    GaussianRelease,
    OccurringGaussian,
    OneHolderRelease,
    PureRelease,
    SampledGaussian,
    SamplingError,
    VanishingGaussian,
)
from secure_fedgraph.core.accounting.events import event as event_of
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import LARGER, Relation, Unit
from secure_fedgraph.core.spending.budget import Budget
from secure_fedgraph.core.spending.keyed_digest import kept_key, keyed
from secure_fedgraph.core.spending.ledger_line import LedgerLine
from secure_fedgraph.core.text import printable

OF_ONE_GRAPH = (Unit.CLIENT, Unit.NODE, Unit.EDGE)
"""The units of a graph that owners hold in pieces, largest first."""
OF_GRAPH_SETS = (Unit.CLIENT, Unit.GRAPH, Unit.NODE, Unit.EDGE)
OF_NODES = (Unit.LABEL, Unit.FEATURE)
"""Units that are a part of one node: its label, its features. Reported where a run protects them."""
HELD = (Unit.GRAPH, Unit.NODE, Unit.EDGE, *OF_NODES)
"""Units that several clients may hold."""
TORN = "unknown"
"""The client and the run of a line that was cut off, which may be anybody's."""
EVERYBODY = (TORN, "pool")
"""Names whose charges count for every client: a torn line may be anybody's, pooled data are everybody's."""
Releases = Mapping[str, tuple[Event, ...]]


@dataclass(frozen=True)
class Charge:
    """One upload's cost to one client's data.

    Args:
        client: whose budget pays.
        run, round, exchange, channel: which upload.
        unit: the unit of privacy that the noise was scaled to.
        relation: the neighbouring relation of that sensitivity.
        releases: reader -> what it was shown, as the accountant's events; a reader that is not named saw the
            upload without noise.
        steps: unit -> the noisy training steps that the upload is made of, where it is made of nothing else;
            they hold against every reader.
        computational: whether the noise's whole amount rests on secure aggregation.
        one_holder: whether a node that several clients hold, or a link, is in one client's uploads alone.
        data: digest of the client's own data, so that two owners never share one name's budget. A ledger
            writes it under a key of its own.
    """

    client: str
    run: str
    round: int
    exchange: int
    channel: str
    unit: str
    relation: str
    releases: Releases = field(default_factory=dict)
    steps: Releases = field(default_factory=dict)
    computational: bool = False
    one_holder: bool = False
    data: str = ""

    def __hash__(self) -> int:
        return hash((self.client, self.run, self.exchange, self.channel))

    def counts_for(self, run: str) -> bool:
        """Whether a run has to count it: its own charges, and a line that was cut off.

        >>> Charge("a", "r1", 0, 0, "update", "node", "zero-out").counts_for("r2")
        False
        """
        return self.run in (run, TORN)

    @property
    def cost(self) -> Cost:
        """The part of it that counts."""
        releases, steps = frozenset(self.releases.items()), frozenset(self.steps.items())
        return Cost(self.unit, self.relation, releases, steps, self.one_holder)

    def to_line(self) -> str:
        """One line of JSON."""
        plain = {key: getattr(self, key) for key in self.__dataclass_fields__}
        for key in ("releases", "steps"):
            plain[key] = {
                reader: [event.to_json() for event in events] for reader, events in plain[key].items()
            }
        return json.dumps(plain) + "\n"

    @classmethod
    def from_line(cls, line: bytes | str) -> Charge:
        """The inverse.

        Raises:
            ValueError, TypeError: for a line that :meth:`to_line` did not write.
        """
        fields = dict(LedgerLine.model_validate(json.loads(line)))
        for key in ("releases", "steps"):
            listed = fields[key].items()
            fields[key] = {reader: tuple(event_of(one.body()) for one in events) for reader, events in listed}
        return cls(**fields)


@dataclass(frozen=True)
class Cost:
    """The part of a charge that counts, without the upload's number: most charges of a run cost the same."""

    unit: str
    relation: str
    releases: frozenset[tuple[str, tuple[Event, ...]]]
    steps: frozenset[tuple[str, tuple[Event, ...]]]
    one_holder: bool = False

    def at(self, unit: str, reader: str, holders: int) -> tuple[Event, ...] | None:
        """The events at a unit against a reader; None where it is touched without noise.

        A smaller unit that one client holds can move the client's upload between any two points within the
        clip: twice the distance to zero. Where ``holders`` clients may hold the unit, as many uploads move so
        far. So noise that was scaled to a client's zeroed upload is worth ``1 / (2 * holders)`` of its
        multiplier, and noise for one upload's graphs or nodes ``1 / holders``; with ``one_holder`` one of
        them counts a node, with all that is its own, or a link.
        """
        if self.one_holder and unit in ((Unit.EDGE,) if self.unit == Unit.EDGE else (Unit.NODE, *OF_NODES)):
            holders = 1
        steps = dict(self.steps)
        if unit in steps:
            several = holders if unit != Unit.CLIENT else 1
            return tuple(e for e in steps[unit] for _ in range(_releasing(e, several)))
        events = dict(self.releases).get(reader)
        if events is None:
            return None
        if self.unit == unit:
            several = holders if unit in HELD else 1
            return events if several == 1 else _all_apart(events, several)
        if self.unit not in LARGER.get(unit, ()):
            return None
        changes = 1 if without_table(self.relation) == Relation.REPLACE else 2
        several = holders if self.unit in (Unit.CLIENT, Unit.GRAPH, Unit.NODE) else 1
        return _all_apart(events, several, changes)


def _releasing(event: Event, holders: int) -> int:
    """How many of a unit's holders release it."""
    return 1 if isinstance(event, OneHolderRelease) else holders


def _all_apart(events: tuple[Event, ...], holders: int, changes: int = 1) -> tuple[Event, ...]:
    """Noised releases where as many parts move, each of them ``changes`` times as far."""
    apart: list[Event] = []
    for event in events:
        if isinstance(event, SampledGaussian):
            apart += _sampled_apart(event, holders, changes > 1)
        else:
            apart.append(_apart(event, holders * changes))
    return tuple(apart)


def _sampled_apart(event: SampledGaussian, holders: int, changes: bool) -> list[Event]:
    """Sums of which a unit is part by coins: one coin a holder.

    A part that changes instead of vanishing is a replaced one. Several holders' parts are in one sum as often
    as their coins agree; where each holder's sum is noised by itself, their releases compose: both are
    charged.
    """
    if changes:
        event = replace(event, relation=Relation.REPLACE)
    if holders == 1:
        return [event]
    about = event.noise_multiplier, event.rate, event.steps, holders
    changed = event.relation == Relation.REPLACE
    together = OccurringGaussian(*about) if changed else VanishingGaussian(*about, vanishing=True)
    return [together, *[event] * holders]


def _apart(event: Event, times: int) -> Event:
    """A noised release, where the value that the noise hides moves so many times as far."""
    if isinstance(event, DiscreteRelease | GaussianRelease):
        return event.with_noise_scaled(1 / times)
    if isinstance(event, PureRelease):
        return replace(event, epsilon=event.epsilon * times)
    if isinstance(event, SamplingError):
        return replace(event, total_variation=min(event.total_variation * times, 1.0))
    raise TypeError(f"no rule for {event!r} where its value moves {times} times as far")


class Ledger:
    """Charges each upload before it is sent.

    Guarantees:
        - with a path, :meth:`charge` returns only after the line is on disk (fsync); what is left of the
          budget is checked and the line written in one step under a lock, also against other processes;
        - within :meth:`exchange` each charge is written at once, before the upload is sealed, and one fsync
          at the end puts all of them on disk. A process that is killed leaves every line that it wrote;
        - with a budget, a charge that would exceed it is refused and not written;
        - a torn last line, as a crash leaves it, is read as a charge without noise: never under-counted;
        - any other damage is refused, and so is a known client's name with other data, or a client's data
          under another name than in earlier runs;
        - noise that was charged under two neighbouring relations is never added up: it is refused;
        - nobody but the owner of the file reads it, and a link in its place is refused;
        - a client's data are recognised by a digest under the key in ``<path>.key``, which the owner keeps:
          a reader of the ledger alone cannot test a guess at them;
        - while a run goes on, a file that lacks charges which this process has seen in it is refused.

    Args:
        path: the file, one JSON line a charge; in memory without one. Runs over the same data may share it:
            what they spend adds up.
        budget: what no client may exceed.

    Raises:
        BadInput: for a file that ends in a torn line, or is damaged.
    """

    def __init__(self, path: Path | None = None, budget: Budget | None = None) -> None:
        self.path = path
        self.budget = budget
        self._charges: list[Charge] = []
        self._lock = Lock()
        self._file = None if path is None else files.AppendedFile(path)
        self._between_processes = None if path is None else files.KeptLock(Path(f"{path}.lock"))
        self._in_exchange: set[int] = set()
        """The threads whose charges one fsync puts on disk at the end."""
        self._unsynced: set[int] = set()
        """Those of them that wrote a line since."""
        self._failed = False
        """Whether the disk did not take charges: what was written may be lost."""
        self._read = 0
        self._last = b""
        """The line that ends at ``_read``."""
        self._lines = 0
        """How many lines end there."""
        self._seen = hashlib.sha256()
        """Of the bytes until there."""
        self._answered: dict[tuple[str, str], int] = {}
        self._rounds: dict[tuple[str, str], set[int]] = defaultdict(set)
        self._costs: dict[str, Counter[Cost]] = defaultdict(Counter)
        self._data: dict[str, str] = {}
        self._relation = ""
        self._key = b""
        if path is not None:
            if path.is_symlink() or (path.exists() and not path.is_file()):
                raise BadInput(
                    f"the ledger {path} is a symbolic link, a folder or a device: name a file, or none yet"
                )
            with _writable(path):
                files.private_folder(path.parent)
                with self._locked():
                    self._catch_up()

    def charge(self, charge: Charge, unavoidable: bool = False) -> None:
        """Writes one charge before the reply that it pays for.

        Args:
            unavoidable: for what leaves even if the client is silent, as a failure does: it is written beyond
                the budget too, and the budget then refuses everything after it.

        Raises:
            BudgetExhausted: where the charge would exceed the budget; nothing is written then.
            BadInput: where the ledger knows the client's name with other data.
        """
        if not type(charge.round) is type(charge.exchange) is int:
            raise BadInput(f"a charge of {charge.client} has no whole round and exchange: nothing is charged")
        self._check_disk()
        with self._locked():
            self._catch_up()
            plain, charge = charge.data, replace(charge, data=self._keyed(charge.data))
            self._check(charge, plain, None if unavoidable else self.budget)
            if self._file is not None:
                line = charge.to_line().encode()
                together = get_ident() in self._in_exchange
                if together:
                    self._unsynced.add(get_ident())
                self._file.append(line, sync=not together)
                self._go_on(line)
            self._count(charge)
            self._charges.append(charge)

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """One fsync for all charges that this thread makes within it, at the end.

        Whoever opens it holds every reply back until it is closed. Where the disk fails it raises, and no
        reply may leave. Inside another one it is a part of that.

        Raises:
            OSError: where the charges cannot be put on disk, and in every exchange after that.
        """
        thread = get_ident()
        if thread in self._in_exchange:
            yield
            return
        self._check_disk()  # before any client is asked: it might hand out a reply that it remembers
        self._in_exchange.add(thread)
        try:
            yield
        finally:
            self._in_exchange.discard(thread)
            if thread in self._unsynced and self.path is not None:  # even after an error: lines were written
                self._failed = True
                files.sync(self.path)
                self._failed = False
            self._unsynced.discard(thread)

    def _check_disk(self) -> None:
        if self._failed:
            raise OSError(
                f"{self.path} could not be written to disk, so charges may be missing from it: free the "
                "disk, then resume the run from its last checkpoint"
            )

    @classmethod
    def go_on(cls, path: Path, budget: Budget | None = None) -> Ledger:
        """The ledger of a run that was killed, to be continued.

        A torn last line is kept beside it in ``ledger.torn`` and counts as a charge without noise.

        Raises:
            BadInput: for any other damage.
        """
        if files.size_of(path) is not None:
            # a line that another process is writing is not torn
            with _writable(path), files.lock(Path(f"{path}.lock")):
                _set_aside_torn(path)
        return cls(path, budget)

    def check_kept(self) -> None:
        """Checks that the file still begins with all that this process has read and written in it.

        A charge looks at the length and at the last line alone; this reads everything, so it is for whoever
        makes figures of the file.

        Raises:
            BadInput: for one that was rolled back or rewritten.
        """
        if self.path is None:
            return
        with self._locked():
            content = _content(self.path) or b""
        self._check_begins(content)

    def _check_begins(self, content: bytes) -> None:
        if self.path is not None and hashlib.sha256(content[: self._read]).digest() != self._seen.digest():
            raise self._rolled_back()

    def _rolled_back(self) -> BadInput:
        return BadInput(
            f"{self.path} lacks charges that this process has seen in it: a ledger that was rolled back or "
            "rewritten under-counts; put the newest one back, or treat the budget as spent"
        )

    def check_relation(self, relation: str) -> None:
        """Checks that charges under a relation may stand in it: an epsilon is about one relation.

        Raises:
            BadInput: where noise was charged in it under another.
        """
        asked = without_table(relation)
        if self._relation and asked != self._relation:
            raise BadInput(
                f"the ledger {self.path or 'of this run'} has charges under --relation {self._relation}, and "
                f"costs under {asked} do not add to them: keep to {self._relation}, or give another --ledger"
            )

    @property
    def charges(self) -> tuple[Charge, ...]:
        """The charges made through this object."""
        return tuple(self._charges)

    @property
    def clients(self) -> tuple[str, ...]:
        """Everybody who was charged."""
        return tuple(name for name, costs in self._costs.items() if costs)

    def costs_of(self, client: str) -> Counter[Cost]:
        """What a client was charged, with the charges that count for everybody."""
        return sum((self._costs[name] for name in (client, *EVERYBODY)), Counter[Cost]())

    def answered(self, client: str, run: str) -> int:
        """The highest exchange of a run that a client was charged for, by any process; -1 for none."""
        return self._answered.get((client, run), -1)

    def rounds(self, client: str, run: str) -> frozenset[int]:
        """The rounds of a run that a client was charged for, by any process."""
        return frozenset(self._rounds[client, run])

    def mark(self) -> dict[str, Any]:
        """How long the file is, and a digest of it: what a checkpoint notes.

        Raises:
            BadInput: as :meth:`check_kept`: a checkpoint would vouch for what was rewritten.
        """
        with self._locked():  # half a line that another run is writing is no mark
            content = (_content(self.path) if self.path is not None else None) or b""
            if content and self.path is not None:  # nor is one that another run has not put on disk yet
                files.sync(self.path)
        self._check_begins(content)
        return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    def _keyed(self, data: str) -> str:
        if not data:
            return ""
        if not self._key:
            self._key = os.urandom(32) if self.path is None else kept_key(Path(f"{self.path}.key"))
        return keyed(self._key, data)

    def check_data(self, client: str, digest: str) -> None:
        """Checks that a client's earlier charges, where there are any, are about these data.

        Args:
            digest: of the client's data, as a charge has it before it is written.

        Raises:
            BadInput: for other data under the client's name.
        """
        known = self._data.get(client, "")
        # older ledgers hold the digest itself
        if known and digest and known not in (digest, self._keyed(digest)):
            raise BadInput(
                f"the ledger {self.path} knows {client} with other data, and budgets of different data do "
                f"not add up: keep data, partition, clients, seed and {self.path}.key, or give "
                "another --ledger"
            )

    def check_name(self, client: str, digest: str, clients: Collection[str]) -> None:
        """Checks that a client without charges does not hold data that were charged under another name.

        Args:
            digest: of the client's data, as a charge has it before it is written.
            clients: of the run; of these several may hold the same data.

        Raises:
            BadInput: for data that the ledger knows under a name of nobody in the run.
        """
        if not digest or not self._data or client in self._data:
            return
        keyed_digest = self._keyed(digest)
        names = [name for name, known in self._data.items() if known in (digest, keyed_digest)]
        if names and not set(names) & set(clients):
            raise BadInput(
                f"the ledger {self.path} knows the data of {client} as {min(names)}'s. Under a new name "
                f"earlier charges would not count: name the client {min(names)} again"
            )

    def _check(self, charge: Charge, plain: str, budget: Budget | None) -> None:
        if charge.releases or charge.steps:
            self.check_relation(charge.relation)
        self.check_data(charge.client, plain)
        if budget is not None:
            costs = self.costs_of(charge.client)
            costs[charge.cost] += 1
            events = events_for(budget, costs)
            earlier = events is None and events_for(budget, {charge.cost: 1}) is not None
            budget.check(events, charge.client, charge.channel, earlier)

    def _count(self, charge: Charge) -> None:
        if charge.releases or charge.steps:  # what left without noise costs the same under each
            self.check_relation(charge.relation)
            self._relation = without_table(charge.relation)
        self._costs[charge.client][charge.cost] += 1
        place = (charge.client, charge.run)
        self._answered[place] = max(charge.exchange, self._answered.get(place, -1))
        self._rounds[place].add(charge.round)
        if charge.data:
            self._data.setdefault(charge.client, charge.data)

    def _catch_up(self) -> None:
        """Reads what other processes have charged."""
        if self.path is None:
            return
        size = files.size_of(self.path) or 0
        if size == self._read:
            return
        fresh = b""
        if size > self._read:
            fresh = _content(self.path, self._read - len(self._last)) or b""
        if not fresh.startswith(self._last) or size < self._read:
            raise self._rolled_back()
        fresh = fresh.removeprefix(self._last)
        if not fresh.endswith(b"\n"):
            raise BadInput(
                f"{self.path} ends in a torn line, as a crash leaves it: 'resume' the run that tore it, "
                "which counts that line as charged without noise. Another file would not count what was "
                "spent; give one for other data only"
            )
        for line in fresh.split(b"\n")[:-1]:
            self._count(_charge(line, self.path, self._lines + 1))
            self._go_on(line + b"\n")

    def _go_on(self, line: bytes) -> None:
        """One more line has been read, or written."""
        self._seen.update(line)
        self._read, self._last, self._lines = self._read + len(line), line, self._lines + 1

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock:
            if self._between_processes is None:
                yield
                return
            with self._between_processes:
                yield


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    """A ledger that the system does not open is refused, with its name."""
    try:
        yield
    except OSError as error:
        raise BadInput(
            f"the ledger {path} cannot be opened ({error.strerror or error}): make it and its folder "
            "writable to you, or give another --ledger or --out"
        ) from error


def _set_aside_torn(path: Path) -> None:
    charges = read_ledger(path)  # refuses any other damage
    whole, _, torn = files.read(path).rpartition(b"\n")
    if not torn:
        return
    files.append(path.with_suffix(".torn"), torn + b"\n", sync=True)
    counted = charges[-1].to_line().encode()
    files.write(path, [whole, b"\n" * bool(whole), counted], private=True, settle=True)


def read_ledger(path: Path) -> list[Charge]:
    """All charges of a ledger file.

    Raises:
        BadInput: for a file that is not there, or is damaged anywhere but in its last line.
    """
    content = _content(path)
    if content is None:
        raise BadInput(f"no ledger at {path}")
    lines = content.split(b"\n")
    torn = lines.pop()
    charges = [_charge(line, path, number) for number, line in enumerate(lines, start=1)]
    if torn:
        charges.append(Charge(TORN, TORN, -1, -1, "torn line", Unit.CLIENT, Relation.ZERO_OUT))
    return charges


def check_mark(path: Path, mark: Mapping[str, Any]) -> None:
    """Checks that a ledger still begins with all that a checkpoint saw of it.

    Raises:
        BadInput: for one that was rolled back or rewritten.
    """
    size = mark.get("bytes")
    if type(size) is not int or size < 0 or not isinstance(mark.get("sha256"), str):
        raise BadInput(
            f"the checkpoint does not say how far {path} had come ('ledger' is {str(mark)[:60]}): put a copy "
            "of checkpoint.json back"
        )
    content = (_content(path) or b"")[:size]
    if len(content) < size or hashlib.sha256(content).hexdigest() != mark["sha256"]:
        raise BadInput(
            f"{path} lacks charges that the checkpoint beside it was made after: a ledger that was rolled "
            "back under-counts; put the newest one back, or treat the budget as spent"
        )


def _content(path: Path, after: int = 0) -> bytes | None:
    """The file from a byte on; None where there is none."""
    try:
        return files.read(path, after=after)
    except FileNotFoundError:
        return None


def _charge(line: bytes, path: Path, number: int) -> Charge:
    try:
        return Charge.from_line(line)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        faults: list[Any] = getattr(error, "errors", list)()  # of the line's model
        what = f"{'.'.join(map(str, faults[0]['loc']))}: {faults[0]['msg']}" if faults else str(error)
        raise BadInput(
            f"{path}, line {number} is damaged ({printable(what, 160)}): a ledger is never repaired; keep it "
            "as evidence and treat the budget as spent"
        ) from None


def events_of(costs: Mapping[Cost, int], unit: str, reader: str, holders: int) -> Counter[Event] | None:
    """One client's charges at a unit against a reader, as the accountant's events, counted; None where one of
    them carries no noise there."""
    events: Counter[Event] = Counter()
    for cost, times in costs.items():
        charged = cost.at(unit, reader, holders)
        if charged is None:
            return None
        for event in charged:
            events[event] += times
    return events


def events_for(budget: Budget, costs: Mapping[Cost, int]) -> Counter[Event] | None:
    """The same, as a budget counts."""
    return events_of(costs, budget.unit, budget.against, budget.holders)


def composed(costs: Mapping[Cost, int], unit: str, reader: str, holders: int, delta: float) -> Spent:
    """The epsilon of one client's counted charges."""
    events = events_of(costs, unit, reader, holders)
    return epsilon.WITHOUT if events is None else epsilon.epsilon(events, delta)


def without_table(relation: str) -> str:
    """The neighbouring relation, without the table of places that mashes of earlier versions name."""
    return relation.removesuffix(" on the frozen table")
