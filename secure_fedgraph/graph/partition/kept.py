"""Partitions that were made once, kept in the user's cache folder under a digest of all that decides them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data import sources

Nodes = NDArray[np.int64]
MAGIC = b"secure-fedgraph partition 1\n"
WORTH_KEEPING = 2_000
"""Links of the smallest graph whose partition is kept: below, making it takes no longer than reading it."""
MOST = 500
"""Partitions that are kept; the oldest go."""


def key_of(links: torch.Tensor, known: Nodes, settings: Mapping[str, object], code: tuple[Path, ...]) -> str:
    """SHA-256 (hex) of all that decides a partition.

    Args:
        links: ``[2, L]`` as ``undirected_links`` gives them.
        known: ``[N]`` the labels that are looked at.
        settings: owners, seed and the rest, with the version of the library that has the communities.
        code: the files of the rule: a partition of other code is another one.
    """
    digest = hashlib.sha256(MAGIC)
    for file in code:
        with suppress(OSError):  # an installation without source files: its version is in the settings
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    digest.update(repr(sorted(settings.items())).encode())
    for array in (links.numpy(), known):
        digest.update(repr(array.shape).encode())
        digest.update(np.ascontiguousarray(array, dtype="<i8").data)
    return digest.hexdigest()


def kept_or_made(key: str, nodes: int, owners: int, make: Callable[[], Nodes]) -> Nodes:
    """The owner of every node: as kept under the key, else as made, which is then kept.

    Guarantees:
        - a kept file is bytes of fixed layout and never code; one of another length or digest, with an owner
          that does not exist or an owner without a node, or a link in its place, is made again;
        - files are the user's alone (0600): they say which node is whose;
        - a folder that cannot be written only costs time.

    Args:
        key: of :func:`key_of`.
        nodes, owners: how many.
        make: ``-> [N]`` owners, 0 to ``owners`` - 1.
    """
    folder = sources.cache_folder() / "partitions"
    path = folder / key
    with suppress(OSError, BadInput, ValueError):
        content = files.read(path, most=len(MAGIC) + 32 + 4 * nodes, root=folder.parent)
        return _unpacked(content, key, nodes, owners)
    owner_of = make()
    body = np.ascontiguousarray(owner_of, dtype="<i4").tobytes()
    with suppress(OSError, BadInput):
        files.private_folder(folder, _upper(folder))
        files.write(path, [MAGIC, _digest(key, body), body], private=True, sync=False)
        _prune(folder)
    return owner_of


def _upper(folder: Path) -> Path:
    """The cache folder, made where it is missing; its mode is the user's own affair."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder.parent


def _digest(key: str, body: bytes) -> bytes:
    """Of a file's content and its name: one partition's file under another's name is damaged."""
    return hashlib.sha256(key.encode() + body).digest()


def _unpacked(content: bytes, key: str, nodes: int, owners: int) -> Nodes:
    head, body = content[: len(MAGIC) + 32], content[len(MAGIC) + 32 :]
    if len(body) != 4 * nodes or head != MAGIC + _digest(key, body):
        raise ValueError("damaged")
    owner_of = np.frombuffer(body, dtype="<i4").astype(np.int64)
    # before anything is counted: counts take as many places as the largest owner says
    if int(owner_of.min()) < 0 or int(owner_of.max()) >= owners:
        raise ValueError("damaged")
    if not np.bincount(owner_of, minlength=owners).all():
        raise ValueError("damaged")
    return owner_of


def _prune(folder: Path) -> None:
    by_age = sorted(folder.iterdir(), key=lambda one: one.lstat().st_mtime, reverse=True)
    for old in by_age[MOST:]:
        files.remove(old)
