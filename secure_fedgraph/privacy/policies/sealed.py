"""End-to-end encryption between peers."""

from __future__ import annotations

from secure_fedgraph.core.carriers.plain import Plain
from secure_fedgraph.core.carriers.sealed import Sealed
from secure_fedgraph.core.protection.binding import Protection
from secure_fedgraph.privacy.policies.recipe import by_reader, recipe
from secure_fedgraph.privacy.policy import Policy


@recipe
def sealed() -> Policy:
    """End-to-end encryption between peers: the server sees sizes. The reader sees every upload."""
    return by_reader("sealed", None, Protection(Sealed(Plain()), name="sealed"))
