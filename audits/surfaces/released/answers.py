"""What outsiders are granted of published answers: about owners' nodes, and about a shadow graph."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Data

from secure_fedgraph.algorithms.training.node_classifier import NodeClassifier
from secure_fedgraph.algorithms.training.records import Kept, OfRecords
from secure_fedgraph.attacks.released import ANSWERS, EMBEDDED, Answers, Embedded
from secure_fedgraph.attacks.released.influence import SERVICE, Service
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.judgement import Maker
from secure_fedgraph.audits.surfaces.released.models import cut, logs, published, without_links
from secure_fedgraph.graph.kinds import GraphDataset
from secure_fedgraph.models.given import scores_of
from secure_fedgraph.models.parameters import load


def answers(finished: FinishedRun) -> dict[str, Answers]:
    """Owner -> what the published model answers about its nodes, with its links and without."""
    models = published(finished)
    if not models:
        return {}
    return {
        owner: Answers(models.of(owner)(graph), models.of(owner)(without_links(graph)))
        for owner, graph in finished.federation.owners.items()
    }


class _First(Kept):
    """The first result, whatever is asked later."""

    def of(self, given: tuple[torch.Tensor, ...], make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """What the first question was answered with."""
        if not self:
            self.append((given, make()))
        return self[0][1]


def service(finished: FinishedRun) -> dict[str, Service]:
    """Owner -> a service that answers by its links for features that are sent to it.

    Where weights are solved for the graph that is asked about, a service solves them once.
    """
    models = published(finished)
    if not models:
        return {}

    def of(owner: str, graph: Data) -> Service:
        settled, asked = copy.copy(finished.algorithm), copy.copy(graph)
        if isinstance(settled, OfRecords):
            settled.kept = _First()
        answering = published(replace(finished, algorithm=settled)).of(owner)

        def ask(features: np.ndarray) -> np.ndarray:
            asked.x = torch.from_numpy(features)
            return answering(asked)

        return Service(ask, graph.x.numpy().copy())

    return {owner: of(owner, graph) for owner, graph in finished.federation.owners.items()}


def embedded(finished: FinishedRun) -> dict[str, Embedded]:
    """Owner -> its training nodes as the released model embeds them; ``""`` -> a shadow graph's nodes.

    The shadow graph has the nodes that nobody trained on, and the links between them.
    """
    model = _released(finished)
    if model is None or not isinstance(getattr(model, "head", None), nn.Module):
        return {}
    inner = copy.deepcopy(model)
    inner.head = nn.Identity()
    by_owner, shadow = {}, []
    for owner, graph in finished.federation.owners.items():
        mine, rest = graph.train_mask, ~graph.train_mask
        with torch.no_grad():
            by_owner[owner] = Embedded(
                scores_of(inner, graph)[mine].numpy(), logs(scores_of(model, graph))[mine.numpy()]
            )
            alone = cut(graph, rest)
            parts = (
                scores_of(inner, alone)[rest].numpy(),
                logs(scores_of(model, alone))[rest.numpy()],
                graph.x[rest].numpy(),
            )
        shadow.append(parts)
    joined = [np.concatenate(part) for part in zip(*shadow, strict=True)]
    return {**by_owner, **({"": Embedded(*joined)} if len(joined[0]) else {})}


def _released(finished: FinishedRun) -> nn.Module | None:
    """The released model, where it is a network that classifies nodes."""
    schema, algorithm, released = finished.federation.schema, finished.algorithm, finished.released
    if released is None or not isinstance(algorithm, NodeClassifier) or schema.kind != GraphDataset.kind:
        return None
    model = algorithm.model(schema)
    load(model, released)
    model.eval()
    return model


MAKERS: Mapping[str, Maker] = {ANSWERS: answers, EMBEDDED: embedded, SERVICE: service}
