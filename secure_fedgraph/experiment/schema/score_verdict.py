"""The verdict on a score: what a guess is worth beside the best trivial one, and whom it is about.

Judges, cells, ``audit.json`` and pages ask this module, so that they cannot disagree.
"""

from __future__ import annotations

from enum import StrEnum

SINGLE_OWNERS = "each owner"
"""The aim of a guess about one owner at a time."""
RESIDUAL = "what the defence leaves"
"""The aim of a guess from what can be read although the channel is protected."""
HARM = "what it does to the others"
"""The aim of a lie, which reads nobody's data."""
ROUNDING = 1e-9
"""A score or a trivial guess that is this close to 1 is exact."""


class ScoreVerdict(StrEnum):
    """What a score says, in words; ``audit.json`` holds them."""

    NOTHING_TO_LEARN = "nothing to learn: a trivial guess is exact"
    EXACT = "exact"
    EXACT_OF_TOO_FEW = "exact, of too few to tell from a trivial guess"
    LEAK = "leak"
    NO_BETTER = "no better than a trivial guess"
    HARM = "harm"
    HARMLESS = "no harm beyond chance"


def beats_trivial(low: float, baseline: float) -> bool:
    """Whether a guess leaks: all of its interval is above the best trivial guess.

    >>> beats_trivial(low=0.7, baseline=0.5), beats_trivial(low=0.4, baseline=0.5)
    (True, False)
    """
    return low > baseline and baseline < 1 - ROUNDING


def verdict_on(score: float, baseline: float, leaks: bool, aim: str = SINGLE_OWNERS) -> ScoreVerdict:
    """The verdict on a score.

    Args:
        baseline: the best trivial guess; of a lie, what happens without it.
        leaks: what :func:`beats_trivial` says.

    >>> str(verdict_on(1.0, baseline=0.5, leaks=True))
    'exact'
    """
    if aim == HARM:
        return ScoreVerdict.HARM if leaks else ScoreVerdict.HARMLESS
    if baseline >= 1 - ROUNDING:
        return ScoreVerdict.NOTHING_TO_LEARN
    if score >= 1 - ROUNDING:
        return ScoreVerdict.EXACT if leaks else ScoreVerdict.EXACT_OF_TOO_FEW
    return ScoreVerdict.LEAK if leaks else ScoreVerdict.NO_BETTER


def exact_of_too_few(score: float | None, leaks: bool, baseline: float | None) -> bool:
    """Whether a guess is entirely right, but of so few terms that the interval includes luck.

    >>> exact_of_too_few(1.0, leaks=False, baseline=0.6)
    True
    """
    return score is not None and verdict_on(score, baseline or 0.0, leaks) is ScoreVerdict.EXACT_OF_TOO_FEW


def is_lower_bound(score: float | None, searches_stopped: float | None) -> bool:
    """Whether more time could have found more: a search was stopped, and something was left to find.

    >>> is_lower_bound(0.9, searches_stopped=2), is_lower_bound(1.0, searches_stopped=2)
    (True, False)
    """
    return bool(searches_stopped) and score != 1


def with_notes(verdict: str, stopped: str = "", about: str = "") -> str:
    """A cell's verdict: with the search that was stopped, and with whom the guess is about.

    Args:
        about: begins with "about"; empty where the aim says it.

    >>> with_notes("leak", "search stopped after 5 s: a lower bound", "about single owners")
    'leak; search stopped after 5 s: a lower bound, about single owners'
    """
    noted = f"{verdict}; {stopped}" if stopped else str(verdict)
    return f"{noted}, {about}" if about else noted


def without_owners(verdict: str) -> str:
    """A cell's verdict without whom the guess is about.

    >>> without_owners("leak; search stopped after 5 s: a lower bound, about single owners")
    'leak; search stopped after 5 s: a lower bound'
    """
    return verdict.split(", about")[0]


def whom(aim: str, owners: int | None) -> str:
    """Whether a cell is about single owners or about several together: what a defence leaves may be either.

    Args:
        owners: how many the widest guess is about; None in older files, where the aim counts.

    >>> whom(RESIDUAL, 1), whom(RESIDUAL, 3)
    ('each owner', 'what the defence leaves')
    """
    return SINGLE_OWNERS if owners == 1 else aim or SINGLE_OWNERS
