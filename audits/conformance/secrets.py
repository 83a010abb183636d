"""Whether a key, a party or a client can be reached from some objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secure_fedgraph.client import Client
from secure_fedgraph.core.crypto import Secret
from secure_fedgraph.core.protection.party import Party

SECRET = (Secret, Party, Client, Ed25519PrivateKey, X25519PrivateKey)
_PLAIN = (str, bytes, bytearray, memoryview, int, float, complex, type(None), np.ndarray, torch.Tensor)


def secrets_in(places: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(place, type's name) for every secret that is reachable: attributes, containers and closures."""
    for place, root in places.items():
        seen, waiting = set(), [root]
        while waiting:
            thing = waiting.pop()
            if id(thing) in seen or isinstance(thing, (*_PLAIN, type, ModuleType)):
                continue
            seen.add(id(thing))
            if isinstance(thing, SECRET):
                yield place, type(thing).__name__
                continue
            waiting.extend(_within(thing))


def _within(thing: Any) -> Iterator[Any]:
    if isinstance(thing, Mapping):
        yield from thing.keys()
        yield from thing.values()
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from thing
    elif isinstance(thing, FunctionType):
        yield from thing.__closure__ or ()
        yield from thing.__defaults__ or ()
    elif isinstance(thing, MethodType):
        yield thing.__self__
    elif isinstance(thing, CellType):
        try:
            yield thing.cell_contents
        except ValueError:  # not filled yet
            return
    yield from vars(thing).values() if hasattr(thing, "__dict__") else ()
    for kind in type(thing).__mro__:
        for slot in getattr(kind, "__slots__", ()):
            if isinstance(slot, str) and not slot.startswith("__") and hasattr(thing, slot):
                yield getattr(thing, slot)
