"""FedBCD: vertical learning without a graph."""

from __future__ import annotations

import torch

from secure_fedgraph.algorithms.glasu.algorithm import Glasu
from secure_fedgraph.algorithms.glasu.settings import GlasuSettings
from secure_fedgraph.algorithms.glasu.variants.one_label_holder import GlasuOneLabelHolder
from secure_fedgraph.graph.sample.trees import NeighbourTable
from secure_fedgraph.seams import ClientContext


class FedBCD(Glasu):
    """Vertical learning without a graph: links are ignored, and the last layer is aggregated.

    References:
        Liu et al., FedBCD: A Communication-Efficient Collaborative Learning Framework for Distributed
        Features, IEEE Transactions on Signal Processing 2022 (the parallel version).
    """

    name = "fedbcd"
    summary = "split by columns without a graph; stale updates"
    reference = "Liu et al. 2022"
    hands_links_out = False
    of_one_label_holder = "fedbcd-one-label-holder"

    class Settings(GlasuSettings):
        """GLASU's, with the last layer aggregated only."""

        aggregated: tuple[int, ...] = (4,)

        @classmethod
        def usual(cls, layers: int) -> tuple[int, ...]:
            """The last."""
            return (layers,)

    settings: Settings

    @property
    def hops(self) -> int:
        """No link is followed."""
        return 0

    def table(self, client: ClientContext) -> NeighbourTable:
        """No links."""
        return NeighbourTable(torch.empty(2, 0, dtype=torch.long), int(client.graph.num_nodes))


class FedBCDOneLabelHolder(GlasuOneLabelHolder, FedBCD):
    """FedBCD in which the first client alone holds labels and sends the others its gradient."""

    name = "fedbcd-one-label-holder"
    summary = "FedBCD with labels at one client, which sends the others its gradient"
    reference = "Liu et al. 2022"

    class Settings(FedBCD.Settings, GlasuOneLabelHolder.Settings):
        """FedBCD's, with local gradients unless it is said."""

    settings: Settings
