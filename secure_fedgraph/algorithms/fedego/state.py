"""What FedEgo's server keeps between rounds, by name: model, optimiser's moments, seed, class shares."""

from __future__ import annotations

import torch
from torch import Tensor

from secure_fedgraph.algorithm import State
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.ego.model import REDUCTION

SEED, SHARES = "seed", "shares"
"""Entries: the public seed that all clients start from, and the mean label of the mashes (``P_g``)."""
_MOMENTS, _USED_AGAIN = "adam.", "released."

Mashes = dict[str, Tensor]
"""``rows`` ``[mashes, positions, width]`` and ``labels`` ``[mashes, positions, classes]``."""
MASH_FIELDS = ("rows", "labels")


def parameters_in(state: State) -> State:
    """The model's parameters, without whatever else a state holds."""
    beside = (SEED, SHARES)
    return {k: v for k, v in state.items() if k not in beside and not k.startswith((_MOMENTS, _USED_AGAIN))}


def reduction_of(values: State) -> State:
    """The reduction layer's parameters, of a model or of a state."""
    return {k: v for k, v in parameters_in(values).items() if k.startswith(REDUCTION)}


def upper_layers_of(values: State) -> State:
    """The parameters of the layers above the reduction, of a model or of a state."""
    return {k: v for k, v in parameters_in(values).items() if not k.startswith(REDUCTION)}


def schema_of(state: State) -> Schema:
    """Features and classes of the model in a state."""
    reduction = next(v for k, v in state.items() if k.startswith(REDUCTION) and v.dim() == 2)
    return Schema(reduction.shape[0], state["head.weight"].shape[0])


def from_moments(moments: dict[str, dict[str, Tensor]]) -> State:
    """An optimiser's moments as entries of a state."""
    return {f"{_MOMENTS}{i}.{slot}": v for i, slots in moments.items() for slot, v in slots.items()}


def moments_in(state: State) -> dict[str, dict[str, Tensor]]:
    """An optimiser's moments, copied out of a state; empty before the first round."""
    moments: dict[str, dict[str, Tensor]] = {}
    for key, value in state.items():
        if key.startswith(_MOMENTS):
            _, i, slot = key.split(".")
            moments.setdefault(i, {})[slot] = value.clone()
    return moments


def with_mashes(state: State, mashes: Mashes) -> State:
    """The state, with mashes beside those that it keeps already for later rounds."""
    kept = {_USED_AGAIN + key: value for key, value in mashes.items()}
    return {**state, **{k: _joined(state.get(k), v) for k, v in kept.items()}}


def mashes_in(state: State) -> Mashes:
    """The mashes that a state keeps."""
    return {key: state[_USED_AGAIN + key] for key in MASH_FIELDS}


def _joined(before: Tensor | None, more: Tensor) -> Tensor:
    return more if before is None else torch.cat([before, more])
