"""Why one unit's epsilon is larger than that of the unit that the noise is for, in a sentence each."""

from __future__ import annotations

import math
from collections.abc import Mapping

from secure_fedgraph.core.guarantee import LARGER

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
    "One client's epsilon is infinite: a client has man"
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
    if math.isinf(epsilon):
        head = f"One {larger}'s epsilon is infinite"
    else:
        head = f"One {larger}'s epsilon is {epsilon:.4g}, {epsilon / small:.1f} times one {smaller}'s"
    if unit in LARGER.get(least, ()):
        rest = "not all of them together" if math.isinf(epsilon) else "and less so all of them together"
        return f"{head}: a {larger} has many {smaller}s, and the noise hides one of them, {rest}."
    if math.isinf(epsilon):
        return f"{head}: the noise is for one {smaller}, and does not cover all that one {larger} moves."
    if least in LARGER.get(unit, ()):
        several = f", and {holders} clients may hold the same {larger}" if holders > 1 else ""
        return (
            f"{head}: without a {smaller} its upload is zero, one clip away; a {larger} in it that changes "
            f"exchanges its upload for another, up to two clips away{several}."
        )
    return f"{head}: the noise is for one {smaller}, and one {larger} moves more of what is sent."
