"""Owners of columns find the rows that all of them have, and agree on an order, without showing the others.

The page ``docs/aligning_rows.md`` has the protocol, who learns what, and what lying gives.
"""

from secure_fedgraph.deployment.alignment.hub import Hub, Member
from secure_fedgraph.deployment.alignment.relay import align_together, relay
from secure_fedgraph.deployment.alignment.result import Alignment
from secure_fedgraph.deployment.alignment.side import Side
from secure_fedgraph.deployment.alignment.terms import STEPS, Letter, Terms, new_alignment

__all__ = [
    "STEPS",
    "Alignment",
    "Hub",
    "Letter",
    "Member",
    "Side",
    "Terms",
    "align_together",
    "new_alignment",
    "relay",
]
