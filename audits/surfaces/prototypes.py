"""Prototypes of motifs: what attackers are granted, and judges of the embeddings of single graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from scipy.spatial.distance import cdist
from torch_geometric.data import Data

from secure_fedgraph.algorithms.fairgraphfl.algorithm import FairGraphFL
from secure_fedgraph.attacks.attack import Guess
from secure_fedgraph.attacks.prototypes import GRAPHS, INCIDENCE, SINGLETONS
from secure_fedgraph.audits import intervals
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.judgement import Judge, Judgement, Maker
from secure_fedgraph.audits.scoring import Score, ScoreKind
from secure_fedgraph.errors import BadInput
from secure_fedgraph.graph.motifs import motifs_of
from secure_fedgraph.graph.sample.packing import select_graphs
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.models.parameters import load
from secure_fedgraph.protocol.transcript import SERVER

EXACT = 1e-5
"""How far an exact embedding may be from the graph's, as a share of its largest entry: the models are known
from uploads in single precision, and so are the embeddings."""


def incidence(finished: FinishedRun) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Owner -> the codes of all motifs of its training graphs, and ``[graphs, motifs]`` which graph has
    which.

    Empty where the algorithm has no motifs, or numbers them by a public list.
    """
    s = finished.algorithm.settings
    if getattr(s, "vocabulary", "") != "exchanged":
        return {}
    schema, by_owner = finished.federation.schema, {}
    for owner, graph in finished.federation.owners.items():
        training = graph.train_mask.nonzero().flatten()
        motifs = motifs_of(graph, training, s.rings, bool(schema.atoms))  # type: ignore[attr-defined]
        contains = np.zeros((motifs.graphs, len(motifs.codes)), dtype=bool)
        contains[motifs.graph, motifs.motif] = True
        by_owner[owner] = (motifs.codes.numpy(), contains)
    return by_owner


def embeddings(finished: FinishedRun) -> dict[str, np.ndarray]:
    """Owner -> ``[training graphs, width]`` as the owner's model of round 1 embeds them.

    Raises:
        BadInput: where no view shows the models: their updates were not kept, or not readable.
    """
    algorithm, schema = cast(FairGraphFL, finished.algorithm), finished.federation.schema
    start = algorithm.start(schema, sub_seed(finished.seed, "initialisation"))
    view = finished.transcript.view(SERVER)
    updates = {s.clients[0]: s.values for s in view.uploads("update") if s.round == 1}
    if set(updates) != set(finished.federation.names):
        raise BadInput("the models that made the embeddings are not known: keep channel 'update' in full")
    by_owner = {}
    for owner, graph in finished.federation.owners.items():
        moved = {k: torch.tensor(v, dtype=torch.float32) for k, v in updates.get(owner, {}).items()}
        model = algorithm.model(schema)
        load(model, {k: v + moved[k] if k in moved else v for k, v in start.items()})
        model.eval()
        with torch.no_grad():
            made = model.embed(select_graphs(graph, graph.train_mask.nonzero().flatten()))
        by_owner[owner] = made.double().numpy()
    return by_owner


def singletons(guess: Guess, finished: FinishedRun) -> Judgement:
    """Rows that are claimed to be some graph's embedding, compared with the nearest of the owner's graphs.

    A graph of several such motifs is one term of the interval.
    """
    true = embeddings(finished)
    right = claimed = graphs = 0
    errors: list[float] = []
    covered, shown, nearest = 0, {}, {}
    hits, of = [np.zeros(0, dtype=bool)], [np.zeros(0, dtype=int)]
    for target, rows in guess.values.items():
        embedded = true[target]
        graphs += len(embedded)
        claimed += len(rows)
        if not len(rows):
            continue
        closest = cdist(rows, embedded).argmin(1)
        apart = _apart(rows, embedded[closest])
        right += int((apart <= EXACT).sum())
        hits.append(apart <= EXACT)
        of.append(graphs - len(embedded) + closest)
        covered += len(np.unique(closest[apart <= EXACT]))
        errors += apart.tolist()
        shown[target], nearest[target] = rows[:2].round(3), embedded[closest[:2]].round(3)
    means = {o: v.mean(0, keepdims=True) for o, v in true.items()}
    trivial = np.mean([float((_apart(means[o], v) <= EXACT).mean()) for o, v in true.items()])
    hit, graph_of = np.concatenate(hits), np.concatenate(of)
    score = Score(
        metric="claimed embeddings exact",
        kind=ScoreKind.UNBOUNDED,
        value=right / claimed if claimed else 0.0,
        **intervals.bounds(lambda error: intervals.clustered_share(hit, graph_of, error)),
        baselines={"the owner's mean embedding": float(trivial)},
        details={
            "claimed": float(claimed),
            "right": float(right),
            "graphs_read": float(covered),
            "share_of_graphs": covered / max(graphs, 1),
            "largest_error": max(errors, default=0.0),
        },
    )
    return Judgement(score, nearest, shown)


def of_graphs(guess: Guess, finished: FinishedRun) -> Judgement:
    """Embeddings by graph: an unsolved one counts as wrong, and so does one of another graph."""
    true = embeddings(finished)
    solved = {t: ~np.isnan(v).any(1) for t, v in guess.values.items()}
    apart = {t: _apart(guess.values[t][at], true[t][at]) for t, at in solved.items()}
    claimed = sum(int(at.sum()) for at in solved.values())
    right = sum(int((a <= 10 * EXACT).sum()) for a in apart.values())
    graphs = sum(map(len, true.values()))
    trivial = np.mean([float((_apart(v.mean(0, keepdims=True), v) <= EXACT).mean()) for v in true.values()])
    score = Score(
        metric="graphs' embeddings read",
        kind=ScoreKind.MEAN,
        value=right / graphs,
        **intervals.bounds(lambda error: intervals.share(right, graphs, error)),
        baselines={"the owner's mean embedding": float(trivial)},
        details={
            "graphs": float(graphs),
            "solved": float(claimed),
            "right": float(right),
            "largest_error": max((float(a.max()) for a in apart.values() if len(a)), default=0.0),
        },
    )
    some_of = {t: np.flatnonzero(at)[:2] for t, at in solved.items()}
    return Judgement(
        score,
        {t: true[t][at].round(3) for t, at in some_of.items()},
        {t: guess.values[t][at].round(3) for t, at in some_of.items()},
    )


class StandIn:
    """The parts of a client that the search for motifs needs.

    Args:
        graphs: its graphs; those of the owner where None.
    """

    def __init__(self, finished: FinishedRun, owner: str, graphs: Data | None = None) -> None:
        self.name, self.graph = owner, finished.federation.owners[owner] if graphs is None else graphs
        self.schema, self.memory = finished.federation.schema, dict[str, Any]()


def _apart(rows: np.ndarray, true: np.ndarray) -> np.ndarray:
    largest: np.ndarray = np.abs(rows - true).max(1) / np.maximum(np.abs(true).max(1), 1e-12)
    return largest


JUDGES: Mapping[str, Judge] = {SINGLETONS: singletons, GRAPHS: of_graphs}
MAKERS: Mapping[str, Maker] = {INCIDENCE: incidence}
