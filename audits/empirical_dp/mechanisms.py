"""Mechanism-level audits: worst-case neighbours sent through the real protection, compared with the claim.

A bound protection is called again and again on one pair of neighbouring worlds: it seals every upload in the
client and opens at the reader, with the operating system's noise. What the reader sees is projected on the
direction that separated the two worlds best in a pilot sample; the scores bound epsilon from below.

Real are the client's pooling, every stage at both ends, and what the reader opens. Not real are masks,
ciphertexts and seals, which add up exactly or hide whole messages: :class:`Transparent` adds the same words
in the same ring in their place, so that ten thousand calls take seconds. Carriers have tests of their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from secure_fedgraph.audits.empirical_dp import epsilon
from secure_fedgraph.audits.empirical_dp.epsilon import Audit
from secure_fedgraph.audits.empirical_dp.worst_cases import Neighbours, Uploads
from secure_fedgraph.core.channel import Domain, Reveal
from secure_fedgraph.core.crypto import Identity
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Reader
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.contracts import Carrier, NoiseKeys, Party, Scope
from secure_fedgraph.core.spending.ledger import Charge
from secure_fedgraph.core.upload import Layout
from secure_fedgraph.privacy.spent import spent

CONFIDENCE = 1 - 1e-4
"""The noise is not seeded: a right mechanism is accused once in ten thousand audits."""
PILOT, LEAST_PILOT = 20, 200
"""One trial in ``PILOT``, at least ``LEAST_PILOT``, serves only to choose the direction and the threshold."""


class Transparent(Carrier):
    """Replaces a carrier whose sums are exact: the same words, added in the same ring, in the clear.

    Args:
        carrier: the one that it replaces.
    """

    def __init__(self, carrier: Carrier) -> None:
        self.name, self.ring = carrier.name, carrier.ring
        self.takes = carrier.takes
        self.gives = Domain.RING if carrier.ring else Domain.REAL
        self.reveals = frozenset(Reveal)
        self.noise_components = carrier.noise_components
        self._noise_keys: dict[str, tuple[bytes, ...]] = {}

    def seal(self, matrix: np.ndarray, scope: Scope, party: Party) -> np.ndarray:
        """The matrix itself."""
        return matrix

    def open_sum(self, sealed: Mapping[str, Any], layout: Layout, scope: Scope, ask: Any) -> np.ndarray:
        """The sum, in the ring where there is one."""
        return centred(sum(np.asarray(matrix) for matrix in sealed.values()), self.ring)

    def keep_noise_keys(self, keys: tuple[bytes, ...], party: Party) -> None:
        """Keeps them, by client."""
        self._noise_keys[party.name] = keys

    def handed_out(self, name: str, uploads: int) -> tuple[bytes, ...]:
        """The keys of noise that a client hands out for a sum of so many uploads."""
        unneeded = self.noise_components.unneeded(uploads)
        return self._noise_keys[name][-unneeded:] if unneeded else ()

    def open_sum_with_keys(
        self, sealed: Mapping[str, Any], layout: Layout, scope: Scope, ask: Any
    ) -> tuple[np.ndarray, NoiseKeys]:
        """The sum, and all that its clients hand out."""
        keys = {name: self.handed_out(name, len(sealed)) for name in sealed}
        return self.open_sum(sealed, layout, scope, ask), {name: some for name, some in keys.items() if some}

    def open_each(self, sealed: Any, layout: Layout, name: str) -> np.ndarray:
        """That client's matrix."""
        return np.asarray(sealed)


