"""Where another unit's epsilon is larger than the budget's, a sentence says why; else nothing is said."""

from __future__ import annotations

import pytest

from secure_fedgraph.experiment.schema.larger_units import why_larger


@pytest.mark.parametrize(
    ("epsilons", "asked", "larger"),
    [
        ({"client": "inf", "node": 4.0, "edge": 0.0}, "node", ["client's epsilon is infinite"]),
        ({"client": 1.83, "node": 4.0, "edge": 4.0}, "node", []),
        ({"client": 4.0, "node": 9.0, "edge": 9.0}, "client", ["one node's", "one link's"]),
        ({"client": 12.0, "node": 4.0}, "node", ["3.0 times one node's"]),
        ({"client": "inf", "node": 4.0}, "client", ["infinite"]),
        ({"client": "inf", "node": "inf"}, "client", []),
        ({"client": 0.0, "node": 0.0}, "client", []),
    ],
)
def test_one_sentence_for_each_larger_one(
    epsilons: dict[str, float | str], asked: str, larger: list[str]
) -> None:
    told = why_larger(epsilons, asked)
    assert len(told) == len(larger)
    assert all(words.lower() in one.lower() for words, one in zip(larger, told, strict=True))


def test_who_may_hold_the_same_unit_counts() -> None:
    (told,) = why_larger({"client": 4.0, "edge": 20.0}, "client", holders=3)
    assert "5.0 times" in told and "3 clients" in told
