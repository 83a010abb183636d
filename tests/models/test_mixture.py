"""Mixtures of prototypes, and how released sums become prototypes."""

from __future__ import annotations

import pytest
import torch

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.models.neighgen.mixture import (
    COUNT,
    PrototypeMixture,
    class_records,
    prototypes_of,
    shrunk,
)
from secure_fedgraph.models.neighgen.model import NeighGen
from secure_fedgraph.models.parameters import glorot, parameters_of


def rows(count: int, width: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, width, generator=torch.Generator().manual_seed(seed))


def test_a_record_has_length_1_whatever_the_features() -> None:
    x = torch.cat([rows(4, 6), 1e6 * rows(1, 6), torch.zeros(1, 6)])
    made = class_records(x)
    assert torch.allclose(made[:-1].norm(dim=1), torch.ones(5), atol=1e-6)
    assert torch.equal(made[-1], torch.tensor([0.0] * 6 + [COUNT]))


def test_sums_of_records_are_mean_directions_and_counts() -> None:
    x = rows(7, 6)
    means, counts = prototypes_of(class_records(x).sum(0, keepdim=True).double(), 0.0)
    assert counts.tolist() == pytest.approx([7.0])
    assert torch.allclose(means[0].float(), torch.nn.functional.normalize(x, dim=1).mean(0), atol=1e-6)


def test_the_threshold_takes_noise_off_and_leaves_large_values() -> None:
    truth = torch.zeros(1, 2000, dtype=torch.float64)
    truth[0, :20] = 30.0
    noised = truth + torch.randn(truth.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert (shrunk(noised, 1.0) - truth).norm() < 0.6 * (noised - truth).norm()
    assert torch.equal(shrunk(noised, 0.0), noised)


def test_slots_are_those_that_were_asked_for_and_lie_among_the_prototypes() -> None:
    mixture = PrototypeMixture(4, rows(3, 6), candidates=2)
    torch.nn.init.normal_(mixture.weigh.weight, generator=torch.Generator().manual_seed(1))
    z, counts = rows(5, 4), torch.tensor([0, 2, 1, 0, 2])
    made = mixture.generate(z, counts)
    assert list(zip(made.anchor.tolist(), made.slot.tolist(), strict=True)) == [
        (1, 0),
        (1, 1),
        (2, 0),
        (4, 0),
        (4, 1),
    ]
    assert torch.allclose(made.rows, mixture(z)[made.anchor, made.slot])
    low, high = mixture.prototypes.min(0).values, mixture.prototypes.max(0).values
    assert bool(((made.rows >= low - 1e-6) & (made.rows <= high + 1e-6)).all())


def test_no_prototype_is_refused() -> None:
    with pytest.raises(BadInput, match="one row or more"):
        PrototypeMixture(4, torch.zeros(0, 6))


def test_what_an_owner_learns_holds_no_prototype() -> None:
    model = NeighGen(6, 2, (4, 4), fgen=PrototypeMixture(4, rows(3, 6)))
    glorot(model, 0)
    assert {name for name in parameters_of(model) if name.startswith("fgen")} == {
        "fgen.weigh.weight",
        "fgen.weigh.bias",
    }
