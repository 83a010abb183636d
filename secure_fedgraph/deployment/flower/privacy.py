"""What a run spent, in Flower's own words: for those who read its reports. Our ledgers stay the authority."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from secure_fedgraph.core.spending.ledger import Charge
from secure_fedgraph.deployment.flower.releases import check_flower
from secure_fedgraph.privacy.spent import spent

if TYPE_CHECKING:
    from flwr.serverapp import PrivacySpent

UNIT, READER = "client", "server"
"""Flower accounts for whole clients, against whoever reads the aggregate."""


def privacy_spent(charges: Sequence[Charge], delta: float) -> PrivacySpent:
    """What the most exposed silo spent, for one client against the server.

    Epsilon is infinite where something left without noise. Other units, readers and relations have no place
    in Flower's report: ``result.json`` has them.

    Args:
        charges: of one run, from the silos' reports.
        delta: the failure probability.

    Raises:
        BadInput: where Flower is missing or of another release, or for a delta outside (0, 1).
    """
    check_flower()
    from flwr.serverapp import PrivacySpent

    figure = spent(charges, delta, 1, (UNIT,))[UNIT][READER]
    most = max(
        (sum(one.client == name for one in charges) for name in {one.client for one in charges}), default=0
    )
    return PrivacySpent(
        epsilon=figure.epsilon, delta=delta, num_releases=most, accounting_method=figure.accountant
    )
