"""Training, validation and test nodes of one owner."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.answers import MASKS as MASKS
from secure_fedgraph.graph.answers import answered


def stratified(y: Tensor, seed: int, train: float = 0.6, val: float = 0.2) -> tuple[Tensor, Tensor, Tensor]:
    """Split nodes into train, validation and test, class by class.

    Each class is split by largest remainder, so that its three counts are within one of the exact
    shares, with one exception: the first node of a class always goes to train.

    **Guarantees:**

    - every node with a label is in exactly one of the three, and one without (-1) in none;
    - every class with at least one node has at least one training node;
    - the same ``y`` and ``seed`` give the same masks on every machine.

    Args:
        y: ``[N]`` integer labels of the owner's nodes, -1 where there is none; of numbers and of several
            labels a node, ``[N]`` or ``[N, labels]`` and NaN, all that have one are split together.
        seed: of the shuffle inside the classes.
        train: share of training nodes, in ``(0, 1]``.
        val: share of validation nodes; the rest is test.

    Returns:
        Three boolean masks ``[N]``.

    Raises:
        BadInput: shares that are negative or add up to more than 1, or ``train`` of 0.

    >>> masks = stratified(torch.tensor([0] * 5 + [1] * 5), seed=0)
    >>> [int(mask.sum()) for mask in masks]
    [6, 2, 2]
    """
    if not 0 < train <= 1 or not 0 <= val <= 1 or train + val > 1 + 1e-9:
        raise BadInput(
            f"split shares train={train}, val={val}: give train > 0, val >= 0 and a sum of at most 1."
        )
    labels = (answered(y).long() - 1 if y.is_floating_point() else y).cpu().numpy()
    shares = np.array([train, val, max(0.0, 1 - train - val)])
    part_of = np.full(len(labels), -1, dtype=np.int64)
    rng = np.random.default_rng(seed)
    for label in np.unique(labels[labels >= 0]):
        members = rng.permutation(np.flatnonzero(labels == label))
        part_of[members] = np.repeat([0, 1, 2], _counts(len(members), shares))
    in_train, in_val, in_test = (torch.from_numpy(part_of == part).to(y.device) for part in range(3))
    return in_train, in_val, in_test


def _counts(total: int, shares: np.ndarray) -> np.ndarray:
    """``total`` cut by largest remainder, ties to train before validation before test."""
    exact = np.round(total * shares, 9)
    counts = np.floor(exact).astype(np.int64)
    left = total - counts.sum()
    counts[np.argsort(-(exact - counts), kind="stable")[:left]] += 1
    if counts[0] == 0 and total:
        counts[np.argmax(counts)] -= 1
        counts[0] += 1
    return counts
