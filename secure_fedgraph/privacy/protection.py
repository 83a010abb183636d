"""Protections: a chain of two-halved stages and one carrier, bound to a channel before round 1.

Binding walks the number domains from the real values of an upload to what the carrier takes, hands the
sensitivity from stage to stage (nobody ever types one), and refuses in a sentence what cannot be right.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch

from secure_fedgraph.errors import BadInput, HostileMessage, Incompatible, Refused
from secure_fedgraph.privacy.accounting.epsilon import Event
from secure_fedgraph.privacy.party import Party
from secure_fedgraph.privacy.pooling import moved, pooled
from secure_fedgraph.privacy.pooling_trees import tree_sums
from secure_fedgraph.protocol.channel import Channel, Domain, Reveal, UnitContributionTrees
from secure_fedgraph.protocol.guarantee import Reader, Relation, Unit
from secure_fedgraph.protocol.upload import ContributionRows, ContributionTrees, Layout, Upload, all_finite
from secure_fedgraph.protocol.wire import Tree

Ask = Callable[[str, Mapping[str, Tree]], dict[str, Tree]]
"""The server half of a carrier asks clients for a step of its protocol through this."""

DIFFERENCES = "two sums over cohorts that differ in one client give that client's upload by subtraction"
"""The excess of every sum, until clients insist on a minimum overlap of cohorts."""

SUBTRACTION = "with two clients, each learns the other's upload by subtracting its own"

NEARLY = 1 - 1e-6
"""Of a carrier's longest, from which on an opened length counts as shortened to it: opening adds noise."""

TALLY = 1
"""The largest number that one upload adds to a tally: it says something or not."""


class CutWarning(UserWarning):
    """Uploads that held more than their protection carries. The operator's, never a client's."""


FROZEN = " on the frozen table"
"""What a relation's name ends in where others' places, as the unit's presence made them, stay as they are."""
PRESENCE = (
    "relation 'add-remove' does not hold: who uploads is visible, a client that is gone takes its share of "
    "the noise along, and how many graphs and nodes a client has is public; use zero-out"
)
"""Why no noise on an upload protects the presence of a client, a graph or a node."""


@dataclass(frozen=True)
class Sensitivity:
    """How far one unit's row can be from the zero row, in the unit of the current domain."""

    l2: float = math.inf
    unit: Unit | None = None
    """Whose data that row is: what noise scaled to it protects; None where rows recur unbounded."""
    noised_by: str = ""
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
    """The client's own: the fewest that it is summed with, itself counted."""


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
    given: str = ""
    """Head of the history of all that clients were given, this exchange included. Masks bind it: clients that
    were shown different things by a lying server, now or before, make masks that do not cancel."""


@dataclass(frozen=True)
class Noise:
    """What a stage's noise earns: the accountant's events for so many values, and against whom."""

    release: Callable[[int], tuple[Event, ...]]
    against: frozenset[str]
    computational: bool = False
    """Whether its whole amount rests on nobody seeing a single upload."""