def centred(values: Any, ring: int) -> np.ndarray:
    """Numbers of a ring from minus half its size; as they are where there is no ring.

    >>> centred(np.array([7, 8, -9]), 16).tolist()
    [7, -8, 7]
    """
    values = np.asarray(values)
    return np.asarray((values.astype(np.int64) + ring // 2) % ring - ring // 2 if ring else values)


def claims(bound: Bound, delta: float) -> dict[str, float]:
    """What the ledger says that one upload costs: reader -> epsilon at the channel's unit."""
    unit = bound.unit.value
    charge = Charge(
        "audited", "audit", 1, 1, bound.channel.name, unit, bound.bind_context.relation, bound.releases()
    )
    return {reader: cost.epsilon for reader, cost in spent([charge], delta, units=(unit,))[unit].items()}


def view(
    bound: Bound, neighbours: Neighbours, reader: str, colluders: tuple[str, ...] = ()
) -> Callable[[Uploads], np.ndarray]:
    """Uploads in, what the reader sees out, ``[trials, values]`` (float64).

    A reader of single uploads sees the target's. A reader of the sum subtracts what colluders sent, with its
    noise. Noise that the sum does not need is taken off before, of all clients.

    Args:
        bound: the protection under audit.
        neighbours: they say who the target is, and how many trials a call holds.
        reader: ``"server"``, ``"peers"`` or ``"outsider"``.
        colluders: clients that hand the reader what they sent.
    """
    if reader not in tuple(Reader):
        raise BadInput(f"reader {reader!r}: use one of {', '.join(Reader)}")
    if neighbours.target in colluders:
        raise BadInput(f"{neighbours.target} is the target and cannot collude against itself")
    channel, target = bound.channel, neighbours.target
    seen = bound.carrier.gives.readable and reader == "server"  # before the server has added anything
    carrier = bound.carrier if bound.carrier.gives is Domain.REAL else Transparent(bound.carrier)
    transparent = replace(bound, carrier=carrier)
    parties = {name: Party(name, Identity.generate(), {}) for name in neighbours.present}
    numbers = itertools.count(1)

    def sent(reply: Mapping[str, Any], name: str, uploads: int = 0) -> np.ndarray:
        """What a client sent, without what is taken off it in a sum of so many uploads."""
        layout = Layout.from_text(reply["layout"])
        step = float(reply["grid"]) if carrier.gives is Domain.RING else 1.0
        values, _ = transparent.split(carrier.open_each(reply["data"], layout, name), layout)
        keys = carrier.handed_out(name, uploads) if isinstance(carrier, Transparent) else ()
        for stage in bound.stages if keys else ():
            values = stage.take_off(values, keys)
        return values * step

    def opened(values: Mapping[str, torch.Tensor], rows: int) -> np.ndarray:
        return np.concatenate([value.numpy().reshape(rows, -1) for value in values.values()], axis=1)

    def call(uploads: Uploads) -> np.ndarray:
        scope = Scope("audit", 1, next(numbers), channel.name, tuple(uploads))
        needed = uploads if channel.reveal is Reveal.SUM and not seen else {target: uploads[target]}
        replies = {name: transparent.seal(upload, scope, parties[name]) for name, upload in needed.items()}
        rows = Layout.from_text(replies[target]["layout"]).rows
        if seen:
            matrix = sent(replies[target], target)
        elif channel.reveal is Reveal.SUM:
            matrix = opened(transparent.open_sum(replies, scope, nobody).total, rows).astype(np.float64)
            for name in colluders:
                matrix -= sent(replies[name], name, len(replies))
        else:
            matrix = opened(transparent.open_each(replies, scope)[target], rows)
        return matrix.astype(np.float64).reshape(neighbours.trials, -1)

    return call


def audit(
    bound: Bound,
    neighbours: Neighbours,
    reader: str,
    *,
    trials: int = 10_000,
    delta: float = 1e-5,
    confidence: float = CONFIDENCE,
    colluders: tuple[str, ...] = (),
    claim: float | None = None,
) -> Audit:
    """Compares what a bound protection claims with what worst-case neighbours show.

    Args:
        bound: the protection under audit.
        neighbours: two worlds.
        reader: against whom; ``"peers"`` include the colluders.
        trials: of each world; a pilot of a twentieth of them comes on top.
        delta: the claim's.
        confidence: that a right mechanism is not accused; either bound has half of what is left.
        colluders: clients that hand the reader what they sent.
        claim: an epsilon from elsewhere; by default the ledger's for one upload.
    """
    see, each = view(bound, neighbours, reader, colluders), neighbours.trials
    worlds = (neighbours.present, neighbours.absent)
    calls = math.ceil(max(trials / PILOT, LEAST_PILOT) / each)
    pilots = [np.concatenate([see(world) for _ in range(calls)]) for world in worlds]
    middles = [pilot.mean(axis=0) for pilot in pilots]
    direction = _best_direction(pilots)
    threshold = float(direction @ (middles[0] + middles[1]) / 2)
    scores_in, scores_out = (
        np.concatenate([see(world) @ direction for _ in range(math.ceil(trials / each))]) for world in worlds
    )
    confidence = (1 + confidence) / 2  # two bounds, and either may refute
    return Audit(
        claims(bound, delta)[reader] if claim is None else claim,
        epsilon.gaussian(scores_in, scores_out, delta, confidence, threshold=threshold),
        # its best threshold is not in the middle: half of the scores choose it
        epsilon.two_worlds(scores_in, scores_out, delta, confidence),
    )


def _best_direction(pilots: list[np.ndarray]) -> np.ndarray:
    """The direction that separates two worlds best: the difference of their means, where noise is least.

    Under independent noise that is the difference itself. Noise that repeats from value to value is noticed.
    """
    apart: np.ndarray = pilots[0].mean(axis=0) - pilots[1].mean(axis=0)
    trials, width = pilots[0].shape
    if trials < 10 * width:
        return apart
    noise = sum(np.cov(pilot, rowvar=False).reshape(width, width) for pilot in pilots)
    # a little of everything, so that values without any noise count much and not infinitely
    least = 1e-6 * np.trace(noise) / width + 1e-12 * float(apart @ apart) + 1e-300
    return np.asarray(np.linalg.solve(noise + least * np.eye(width), apart))


def nobody(step: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """No client answers: the stand-in needs none to open a sum."""
    return {}
