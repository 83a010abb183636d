"""What a node's place in its graph looks like: degrees, and returns of random walks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from secure_fedgraph.loading import postponed

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = postponed("scipy.sparse")

WALKS, DEGREES = 16, 16
WIDTH = WALKS + DEGREES
"""Columns of a node's structure."""
_KNOWN = WeakIdKeyDictionary()
"""Links -> their structure: graphs do not change, and every round reads them."""


def known_structure_of(edge_index: Tensor, nodes: int) -> Tensor:
    """As :func:`structure_of`, computed once for each tensor of links."""
    if edge_index not in _KNOWN or len(_KNOWN[edge_index]) != nodes:
        _KNOWN[edge_index] = structure_of(edge_index, nodes)
    found: Tensor = _KNOWN[edge_index]
    return found


def structure_of(edge_index: Tensor, nodes: int) -> Tensor:
    """``[nodes, 32]``: chances that a walk of 1 to 16 steps is back, and the degree (15 or more are one).

    Args:
        edge_index: ``[2, E]`` of a union of graphs; walks stay in theirs.
        nodes: of the union.

    >>> structure_of(torch.tensor([[0, 1], [1, 0]]), 3)[:, [0, 1, 16, 17]].tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0]]
    """
    source, target = edge_index.numpy()
    links = sparse.csr_array((np.ones(len(source)), (source, target)), shape=(nodes, nodes))
    degree = np.asarray(links.sum(axis=1)).ravel()
    step = sparse.diags_array(1 / np.maximum(degree, 1)) @ links
    walked, returns = step, [step.diagonal()]
    for _ in range(WALKS - 1):
        walked = walked @ step
        returns.append(walked.diagonal())
    counted = torch.from_numpy(degree).long().clamp(max=DEGREES - 1)
    one_hot = torch.nn.functional.one_hot(counted, DEGREES).float()
    return torch.cat([torch.from_numpy(np.stack(returns, axis=1)).float(), one_hot], dim=1)
