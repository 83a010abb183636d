"""For each channel the first policy that binds."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import dataclass, replace

from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.errors import Incompatible, Refused
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.privacy.policies.recipe import recipe
from secure_fedgraph.privacy.policies.without_noise import homomorphic, masked, plaintext, sealed
from secure_fedgraph.privacy.policy import NO_UPLOAD, REFEREE_PROTECTION, PlaintextWarning, Policy

LADDER = ("distributed_dp", "masked", "homomorphic", "local_dp", "sealed", "plaintext")
"""The order in which ``strictest`` tries the recipes."""


@recipe
def strictest(*policies: Policy) -> Policy:
    """For each channel the first policy that binds; a channel left in plaintext raises a warning.

    Some channels declare a leak that neither masks nor seals prevent. If such a channel gets no noise, the
    algorithm takes a form that does not use it. If settings given by hand rule that form out, the channel's
    excess and the first line of a command name the leak.

    A candidate is skipped for a channel if its noise multipliers are given by channel and this one has none.

    Without arguments: masked, homomorphic, sealed, plaintext, in that order.
    """
    candidates = policies or (masked(), homomorphic(), sealed(), plaintext())
    return _Strictest(
        "strictest", candidates[0].recipe, relation=candidates[0].relation, candidates=candidates
    )


@dataclass(frozen=True)
class _Strictest(Policy):
    candidates: tuple[Policy, ...] = ()

    def check_amounts(self, declared: Collection[str], whose: str) -> None:
        for candidate in self.candidates:
            candidate.check_amounts(declared, whose)

    def _bind(self, channel: Channel, clients: tuple[str, ...]) -> Bound:
        if channel.name in self.exceptions:
            return super()._bind(channel, clients)
        reasons = []
        for candidate in self.candidates:
            noise = candidate.amounts.get("multiplier")
            if noise is not None and channel.name not in noise:
                reasons.append(f"{candidate.name}: no noise is given for {channel.name!r}")
                continue
            try:
                # randomised inputs and noisy steps are set here: a candidate refuses what does not fit
                candidate = replace(
                    candidate, randomizers=self.randomizers, steps=self.steps, scores_noise=self.scores_noise
                )
                bound = candidate._bind(channel, clients)
            except Refused as refusal:
                reasons.append(f"{candidate.name}: {refusal}")
                continue
            # never a weaker policy than one that was refused as too weak
            if bound.unprotected and len(clients) < channel.min_clients and not channel.accept_too_few:
                raise Refused(
                    f"channel {channel.name!r} under policy {self.name}: {channel.why_more_clients}"
                )
            if bound.unprotected and bound.protection not in (REFEREE_PROTECTION, NO_UPLOAD):
                warnings.warn(
                    f"channel {channel.name!r} is left in plaintext ({'; '.join(reasons) or 'as asked'})",
                    PlaintextWarning,
                    stacklevel=2,
                )
            return bound
        raise Incompatible(f"channel {channel.name!r}: no recipe binds. {' | '.join(reasons)}")
