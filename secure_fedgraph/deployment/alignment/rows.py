"""The digest of many names of rows in their order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


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
