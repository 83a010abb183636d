"""Noise of an upload, coordinate by coordinate: as wide as claimed everywhere, and unlike any other noise.

A protection seals uploads whose value is known, with the names and the shapes that the run sent, in round
after round. What comes out less what went in is the noise of every coordinate in every round.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.stats import chi2

from secure_fedgraph.audits.empirical_dp.mechanisms import Transparent, nobody
from secure_fedgraph.audits.empirical_dp.worst_cases import in_tensors
from secure_fedgraph.audits.record import LEVEL, Finding, noise_of
from secure_fedgraph.core.channel import Domain
from secure_fedgraph.core.crypto import Identity
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.contracts import Party, Scope
from secure_fedgraph.core.protection.gaussian import Clip
from secure_fedgraph.core.upload import AnyUpload, ContributionRows, ContributionSample, Layout, Upload
from secure_fedgraph.protocol.transcript import SERVER

VALUES = 1_000_000
"""About how many values are noised for one channel."""
FEWEST, MOST = 12, 400
"""Rounds."""
UNITS = 1_000
"""The fewest units of a sum, as far as that is cheap."""
BEYOND = 10.0
"""How far uploads lie beyond the clip."""
CLIENTS = 2
"""How many clients' noise is compared."""


@dataclass(frozen=True)
class Noise:
    """Noise of one party on one channel, divided by its standard deviation.

    Args:
        channel, party: whose it is; the server's where it adds the noise.
        values: ``[rounds, coordinates]``.
        names: of the coordinates, ``(name, first, last)``.
    """

    channel: str
    party: str
    values: np.ndarray
    names: tuple[tuple[str, int, int], ...]

    def name_of(self, coordinate: int) -> str:
        """Where a coordinate is."""
        name, first, _ = next(row for row in self.names if row[1] <= coordinate < row[2])
        return f"{name}[{coordinate - first}]"


def known_upload(
    bound: Bound, example: AnyUpload, long: bool = False, units: int = 0
) -> tuple[Any, np.ndarray]:
    """An upload in an example's shape whose clipped value is known, and that value ``[coordinates]``.

    Of moments none is known. Whole uploads are half as long as the clip, or ten times as long. In sums every
    other unit is within it and the others are beyond it.

    Args:
        bound: with noise.
        example: an upload in the shape that a client sends.
        long: beyond the clip.
        units: in a sum; as many as the example has where that is more.
    """
    stage = noise_of(bound)
    assert stage is not None
    made: Any
    if isinstance(example, ContributionSample):
        row = torch.ones(len(example.units), 1, dtype=torch.bool)
        rows, known = _known_sum(bound, ContributionRows(example.values, row), units, stage.step)
        made = ContributionSample(rows.values, torch.arange(len(rows.places)))
    elif isinstance(example, ContributionRows):
        made, known = _known_sum(bound, example, units, stage.step)
    elif isinstance(example, Upload):
        made, known = _known_row(bound, example, long)
    else:
        raise TypeError(f"no known value of a {type(example).__name__}")
    return made, np.clip(known, -stage.limit, stage.limit).reshape(-1)


def _known_row(bound: Bound, example: Upload, long: bool) -> tuple[Upload, np.ndarray]:
    generator = torch.Generator().manual_seed(int(long))
    values = {name: torch.randn(value.shape, generator=generator) for name, value in example.values.items()}
    clip = next((stage for stage in bound.stages if isinstance(stage, Clip)), None)
    norm = clip.norm if clip is not None else 1.0
    length = math.sqrt(sum(float(value.square().sum()) for value in values.values()))
    size = norm * (BEYOND if long and clip is not None else 0.5) / max(length, 1e-30)
    made = Upload({name: value * size for name, value in values.items()})
    matrix = made.packed(bound.channel.unit)[1].astype(np.float64)
    rows = matrix.reshape(1, -1) if clip is None or clip.whole else matrix
    return made, rows * np.minimum(1.0, norm / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30))


