"""A protection that is bound to a channel: it seals in the client and opens at the reader."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import torch

from secure_fedgraph.core.accounting.events import Event
from secure_fedgraph.core.channel import (
    Channel,
    Reveal,
    UnitContribution,
    UnitContributionMoments,
    UnitContributionSampled,
)
from secure_fedgraph.core.crypto import KEY_BYTES
from secure_fedgraph.core.errors import HostileMessage, WrongType
from secure_fedgraph.core.guarantee import Reader, Unit
from secure_fedgraph.core.protection.contracts import (
    Ask,
    BindContext,
    Carrier,
    Chain,
    Party,
    Scope,
    Sensitivity,
    Stage,
)
from secure_fedgraph.core.protection.moments import moment_sums
from secure_fedgraph.core.protection.pooling import pooled, sampled_sum
from secure_fedgraph.core.upload import (
    AnyUpload,
    ContributionMoments,
    ContributionRows,
    ContributionSample,
    Layout,
    Upload,
)
from secure_fedgraph.core.wire import Tree

NEARLY = 1 - 1e-6
"""The share of a carrier's longest norm above which an opened length counts as cut: opening adds noise."""


_UPLOAD_OF: Mapping[type[UnitContribution] | type[None], type[AnyUpload]] = {
    type(None): Upload,
    UnitContribution: ContributionRows,
    UnitContributionMoments: ContributionMoments,
    UnitContributionSampled: ContributionSample,
}
"""What an answer returns, by what its channel declares of a unit's contribution."""

Signature = tuple[Layout, str]
"""What all uploads of a sum share: the layout, and the mark of what they are bound to."""


def secret_coins(records: int, rate: float) -> torch.Tensor:
    """Each record's number with probability ``rate``, from the operating system's randomness.

    Coins of 64 bits: their bias is below ``2**-64``.
    """
    words = np.frombuffer(os.urandom(8 * records), dtype=np.uint64)
    heads = words < np.uint64(min(int(rate * 2.0**64), 2**64 - 1)) if rate < 1 else np.ones(records, bool)
    return torch.from_numpy(np.flatnonzero(heads))


class CutWarning(UserWarning):
    """Uploads that held more than their protection carries. It warns the operator, never a client."""


