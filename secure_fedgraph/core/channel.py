"""Channels: what an algorithm declares about each kind of upload, before anything is sent."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from enum import Enum, StrEnum
from inspect import isfunction
from typing import Any, TypeVar

from secure_fedgraph.core.errors import BadInput, check_number, check_whole, wrong_type
from secure_fedgraph.core.guarantee import Unit

Work = TypeVar("Work", bound=Callable[..., Any])

OF_ROWS = (Unit.CLIENT, Unit.GRAPH, Unit.NODE, Unit.EDGE)
"""Whose data one row of an upload may describe. A label or features alone are no row of their own."""


class Recipient(StrEnum):
    """Who reads the uploads of a channel."""

    SERVER = "server"
    PEER = "peer"
    """One client at a time; the server only carries the bytes."""
    REFEREE = "referee"
    """Who scores the model, outside the federation and outside every guarantee."""


class Reveal(Enum):
    """What the reader of a channel has to learn for the algorithm to work."""

    SUM = "sum"
    """Only the sum over the cohort."""
    EACH = "each"
    """Every single upload."""
    VALUES = "values"
    """The weighted sum over the cohort, and how far each upload agrees with it; no upload."""
    NOTHING = "nothing"
    """Nothing comes back: the channel only carries something to the clients."""


class Domain(Enum):
    """What kind of numbers a stage or a carrier takes and gives."""

    REAL = "real"
    """Floating-point values that anybody who holds the bytes can read."""
    RING = "ring"
    """Signed integers on a public fixed-point grid; as readable as REAL."""
    MASKED = "masked"
    """Ring words under pairwise masks: uniform to everybody who lacks a pairwise key."""
    CIPHER = "cipher"
    """Ciphertexts: readable with the secret key only."""
    SEALED = "sealed"
    """Encrypted end to end: readable only to the peers that it was sealed to."""

    @property
    def readable(self) -> bool:
        """Whether the bytes can be read without any key."""
        return self in (Domain.REAL, Domain.RING)


@dataclass(frozen=True)
class UnitContribution:
    """How much of an upload one unit touches, where rows are sums over units. This bounds its sensitivity.

    The client enforces rows and norm on :class:`~secure_fedgraph.core.upload.ContributionRows`, and that
    there are no more parts than units; that row i of them is unit i, that nothing but a unit's own data
    decides whether its row is there, and ``independent``, are promises of the algorithm.

    Args:
        rows: how many rows at most one unit is part of.
        norm: the L2 norm of its part in each.
        independent: whether its part depends on its own data and on public things only. Where it does not, as
            with embeddings by a model that was trained on all units, noise bounds none of them.

    Raises:
        BadInput: for fewer rows than one, or a norm that is not positive and finite.
    """

    rows: int
    norm: float
    independent: bool = True

    def __post_init__(self) -> None:
        if self.rows < 1 or not (math.isfinite(self.norm) and self.norm > 0):
            raise BadInput(
                f"a unit that touches {self.rows} rows with a norm of {self.norm}: give 1 row or more and a "
                "positive norm"
            )

    @property
    def zeroed(self) -> float:
        """How far the sums move in L2 where a unit is taken out."""
        return math.sqrt(self.rows) * self.norm

    @property
    def replaced(self) -> float:
        """How far they move where it becomes another one."""
        return 2 * self.zeroed

    @property
    def largest(self) -> float:
        """The largest absolute value that a sum can hold, where that is bounded."""
        return math.inf


@dataclass(frozen=True)
class UnitContributionMoments(UnitContribution):
    """The same where a unit is one record ``(z, t)``, and what is sent are sums over all records.

    They are ``z z^T`` (where ``second`` says so) and ``z t^T``, with ``|z| <= 1`` and ``|t| <= targets``. So
    one record moves them by at most ``sqrt(|z|^4 + |z|^2 |t|^2)``. Both are divided by ``records``.

    The client enforces all of it on :class:`~secure_fedgraph.core.upload.ContributionMoments`.

    Args:
        targets: the largest L2 norm of a target.
        records: about how many records a client has at most: sums of more are cut where they leave [-1, 1].
        second: whether the second moments ``z z^T`` are sent too.
        readers: where a unit is a link, and records read the other links at their two ends: how many records
            at one node are added up at most, the first ones. 0 where no record reads another.

    Raises:
        BadInput: as :class:`UnitContribution`.

    >>> UnitContributionMoments(targets=1.0, records=100, second=True).norm == math.sqrt(2) / 100
    True
    """

    rows: int = field(init=False, default=1)
    norm: float = field(init=False)
    targets: float = field(kw_only=True)
    records: int = field(kw_only=True)
    second: bool = field(kw_only=True)
    readers: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        if self.readers < 0:
            raise BadInput(f"readers = {self.readers}: give 0 or more records at a node")
        if self.records < 1 or not (math.isfinite(self.targets) and self.targets > 0):
            raise BadInput(
                f"moments of {self.records} records with targets up to {self.targets}: give 1 record or more "
                "and a positive norm"
            )
        object.__setattr__(self, "norm", math.hypot(self.second, self.targets) / self.records)
        super().__post_init__()

    @property
    def zeroed(self) -> float:
        """A link that is taken out changes as many records at each of its ends as are added up there."""
        return 2 * self.readers * self._exchanged if self.readers else super().zeroed

    @property
    def replaced(self) -> float:
        """As one record that becomes another, or as a link that is taken out and one that is put in."""
        return 2 * self.zeroed if self.readers else self._exchanged

    @property
    def _exchanged(self) -> float:
        """One record for another: less than twice as far with second moments, which partly cancel.

        With ``c = z z'`` and ``s = t t'`` the squared distance is at most ``2 + 2 T^2 - 2 c^2 - 2 c s``,
        which is largest at ``c = -s / 2`` (``docs/guarantees.md``).

        >>> both = UnitContributionMoments(targets=0.5, records=1, second=True)
        >>> round(both.replaced / both.zeroed, 3)
        1.423
        """
        squared = self.targets**2
        if not self.second or squared > 2:
            return 2 * self.norm
        return math.sqrt(2 + 2 * squared + squared**2 / 2) / self.records

    @property
    def largest(self) -> float:
        """No sum over so many records holds a larger value."""
        return max(1.0, self.targets)


@dataclass(frozen=True)
class UnitContributionSampled(UnitContribution):
    """The same where there is one row, and each unit is part of it with a known probability.

    Whether it is, coins decide that the client takes from the operating system, anew for each upload. Nobody
    else sees them, so noise on the sum costs a unit less than where it is always part of it.

    The client enforces all of it on :class:`~secure_fedgraph.core.upload.ContributionSample`: parts of
    units that its coins did not take are left out.

    Args:
        norm: the L2 norm of a unit's part.
        rate: the probability.
        records: about how many units a client has at most: sums of more parts than ``rate`` of them are cut
            where they could pass that many norms.

    Raises:
        BadInput: as :class:`UnitContribution`, and for a rate outside (0, 1] or no records.

    References:
        Abadi et al., Deep Learning with Differential Privacy, CCS 2016; Kairouz, Liu, Steinke, ICML 2021.
    """

    rows: int = field(init=False, default=1)
    rate: float = field(kw_only=True)
    records: int = field(kw_only=True)

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1 or self.records < 1:
            raise BadInput(
                f"units that are sampled at a rate of {self.rate} out of {self.records}: give a rate above 0 "
                "and at most 1, and 1 record or more"
            )
        super().__post_init__()

    @property
    def largest(self) -> float:
        """No sum of so many parts holds a larger value."""
        return self.norm * max(self.rate * self.records, 1.0)


@dataclass(frozen=True)
class Channel:
    """One kind of upload, declared once by an algorithm and protected by a policy.

    Args:
        name: its name in messages, ledgers and reports; lower case, digits and underscores.
        reveal: what the reader must learn. The verbs of a round open no more than that.
        unit: whose data one row of an upload describes.
        to: who reads it: ``"server"``, ``"peer"`` (the server only carries it) or ``"referee"``
            (the experiment's examiner, outside the federation and outside every guarantee).
        exact: whether its values are names (numbers of nodes), not quantities: clipping or noise would turn
            them into other names, so no protection with such a stage binds.
        min_clients: clients below which a sum protects nobody, because it goes back to its contributors; 1
            where it does not matter. Protections that show only sums refuse fewer clients.
        smallest_sum: how many clients the smallest sum has, where sums are over parts of the cohort.
            Protections with a larger quorum refuse.
        too_few_message: the message of that refusal: what would happen, and what to do.
        accept_too_few: whether fewer clients were accepted explicitly: it binds, and ``too_few_message`` is
            its excess.
        why: why each upload is needed, for the message where a protection that shows only sums is refused.
        trained: whether uploads depend only on what the server gave and on local training, so that the noise
            of private training steps protects them.
        largest: the largest absolute value that its uploads may hold, where the algorithm bounds them; a
            protection that takes less refuses.
        largest_is: the setting that bounds them, for the message of that refusal.
        unit_contribution: for rows that are sums over units: how much of them one unit touches. The answer
            is then the units' parts, which the client clips and adds up before anything is sent.
        alike: whether every client that is asked in an exchange is given the same. The masks of sums are
            bound to all that was given alike in the run; on a channel that gives each client values of its
            own, a lying server may give anything, which is then in the excess of every sum.
        once: whether something is given on it at most once a round: clients refuse a second exchange of the
            round, whoever was asked in the first.
        leak: what its reader can compute from an opened upload or sum beyond what the algorithm needs, in a
            sentence, where neither masks nor seals prevent it. Without noise it is in the excess, and
            ``strictest`` takes a form of the algorithm that does not send on the channel, if there is one.
        gives_model: whether clients are given on it, before they train, the model that the round starts
            from. Clients can limit such a model
            (:class:`~secure_fedgraph.privacy.broadcasts.BroadcastLimits`), and nothing else that they are
            given.
        without_noise: what its reader learns beyond the channel's purpose where nothing on it is noised, in a
            sentence for the excess. Unlike a ``leak`` it makes no policy take another form.
        without_lost: whether an exchange between peers goes on without a client that is gone: what it would
            have sent or read is left out, and the verb says who read whom.
        links: whether an upload may depend on links. Where it may not, a client answers on its graph without
            them, and a link pays nothing for the upload.
        labels: the same of labels: a client answers as if it knew none.
        features: the same of nodes' features: a client answers as if all were 0.
        one_holder: whether a node that several clients hold is in the upload of its ``home`` alone, or, where
            the unit is a link, each is at one client alone, as ratings are. A client
            whose graph says which nodes have their home there then answers on these, and a node pays once,
            however many hold it; in other clients' graphs every holder counts. A run decides it by its data,
            so channels that differ in it alone are the same.

    Raises:
        BadInput: for an invalid name or reader, a field of another type or out of range, or sums over units
            where the unit is the client or values are exact.

    >>> Channel("update", Reveal.SUM).unit
    'client'
    """

    name: str
    reveal: Reveal
    unit: Unit = Unit.CLIENT
    to: str = Recipient.SERVER
    exact: bool = False
    min_clients: int = 1
    smallest_sum: int | None = None
    too_few_message: str = ""
    accept_too_few: bool = False
    why: str = ""
    trained: bool = False
    largest: float = 0.0
    largest_is: str = ""
    unit_contribution: UnitContribution | None = None
    alike: bool = True
    once: bool = False
    links: bool = True
    labels: bool = True
    features: bool = True
    one_holder: bool = field(default=False, compare=False)
    without_lost: bool = False
    leak: str = ""
    without_noise: str = ""
    gives_model: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise wrong_type("name", self.name, "give a channel's name as text")
        for key, kind, known in (("reveal", Reveal, tuple(Reveal)), ("unit", Unit, OF_ROWS)):
            value = getattr(self, key)
            if not isinstance(value, kind) or value not in known:
                names = ", ".join(f"{kind.__name__}.{one.name}" for one in known)
                raise wrong_type(f"channel {self.name!r}: {key}", value, f"give one of {names}")
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", self.name):
            raise BadInput(f"channel name {self.name!r}: use lower-case letters, digits and underscores")
        self._check_kinds()
        if self.to not in tuple(Recipient):
            raise BadInput(f"channel {self.name!r} goes to {self.to!r}: use one of {', '.join(Recipient)}")
        if self.once and not self.alike:
            raise BadInput(
                f"channel {self.name!r} gives each client its own, so nobody can check that it does so once "
                "a round: declare alike=True, or once=False"
            )
        if self.without_lost and (self.to, self.reveal) != (Recipient.PEER, Reveal.EACH):
            raise BadInput(
                f"channel {self.name!r}: only what peers send each other singly goes on without clients that "
                "are gone: declare to='peer' and Reveal.EACH, or without_lost=False"
            )
        if self.unit_contribution is not None and (self.unit is Unit.CLIENT or self.exact):
            raise BadInput(
                f"channel {self.name!r} declares sums over units: its unit is not the client, and its values "
                "are not exact"
            )
        if self.one_holder and (self.unit is not Unit.NODE or self.links) and self.unit is not Unit.EDGE:
            raise BadInput(
                f"channel {self.name!r}: nodes have a home, and links lead out of it: declare Unit.NODE and "
                "links=False, or one_holder=False"
            )

    @property
    def unread(self) -> tuple[Unit, ...]:
        """The units that no upload may depend on, so that one of them pays nothing.

        >>> Channel("rows", Reveal.SUM, links=False, labels=False).unread
        ('edge', 'label')
        """
        read = {Unit.EDGE: self.links, Unit.LABEL: self.labels, Unit.FEATURE: self.features}
        return tuple(unit for unit, may in read.items() if not may)

    def _check_function(self, work: object) -> None:
        if not isfunction(work):
            raise wrong_type(f"channel {self.name!r}: its method", work, "mark a function with the decorator")

    def _check_kinds(self) -> None:
        """Checks the fields by their annotations: a word would pass for a switch that is on."""
        for one in fields(self):
            value, where = getattr(self, one.name), f"channel {self.name!r}: {one.name}"
            if one.type == "bool" and not isinstance(value, bool):
                raise wrong_type(where, value, "give True or False")
            if one.type == "str" and not isinstance(value, str):
                raise wrong_type(where, value, "give text")
            if one.type == "int" or (one.type == "int | None" and value is not None):
                check_whole(where, value, 1)
            if one.type == "float":
                check_number(where, value)
                if not 0 <= value < math.inf:
                    raise BadInput(f"{where} = {value}: give a finite number from 0")
            if one.name == "unit_contribution" and not isinstance(value, UnitContribution | None):
                raise wrong_type(where, value, "give a UnitContribution, or None where rows are no such sums")

    @property
    def why_more_clients(self) -> str:
        """Why fewer clients than it needs are refused, for the message of that refusal."""
        return self.too_few_message or (
            f"sums over fewer than {self.min_clients} clients go back to their contributors and protect "
            "nobody: run it with more clients, or declare a smaller min_clients"
        )

    def answer(self, work: Work) -> Work:
        """Marks a method as the client's half of this channel (found by ``Algorithm``).

        Raises:
            BadInput: for what is no function.
        """
        self._check_function(work)
        work.__answers__ = self  # type: ignore[attr-defined]
        return work

    def read(self, work: Work) -> Work:
        """Marks a method as the reader's half of a peer channel, run in the client that reads the sum.

        Raises:
            BadInput: for what is no function.
        """
        self._check_function(work)
        work.__reads__ = self  # type: ignore[attr-defined]
        return work


def noisy_policy(channels: Iterable[Channel]) -> str:
    """The policy of noise that an error recommends: under masks, where no single upload has to be read.

    >>> noisy_policy([Channel("update", Reveal.SUM)]), noisy_policy([Channel("egos", Reveal.EACH)])
    ('distributed_dp', 'local_dp')
    """
    summed = all(
        one.reveal in (Reveal.SUM, Reveal.NOTHING) for one in channels if one.to != Recipient.REFEREE
    )
    return "distributed_dp" if summed else "local_dp"
