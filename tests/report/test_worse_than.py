"""A page says in words when a model is worse than a guess, or than what an owner has alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from secure_fedgraph.report.first_screens.run import worse_than


@pytest.mark.parametrize(
    ("score", "key", "said"),
    [
        (0.2, "global", "always naming the commonest class"),
        (0.5, "global", "an owner’s own model"),
        (0.8, "global", ""),
        (0.2, "mae", ""),
    ],
)
def test_the_worst_of_what_it_is_below_is_named(score: float, key: str, said: str) -> None:
    result = SimpleNamespace(accuracy={key: score, "own_global": 0.7}, commonest_class=0.3)
    told = worse_than(result, SimpleNamespace(key=key))  # type: ignore[arg-type]
    assert (said in told) and bool(told) is bool(said)
