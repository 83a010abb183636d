"""Diversity that noise cannot earn (``diversity=shared``): structure above chance, by distinct graphs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.algorithms.fairgraphfl import fairness
from secure_fedgraph.algorithms.fairgraphfl.channels import FINGERPRINTS, SHARE, STRUCTURE
from secure_fedgraph.algorithms.fairgraphfl.settings import FairGraphFLSettings
from secure_fedgraph.errors import HostileMessage
from secure_fedgraph.loading import postponed
from secure_fedgraph.protocol import Channel, ContributionRows
from secure_fedgraph.protocol.given import Expected, Numbers
from secure_fedgraph.seams import ClientContext, RoundApi

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = postponed("scipy.sparse")

PRINTS, TRIANGLES = "prints", "triangles"
DIGITS = 4
"""Parts of a fingerprint, each a whole number below 2^16: exact in the float32 in which uploads travel."""
ROUNDS = 4
"""Of the colour refinement that a fingerprint is made by."""
_COPIES = "copies elsewhere"


# --- at the server


def channels_of(settings: FairGraphFLSettings) -> tuple[Channel, ...]:
    """What shared diversity sends; nothing for the printed one."""
    if not counts_structure(settings):
        return ()
    return (*((FINGERPRINTS,) if settings.copies == "all" else ()), STRUCTURE)


def counts_structure(settings: FairGraphFLSettings) -> bool:
    """Whether diversity is structure above chance."""
    return settings.use_diversity and settings.diversity == "shared"


def exchange(round: RoundApi, settings: FairGraphFLSettings) -> Tensor:
    """``[agents]`` each one's share of all agents' structure above chance; equal shares where there is none.

    Raises:
        HostileMessage: for a sum that is none.
    """
    if settings.copies == "all":
        round.share(FINGERPRINTS)
    uploads = round.gather(STRUCTURE)
    found = [values.get(TRIANGLES) for values in uploads.values()]
    if not all(isinstance(one, Tensor) and one.numel() == 1 and bool(one.isfinite().all()) for one in found):
        raise HostileMessage("an agent's structure above chance is no finite number")
    structure = torch.stack([one.double().reshape(()) for one in found if one is not None])
    shares = fairness.shares(structure)
    return shares if float(shares.sum()) > 0 else torch.full_like(shares, 1 / len(shares))


# --- in an agent


def structure(client: ClientContext, settings: FairGraphFLSettings) -> ContributionRows:
    """Every distinct training graph's triangles above chance, one row a graph; further copies count nothing.

    A graph that c agents hold counts 1 / c with each, where agents know each other's fingerprints.
    """
    graph = client.graph
    rows = graph.train_mask.nonzero().flatten()
    above = torch.tensor([float(above_chance(*part)) for part in links_of(graph, rows)])
    prints = client.memory.get(PRINTS)
    if prints is None:
        prints = fingerprints(graph, rows)
    _, place = prints.unique(dim=0, return_inverse=True)
    first = torch.zeros(len(rows), dtype=torch.bool)
    first[torch.from_numpy(np.unique(place.numpy(), return_index=True)[1])] = True
    elsewhere = client.memory.get(_COPIES, torch.zeros(len(rows)))
    if settings.copies == "own":
        elsewhere = torch.zeros(len(rows))
    counted = torch.where(first, above / (1 + elsewhere), 0.0)
    return ContributionRows({TRIANGLES: (SHARE * counted)[:, None].float()}, torch.ones(len(rows), 1))


def own_fingerprints(client: ClientContext) -> dict[str, Tensor]:
    """``[graphs, 4]`` of the agent's distinct training graphs, for the others."""
    rows = client.graph.train_mask.nonzero().flatten()
    client.memory[PRINTS] = fingerprints(client.graph, rows)
    return {PRINTS: client.memory[PRINTS].unique(dim=0).float()}


def expected_fingerprints() -> Expected:
    """The form of other agents' fingerprints."""
    return ({PRINTS: Numbers((None, DIGITS))},)


