"""FedSage+: judges of rows, of nodes that a crafted generator named, and of what offered embeddings say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fedsageplus import FedSagePlus
from secure_fedgraph.attacks.active.oracle import COVERED
from secure_fedgraph.attacks.attack import FEATURES, Guess
from secure_fedgraph.attacks.neighgen import EMBEDDED_LINKS, MISSING, NEIGHBOURS
from secure_fedgraph.audits import intervals, scoring, truth
from secure_fedgraph.audits.finished_run import FinishedRun, once
from secure_fedgraph.audits.judgement import Judge, Judgement
from secure_fedgraph.audits.rerun import in_the_open
from secure_fedgraph.audits.scoring import Score, ScoreKind, cosine
from secure_fedgraph.audits.surfaces.links import Pairs, auc, linked_nodes
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.seams import ClientContext

SHOWN = 4
"""Rows of a target that are kept for pictures."""
Offered = dict[str, tuple[np.ndarray, np.ndarray]]
_TRIVIAL = {
    True: ("the mean node, rounded", "random words at their rates"),
    False: ("the mean node", "random values of each column"),
}


def features(guess: Guess, finished: FinishedRun) -> Judgement:
    """Rows of features, each compared with the nearest node of the owners that it is about.

    Pictures show the first distinct rows of each target, beside the nodes that they are nearest to.
    """
    nodes = truth.node_features(finished.federation)
    held = {t: np.concatenate([nodes[o] for o in owners]) for t, owners in guess.targets.items()}
    public = np.concatenate(list(nodes.values()))
    rows = {t: scoring.match_rows(values, held[t]) for t, values in guess.values.items()}
    sizes = {t: len(values) for t, values in held.items()}
    true, guessed = {}, {}
    for target, recovered in rows.items():
        first = recovered.distinct()[:SHOWN]
        true[target] = np.round(held[target][recovered.nearest[first]], 3)
        guessed[target] = np.round(recovered.rows[first], 3)
    return Judgement(scoring.recovered_rows(rows, sizes, public), true, guessed)


def covered(guess: Guess, finished: FinishedRun) -> Judgement:
    """The share of the owners' nodes whose features were named exactly; nodes of equal features count alike.

    Trivial, of words: the node of all words' rounded rates, and as many rows as were named, with words drawn
    at their rates. Trivial, of dense features: the mean node, and rows drawn from each column by itself.
    """
    nodes = truth.node_features(finished.federation)
    public = np.concatenate(list(nodes.values()))
    rates, words = public.mean(0), scoring.words_only(public)
    right, of, named, real, mean, drawn, true, guessed = 0, 0, 0, 0, 0, 0, {}, {}
    rng = np.random.default_rng(0)
    for target, owners in guess.targets.items():
        held = np.concatenate([nodes[owner] for owner in owners])
        _, alike = np.unique(held, axis=0, return_inverse=True)
        rows = scoring.match_rows(guess.values[target], held)
        got = _same(alike, rows)
        right, of = right + got, of + len(held)
        named, real = named + len(rows.rows), real + int(rows.exact.sum())
        mean += _same(alike, scoring.match_rows(rates.round()[None] if words else rates[None], held))
        many = min(len(rows.rows), 500)
        made = rng.random((many, len(rates))) < rates if words else scoring.drawn_rows(public, many, rng)
        drawn += _same(alike, scoring.match_rows(made.astype(np.float64), held))
        first = rows.distinct()[:SHOWN]
        true[target] = np.round(held[rows.nearest[first]], 3)
        guessed[target] = np.round(rows.rows[first], 3)
    baselines = dict(zip(_TRIVIAL[words], (mean / of, drawn / of), strict=True))
    details = {"nodes": float(of), "rows_named": float(named), "share_that_are_nodes": real / max(named, 1)}
    score = scoring.independent("nodes covered", right, of, baselines, details, ScoreKind.UNBOUNDED)
    return Judgement(score, true, guessed)


def _same(alike: np.ndarray, rows: scoring.MatchedRows) -> int:
    """How many nodes have the features of an exact row."""
    return int(np.isin(alike.ravel(), alike.ravel()[rows.nearest[rows.exact]]).sum())


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
    in_the_open(RerunForTruth(**settings), finished.federation, finished.seed, 1)
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
    """AUC over all pairs of distinct nodes of an offer; trivial: the cosine of their features."""
    pairs = {}
    for owner, values in guess.values.items():
        graph, (nodes, _) = finished.federation.owners[owner], offered(finished)[owner]
        distinct, at = np.unique(nodes, return_index=True)
        linked, x = linked_nodes(graph)[np.ix_(distinct, distinct)], graph.x.numpy()[distinct]
        pairs[owner] = Pairs(values[np.ix_(at, at)], linked, {"cosine of the nodes' features": x}, distinct)
    return auc(pairs, shared=False)


def missing(guess: Guess, finished: FinishedRun) -> Judgement:
    """The share of nodes whose count is that of their hidden neighbours; trivial: the commonest number."""
    right, of, common = 0, 0, 0
    for owner, values in guess.values.items():
        nodes, counts = offered(finished)[owner]
        _, at = np.unique(nodes, return_index=True)
        right, of = right + int((values[at] == counts[at]).sum()), of + len(at)
        common += int(np.bincount(counts[at]).max())
    baselines = {"the commonest number": common / of}
    return Judgement(scoring.independent("counts right", right, of, baselines, {"nodes": float(of)}))


def _neighbours(graph: Any) -> np.ndarray:
    """The mean features of each node's neighbours, zeros where it has none."""
    x, (row, column) = graph.x.numpy().astype(np.float64), graph.edge_index.numpy()
    total, degree = np.zeros_like(x), np.bincount(column, minlength=len(x))
    np.add.at(total, column, x[row])
    return np.asarray(total / np.maximum(degree, 1)[:, None])


JUDGES: Mapping[str, Judge] = {
    FEATURES: features,
    COVERED: covered,
    NEIGHBOURS: neighbours,
    EMBEDDED_LINKS: links,
    MISSING: missing,
}
