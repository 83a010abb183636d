"""FedEgo's clients: they train, mash ego-graphs, check what the server hands out, and mix it in."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fedego.settings import FedEgoSettings
from secure_fedgraph.algorithms.fedego.state import EgoModel, Mashes
from secure_fedgraph.algorithms.training.local_training import fit
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.graph.sample.ego_graphs import drop_repeats, ego_table, levels
from secure_fedgraph.models.ego.mash import class_shares, coefficient, mash, one_hot
from secure_fedgraph.models.ego.model import REDUCTION
from secure_fedgraph.models.finite import finite
from secure_fedgraph.models.parameters import parameters_of
from secure_fedgraph.seams import ClientContext

MODEL, EGO_GRAPHS = "model", "egos"
"""Entries of a client's memory: its model, and its table of ego-graphs, which is drawn once."""
_TRAINED = "trained"


def check_pool(graph: Data, name: str, batch: int) -> None:
    """That there is one whole mash at least.

    Raises:
        BadInput: where there is none; how many there are stays out of a sentence that others may read.
    """
    if int(graph.train_mask.sum()) < batch:
        raise BadInput(
            f"training.batch = {batch} is more than the training nodes of {name}, and a mash mixes that many "
            "nodes: lower it, or use fewer clients"
        )


def check_seed(client: ClientContext, seed: object) -> int:
    """The public seed, for a client that has no model yet.

    Raises:
        HostileMessage: for what is no seed.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**62:
        raise HostileMessage(f"{client.name} has no model yet and was given no seed to start from")
    return seed


def check_parameters(given: State, own: State) -> None:
    """That given parameters fit one's own.

    Raises:
        HostileMessage: for other names, shapes or values that are not finite.
    """
    if given.keys() != own.keys():
        raise HostileMessage(f"parameters do not fit: {sorted(given.keys() ^ own.keys())[:3]} differ")
    for name, value in given.items():
        fits = isinstance(value, Tensor) and value.dtype == own[name].dtype and value.shape == own[name].shape
        if not fits or not bool(torch.isfinite(value).all()):
            raise HostileMessage(f"parameter {name!r} has another shape or values that are not finite")


def train(client: ClientContext, model: nn.Module, settings: FedEgoSettings) -> None:
    """A round of training on ego-graphs; the client keeps the model."""
    if EGO_GRAPHS not in client.memory:
        client.memory[EGO_GRAPHS] = ego_table(
            client.graph, settings.fanout, generator=client.generator("egos"), slots=settings.slots
        ).to(torch.int32)
    table = client.memory[EGO_GRAPHS]
    redrawn = settings.redraw and settings.slots == "sampled"
    fit(
        client,
        client.graph,
        model,
        settings,
        trees=None if redrawn else lambda rows: levels(table[rows].long(), settings.fanout),
    )
    client.memory[MODEL] = parameters_of(model)
    client.scratch[_TRAINED] = True


def has_trained(client: ClientContext) -> bool:
    """Whether it has in this round already."""
    return _TRAINED in client.scratch


def ego_graphs(client: ClientContext, centres: Tensor, positions: int, settings: FedEgoSettings) -> Tensor:
    """``[mashes, n, positions]``: who stands where around the centres of each batch; -1 for nobody.

    Args:
        centres: ``[mashes, n]`` nodes; -1 where a batch is short.
    """
    rows = client.memory[EGO_GRAPHS][centres.clamp(min=0)].long()[..., :positions]
    rows = torch.where(centres.unsqueeze(-1) < 0, -1, rows)
    return drop_repeats(rows) if settings.once else rows


def mashes_of(client: ClientContext, model: EgoModel, rows: Tensor) -> Mashes:
    """Mean reduced features, and mean labels, of the ego-graphs of each batch (Eq. 8).

    Args:
        rows: ``[mashes, n, positions]`` nodes; -1 for nobody.
    """
    model.eval()
    with torch.no_grad():
        reduced = model.embedded(client.graph.x, client.graph.edge_index)
    labels = one_hot(client.graph.y, client.schema.classes)
    return {"rows": mash(reduced, rows), "labels": mash(labels, rows)}


def share_of_global_layers(client: ClientContext, shares: object, settings: FedEgoSettings) -> float:
    """Which part of the global upper layers a client takes over (Eq. 13 to 15).

    Args:
        shares: ``P_g``, the classes' shares in the mashes, as they were handed out.

    Raises:
        HostileMessage: for what is no distribution over the classes.
    """
    classes = client.schema.classes
    if (
        not isinstance(shares, Tensor)
        or shares.shape != (classes,)
        or not bool(torch.isfinite(shares).all())
        or float(shares.min()) < 0
        or abs(float(shares.sum()) - 1) > 1e-3
    ):
        raise HostileMessage(
            f"{client.name} was given class shares that are no distribution over {classes} classes"
        )
    if settings.mixing != "adaptive":
        return float(settings.mixing)
    return coefficient(class_shares(client.graph.y, classes), shares, settings.gamma)


def mixed(own: State, given: State, share: float) -> State:
    """A client's model, with the given reduction for its own, and a share of the given upper layers."""
    return own | {
        k: v.clone() if k.startswith(REDUCTION) else finite(torch.lerp(own[k], v, share))
        for k, v in given.items()
    }
