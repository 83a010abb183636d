"""A client's share of one noise as a sum: a base, and components that only sums of fewer clients need.

With ``c`` colluders, a sum of ``s`` uploads holds the noise of ``s - c`` honest clients for certain, so a
share needs the variance ``V / (s - c)``: the least where everybody is left, the most at the quorum. Levels
between the two divide that range evenly, in ratio: ``h_0 = clients - c > h_1 > ... > h_K = quorum - c``. The
base has the variance ``V / h_0``, component ``j`` the variance ``V / h_j - V / h_(j - 1)``: base and the
first ``j`` components together have ``V / h_j``, which is enough for every sum of at least ``h_j + c``
uploads. The others are taken off again.

A few levels and not one for each client that may be gone: each is one more draw for every value, at the
client and at the server, and K parts are about ``1 / sqrt(K)`` as wide as one, in a ring that has room for so
many steps only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

MOST = 4
"""Removable components: with the default quorum three leave at most 4.4 % too much noise (``RATIO``)."""
RATIO = 1.1
"""What lies between two levels, in variance, where that takes no more than ``MOST``."""
NARROWEST = 8.0
"""Whole steps to the deviation of a component: their sums are Gaussian up to ``exp(-pi**2 * 64)``, 1e-274."""


@dataclass(frozen=True)
class NoiseComponents:
    """The standard deviations of the parts of one share, in whole steps, and which sums need them.

    Args:
        base: of the part that is never taken off; 0 where there is no noise in shares.
        removable: of the further parts.
        needed_below: for each of these the number of uploads: sums of fewer need it, all others do not.

    >>> parts = split_share(4096, clients=10, quorum=8, colluders=1)
    >>> parts.needed_below, parts.unneeded(10), parts.unneeded(9), parts.unneeded(8)
    ((10, 9), 2, 1, 0)
    """

    base: float = 0.0
    removable: tuple[float, ...] = ()
    needed_below: tuple[int, ...] = ()

    def unneeded(self, uploads: int) -> int:
        """How many components a sum of so many uploads does not need: the last ones."""
        return sum(uploads >= least for least in self.needed_below)

    def variance(self, uploads: int) -> float:
        """Of what a sum of so many uploads needs of one share, in whole steps."""
        kept = self.removable[: len(self.removable) - self.unneeded(uploads)]
        return math.fsum(width**2 for width in (self.base, *kept))

    @property
    def all(self) -> tuple[float, ...]:
        """Every part's standard deviation, the base's first."""
        return (self.base, *self.removable)


ONE_PART = NoiseComponents()
"""Of noise that no sum takes parts off."""


def split_share(sigma: int, clients: int, quorum: int, colluders: int) -> NoiseComponents:
    """The parts of a share of ``sigma`` steps, which ``quorum - colluders`` shares make the whole noise of.

    Guarantees:
        - what a sum of at least ``quorum`` uploads needs of the shares of all but ``colluders`` of them has
          at least the variance ``(quorum - colluders) * sigma**2``, whatever the number of uploads: widths
          are rounded up;
        - every part is at least ``NARROWEST`` steps wide, or the share stays one part;
        - the parts are a function of these four numbers.

    References:
        Jiang, Wang, Chen, Dordis: Efficient Federated Learning with Dropout-Resilient Differential Privacy,
        EuroSys 2024 (section 3, XNoise), with a level for each client that may be gone.
    """
    most, least = clients - colluders, quorum - colluders
    wanted = math.ceil(math.log(most / least) / math.log(RATIO)) if most > least else 0
    for count in range(min(wanted, MOST), 0, -1):
        levels = sorted({round(most * (least / most) ** (j / count)) for j in range(count + 1)}, reverse=True)
        whole = sigma**2 * least
        removable = tuple(_width(Fraction(whole, b) - Fraction(whole, a)) for a, b in pairwise(levels))
        if min(removable) >= NARROWEST:
            needed_below = tuple(level + colluders for level in levels[:-1])
            return NoiseComponents(_width(Fraction(whole, most)), removable, needed_below)
    return NoiseComponents(float(sigma))


def _width(variance: Fraction) -> float:
    """The root of a variance, rounded up."""
    root = math.sqrt(variance)
    while Fraction(root) ** 2 < variance:
        root = math.nextafter(root, math.inf)
    return root
