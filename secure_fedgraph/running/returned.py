"""What an algorithm returns, checked by type, so that an error names the method and not a line of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from secure_fedgraph.algorithm import Algorithm, State


def as_state(returned: object, algorithm: Algorithm, method: str) -> State:
    """A state of the server, as ``init`` or ``round`` returned it.

    Raises:
        TypeError: for anything but a dict with names as keys.
    """
    if not isinstance(returned, dict) or not all(type(name) is str for name in returned):
        keyed = " with keys other than str" if isinstance(returned, Mapping) else ""
        raise TypeError(
            f"{algorithm.name}: {method} returns the server's state, a dict from names to tensors, and it "
            f"returned {type(returned).__name__}{keyed}"
        )
    return returned
