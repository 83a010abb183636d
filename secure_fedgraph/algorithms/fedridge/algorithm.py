"""Federated ridge regression: one sum of moments, and links only where predictions are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import APPNP

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.algorithms.fedridge.settings import RidgeSettings
from secure_fedgraph.errors import BadInput
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models import ridge
from secure_fedgraph.protocol import Channel, ContributionMoments, Reveal, Unit, UnitContributionMoments
from secure_fedgraph.protocol.given import NOTHING, Expected
from secure_fedgraph.protocol.upload import OFF, ON, moments_of
from secure_fedgraph.seams import ClientContext, RoundApi

WEIGHTS = "weights"


class FedRidge(Algorithm):
    """Ridge regression of classes on features, from one sum over all owners.

    A record is a training node: its features ``z``, of length 1, and its class ``t``. Each owner sends
    ``A = sum z z^T`` and ``B = sum z t^T`` once (each
    round, if there are more). The server solves ``(A + ridge I) W = B``, and whoever
    predicts spreads the scores ``z W`` over the links that it has.

    Guarantees:
        - one node is one record, so it moves a client's upload by at most a known amount, which the client
          enforces: noise on that upload (``local_dp``, ``distributed_dp``, ``central_dp``) has a finite
          epsilon for a node;
        - nothing that is sent depends on a link.

    Needs:
        - features that say something by themselves: links are used at inference only.

    Args:
        settings: :class:`~secure_fedgraph.algorithms.fedridge.settings.RidgeSettings`.

    References:
        Vu and Slavkovic, Differential privacy for clinical trial data, ICDM Workshops 2009; Wang, Revisiting
        differentially private linear regression, UAI 2018; Gasteiger et al., Predict then Propagate, ICLR
        2019.
    """

    name = "fedridge"
    summary = "ridge regression from one sum of moments; links at inference only"
    reference = "Vu and Slavkovic 2009"
    rounds = 1
    data: ClassVar[str] = "pubmed"
    partitions: ClassVar[tuple[str, ...]] = ("louvain", "random", "label_skew")
    Settings: ClassVar[type[RidgeSettings]] = RidgeSettings
    settings: RidgeSettings

    MOMENTS = Channel("moments", Reveal.SUM, unit=Unit.NODE, links=False)

    @property
    def _contribution(self) -> UnitContributionMoments:
        s = self.settings
        return UnitContributionMoments(targets=s.target_norm, records=s.records, second=True)

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """The channel with what one node moves of it."""
        return (replace(self.MOMENTS, unit_contribution=self._contribution),)

    @property
    def hops(self) -> int:
        """No link is read in training."""
        return 0

    def check_own(self, graph: Data, name: str) -> None:
        """That sums over its training nodes are not cut."""
        held = int(graph.train_mask.sum())
        if held > self.settings.records:
            raise BadInput(
                f"training.records = {self.settings.records}: {name} has {held} training nodes, and sums "
                f"over more than that are cut: set training.records={2 ** (held - 1).bit_length()} or more"
            )

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """Nothing; the model for its scores."""
        return NOTHING if channel == self.MOMENTS.name else self._takes_released(schema)

    def init(self, schema: Schema, seed: int) -> State:
        """No moments yet, and no weights."""
        width, classes = schema.features, schema.classes
        return {
            WEIGHTS: torch.zeros(width, classes),
            "second": torch.zeros(width, width, dtype=torch.float64),
            "classes": torch.zeros(width, classes, dtype=torch.float64),
            "variance": torch.zeros((), dtype=torch.float64),
        }

    def released(self, state: State) -> State:
        """The weights."""
        return {WEIGHTS: state[WEIGHTS]}

    def round(self, round: RoundApi, state: State) -> State:
        """Adds moments to those of the rounds before, if any, and solves.

        One round is enough. More of them share a budget, and their mean carries as much noise as one alone.
        """
        (channel,) = self.in_use
        opened, contribution = round.reduce(channel), self._contribution
        second, classes = moments_of(opened.total, contribution)
        assert second is not None
        noise = opened.deviation * contribution.records
        second, classes = second + state["second"], classes + state["classes"]
        variance = state["variance"] + noise**2
        deviation = float(variance.sqrt())
        solved = ridge.weights(second, classes, contribution.targets, deviation * ON / OFF, deviation)
        return {WEIGHTS: solved.float(), "second": second, "classes": classes, "variance": variance}

    @MOMENTS.answer
    def moments(self, client: ClientContext, given: Mapping[str, Any]) -> ContributionMoments:
        """The training nodes' features and classes, of which the client's door makes sums."""
        graph = client.graph
        nodes = graph.train_mask.nonzero().flatten()
        wanted = ridge.targets(graph.y[nodes], client.schema.classes, self.settings.target_norm)
        return ContributionMoments(_records(graph.x[nodes]), wanted)

    def predict(self, params: State, graph: Data, schema: Schema) -> torch.Tensor:
        """Scores by features, spread over the graph's links."""
        s = self.settings
        scores = _records(graph.x) @ params[WEIGHTS]
        length = scores.norm(dim=1).mean().clamp(min=1e-12)
        shares = F.softmax(s.sharpness * scores / length, dim=1)
        spread: torch.Tensor = APPNP(s.steps, s.restart)(shares, graph.edge_index)
        return spread


def _records(x: torch.Tensor) -> torch.Tensor:
    """Features of length 1: a record\'s length bounds what it moves."""
    if x.layout != torch.strided:
        x = x.to_dense()
    return F.normalize(torch.nan_to_num(x.float()), dim=1)
