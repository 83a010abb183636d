"""Shamir's secret sharing over the integers modulo 2**255 - 19: any ``threshold`` shares give the secret."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate as running
from itertools import combinations, islice

import numpy as np

from secure_fedgraph.core.errors import BadInput, HostileMessage

PRIME = 2**255 - 19
BYTES = 32
UNREDUCED = 64
"""Coefficients of a polynomial that are taken in before a reduction."""
TRIES = 256
"""Sets of shares that are tried before a secret counts as wrongly shared or wrongly returned."""


def random_secret() -> int:
    """A secret from the operating system's randomness, uniform in the field."""
    return secrets.randbelow(PRIME)


def split(values: Sequence[int], threshold: int, points: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Shares of several secrets, one of each at every point.

    Guarantees:
        - fewer than ``threshold`` shares are uniform and independent of the secret, whatever it is;
        - the coefficients come from the operating system.

    Args:
        values: the secrets, each from 0 to ``PRIME - 1``.
        threshold: how many shares give a secret back.
        points: one for each holder: distinct, from 1 to ``PRIME - 1``.

    Returns:
        Point -> a share of each secret, in order.

    Raises:
        BadInput: for points that repeat or are zero, a threshold that they cannot reach, or other secrets.

    References:
        Shamir, How to Share a Secret, 1979.
    """
    if not 1 <= threshold <= len(points):
        raise BadInput(f"threshold {threshold}: {len(points)} holders of a share cannot reach it")
    if len(set(points)) != len(points) or not all(0 < point < PRIME for point in points):
        raise BadInput("points of shares are distinct and not zero: the share at zero is the secret")
    if not all(0 <= value < PRIME for value in values):
        raise BadInput("a shared secret is a number from 0 to 2**255 - 20")
    # highest coefficient first, as Horner's rule takes them
    polynomials = [[*(secrets.randbelow(PRIME) for _ in range(threshold - 1)), value] for value in values]
    return {point: tuple(_evaluate(polynomial, point) for polynomial in polynomials) for point in points}


@lru_cache(maxsize=64)
def weights(points: tuple[int, ...]) -> list[int]:
    """Lagrange's weights at zero: the secret is the sum of the shares times these.

    Raises:
        BadInput: for points that repeat or are zero.
    """
    if len(set(points)) != len(points) or not all(0 < point < PRIME for point in points):
        raise BadInput("shares are combined at distinct points that are not zero")
    product = 1
    for point in points:
        product = product * point % PRIME
    denominators = []
    for point in points:
        denominator = point
        for other in points:
            if other != point:
                denominator = denominator * (other - point) % PRIME
        denominators.append(denominator)
    return [product * inverse % PRIME for inverse in _inverses(denominators)]


def are_shares(rows: np.ndarray) -> list[bool]:
    """Which rows of 32 bytes, little-endian, are numbers of the field."""
    top = rows[:, 31] == 0x7F
    beyond = top & (rows[:, 1:31] == 0xFF).all(axis=1) & (rows[:, 0] >= 0xED)
    in_field: list[bool] = (~((rows[:, 31] > 0x7F) | beyond)).tolist()
    return in_field


def combine(shares: Mapping[int, int]) -> int:
    """The secret that these shares give: point -> share, exactly as many as the threshold."""
    return sum(w * share for w, share in zip(weights(tuple(shares)), shares.values(), strict=True)) % PRIME


def candidates(shares: Mapping[int, int], threshold: int) -> Iterator[int]:
    """The secrets that the shares may give: the first one, unless a share is wrong.

    The caller compares each with what was advertised, and takes the one that fits. If up to half of the
    shares above ``threshold`` are wrong, the second one fits. If more are, some subsets are tried.

    Raises:
        HostileMessage: for a share that is no number of the field.
    """
    if not all(0 <= share < PRIME for share in shares.values()):
        raise HostileMessage("a share of a secret is not a number of the field")
    subsets = islice(combinations(shares, threshold), TRIES - 1)
    for points in islice(subsets, 1):
        yield combine({point: shares[point] for point in points})
    if len(shares) > threshold + 1 and (secret := decoded(shares, threshold)) is not None:
        yield secret
    for points in subsets:
        yield combine({point: shares[point] for point in points})


def decoded(shares: Mapping[int, int], threshold: int) -> int | None:
    """The secret, if at most ``(len(shares) - threshold) // 2`` of its shares are wrong; else maybe None.

    References:
        Gao, A New Algorithm for Decoding Reed-Solomon Codes, 2003.
    """
    before, rest = _through(shares)
    factor_before, factor = [0], [1]
    while 2 * (len(rest) - 1) >= len(shares) + threshold:
        quotient, remainder = _divided(before, rest)
        before, rest = rest, remainder
        factor_before, factor = factor, _less(factor_before, _times(quotient, factor))
    polynomial, remainder = _divided(rest, factor)
    return None if any(remainder) or len(polynomial) > threshold else polynomial[0]


def _through(shares: Mapping[int, int]) -> tuple[list[int], list[int]]:
    """Two polynomials, lowest coefficient first: zero at all points, and through all the shares."""
    zero = [1]
    for point in shares:
        zero = _times(zero, [-point % PRIME, 1])
    factors = []
    for point in shares:
        quotient, _ = _divided(zero, [-point % PRIME, 1])
        factors.append((quotient, _evaluate(quotient[::-1], point)))
    inverses, total = _inverses([at for _, at in factors]), [0] * len(shares)
    for (quotient, _), share, inverse in zip(factors, shares.values(), inverses, strict=True):
        factor = share * inverse % PRIME
        total = [(a + factor * b) % PRIME for a, b in zip(total, quotient, strict=True)]
    return zero, _trimmed(total)


def _times(one: list[int], other: list[int]) -> list[int]:
    product = [0] * (len(one) + len(other) - 1)
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            product[i + j] = (product[i + j] + a * b) % PRIME
    return _trimmed(product)


def _less(one: list[int], other: list[int]) -> list[int]:
    size = max(len(one), len(other))
    padded = ((one + [0] * (size - len(one))), (other + [0] * (size - len(other))))
    return _trimmed([(a - b) % PRIME for a, b in zip(*padded, strict=True)])


def _divided(one: list[int], by: list[int]) -> tuple[list[int], list[int]]:
    """Quotient and remainder of polynomials."""
    rest, inverse = list(one), pow(by[-1], -1, PRIME)
    quotient = [0] * max(1, len(one) - len(by) + 1)
    for place in range(len(one) - len(by), -1, -1):
        factor = quotient[place] = rest[place + len(by) - 1] * inverse % PRIME
        for i, b in enumerate(by):
            rest[place + i] = (rest[place + i] - factor * b) % PRIME
    return _trimmed(quotient), _trimmed(rest)


def _trimmed(polynomial: list[int]) -> list[int]:
    while len(polynomial) > 1 and not polynomial[-1]:
        polynomial.pop()
    return polynomial


def _evaluate(polynomial: Sequence[int], point: int) -> int:
    total = 0
    for start in range(0, len(polynomial), UNREDUCED):
        for coefficient in polynomial[start : start + UNREDUCED]:
            total = total * point + coefficient  # points are small: reducing less often is cheaper
        total %= PRIME
    return total


def _inverses(values: Sequence[int]) -> list[int]:
    """All inverses for the price of one (Montgomery's trick)."""
    before = list(running(values, lambda a, b: a * b % PRIME, initial=1))
    inverse, inverses = pow(before[-1], -1, PRIME), []
    for value, earlier in zip(reversed(values), reversed(before[:-1]), strict=True):
        inverses.append(inverse * earlier % PRIME)
        inverse = inverse * value % PRIME
    return inverses[::-1]
