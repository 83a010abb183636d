"""Every layer aggregated, every link at every client."""

from __future__ import annotations

from typing import ClassVar

from secure_fedgraph.algorithms.glasu.algorithm import Glasu
from secure_fedgraph.algorithms.glasu.settings import GlasuSettings


class GlasuSimulated(Glasu):
    """GLASU with every layer aggregated and every link at every client: centralised training by messages.

    What FedVGCN (Ni et al. 2021) computes, under whatever protection the policy gives its sums.
    """

    name = "glasu-simulated"
    summary = "every layer aggregated, every client has all links"
    partitions: ClassVar[tuple[str, ...]] = ("vertical_all_links", "vertical")

    class Settings(GlasuSettings):
        """GLASU's, with every layer aggregated."""

        aggregated: tuple[int, ...] = (1, 2, 3, 4)

        @classmethod
        def usual(cls, layers: int) -> tuple[int, ...]:
            """Every layer."""
            return tuple(range(1, layers + 1))

    settings: Settings