def _known_sum(
    bound: Bound, example: ContributionRows, units: int, step: float
) -> tuple[ContributionRows, np.ndarray]:
    """Units in one row of the sum each: half a step above whole ones, or beyond the clip along one axis."""
    contribution = bound.channel.unit_contribution
    shapes = {k: v.shape[1:] for k, v in example.values.items()}
    assert contribution is not None
    width, rows = sum(math.prod(shape) for shape in shapes.values()), example.places.shape[1]
    many = max(units, len(example.places), 2)
    rng = np.random.default_rng(0)
    whole = rng.integers(0, max(int(contribution.norm / step / 2 / math.sqrt(width)), 1), (many, width))
    parts = (whole + 0.5) * step
    far = np.arange(many) % 2 == 1
    at = rng.integers(0, width, many)
    parts[far] = 0
    parts[far, at[far]] = BEYOND * contribution.norm
    whole[far] = 0
    known = np.zeros((rows, width))
    places = torch.zeros(many, rows, dtype=torch.bool)
    row = np.arange(many) // 2 % rows
    places[torch.arange(many), torch.from_numpy(row)] = True
    np.add.at(known, row, whole * step)
    np.add.at(known, (row[far], at[far]), contribution.norm)
    return ContributionRows(in_tensors(torch.from_numpy(parts.astype(np.float32)), shapes), places), known