@dataclass(frozen=True)
class Sum:
    """What a reduce gives: the total of the contributors' uploads. Clients that dropped out are none."""

    total: dict[str, torch.Tensor] = field(repr=False)
    contributors: tuple[str, ...]
    cut: int = 0
    """How many of the uploads held values beyond what their protection carries, which were cut."""
    deviation: float = 0.0
    """The standard deviation of the noise that is left on each value of the total; 0 without noise on what is
    sent."""

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

    protection: Chain
    bind_context: BindContext
    stages: tuple[Stage, ...]
    carrier: Carrier
    sensitivity: Sensitivity
    per_client_channels: tuple[str, ...] = ()
    """The run's channels that give each client values of its own, which no mask is bound to."""
    public: Mapping[str, Any] = field(init=False, repr=False, compare=False)
    """What the stages say beside the values. It is asked for once, before a stage has any data."""

    def __post_init__(self) -> None:
        said = {key: value for stage in self.stages for key, value in stage.public().items()}
        object.__setattr__(self, "public", said)

    @property
    def channel(self) -> Channel:
        """The channel it protects."""
        return self.bind_context.channel

    @property
    def quorum(self) -> int:
        """The smallest cohort that a client answers."""
        return int(self.protection.quorum)

    @property
    def unprotected(self) -> bool:
        """Whether its uploads are readable, and nothing is added to them."""
        return self.carrier.gives.readable and not any(stage.noise() for stage in self.stages)

    @property
    def leaks(self) -> bool:
        """Whether its reader can compute more than the algorithm needs, and no noise is in the way."""
        return bool(self.channel.leak) and not any(stage.noise() for stage in self.stages)

    @property
    def excess(self) -> tuple[str, ...]:
        """What somebody could learn beyond the channel's declaration."""
        effect_words = "".join(f", {stage.effect_words}" for stage in self.stages if stage.effect_words)
        sentences = self.carrier.excess(self.bind_context, effect_words)
        contribution = self.channel.unit_contribution
        noised = any(stage.noise() for stage in self.stages)
        if contribution is not None and not contribution.independent and noised:
            unit = self.channel.unit.value
            sentences = (*sentences, f"one {unit} moves the others' parts too: the noise bounds no {unit}")
        if self.per_client_channels and self.carrier.agrees_on_keys and self.channel.reveal is Reveal.SUM:
            channels = " and ".join(repr(name) for name in self.per_client_channels)
            sentences = (
                *sentences,
                f"a server that lies may give one client anything on {channels}, where each client gets its "
                "own values, and so learn that client's part of a sum",
            )
        if self.leaks:
            sentences = (*sentences, self.channel.leak)
        if self.channel.without_noise and not noised:
            sentences = (*sentences, self.channel.without_noise)
        too_few = len(self.bind_context.clients) < self.channel.min_clients
        return (*sentences, self.channel.why_more_clients) if too_few else sentences

    @property
    def unit(self) -> Unit:
        """Whose data the noise protects: the clip's unit, or the channel's where nothing bounds one."""
        return self.sensitivity.unit or self.channel.unit

    @property
    def relation(self) -> str:
        """The relation that its sensitivity holds under, as charges name it."""
        return self.bind_context.relation

    def releases(self, width: int = 1) -> dict[str, tuple[Event, ...]]:
        """For each reader what one upload of so many values costs :attr:`unit`; without noise no entry.

        A unit is accounted where the clip or the channel bounds all of its parts in an upload. Other units
        occur in several rows and uploads and count as unprotected; so do parts that depend on other units.
        """
        if self.sensitivity.unit is None:
            return {}
        noises = [noise for stage in self.stages if (noise := stage.noise())]
        by_reader = {r: tuple(e for n in noises if r in n.against for e in n.release(width)) for r in Reader}
        return {reader: events for reader, events in by_reader.items() if events}

    @property
    def computational(self) -> bool:
        """Whether the noise's whole amount rests on secure aggregation."""
        return any(noise.computational for stage in self.stages if (noise := stage.noise()))

    @property
    def samples(self) -> bool:
        """Whether coins decide which units are part of an upload."""
        return isinstance(self.channel.unit_contribution, UnitContributionSampled)

    def coins(self, units: int) -> torch.Tensor:
        """The units that an upload takes, of so many, ascending; others at each call."""
        contribution = self.channel.unit_contribution
        rate = contribution.rate if isinstance(contribution, UnitContributionSampled) else 1.0
        return secret_coins(units, rate)

    def check(self, upload: Any) -> None:
        """Checks that an answer is of the kind that the channel declares, so that all its parts are clipped.

        Raises:
            WrongType: for an upload where it declares sums over units, for parts where it does not, and for
                anything else.
        """
        expected: type[AnyUpload] = _UPLOAD_OF[type(self.channel.unit_contribution)]
        name = "an Upload" if expected is Upload else expected.__name__
        if type(upload) is not expected:
            raise WrongType(
                f"channel {self.channel.name!r}: an answer returns {name}, not {type(upload).__name__}"
            )

    def seal(self, upload: AnyUpload, scope: Scope, party: Party) -> Tree:
        """The body that leaves the client."""
        self.check(upload)
        layout, matrix = self._matrix(upload)
        tally = [np.zeros(0, dtype=np.int32)]
        keys = tuple(os.urandom(KEY_BYTES) for _ in self.carrier.noise_components.removable)
        for stage in self.stages:
            tally.append(stage.tally(matrix))
            keyed = keys and stage.noise_components.removable
            matrix = stage.apply_with_keys(matrix, scope, keys) if keyed else stage.apply(matrix, scope)
        if self.tallies:
            matrix = np.concatenate([matrix.reshape(-1), *tally]).reshape(1, -1)
        data = self.carrier.seal(matrix, scope, party)
        if keys:
            self.carrier.keep_noise_keys(keys, party)
        opens = self.carrier.opens.value
        reply: Tree = {"domain": opens, "layout": layout.to_text(), **self.public, "data": data}
        if mark := self.carrier.binding_mark(scope, party):
            reply["context"] = mark
        return self.carrier.wrap(reply, scope, party)

    def _matrix(self, upload: AnyUpload) -> tuple[Layout, np.ndarray]:
        """An upload before any stage, with the parts of units clipped and added up."""
        contribution, unit = self.channel.unit_contribution, self.channel.unit
        if isinstance(upload, Upload):
            return upload.packed(unit)
        assert contribution is not None
        grid = next((stage.grid for stage in self.stages if stage.grid), 0.0)
        if isinstance(upload, ContributionMoments):
            assert isinstance(contribution, UnitContributionMoments)
            return moment_sums(upload, contribution, unit, grid)
        if isinstance(upload, ContributionSample):
            return sampled_sum(upload, contribution, unit, grid)
        return pooled(upload, contribution, unit, grid)

    def open_sum(self, replies: Mapping[str, Tree], scope: Scope, ask: Ask) -> Sum:
        """The sum over those of the cohort that replied, as the server opens it.

        Raises:
            HostileMessage: for replies whose layouts or domains disagree.
        """
        layout = self._common_layout(replies)
        sealed = {name: tree["data"] for name, tree in replies.items()}
        opened, noise_keys = self.carrier.open_sum_with_keys(sealed, self._carried(layout), scope, ask)
        matrix, tally = self.split(opened, layout)
        for stage, keys in product(self.stages, noise_keys.values()):
            matrix = stage.take_off(matrix, keys)
        contributors = self.carrier.contributors(tuple(replies))
        # a client that lies in its tally can at most make it look as if every upload was cut
        cut = min(max(int(tally.sum()), 0), len(contributors))
        values = layout.unpack(self._undo(matrix, scope), by_row=self._by_row, owned=True)
        whole = len(contributors) - len(noise_keys)
        return Sum(values, contributors, cut, self.deviation(len(contributors), whole))

    def deviation(self, uploads: int, whole: int = 0) -> float:
        """The standard deviation of the noise on each value of a sum of so many uploads; 0 without any.

        Args:
            whole: how many of the uploads keep noise that the sum does not need; by default none.
        """
        return max((stage.deviation(uploads, whole) for stage in self.stages), default=0.0)

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

    def split_valid(self, replies: Mapping[str, Tree]) -> tuple[dict[str, Tree], dict[str, str]]:
        """The replies that can be summed up together, and what is wrong with each of the others.

        Raises:
            HostileMessage: where no signature is the most common one: the server cannot say then who is at
                fault.
        """
        signatures, wrong = {}, {}
        for name, tree in replies.items():
            try:
                signatures[name] = self._signature(name, tree)
            except HostileMessage as refusal:
                wrong[name] = str(refusal)
        expected = self._most_common(signatures, single=True)
        for name, signature in signatures.items():
            try:
                self._check_signature(name, signature, expected)
                self.carrier.check(replies[name]["data"], self._carried(signature[0]), name)
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
        values = layout.unpack(self._undo(matrix, scope), by_row=self._by_row, owned=True)
        full = NEARLY * self.carrier.longest
        cut = sum(length >= full for length in lengths.values())
        aggregate = {key: value.to(torch.float32) for key, value in values.items()}
        return Valued(aggregate, alignment, lengths, cut)

    def open_each(self, replies: Mapping[str, Tree], scope: Scope) -> dict[str, dict[str, torch.Tensor]]:
        """Every upload, as the server opens it."""
        uploads = {}
        for name, tree in replies.items():
            layout = self._layout(name, tree)
            opened = self.carrier.open_each(tree["data"], self._carried(layout), name)
            matrix = self._undo(self.split(opened, layout)[0], scope)
            values = layout.unpack(matrix, by_row=self._by_row)
            uploads[name] = {key: value.to(torch.float32) for key, value in values.items()}
        return uploads

    def read(self, replies: Mapping[str, Tree], scope: Scope, party: Party) -> dict[str, Tree]:
        """Replies on a peer channel with their seals taken off, in the client that reads them.

        Raises:
            HostileMessage: for a reply that was not sealed to this client, or belongs to another exchange.
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
        signatures = {name: self._signature(name, tree) for name, tree in replies.items()}
        expected = self._most_common(signatures)
        for name, signature in signatures.items():
            self._check_signature(name, signature, expected)
        return expected[0]

    def _signature(self, name: str, tree: Tree) -> Signature:
        """What all uploads of a sum share."""
        context = tree.get("context", "")
        if not isinstance(context, str) or len(context) > 64:
            raise HostileMessage(f"channel {self.channel.name!r}: {name} sent a malformed mark")
        return self._layout(name, tree), context

    def _most_common(self, signatures: Mapping[str, Signature], single: bool = False) -> Signature:
        """The most common signature, so that a client that lies does not put the blame on the others."""
        ranked = Counter(signatures.values()).most_common(2)
        if single and len(ranked) == 2 and ranked[0][1] == ranked[1][1]:
            raise HostileMessage(
                f"channel {self.channel.name!r}: {' and '.join(sorted(signatures))} sent uploads of several "
                "forms, none of them more common than the others: nothing was opened"
            )
        return ranked[0][0] if ranked else (Layout(()), "")

    def _check_signature(self, name: str, signature: Signature, expected: Signature) -> None:
        if signature[0] != expected[0]:
            raise HostileMessage(
                f"channel {self.channel.name!r}: {name}'s upload has another layout than the others'"
            )
        if signature != expected:
            raise HostileMessage(
                f"channel {self.channel.name!r}: {name} was given something else than the others, or says so"
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
