"""FedEgo with differential privacy for one node: mashes are bounded, so that noise has a finite epsilon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from torch import Tensor

from secure_fedgraph.algorithms.fedego import bounded
from secure_fedgraph.algorithms.fedego.kept_mashes import KeptMashes
from secure_fedgraph.algorithms.fedego.settings import FedEgoNodeSettings
from secure_fedgraph.algorithms.fedego.state import EgoModel
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.ego.model import EgoSage
from secure_fedgraph.protocol import Channel, ContributionTrees
from secure_fedgraph.seams import ClientContext


class FedEgoNode(KeptMashes):
    """FedEgo whose mashes one node moves by a known amount, so that noise on them protects a node.

    Mashes are made from a table of who stands where that is drawn once: stable slots, each node once a mash
    and ``caps`` times in all (rules R1 to R3), of rows that are shortened. The reduction is frozen (R4), and
    mashes are uploaded in the first round and used again.

    Guarantees:
        - one node moves a client's mashes by at most an amount that the client's door enforces, so that noise
          has a finite epsilon for it (not under ``reduction="trained"``, which says ``inf``);
        - every client sends the same public number of mashes, of ``n`` ego-graphs or empty;
        - a client answers no more asks for mashes than ``mash_rounds``.

    Needs:
        a policy that adds noise, and a budget for a node: ``--policy local_dp --unit node --epsilon 8``. In
        plaintext nothing is protected; batches that are drawn once are then easier to take apart than
        :class:`~secure_fedgraph.algorithms.fedego.algorithm.FedEgo`'s.
    """

    name = "fedego-node"
    summary = "FedEgo with mashes that one node moves by a known amount: noise protects a node (--unit node)"
    Settings = FedEgoNodeSettings
    settings: FedEgoNodeSettings
    class_sums: ClassVar[bool] = True

    @property
    def mash_channel(self) -> Channel:
        """The channel with what one node moves of it."""
        return replace(
            super().mash_channel,
            unit_contribution=bounded.unit_contribution(self.settings),
            largest=bounded.reach(self.settings),
            largest_is="training.clip and label_clip together",
        )

    def model(self, schema: Schema) -> EgoSage:
        """The ego-graph model, with reduced features that are shortened."""
        s = self.settings
        return EgoSage(schema.features, schema.classes, s.hidden[0], s.fanout, s.linear, s.dropout, s.clip)

    def mixture(self, client: ClientContext, model: EgoModel) -> ContributionTrees:
        """Every node's share of a mash, and where it stands; the door clips and mixes."""
        return bounded.mashes(client, model, self.settings)

    def opened(self, upload: Mapping[str, Tensor], sender: str) -> Mapping[str, Tensor]:
        """Sums over trees as mashes again."""
        return bounded.opened(upload, self.settings, sender)