class Stage(ABC):
    """One step of a protection, with a half at the client and a half at the reader."""

    takes: Domain
    gives: Domain
    traces: str = ""
    """What the client's half has done to an upload, in a word, for sentences on what is seen."""
    grid: float = 0.0
    """The step that it rounds to, where parts of sums are to be rounded before they are added up."""
    tallies: int = 0
    """How many words it adds behind an upload, whole numbers whose sum over the uploads is all that is read.
    The sum of :data:`TALLY` over everybody who may contribute has to fit the carrier's ring."""

    @abstractmethod
    def bind(self, sensitivity: Sensitivity, terms: BindContext) -> tuple[Stage, Sensitivity]:
        """This stage with its numbers filled in, and the sensitivity after it."""

    @abstractmethod
    def apply(self, matrix: np.ndarray, scope: Scope) -> np.ndarray:
        """The client's half, on the matrix ``[rows, width]``."""

    def tally(self, matrix: np.ndarray) -> np.ndarray:
        """The client's words of :attr:`tallies`, each from 0 to :data:`TALLY`, of what :meth:`apply` gets."""
        return np.zeros(self.tallies, dtype=np.int32)

    def undo(self, matrix: np.ndarray, scope: Scope) -> np.ndarray:
        """The reader's half, on the opened value; by default nothing."""
        return matrix

    def noise(self) -> Noise | None:
        """What the ledger may count for this stage."""
        return None

    def terms(self) -> dict[str, Any]:
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
    agrees_on_keys: bool = False
    """Whether the clients must have agreed on pairwise keys before round 1."""
    tolerates_dropouts: bool = False
    """Whether a sum opens without clients that stop answering; every other carrier's ask is refused then."""
    closing: tuple[str, ...] = ()
    """The steps after an upload that end with :attr:`confirms`, where there are any."""
    confirms: str = ""
    """The step that shows a client that the sum it uploaded for is complete: what it learned meanwhile is
    kept from then on. Empty where no client can know, so that it is kept once the upload is sealed."""

    def bind(self, terms: BindContext) -> Carrier:
        """This carrier with its parameters filled in.

        Raises:
            Incompatible: where it cannot serve the channel.
        """
        return self

    def excess(self, terms: BindContext, traces: str = "") -> tuple[str, ...]:
        """What somebody could learn beyond the declaration, one sentence each.

        Args:
            traces: what the stages have done to every upload, e.g. ``", clipped, noised"``.
        """
        return ()

    def set_up(self, ask: Ask, clients: tuple[str, ...]) -> None:
        """The server half of what has to happen once before round 1; by default nothing."""
        return

    def answer(self, step: str, given: Tree, scope: Scope, party: Party) -> Tree:
        """The client half of a step of this carrier's own protocol."""
        raise HostileMessage(f"carrier {self.name!r} has no step {step!r}")

    def prepare(self, ask: Ask, cohort: tuple[str, ...], channel: str) -> Carrier:
        """The server half of what has to happen before each sum's uploads are asked for.

        Returns:
            This carrier as it opens that one sum; by default itself.
        """
        return self

    def parts(self, cohort: tuple[str, ...]) -> dict[str, Tree]:
        """Whom the server asks for an upload, and what the carrier gives each besides; the server's half.

        Names of entries start with ``carrier/``.
        """
        return {name: {} for name in cohort}

    def accept(self, part: Tree, scope: Scope, party: Party) -> None:
        """The client's half of :meth:`parts`, before the algorithm works; by default nothing."""
        return

    def context(self, scope: Scope, party: Party) -> str:
        """A public mark of what a sealed upload is bound to: uploads of one sum have one. Empty for none.

        Masks that are bound to different things do not cancel, and their sum is noise that nobody would
        notice; who was told something else is found by this mark.
        """
        return ""

    def check(self, data: Any, layout: Layout, name: str) -> None:
        """That one client's sealed upload has the form that its layout promises; by default anything has.

        Raises:
            HostileMessage: for one that no honest client sends.
        """
        return

    def contributors(self, uploaded: tuple[str, ...]) -> tuple[str, ...]:
        """Whose uploads the sum holds, of those that arrived; by default all."""
        return uploaded

    @abstractmethod
    def seal(self, matrix: np.ndarray, scope: Scope, party: Party) -> Any:
        """What travels instead of the matrix: an array or bytes."""

    @property
    def opens(self) -> Domain:
        """The numbers under the wrapping, if there is one."""
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

    def open_values(
        self,
        sealed: Mapping[str, Any],
        weights: Mapping[str, float],
        layout: Layout,
        scope: Scope,
        ask: Ask,
    ) -> tuple[np.ndarray, dict[str, float], dict[str, float]]:
        """The weighted mean ``[rows, width]``, and by client its upload's cosine with it and its length."""
        raise Incompatible(f"carrier {self.name!r} values no uploads")

    def open_each(self, sealed: Any, layout: Layout, name: str) -> np.ndarray:
        """The matrix of the client of that name."""
        raise Incompatible(f"carrier {self.name!r} reveals only the sum")


MAJORITY: Literal["majority"] = "majority"
"""The quorum of sums by default: no two cohorts that are answered have nobody in common."""
Quorum = float | Literal["majority"]


