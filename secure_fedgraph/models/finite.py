"""Optimisers, and training that ends in finite numbers, whatever weights a server chose.

On huge weights losses and gradients become infinite or NaN, and which of them do depends on the data. What a
client keeps of such a round must not spoil its later rounds, and no later step may have to refuse it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from inspect import unwrap

import torch
from torch import Tensor

_LOG = logging.getLogger("secure_fedgraph.training")


def finite(value: Tensor) -> Tensor:
    """The same values, with zeros in place of what is not finite.

    >>> finite(torch.tensor([1.0, float("nan"), float("inf")])).tolist()
    [1.0, 0.0, 0.0]
    """
    return torch.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0)


def is_finite(values: Tensor) -> bool:
    """Whether no value is NaN or infinite: one quick pass over the values, where a mask of them takes five.

    >>> is_finite(torch.tensor([1.0, -2.0])), is_finite(torch.tensor([1.0, float("nan")]))
    (True, False)
    """
    if not values.is_floating_point() or not values.numel():
        return True
    total = values.detach().sum()  # quicker than the extremes, but large finite values may overflow
    if bool(total.isfinite()):
        return True
    return bool(torch.stack(torch.aminmax(values)).isfinite().all())


def named_classes(scores: Tensor) -> Tensor:
    """The class of the highest score in each row; no class, -2, where a score is NaN: that row is wrong.

    >>> named_classes(torch.tensor([[0.1, 0.9], [float("nan"), 0.0]])).tolist()
    [1, -2]
    """
    return torch.where(scores.isnan().any(1), -2, scores.argmax(1))


def all_are_finite(values: Iterable[Tensor]) -> bool:
    """Whether no value of several tensors is NaN or infinite: their norm says so, unless it overflows.

    >>> all_are_finite([torch.tensor([1.0, 1e30])]), all_are_finite([torch.tensor(float("nan"))])
    (True, False)
    """
    floating = [value for value in values if value.is_floating_point() and value.numel()]
    if bool(torch.nn.utils.get_total_norm(floating).isfinite()):
        return True
    return all(is_finite(value) for value in floating)  # squares of large values are infinite too


def all_finite(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """:func:`finite` of each of several tensors; one whose values all are is not copied."""
    return {name: value if is_finite(value) else finite(value) for name, value in values.items()}


class _Unguarded(torch.optim.Optimizer):
    """An optimiser of PyTorch without the guards that it has for PyTorch's compiler.

    Each guarded method loads the compiler, which takes longer than a short training. Nothing here is
    compiled. Steps and states are those of ``torch.optim``, bit for bit: it is the same code.
    """

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = unwrap(torch.optim.Optimizer.load_state_dict)


class Adam(_Unguarded, torch.optim.Adam):
    """``torch.optim.Adam``."""

    step = torch.no_grad()(unwrap(torch.optim.Adam.step))


class SGD(_Unguarded, torch.optim.SGD):
    """``torch.optim.SGD``."""

    step = torch.no_grad()(unwrap(torch.optim.SGD.step))


class LBFGS(_Unguarded, torch.optim.LBFGS):
    """``torch.optim.LBFGS``."""

    step = torch.no_grad()(unwrap(torch.optim.LBFGS.step))


@torch.no_grad()
def take_step(optimizer: torch.optim.Optimizer) -> None:
    """One step of an optimiser on finite gradients, after which parameters are finite too."""
    optimizer.step()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if bool(torch.nn.utils.get_total_norm(parameters).isfinite()):
        return
    for p in parameters:  # squares of large values are infinite too
        if not bool(torch.isfinite(p.sum())):  # one pass, and no mask
            p.nan_to_num_()  # an infinite value becomes the largest float32


def note_divergence(name: str, sound: bool) -> None:
    """Tells a client's owner, in the client's own log, that a round's training went astray."""
    if not sound:
        _LOG.warning("%s: gradients were not finite: training diverged; lower the learning rate", name)


def finite_moments(slots: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """An optimiser's slots of one parameter; an entry that is not finite in one slot is zeroed in all.

    An overflowed second moment would freeze its parameter for ever, and zeroing only the second moment would
    make the parameter jump.
    """
    kept = {name: slot for name, slot in slots.items() if slot is not None}
    shaped = [slot for slot in kept.values() if slot.dim()]
    if all(is_finite(slot) for slot in shaped):
        return kept
    sound = torch.stack([torch.isfinite(slot) for slot in shaped]).all(0)
    return {name: torch.where(sound, slot, 0.0) if slot.dim() else slot for name, slot in kept.items()}
