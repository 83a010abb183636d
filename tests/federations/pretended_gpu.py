"""A GPU that is not there: tensors that say they lie on ``cuda:0``, and are refused beside those of the CPU.

Each holds its values on the CPU, so an operation gives what it would give there, bit for bit, and one that
depends on values goes through. What a real GPU refuses is refused: tensors of two devices in one operation,
NumPy's view of a tensor, a generator of another device than what it fills.

What it cannot show: a kernel that a GPU does not have, other roundings, memory, speed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map

from secure_fedgraph.models import user_models

GPU, CPU = torch.device("cuda:0"), torch.device("cpu")
MOVES = ("aten::copy_", "aten::_to_copy")
"""The operations that take tensors of two devices."""
TOGETHER = ("aten::cat", "aten::stack", "aten::_fused_adam_")
"""Those that take no number of the CPU beside tensors of a GPU either."""


class OnGpu(torch.Tensor):
    """A tensor that says that it lies on the GPU."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> OnGpu:
        strides = held.stride() if held.layout is torch.strided else None
        # to C++ it is of "meta", whose gradients need no driver
        made: OnGpu = torch.Tensor._make_wrapper_subclass(
            cls, held.size(), strides=strides, dtype=held.dtype, device="meta"
        )
        made.held = held
        return made

    @property
    def device(self) -> torch.device:
        return GPU

    @property
    def is_cuda(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"OnGpu({self.held})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return run(func, args, kwargs or {})


class PretendedGpu(TorchDispatchMode):
    """While it is entered there is a GPU. It counts the operations on it, and those beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: Counter[str] = Counter()
        self.beside: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = run(func, args, kwargs or {})
        there = any(isinstance(one, OnGpu) for one in tree_flatten((args, kwargs, made))[0])
        (self.ran if there else self.beside)[func._schema.name] += 1
        return made


class _Numbered(TorchFunctionMode):
    """``cuda`` is ``cuda:0``: torch would ask a driver which."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        return func(*tree_map(_numbered, tuple(args)), **tree_map(_numbered, dict(kwargs or {})))


def _numbered(value: Any) -> Any:
    named = isinstance(value, str | torch.device) and str(value) == "cuda"
    return GPU if named else value


def run(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """An operation as on a machine with a GPU.

    Raises:
        RuntimeError: for tensors of two devices, or a generator of another than the result's.
    """
    name = func._schema.name
    flat = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, torch.Tensor)]
    there = any(isinstance(one, OnGpu) for one in flat)
    here = [one for one in flat if not isinstance(one, OnGpu)]
    if there and name not in MOVES and any(one.dim() or name in TOGETHER for one in here):
        raise RuntimeError(f"{name}: expected all tensors to be on the same device, cuda:0 and cpu")
    asked = kwargs.get("device")
    on_gpu = there if asked is None else torch.device(asked).type in ("cuda", "meta")
    if on_gpu and kwargs.get("generator") is not None:
        raise RuntimeError(f"{name}: expected a 'cuda' device type for generator but found 'cpu'")
    held = tree_map(_held, dict(kwargs))
    if asked is not None:
        held["device"] = CPU
    result = func(*tree_map(_held, tuple(args)), **held)
    if name == "aten::copy_":
        return args[0]
    if not on_gpu:
        return result
    wrapped = tree_map(lambda one: OnGpu(one) if isinstance(one, torch.Tensor) else one, result)
    return return_and_correct_aliasing(func, args, dict(kwargs), wrapped) if there else wrapped


def _held(value: Any) -> Any:
    return value.held if isinstance(value, OnGpu) else value


@contextmanager
def pretended_gpu() -> Iterator[PretendedGpu]:
    """A machine with a GPU, as far as this package can tell."""
    states = [torch.zeros(16, dtype=torch.uint8)]
    with pytest.MonkeyPatch.context() as patch:
        if not torch.cuda.is_available():
            patch.setattr(torch.cuda, "is_available", lambda: True)
            patch.setattr(torch.cuda, "_lazy_init", lambda: None)
        patch.setattr(torch.cuda, "get_rng_state", lambda device: states[-1])
        patch.setattr(torch.cuda, "set_rng_state", lambda state, device: states.append(state))
        patch.setattr(
            user_models, "_state_of", lambda seed, device: torch.Generator().manual_seed(seed).get_state()
        )
        with _Numbered(), PretendedGpu() as gpu:
            yield gpu
