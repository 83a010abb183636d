"""FedEgo's server: it checks the mashes that arrive, and trains the global upper layers on them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fedego.settings import FedEgoSettings
from secure_fedgraph.algorithms.training.optimizers import moments, optimizer_of, restore
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.ego.mash import mean_shares
from secure_fedgraph.models.ego.model import REDUCTION, EgoSage
from secure_fedgraph.models.parameters import load, parameters_of

# What FedEgo's server keeps between rounds, by name: model, optimiser's moments, seed, class shares.

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
    return {**state, **{k: torch.cat([state[k], v]) if k in state else v for k, v in kept.items()}}


def mashes_in(state: State) -> Mashes:
    """The mashes that a state keeps."""
    return {key: state[_USED_AGAIN + key] for key in MASH_FIELDS}


def concatenated_mashes(
    uploads: Mapping[str, Mapping[str, Tensor]], positions: int, width: int, classes: int
) -> Mashes:
    """All mashes of a round together, each checked.

    Args:
        uploads: by sender.
        positions: of an ego-graph.
        width: of reduced features.

    Raises:
        HostileMessage: for an upload that is no mashes of this shape, naming its sender.
    """
    for sender, upload in uploads.items():
        check_mashes(upload, positions, width, classes, sender)
    return {key: torch.cat([upload[key] for upload in uploads.values()]) for key in MASH_FIELDS}


def check_mashes(upload: Mapping[str, Tensor], positions: int, width: int, classes: int, sender: str) -> None:
    """That an upload holds one mash or more, and nothing else.

    Raises:
        HostileMessage: where it does not.
    """
    sizes = {"rows": width, "labels": classes}
    count = len(upload.get("rows", ()))
    right = (
        count
        and upload.keys() == sizes.keys()
        and all(
            upload[key].shape == (count, positions, size) and bool(torch.isfinite(upload[key]).all())
            for key, size in sizes.items()
        )
    )
    if not right:
        raise HostileMessage(
            f"the mashes of {sender} are not finite ego-graphs of {positions} positions, {width} features "
            f"and {classes} classes"
        )


def train_upper_layers(
    model: EgoSage, state: State, mashes: Mashes, settings: FedEgoSettings, generator: torch.Generator
) -> State:
    """The state after training on the mashes' centres, against their soft labels; the reduction stays.

    Args:
        model: of the state's shape, whatever its parameters.
        generator: draws the mashes of each pass.
    """
    load(model, parameters_in(state))
    for name, p in model.named_parameters():
        p.requires_grad_(not name.startswith(REDUCTION))
    optimizer = optimizer_of(_Trainable(model), settings)
    restore(optimizer, moments_in(state))
    rows, labels = mashes["rows"], mashes["labels"][:, 0]
    drawn = max(1, int(settings.server_share * len(rows)))
    for _ in range(settings.server_epochs):
        for batch in torch.randperm(len(rows), generator=generator)[:drawn].split(settings.batch):
            optimizer.zero_grad()
            F.cross_entropy(model.forward_mash(rows[batch]), labels[batch]).backward()
            optimizer.step()
    return {
        **state,
        **upper_layers_of(parameters_of(model)),
        **from_moments(moments(optimizer)),
        SHARES: mean_shares(mashes["labels"]),
    }


class _Trainable(nn.Module):
    """The trainable part of a model, for an optimiser."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.part = nn.ParameterList(p for p in model.parameters() if p.requires_grad)
