"""Tensors on the device that trains, copied there once."""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput

CPU = torch.device("cpu")
DEVICES = ("cpu", "cuda")
_COPIES = WeakIdKeyDictionary()
"""A tensor that is in use -> how often it was changed in place, and its copy on another device."""


def check_device(device: object) -> None:
    """That a device has a known name and is there.

    Raises:
        BadInput: for another name, and for ``cuda`` where torch sees no GPU.
    """
    if device not in DEVICES:
        raise BadInput(f"device = {repr(device)[:40]}: use one of the texts {', '.join(DEVICES)}")
    if device == "cuda" and not torch.cuda.is_available():
        why = (
            "torch sees no GPU" if torch.version.cuda else f"torch {torch.__version__} is built without CUDA"
        )
        raise BadInput(f"device = 'cuda': {why}; use cpu, or a machine and a torch that have one")


def copied_to(device: torch.device, tensor: Tensor) -> Tensor:
    """A tensor on a device: itself where it lies there.

    The copy is made once for as long as the tensor is in use and stays as it is, so what is kept for the copy
    (a table of neighbours, rows by their non-zeros) is found again in the next round.
    """
    if tensor.device.type == device.type:
        return tensor
    version, made = _COPIES.get(tensor, (None, None))
    if made is None or version != tensor._version or made.device.type != device.type:
        made = tensor.to(device)
        _COPIES[tensor] = tensor._version, made
    there: Tensor = made
    return there


def placed(graph: Data, device: torch.device) -> Data:
    """A graph whose tensors lie on a device: itself on the CPU, where all graphs are held."""
    if device.type == CPU.type:
        return graph
    made = copy.copy(graph)
    for key, value in graph.to_dict().items():
        if isinstance(value, Tensor):
            made[key] = copied_to(device, value)
    return made
