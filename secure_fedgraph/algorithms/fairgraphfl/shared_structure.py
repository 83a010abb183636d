"""Diversity that noise cannot earn (``diversity=shared``): triangles above chance, by distinct pieces."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from secure_fedgraph.algorithms.fairgraphfl import fairness
from secure_fedgraph.algorithms.fairgraphfl.channels import FINGERPRINTS, SHARE, STRUCTURE
from secure_fedgraph.algorithms.fairgraphfl.settings import FairGraphFLSettings
from secure_fedgraph.algorithms.fairgraphfl.state import numbers_in
from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.inputs import Expected, Numbers
from secure_fedgraph.core.upload import ContributionRows
from secure_fedgraph.graph.colours import Colours
from secure_fedgraph.graph.sample.packing import select_graphs
from secure_fedgraph.graph.triangles import Pieces, pieces_with_triangles
from secure_fedgraph.seams import ClientContext, RoundApi

PRINTS, TRIANGLES = "prints", "triangles"
DIGITS = 4
"""Parts of a fingerprint, each a whole number below 2^16: exact in the float32 in which uploads travel."""
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
    found = [numbers_in(one, TRIANGLES, (1, 1), name).reshape(()) for name, one in uploads.items()]
    structure = torch.stack(found).double()
    shares = fairness.shares(structure)
    return shares if float(shares.sum()) > 0 else torch.full_like(shares, 1 / len(shares))


# --- in an agent


def structure(client: ClientContext, settings: FairGraphFLSettings) -> ContributionRows:
    """The worth of the agent's distinct pieces, one row a training graph.

    A piece that is in several of its graphs counts once, in the one where it is worth most. So one graph less
    moves the sum by what that graph is worth, at most 1, whatever the others are. A piece that c agents hold
    counts 1 / c with each, where agents know each other's fingerprints.
    """
    pieces, graphs = _own_pieces(client)
    prints, place = np.unique(pieces.fingerprint, return_inverse=True)
    order = np.lexsort((-pieces.worth, place))  # print by print, the occurrence that is worth most first
    best = order[np.searchsorted(place[order], np.arange(len(prints)))]
    elsewhere = client.memory.get(_COPIES)
    if settings.copies == "own" or elsewhere is None:
        elsewhere = torch.zeros(len(prints))
    counted = pieces.worth[best] / (1 + elsewhere.numpy())
    worth = torch.from_numpy(np.bincount(pieces.graph[best], counted, minlength=graphs).astype(np.float32))
    return ContributionRows({TRIANGLES: SHARE * worth[:, None]}, torch.ones(graphs, 1))


def own_fingerprints(client: ClientContext) -> dict[str, Tensor]:
    """``[pieces, 4]`` of the distinct pieces of the agent's training graphs, for the others."""
    client.memory[PRINTS] = _as_numbers(np.unique(_own_pieces(client)[0].fingerprint))
    return {PRINTS: client.memory[PRINTS].float()}


def expected_fingerprints() -> Expected:
    """The form of other agents' fingerprints."""
    return ({PRINTS: Numbers((None, DIGITS))},)


def count_copies(client: ClientContext, others: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Keeps how many other agents hold each of the agent's pieces.

    Raises:
        HostileMessage: before the agent sent its own.
    """
    own = client.memory.get(PRINTS)
    if own is None:
        raise HostileMessage(f"{client.name} was given fingerprints before it was asked for its own")
    keys = _keys(own)
    held = [torch.isin(keys, _keys(values[PRINTS].round().long())) for values in others.values()]
    client.memory[_COPIES] = torch.stack([torch.zeros(len(keys)), *(one.float() for one in held)]).sum(0)


def _own_pieces(client: ClientContext) -> tuple[Pieces, int]:
    """The pieces of the agent's training graphs, and how many graphs those are."""
    rows = client.graph.train_mask.nonzero().flatten()
    return pieces_with_triangles(select_graphs(client.graph, rows)), len(rows)


def _as_numbers(prints: Colours) -> Tensor:
    """``[pieces, 4]``: 64 bits as four whole numbers."""
    digits = prints.astype("<u8").view("<u2").reshape(len(prints), DIGITS)
    return torch.from_numpy(digits.astype(np.int64))


def _keys(prints: Tensor) -> Tensor:
    """``[pieces]``: a fingerprint as one whole number."""
    return (prints.long() * (2 ** (16 * torch.arange(DIGITS)))).sum(1)
