"""FedEgo's server: it checks the mashes that arrive, and trains the global upper layers on them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fedego.settings import FedEgoSettings
from secure_fedgraph.algorithms.fedego.state import (
    MASH_FIELDS,
    SHARES,
    Mashes,
    from_moments,
    moments_in,
    parameters_in,
    upper_layers_of,
)
from secure_fedgraph.algorithms.training.optimizers import moments, optimizer_of, restore
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.models.ego.mash import mean_shares
from secure_fedgraph.models.ego.model import REDUCTION, EgoSage
from secure_fedgraph.models.parameters import load, parameters_of


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
    model: EgoSage,
    state: State,
    mashes: Mashes,
    settings: FedEgoSettings,
    generator: torch.Generator,
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