def count_copies(client: ClientContext, others: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Keeps how many other agents hold each of the agent's graphs.

    Raises:
        HostileMessage: before the agent sent its own.
    """
    own = client.memory.get(PRINTS)
    if own is None:
        raise HostileMessage(f"{client.name} was given fingerprints before it was asked for its own")
    keys = _keys(own)
    held = [torch.isin(keys, _keys(values[PRINTS].round().long())) for values in others.values()]
    client.memory[_COPIES] = torch.stack([torch.zeros(len(keys)), *(one.float() for one in held)]).sum(0)


def above_chance(links: np.ndarray, nodes: int) -> Tensor:
    """How many more triangles a graph has than chance gives it: ``(t - e) / (t + e)``, between -1 and 1.

    ``e`` is the mean over all graphs of as many nodes and links. A graph whose links are rewired at random
    has at most 0 in the mean (the ratio is concave in t), and a complete one has 0.

    Args:
        links: ``[2, E]``, both directions.
        nodes: how many there are.

    >>> triangles = np.array([[0, 1, 2, 3, 4, 5], [1, 2, 0, 4, 5, 3]])  # two of them
    >>> round(float(above_chance(np.concatenate([triangles, triangles[::-1]], axis=1), 6)), 2)
    0.39
    """
    between = links[:, links[0] != links[1]]
    ones = np.ones(between.shape[1])
    table = sparse.csr_array((ones, (between[0], between[1])), shape=(nodes, nodes))
    table.data[:] = 1  # double links are one
    triangles = float((table @ table).multiply(table).sum()) / 6
    count, pairs = table.nnz / 2, nodes * (nodes - 1) / 2
    if count < 3 or pairs < 3:
        return torch.tensor(0.0)
    together = count * (count - 1) * (count - 2) / (pairs * (pairs - 1) * (pairs - 2))
    chance = nodes * (nodes - 1) * (nodes - 2) / 6 * together
    return torch.tensor((triangles - chance) / (triangles + chance))


def links_of(graph: Data, rows: Tensor) -> Iterator[tuple[np.ndarray, int]]:
    """Each graph's links ``[2, E]`` between its own nodes, and how many nodes it has.

    Args:
        graph: a union of graphs.
        rows: the numbers of those that are wanted.
    """
    return ((links, len(x)) for x, links in _parts(graph, rows))


def fingerprints(graph: Data, rows: Tensor) -> Tensor:
    """``[graphs, 4]`` whole numbers: equal for graphs that colour refinement cannot tell apart."""
    found = []
    for features, links in _parts(graph, rows):
        colours = [row.tobytes() for row in features]
        for _ in range(ROUNDS):
            near: list[list[bytes]] = [[] for _ in colours]
            for one, other in links.T.tolist():
                near[other].append(colours[one])
            colours = [
                hashlib.blake2b(own + b"".join(sorted(beside)), digest_size=8).digest()
                for own, beside in zip(colours, near, strict=True)
            ]
        whole = hashlib.blake2b(b"".join(sorted(colours)), digest_size=2 * DIGITS).digest()
        found.append(np.frombuffer(whole, dtype="<u2").astype(np.int64))
    return torch.from_numpy(np.stack(found)) if found else torch.zeros(0, DIGITS, dtype=torch.long)


def _parts(graph: Data, rows: Tensor) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Each graph's features ``[n, F]`` and links ``[2, E]`` between its own nodes."""
    x, links, of = graph.x.numpy(), graph.edge_index.numpy(), graph.graph.numpy()
    nodes, edges = np.argsort(of, kind="stable"), np.argsort(of[links[0]], kind="stable")
    node_starts = np.searchsorted(of[nodes], np.arange(len(graph.y) + 1))
    edge_starts = np.searchsorted(of[links[0]][edges], np.arange(len(graph.y) + 1))
    place = np.empty(len(of), dtype=np.int64)
    place[nodes] = np.arange(len(of)) - node_starts[of[nodes]]
    for row in rows.tolist():
        here = nodes[node_starts[row] : node_starts[row + 1]]
        yield x[here], place[links[:, edges[edge_starts[row] : edge_starts[row + 1]]]]


def _keys(prints: Tensor) -> Tensor:
    """``[graphs]``: a fingerprint as one whole number."""
    keys: Tensor = (prints.long() * (2 ** (16 * torch.arange(DIGITS)))).sum(1)
    return keys
