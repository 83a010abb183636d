"""Judges of what FedSage+'s offers reveal; the offers are made again to see whose embeddings they have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fedsageplus import FedSagePlus
from secure_fedgraph.attacks.attack import Guess
from secure_fedgraph.attacks.neighgen_embeddings import EMBEDDED_LINKS, MISSING, NEIGHBOURS
from secure_fedgraph.audits import intervals
from secure_fedgraph.audits.empirical_dp.neighbourhoods import around
from secure_fedgraph.audits.finished_run import FinishedRun, once
from secure_fedgraph.audits.judgement import Judge, Judgement
from secure_fedgraph.audits.scoring import Score, ScoreKind, cosine
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.policies import plaintext
from secure_fedgraph.running.loop import train
from secure_fedgraph.seams import ClientContext

SHOWN = 4
Offered = dict[str, tuple[np.ndarray, np.ndarray]]


def offered(finished: FinishedRun) -> Offered:
    """Owner -> the nodes of its first offer, and how many hidden neighbours each has.

    The same seeds give the same first offer, so it is made again, and its nodes are noted.
    """
    return once(("offered", id(finished.transcript)), finished, lambda: _again(finished))


def _again(finished: FinishedRun) -> Offered:
    assert isinstance(finished.algorithm, FedSagePlus)
    kind = type(finished.algorithm)
    offers: Offered = {}

    class RerunForTruth(kind):  # type: ignore[misc,valid-type]
        @kind.GENERATOR.answer
        def offer(self, client: ClientContext, given: State) -> Upload:
            upload: Upload = super().offer(client, given)
            model, impaired = self.own_generator(client), self.impaired(client)
            with torch.no_grad():
                z = model.embed(impaired.graph.x, impaired.graph.edge_index)
            nodes = torch.cdist(upload.values["z"].double(), z.double()).argmin(1)
            offers[client.name] = (impaired.kept[nodes].numpy(), impaired.counts[nodes].numpy())
            return upload

    settings = finished.algorithm.settings.model_dump() | {"federated_epochs": 1}
    train(RerunForTruth(**settings), finished.federation, plaintext(), rounds=1, seed=finished.seed)
    return offers


def neighbours(guess: Guess, finished: FinishedRun) -> Judgement:
    """Mean cosine of the decoded features with the mean of the node's true neighbours.

    It is over distinct nodes with neighbours. Trivial: the mean of all nodes, and the prediction for another
    node of the same offer.
    """
    right, mean, mixed, true, guessed = [], [], [], {}, {}
    everybody = np.concatenate([graph.x.numpy() for graph in finished.federation.owners.values()]).mean(0)
    for owner, values in guess.values.items():
        graph, (nodes, _) = finished.federation.owners[owner], offered(finished)[owner]
        distinct, at = np.unique(nodes, return_index=True)
        real = _neighbours(graph)[distinct]
        some = real.any(1)
        real, values = real[some], values[at][some]
        right.append(cosine(values, real))
        mean.append(cosine(np.broadcast_to(everybody, real.shape), real))
        mixed.append(cosine(np.roll(values, 1, axis=0), real))
        true[owner], guessed[owner] = np.round(real[:SHOWN], 3), np.round(values[:SHOWN], 3)
    cosines = np.concatenate(right)
    trivial = {"the mean node": float(np.concatenate(mean).mean())}
    trivial["another node's prediction"] = float(np.concatenate(mixed).mean())
    score = Score(
        "mean cosine",
        float(cosines.mean()),
        kind=ScoreKind.COSINE,
        **intervals.bounds(lambda error: intervals.mean_cosine(cosines, error)),
        baselines=trivial,
        details={"nodes": float(len(cosines))},
    )
    return Judgement(score, true, guessed)


def links(guess: Guess, finished: FinishedRun) -> Judgement:
    """AUC over all pairs of distinct nodes of an offer; trivial: the cosine of their features.

    In the interval pairs at one node count together.
    """
    placed, trivial, pairs, true, guessed, of = [], [], [], {}, {}, 0
    graphs = {}
    for owner, values in guess.values.items():
        graph, (nodes, _) = finished.federation.owners[owner], offered(finished)[owner]
        distinct, at = np.unique(nodes, return_index=True)
        linked = np.zeros((int(graph.num_nodes),) * 2, dtype=bool)
        row, column = graph.edge_index.numpy()
        linked[row, column] = linked[column, row] = True
        pair = np.triu_indices(len(distinct), 1)
        truth = linked[np.ix_(distinct, distinct)][pair]
        x = graph.x.numpy()[distinct]
        scores = values[np.ix_(at, at)][pair]
        placed.append(_placed(scores, truth))
        pairs.append(intervals.Scored(*pair, truth, scores))
        trivial.append(_placed(cosine(x[pair[0]], x[pair[1]]), truth))
        of += int(truth.sum())
        graphs[owner] = around(distinct[pair[0]], distinct[pair[1]], scores, truth)
        best = np.argsort(-scores)[: 3 * SHOWN]
        true[owner], guessed[owner] = truth[best].astype(int), np.ones(len(best), dtype=int)
    shares = np.concatenate(placed) if of else np.full(1, 0.5)
    features = float(np.concatenate(trivial).mean()) if of else 0.5
    baselines = {"cosine of the nodes' features": features, "random pairs": 0.5}
    score = Score(
        "link auc",
        float(shares.mean()),
        kind=ScoreKind.RANK,
        **intervals.bounds(lambda error: intervals.auc_interval(pairs, shared=False, error=error)),
        baselines=baselines,
        details={"links": float(of)},
    )
    return Judgement(score, true, guessed, graphs)


def missing(guess: Guess, finished: FinishedRun) -> Judgement:
    """The share of nodes whose count is that of their hidden neighbours; trivial: the commonest number."""
    right, of, common, true, guessed = 0, 0, 0, {}, {}
    for owner, values in guess.values.items():
        nodes, counts = offered(finished)[owner]
        _, at = np.unique(nodes, return_index=True)
        right, of = right + int((values[at] == counts[at]).sum()), of + len(at)
        common += int(np.bincount(counts[at]).max())
        true[owner], guessed[owner] = counts[at][: 3 * SHOWN], values[at][: 3 * SHOWN]
    score = Score(
        "counts right",
        right / of,
        kind=ScoreKind.MEAN,
        **intervals.bounds(lambda error: intervals.share(right, of, error)),
        baselines={"the commonest number": common / of},
        details={"nodes": float(of)},
    )
    return Judgement(score, true, guessed)


def _neighbours(graph: Any) -> np.ndarray:
    """The mean features of each node's neighbours, zeros where it has none."""
    x, (row, column) = graph.x.numpy().astype(np.float64), graph.edge_index.numpy()
    total, degree = np.zeros_like(x), np.bincount(column, minlength=len(x))
    np.add.at(total, column, x[row])
    means: np.ndarray = total / np.maximum(degree, 1)[:, None]
    return means


def _placed(scores: np.ndarray, linked: np.ndarray) -> np.ndarray:
    """For each link the share of the other pairs that score lower."""
    lower = rankdata(scores)[linked] - rankdata(scores[linked])
    shares: np.ndarray = lower / max(int((~linked).sum()), 1)
    return shares


JUDGES: Mapping[str, Judge] = {NEIGHBOURS: neighbours, EMBEDDED_LINKS: links, MISSING: missing}
