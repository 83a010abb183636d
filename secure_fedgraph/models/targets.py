"""What a model is trained on by task: the loss of each item, its gradient, and what is said of an item."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models.finite import named_classes

Loss = Callable[[Tensor, Tensor], Tensor]
"""Outputs ``[n, outputs]`` and answers -> the loss of each item, ``[n]``."""


def cross_entropy(scores: Tensor, y: Tensor) -> Tensor:
    """The cross entropy of each item."""
    return F.cross_entropy(scores, y, reduction="none")


def loss_of(schema: Schema, weights: Tensor | None = None) -> Loss:
    """The loss of each item: cross entropy of classes, the mean over labels of it, half a number's square.

    A number's error counts in units of half its public range, and by its size alone beyond one of them
    (Huber), so that one item out of range moves a model no further than the others.

    Args:
        schema: of the data.
        weights: of the classes, ``[classes]``.

    >>> each = loss_of(Schema(3, 1, task=Task.NUMBER, low=0.0, high=10.0))
    >>> each(torch.tensor([[0.5]]), torch.tensor([5.0])).tolist()
    [0.125]
    """
    if schema.task == Task.NUMBER:
        return lambda scores, y: F.huber_loss(scores.reshape(len(y)), scaled(y, schema), reduction="none")
    if schema.task == Task.LABELS:
        return lambda scores, y: F.binary_cross_entropy_with_logits(
            scores, y.to(scores.dtype), reduction="none"
        ).mean(dim=1)
    if weights is None:
        return cross_entropy
    given = weights
    return lambda scores, y: cross_entropy(scores, y) * given.to(scores)[y]


def ranking_loss(scores: Tensor) -> Tensor:
    """The cross entropy of each link among the wrong ones, ``[n, 1 + wrong]``, which weigh as much as it."""
    return (F.softplus(-scores[:, 0]) + F.softplus(scores[:, 1:]).mean(dim=1)) / 2


def slopes(scores: Tensor, y: Tensor, schema: Schema) -> Tensor:
    """The gradient of each item's loss by its outputs, ``[n, outputs]``, each in [-1, 1].

    Guarantees:
        - an item's does not depend on which other items there are, in no bit.
    """
    if schema.task == Task.NUMBER:
        return (scores.reshape(len(y)) - scaled(y, schema)).clamp(-1, 1)[:, None]
    if schema.task == Task.LABELS:
        # row by row: the last bit of a sigmoid depends on where in the tensor a value stands
        yes = F.softmax(torch.stack([torch.zeros_like(scores), scores], dim=-1), dim=-1)[..., 1]
        return (yes - y) / scores.shape[1]
    shares = F.softmax(scores, dim=1)
    return shares - F.one_hot(y, shares.shape[1])


def scaled(y: Tensor, schema: Schema) -> Tensor:
    """Numbers in their own unit, as models are trained on them: their public range is [-1, 1]."""
    width = (schema.high - schema.low) or 1.0
    return (2 * (y - schema.low) / width - 1).clamp(-1, 1)


def in_units(outputs: Tensor, schema: Schema) -> Tensor:
    """What a model says of a number, in the number's own unit: the inverse of :func:`scaled`."""
    return (outputs.clamp(-1, 1) + 1) / 2 * (schema.high - schema.low) + schema.low


def right(scores: Tensor, y: Tensor, schema: Schema) -> Tensor:
    """How right each answer is, ``[n]`` in [0, 1]: the class, or the share of the labels.

    Of a number it is 1 less its error in units of its whole public range; of a link that is there, whose
    scores are ``[n, 1 + wrong]``, the share of the wrong ones that it stands before (their AUC).
    """
    if schema.task == Task.LINKS:
        one, wrong = scores[:, :1], scores[:, 1:]
        return ((wrong < one).double() + (wrong == one).double() / 2).mean(dim=1)
    if schema.task == Task.NUMBER:
        error = (scores.reshape(len(y)).clamp(-1, 1) - scaled(y, schema)).abs() / 2
        return (1 - error).nan_to_num(nan=0.0)
    if schema.task == Task.LABELS:
        return ((scores > 0).to(y.dtype) == y).double().mean(dim=1)
    return (named_classes(scores) == y).double()


def ridge_targets(y: Tensor, schema: Schema, norm: float) -> Tensor:
    """Targets of a regression, each of an L2 norm of ``norm`` at most: ``[n, outputs]``.

    One-hot classes, centred; labels as plus and minus; numbers in [-1, 1].
    """
    if schema.task == Task.NUMBER:
        targets = scaled(y, schema)[:, None].float() * norm
    elif schema.task == Task.LABELS:
        targets = (2 * y.float() - 1) * (norm / y.shape[1] ** 0.5)
    else:
        centred = F.one_hot(y, schema.classes).float() - 1 / schema.classes
        targets = centred * (norm / (1 - 1 / schema.classes) ** 0.5)
    return targets


def class_weights(given: object, y: Tensor, classes: int) -> Tensor | None:
    """Weights of classes, the mean over items 1: by hand, or ``balanced`` by how often each stands in ``y``.

    >>> class_weights("balanced", torch.tensor([0, 0, 0, 1]), 2).tolist()
    [0.6666666865348816, 2.0]
    """
    if given == "balanced":
        counts = torch.bincount(y[y >= 0], minlength=classes).float()
        return counts.sum() / counts.clamp(min=1) / max(int((counts > 0).sum()), 1)
    return torch.tensor(given, dtype=torch.float32) if isinstance(given, tuple | list) and given else None
