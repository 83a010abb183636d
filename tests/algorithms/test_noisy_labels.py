"""The loss for randomised labels: an explicit matrix, the true distribution as its minimum, sure models."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from secure_fedgraph.algorithms.training.local_training import cross_entropy
from secure_fedgraph.privacy.input_dp.labels import RandomisedLabels

CLASSES = 4


def matrix(truth: float) -> torch.Tensor:
    other = (1 - truth) / (CLASSES - 1)
    return torch.full((CLASSES, CLASSES), other).fill_diagonal_(truth)


@pytest.mark.parametrize("truth", [0.3, 0.6, 0.99])
def test_it_is_the_loss_through_the_matrix_of_the_noise(truth: float) -> None:
    scores = torch.randn(20, CLASSES, generator=torch.Generator().manual_seed(0)).double()
    y = torch.arange(20) % CLASSES
    through = F.nll_loss((scores.softmax(1) @ matrix(truth).double()).log(), y)
    assert torch.allclose(cross_entropy(scores, y, truth), through)
    assert torch.equal(cross_entropy(scores, y), F.cross_entropy(scores, y))


def test_it_is_least_at_the_true_distribution() -> None:
    truth, clean = 0.5, torch.tensor([0.7, 0.2, 0.06, 0.04]).double()
    noisy = clean @ matrix(truth).double()
    scores = torch.zeros(1, CLASSES, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([scores], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        each = torch.stack([cross_entropy(scores, torch.tensor([c]), truth) for c in range(CLASSES)])
        value = (noisy * each).sum()
        value.backward()
        return value

    optimizer.step(loss)
    assert torch.allclose(scores.softmax(1)[0], clean, atol=1e-3)


@pytest.mark.parametrize("truth", [1 / CLASSES, 0.3, 1.0])
def test_sure_models_have_finite_gradients(truth: float) -> None:
    scores = torch.tensor([[1e4, 0.0, 0.0, 0.0]], requires_grad=True)
    cross_entropy(scores, torch.tensor([1]), truth).backward()
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()


def test_how_many_labels_are_true_is_what_the_coins_make() -> None:
    labels, y = RandomisedLabels(1.5), torch.zeros(20_000, dtype=torch.long)
    kept = float((labels.randomized(y, CLASSES) == 0).double().mean())
    assert kept == pytest.approx(labels.truth(CLASSES), abs=0.02)
    assert labels.truth(1) == 1.0
