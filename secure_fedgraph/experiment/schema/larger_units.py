"""Why one unit's epsilon is larger than that of the unit that the noise is for, in a sentence each."""

from __future__ import annotations

import math
from collections.abc import Mapping

WORDS = {"edge": "link", "label": "node's label", "feature": "node's features"}
"""Units whose word is not their name."""
CLOSE = 1.001
"""Epsilons that differ by less than this are the same: accountants round."""


def why_larger(epsilons: Mapping[str, float | str], asked: str, holders: int = 1) -> list[str]:
    """One sentence for each unit whose epsilon is larger than that of the unit that the noise is for.

    Args:
        epsilons: unit -> epsilon, ``"inf"`` where nothing bounds it.
        asked: the unit that is asked about; where nothing bounds it, the one with the least epsilon counts.
        holders: how many clients may hold the same unit.

    >>> why_larger({"client": "inf", "node": 4.0, "edge": 0.0}, "node")[0][:50]
    "One client's epsilon is infinite: the noise hides "
    """
    finite = {unit: value for unit, one in epsilons.items() if 0 < (value := float(one)) < math.inf}
    if not finite:
        return []
    least = asked if asked in finite else min(finite, key=finite.__getitem__)
    return [
        _sentence(unit, float(one), least, finite[least], holders)
        for unit, one in epsilons.items()
        if float(one) > CLOSE * finite[least]
    ]


def _sentence(unit: str, epsilon: float, least: str, small: float, holders: int) -> str:
    larger, smaller = WORDS.get(unit, unit), WORDS.get(least, least)
    size = (
        "infinite" if math.isinf(epsilon) else f"{epsilon:.4g}, {epsilon / small:.1f} times one {smaller}'s"
    )
    several = f", and {holders} clients may hold the same {larger}" if holders > 1 else ""
    return (
        f"One {larger}'s epsilon is {size}: the noise hides one {smaller}, and one {larger} moves more of "
        f"what is sent{several}."
    )
