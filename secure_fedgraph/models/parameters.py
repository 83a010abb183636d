"""Parameters as named tensors: what states are made of and uploads carry."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from secure_fedgraph.errors import BadInput, HostileMessage

Parameters = dict[str, torch.Tensor]


def parameters_of(model: nn.Module) -> Parameters:
    """A copy of a model's trainable parameters."""
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def load(model: nn.Module, params: Mapping[str, torch.Tensor]) -> None:
    """Copies parameters into a model.

    Raises:
        HostileMessage: for parameters of another model: other names, shapes, or values not finite.
    """
    own = dict(model.named_parameters())
    if own.keys() != params.keys():
        raise HostileMessage(f"parameters do not fit: {sorted(own.keys() ^ params.keys())[:3]} differ")
    for name, p in own.items():  # all of them before the first is copied: a refused load changes nothing
        value = params[name]
        if not isinstance(value, torch.Tensor) or value.shape != p.shape or not torch.isfinite(value).all():
            raise HostileMessage(f"parameter {name!r} has another shape or values that are not finite")
    with torch.no_grad():
        for name, p in own.items():
            p.copy_(params[name])


def difference(after: Mapping[str, torch.Tensor], before: Mapping[str, torch.Tensor]) -> Parameters:
    """``after - before``, name by name."""
    return {name: after[name] - before[name] for name in before}


def total(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> Parameters:
    """``first + second``, name by name."""
    return {name: first[name] + second[name] for name in first}


def glorot(model: nn.Module, seed: int) -> None:
    """Glorot-uniform matrices and zero biases, from a seed.

    Raises:
        BadInput: for a parameter of more than two dimensions, which needs a rule of its own.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 2:
                nn.init.xavier_uniform_(p, generator=generator)
            elif p.dim() < 2:
                p.zero_()
            else:
                raise BadInput(f"parameter {name!r} has {p.dim()} dimensions: initialise this model yourself")
