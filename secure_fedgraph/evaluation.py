"""The referee: it holds the test data, stands outside the federation, and judges released models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from secure_fedgraph.errors import BadInput

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from secure_fedgraph.algorithm import Algorithm, State
    from secure_fedgraph.graph.schema import Schema
    from secure_fedgraph.round import Round

MODES = ("referee", "in_band")
NOTES = {
    "referee": "test data outside the guarantee: a referee outside the federation holds it",
    "in_band": "scored by the clients on their own test nodes; uploads like any other, protected and charged",
}


@dataclass(frozen=True)
class Referee:
    """Holds the whole graph and who tests on what; reads released models, and personal ones sent to it.

    Guarantees:
        - no client and no server sees what it holds, and nothing it is sent is in a party's view;
        - every result that it scored says that the test data stands outside the guarantee.

    Args:
        graph: the whole graph, every link present.
        tests: owner -> its test nodes, in the whole graph's numbering.
        validations: owner -> its validation nodes.
        trainings: owner -> its training nodes; for the pooled baseline only.
    """

    graph: Data
    tests: Mapping[str, torch.Tensor]
    validations: Mapping[str, torch.Tensor]
    trainings: Mapping[str, torch.Tensor]

    def examine(self, algorithm: Algorithm, state: State, fed: Round, schema: Schema) -> dict[str, float]:
        """Scores a round.

        Returns:
            ``global``: accuracy on all owners' test nodes (with personal models: the mean over models);
            ``local``: the mean over owners of the accuracy on their own test nodes; ``validation``, and
            ``loss``: cross entropy on the validation nodes.
        """
        models = self._models(algorithm, state, fed)
        scores = {owner: algorithm.predict(model, self.graph, schema) for owner, model in models.items()}
        everywhere = torch.cat(list(self.tests.values()))
        held_out = torch.cat(list(self.validations.values()))
        one = next(iter(scores.values()))
        return {
            "global": _mean([self._accuracy(s, everywhere) for s in scores.values()]),
            "local": _mean([self._accuracy(scores.get(o, one), nodes) for o, nodes in self.tests.items()]),
            "validation": _mean([self._accuracy(s, held_out) for s in scores.values()]),
            "loss": _mean(
                [float(F.cross_entropy(s[held_out], self.graph.y[held_out])) for s in scores.values()]
            ),
        }

    def _models(self, algorithm: Algorithm, state: State, fed: Round) -> dict[str, State]:
        released = algorithm.released(state)
        if released is not None:
            return {"everybody": released}
        channel = algorithm.personal()
        if channel is None:
            raise BadInput(f"{algorithm.name} releases no model and declares no channel to the referee")
        return fed.gather(channel)

    def _accuracy(self, scores: torch.Tensor, nodes: torch.Tensor) -> float:
        if not len(nodes):
            return float("nan")
        return float((scores[nodes].argmax(1) == self.graph.y[nodes]).double().mean())


def in_band(algorithm: Algorithm, state: State, fed: Round) -> dict[str, float]:
    """Scores a round by what the clients upload about it, protected like everything else.

    Raises:
        BadInput: for an algorithm that releases no model.
    """
    released = algorithm.released(state)
    if released is None:
        raise BadInput(f"{algorithm.name} releases no model: in-band evaluation needs one; use the referee")
    mean: Any = fed.reduce(algorithm.METRICS, given=released).mean
    return {"local": float(mean["accuracy"])}


def _mean(values: list[float]) -> float:
    found = torch.tensor(values, dtype=torch.float64)
    return float(found[~found.isnan()].mean())
