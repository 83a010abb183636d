"""The names of rows, as text: read the same way by every owner, and the digest of many in their order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from secure_fedgraph.core.errors import BadInput

LONGEST_NAME = 256
"""Bytes of a row's name in UTF-8."""

RowNames = Sequence[str | int] | np.ndarray | torch.Tensor
"""What an owner gives: words or whole numbers, one a row."""


def row_names(given: RowNames, owner: str) -> tuple[str, ...]:
    """An owner's row names as text, as ``federate(rows=...)`` reads them.

    Nothing is changed about a word: ``"7"``, ``"07"`` and ``"7 "`` name three rows.

    Args:
        given: words or whole numbers, each once.
        owner: whose they are, for messages.

    Raises:
        BadInput: for something else, for none, for an empty or too long name, and for one that comes twice.

    >>> row_names([7, "ann"], "bank")
    ('7', 'ann')
    """
    listed: list[object] = [None]
    if isinstance(given, torch.Tensor):
        if given.dim() == 1 and not given.is_floating_point() and not given.is_complex():
            listed = given.tolist()
    elif isinstance(given, list | tuple | np.ndarray):
        listed = list(given)
    if not all(isinstance(one, str | int | np.integer) and not isinstance(one, bool) for one in listed):
        raise BadInput(f"{owner}: the names of the rows are no list of whole numbers or words")
    names = tuple(str(one) for one in listed)
    if not names:
        raise BadInput(f"{owner} has no rows: give a table with at least one")
    seen: set[str] = set()
    for number, name in enumerate(names, 1):
        if name in seen:
            raise BadInput(f"{owner}: {name[:60]!a} names more than one row; give each row once")
        seen.add(name)
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            raise BadInput(f"{owner}: the name of row {number} holds half a character; mend it") from None
        if not 0 < size <= LONGEST_NAME:
            raise BadInput(
                f"{owner}: the name of row {number} has {size} bytes; give 1 to {LONGEST_NAME} of UTF-8"
            )
    return names


def digest_of_rows(context: bytes, salt: bytes, names: Iterable[str]) -> bytes:
    """32 bytes that stand for these names in this order, under a salt that only the owners know.

    Guarantees:
        - other names, another order, number, salt or context give another digest;
        - who lacks the salt cannot try names against the digest.

    >>> digest_of_rows(b"", b"", ["ab", "c"]) == digest_of_rows(b"", b"", ["a", "bc"])
    False
    """
    hashed = hashlib.sha256()
    for part in (b"rows in their order", context, salt, *(name.encode() for name in names)):
        hashed.update(len(part).to_bytes(4, "little") + part)
    return hashed.digest()
