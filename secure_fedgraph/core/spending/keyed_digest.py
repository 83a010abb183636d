"""Digests under a key that the owner keeps: it recognises the same data, and nobody else can test a guess.

A plain digest of private data confirms a guess: whoever knows all of a graph but one link tries both.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from contextlib import suppress
from pathlib import Path

from secure_fedgraph.core import files
from secure_fedgraph.core.crypto import KEY_BYTES
from secure_fedgraph.core.errors import BadInput

KEYED = "keyed:"
"""What a keyed digest begins with."""


def keyed(key: bytes, digest: str) -> str:
    """HMAC-SHA-256 of a digest, with a prefix of its own.

    >>> keyed(bytes(32), "d") == keyed(bytes(32), "d") != keyed(bytes(31) + b"1", "d")
    True
    """
    return KEYED + hmac.new(key, digest.encode(), hashlib.sha256).hexdigest()


def kept_key(path: Path) -> bytes:
    """The key in a file that only its owner reads; made from the operating system's randomness where none is.

    Raises:
        BadInput: for a link, or a file that holds no key.
        OSError: where the system refuses.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.urandom(8).hex()}")
    try:
        if not os.path.lexists(path):
            files.write(draft, [os.urandom(KEY_BYTES)], private=True)
            with suppress(FileExistsError):
                os.link(draft, path)  # whole or not at all, and never over another process's
    finally:
        draft.unlink(missing_ok=True)
    if path.is_symlink() or not path.is_file() or path.stat().st_size != KEY_BYTES:
        raise BadInput(
            f"{path} holds no key of {KEY_BYTES} bytes: put the owner's back, or use another folder"
        )
    return path.read_bytes()
