"""What a request brings is held to the form that its channel declares."""

from __future__ import annotations

import math

import pytest
import torch

from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.inputs import MOST, Integers, Numbers, Real, check, like

STATE = {"weight": torch.zeros(300, 70), "steps": torch.tensor(4), "rate": torch.tensor(0.5)}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 300 * 70 - 1])
def test_one_number_that_is_not_finite_is_refused_wherever_it_stands(number: float, place: int) -> None:
    sent = {"weight": torch.zeros(300, 70), "steps": 4, "rate": 0.5}
    check((like(STATE),), sent, "round 1")
    sent["weight"].view(-1)[place] = number
    with pytest.raises(HostileMessage, match="not finite"):
        check((like(STATE),), sent, "round 1")
    with pytest.raises(HostileMessage, match="'rate'"):
        check((like(STATE),), {**sent, "weight": torch.zeros(300, 70), "rate": number}, "round 1")


@pytest.mark.parametrize("sign", [1, -1])
def test_a_number_beyond_float32_is_infinite_there(sign: int) -> None:
    largest = torch.finfo(torch.float32).max
    above = 2.0**128 - 2.0**103  # the first that does not round down to the largest
    for number, fits in ((3e38, True), (largest, True), (above, False), (1e39, False), (math.nan, False)):
        values = torch.tensor([0.0, sign * number, 1.0], dtype=torch.float64)
        assert bool(values.float().isfinite().all()) == fits
        assert Numbers((3,)).wrong(values) == ("" if fits else "it is not finite")
    assert not Numbers((0,)).wrong(torch.zeros(0, dtype=torch.float64))


def test_whole_numbers_are_no_truth_values_and_lie_in_their_range() -> None:
    entry = like(STATE)["steps"]
    assert [bool(entry.wrong(value)) for value in (4, True, 4.0, MOST)] == [False, True, True, True]
    whole = Integers((None,), 0, 9)
    assert not whole.wrong(torch.tensor([0, 9])) and not whole.wrong(torch.zeros(0, dtype=torch.int64))
    assert whole.wrong(torch.tensor([10])) and whole.wrong(torch.tensor([-1]))
    assert Real().wrong(1)
    assert Real().wrong(-1e39)  # a client's square of it would be no float64: OverflowError
    assert not Real().wrong(3e38)


def test_names_are_those_of_one_form_and_not_of_two() -> None:
    forms = ({"a": Real()}, {"b": Real()})
    check(forms, {"b": 1.0}, "round 1")
    with pytest.raises(HostileMessage, match="differ"):
        check(forms, {"a": 1.0, "b": 1.0}, "round 1")
