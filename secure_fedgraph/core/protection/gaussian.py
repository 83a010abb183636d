"""Gaussian noise on a grid of whole steps, from the operating system's randomness."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from secure_fedgraph.core.accounting import events
from secure_fedgraph.core.channel import (
    Domain,
    Recipient,
    Reveal,
    UnitContributionMoments,
    UnitContributionSampled,
)
from secure_fedgraph.core.errors import BadInput, Incompatible, Unbound
from secure_fedgraph.core.guarantee import Reader, Relation, Unit
from secure_fedgraph.core.protection.contracts import BindContext, Noise, Scope, Sensitivity, Stage
from secure_fedgraph.core.protection.discrete_gaussian import DiscreteGaussian, discrete_gaussian, reach_of
from secure_fedgraph.core.protection.noise_components import ONE_PART, NoiseComponents, split_share
from secure_fedgraph.core.protection.pooling import ROUNDING_MARGIN, clipped
from secure_fedgraph.core.protection.rounded_gaussian import LEAST, rounded_gaussian

# Clipping: bounds each row of an upload, which is where every sensitivity begins.


@dataclass(frozen=True)
class Clip(Stage):
    """Scales each row down to an L2 norm of at most ``norm``.

    Guarantees:
        - every row that leaves has ``||row||_2 <= norm``, also after rounding to float32; with ``whole`` all
          rows of an upload together have, and then it is the client that noise protects;
        - a row within the norm is unchanged;
        - where a row is a sum over units, it does nothing: each unit's part is clipped before the sum. A clip
          of the sum would shrink every part and bound none.

    Args:
        norm: the bound; a row is a whole upload on client channels, one unit's values on others.
        whole: bound the whole upload, whatever its rows are.

    Raises:
        BadInput: for a norm that is not positive and finite.
    """

    norm: float
    whole: bool = False
    aside: bool = False
    takes = Domain.REAL
    gives = Domain.REAL
    effect_words = "clipped"
    scales = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.norm) and self.norm > 0):
            raise BadInput(f"norm {self.norm}: the clip must be a positive number; set --norm 1.0")

    def bind(self, sensitivity: Sensitivity, context: BindContext) -> tuple[Stage, Sensitivity]:
        """Zeroing a unit moves its row by at most the norm, replacing it by twice that.

        Raises:
            Incompatible: behind noise, where a zeroed row is not at zero any more.
        """
        if sensitivity.noise_added_by:
            raise Incompatible(f"channel {context.channel.name!r}: put Clip before the noise, not behind it")
        if context.channel.unit_contribution is not None:
            return replace(self, aside=True), sensitivity
        l2_sensitivity = 2 * self.norm if context.relation == "replace" else self.norm
        return self, Sensitivity(
            l2_sensitivity, Unit.CLIENT if self.whole or context.channel.unit is Unit.CLIENT else None
        )

    def apply(self, matrix: np.ndarray, scope: Scope) -> np.ndarray:
        """The clipped rows."""
        if self.aside:
            return matrix
        rows = matrix.reshape(1, -1) if self.whole else matrix
        return clipped(rows, self.norm).reshape(matrix.shape)


STEPS = 2**12
"""Whole steps to a standard deviation: far finer than what any noise leaves of a value."""
FINEST = 2**14
"""The same where products of rounded values are added up: the grid of the values is its square root."""
COARSEST = 2**6
"""The fewest to the deviation of one share, where a ring has no more room; sums of such discrete Gaussians
are still Gaussian to far below any delta."""
EXACT = {"client": 2**50, "server": 2**24}
"""Whole steps up to this are exact floats: where the noise is added, and on the way there."""
SIDES = ("client", "server", "shares")


@dataclass(frozen=True)
class Gaussian(Stage):
    """Rounds values towards zero to a grid and adds whole Gaussian noise scaled to the sensitivity.

    2**12 steps of the grid make up a standard deviation, up to twice as many where the server adds it (its
    grid is a power of two), or fewer where a ring has less room. Noise that one party adds is a continuous
    Gaussian, rounded, which is that mechanism post-processed; shares that are to sum up are discrete
    Gaussians.

    Guarantees:
        - the noise's standard deviation is at least ``multiplier`` times the sensitivity handed down by the
          stages before it; a user never sets a sensitivity. Rounding towards zero adds nothing to it: a
          rounded value is never further from zero than the value;
        - under ``by="client"`` every upload carries the noise before it leaves, so it holds against the
          server too; under ``by="server"`` the server sees every upload before the noise, and the noise
          holds against everybody who sees released values only; under ``by="shares"`` every upload carries a
          share of it, and any sum of ``quorum`` uploads carries the whole without the shares of
          ``colluders`` of them, whoever reads it. That rests on the carrier that shows the sum alone;
        - whole numbers are added to whole numbers, so no floating-point noise leaks values by its rounding;
        - in a ring no sum wraps, with certainty: the noise has a largest value, and values have a limit;
        - the draws come from the operating system: no seed reproduces them;
        - under ``by="shares"`` and a carrier that removes noise, a share is a base and further parts, drawn
          under keys. Of any sum of at least ``quorum`` uploads, what it needs of the shares of all but
          ``colluders`` of them is the whole noise; :meth:`take_off` takes off the rest, of clients whose keys
          it is given.
    Needs:
        - a stage before it that bounds the upload, else :class:`~secure_fedgraph.core.errors.Unbound`, and
          none that noises it.
        - under ``by="shares"`` a carrier that adds in a ring, and at least one client beyond the colluders.

    Args:
        multiplier: the noise multiplier.
        by: ``"client"``, ``"server"`` or ``"shares"``.
        limit: each coordinate is clamped to ±limit. Clamping never increases the distance of two rows. By
            default the clip norm is the limit. Rings of 16 bits need one.
        colluders: the share of a sum's clients whose noise is not counted on; one at least, since whoever
            contributes knows its own.
        remove_excess: whether noise that a sum does not need is taken off again, where the carrier can.

    Raises:
        BadInput: for settings out of range.

    References:
        Kairouz, Liu, Steinke, The Distributed Discrete Gaussian Mechanism, ICML 2021; Canonne, Kamath,
        Steinke, The Discrete Gaussian for Differential Privacy, NeurIPS 2020; Jiang, Wang, Chen, Dordis,
        EuroSys 2024 (noise that is taken off again).
    """

    multiplier: float
    by: str = "client"
    limit: float = math.inf
    colluders: float = 0.1
    remove_excess: bool = True
    step: float = math.nan
    sigma: int = 0
    """Whole steps, of one share."""
    honest: int = 1
    """Shares that are counted on."""
    l2_sensitivity: float = math.nan
    """How far one unit moves the sum."""
    whole: bool = False
    """Whether values are whole steps already."""
    rate: float = 1.0
    """The probability with which one unit is part of an upload."""
    relation: str = Relation.ZERO_OUT
    noise_components: NoiseComponents = ONE_PART
    takes = Domain.REAL
    scales = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.multiplier) and self.multiplier > 0):
            raise BadInput(
                f"multiplier {self.multiplier}: noise needs a positive number; set --multiplier 1.0"
            )
        if self.by not in SIDES:
            raise BadInput(f"noise by {self.by!r}: use one of {', '.join(SIDES)}")
        if not self.limit > 0:
            raise BadInput(f"limit {self.limit}: the largest coordinate is a positive number")
        if not 0 <= self.colluders < 1:
            raise BadInput(f"colluders {self.colluders}: a share of the cohort, from 0 to below 1")

    @property
    def gives(self) -> Domain:  # type: ignore[override]
        """Noise in shares stays in the ring; other noise gives real numbers."""
        return Domain.RING if self.by == "shares" else Domain.REAL

    @property
    def grid(self) -> float:  # type: ignore[override]
        """The step that parts of sums over units are rounded to before they are added up."""
        return self.step

    def bind(self, sensitivity: Sensitivity, context: BindContext) -> tuple[Stage, Sensitivity]:
        """Takes the scale from the sensitivity, and the grid from the scale and the ring."""
        channel = context.channel
        if not sensitivity.bounded:
            raise Unbound(
                f"channel {channel.name!r}: Gaussian noise needs a bounded upload and nothing before "
                "it bounds one: put Clip(norm) in front"
            )
        if sensitivity.noise_added_by:
            # the rounding and the limit would change the first noise, and a second would improve no epsilon
            raise Incompatible(
                f"channel {channel.name!r}: noise is added by the {sensitivity.noise_added_by} already: keep "
                "one Gaussian, with the larger multiplier"
            )
        if self.by == "server" and channel.to == Recipient.PEER:
            raise Incompatible(
                f"channel {channel.name!r} is read by a peer, who would see it before the server's noise: "
                'use Gaussian(by="client"), or a carrier that shows only sums'
            )
        honest, room = self._honest(context), self._room(context)
        deviation = self.multiplier * sensitivity.l2 / math.sqrt(honest)
        # a client's upload has no coordinate beyond its norm; a sum over units often no bound of its own
        contribution = channel.unit_contribution
        largest = min(self.limit, sensitivity.l2 if contribution is None else contribution.largest)
        if self.by == "shares" and not math.isfinite(largest):
            raise BadInput(
                f"channel {channel.name!r}: sums over units have no largest value by themselves, and a ring "
                "needs one: set protection.limit"
            )
        least = COARSEST if self.by == "shares" else LEAST
        needed = largest if math.isfinite(largest) else sensitivity.l2
        # twice as many steps at most, where the server adds it
        finer = 2 if self.by == "server" else 1
        products = isinstance(contribution, UnitContributionMoments)
        sigma = FINEST // finer if products else STEPS
        fitting = self._fitting(context, honest, (sigma, least), room / finer, needed / deviation)
        if fitting is None:
            raise Incompatible(
                f"channel {channel.name!r}: {room:.3g} steps a client have no room for values up to "
                f"{needed:.3g} and noise of {deviation:.3g} among {len(context.clients)} clients: use "
                "more noise, a larger ring (under masks protection.bits=32) or a smaller protection.limit"
            )
        sigma, components = fitting
        step = deviation / sigma
        if self.by == "server":
            # a power of two: whole steps are then whole in the floats on the way, and in sums of many
            step = 2.0 ** math.floor(math.log2(step))
            sigma = math.ceil(deviation / step)
        limit = min(largest, (room - self._reach(sigma, components)) * step)
        bound = replace(
            self,
            limit=limit,
            step=step,
            sigma=sigma,
            honest=honest,
            l2_sensitivity=sensitivity.l2,
            whole=channel.unit_contribution is not None,
            rate=contribution.rate if isinstance(contribution, UnitContributionSampled) else 1.0,
            relation=context.relation,
            noise_components=components,
        )
        return bound, replace(sensitivity, noise_added_by=self.by)

    def apply(self, matrix: np.ndarray, scope: Scope) -> np.ndarray:
        """The client's half: whole steps in the ring, or real numbers on the grid."""
        return self.apply_with_keys(matrix, scope, ())

    def apply_with_keys(self, matrix: np.ndarray, scope: Scope, keys: Sequence[bytes]) -> np.ndarray:
        """The same, with each removable part of a share drawn under its key."""
        steps = np.clip(matrix.astype(np.float64), -self.limit, self.limit)
        if self.whole:
            steps = np.rint(steps / self.step)  # sums of parts that were rounded one by one
        else:
            np.trunc(steps * (ROUNDING_MARGIN / self.step), out=steps)
        if self.by != "server":
            steps += self._draw(steps.shape, keys)
        return steps.astype(np.int64) if self.by == "shares" else steps * self.step

    def take_off(self, matrix: np.ndarray, keys: Sequence[bytes]) -> np.ndarray:
        """What was opened less the last parts of one client's share."""
        widths = self.noise_components.removable
        left: np.ndarray = matrix.astype(np.int64)
        for width, key in zip(widths[len(widths) - len(keys) :], keys, strict=True):
            left -= discrete_gaussian(width).draw(matrix.size, key).reshape(matrix.shape)
        return left

    def undo(self, matrix: np.ndarray, scope: Scope) -> np.ndarray:
        """The server's noise on what it opened, or the sum's real numbers."""
        if self.by == "shares":
            return np.asarray(np.multiply(matrix, self.step, dtype=np.float64))
        if self.by == "client":
            return matrix
        # uploads are whole steps, and so are their sums
        steps = np.rint(np.asarray(matrix, dtype=np.float64) / self.step)
        return np.asarray((steps + self._draw(steps.shape)) * self.step)

    @property
    def effect_words(self) -> str:  # type: ignore[override]
        """Noise that the server adds is not on an upload that it sees."""
        return {"client": "noised", "server": "", "shares": "with a share of the noise"}[self.by]

    def deviation(self, uploads: int, whole: int = 0) -> float:
        """Of one draw by the server, or of what is left of all clients' draws."""
        if self.by == "server":
            return self.sigma * self.step
        if not self.noise_components.removable:
            return self.sigma * self.step * math.sqrt(uploads)
        whole_shares = whole * self.noise_components.variance(0)
        return self.step * math.sqrt(
            whole_shares + (uploads - whole) * self.noise_components.variance(uploads)
        )

    def public(self) -> dict[str, float]:
        """The public grid step and the noise on one upload, in steps."""
        return {"grid": self.step, "sigma": self.sigma}

    def noise(self) -> Noise:
        """Against whom the noise counts, and what it is."""
        readers = set(Reader) - ({Reader.SERVER} if self.by == "server" else set())
        return Noise(self.release, frozenset(readers), computational=self.by == "shares")

    def release(self, width: int) -> tuple[events.Event, ...]:
        """The events of one upload of so many values, once the stage is bound."""
        total_variation = min(width * self._distance_of_a_value(), 1.0)
        if self.by != "shares":
            return self._sampled(events.GaussianRelease(self.multiplier)), events.SamplingError(
                total_variation
            )
        shares = events.DiscreteRelease(
            self.multiplier, self.honest, sigma=self.sigma, width=width, total_variation=total_variation
        )
        if self.rate == 1:
            return (shares,)
        # what coins take is a mixture of releases, each of them a rounding of continuous noise, nearly
        continuous = shares.continuous()
        if continuous is None:
            return (shares,)
        return self._sampled(continuous[0]), events.SamplingError(continuous[1])

    def _sampled(self, one: events.GaussianRelease) -> events.Event:
        """The release of a sum that each unit is part of with a known probability."""
        if self.rate == 1:
            return one
        apart = 2 if self.relation == Relation.REPLACE else 1  # the sensitivity is twice the clip then
        return events.SampledGaussian(one.noise_multiplier * apart, self.rate, 1, self.relation)

    def _distance_of_a_value(self) -> float:
        """The total variation of what is drawn for one value from the ideal, over all that is counted on.

        Shares of one part are the ideal. The parts of shares of several are of other widths: their sum is
        another ideal, a factor ``exp(sums_apart(...))`` from one discrete Gaussian, whatever the number of
        uploads.
        """
        parts = self.noise_components.all
        if len(parts) == 1:
            return self.honest * self._sampler(self.sigma).total_variation
        drawn, variance = 0.0, self.honest * self.sigma**2
        for count in range(1, len(parts) + 1):
            # of so many parts each; more honest shares than make up the whole noise cost nothing
            shares = math.ceil(variance / math.fsum(width**2 for width in parts[:count]) - 1e-9)
            sampled = math.fsum(discrete_gaussian(width).total_variation for width in parts[:count])
            apart = math.expm1(events.sums_apart(shares * count, min(parts)))
            drawn = max(drawn, shares * sampled + apart)
        return drawn

    def _honest(self, context: BindContext) -> int:
        if self.by != "shares":
            return 1
        if not context.ring or context.channel.reveal is not Reveal.SUM:
            raise Incompatible(
                f"channel {context.channel.name!r}: noise in shares is whole in a sum only, which a carrier "
                "that adds in a ring has to show alone"
            )
        # a sum of a quorum may hold everybody who colludes in the whole cohort
        counted = context.quorum - max(1, math.ceil(self.colluders * len(context.clients) - 1e-9))
        if counted < 1:
            raise BadInput(
                f"channel {context.channel.name!r}: of a quorum of {context.quorum} nobody is left beside "
                "the colluders to add noise: set protection.quorum=3 or more, or fewer protection.colluders"
            )
        return counted

    def _room(self, context: BindContext) -> float:
        """Steps up to which one upload, noise included, may go."""
        return context.ring / 2 / len(context.clients) - 1 if self.by == "shares" else EXACT[self.by]

    def _sampler(self, sigma: int) -> DiscreteGaussian:
        return discrete_gaussian(sigma) if self.by == "shares" else rounded_gaussian(sigma)

    def _reach(self, sigma: int, components: NoiseComponents) -> int:
        """The largest noise on one upload, in steps."""
        return sum(map(reach_of, components.all)) if components.removable else self._sampler(sigma).reach

    def _fitting(
        self, context: BindContext, honest: int, between: tuple[int, int], room: float, largest: float
    ) -> tuple[int, NoiseComponents] | None:
        """The most steps to a deviation for which values and noise have room, and a share's parts.

        A share of several parts has a larger reach: where no grid has room for it, it stays one part.

        Args:
            between: the most steps and the fewest.
            largest: value, in deviations.
        """
        finest, coarsest = between
        grids = [finest >> halved for halved in range((finest // coarsest).bit_length())]
        ways: list[Callable[[int], NoiseComponents]] = [lambda sigma: NoiseComponents(float(sigma))]
        if self.remove_excess and self.by == "shares" and context.removes_noise:
            clients, quorum = len(context.clients), context.quorum
            ways.insert(0, lambda sigma: split_share(sigma, clients, quorum, quorum - honest))
        fitting = (
            (sigma, parts)
            for way in ways
            for sigma, parts in ((sigma, way(sigma)) for sigma in grids)
            if largest * sigma + self._reach(sigma, parts) < room
        )
        return next(fitting, None)

    def _draw(self, shape: tuple[int, ...], keys: Sequence[bytes] = ()) -> np.ndarray:
        """Noise in whole steps; its removable parts under these keys, or fresh ones that nobody keeps."""
        size = math.prod(shape)
        if not self.noise_components.removable:
            return self._sampler(self.sigma).draw(size).reshape(shape)
        noise: np.ndarray = discrete_gaussian(self.noise_components.base).draw(size).astype(np.int64)
        widths = self.noise_components.removable
        for width, key in zip(widths, keys or (b"",) * len(widths), strict=True):
            noise += discrete_gaussian(width).draw(size, key)
        return noise.reshape(shape)
