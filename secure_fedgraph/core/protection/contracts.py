"""The parts of a protection: stages that change values, and a carrier that takes them to their reader."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from secure_fedgraph.core.accounting.events import Event
from secure_fedgraph.core.channel import Channel, Domain, Reveal
from secure_fedgraph.core.crypto import Identity, Secret, verify
from secure_fedgraph.core.errors import HostileMessage, Incompatible
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.noise_components import ONE_PART, NoiseComponents
from secure_fedgraph.core.upload import Layout, all_finite
from secure_fedgraph.core.wire import Tree

# A client's keys: its identity, the roster it was given, and its secrets of this run.


@dataclass
class Party(Secret):
    """What a client's carriers work with. It never leaves the process and is never checkpointed.

    Args:
        name: the client's name.
        identity: its signing key, older than the run.
        roster: every client's public signing key, from outside the protocol: the server did not hand it out.
        secrets: keys of this run, by carrier.
        folder: its own, where a carrier keeps what it has to find again after the run; None keeps it here.
    """

    name: str
    identity: Identity
    roster: Mapping[str, bytes]
    secrets: dict[str, Any] = field(default_factory=dict, repr=False)
    folder: Path | None = None

    def verify(self, name: str, signature: bytes, message: bytes) -> None:
        """Returns if the client of that name on this one's roster signed ``message``.

        Raises:
            HostileMessage: where it did not.
        """
        verify(self.roster[name], signature, message)


Ask = Callable[[str, Mapping[str, Tree]], dict[str, Tree]]
"""The server half of a carrier asks clients for a step of its protocol through this."""

NoiseKeys = Mapping[str, tuple[bytes, ...]]
"""Client -> keys of the last so many removable parts of its noise, of those that handed them out."""

TALLY = 1
"""The largest number that one upload adds to a tally: a tally counts uploads."""

DIFFERENCES = "two sums over cohorts that differ in one client give that client's upload by subtraction"
"""The excess of every sum, until clients insist on a minimum overlap of cohorts."""

SUBTRACTION = "with two clients, each learns the other's upload by subtracting its own"


@dataclass(frozen=True)
class Sensitivity:
    """How far one unit's row can be from the zero row, in the numbers of the current domain."""

    l2: float = math.inf
    unit: Unit | None = None
    """Whose data that row is, which noise scaled to it protects; None where a unit has rows without bound."""
    noise_added_by: str = ""
    """Who has added noise before this point: a zeroed unit's row is then no longer the zero row."""

    @property
    def bounded(self) -> bool:
        """Whether a stage before this point bounds it."""
        return math.isfinite(self.l2)


@dataclass(frozen=True)
class BindContext:
    """What binding knows: the channel, everybody who may ever contribute, the neighbouring relation."""

    channel: Channel
    clients: tuple[str, ...]
    relation: str
    ring: int = 0
    """Size of the ring that the carrier adds in, 0 where it adds real numbers."""
    quorum: int = 1
    """The client's own: the fewest clients of a sum that it takes part in, itself counted."""
    removes_noise: bool = False
    """Whether the carrier hands the reader keys of noise that a sum does not need."""
    noise_components: NoiseComponents = ONE_PART
    """The parts of a client's share of the noise, once the stages are bound."""


@dataclass(frozen=True)
class Scope:
    """Where a value belongs: derived keys and checks bind every part of it."""

    run: str
    round: int
    exchange: int
    channel: str
    cohort: tuple[str, ...]
    reader: str = ""
    """The one peer that reads, on a channel where one reads; empty where the server or all others do."""
    offer: int = 0
    """The exchange of the offer that is answered, where one is."""
    history_head: str = ""
    """Head of the history of all that clients were given, this exchange included. Masks bind it: clients that
    were shown different things by a lying server, now or before, make masks that do not cancel."""


@dataclass(frozen=True)
class Noise:
    """What a stage's noise is worth: the accountant's events for so many values, and against whom."""

    release: Callable[[int], tuple[Event, ...]]
    against: frozenset[str]
    computational: bool = False
    """Whether its whole amount counts only while nobody sees a single upload."""


