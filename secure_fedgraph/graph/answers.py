"""Answers: what is known of nodes, graphs or links, and learned of the others."""

from __future__ import annotations

import torch
from torch import Tensor

from secure_fedgraph.graph.schema import Schema, Task


def answered(y: Tensor) -> Tensor:
    """Which have an answer, ``[n]``: a class from 0 on, or numbers that are all there.

    >>> answered(torch.tensor([0, -1])).tolist(), answered(torch.tensor([1.5, float("nan")])).tolist()
    ([True, False], [True, False])
    """
    if not y.is_floating_point():
        return y >= 0
    known: Tensor = torch.isfinite(y).reshape(len(y), -1).all(dim=1)
    return known


def stand_in_answers(numbers: Tensor, schema: Schema) -> Tensor:
    """Made-up answers of whole numbers ``[n]``, of the form that a task's have.

    >>> stand_in_answers(torch.arange(3), Schema(1, 2, task=Task.LABELS)).tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """
    if schema.task == Task.NUMBER:
        return schema.low + (schema.high - schema.low) * (numbers % 5) / 4
    if schema.task == Task.LABELS:
        return (numbers[:, None] % schema.classes == torch.arange(schema.classes)).float()
    return numbers % schema.classes
