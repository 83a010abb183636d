"""A network with one hidden layer on one owner's records: what depth adds to a regression, in a second."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from secure_fedgraph.models.finite import Adam

HIDDEN = 64
STEPS, BATCH, LOOK = 300, 256, 15
"""Steps at most, records a step, and steps between looks at the validation records."""
PATIENCE = 6
"""Looks in a row without a smaller loss, after which fitting ends."""
RATE, DECAY = 0.01, 5e-4
LENGTH = 5.0
"""Records of length 1 are read as of this length: weights start at the size that suits them."""

Layers = tuple[Tensor, Tensor, Tensor, Tensor]


def fit(records: Tensor, y: Tensor, train: Tensor, held_out: Tensor, classes: int) -> Layers:
    """The weights under which validation records were most likely, of those that fitting went through.

    Guarantees:
        - the same weights for the same arguments: everything random has a fixed seed.
        - reads no label but those of ``train`` and ``held_out``.

    Args:
        records: ``[n, width]``, of length 1.
        y: classes, ``[n]``.
        train: records that are learnt, ``[n]`` booleans.
        held_out: records that decide when to end, ``[n]`` booleans; without one, the last weights count.
        classes: how many there are.

    Returns:
        Weights ``[width, HIDDEN]``, biases ``[HIDDEN]``, weights ``[HIDDEN, classes]``, biases ``[classes]``.

    References:
        Srivastava et al., Dropout, JMLR 2014.
    """
    random, coins, width = torch.Generator().manual_seed(0), np.random.default_rng(0), records.shape[1]
    shapes = ((width, HIDDEN), (HIDDEN,), (HIDDEN, classes), (classes,))
    # one vector of all weights: a step of four small ones takes longer than their gradients
    weights, slopes = (torch.zeros(sum(map(math.prod, shapes))) for _ in range(2))
    layers, (inner, inner_bias, outer, outer_bias) = _parts(weights, shapes), _parts(slopes, shapes)
    for layer in layers[::2]:
        layer.copy_((2 * torch.rand(layer.shape, generator=random) - 1) / math.sqrt(len(layer)))
    weights.grad = slopes
    steps = Adam([weights], lr=RATE, weight_decay=DECAY, fused=True)
    chosen, checked = train.nonzero().flatten(), held_out.nonzero().flatten()
    best, patience, kept = math.inf, PATIENCE, weights
    seen, answers, read = records[checked], y[checked], 2 * LENGTH * records[chosen]
    wanted = F.one_hot(y[chosen], classes)
    for step in range(1, STEPS + 1):
        rows = torch.randperm(len(chosen), generator=random)[:BATCH]
        given = read[rows] * _coins(coins, len(rows), width)
        reached = torch.addmm(layers[1], given, layers[0])
        gates = 2 * _coins(coins, len(rows), HIDDEN) * (reached > 0)
        hidden = reached * gates
        errors = (torch.addmm(layers[3], hidden, layers[2]).softmax(1) - wanted[rows]) / len(rows)
        back = errors @ layers[2].T * gates  # of the cross entropy, by hand
        torch.mm(given.T, back, out=inner)
        torch.sum(back, 0, out=inner_bias)
        torch.mm(hidden.T, errors, out=outer)
        torch.sum(errors, 0, out=outer_bias)
        steps.step()
        if step % LOOK or not len(checked):
            continue
        missed = float(F.cross_entropy(scores(layers, seen), answers))
        if missed < best:
            best, patience, kept = missed, PATIENCE, weights.clone()
            continue
        patience -= 1
        if not patience:
            break
    return _parts(kept, shapes)


def _parts(weights: Tensor, shapes: Sequence[tuple[int, ...]]) -> Layers:
    parts = weights.split([math.prod(shape) for shape in shapes])
    inner, inner_bias, outer, outer_bias = (
        part.view(shape) for part, shape in zip(parts, shapes, strict=True)
    )
    return inner, inner_bias, outer, outer_bias


def scores(layers: Layers, records: Tensor) -> Tensor:
    """Class scores of records, ``[n, classes]``."""
    return scores_of_products(records @ layers[0].float(), *layers[1:])


def scores_of_products(read: Tensor, inner_bias: Tensor, outer: Tensor, outer_bias: Tensor) -> Tensor:
    """The same from records' products with the first weights, ``[n, HIDDEN]``."""
    hidden = (read * LENGTH + inner_bias.float()).relu()
    return hidden @ outer.float() + outer_bias.float()


def _coins(coins: np.random.Generator, *shape: int) -> Tensor:
    """Bits that drop values or keep them: numbers that are drawn one by one take longer than a step."""
    size = math.prod(shape)
    drawn = np.frombuffer(coins.bytes(-(-size // 8)), dtype=np.uint8)
    return torch.from_numpy(np.unpackbits(drawn, count=size)).reshape(shape)
