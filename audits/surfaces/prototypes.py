"""Prototypes of motifs: what attackers are granted, and judges of the embeddings of single graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from scipy.spatial.distance import cdist
from torch_geometric.data import Data

from secure_fedgraph.algorithms.fairgraphfl.algorithm import FairGraphFL
from secure_fedgraph.algorithms.fairgraphfl.motifs import holds
from secure_fedgraph.attacks.attack import Guess
from secure_fedgraph.attacks.prototypes import CHANGE, EARLIER, GRAPHS, INCIDENCE, SINGLETONS
from secure_fedgraph.audits import intervals
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.judgement import Judge, Judgement, Maker
from secure_fedgraph.audits.rerun import train_again
from secure_fedgraph.audits.scoring import Score, ScoreKind
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.federation import Federation
from secure_fedgraph.graph.motifs import motifs_of
from secure_fedgraph.graph.sample.packing import select_graphs
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.models.parameters import load
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import SERVER
from secure_fedgraph.seams import ClientContext

EXACT = 1e-5
"""How far an exact embedding may be from the graph's, as a share of its largest entry: the models are known
from uploads in single precision, and so are the embeddings."""
ON_A_GRID = 1e-3
"""The same for a difference of masked sums, where a graph's part is a few thousand steps of the grid."""


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


def removed(finished: FinishedRun) -> tuple[str, int]:
    """The owner and number of the training graph that the earlier run lacks: the first owner's middle one."""
    owner = min(finished.federation.names)
    training = finished.federation.owners[owner].train_mask.nonzero().flatten()
    return owner, int(training[len(training) // 2])


def earlier(finished: FinishedRun) -> View | None:
    """The server's view of one round over the same data without one training graph, under the same policy.

    None where the algorithm sends no sums over graphs, or the run's configuration is not known.
    """
    if "motif_sums" not in finished.transcript.public.get("channels", {}) or "config" not in finished.result:
        return None
    owner, graph = removed(finished)
    less = _without(finished.federation, owner, graph)
    run = train_again(finished, less, rounds=1, keep=lambda channel, round: channel == "motif_sums")
    return run.transcript.view(SERVER)


def _without(federation: Federation, owner: str, graph: int) -> Federation:
    mine = federation.owners[owner].clone()
    mine.train_mask = mine.train_mask & (torch.arange(len(mine.train_mask)) != graph)
    return replace(federation, owners={**federation.owners, owner: mine})


def embeddings(finished: FinishedRun, frozen: bool = False) -> dict[str, np.ndarray]:
    """Owner -> ``[training graphs, width]`` as the owner's model of round 1 embeds them.

    Args:
        frozen: by the seeded model that all start from.

    Raises:
        BadInput: where no view shows the models: their updates were not kept, or not readable.
    """
    algorithm, schema = cast(FairGraphFL, finished.algorithm), finished.federation.schema
    start = algorithm.start(schema, sub_seed(finished.seed, "initialisation"))
    updates = {}
    if not frozen:
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


def change(guess: Guess, finished: FinishedRun) -> Judgement:
    """The rows of the vocabulary that the graph moved, and its clipped embedding in each.

    Of the rows that moved, and of those that the guess says moved, the right ones hold the embedding. It is
    one graph, so the interval is that of one term.
    """
    owner, graph = removed(finished)
    settings: Any = finished.algorithm.settings
    training = finished.federation.owners[owner].train_mask.nonzero().flatten()
    row = int((training == graph).nonzero())
    embedded = embeddings(finished, frozen=True)[owner][row]
    embedded = embedded * min(1.0, settings.clip / max(np.linalg.norm(embedded), 1e-12))
    held = holds(cast(ClientContext, StandIn(finished, owner)), settings)[row].numpy() > 0
    held &= np.cumsum(held) <= settings.motifs_per_graph
    true = np.where(held[:, None], embedded, np.nan)
    ((target, rows),) = guess.values.items() if len(guess.values) == 1 else [_largest(guess)]
    moved = ~np.isnan(rows).any(1)
    apart = np.full(len(rows), np.inf)
    apart[moved & held] = _apart(rows[moved & held], true[moved & held])
    right = apart <= ON_A_GRID
    claims = right[moved | held]
    whole = target == owner or target == "some owner"
    hits = int(claims.sum()) if whole else 0
    share = hits / max(len(claims), 1)
    score = Score(
        metric="motifs of the graph right",
        kind=ScoreKind.MEAN,
        value=share,
        **intervals.bounds(lambda error: intervals.share(share, 1.0, error)),
        baselines={"no motif": 0.0},
        details={
            "motifs": float(held.sum()),
            "moved": float(moved.sum()),
            **({"embedding_error": float(apart[moved & held].min())} if (moved & held).any() else {}),
            "of_the_right_owner": float(target == owner),
        },
    )
    return Judgement(score, {target: true[held][:1].round(3)}, {target: rows[moved][:1].round(3)})


class StandIn:
    """The parts of a client that the search for motifs needs.

    Args:
        graphs: its graphs; those of the owner where None.
    """

    def __init__(self, finished: FinishedRun, owner: str, graphs: Data | None = None) -> None:
        self.name, self.graph = owner, finished.federation.owners[owner] if graphs is None else graphs
        self.schema, self.memory = finished.federation.schema, dict[str, Any]()


def _largest(guess: Guess) -> tuple[str, np.ndarray]:
    return max(guess.values.items(), key=lambda item: float(np.nan_to_num(item[1]).max(initial=0.0)))


def _apart(rows: np.ndarray, true: np.ndarray) -> np.ndarray:
    largest: np.ndarray = np.abs(rows - true).max(1) / np.maximum(np.abs(true).max(1), 1e-12)
    return largest


JUDGES: Mapping[str, Judge] = {SINGLETONS: singletons, GRAPHS: of_graphs, CHANGE: change}
MAKERS: Mapping[str, Maker] = {INCIDENCE: incidence, EARLIER: earlier}
