"""FedEgo's clients: they train, mash ego-graphs, check what the server hands out, and mix it in."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fedego.server import Mashes
from secure_fedgraph.algorithms.fedego.settings import FedEgoSettings
from secure_fedgraph.algorithms.training.local_training import fit
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.sample.ego_graphs import ego_table
from secure_fedgraph.models.ego.mash import class_shares, coefficient, mash, one_hot
from secure_fedgraph.models.ego.model import REDUCTION, EgoSage
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


def train(client: ClientContext, model: nn.Module, settings: FedEgoSettings) -> None:
    """A round of training on ego-graphs; the client keeps the model."""
    if EGO_GRAPHS not in client.memory:
        client.memory[EGO_GRAPHS] = ego_table(
            client.graph, settings.fanout, generator=client.generator("egos")
        ).to(torch.int32)
    fit(client, client.graph, model, settings)
    client.memory[MODEL] = parameters_of(model)
    client.scratch[_TRAINED] = True


def has_trained(client: ClientContext) -> bool:
    """Whether it has in this round already."""
    return _TRAINED in client.scratch


def ego_graphs(client: ClientContext, centres: Tensor, positions: int) -> Tensor:
    """``[mashes, n, positions]``: who stands where around the centres of each batch; -1 for nobody.

    Args:
        centres: ``[mashes, n]`` nodes; -1 where a batch is short.
    """
    rows = client.memory[EGO_GRAPHS][centres.clamp(min=0)].long()[..., :positions]
    return torch.where(centres.unsqueeze(-1) < 0, -1, rows)


def mashes_of(client: ClientContext, model: EgoSage, rows: Tensor) -> Mashes:
    """Mean reduced features, and mean labels, of the ego-graphs of each batch (Eq. 8).

    Args:
        rows: ``[mashes, n, positions]`` nodes; -1 for nobody.
    """
    model.eval()
    with torch.no_grad():
        reduced = model.embedded(client.graph.x, client.graph.edge_index)
    labels = one_hot(client.graph.y, client.schema.classes)
    return {"rows": mash(reduced, rows), "labels": mash(labels, rows)}


def share_of_global_layers(client: ClientContext, shares: Tensor, settings: FedEgoSettings) -> float:
    """Which part of the global upper layers a client takes over (Eq. 13 to 15), 1 at most.

    Args:
        shares: ``P_g``, the classes' shares in the mashes, as they were handed out.
    """
    if settings.mixing != "adaptive":
        return float(settings.mixing)
    return coefficient(class_shares(client.graph.y, client.schema.classes), shares, settings.gamma)


def numbered(size: int, settings: FedEgoSettings, order: Callable[[int], Tensor]) -> Tensor:
    """``[mashes, n]`` numbers of a pool of ``size`` training nodes, in whole batches only.

    What is left over of the pool is not mashed. Under ``mash="across"`` everybody makes ``mashes`` of them:
    an order is drawn again when it runs out.

    Args:
        order: draws an order of so many nodes.
    """
    n = settings.batch
    whole = size // n
    wanted = settings.mashes if settings.mash == "across" else whole
    passes = [order(size)[: whole * n].view(whole, n) for _ in range(-(-wanted // whole))]
    return torch.cat(passes)[:wanted]


def mixed(own: State, given: State, share: float) -> State:
    """A client's model, with the given reduction for its own, and a share of the given upper layers."""
    alike = {k: v.to(own[k].dtype) for k, v in given.items()}  # a server may send float64
    return own | {
        k: v.clone() if k.startswith(REDUCTION) else finite(torch.lerp(own[k], v, share))
        for k, v in alike.items()
    }
