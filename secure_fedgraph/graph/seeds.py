"""A separate seed for each purpose, so that each can be fixed alone."""

from __future__ import annotations

import hashlib


def sub_seed(seed: int, purpose: str) -> int:
    """The seed for one purpose.

    >>> sub_seed(0, "split") == sub_seed(0, "partition")
    False
    """
    return int.from_bytes(hashlib.sha256(f"{seed}/{purpose}".encode()).digest()[:4], "little")