class Stage(ABC):
    """One step of a protection, with a half at the client and a half at the reader."""

    takes: Domain
    gives: Domain
    effect_words: str = ""
    """What the client's half has done to an upload, in a word, for sentences on what a reader sees."""
    scales: bool = False
    """Whether values stay what they are but for one common factor, rounding and noise: what an algorithm
    sends beside its update in the same upload, such as whether that was clipped, can then still be read."""
    grid: float = 0.0
    """The step that it rounds to, where parts of sums are to be rounded before they are added up."""
    limit: float
    """Of a stage with :attr:`tallies`: the largest absolute value that it passes on; the rest is cut."""
    noise_components: NoiseComponents = ONE_PART
    """Of a stage whose noise comes in shares: the parts of one, of which a sum may not need all."""
    tallies: int = 0
    """How many words it adds behind an upload: whole numbers, of which only the sum over the uploads is read.
    No noise covers them, so a stage with tallies comes after every stage that adds noise; without noise it
    may stand anywhere.
    The sum of :data:`TALLY` over everybody who may contribute has to fit the carrier's ring."""

    @abstractmethod
    def bind(self, sensitivity: Sensitivity, context: BindContext) -> tuple[Stage, Sensitivity]:
        """This stage with its numbers filled in, and the sensitivity after it."""

    @abstractmethod
    def apply(self, matrix: np.ndarray, scope: Scope) -> np.ndarray:
        """The client's half, on the matrix ``[rows, width]``."""

    def apply_with_keys(self, matrix: np.ndarray, scope: Scope, keys: Sequence[bytes]) -> np.ndarray:
        """The client's half, with the removable parts of :attr:`noise_components` drawn under a key each."""
        return self.apply(matrix, scope)

    def take_off(self, matrix: np.ndarray, keys: Sequence[bytes]) -> np.ndarray:
        """What is opened less parts of one client's noise, by the keys of the last so many of them."""
        return matrix

    def tally(self, matrix: np.ndarray) -> np.ndarray:
        """The client's words of :attr:`tallies`, each from 0 to :data:`TALLY`, of what :meth:`apply` gets."""
        return np.zeros(self.tallies, dtype=np.int32)

    def undo(self, matrix: np.ndarray, scope: Scope) -> np.ndarray:
        """The reader's half, on the opened value; by default nothing."""
        return matrix

    def noise(self) -> Noise | None:
        """What the ledger may count for this stage."""
        return None

    def deviation(self, uploads: int, whole: int = 0) -> float:
        """The standard deviation of the noise in the sum of so many uploads, in the sum's numbers.

        Args:
            whole: how many of the uploads have noise that the sum does not need and that nobody took off.
        """
        return 0.0

    def public(self) -> dict[str, Any]:
        """Public parameters, for the reader of an upload and for reports."""
        return {}


