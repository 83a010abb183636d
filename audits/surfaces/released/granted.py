"""What outsiders are granted of published answers, of uploads and of owners' models."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms.fedridge.algorithm import FedRidge
from secure_fedgraph.algorithms.training.node_classifier import NodeClassifier
from secure_fedgraph.algorithms.training.records import Kept, OfRecords
from secure_fedgraph.attacks.ownership import EVIDENCE, OWN_ANSWERS, Evidence, OwnAnswers
from secure_fedgraph.attacks.released import ANSWERS, EMBEDDED, SERVICE, Answers, Embedded, Service
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.judgement import Maker
from secure_fedgraph.audits.surfaces.released.models import Answering, cut, logs, published, without_links
from secure_fedgraph.core.upload import moments_of
from secure_fedgraph.graph.kinds import GraphDataset
from secure_fedgraph.models.parameters import load
from secure_fedgraph.models.user_models import scores_of

RIDGE = 1e-3
"""Added to a sum of ``z z^T`` of rows of length 1."""


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


def evidence(finished: FinishedRun) -> Evidence | None:
    """How well every training node fits to one owner's upload; None where uploads are no step of a model."""
    algorithm, schema = finished.algorithm, finished.federation.schema
    if schema.kind != GraphDataset.kind or type(algorithm).predict is Algorithm.predict:
        return None

    def fits(before: Mapping[str, np.ndarray], upload: Mapping[str, np.ndarray]) -> np.ndarray:
        if isinstance(algorithm, FedRidge):
            return _in_row_space(algorithm, finished, upload)
        after = {name: before[name] + np.asarray(step) for name, step in upload.items() if name in before}
        state = {name: torch.tensor(np.array(value)).float() for name, value in {**before, **after}.items()}
        return _sure(finished, lambda graph: logs(algorithm.predict(state, graph, schema)))

    return Evidence(training_labels(finished), fits)


def own_answers(finished: FinishedRun) -> OwnAnswers | None:
    """What each owner's own model answers about the training nodes of all; None where owners have none."""
    models = published(finished).personal
    if not models:
        return None
    return OwnAnswers(
        {owner: _sure(finished, answering) for owner, answering in models.items()},
        {owner: _right(finished, answering) for owner, answering in models.items()},
        training_labels(finished),
    )


def training_labels(finished: FinishedRun) -> np.ndarray:
    """The labels of all owners' training nodes."""
    owners = finished.federation.owners.values()
    labels: np.ndarray = np.concatenate([g.y.numpy()[g.train_mask.numpy()] for g in owners])
    return labels


def _answers(finished: FinishedRun, answering: Answering) -> np.ndarray:
    """``[training nodes of all, classes]`` log-probabilities, each node among its own links."""
    graphs = finished.federation.owners.values()
    return np.concatenate([answering(graph)[graph.train_mask.numpy()] for graph in graphs])


def _sure(finished: FinishedRun, answering: Answering) -> np.ndarray:
    """The log-probability of each one's label."""
    y = training_labels(finished)
    own: np.ndarray = _answers(finished, answering)[np.arange(len(y)), y]
    return own


def _right(finished: FinishedRun, answering: Answering) -> np.ndarray:
    right: np.ndarray = _answers(finished, answering).argmax(1) == training_labels(finished)
    return right


def _in_row_space(algorithm: FedRidge, finished: FinishedRun, upload: Mapping[str, np.ndarray]) -> np.ndarray:
    """Minus ``z^T (sum + ridge)^-1 z``; of class sums alone the product with the sum of the node's class."""
    schema, owners = finished.federation.schema, finished.federation.owners.values()
    z = torch.cat([algorithm.records(g, schema)[g.train_mask] for g in owners]).double()
    total = {name: torch.tensor(np.array(value)) for name, value in upload.items()}
    contribution = algorithm.in_use[0].unit_contribution
    second, classes = moments_of(total, contribution)  # type: ignore[arg-type]
    if second is None:
        y = torch.cat([g.y[g.train_mask] for g in owners])
        products: np.ndarray = (z * classes.T[y]).sum(1).numpy()
        return products
    solved = torch.linalg.solve(second + RIDGE * torch.eye(len(second), dtype=torch.float64), z.T)
    fits: np.ndarray = -(z.T * solved).sum(0).numpy()
    return fits


MAKERS: Mapping[str, Maker] = {
    ANSWERS: answers,
    EMBEDDED: embedded,
    SERVICE: service,
    EVIDENCE: evidence,
    OWN_ANSWERS: own_answers,
}