def least_of(quorum: Quorum, contributors: int) -> int:
    """A quorum as a number of clients, for so many who may ever contribute.

    >>> least_of("majority", 10), least_of("majority", 3), least_of(0.8, 10), least_of(4, 10)
    (6, 2, 8, 4)
    """
    if quorum == MAJORITY:
        return max(2, contributors // 2 + 1)
    return max(2, math.ceil(quorum * contributors - 1e-9)) if quorum < 1 else math.ceil(quorum)


@dataclass(frozen=True)
class Protection:
    """A recipe for one channel: stages in order, one carrier, the client's own quorum.

    Args:
        stages: run from left to right in the client and from right to left at the reader.
        carrier: how the result travels.
        quorum: the smallest cohort that a client answers: a number, below 1 the share of all who may
            contribute, or ``"majority"`` of them. The client's own; never read from the wire.
        name: what tables call it.
    """

    carrier: Carrier
    stages: tuple[Stage, ...] = ()
    quorum: Quorum = 1
    name: str = "protection"

    def bind(self, channel: Channel, clients: tuple[str, ...], relation: str = Relation.ZERO_OUT) -> Bound:
        """Fits this protection to a channel.

        Raises:
            Incompatible: where the carrier reveals less than the channel needs, or domains do not meet.
            Unbound: where a stage needs a bounded upload and gets none.
            Refused: for fewer clients than the quorum, or than the channel's sum needs to protect anybody;
                for noise under ``add-remove``.
            BadInput: for a quorum of one under a carrier that reveals only sums.
        """
        carrier = self.carrier
        # a peer that reads a sum does not contribute to it
        contributors = len(clients) - (channel.to == "peer" and channel.reveal is Reveal.SUM)
        quorum = least_of(self.quorum, contributors)
        if quorum != self.quorum:
            return replace(self, quorum=quorum).bind(channel, clients, relation)
        if channel.reveal is Reveal.VALUES and channel.reveal not in carrier.reveals:
            raise Incompatible(
                f"channel {channel.name!r} is valued without being read, which {self.name} cannot do: "
                "use homomorphic or strictest for it"
            )
        if channel.reveal not in carrier.reveals:
            why = f", since {channel.why}" if channel.why else ""
            others = "plaintext" if channel.exact else "local_dp, central_dp or plaintext"
            raise Incompatible(
                f"channel {channel.name!r} needs each upload{why}; {self.name} reveals only the sum: "
                f"use {others} for it"
            )
        if Reveal.EACH not in carrier.reveals and quorum < 2:
            raise BadInput(
                f"channel {channel.name!r}: quorum {quorum} of {self.name}: a sum of one upload is that "
                "upload; use 2 or more"
            )
        if contributors < quorum:
            raise Refused(
                f"channel {channel.name!r}: {self.name} needs at least {quorum} contributors and there "
                f"{'is' if contributors == 1 else 'are'} {contributors}, because a sum of fewer is one "
                "client's upload: add clients or choose another policy"
            )
        if channel.exact and any(stage.traces for stage in self.stages):
            why = f", since {channel.why}" if channel.why else ""
            raise Incompatible(
                f"channel {channel.name!r} carries numbers of nodes or codes of motifs{why}, and {self.name} "
                "would turn them into others: use plaintext for it, or settings of the algorithm that do not "
                "send it"
            )
        if Reveal.EACH not in carrier.reveals and len(clients) < channel.least and not channel.accepted:
            raise Refused(f"channel {channel.name!r} under {self.name}: {channel.below}")
        terms = BindContext(channel, clients, relation, carrier.ring, quorum)
        domain, sensitivity, stages = Domain.REAL, Sensitivity(), []
        if channel.touches is not None:
            touches = channel.touches
            sensitivity = Sensitivity(moved(touches, relation), channel.unit if touches.alone else None)
        for stage in self.stages:
            if stage.takes is not domain:
                raise Incompatible(
                    f"channel {channel.name!r}: {type(stage).__name__} takes {stage.takes.value} numbers "
                    f"and gets {domain.value} ones: put the stages of {self.name} in another order"
                )
            bound, sensitivity = stage.bind(sensitivity, terms)
            if relation == Relation.ADD_REMOVE and bound.noise() is not None:
                raise Refused(f"channel {channel.name!r} under {self.name}: {PRESENCE}")
            stages.append(bound)
            domain = stage.gives
        if carrier.takes is not domain:
            raise Incompatible(
                f"channel {channel.name!r}: carrier {carrier.name!r} takes {carrier.takes.value} numbers and "
                f"gets {domain.value} ones: {'add' if domain is Domain.REAL else 'remove'} a FixedPoint stage"
            )
        return Bound(self, terms, tuple(stages), carrier.bind(terms), sensitivity)


@dataclass(frozen=True)
class Sum:
    """What a reduce gives: the total of the contributors' uploads, which are those that did not drop out."""

    total: dict[str, torch.Tensor] = field(repr=False)
    contributors: tuple[str, ...]
    cut: int = 0
    """How many of the uploads held values beyond what their protection carries, which were cut."""

    @property
    def mean(self) -> dict[str, torch.Tensor]:
        """The unweighted mean, float32."""
        return {name: (t / len(self.contributors)).to(torch.float32) for name, t in self.total.items()}


@dataclass(frozen=True)
class Valued:
    """What a valuation gives: the weighted mean, and by client its upload's cosine with it and its length."""

    aggregate: dict[str, torch.Tensor] = field(repr=False)
    alignment: dict[str, float]
    lengths: dict[str, float]
    cut: int = 0
    """How many of the uploads were longer than what the carrier takes, and were shortened."""


@dataclass(frozen=True)
class Bound:
    """A protection fitted to a channel: it seals in the client and opens at the reader."""

    protection: Protection
    terms: BindContext
    stages: tuple[Stage, ...]
    carrier: Carrier
    sensitivity: Sensitivity
    unlike: tuple[str, ...] = ()
    """The run's channels that give each client its own, which nothing binds."""

    @property
    def channel(self) -> Channel:
        """The channel it protects."""
        return self.terms.channel

    @property
    def quorum(self) -> int:
        """The fewest clients of a cohort that one of them answers."""
        return int(self.protection.quorum)

    @property
    def bare(self) -> bool:
        """Whether its uploads are readable, and nothing is added to them."""
        return self.carrier.gives.readable and not any(stage.noise() for stage in self.stages)

    @property
    def excess(self) -> tuple[str, ...]:
        """What somebody could learn beyond the channel's declaration."""
        found = self.carrier.excess(self.terms, "".join(f", {s.traces}" for s in self.stages if s.traces))
        touches = self.channel.touches
        if touches is not None and not touches.alone and any(stage.noise() for stage in self.stages):
            unit = self.channel.unit.value
            found = (*found, f"one {unit} moves the others' parts too: the noise bounds no {unit}")
        if self.unlike and self.carrier.agrees_on_keys and self.channel.reveal is Reveal.SUM:
            where = " and ".join(repr(name) for name in self.unlike)
            found = (
                *found,
                f"a server that lies may give one client what it likes on {where}, where each gets its own, "
                "and so tell that client's part of a sum from the others'",
            )
        too_few = len(self.terms.clients) < self.channel.least
        return (*found, self.channel.below) if too_few else found

    @property
    def unit(self) -> Unit:
        """Whose data the noise protects: the clip's unit, or the channel's where nothing bounds one."""
        return self.sensitivity.unit or self.channel.unit

    @property
    def relation(self) -> str:
        """The relation that its sensitivity holds under, as charges name it."""
        frozen = isinstance(self.channel.touches, UnitContributionTrees)
        return self.terms.relation + FROZEN * frozen

    def releases(self, width: int = 1) -> dict[str, tuple[Event, ...]]:
        """For each reader what one upload of so many values costs :attr:`unit`; without noise no entry.

        Accounted are units whose every part in an upload the clip or the channel bounds. Other rows recur in
        several uploads and rows, so they count as unprotected; so do parts that depend on other units.
        """
        if self.sensitivity.unit is None:
            return {}
        noises = [noise for stage in self.stages if (noise := stage.noise())]
        found = {r: tuple(e for n in noises if r in n.against for e in n.release(width)) for r in Reader}
        return {reader: events for reader, events in found.items() if events}

    @property
    def computational(self) -> bool:
        """Whether the noise's whole amount rests on secure aggregation."""
        return any(noise.computational for stage in self.stages if (noise := stage.noise()))

    def check(self, upload: Any) -> None:
        """That an answer is of the kind that the channel declares: nothing goes round the clip of its parts.

        Raises:
            TypeError: for an upload where it declares sums over units, for parts where it does not, and for
                anything else.
        """
        wanted: type = Upload
        if self.channel.touches is not None:
            wanted = (
                ContributionTrees
                if isinstance(self.channel.touches, UnitContributionTrees)
                else ContributionRows
            )
        name = "an Upload" if wanted is Upload else wanted.__name__
        if not isinstance(upload, wanted):
            raise TypeError(
                f"channel {self.channel.name!r}: an answer returns {name}, not {type(upload).__name__}"
            )

    def seal(self, upload: Upload | ContributionRows | ContributionTrees, scope: Scope, party: Party) -> Tree:
        """The body that leaves the client."""
        self.check(upload)
        channel = self.channel
        grid = next((stage.grid for stage in self.stages if stage.grid), 0.0)
        if isinstance(upload, ContributionTrees):
            assert isinstance(channel.touches, UnitContributionTrees)
            layout, matrix = tree_sums(upload, channel.touches, channel.unit, grid)
        elif isinstance(upload, ContributionRows):
            assert channel.touches is not None
            layout, matrix = pooled(upload, channel.touches, channel.unit, grid)
        else:
            layout, matrix = upload.packed(channel.unit)
        tally = [np.zeros(0, dtype=np.int32)]
        for stage in self.stages:
            tally.append(stage.tally(matrix))
            matrix = stage.apply(matrix, scope)
        if self.tallies:
            matrix = np.concatenate([matrix.reshape(-1), *tally]).reshape(1, -1)
        public = {key: value for stage in self.stages for key, value in stage.terms().items()}
        reply = {
            "domain": self.carrier.opens.value,
            "layout": layout.to_text(),
            **public,
            "data": self.carrier.seal(matrix, scope, party),
        }
        if context := self.carrier.context(scope, party):
            reply["context"] = context
        return self.carrier.wrap(reply, scope, party)

    def open_sum(self, replies: Mapping[str, Tree], scope: Scope, ask: Ask) -> Sum:
        """The sum over those of the cohort that replied, as the server opens it.

        Raises:
            HostileMessage: for replies whose layouts or domains disagree.
        """
        layout = self._common_layout(replies)
        sealed = {name: tree["data"] for name, tree in replies.items()}
        opened = self.carrier.open_sum(sealed, self._carried(layout), scope, ask)
        matrix, tally = self.split(opened, layout)
        contributors = self.carrier.contributors(tuple(replies))
        # whoever lies about its own word can say no more than that everybody's values were cut
        cut = min(max(int(tally.sum()), 0), len(contributors))
        return Sum(layout.unpack(self._undo(matrix, scope), by_row=self._by_row), contributors, cut)

    @property
    def tallies(self) -> int:
        """How many words the stages add behind an upload."""
        return sum(stage.tallies for stage in self.stages)

    def split(self, matrix: np.ndarray, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
        """What a carrier opened, as the values ``[rows, width]`` and the stages' tallies."""
        if not self.tallies:
            return matrix, np.zeros(0, dtype=np.int64)
        flat = matrix.reshape(-1)
        values = flat[: len(flat) - self.tallies].reshape(layout.rows, layout.width)
        return values, flat[len(flat) - self.tallies :]

    def _carried(self, layout: Layout) -> Layout:
        """The layout of what the carrier carries: the values, and the tallies behind them in one row."""
        if not self.tallies:
            return layout
        return Layout((("values and tallies", (layout.rows * layout.width + self.tallies,)),))

    def sorted_out(self, replies: Mapping[str, Tree]) -> tuple[dict[str, Tree], dict[str, str]]:
        """The replies that can be summed up together, and what is wrong with each of the others.

        Raises:
            HostileMessage: where no form is more common than every other one, so that nobody can say who is
                at fault.
        """
        forms, wrong = {}, {}
        for name, tree in replies.items():
            try:
                forms[name] = self._form(name, tree)
            except HostileMessage as refusal:
                wrong[name] = str(refusal)
        usual = self._usual(forms, single=True)
        for name, form in forms.items():
            try:
                self._insist(name, form, usual)
                self.carrier.check(replies[name]["data"], self._carried(form[0]), name)
            except HostileMessage as refusal:
                wrong[name] = str(refusal)
        return {name: tree for name, tree in replies.items() if name not in wrong}, wrong

    def open_values(
        self, replies: Mapping[str, Tree], weights: Mapping[str, float], scope: Scope, ask: Ask
    ) -> Valued:
        """The weighted mean and the uploads' values, as the server opens them."""
        layout = self._common_layout(replies)
        sealed = {name: tree["data"] for name, tree in replies.items()}
        matrix, alignment, lengths = self.carrier.open_values(sealed, weights, layout, scope, ask)
        values = layout.unpack(self._undo(matrix, scope), by_row=self._by_row)
        full = NEARLY * self.carrier.longest
        cut = sum(length >= full for length in lengths.values())
        aggregate = {key: value.to(torch.float32) for key, value in values.items()}
        return Valued(aggregate, alignment, lengths, cut)

    def open_each(self, replies: Mapping[str, Tree], scope: Scope) -> dict[str, dict[str, torch.Tensor]]:
        """Every upload, as the server opens it."""
        found = {}
        for name, tree in replies.items():
            layout = self._layout(name, tree)
            opened = self.carrier.open_each(tree["data"], self._carried(layout), name)
            matrix = self._undo(self.split(opened, layout)[0], scope)
            values = layout.unpack(matrix, by_row=self._by_row)
            found[name] = {key: value.to(torch.float32) for key, value in values.items()}
        return found

    def read(self, replies: Mapping[str, Tree], scope: Scope, party: Party) -> dict[str, Tree]:
        """Replies on a peer channel with their seals taken off, in the client that reads them.

        Raises:
            HostileMessage: for a reply that was not sealed to this client as what it is said to be.
        """
        return {name: self.carrier.unwrap(tree, name, scope, party) for name, tree in replies.items()}

    @property
    def _by_row(self) -> bool:
        return self.channel.unit is not Unit.CLIENT

    def _undo(self, matrix: np.ndarray, scope: Scope) -> np.ndarray:
        for stage in reversed(self.stages):
            matrix = stage.undo(matrix, scope)
        return matrix

    def _common_layout(self, replies: Mapping[str, Tree]) -> Layout:
        forms = {name: self._form(name, tree) for name, tree in replies.items()}
        usual = self._usual(forms)
        for name, form in forms.items():
            self._insist(name, form, usual)
        return usual[0]

    def _form(self, name: str, tree: Tree) -> tuple[Layout, str]:
        """What the uploads of one sum have in common: the layout, and the mark of what they are bound to."""
        context = tree.get("context", "")
        if not isinstance(context, str) or len(context) > 64:
            raise HostileMessage(f"channel {self.channel.name!r}: {name} sent a mark that is none")
        return self._layout(name, tree), context

    def _usual(self, forms: Mapping[str, tuple[Layout, str]], single: bool = False) -> tuple[Layout, str]:
        """The most common one, so that a liar who comes first does not put the blame on the others."""
        ranked = Counter(forms.values()).most_common(2)
        if single and len(ranked) == 2 and ranked[0][1] == ranked[1][1]:
            raise HostileMessage(
                f"channel {self.channel.name!r}: {' and '.join(sorted(forms))} sent uploads of several "
                "forms, none of them more common than the others: nothing was opened"
            )
        return ranked[0][0] if ranked else (Layout(()), "")

    def _insist(self, name: str, form: tuple[Layout, str], usual: tuple[Layout, str]) -> None:
        if form[0] != usual[0]:
            raise HostileMessage(
                f"channel {self.channel.name!r}: {name}'s upload has another layout than the others'"
            )
        if form != usual:
            raise HostileMessage(
                f"channel {self.channel.name!r}: {name} was told something else than the others, or says so"
            )

    def _layout(self, name: str, tree: Tree) -> Layout:
        domain = tree.get("domain")
        if not isinstance(domain, str) or domain != self.carrier.opens.value or "data" not in tree:
            raise HostileMessage(
                f"channel {self.channel.name!r}: {name} sent {str(domain)[:20]!r} numbers, "
                f"the policy promises {self.carrier.opens.value}"
            )
        text = tree.get("layout")
        if not isinstance(text, str):
            raise HostileMessage(f"channel {self.channel.name!r}: {name}'s upload has no layout")
        try:
            return Layout.from_text(text)
        except HostileMessage as error:
            raise HostileMessage(f"channel {self.channel.name!r}: {name}'s upload: {error}") from None


def checked_array(data: Any, dtype: np.dtype[Any], layout: Layout, name: str) -> np.ndarray:
    """A client's array with the type and the number of values that its layout promises.

    Raises:
        HostileMessage: for anything else, NaN and infinities included.
    """
    if not isinstance(data, np.ndarray) or data.dtype != dtype or data.size != layout.rows * layout.width:
        raise HostileMessage(
            f"{name}'s upload does not hold {layout.rows} x {layout.width} values of {dtype}"
        )
    if data.dtype.kind == "f" and not all_finite(data):
        raise HostileMessage(f"{name}'s upload holds NaN or infinity")
    return data.reshape(layout.rows, layout.width)
