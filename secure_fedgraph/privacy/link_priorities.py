"""Priorities of links under a secret key, by which one client samples neighbours."""

from __future__ import annotations

import os

import torch

from secure_fedgraph.core.crypto import KEY_BYTES, scattered


def fresh_key() -> torch.Tensor:
    """A key from the operating system, as a client's memory keeps it."""
    return torch.frombuffer(bytearray(os.urandom(KEY_BYTES)), dtype=torch.uint8)


def link_priorities(key: torch.Tensor, links: torch.Tensor) -> torch.Tensor:
    """One int64 for each link ``[2, E]``: a pseudo-random function of its two ends and of nothing else.

    >>> links, key = torch.tensor([[0, 1, 0], [1, 0, 1]]), fresh_key()
    >>> first, back, again = link_priorities(key, links).tolist()
    >>> first == again != back
    True
    """
    if not links.shape[1]:
        return torch.zeros(0, dtype=torch.int64)
    blocks = links.to(torch.int64).T.contiguous().numpy().tobytes()
    permuted = bytearray(scattered(key.numpy().tobytes(), blocks))
    return torch.frombuffer(permuted, dtype=torch.int64)[::2]
