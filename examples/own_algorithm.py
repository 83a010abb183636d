"""A new algorithm in one class: nearest class means, made from two sums on a channel of its own.

Every owner sends, per class, the sum of its training nodes' features and how many there are. The server needs
only the totals, so the channel declares SUM, and the same class runs in plaintext, under masks and under
homomorphic encryption without a word about privacy in it.
"""

from __future__ import annotations

import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.seams import ClientContext, RoundApi


class ClassMeans(sfg.Algorithm):
    """Classifies a node by the nearest class mean; one round is enough."""

    name = "class-means"
    STATISTICS = sfg.Channel("statistics", sfg.Reveal.SUM)

    def init(self, schema: Schema, seed: int) -> dict[str, torch.Tensor]:
        """No model yet."""
        return {"means": torch.zeros(schema.classes, schema.features)}

    def round(self, round: RoundApi, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The server's half: one division of two sums, so nobody's own mean is ever opened."""
        total = round.reduce(self.STATISTICS).total
        return {"means": (total["features"] / total["nodes"].clamp(min=1).unsqueeze(1)).float()}

    @STATISTICS.answer
    def statistics(self, client: ClientContext, given: dict[str, torch.Tensor]) -> sfg.Upload:
        """The client's half. Divided by 64, because the ring encoding carries values up to a limit of 8."""
        graph = client.graph
        member = torch.nn.functional.one_hot(graph.y[graph.train_mask], client.schema.classes).float()
        features = member.T @ graph.x[graph.train_mask]
        return sfg.Upload({"features": features / 64, "nodes": member.sum(0) / 64})

    def predict(self, params: dict[str, torch.Tensor], graph: Data, schema: Schema) -> torch.Tensor:
        """Scores: the nearer, the higher."""
        return -torch.cdist(graph.x, params["means"])


if __name__ == "__main__":
    federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=300, features=60)
    for policy in (sfg.policies.plaintext(), sfg.policies.masked(), sfg.policies.homomorphic()):
        run = sfg.train(ClassMeans(), federation, policy, rounds=1)
        excess = "; ".join(run.policy["statistics"].excess) or "none"
        print(f"{policy.name:12} accuracy {run.accuracy['global']:.3f}, excess: {excess}")
