"""C3's arithmetic: make a generator that asks for the nodes nearest to chosen points, and read the answer."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from secure_fedgraph.attacks.neighgen import SLOTS, Question

SPREAD = 0.2
"""How far a query is from the point whose coordinates are all 1/2, for each unit of direction."""
TIES = 0.05
"""Weight of the random part, which breaks ties among nodes that have the word asked for."""
LEAN = 0.05
"""The largest penalty for each word of a node: without it, nodes with many words would win all ties."""
FAR = 0.9
"""The size of each coordinate of a query about dense features."""
_NEAR = 0.06
MOST = 3
"""The most owners whose rows are separated in one query of a sum."""
_FGEN = "fgen."


class Asked(Question):
    """A crafted offer, as its maker knows it."""

    def units(self) -> tuple[np.ndarray, np.ndarray]:
        """The hidden units that rows light, and the activation of each, without noise."""
        z = torch.as_tensor(np.array(self.offer["z"], dtype=np.float64))
        lit = np.zeros((0, 0))
        for layer in range(2):
            weight, bias = (
                torch.as_tensor(np.array(self.offer[f"{_FGEN}inner.{layer}.{part}"], dtype=np.float64))
                for part in ("weight", "bias")
            )
            z = F.relu(z @ weight.T + bias)
        lit = z.numpy().max(0)
        used = np.flatnonzero(lit > 0)
        return used, lit[used]


def directions(queries: int, words: int, recovered: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Directions in which the furthest node is asked for, ``[queries, words]``.

    Each asks for a node that has one word; words take turns, and chance breaks ties. If a recovered node has
    that word, another of its words gets the weight -1, so that a different node is furthest.

    Args:
        recovered: ``[nodes, words]`` of 0 and 1: the nodes recovered so far.
    """
    asked = np.concatenate([rng.permutation(words) for _ in range(-(-queries // words))])[:queries]
    w = TIES * rng.standard_normal((queries, words)) - rng.uniform(0, LEAN, (queries, 1))
    w[np.arange(queries), asked] += 1
    for node in recovered:
        held = np.flatnonzero(node)
        hit = np.flatnonzero(node[asked])
        if len(held) > 1 and len(hit):
            against = held[rng.integers(0, len(held) - 1, len(hit))]
            against = np.where(against == asked[hit], held[-1], against)
            w[hit, against] = np.minimum(w[hit, against], -1)
    return w.clip(-2, 2)


def far_points(queries: int, features: int, recovered: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Corners of the cube, ``[queries, features]``: the points whose nearest dense nodes are asked for.

    So far out, ``|c - x|^2`` is ``-2 <c, x>`` plus terms that hardly differ between nodes, so the nearest
    node is the furthest one in a random direction. Once nodes are known, four times as many points are drawn,
    and those are asked whose nearest known node is furthest away: an unknown node may be nearer.

    Args:
        recovered: ``[nodes, features]``: the nodes recovered so far.
    """
    points = FAR * rng.choice((-1.0, 1.0), (queries * (4 if len(recovered) else 1), features))
    if not len(recovered):
        return points
    known = (np.square(recovered).sum(1) - 2 * points @ recovered.T).min(1)
    return points[np.argsort(-known)[:queries]]


def craft(
    points: np.ndarray, repeats: int, latent: int, widths: tuple[int, int], seed: int
) -> dict[str, Tensor]:
    """An offer whose rows each light one hidden unit; that unit's outer weights hold one point for each slot.

    The first layer passes ``z`` on as its positive and negative part; unit ``v`` of the second is
    ``H relu((cos(z, code_v) - t) / (1 - t))``, 1 at its own code and 0 at all others. ``z`` is so long that
    noise on it does not matter. Dropout may turn a lit unit off, so each is asked ``repeats`` times; a unit
    that stays on doubles, and ``tanh(2 H W)`` is the point.

    Args:
        points: ``[units, slots, words]`` in (-1, 1).

    References:
        threats.md 4C, C3.
    """
    units, slots, words = points.shape
    dims = min(latent, widths[0] // 2)
    codes, apart = _codes(units, dims, seed)
    room = 1 - apart
    length = 1e3 / room  # noise of size 1 moves a lit unit by a thousandth
    high = 13.0 * units
    first = torch.zeros(widths[0], latent)
    first[:dims, :dims] = torch.eye(dims)
    first[dims : 2 * dims, :dims] = -torch.eye(dims)
    second, bias = torch.zeros(widths[1], widths[0]), torch.zeros(widths[1])
    second[:units, :dims] = codes * (high / room / length)
    second[:units, dims : 2 * dims] = -codes * (high / room / length)
    bias[:units] = -high * apart / room
    outer = torch.zeros(slots * words, widths[1])
    aims = torch.atanh(torch.as_tensor(points, dtype=torch.float64).clamp(-1 + 1e-3, 1 - 1e-3)) / (2 * high)
    outer[:, :units] = aims.reshape(units, -1).T.float()
    z = torch.zeros(units * repeats, latent)
    z[:, :dims] = codes.repeat(repeats, 1) * length
    return {
        f"{_FGEN}inner.0.weight": first,
        f"{_FGEN}inner.0.bias": torch.zeros(widths[0]),
        f"{_FGEN}inner.1.weight": second,
        f"{_FGEN}inner.1.bias": bias,
        f"{_FGEN}outer.weight": outer,
        f"{_FGEN}outer.bias": torch.zeros(slots * words),
        "z": z,
        "counts": torch.full((len(z),), float(slots)),
    }


def _codes(units: int, dims: int, seed: int) -> tuple[Tensor, float]:
    """Unit vectors, and a little more than the largest cosine between two of them."""
    generator = torch.Generator().manual_seed(seed)
    codes = F.normalize(torch.randn(units, dims, generator=generator, dtype=torch.float64), dim=1)
    step = 0.1
    for _ in range(200):  # pushed apart: neighbours repel
        force = torch.exp(20 * (codes @ codes.T - 1))
        force.fill_diagonal_(0)
        codes = F.normalize(codes - step * force @ codes, dim=1)
    cosine = codes @ codes.T
    cosine.fill_diagonal_(-1)
    largest = float(cosine.max()) if units > 1 else 0.0
    return codes.float(), max(0.0, largest + 0.02 * (1 - largest))


def read(gradient: np.ndarray, asked: Asked, owners: int, *, binary: bool = True) -> np.ndarray:
    """Rows of features from the gradient of the outer weights, ``[rows, words]``.

    The column of a unit is a known factor times ``sum_o k_o (c - x_o)``, where ``k_o`` counts the rows of
    owner o that dropout left. Let ``a_o`` be owner o's share of all these rows. A word that only this owner
    has shows the value ``a_o``, a word of several owners the sum of their shares: so owners with different
    shares can be separated.

    Args:
        owners: how many answers the gradient is the sum of.
        binary: features are 0 or 1; otherwise a row is read only where dropout left one row of one owner.
    """
    used, high = asked.units()
    outer = np.asarray(asked.offer[f"{_FGEN}outer.weight"], dtype=np.float64)[:, used]
    point = np.tanh(2 * high * outer)
    pulled = np.asarray(gradient, dtype=np.float64)[:, used] / (4 * asked.scale * high * (1 - point**2))
    words = len(outer) // SLOTS
    point, pulled = (
        v.reshape(SLOTS, words, -1).transpose(2, 0, 1).reshape(-1, words) for v in (point, pulled)
    )
    if not binary:
        return _single_row_features(point, pulled)
    many = np.median(pulled / point, axis=1, keepdims=True)
    lit = np.abs(many[:, 0]) > 1e-6
    share = point[lit] - pulled[lit] / many[lit]  # at each word the sum of shares of the owners that have it
    recovered: list[np.ndarray] = []
    plain = ((np.abs(share) < _NEAR) | (np.abs(share - 1) < _NEAR)).all(1)
    recovered.append((share[plain] > 0.5).astype(np.float32))
    if owners > 1:
        recovered += [_separate_owners(row, owners) for row in share[~plain]]
    rows = np.concatenate([np.zeros((0, words), np.float32), *recovered])
    rows = rows[rows.any(1)]
    return np.unique(rows, axis=0) if len(rows) else rows


def _separate_owners(share: np.ndarray, owners: int) -> np.ndarray:
    """Each owner's row, from the sums of shares at the words; none where that is not unique.

    Where more than ``MOST`` owners answered at once, shares lie too close together to be distinguished from
    sums of shares.
    """
    owners = min(owners, MOST)
    none = np.zeros((0, len(share)), np.float32)
    if share.min() < -_NEAR or share.max() > 1 + _NEAR:
        return none
    levels = _levels(share[share > _NEAR])
    if len(levels) >= 2**owners:
        return none
    candidates = _levels(np.concatenate([levels, 1 - levels[levels < 1 - _NEAR]]))
    for size in range(2, owners + 1):
        for parts in combinations(candidates, size):
            sums = np.array([sum(part) for n in range(size + 1) for part in combinations(parts, n)])
            gaps = np.diff(np.sort(sums))
            fits = np.abs(levels[:, None] - sums).min(1).max() < _NEAR
            if abs(sum(parts) - 1) < _NEAR and fits and gaps.min() > 2 * _NEAR:
                sets = [part for n in range(size + 1) for part in combinations(range(size), n)]
                which = np.abs(share[:, None] - sums).argmin(1)
                has = np.array([[o in s for s in sets] for o in range(size)])
                return has[:, which].astype(np.float32)
    return none


def _levels(values: np.ndarray) -> np.ndarray:
    """Distinct values, those within a tolerance taken as one."""
    ordered = np.sort(values)
    if not len(ordered):
        return ordered
    starts = np.flatnonzero(np.concatenate([[True], np.diff(ordered) > _NEAR / 2]))
    return np.array([part.mean() for part in np.split(ordered, starts[1:])])


def _single_row_features(point: np.ndarray, pulled: np.ndarray) -> np.ndarray:
    """Real features: ``x = c - pulled``, correct where dropout left exactly one row of one owner.

    ``pulled`` is the sum over rows of ``c - x``, and ``c`` is much longer than any ``x`` along it, so its
    length along ``c`` counts the rows.
    """
    rows = (pulled * point).sum(1) / np.square(point).sum(1)
    features: np.ndarray = (point - pulled)[(rows > 0.5) & (rows < 1.5)].astype(np.float32)
    return features
