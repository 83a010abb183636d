"""Owners of similar size along Louvain communities that compiled code finds: for graphs of any size.

scikit-network's Leiden is not used: it draws from C's ``rand()``, which no seed of its own sets, so the same
seed gave other parts in every call.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.graph.partition import communities
from secure_fedgraph.graph.partition.communities import Nodes, check_settings, fill, known_labels, repair
from secure_fedgraph.graph.partition.kept import WORTH_KEEPING, kept_or_made, key_of
from secure_fedgraph.graph.sample.links import undirected_links
from secure_fedgraph.loading import postponed

if TYPE_CHECKING:
    from scipy import sparse
    from scipy.sparse import csgraph
else:
    sparse, csgraph = postponed("scipy.sparse"), postponed("scipy.sparse.csgraph")


def assign(
    graph: Data,
    owners: int,
    seed: int,
    delta: float = 20,
    inside: str = "arbitrary",
    restarts: int | None = None,
    classes: bool = True,
) -> Tensor:
    """The owner of every node: as ``louvain``'s, but with the communities of scikit-network's Louvain.

    Nodes without a link are one community, which can be cut anywhere. The same seed gives the same parts on
    any number of threads.

    Args:
        graph: with ``edge_index`` and ``y``.
        owners: number of owners M.
        seed: of the order in which Louvain visits nodes, and of the order inside a community that is cut.
        delta: how far an owner's size may stray from N/M, in nodes; at most a quarter of N/M is used.
        inside: order in which a too large community is cut: ``arbitrary`` (seeded) or ``nearby`` (reverse
            Cuthill-McKee, so that fewer links are lost).
        restarts: runs of Louvain; the run whose owners lose the fewest links is used. By default 3 up to
            1,000,000 links and 1 above.
        classes: whether to make sure that every owner has 2 labelled nodes of each class.

    Returns:
        ``[N]`` owners, 0 to M - 1; every owner has at least one node.

    References:
        Blondel et al., Fast unfolding of communities in large networks, 2008.
    """
    links, nodes = undirected_links(graph.edge_index), int(graph.num_nodes or 0)
    runs = (3 if links.shape[1] <= 1_000_000 else 1) if restarts is None else restarts
    check_settings(delta, inside, runs)
    known = known_labels(graph) if classes else np.full(nodes, -1, dtype=np.int64)

    def make() -> Nodes:
        slack = min(float(delta), nodes / owners / 4)
        rng = np.random.default_rng(seed)
        adjacency = _adjacency(links.numpy(), nodes)
        size = max(1, int(nodes / owners - slack))
        made = (fill(_pieces(adjacency, size, rng, inside), nodes, owners, slack) for _ in range(runs))
        low, high = links.numpy()
        owner_of = min(made, key=lambda owner: int((owner[low] != owner[high]).sum()))
        return repair(owner_of, known, links.numpy(), owners) if classes else owner_of

    if links.shape[1] < WORTH_KEEPING:
        return torch.from_numpy(make())
    settings = {
        "rule": "louvain_compiled",
        "owners": owners,
        "seed": seed,
        "delta": float(delta),
        "inside": inside,
        "runs": runs,
        "classes": classes,
        "scikit-network": metadata.version("scikit-network"),
    }
    key = key_of(links, known, settings, (Path(__file__), Path(communities.__file__)))
    return torch.from_numpy(kept_or_made(key, nodes, owners, make))


def _adjacency(links: Nodes, nodes: int) -> sparse.csr_matrix:
    ends = np.concatenate([links, links[::-1]], axis=1).astype(np.int32)
    once = np.ones(ends.shape[1], dtype=np.float32)
    return sparse.csr_matrix((once, (ends[0], ends[1])), shape=(nodes, nodes))


def _pieces(adjacency: sparse.csr_matrix, size: int, rng: np.random.Generator, inside: str) -> list[Nodes]:
    """The communities, each cut into pieces of at most ``size`` nodes."""
    from sknetwork.clustering import Louvain  # takes a second to import, and few commands hand a graph out

    nodes = adjacency.shape[0]
    label = np.zeros(nodes, dtype=np.int64)
    linked = np.flatnonzero(np.diff(adjacency.indptr))
    if len(linked):
        search = Louvain(
            shuffle_nodes=True,
            random_state=int(rng.integers(2**31)),
            return_probs=False,
            return_aggregate=False,
        )
        inner = adjacency if len(linked) == nodes else adjacency[linked][:, linked]
        label[linked] = 1 + search.fit_predict(inner)
    order = rng.permutation(nodes)
    order = order[np.argsort(label[order], kind="stable")]
    pieces: list[Nodes] = []
    for members in np.split(order, np.cumsum(np.bincount(label))[:-1]):
        if inside == "nearby" and len(members) > size:
            own = np.sort(members)
            members = own[csgraph.reverse_cuthill_mckee(adjacency[own][:, own], symmetric_mode=True)]
        pieces += [members[start : start + size] for start in range(0, len(members), size)]
    return pieces
