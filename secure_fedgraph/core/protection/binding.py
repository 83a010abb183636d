"""Protections: a chain of stages and one carrier, bound to a channel before round 1.

Binding follows the number domains from the real values of an upload to what the carrier takes, hands the
sensitivity from stage to stage (a user never sets one), and refuses in a sentence what cannot work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from secure_fedgraph.core.channel import Channel, Domain, Recipient, Reveal
from secure_fedgraph.core.errors import BadInput, Incompatible, Refused
from secure_fedgraph.core.guarantee import Relation
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.contracts import MAJORITY, BindContext, Chain, Quorum, Sensitivity, Stage
from secure_fedgraph.core.protection.noise_components import ONE_PART
from secure_fedgraph.core.protection.pooling import l2_sensitivity

PRESENCE = (
    "relation 'add-remove' does not hold: who uploads is visible, a client that leaves takes away its share "
    "of the noise, and how many graphs and nodes a client has is public; use zero-out"
)
"""Why no noise on an upload protects the presence of a client, a graph or a node."""


def least_of(quorum: Quorum, contributors: int) -> int:
    """A quorum as a number of clients, where so many may ever contribute.

    >>> least_of("majority", 10), least_of("majority", 3), least_of(0.8, 10), least_of(4, 10)
    (6, 2, 8, 4)
    """
    if quorum == MAJORITY:
        return max(2, contributors // 2 + 1)
    return max(2, math.ceil(quorum * contributors - 1e-9)) if quorum < 1 else math.ceil(quorum)


@dataclass(frozen=True)
class Protection(Chain):
    """A recipe for one channel: stages in order, one carrier, the client's own quorum.

    Args:
        stages, carrier, quorum, name: as in :class:`~secure_fedgraph.core.protection.contracts.Chain`.
    """

    def bind(self, channel: Channel, clients: tuple[str, ...], relation: str = Relation.ZERO_OUT) -> Bound:
        """Fits this protection to a channel.

        Raises:
            Incompatible: where the carrier reveals less than the channel needs, or domains do not meet.
            Unbound: where a stage needs a bounded upload and gets none.
            Refused: for fewer clients than the quorum, or than the channel's sum needs to protect anybody;
                for noise under ``add-remove``.
            BadInput: for a quorum of one under a carrier that reveals only sums.
        """
        # a peer that reads a sum does not contribute to it
        contributors = len(clients) - (channel.to == Recipient.PEER and channel.reveal is Reveal.SUM)
        quorum = least_of(self.quorum, contributors)
        if quorum > 1 and self._sums_only:  # whatever the colluders subtract, two others are left in the sum
            quorum = max(quorum, 2 + math.floor(self.carrier.colluders * len(clients) + 1e-9))
        if quorum != self.quorum:
            return replace(self, quorum=quorum).bind(channel, clients, relation)
        self._check_reveal(channel)
        self._check_clients(channel, len(clients), contributors, quorum)
        context = BindContext(channel, clients, relation, self.carrier.ring, quorum)
        context = replace(context, removes_noise=self.carrier.removes_noise(context))
        stages, sensitivity = self._bind_stages(context)
        components = next((s.noise_components for s in stages if s.noise_components.removable), None)
        context = replace(context, noise_components=components or ONE_PART)
        return Bound(self, context, stages, self.carrier.bind(context), sensitivity)

    @property
    def _sums_only(self) -> bool:
        return Reveal.EACH not in self.carrier.reveals

    def _check_reveal(self, channel: Channel) -> None:
        """Checks that the reader gets what the channel declares, and no stage changes exact numbers."""
        why = f", since {channel.why}" if channel.why else ""
        if channel.reveal is Reveal.VALUES and channel.reveal not in self.carrier.reveals:
            raise Incompatible(
                f"channel {channel.name!r} is valued without being read, which {self.name} cannot do: "
                "use homomorphic or strictest for it"
            )
        if channel.reveal not in self.carrier.reveals:
            others = "plaintext" if channel.exact else "local_dp, central_dp or plaintext"
            raise Incompatible(
                f"channel {channel.name!r} needs each upload{why}; {self.name} reveals only the sum: "
                f"use {others} for it"
            )
        if channel.exact and any(stage.effect_words for stage in self.stages):
            raise Incompatible(
                f"channel {channel.name!r} carries numbers of nodes or codes of motifs{why}, and {self.name} "
                "would turn them into others: use plaintext for it, or settings of the algorithm that do not "
                "send it"
            )

    def _check_clients(self, channel: Channel, clients: int, contributors: int, quorum: int) -> None:
        """Checks that no sum has so few uploads that somebody learns one of them."""
        if self._sums_only and quorum < 2:
            raise BadInput(
                f"channel {channel.name!r}: quorum {quorum} of {self.name}: a sum of one upload is that "
                "upload; use 2 or more"
            )
        summed = contributors if channel.smallest_sum is None else min(contributors, channel.smallest_sum)
        if summed < quorum:
            mend = "add clients, lower protection.colluders or .quorum, or choose another policy"
            if quorum <= contributors:
                mend = f"set protection.quorum={summed}, or make sums larger (training.bucket)"
            raise Refused(
                f"channel {channel.name!r}: {self.name} needs at least {quorum} contributors and there "
                f"{'is' if summed == 1 else 'are'} {summed} in a sum: {mend}"
            )
        if self._sums_only and clients < channel.min_clients and not channel.accept_too_few:
            raise Refused(f"channel {channel.name!r} under policy {self.name}: {channel.why_more_clients}")

    def _bind_stages(self, context: BindContext) -> tuple[tuple[Stage, ...], Sensitivity]:
        """The stages with their numbers filled in, each from the sensitivity after the one before."""
        channel, domain, sensitivity = context.channel, Domain.REAL, Sensitivity()
        if channel.unit_contribution is not None:
            unit = channel.unit if channel.unit_contribution.independent else None
            sensitivity = Sensitivity(l2_sensitivity(channel.unit_contribution, context.relation), unit)
        stages = []
        for stage in self.stages:
            if stage.takes is not domain:
                raise Incompatible(
                    f"channel {channel.name!r}: {type(stage).__name__} takes {stage.takes.value} numbers "
                    f"and gets {domain.value} ones: put the stages of {self.name} in another order"
                )
            bound, sensitivity = stage.bind(sensitivity, context)
            if context.relation == Relation.ADD_REMOVE and bound.noise() is not None:
                raise Refused(f"channel {channel.name!r} under policy {self.name}: {PRESENCE}")
            stages.append(bound)
            domain = stage.gives
        if self.carrier.takes is not domain:
            raise Incompatible(
                f"channel {channel.name!r}: carrier {self.carrier.name!r} takes {self.carrier.takes.value} "
                f"numbers and gets {domain.value} ones: {'add' if domain is Domain.REAL else 'remove'} a "
                "FixedPoint stage"
            )
        if self.carrier.opens.readable and any((noise := s.noise()) and noise.computational for s in stages):
            raise Incompatible(
                f"channel {channel.name!r}: noise in shares is whole in a sum alone, and carrier "
                f"{self.carrier.name!r} shows every upload: use Gaussian(by='client') with it"
            )
        noised = [number for number, stage in enumerate(stages) if stage.noise() is not None]
        for number, stage in enumerate(stages):
            if stage.tallies and noised and number <= noised[-1]:
                raise Incompatible(
                    f"channel {channel.name!r}: {type(stage).__name__} counts in a word of its own what it "
                    f"gets, which no noise covers: put it after the noise of {self.name}"
                )
        return tuple(stages), sensitivity
