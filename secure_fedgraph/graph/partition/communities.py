"""Owners of similar size along Louvain communities: the partition of FedSage (Zhang et al. 2021, 5.1).

Four steps: find communities, cut the ones too large for an owner, fill the owners with the pieces in order
of size, and move single nodes until every owner has a few of each class.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.answers import answers_of, has_classes
from secure_fedgraph.graph.data.sources import cache_folder
from secure_fedgraph.graph.data.store import Tables, digest_of, load_or_read
from secure_fedgraph.graph.sample.links import undirected_links
from secure_fedgraph.loading import postponed

if TYPE_CHECKING:
    import networkx as nx
    from scipy import sparse
else:
    nx, sparse = postponed("networkx"), postponed("scipy.sparse")
Nodes = NDArray[np.int64]
PER_CLASS = 2
"""Nodes of each class that every owner gets, if the graph has enough."""
VERSION = 1
"""Of this search; a partition that another one made is made again."""
WORTH_KEEPING = 2_000
"""Links of the smallest graph whose partition is kept: below, making it takes no longer than reading it."""
MOST_LINKS = 2_000_000
"""Links of the largest graph whose communities networkx looks for: it takes minutes and gigabytes there."""


def assign(
    graph: Data,
    owners: int,
    seed: int,
    delta: float = 20,
    restarts: int | None = None,
    classes: bool = True,
    compiled: bool = False,
) -> Tensor:
    """The owner of every node.

    Args:
        graph: with ``edge_index`` and ``y``.
        owners: number of owners M.
        seed: of Louvain and of the order inside a community that is cut.
        delta: how far an owner's size may stray from N/M, in nodes; at most a quarter of N/M is used,
            which only matters below 80 nodes per owner.
        restarts: runs of Louvain; the run whose owners lose the fewest links is used, for a single run varies
            widely between seeds. By default 3 up to 100,000 links (compiled: 1,000,000) and 1 above.
        classes: whether to make sure that every owner has 2 labelled nodes of each class; training nodes,
            where the graph has a ``train_mask``.
        compiled: whether scikit-network searches, which takes graphs of any size. Nodes without a link are
            one community then.

    Returns:
        ``[N]`` owners, 0 to M - 1; every owner has at least one node.

    References:
        Blondel et al., Fast unfolding of communities in large networks, 2008.
    """
    links, nodes = undirected_links(graph.edge_index), int(graph.num_nodes or 0)
    many = links.shape[1] > (1_000_000 if compiled else 100_000)
    runs = (1 if many else 3) if restarts is None else restarts
    if links.shape[1] > MOST_LINKS and not compiled:
        raise BadInput(
            f"partition louvain: the graph has {links.shape[1]:,} links, and this search in Python is for "
            f"{MOST_LINKS:,} at most: use partition louvain_compiled, or random"
        )
    known = _known_labels(graph) if classes else np.full(nodes, -1, dtype=np.int64)

    def make() -> Tables:
        slack = min(float(delta), nodes / owners / 4)
        size = max(1, int(nodes / owners - slack))
        rng = np.random.default_rng(seed)
        search = _by_scikit_network if compiled else _by_networkx
        pairs = links.numpy()
        made = [
            fill(
                [one[at : at + size] for one in found for at in range(0, len(one), size)],
                nodes,
                owners,
                slack,
            )
            for found in search(pairs, nodes, runs, rng)
        ]
        owner_of = min(made, key=lambda owner: int((owner[pairs[0]] != owner[pairs[1]]).sum()))
        return {"owner": repair(owner_of, known, pairs, owners) if classes else owner_of}

    if links.shape[1] < WORTH_KEEPING:
        return torch.from_numpy(make()["owner"])
    library = "scikit-network" if compiled else "networkx"
    settings = [VERSION, library, metadata.version(library), owners, seed, float(delta), runs, classes]
    key = digest_of({"settings": np.array([repr(settings)]), "links": links.numpy(), "known": known})
    folder = cache_folder() / "partitions"
    with suppress(OSError):  # they say which node is whose: nobody else reads them
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return torch.from_numpy(load_or_read(folder / f"{key}.npz", make)[0]["owner"])


def _known_labels(graph: Data) -> Nodes:
    """``[N]`` the classes that owners learn from: of training nodes, where the graph has a ``train_mask``.

    Where nodes have no class, but numbers or several labels, all are -1.
    """
    if not has_classes(graph):
        return np.full(int(graph.num_nodes or 0), -1, dtype=np.int64)
    masked = graph.get("train_mask") is not None
    return (answers_of(graph.y, graph.train_mask) if masked else graph.y).numpy()


def _by_networkx(links: Nodes, nodes: int, runs: int, rng: np.random.Generator) -> Iterator[list[Nodes]]:
    """The communities of each run, nodes in random order."""
    whole = nx.Graph()
    whole.add_nodes_from(range(nodes))
    whole.add_edges_from(links.T.tolist())
    for seed in rng.integers(2**31, size=runs).tolist():
        found = nx.community.louvain_communities(whole, seed=seed)
        yield [rng.permutation(np.array(sorted(one), dtype=np.int64)) for one in found]


def _by_scikit_network(
    links: Nodes, nodes: int, runs: int, rng: np.random.Generator
) -> Iterator[list[Nodes]]:
    """The same by compiled code; not by its Leiden, which draws from C's ``rand()`` whatever the seed is."""
    from sknetwork.clustering import Louvain  # takes a second to import, and few commands hand a graph out

    ends = np.concatenate([links, links[::-1]], axis=1).astype(np.int32)
    once = np.ones(ends.shape[1], dtype=np.float32)
    adjacency = sparse.csr_matrix((once, (ends[0], ends[1])), shape=(nodes, nodes))
    linked = np.flatnonzero(np.diff(adjacency.indptr))
    for _ in range(runs):
        label = np.zeros(nodes, dtype=np.int64)
        if len(linked):
            state = int(rng.integers(2**31))
            search = Louvain(
                shuffle_nodes=True, random_state=state, return_probs=False, return_aggregate=False
            )
            label[linked] = 1 + search.fit_predict(adjacency[linked][:, linked])
        order = rng.permutation(nodes)
        order = order[np.argsort(label[order], kind="stable")]
        yield np.split(order, np.cumsum(np.bincount(label))[:-1])


