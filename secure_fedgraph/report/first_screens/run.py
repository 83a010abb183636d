"""The first screen of a run's page: one sentence, and three figures with what they stand beside."""

from __future__ import annotations

from dataclasses import dataclass

from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.experiment.schema import RunResult
from secure_fedgraph.experiment.schema.larger_units import why_larger
from secure_fedgraph.report import text
from secure_fedgraph.report.cautions import SAME, best_alone, no_better_than, written
from secure_fedgraph.report.measures import NAMES, Measure, measure_of

BESIDE = {
    "own_global": "an owner’s own model, on all test data",
    "personal": "personal models, on an owner’s own test data",
    "own": "an owner’s own model, on its own test data",
}
"""Scores that say what joining brought, in the order of the page."""


@dataclass(frozen=True)
class Seen:
    """What the server could read.

    Args:
        uploads: answers of single clients that reached it; None where the file does not tell.
        singly: how many of them it read one by one.
        noised: whether everything that it opened had noise in it, enough for a finite epsilon.
        too_little: whether it had noise in it that is too little for one.
    """

    uploads: int | None
    singly: int
    noised: bool
    too_little: bool = False

    @property
    def state(self) -> str:
        """The page's word for how good that is."""
        return "nothing" if not self.singly or self.noised else "leaks"

    @property
    def figure(self) -> str:
        """As a figure."""
        return f"{text.count(self.singly)} of {text.count(self.uploads or 0)}"

    @property
    def rest(self) -> str:
        """What it saw of the rest, in a sentence."""
        noise = "with noise in them" if self.noised or self.too_little else "without noise"
        noise += ", too little for a finite ε" if self.too_little else ""
        if not self.singly:
            return f"It saw sums over owners, {noise}."
        what = "each upload" if self.singly == self.uploads else "these uploads"
        return f"It read {what} by itself, {noise.replace('them', 'it') if what == 'each upload' else noise}."


def seen_by_server(result: RunResult) -> Seen:
    """What the server could read, from the channels that clients answer to it."""
    told = [one for one in result.channels if one.to in ("", "server") and one.uploads]
    known = [one for one in told if one.uploads is not None]
    charged = [one for one in known if one.epsilon is not None]
    noised = bool(charged) and all(text.bounded(one.epsilon) for one in charged)
    return Seen(
        sum(one.uploads or 0 for one in known) if known else None,
        sum(one.read_singly or 0 for one in known),
        noised,
        not noised and has_too_little_noise(result),
    )


def has_too_little_noise(result: RunResult) -> bool:
    """Whether all that was sent has noise in it, and it is too little to bound anything."""
    unbounded = [claim for claim in result.privacy.values() if not text.bounded(claim.epsilon)]
    return bool(unbounded) and all(claim.has_too_little_noise for claim in unbounded)


def unbounded(result: RunResult, what: str) -> str:
    """Why no epsilon bounds what was sent, as a sentence.

    Args:
        what: what noise would have to cover.
    """
    if has_too_little_noise(result):
        return f"The noise on {what} is too little for a finite ε, so none bounds it."
    return f"No noise was added that covers {what}, so no ε bounds it."


def first_screen(result: RunResult, name: str) -> dict[str, object]:
    """What the template prints.

    Args:
        name: the algorithm's, for people.
    """
    measure, seen = measure_of(result), seen_by_server(result)
    return {
        "sentence": _sentence(result, name, measure, seen),
        "beside": beside(result, measure),
        "seen": seen,
        "bound": bound(result),
        "unbounded": unbounded(result, "all that was sent"),
    }


def _sentence(result: RunResult, name: str, measure: Measure, seen: Seen) -> str:
    score = measure.write(result.accuracy.get(measure.key))
    worse = worse_than(result, measure)
    parts = [f"{name} scores {score} ({measure.title})" + (f", {worse}" if worse else "")]
    if seen.uploads:
        parts.append(f"the server read {seen.figure} single uploads")
    sums = seen.uploads and not seen.singly
    parts.append(
        str(bound(result).short or f"no noise bounds what {'their sums show' if sums else 'they show'}")
    )
    return text.sentence("; ".join(parts))


def worse_than(result: RunResult, measure: Measure) -> str:
    """What a model is no better than, as the end of a sentence: the commonest class, or an owner's own model.

    Empty where it is better than both, or where that cannot be told.
    """
    if said := no_better_than(result):
        return said
    score = result.accuracy.get(measure.key)
    alone = result.accuracy.get("own_global")
    if measure.key == "global" and alone is not None and score is not None and score < alone - SAME:
        return f"less than an owner’s own model ({text.percent(alone)})"
    return ""


def beside(result: RunResult, measure: Measure) -> list[tuple[str, str]]:
    """The scores that a headline is to be compared with."""
    accuracy = "" if measure.key == "global" else " (accuracy)"
    rows = [
        (text.percent(value), title + accuracy)
        for key, title in BESIDE.items()
        if (value := result.accuracy.get(key)) is not None and key in NAMES
    ]
    if result.commonest_class is not None:
        rows.append((text.percent(result.commonest_class), f"always the commonest class{accuracy}"))
    if (alone := best_alone(result)) is not None:
        rows.append((written(result.headline, alone), "owners alone, each by the best of its own models"))
    return rows


@dataclass(frozen=True)
class Bounded:
    """The epsilon that a page is about.

    Args:
        epsilon: None where nothing is bounded.
        unit: whose, in words.
        against: whom, in words.
        short: both in a few words.
        larger: why other units' epsilons are larger, a sentence each.
    """

    epsilon: float | None = None
    unit: str = ""
    delta: float = 0.0
    against: str = ""
    short: str = ""
    larger: tuple[str, ...] = ()


def bound(result: RunResult) -> Bounded:
    """The epsilon of the budget's unit, or of the best one; or none."""
    unit = str(result.budget.unit) if result.budget else ""
    claims = {str(name): claim for name, claim in result.privacy.items()}
    bounded = [name for name, claim in claims.items() if text.bounded(claim.epsilon)]
    # a link's zero says that no link was read, and is not what noise was added for
    first = unit if unit in bounded else next((name for name in bounded if claims[name].epsilon), "")
    if not first:
        return Bounded()
    claim = claims[first]
    subject = text.named(text.UNITS, first)
    return Bounded(
        text.real(claim.epsilon),
        subject,
        claim.delta,
        text.named(text.READERS, claim.against),
        f"ε = {text.epsilon(claim.epsilon)} for {subject}",
        tuple(larger_units(result)),
    )


def larger_units(result: RunResult) -> list[str]:
    """Why other units' epsilons are larger than that of the unit that the noise is for."""
    epsilons = {str(unit): claim.epsilon for unit, claim in result.privacy.items()}
    holders = max((claim.holders for claim in result.privacy.values()), default=1)
    return why_larger(epsilons, str(result.config.get("unit", Unit.CLIENT)), holders)
