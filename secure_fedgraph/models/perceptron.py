"""A network with one hidden layer on one owner's records: what depth adds to a regression, in a second."""

from __future__ import annotations

import math

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

    def uniform(rows: int, columns: int) -> Tensor:
        return (2 * torch.rand(rows, columns, generator=random) - 1) / math.sqrt(rows)

    layers = [uniform(width, HIDDEN), torch.zeros(HIDDEN), uniform(HIDDEN, classes), torch.zeros(classes)]
    for layer in layers:
        layer.requires_grad_()
    steps = Adam(layers, lr=RATE, weight_decay=DECAY)
    chosen, checked = train.nonzero().flatten(), held_out.nonzero().flatten()
    best, patience, kept = math.inf, PATIENCE, layers
    seen, answers = records[checked], y[checked]
    for step in range(1, STEPS + 1):
        rows = chosen[torch.randperm(len(chosen), generator=random)[:BATCH]]
        hidden = ((LENGTH * _dropped(records[rows], coins)) @ layers[0] + layers[1]).relu()
        loss = F.cross_entropy(_dropped(hidden, coins) @ layers[2] + layers[3], y[rows])
        steps.zero_grad()
        loss.backward()
        steps.step()
        if step % LOOK or not len(checked):
            continue
        now = [layer.detach().clone() for layer in layers]
        missed = float(F.cross_entropy(scores(now, seen), answers))
        if missed < best:
            best, patience, kept = missed, PATIENCE, now
            continue
        patience -= 1
        if not patience:
            break
    inner, inner_bias, outer, outer_bias = (layer.detach() for layer in kept)
    return inner, inner_bias, outer, outer_bias


def scores(layers: Layers | list[Tensor], records: Tensor) -> Tensor:
    """Class scores of records, ``[n, classes]``."""
    inner, inner_bias, outer, outer_bias = layers
    hidden = (records @ inner.float() * LENGTH + inner_bias.float()).relu()
    given: Tensor = hidden @ outer.float() + outer_bias.float()
    return given


def _dropped(values: Tensor, coins: np.random.Generator) -> Tensor:
    """Each value doubled or dropped, by a bit: numbers that are drawn one by one take longer than a step."""
    drawn = np.frombuffer(coins.bytes(-(-values.numel() // 8)), dtype=np.uint8)
    bits = torch.from_numpy(np.unpackbits(drawn, count=values.numel())).reshape(values.shape)
    return 2 * values * bits
