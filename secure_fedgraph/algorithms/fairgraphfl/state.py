"""What FairGraphFL's server keeps from round to round, by name; parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from secure_fedgraph.algorithm import State
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.models.gin import CONVOLUTIONS

OWN = "fair."
"""What the names of entries begin with that are neither a parameter nor a prototype."""
SEED, AGENTS, LABELS = "fair.seed", "fair.agents", "fair.labels"
VALUES, PAYOFFS, ALIGNMENT, DIVERSITY = "fair.values", "fair.payoffs", "fair.alignment", "fair.diversity"
VOCABULARY, PRESENT, SIZES = "fair.vocabulary", "fair.present", "fair.sizes"
"""The vocabulary of motifs ``[motifs, width]``, who lists which ``[agents, motifs]``, and training graphs."""
PROTOTYPES, KNOWN = "prototypes", "known"
"""``[motifs, hidden]``, and which of them there are; agents are given both under these names."""


def parameters_in(state: State) -> State:
    """The global model."""
    return {k: v for k, v in state.items() if not k.startswith(OWN) and k not in (PROTOTYPES, KNOWN)}


def convolutions_of(parameters: State) -> State:
    """The convolutions' parameters."""
    return {k: v for k, v in parameters.items() if k.startswith(CONVOLUTIONS)}


def names_to_tensor(names: Sequence[str]) -> Tensor:
    """Agents' names as a state holds them: text in UTF-8, one a line, ``[bytes]`` uint8.

    >>> names_from_tensor(names_to_tensor(("a", "b")))
    ['a', 'b']
    """
    return torch.tensor(list("\n".join(names).encode()), dtype=torch.uint8)


def names_from_tensor(text: Tensor) -> list[str]:
    """The names that :func:`names_to_tensor` wrote."""
    return bytes(text.tolist()).decode().split("\n")


def flatten(parameters: State) -> Tensor:
    """``[D]``: all parameters as one vector."""
    return torch.cat([p.reshape(-1) for p in parameters.values()])


def numbers_in(values: Mapping[str, Tensor], key: str, shape: tuple[int, ...], whose: str) -> Tensor:
    """An entry of an upload.

    Args:
        whose: it is, for the refusal.

    Raises:
        HostileMessage: for one of another shape, or with values that are not finite.
    """
    found = values.get(key)
    if not isinstance(found, Tensor) or found.shape != shape or not bool(found.isfinite().all()):
        raise HostileMessage(f"{whose}: {key!r} is not {' x '.join(map(str, shape))} finite numbers")
    return found


def vector_of(upload: Mapping[str, Tensor], like: State, name: str) -> Tensor:
    """``[D]``: an upload's parameters as one vector, in the order of ``like``.

    Args:
        like: the parameters that it is an update of.
        name: whose upload it is, for the refusal.

    Raises:
        HostileMessage: for other names, shapes, or values that are not finite.
    """
    if upload.keys() != like.keys():
        raise HostileMessage(f"the update of {name} is not one of these parameters")
    return torch.cat([numbers_in(upload, k, v.shape, name).reshape(-1) for k, v in like.items()])


def add_vector(parameters: State, step: Tensor) -> State:
    """Parameters plus a vector over all of them."""
    pieces = step.split([p.numel() for p in parameters.values()])
    return {k: v + piece.reshape(v.shape) for (k, v), piece in zip(parameters.items(), pieces, strict=True)}