def fill(pieces: list[Nodes], nodes: int, owners: int, slack: float) -> Nodes:
    """Largest piece first into the current owner; on to the next when it does not fit or is full.

    The published rule leaves two cases open, neither of which occurs on the paper's graphs. Owners filled
    beyond N/M could leave too few nodes for the last ones: a piece that would cause this does not fit. And a
    piece that fits nowhere is cut, to fill up the owner with the fewest nodes.
    """
    share = nodes / owners
    sizes = np.zeros(owners, dtype=np.int64)
    owner_of = np.empty(nodes, dtype=np.int64)
    waiting = sorted(pieces, key=len)
    left, current = nodes, 0
    while waiting:
        piece = waiting.pop()
        lacking = np.maximum(0.0, share - slack - sizes)
        lacking_then = lacking.sum() - lacking + np.maximum(0.0, share - slack - sizes - len(piece))
        fits = (sizes < share) & (sizes + len(piece) < share + slack) & (lacking_then <= left - len(piece))
        if fits.any():
            current = int((current + np.argmax(np.roll(fits, -current))) % owners)
        else:
            current = int(sizes.argmin())
            room = math.ceil(share) - int(sizes[current])
            if len(piece) > room:
                waiting.append(piece[room:])
                piece = piece[:room]
        sizes[current] += len(piece)
        left -= len(piece)
        owner_of[piece] = current
    return owner_of


def repair(owner_of: Nodes, y: Nodes, links: Nodes, owners: int) -> Nodes:
    """Move nodes, one at a time, from the owner with most of a class to one with fewer than ``PER_CLASS``.

    A donor keeps ``PER_CLASS`` of that class. It gives the node whose move loses the fewest links; the
    smallest index breaks ties.
    """
    owner_of = owner_of.copy()
    count = np.zeros((owners, int(y.max()) + 1), dtype=np.int64)
    known = y >= 0
    np.add.at(count, (owner_of[known], y[known]), 1)
    for owner, label in np.argwhere(count < PER_CLASS):
        while count[owner, label] < PER_CLASS:
            donor = int(count[:, label].argmax())
            if count[donor, label] <= PER_CLASS:
                break
            candidate = (owner_of == donor) & (y == label)
            lost = np.zeros(len(y))
            for here, there in (links, links[::-1]):
                near = candidate[here]
                other_end = owner_of[there[near]]
                lost += np.bincount(
                    here[near], (other_end == donor) - 1.0 * (other_end == owner), minlength=len(y)
                )
            candidates = np.flatnonzero(candidate)
            moved = candidates[lost[candidates].argmin()]
            owner_of[moved] = owner
            count[donor, label] -= 1
            count[owner, label] += 1
    return owner_of
