"""What a release costs: the events that an accountant composes, and their form on disk."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Relation

LEAST_SIGMA = 2.0
"""Below this a share of discrete noise is far from Gaussian: tau is 118 at 0.7."""
ROUNDED = 2.0
"""Steps: the deviation of a discrete Gaussian that rounds continuous noise to whole steps."""
_LOW, _HIGH = 1e-9, 1e12
"""Noise multipliers that are accounted: less counts as none, and for more the cost is lost in doubles."""
NUMBERS = {
    "noise_multiplier": (0, _HIGH, "["),
    "rate": (0, 1, "("),
    "sigma": (LEAST_SIGMA, _HIGH, "["),
    "total_variation": (0, 1, "["),
    "epsilon": (0, 1e6, "("),
}
"""A field of an event -> the lowest and the highest number in it, and whether the lowest is one: ``[``."""
MOST = {"steps": 10**9, "shares": 10**9, "width": 10**9, "occurrences": 10**6}
"""A field that counts -> the most that is accounted, of one at least."""
KEY = "key"
"""In a field's metadata: its key on disk, where ledgers use another word."""


class Event:
    """One kind of release, with its noise.

    Guarantees:
        - equal events are equal and hash alike, so they can be counted;
        - :func:`event` reads back what :meth:`to_json` wrote, and nothing else.
    """

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """This event as JSON types."""
        return {"kind": self.kind, **{key: getattr(self, name) for key, (name, _) in self._keys().items()}}

    @classmethod
    def _keys(cls) -> dict[str, tuple[str, str]]:
        """Key on disk -> the field's name and the name of its type."""
        every = fields(cls)  # type: ignore[arg-type]
        return {f.metadata.get(KEY, f.name): (f.name, str(f.type)) for f in every}

    def with_noise_scaled(self, scale: float) -> Self:
        """The same release with its noise so many times as large; itself where it has no noise of its own."""
        return self

    @classmethod
    def _read(cls, body: Mapping[str, Any]) -> Self:
        """Every field must be present and of its own type: a bool or a string is no number here."""
        keys = cls._keys()
        if set(body) != set(keys):
            raise BadInput(f"an event {cls.kind!r} has exactly the keys {', '.join(keys)}")
        for key, (_, kind) in keys.items():
            types = {"float": (int, float), "int": (int,), "str": (str,), "bool": (bool,)}[kind]
            if type(body[key]) not in types:
                raise BadInput(f"{key} of an event {cls.kind!r} is no {kind}")
        return cls(**{name: body[key] for key, (name, _) in keys.items()})

    def __post_init__(self) -> None:
        """Every number is finite and in its range."""
        for name, kind in self._keys().values():
            value, where = getattr(self, name), f"{name} {getattr(self, name)!r} of an event {self.kind!r}"
            if kind == "float":
                low, high, bracket = NUMBERS[name]
                within = type(value) in (int, float) and (low < value or (bracket == "[" and low == value))
                if not within or value > high:
                    raise BadInput(f"{where} must lie in {bracket}{low}, {high}]")
                object.__setattr__(self, name, float(value))
            elif kind == "int" and (type(value) is not int or not 1 <= value <= MOST[name]):
                raise BadInput(f"{where} must be a whole number from 1 to {MOST[name]}")


def sums_apart(count: int, sigma: float) -> float:
    """How far a sum of discrete Gaussians is from one of the same variance, at one coordinate.

    Args:
        count: how many, of any widths.
        sigma: of the narrowest.

    Returns:
        ``t``: the two probabilities of any number differ by a factor of at most ``exp(t)``.
        ``docs/guarantees.md`` has the proof.
    """
    return 5 * (count - 1) * math.exp(-((math.pi * sigma) ** 2))


class GaussianEvent(Event):
    """A release under Gaussian noise, continuous or discrete."""

    noise_multiplier: float

    def with_noise_scaled(self, scale: float) -> Self:
        """The same release with its noise so many times as large."""
        return replace(self, noise_multiplier=min(self.noise_multiplier * scale, _HIGH))  # type: ignore[type-var]


@dataclass(frozen=True)
class GaussianRelease(GaussianEvent):
    """Continuous Gaussian noise on a bounded value.

    Args:
        noise_multiplier: standard deviation over sensitivity; 0 means that there is no noise.
    """

    noise_multiplier: float = field(metadata={KEY: "multiplier"})
    kind: ClassVar[str] = "gaussian"


@dataclass(frozen=True)
class DiscreteRelease(GaussianEvent):
    """The sum of some discrete Gaussians on a bounded vector of whole numbers.

    Args:
        noise_multiplier: ``sqrt(shares) * sigma / sensitivity``, sensitivity and sigma in whole steps; 0
            means that there is no noise.
        shares: how many independent discrete Gaussians, unknown to the reader, the sum holds for certain.
        sigma: of each share, in whole steps.
        width: coordinates.
        total_variation: between the sampled noise and the ideal one, for the whole vector and all shares.
    """

    noise_multiplier: float = field(metadata={KEY: "multiplier"})
    shares: int = 1
    sigma: float = field(kw_only=True)
    width: int = field(kw_only=True)
    total_variation: float = field(kw_only=True, default=0.0)
    kind: ClassVar[str] = "discrete"

    def continuous(self) -> tuple[GaussianRelease, float] | None:
        """Continuous noise that is a little smaller, and of which this release is a rounding, nearly.

        A Gaussian of variance ``shares * sigma**2 - ROUNDED**2`` per coordinate, each rounded by a discrete
        Gaussian of deviation ``ROUNDED`` around it: what comes out differs from the sum of the shares by a
        factor of at most ``exp(t)``, ``t = width * (5 exp(-2 pi**2 ROUNDED**2) + 5 (shares - 1)
        exp(-pi**2 sigma**2))``. ``docs/guarantees.md`` has the proof.

        Returns:
            It, and the total variation distance with the sampler's; None where the noise is too small.
        """
        variance = self.shares * self.sigma**2
        each = 5 * math.exp(-2 * (math.pi * ROUNDED) ** 2)
        sums = sums_apart(self.shares, self.sigma)
        apart = math.expm1(min(self.width * (each + sums), 1.0)) + self.total_variation
        if variance < 2 * ROUNDED**2 or apart > 1:
            return None
        return GaussianRelease(self.noise_multiplier * math.sqrt(1 - ROUNDED**2 / variance)), apart


@dataclass(frozen=True)
class SampledGaussian(GaussianEvent):
    """Steps of DP-SGD under Poisson sampling, where one unit is one record: one gradient.

    Args:
        noise_multiplier: standard deviation of the noise on the sum over the clip of one gradient.
        rate: each record's probability of being in a step, by secret independent coins.
        steps: how many.
        relation: neighbouring relation; ``zero-out`` costs what ``add-remove`` costs.
    """

    noise_multiplier: float = field(metadata={KEY: "multiplier"})
    rate: float
    steps: int
    relation: str
    kind: ClassVar[str] = "sampled gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.relation not in tuple(Relation):
            raise BadInput(f"relation {self.relation!r}: use {', '.join(Relation)}")


@dataclass(frozen=True)
class OccurringGaussian(GaussianEvent):
    """Steps of DP-SGD under Poisson sampling, where one unit changes several records' gradients.

    Each of the touched gradients stays within the clip and may change to any other: the unit's features and
    edges are in those records.

    Args:
        noise_multiplier: standard deviation of the noise on the sum over the clip of one gradient.
        rate: each record's probability of being in a step.
        steps: how many.
        occurrences: records that one unit touches at most.
    """

    noise_multiplier: float = field(metadata={KEY: "noise"})
    rate: float
    steps: int
    occurrences: int
    kind: ClassVar[str] = "occurring gaussian"


@dataclass(frozen=True)
class VanishingGaussian(GaussianEvent):
    """As :class:`OccurringGaussian`, where the touched gradients become zero under the neighbouring relation.

    Ordinary training of a graph neural network is not that: a neighbour's gradient changes, it does not
    vanish.

    Args:
        vanishing: must be True; set it where the design makes them vanish.
    """

    noise_multiplier: float = field(metadata={KEY: "noise"})
    rate: float
    steps: int
    occurrences: int
    vanishing: bool = False
    kind: ClassVar[str] = "vanishing gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vanishing is not True:
            raise BadInput(
                "the mixture-of-Gaussians event holds only where the touched gradients vanish; in ordinary "
                "GNN training they change: use OccurringGaussian, or set vanishing=True if the design does it"
            )


@dataclass(frozen=True)
class PureRelease(Event):
    """A release with pure epsilon: randomised response.

    Args:
        epsilon: of this release.
    """

    epsilon: float
    kind: ClassVar[str] = "pure"

    def with_noise_scaled(self, scale: float) -> Self:
        """The same release with an epsilon so many times smaller."""
        return replace(self, epsilon=self.epsilon / scale)


class OneHolderRelease(PureRelease):
    """The same of a unit that several clients hold and one of them alone releases, by a public rule."""

    kind: ClassVar[str] = "pure, one holder"


@dataclass(frozen=True)
class SamplingError(Event):
    """How far the sampled noise of a release may be from the ideal noise of another event.

    Args:
        total_variation: for the whole upload.
    """

    total_variation: float
    kind: ClassVar[str] = "drawn"


KINDS: dict[str, type[Event]] = {
    cls.kind: cls
    for cls in (
        GaussianRelease,
        DiscreteRelease,
        SampledGaussian,
        OccurringGaussian,
        VanishingGaussian,
        PureRelease,
        OneHolderRelease,
        SamplingError,
    )
}


def event(json: Any) -> Event:
    """The event that :meth:`Event.to_json` wrote.

    Raises:
        BadInput: (a ValueError) for anything else.

    >>> event(GaussianRelease(1.5).to_json())
    GaussianRelease(noise_multiplier=1.5)
    """
    if type(json) is not dict or type(json.get("kind")) is not str or json["kind"] not in KINDS:
        raise BadInput(f"an event is a JSON object whose kind is one of {', '.join(KINDS)}")
    body = {key: value for key, value in json.items() if key != "kind"}
    return KINDS[json["kind"]]._read(body)


def unnoised(one: Event) -> bool:
    """Whether a release has no noise at all."""
    return isinstance(one, GaussianEvent) and one.noise_multiplier == 0


def without_noise(one: Event) -> bool:
    """Whether nothing protects this release: no noise, or too little for doubles to count what it costs."""
    return isinstance(one, GaussianEvent) and one.noise_multiplier < _LOW
