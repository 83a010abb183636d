"""Parameters and buffers as named tensors: what states are made of and uploads carry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.graph.placing import CPU
from secure_fedgraph.models.finite import all_are_finite, is_finite

Parameters = dict[str, torch.Tensor]
Made = TypeVar("Made", bound=nn.Module)
COUNT_SCALE = 1024.0
"""Whole numbers (the batch counts of normalisation layers) travel divided by this. Weights move by far less
than one; undivided counts would use up the clip, or exceed the range of fixed point."""


class _Blank(nn.Linear):
    """A linear layer that draws no first weights."""

    def reset_parameters(self) -> None:
        """Zeros, and never uninitialised memory: whoever makes it draws the real start."""
        for p in self.parameters():
            nn.init.zeros_(p)


def blank_linear(inputs: int, outputs: int, bias: bool = True) -> nn.Linear:
    """A linear layer of zeros: draw its weights before it is used.

    ``nn.utils.skip_init`` draws none either, and takes some ten times as long, which showed in every round.

    >>> type(blank_linear(2, 3)), blank_linear(2, 3).weight.shape
    (<class 'torch.nn.modules.linear.Linear'>, torch.Size([3, 2]))
    """
    made: nn.Linear = _Blank(inputs, outputs, bias=bias)
    made.__class__ = nn.Linear  # who asks for its type, as Opacus does, sees what it is
    return made


def parameters_of(model: nn.Module) -> Parameters:
    """A copy of a model's parameters and of its persistent buffers.

    >>> sorted(parameters_of(nn.BatchNorm1d(2)))
    ['bias', 'num_batches_tracked', 'running_mean', 'running_var', 'weight']
    """
    return {name: value.detach().clone() for name, value in _shared(model).items()}


def tensors_of(model: nn.Module) -> Parameters:
    """A model's parameters and persistent buffers themselves, not copies: whoever trains it changes them."""
    return {name: value.detach() for name, value in _shared(model).items()}


def load(model: nn.Module, params: Mapping[str, torch.Tensor]) -> None:
    """Copies parameters and persistent buffers into a model.

    A tensor without dimensions may be a plain number, which is what the wire format makes of it.

    Raises:
        HostileMessage: for parameters of another model (other names, shapes or kinds of numbers), or values
            that are not finite.
    """
    # all are checked before the first is copied: a refused load changes nothing
    values = _checked(model, params)
    with torch.no_grad():
        for name, target in _shared(model).items():
            target.copy_(values[name])


def made_over(make: Callable[[], Made], params: Mapping[str, torch.Tensor]) -> Made:
    """The model that ``make`` makes, over these parameters and persistent buffers themselves.

    Nothing is copied, and the model's own first values are never written: a generator of FedSage+ has 60 MB.
    Whoever trains the model changes ``params``: hand in copies then.

    Raises:
        HostileMessage: as :func:`load`.

    >>> kept = {"weight": torch.ones(1, 2), "bias": torch.zeros(1)}
    >>> made_over(lambda: nn.Linear(2, 1), kept).weight.data_ptr() == kept["weight"].data_ptr()
    True
    """
    with torch.device("meta"):
        model = make()
    values = _checked(model, params)
    model.load_state_dict({name: value.detach() for name, value in values.items()}, assign=True)
    return model


@contextmanager
def on_device(model: nn.Module, device: torch.device) -> Iterator[None]:
    """A model on a device, and back on the CPU afterwards, where all that is kept or leaves is made of it."""
    if device.type == CPU.type:
        yield
        return
    model.to(device)
    try:
        yield
    finally:
        model.to(CPU)


def difference(after: Mapping[str, torch.Tensor], before: Mapping[str, torch.Tensor]) -> Parameters:
    """``after - before``, name by name; for whole numbers divided by :data:`COUNT_SCALE`.

    It has the names and shapes of ``before``: a tensor whose shape training has changed did not move. Names
    and shapes travel beside the noise, so they may not depend on what a model was trained on.
    """
    return {
        name: _change(after[name], value) if after[name].shape == value.shape else torch.zeros_like(value)
        for name, value in before.items()
    }


def total(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> Parameters:
    """``first + second``, name by name, where ``second`` is a mean of differences.

    Whole numbers are rounded and keep their type. A running variance is clamped to 0 or more, because noise
    on the sum could make it negative.
    """
    return {name: _moved_by(name, value, second[name]) for name, value in first.items()}


def glorot(model: nn.Module, seed: int) -> None:
    """Glorot-uniform matrices and zero biases, from a seed. Normalisations keep what they start with.

    Raises:
        BadInput: for a parameter of more than two dimensions, which needs a rule of its own.
    """
    generator = torch.Generator().manual_seed(seed)
    norms = [module for module in model.modules() if "Norm" in type(module).__name__]
    kept = {id(p) for norm in norms for p in norm.parameters(recurse=False)}
    with torch.no_grad():
        for name, p in model.named_parameters():
            if id(p) in kept:
                continue
            if p.dim() == 2:
                nn.init.xavier_uniform_(p, generator=generator)
            elif p.dim() < 2:
                p.zero_()
            else:
                raise BadInput(f"parameter {name!r} has {p.dim()} dimensions: initialise this model yourself")


def _checked(model: nn.Module, params: Mapping[str, torch.Tensor]) -> Parameters:
    """The values that a model is to take, by name, once all of them fit and are finite."""
    own = _shared(model)
    if own.keys() != params.keys():
        raise HostileMessage(f"parameters do not fit: {sorted(own.keys() ^ params.keys())[:3]} differ")
    values = {name: _fitting(name, params[name], target) for name, target in own.items()}
    if not all_are_finite(values.values()):
        worst = next(name for name, value in values.items() if not is_finite(value))
        raise _misfit(worst)
    return values


def _shared(model: nn.Module) -> Parameters:
    return {**dict(model.named_parameters()), **_buffers(model)}


def _buffers(model: nn.Module) -> Parameters:
    local = {
        f"{prefix}.{name}".lstrip(".")
        for prefix, module in model.named_modules()
        for name in module._non_persistent_buffers_set
    }
    return {name: value for name, value in model.named_buffers() if name not in local}


def _fitting(name: str, value: object, target: torch.Tensor) -> torch.Tensor:
    if not target.dim() and isinstance(value, bool | int | float):
        within = isinstance(value, float) or -(2**63) <= value < 2**63
        value = torch.tensor(value) if within else None
    if (
        not isinstance(value, torch.Tensor)
        or value.shape != target.shape
        or (value.is_floating_point() and not target.is_floating_point())
    ):
        raise _misfit(name)
    return value.to(target.dtype)  # as it will be: a double may be too large


def _misfit(name: str) -> HostileMessage:
    return HostileMessage(f"parameter {name!r} has another shape, another type or values that are not finite")


def _change(after: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    if before.is_floating_point():
        return after - before
    return (after.double() - before.double()) / COUNT_SCALE


def _moved_by(name: str, value: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    if value.is_floating_point():
        reached = value + step
        return reached.clamp(min=0) if name.rpartition(".")[2] == "running_var" else reached
    whole = (value.double() + COUNT_SCALE * step.double()).round()
    if value.dtype == torch.bool:
        return whole >= 1
    limits = torch.iinfo(value.dtype)
    # the largest int64 is no float64: it would round to 2**63, which overflows
    return whole.clamp(max(limits.min, -(2**62)), min(limits.max, 2**62)).to(value.dtype)