def noises(bound: Bound, examples: Mapping[str, AnyUpload], rounds: int, units: int = 0) -> Iterator[Noise]:
    """What a protection adds to known uploads, round by round: two within the clip, two beyond it, and so on.

    Args:
        bound: with noise.
        examples: client -> an upload in the shape that it sends.
        rounds: how many.
        units: in a sum.
    """
    stage = noise_of(bound)
    assert stage is not None
    real = bound.carrier.gives is Domain.REAL
    transparent = bound if real else replace(bound, carrier=Transparent(bound.carrier))
    both = [
        {name: known_upload(bound, example, long, units) for name, example in examples.items()}
        for long in (False, True)
    ]
    parties = {name: Party(name, Identity.generate(), {}) for name in examples}
    by_party: dict[str, list[np.ndarray]] = {}
    layout = Layout(())
    for number in range(1, rounds + 1):
        known = both[(number - 1) // 2 % 2]
        scope = Scope("probe", number, number, bound.channel.name, tuple(known))
        replies = {
            name: transparent.seal(upload, scope, parties[name]) for name, (upload, _) in known.items()
        }
        layout = Layout.from_text(next(iter(replies.values()))["layout"])
        if stage.by == "server":
            opened = transparent.open_sum(replies, scope, nobody).total
            total = sum(value for _, value in known.values())
            flat = _flat(opened, layout, bound.channel.unit)
            by_party.setdefault(SERVER, []).append((flat - total) / (stage.step * stage.sigma))
            continue
        for name, tree in replies.items():
            sent = np.asarray(transparent.carrier.open_each(tree["data"], layout, name), dtype=np.float64)
            value = known[name][1]
            # stages may append more than the values
            sent = sent.reshape(-1)[: value.size] * (
                stage.step if transparent.carrier.gives is Domain.RING else 1.0
            )
            by_party.setdefault(name, []).append((sent - value) / (stage.step * stage.sigma))
    for party, rows in by_party.items():
        yield Noise(bound.channel.name, party, np.array(rows), spans(_by_row(layout)))


def _flat(values: Mapping[str, torch.Tensor], layout: Layout, unit: Unit) -> np.ndarray:
    rows = 1 if unit is Unit.CLIENT else layout.rows
    parts = [value.to(torch.float64).numpy().reshape(rows, -1) for value in values.values()]
    return np.concatenate(parts, axis=1).reshape(-1)


def spans(fields: Iterable[tuple[str, tuple[int, ...]]]) -> tuple[tuple[str, int, int], ...]:
    """Tensors one after another: each name, and where its values begin and end."""
    found, start = [], 0
    for name, shape in fields:
        found.append((name, start, start + math.prod(shape)))
        start += math.prod(shape)
    return tuple(found)


def _by_row(layout: Layout) -> Iterator[tuple[str, tuple[int, ...]]]:
    for row in range(layout.rows):
        for name, shape in layout.fields:
            yield name if layout.rows == 1 else f"{name}, row {row}", shape


def rounds_for(width: int) -> int:
    """As many rounds as there is time for at that width."""
    return min(max(VALUES // max(width, 1), FEWEST), MOST)


def widths(noise: Noise, level: float = LEVEL) -> list[Finding]:
    """That every coordinate, every tensor and every round is as noisy as claimed; more noise breaks nothing.

    Args:
        level: the probability that chance accuses right noise, over all these tests.
    """
    squares = np.square(noise.values)
    rounds, width = squares.shape
    tensors = [(name, squares[:, first:last]) for name, first, last in noise.names if last > first]
    sums_of, sizes_of = (np.array([f(part) for _, part in tensors]) for f in (np.sum, np.size))
    kinds: tuple[tuple[str, np.ndarray, Any, Callable[[int], str]], ...] = (
        ("coordinates", squares.sum(0), rounds, noise.name_of),
        ("tensors", sums_of, sizes_of, lambda i: tensors[i][0]),
        ("rounds", squares.sum(1), width, lambda i: f"round {i + 1}"),
        ("values", squares.sum().reshape(1), squares.size, lambda i: "all together"),
    )
    alpha, found = level / max(width + len(tensors) + rounds + 1, 1), []
    for kind, sums, of, label in kinds:
        if len(short := np.flatnonzero(sums < chi2.ppf(alpha, of))):
            share = math.sqrt(float((sums / of)[short].mean()))
            what = f"{len(short)} {kind} of {noise.party} have {share:.3g} of the noise that is claimed: "
            what += ", ".join(label(int(i)) for i in short[:3])
            found.append(Finding("width", noise.channel, what))
    return found


def beyond(noise: Noise, level: float = LEVEL) -> list[Finding]:
    """That nothing but noise is left of an upload when its clipped value is taken away.

    Args:
        level: the probability that chance accuses right noise, over all these tests.
    """
    squares = np.square(noise.values)
    rounds, width = squares.shape
    alpha = level / max(width + rounds + 1, 1)
    totals = (squares.sum(0), rounds), (squares.sum(1), width), (squares.sum(), squares.size)
    if not any(np.any(total > chi2.isf(alpha, of)) for total, of in totals):
        return []
    share = math.sqrt(float(squares.mean()))
    what = f"{noise.party} sends more than its clipped upload and noise: {share:.3g} of it is left"
    return [Finding("clip", noise.channel, what)]


def likenesses(all_noise: Sequence[Noise], level: float = LEVEL) -> list[Finding]:
    """That no noise resembles another: of other rounds, other clients, other channels, other coordinates.

    Sums of products of independent normal numbers stay within the bound of Laurent and Massart (2000),
    lemma 1, whatever their number.

    Args:
        all_noise: the noise of all channels and parties.
        level: the probability that chance accuses right noise, over all these tests.
    """
    tests = list(_products(all_noise))
    each = math.log(2 * max(len(tests), 1) / level)
    complaints: dict[str, tuple[float, Finding]] = {}
    for kind, where, what, total, count in tests:
        beyond = abs(total) - (math.sqrt(2 * count * each) + 2 * each)
        if beyond > 0 and beyond > complaints.get(kind + where, (0.0, None))[0]:
            text = f"{what} correlates by {total / count:+.2f}"
            complaints[kind + where] = beyond, Finding("correlation", where, text)
    return [finding for _, finding in complaints.values()]


LAGS = (1, 2, 3, 4)
"""Each coordinate is compared with the one so many later."""
ROUNDS = 40
"""So many rounds are compared with each other, each with each."""
Product = tuple[str, str, str, float, int]
"""Kind, channel, what, the sum of products and how many."""


def _products(all_noise: Sequence[Noise]) -> Iterator[Product]:
    for one, other in itertools.combinations_with_replacement(all_noise, 2):
        yield from _rounds(one, other)
    for noise in all_noise:
        values, width = noise.values, noise.values.shape[1]
        who = f"the noise of {noise.party} on channel {noise.channel!r}"
        half = width // 2
        for lag in {k for k in (*LAGS, half) if 0 < k < width}:
            a, b = values[:, :-lag], values[:, lag:]
            yield (
                "coordinates",
                noise.channel,
                f"{who} at coordinates {lag} apart",
                float((a * b).sum()),
                a.size,
            )
        if half:
            a, b = values[:, :half], values[:, ::-1][:, :half]
            yield "coordinates", noise.channel, f"{who} at mirrored coordinates", float((a * b).sum()), a.size


def _rounds(one: Noise, other: Noise) -> Iterator[Product]:
    """Any round of one with any round of the other, over the coordinates that both have, and lag by lag."""
    width = min(one.values.shape[1], other.values.shape[1])
    gram = one.values[:ROUNDS, :width] @ other.values[:ROUNDS, :width].T
    where = " and ".join(dict.fromkeys((one.channel, other.channel)))
    who = f"the noise of {one.party} on {one.channel!r} and of {other.party} on {other.channel!r}"
    for lag in range(1 - len(gram), gram.shape[1]):
        products = np.diagonal(gram, lag)
        if one is not other or lag > 0:
            yield (
                "rounds",
                where,
                f"{who} in rounds {lag} apart",
                float(products.sum()),
                products.size * width,
            )
            for i, product in enumerate(products, 1 + max(0, -lag)):
                yield "rounds", where, f"{who} in rounds {i} and {i + lag}", float(product), width
