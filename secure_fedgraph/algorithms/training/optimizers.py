"""Optimisers whose state a client keeps between rounds, and gradients that a server cannot make huge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import nn

from secure_fedgraph.algorithms.training.settings import TrainingSettings
from secure_fedgraph.models.finite import SGD, Adam, all_are_finite, finite_moments


def optimizer_of(model: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    """A fresh optimiser of the model's parameters."""
    if settings.optimizer == "sgd":
        return SGD(model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    return Adam(model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True)


def bound_gradients(parameters: Iterable[nn.Parameter], largest: float) -> bool:
    """Makes gradients finite and their norm over all parameters at most ``largest``, in place, before a step.

    A server chooses the model that a client trains from. On one with huge weights the gradients are huge, and
    an optimiser that keeps their squares would hardly move for the rest of the run.

    Returns:
        Whether all of them were finite.
    """
    return bounded([p.grad for p in parameters if p.grad is not None], largest)


def bounded(gradients: Sequence[torch.Tensor], largest: float) -> bool:
    """:func:`bound_gradients` of the gradients themselves."""
    norm = torch.nn.utils.get_total_norm(gradients)
    if float(norm) <= largest:  # then each value is finite and no larger, and there is nothing to cut
        return True
    sound = all(bool(torch.isfinite(gradient.sum())) for gradient in gradients)
    for gradient in gradients:  # each element first: squares of larger ones overflow
        gradient.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0).clamp_(-largest, largest)
    norm = torch.nn.utils.get_total_norm(gradients)
    if float(norm) > largest:
        for gradient in gradients:
            gradient.mul_(largest / norm)
    return sound


def moments(optimizer: torch.optim.Optimizer) -> dict[str, dict[str, torch.Tensor]]:
    """What an optimiser keeps for the next round, all of it finite, and on the CPU."""
    kept = {
        str(i): {name: slot.cpu() for name, slot in optimizer.state[p].items() if slot is not None}
        for i, p in enumerate(_parameters(optimizer))
        if p in optimizer.state
    }
    if all_are_finite(slot for slots in kept.values() for slot in slots.values()):
        return kept
    return {i: finite_moments(slots) for i, slots in kept.items()}


def restore(optimizer: torch.optim.Optimizer, moments: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
    """Gives a fresh optimiser a copy of a state: its steps change what it holds, and a memory may go back."""
    parameters = _parameters(optimizer)
    for i, slots in moments.items():
        p = parameters[int(i)]
        optimizer.state[p] = {
            name: slot.to(p.device, torch.float32 if name == "step" else p.dtype, copy=True)
            for name, slot in slots.items()
        }


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]
