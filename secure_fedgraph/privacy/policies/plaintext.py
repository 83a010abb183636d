"""No protection: the baseline."""

from __future__ import annotations

from secure_fedgraph.core.carriers.plain import Plain
from secure_fedgraph.core.protection.binding import Protection
from secure_fedgraph.privacy.policies.recipe import by_reader, recipe
from secure_fedgraph.privacy.policy import Policy


@recipe
def plaintext() -> Policy:
    """Nothing: the server sees every upload. The baseline that shows what there is to protect."""
    nothing = Protection(Plain(), name="plaintext")
    return by_reader("plaintext", nothing, nothing)
