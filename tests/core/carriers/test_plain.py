"""The plain carrier's sum: added piece by piece, and looked through once."""

from __future__ import annotations

import numpy as np
import pytest

from secure_fedgraph.core.carriers.plain import PIECE, Plain
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.protection.contracts import Scope
from secure_fedgraph.core.upload import Layout

SIZE = 2 * PIECE + 3
LAYOUT = Layout((("w", (SIZE,)),))
SCOPE = Scope("run", 1, 1, "update", ("a", "b", "c"))


def uploads() -> dict[str, np.ndarray]:
    """As they come off the wire: read-only, and at any byte."""
    made = {}
    for number, name in enumerate(SCOPE.cohort):
        values = np.random.default_rng(number).standard_normal(SIZE).astype("<f4")
        values[:2] = -0.0, 3e38
        made[name] = np.frombuffer(b"-" + values.tobytes(), "<f4", offset=1)
    return made


def opened(sealed: dict[str, np.ndarray], layout: Layout = LAYOUT) -> np.ndarray:
    return Plain().open_sum(sealed, layout, SCOPE, lambda step, given: {})


def test_the_sum_is_that_of_whole_arrays_to_the_bit() -> None:
    sent = uploads()
    whole = np.add(sent["a"], 0.0, dtype=np.float64)
    for name in ("b", "c"):
        whole += sent[name]
    total = opened(sent)
    assert total.shape == (1, SIZE) and total.tobytes() == whole.tobytes()
    assert opened({}).tolist() == [[0.0] * SIZE]
    assert opened({"a": np.zeros(0, "<f4")}, Layout((("w", (0,)),))).shape == (1, 0)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, PIECE, SIZE - 1])
def test_who_sends_a_number_that_is_not_finite_is_named(number: float, place: int) -> None:
    sent = {name: values.copy() for name, values in uploads().items()}
    sent["b"][place] = number
    with pytest.raises(HostileMessage, match="b's upload holds NaN or infinity"):
        opened(sent)
    sent["c"][place] = -number  # whatever the two add up to
    with pytest.raises(HostileMessage, match="b's upload holds NaN or infinity"):
        opened(sent)


@pytest.mark.parametrize("spoilt", [np.zeros(SIZE), np.zeros(SIZE - 1, "<f4"), [0.0] * SIZE, None])
def test_another_type_or_length_is_refused(spoilt: object) -> None:
    with pytest.raises(HostileMessage, match="c's upload does not hold"):
        opened({**uploads(), "c": spoilt})  # type: ignore[dict-item]
