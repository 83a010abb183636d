"""A small network on one owner's records."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from secure_fedgraph.models import perceptron


@pytest.fixture(scope="module")
def rings() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two classes that no hyperplane divides: directions whose coordinates have one sign, or two."""
    points = torch.randn(600, 2, generator=torch.Generator().manual_seed(0))
    records = torch.nn.functional.normalize(points, dim=1)
    train, held_out = torch.zeros(2, 600, dtype=torch.bool)
    train[:300], held_out[300:400] = True, True
    return records, (records.prod(1) > 0).long(), train, held_out


def test_what_no_regression_can_learn_is_learnt(rings: tuple[Tensor, ...]) -> None:
    records, y, train, held_out = rings
    found = perceptron.scores(perceptron.fit(records, y, train, held_out, 2), records).argmax(1)
    assert float((found == y)[400:].double().mean()) > 0.9


def test_weights_repeat_and_leave_the_callers_randomness_alone(rings: tuple[Tensor, ...]) -> None:
    records, y, train, held_out = rings
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one = perceptron.fit(records, y, train, held_out, 2)
    assert torch.equal(before, torch.get_rng_state())
    other = perceptron.fit(records, torch.where(train | held_out, y, 1 - y), train, held_out, 2)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_the_weights_that_validation_records_like_best_are_kept(
    rings: tuple[Tensor, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of labels that contradict training, the best look is an early one."""
    records, y, train, held_out = rings
    against = torch.where(held_out, 1 - y, y)

    def missed(looks: Tensor, steps: int) -> float:
        monkeypatch.setattr(perceptron, "STEPS", steps)
        given = perceptron.scores(perceptron.fit(records, against, train, looks, 2), records)
        return float(torch.nn.functional.cross_entropy(given[held_out], against[held_out]))

    each = [missed(torch.zeros_like(train), look * perceptron.LOOK) for look in range(1, 7)]
    assert missed(held_out, 6 * perceptron.LOOK) == pytest.approx(min(each))
    assert min(each) < each[-1]