class Carrier(ABC):
    """How the values of a protection travel, and what the reader can open of them."""

    name: str
    takes: Domain
    gives: Domain
    reveals: frozenset[Reveal]
    ring: int = 0
    longest: float = math.inf
    """The largest L2 norm of an upload that it carries; longer ones are shortened to it."""
    colluders: float = 0.0
    """The share of all clients that may work with the server; a sum holds two others or more."""
    agrees_on_keys: bool = False
    """Whether the clients must have agreed on pairwise keys before round 1."""
    tolerates_dropouts: bool = False
    """Whether a sum opens without clients that stop answering; every other carrier then refuses."""
    steps_after_upload: tuple[str, ...] = ()
    """The steps after an upload that end with :attr:`confirming_step`, where there are any."""
    noise_components: NoiseComponents = ONE_PART
    """The parts of a share of the noise whose keys it hands to the reader where a sum does not need them."""
    confirming_step: str = ""
    """The step that shows a client that the sum it uploaded for is complete: from then on the client keeps
    its changed memory. Empty where no client can know: it then keeps that once the upload is sealed."""

    def bind(self, context: BindContext) -> Carrier:
        """This carrier with its parameters filled in.

        Raises:
            Incompatible: where it cannot serve the channel.
        """
        return self

    def removes_noise(self, context: BindContext) -> bool:
        """Whether clients may hand out keys of noise that a sum does not need; asked before binding."""
        return False

    def excess(self, context: BindContext, effect_words: str = "") -> tuple[str, ...]:
        """What a reader could learn beyond the declaration, one sentence each.

        Args:
            effect_words: what the stages have done to every upload, e.g. ``", clipped, noised"``.
        """
        return (f"carrier {self.name!r} does not say what else it lets its reader learn",)

    @property
    def has_set_up(self) -> bool:
        """Whether something has to happen once before round 1. Messages of a
        set-up name the carrier, so a run has one such carrier of a name."""
        return type(self).set_up is not Carrier.set_up

    def set_up(self, ask: Ask, clients: tuple[str, ...]) -> None:
        """The server half of what has to happen once before round 1; by default nothing."""
        return

    def answer(self, step: str, given: Tree, scope: Scope, party: Party) -> Tree:
        """The client half of a step of this carrier's own protocol."""
        raise HostileMessage(f"carrier {self.name!r} has no step {step!r}")

    def prepare(self, ask: Ask, cohort: tuple[str, ...], channel: str, sums: int = 1) -> Carrier:
        """The server half of what has to happen before each sum's uploads are asked for.

        Args:
            sums: for how many sums of the same round, channel and cohort it may serve, where the carrier can.

        Returns:
            This carrier as it opens the first of them; by default itself.
        """
        return self

    def following(self, uploaded: Iterable[str]) -> Carrier | None:
        """This carrier as it opens the next sum of what :meth:`prepare` did; None where that was for one sum.

        Args:
            uploaded: whose uploads the last sum holds.
        """
        return None

    def upload_requests(self, cohort: tuple[str, ...]) -> dict[str, Tree]:
        """Which clients the server asks for an upload, and what the carrier adds to each request.

        Names of entries start with ``carrier/``.
        """
        return {name: {} for name in cohort}

    def keep_noise_keys(self, keys: tuple[bytes, ...], party: Party) -> None:
        """Keeps the keys of the removable parts of the noise on the upload that was just sealed."""
        raise Incompatible(f"carrier {self.name!r} keeps no keys of noise")

    def accept(self, part: Tree, scope: Scope, party: Party) -> None:
        """The client's half of :meth:`upload_requests`, before the algorithm works; by default nothing."""
        return

    def binding_mark(self, scope: Scope, party: Party) -> str:
        """A public mark of what a sealed upload is bound to, the same in all of a sum. Empty for none.

        Masks that are bound to different things do not cancel, and nobody would notice that their sum is
        noise; this mark shows who was given something else.
        """
        return ""

    def abandon(self, party: Party) -> None:
        """Ends the sum that a client uploaded for last and undoes: it answers no later step of it."""
        return

    def check(self, data: Any, layout: Layout, name: str) -> None:
        """Checks that a sealed upload has the form that its layout promises; by default nothing.

        Raises:
            HostileMessage: for one that no honest client sends.
        """
        return

    def contributors(self, uploaded: tuple[str, ...]) -> tuple[str, ...]:
        """Whose uploads the sum holds, of those that arrived; by default all."""
        return uploaded

    def committed(self, replies: dict[str, Tree], scope: Scope, ask: Ask) -> dict[str, Tree]:
        """The uploads that may be summed, of those that arrived; by default all, whether signed or not."""
        return replies

    def evidence(self, replies: Mapping[str, Tree], scope: Scope) -> Tree:
        """What the server keeps of a sum that it opened, for a dispute over it; by default nothing."""
        return {}

    @abstractmethod
    def seal(self, matrix: np.ndarray, scope: Scope, party: Party) -> Any:
        """What travels instead of the matrix: an array or bytes."""

    @property
    def opens(self) -> Domain:
        """The kind of numbers under the seal, if there is one."""
        return self.gives

    def wrap(self, tree: Tree, scope: Scope, party: Party) -> Tree:
        """The last step of sealing, on the whole reply; by default nothing."""
        return tree

    def unwrap(self, tree: Tree, sender: str, scope: Scope, party: Party) -> Tree:
        """The inverse, in the client that reads a peer channel."""
        return tree

    @abstractmethod
    def open_sum(self, sealed: Mapping[str, Any], layout: Layout, scope: Scope, ask: Ask) -> np.ndarray:
        """The sum of the cohort's matrices, ``[rows, width]``."""

    def open_sum_with_keys(
        self, sealed: Mapping[str, Any], layout: Layout, scope: Scope, ask: Ask
    ) -> tuple[np.ndarray, NoiseKeys]:
        """The same, and the keys of noise in it that it does not need."""
        return self.open_sum(sealed, layout, scope, ask), {}

    def open_values(
        self, sealed: Mapping[str, Any], weights: Mapping[str, float], layout: Layout, scope: Scope, ask: Ask
    ) -> tuple[np.ndarray, dict[str, float], dict[str, float]]:
        """The weighted mean ``[rows, width]``, and by client its upload's cosine with it and its length."""
        raise Incompatible(f"carrier {self.name!r} values no uploads")

    def open_each(self, sealed: Any, layout: Layout, name: str) -> np.ndarray:
        """The matrix of the client of that name."""
        raise Incompatible(f"carrier {self.name!r} reveals only the sum")


MAJORITY: Literal["majority"] = "majority"
"""The quorum of sums by default: any two cohorts that are answered share a client."""
Quorum = float | Literal["majority"]


@dataclass(frozen=True)
class Chain:
    """Stages in order and one carrier, before they are bound to a channel.

    Args:
        stages: run from left to right in the client and from right to left at the reader.
        carrier: how the result travels.
        quorum: the smallest cohort that a client answers: a number, below 1 the share of all who may
            contribute, or ``"majority"`` of them. Each client has its own; none is read from the wire.
        name: its name in tables.
    """

    carrier: Carrier
    stages: tuple[Stage, ...] = ()
    quorum: Quorum = 1
    name: str = "protection"


def checked_array(data: Any, dtype: np.dtype[Any], layout: Layout, name: str) -> np.ndarray:
    """A client's array with the type and the number of values that its layout promises.

    Raises:
        HostileMessage: for anything else, NaN and infinities included.
    """
    array = typed_array(data, dtype, layout, name)
    if array.dtype.kind == "f" and not all_finite(array):
        raise HostileMessage(f"{name}'s upload holds NaN or infinity")
    return array


def typed_array(data: Any, dtype: np.dtype[Any], layout: Layout, name: str) -> np.ndarray:
    """As :func:`checked_array`, but the caller looks for NaN and infinities, in the sum of all uploads.

    Raises:
        HostileMessage: for another type or number of values.
    """
    if not isinstance(data, np.ndarray) or data.dtype != dtype or data.size != layout.rows * layout.width:
        raise HostileMessage(
            f"{name}'s upload does not hold {layout.rows} x {layout.width} values of {dtype}"
        )
    return data.reshape(layout.rows, layout.width)
