"""C3 on FedSage+: a malicious owner whose generator turns the nearest-neighbour loss into an oracle."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.attacks.active import disguised
from secure_fedgraph.attacks.attack import ALL, CLIENT, Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.neighgen import SLOTS, Question
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import Seen
from secure_fedgraph.seams import ClientContext, Total

# C3's arithmetic: make a generator that asks for the nodes nearest to chosen points, and read the answer.

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
    return np.asarray((point - pulled)[(rows > 0.5) & (rows < 1.5)].astype(np.float32))


COVERED = "nodes found by an oracle"
QUERIES = 2048
"""The most queries in one message: five for each hidden unit, and for each row that others answer."""
ALL_QUERIES = 2048
"""The exchange batch that lets one message hold all queries, each asked four times."""
REPEATS = 4
"""Rows for each query, where the batch has room: at each owner dropout turns off another half of them."""
_RECOVERED, _ASKED = "oracle_found", "oracle_asked"
_WEIGHT = "outer.weight"


def _messages(number: int, rows: int | None = None, width: int | None = None) -> Control:
    settings: dict[str, Any] = {
        "rounds": 1,
        "training.generator_epochs": 2,
        "training.federated_epochs": number,
    }
    if width is not None:  # as many units as the rows light: more would only lengthen the messages
        settings["training.generator_hidden"] = [256, width]
    name = f"{number} crafted message{'s' * (number > 1)}"
    if rows is None:
        return Control(name, settings)
    return Control(f"{name} of {rows} rows", {**settings, "training.exchange_batch": rows})


class GeneratorOracle(Attack):
    """C3: the first owner offers a crafted generator, and every answer then lists nodes of the other owners.

    Each of its embeddings lights one hidden unit, whose outer weights hold five points ``c``. The gradient of
    those weights shows, for each point, the answering owner's nearest node. With ``c = 1/2 + 0.2 w`` the
    distance to a node of 0 and 1 is a constant less ``0.4 <w, x>``, so the owner is asked for the node
    furthest in the direction ``w``, and every node is furthest in some direction. Later messages give words
    of recovered nodes a negative weight, so that other nodes answer. For dense features the points are
    corners of the cube instead.

    The other owners, and the server, are honest: they follow the protocol, with all its checks of an offer.
    They answer for ``exchange_batch`` rows at most, so a smaller batch takes more messages.

    :meth:`run` reads answers of single owners, :meth:`residual` the sum. Every owner draws its own dropout,
    so in most queries of a sum the owners' rows can still be separated.
    """

    id = "c3-neighgen-oracle"
    subject = "nodes named by a crafted generator"
    family = "neighgen"
    summary = "the others' nodes, by a crafted generator"
    adversaries = (CLIENT,)
    behaviour = "malicious"
    channel = "feedback"
    also_reads = ("generator",)
    controls = (_messages(1), _messages(20, width=64), _messages(1, ALL_QUERIES, 512))
    depends_on = ("training.federated_epochs", "training.exchange_batch")
    stops = "noise in the answers (local_dp), which ends training too; seals, masks, clips do not"

    @classmethod
    def plays(cls, kind: type[Algorithm]) -> type[Algorithm]:
        """The algorithm with the first owner malicious: the same channels, the other owners unchanged."""
        return playing(kind)

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """Rows of each owner that answered."""
        delivered = view.delivered(self.channel) if self.channel in view.public["channels"] else []
        answers = {(seen.exchange, seen.clients): seen for seen in delivered}
        if not answers:
            raise Blind(f"{self.id}: {view.why_unreadable(self.channel)}")
        by_owner: dict[str, list[Seen]] = {}
        for seen in answers.values():
            by_owner.setdefault(seen.clients[0], []).append(seen)
        values = {owner: self._rows(view, seen) for owner, seen in sorted(by_owner.items())}
        return Guess.of_owners(COVERED, values, len(answers))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """Rows of all that answered, from their sums."""
        sums = self.opened_sums(view)
        return Guess(COVERED, {ALL: self._rows(view, sums)}, {ALL: sums[0].clients}, len(sums))

    def _rows(self, view: View, answers: list[Seen]) -> np.ndarray:
        rows = []
        for seen in answers:
            offer = view.offer(self.channel, seen.exchange)
            if offer is None or not crafted(offer.values):
                raise Blind(
                    f"{self.id}: the owner offered an honest generator: the attack has to play the run"
                )
            asked = Asked(offer.values, 1 / (len(offer.values["z"]) * SLOTS))
            gradient = seen.values[_WEIGHT]
            rows.append(rows_of(gradient, asked, len(seen.clients)))
        return np.unique(np.concatenate(rows), axis=0)


def rows_of(gradient: np.ndarray, asked: Asked, owners: int) -> np.ndarray:
    """Rows of features from one answer: binary rows where the answer fits them, otherwise real ones."""
    width = asked.offer[f"fgen.{_WEIGHT}"].shape
    gradient = np.asarray(gradient).reshape(width)  # clipped answers come as one row
    rows = read(gradient, asked, owners)
    queries = len(asked.units()[0]) * SLOTS
    return rows if len(rows) >= 0.02 * queries else read(gradient, asked, owners, binary=False)


def crafted(offer: Mapping[str, np.ndarray]) -> bool:
    """Whether an offer was crafted: then its first layer passes embeddings on unchanged."""
    first = np.asarray(offer["fgen.inner.0.weight"])
    return bool((np.abs(first - first.round()) < 1e-3).all() and np.any(np.abs(first) > 0.5))


def playing(kind: type[Algorithm]) -> type[Algorithm]:
    """``kind``, whose first owner crafts its offers and uses the answers to craft the next ones.

    An algorithm without these channels is returned unchanged.
    """
    channels = {channel.name: channel for channel in kind.channels}
    if not {"generator", "feedback"} <= channels.keys():
        return kind

    class Played(kind):  # type: ignore[misc,valid-type]
        spares = ("generator",)  # it adds no noise to its own offers

        @channels["generator"].answer
        def offer(self, client: ClientContext, given: State) -> Upload:
            honest: Upload = super().offer(client, given)
            if client.name != min(client.clients) or len(self.settings.generator_hidden) != 2:
                return honest
            return self.made_up(client, honest)

        def made_up(self, client: ClientContext, honest: Upload) -> Upload:
            """A crafted offer with the shape of the honest one and as many rows as owners answer at once."""
            s, words = self.settings, int(client.graph.x.shape[1])
            binary = bool(((client.graph.x == 0) | (client.graph.x == 1)).all())
            units = min(QUERIES // SLOTS, s.generator_hidden[1], s.exchange_batch)
            repeats = max(1, min(REPEATS, s.exchange_batch // units)) if binary else 1
            known = client.memory.get(_RECOVERED, torch.zeros(0, words)).numpy()
            rng = np.random.default_rng(client.generator("oracle").initial_seed())
            if binary:
                points = 0.5 + SPREAD * directions(units * SLOTS, words, known, rng)
            else:
                points = far_points(units * SLOTS, words, known, rng)
            made = craft(
                points.reshape(units, SLOTS, words),
                repeats,
                s.encoder[1],
                s.generator_hidden,
                seed=client.round,
            )
            client.memory[_ASKED] = {name: value.clone() for name, value in made.items()}
            return Upload({name: made[name] for name in honest.values})

        @channels["feedback"].read
        def learn(self, client: ClientContext, answered: Total) -> None:
            if _ASKED not in client.memory:
                super().learn(client, answered)
                return
            offer = {name: value.numpy() for name, value in client.memory.pop(_ASKED).items()}
            if _WEIGHT in answered.total:
                asked = Asked(offer, 1 / (len(offer["z"]) * SLOTS))
                gradient = answered.total[_WEIGHT].float().numpy()
                rows = torch.as_tensor(rows_of(gradient, asked, len(client.clients) - 1))
                before = client.memory.get(_RECOVERED, rows[:0])
                client.memory[_RECOVERED] = torch.unique(torch.cat([before, rows]), dim=0)

    return disguised(Played, kind)
