"""Who masks with whom, and how many shares open a secret: complete for small cohorts, k-regular for large.

Two numbers bind the clients of one masked sum:

- ``signatures``: a client reveals shares only for a list of survivors that this many clients of the cohort
  signed. ``2 * signatures > cohort + colluders``, so two lists cannot both be answered. Colluders are a share
  of the roster, not of the cohort: the server picks the cohort, and a small one may hold all of them.
- ``shares``: so many holders together give a secret back. In the complete graph this is the same number; in
  a k-regular one the holders of a client's secrets are its neighbours and itself.

In the k-regular graph the degree is the smallest even one for which both of these hold, with ``shares`` the
largest number that meets the second:

    P[Hypergeometric(present - 1, colluders, degree) >= least] * present <= 2**-(SECURITY + GRINDING)
        with least = min(2 * shares - (degree + 1), shares - 1)
    P[Hypergeometric(present, dropped, degree + 1) > degree + 1 - shares] * present <= 2**-AVAILABILITY

In the first, ``2 * shares - (degree + 1)`` comes from ``2 * shares > holders + colluders`` among the holders
of each client's secrets, for a client that takes no part in unmasking. A client that helps to unmask requires
``shares - 1`` surviving neighbours. At least one of them must be honest. Its pair mask stays on the upload,
so no single upload opens, however the server lies about who shared or dropped out: a client's own mask opens
with ``shares`` of its holders, and the client masked with at least ``shares - 1`` of them, so an honest
neighbour that is alive on the one list of survivors is in both groups.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache

SECURITY, GRINDING, AVAILABILITY = 40, 40, 20
"""Bits. The graph depends on a hash. A server that leaves clients out gets another: 2**GRINDING tries."""
COMPLETE = 32
"""The largest cohort in which everybody masks with everybody."""


@dataclass(frozen=True)
class SumThresholds:
    """The numbers of one masked sum; see the module's text.

    Args:
        signatures: on a list of survivors; more than there are clients where too many may collude.
        shares: that give a secret back.
        degree: neighbours of each client.
    """

    signatures: int
    shares: int
    degree: int


def max_colluders(roster: int, colluders: float) -> int:
    """How many clients of a roster may work with the server."""
    return math.floor(colluders * roster + 1e-9)


def colluders_among(cohort: int, colluders: float, roster: int = 0) -> int:
    """How many clients of a cohort that the server picked may work with it."""
    return min(max_colluders(max(cohort, roster), colluders), cohort)


@lru_cache(maxsize=256)
def thresholds(
    cohort: int, present: int, colluders: float, dropouts: float, roster: int = 0
) -> SumThresholds:
    """The numbers for a cohort of which so many advertised keys.

    Args:
        cohort: clients that were asked.
        present: those of them that advertised.
        colluders: the share of the roster that may work with the server.
        dropouts: the share of those present that may drop out by chance; more end in a refusal.
        roster: everybody who may ever be asked; by default nobody but the cohort.
    """
    bad = colluders_among(cohort, colluders, roster)
    signatures = (cohort + bad) // 2 + 1
    everybody = SumThresholds(signatures, signatures, present - 1)
    if present <= COMPLETE:
        return everybody
    bad, dropped = min(bad, present - 1), math.ceil(dropouts * present - 1e-9)
    for degree in range(2, present - 1, 2):
        shares = _available(present, dropped, degree)
        least = min(2 * shares - degree - 1, shares - 1)
        if least > 0 and _rare(present - 1, bad, degree, least, present << SECURITY + GRINDING):
            return SumThresholds(signatures, shares, degree)
    return everybody


def opens_whole(numbers: SumThresholds, present: int, signed: int, bad: int) -> bool:
    """Whether no part of a sum opens by itself, however the server lies about who shared or dropped out.

    Of those that signed the one list of survivors, all but ``bad`` are honest, and each of them masked with
    all its neighbours on the list. Fewer others than a client has neighbours leave these signers in one piece
    of the graph, with every other honest survivor beside one of them. Fewer others than a client has to mask
    with leave none that masked with none of them. So whatever opens holds the uploads of all honest
    survivors.

    Args:
        present: clients that advertised.
        signed: signatures on the list of survivors.
        bad: how many of them may work with the server.
    """
    return present - signed + bad < min(numbers.shares, numbers.degree)


@lru_cache(maxsize=8)
def circle(names: tuple[str, ...], seed: bytes) -> tuple[str, ...]:
    """The names in the order of a hash with the seed: who is near on this circle is a neighbour."""
    return tuple(sorted(names, key=lambda name: hashlib.sha256(seed + name.encode()).digest()))


def around(order: tuple[str, ...], degree: int) -> dict[str, tuple[str, ...]]:
    """Each client's neighbours, sorted: the nearest on either side of the circle (Harary's graph).

    References:
        Bell et al., Secure Single-Server Aggregation with (Poly)Logarithmic Overhead, CCS 2020 (section 3).
    """
    return {name: near(order, degree, place) for place, name in enumerate(order)}


def near(order: tuple[str, ...], degree: int, place: int) -> tuple[str, ...]:
    """The neighbours of the client at one place of the circle."""
    if degree >= len(order) - 1:
        return tuple(sorted(order[:place] + order[place + 1 :]))
    reach = range(1, degree // 2 + 1)
    return tuple(sorted(order[(place + step) % len(order)] for step in (*(-r for r in reach), *reach)))


def _available(present: int, dropped: int, degree: int) -> int:
    """The most shares that can be asked for, so that drop-outs by chance leave as many."""
    holders, total = degree + 1, math.comb(present, degree + 1)
    above = 0
    for gone in range(min(holders, dropped), -1, -1):
        above += math.comb(dropped, gone) * math.comb(present - dropped, holders - gone)
        if above * (present << AVAILABILITY) > total:
            return holders - gone
    return holders


def _rare(population: int, marked: int, draws: int, least: int, times: int) -> bool:
    """Whether ``P[Hypergeometric >= least] * times <= 1``, in exact integers."""
    ways = sum(
        math.comb(marked, hit) * math.comb(population - marked, draws - hit)
        for hit in range(least, min(marked, draws) + 1)
    )
    return ways * times <= math.comb(population, draws)
