"""What is granted to whoever asks whose a training node is, and the judge."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms.fedridge.algorithm import FedRidge
from secure_fedgraph.attacks.attack import Guess
from secure_fedgraph.attacks.released.ownership import (
    EVIDENCE,
    OWN_ANSWERS,
    OWNERS_OF_NODES,
    Evidence,
    OwnAnswers,
)
from secure_fedgraph.audits import intervals
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.judgement import Judge, Judgement, Maker
from secure_fedgraph.audits.scoring import Score, ScoreKind
from secure_fedgraph.audits.surfaces.released.models import Answering, logs, published
from secure_fedgraph.core.upload import moments_of
from secure_fedgraph.graph.kinds import GraphDataset

RIDGE = 1e-3
"""Added to a sum of ``z z^T`` of rows of length 1."""
SHOWN = 20


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

    return Evidence(_labels(finished), fits)


def own_answers(finished: FinishedRun) -> OwnAnswers | None:
    """What each owner's own model answers about the training nodes of all; None where owners have none."""
    models = published(finished).personal
    if not models:
        return None
    return OwnAnswers(
        {owner: _sure(finished, answering) for owner, answering in models.items()},
        {owner: _right(finished, answering) for owner, answering in models.items()},
        _labels(finished),
    )


def _labels(finished: FinishedRun) -> np.ndarray:
    owners = finished.federation.owners.values()
    labels: np.ndarray = np.concatenate([g.y.numpy()[g.train_mask.numpy()] for g in owners])
    return labels


def _sure(finished: FinishedRun, answering: Answering) -> np.ndarray:
    """``[training nodes of all]`` the log-probability of each one's label, each among its own links."""
    parts = []
    for graph in finished.federation.owners.values():
        rows = graph.train_mask.numpy()
        own = graph.y.numpy()[rows]
        parts.append(answering(graph)[rows][np.arange(len(own)), own])
    return np.concatenate(parts)


def _right(finished: FinishedRun, answering: Answering) -> np.ndarray:
    parts = []
    for graph in finished.federation.owners.values():
        rows = graph.train_mask.numpy()
        parts.append(answering(graph)[rows].argmax(1) == graph.y.numpy()[rows])
    return np.concatenate(parts)


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


def owners_of_nodes(guess: Guess, finished: FinishedRun) -> Judgement:
    """The share of training nodes whose owner is named; in the interval an owner's nodes of a class are one.

    Trivial: the owner with most training nodes, and for each class the owner with most of its nodes, which
    whoever knows everybody's label counts could say without a model.
    """
    owners = finished.federation.owners
    names = list(guess.values)
    true = np.concatenate([np.full(int(g.train_mask.sum()), names.index(o)) for o, g in owners.items()])
    y = _labels(finished)
    named = np.stack([guess.values[name] for name in names]).argmax(0)
    hits = named == true
    table = np.zeros((len(names), finished.federation.schema.classes), dtype=int)
    np.add.at(table, (true, y), 1)
    score = Score(
        metric="owners named right",
        kind=ScoreKind.UNBOUNDED,  # one node is in one owner's data, and the others' say whose it is not
        value=float(hits.mean()),
        **intervals.bounds(lambda error: intervals.clustered_share(hits, true * table.shape[1] + y, error)),
        baselines={
            "the owner with most nodes": float(table.sum(1).max() / len(y)),
            "the owner with most of the node's class": float(table.max(0).sum() / len(y)),
        },
        details={"nodes": float(len(y)), "owners": float(len(names))},
    )
    shown = np.linspace(0, len(y) - 1, SHOWN).astype(int)
    return Judgement(score, {"all": true[shown]}, {"all": named[shown]})


MAKERS: Mapping[str, Maker] = {EVIDENCE: evidence, OWN_ANSWERS: own_answers}
JUDGES: Mapping[str, Judge] = {OWNERS_OF_NODES: owners_of_nodes}
