"""Owners of similar size along Louvain communities: the partition of FedSage (Zhang et al. 2021, 5.1).

Four steps: find communities, cut the ones too large for an owner, fill the owners with the pieces in order
of size, and move single nodes until every owner has a few of each class.
"""

from __future__ import annotations

import math
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.answers import answers_of, has_classes
from secure_fedgraph.graph.partition.kept import WORTH_KEEPING, kept_or_made, key_of
from secure_fedgraph.graph.sample.links import undirected_links
from secure_fedgraph.loading import postponed

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = postponed("networkx")
Nodes = NDArray[np.int64]
PER_CLASS = 2
"""Nodes of each class that every owner gets, if the graph has enough."""
MOST_LINKS = 2_000_000
"""Links of the largest graph whose communities networkx looks for: it takes minutes and gigabytes there."""


def assign(
    graph: Data,
    owners: int,
    seed: int,
    delta: float = 20,
    inside: str = "arbitrary",
    restarts: int | None = None,
    classes: bool = True,
) -> Tensor:
    """The owner of every node.

    Args:
        graph: with ``edge_index`` and ``y``.
        owners: number of owners M.
        seed: of Louvain and of the order inside a community that is cut.
        delta: how far an owner's size may stray from N/M, in nodes; at most a quarter of N/M is used,
            which only matters below 80 nodes per owner.
        inside: order in which a too large community is cut: ``arbitrary`` (seeded, as in the paper) or
            ``nearby`` (breadth first, so that fewer links are lost than the paper reports).
        restarts: runs of Louvain; the run whose owners lose the fewest links is used. By default 3 up to
            100,000 links and 1 above. A single run varies widely between seeds.
        classes: whether to make sure that every owner has 2 labelled nodes of each class; training nodes,
            where the graph has a ``train_mask``.

    Returns:
        ``[N]`` owners, 0 to M - 1; every owner has at least one node.
    """
    links = undirected_links(graph.edge_index)
    runs = (3 if links.shape[1] <= 100_000 else 1) if restarts is None else restarts
    check_settings(delta, inside, runs)
    if links.shape[1] > MOST_LINKS:
        raise BadInput(
            f"partition louvain: the graph has {links.shape[1]:,} links, and this search in Python is for "
            f"{MOST_LINKS:,} at most: use partition louvain_compiled, or random"
        )
    nodes = int(graph.num_nodes or 0)
    known = known_labels(graph) if classes else np.full(nodes, -1, dtype=np.int64)

    def make() -> Nodes:
        owner_of = _owners_along(links.numpy(), nodes, owners, seed, delta, inside, runs)
        return repair(owner_of, known, links.numpy(), owners) if classes else owner_of

    if links.shape[1] < WORTH_KEEPING:
        return torch.from_numpy(make())
    settings = {
        "rule": "louvain",
        "owners": owners,
        "seed": seed,
        "delta": float(delta),
        "inside": inside,
        "runs": runs,
        "classes": classes,
        "networkx": metadata.version("networkx"),
    }
    key = key_of(links, known, settings, (Path(__file__),))
    return torch.from_numpy(kept_or_made(key, nodes, owners, make))


def check_settings(delta: float, inside: str, runs: int = 1) -> None:
    """Refuses settings of a partition along communities that are out of range.

    Raises:
        BadInput: naming them.
    """
    if delta < 0 or runs < 1:
        raise BadInput(f"delta is {delta} and restarts is {runs}; give 0 or more nodes and 1 or more runs.")
    if inside not in ("arbitrary", "nearby"):
        raise BadInput(f"inside is {inside!r}; give 'arbitrary' or 'nearby'.")


def known_labels(graph: Data) -> Nodes:
    """``[N]`` the classes that owners learn from: of training nodes, where the graph has a ``train_mask``.

    Where nodes have no class, but numbers or several labels, all are -1.
    """
    if not has_classes(graph):
        return np.full(int(graph.num_nodes or 0), -1, dtype=np.int64)
    masked = graph.get("train_mask") is not None
    labels: Nodes = (answers_of(graph.y, graph.train_mask) if masked else graph.y).numpy()
    return labels


def _owners_along(
    links: Nodes, nodes: int, owners: int, seed: int, delta: float, inside: str, runs: int
) -> Nodes:
    """The owners of the run of Louvain that loses the fewest links."""
    slack = min(float(delta), nodes / owners / 4)
    whole = nx.Graph()
    whole.add_nodes_from(range(nodes))
    whole.add_edges_from(links.T.tolist())
    rng = np.random.default_rng(seed)
    assignments = []
    for run_seed in rng.integers(2**31, size=runs).tolist():
        pieces: list[Nodes] = []
        for community in nx.community.louvain_communities(whole, seed=run_seed):
            members = rng.permutation(np.array(sorted(community), dtype=np.int64))
            if inside == "nearby":
                members = _breadth_first(whole.subgraph(members.tolist()), members)
            size = max(1, int(nodes / owners - slack))
            pieces += [members[start : start + size] for start in range(0, len(members), size)]
        assignments.append(fill(pieces, nodes, owners, slack))
    return min(assignments, key=lambda owner: int((owner[links[0]] != owner[links[1]]).sum()))


def _breadth_first(part: nx.Graph, roots: Nodes) -> Nodes:
    order: dict[int, None] = {}
    for root in roots.tolist():
        if root not in order:
            order.update(dict.fromkeys([root, *(child for _, child in nx.bfs_edges(part, root))]))
    return np.fromiter(order, dtype=np.int64)


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
