"""FairGraphFL: what attackers are granted of motifs and payoffs, and judges of graphs, members and sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from scipy.spatial.distance import cdist
from torch_geometric.data import Data

from secure_fedgraph.algorithms.fairgraphfl.algorithm import FairGraphFL
from secure_fedgraph.algorithms.fairgraphfl.motifs import holds, labels_of
from secure_fedgraph.attacks import payoffs
from secure_fedgraph.attacks.attack import CLIENT, Guess
from secure_fedgraph.attacks.prototypes import CHANGE, EARLIER, GRAPHS, INCIDENCE, SINGLETONS
from secure_fedgraph.audits import intervals
from secure_fedgraph.audits.finished_run import FinishedRun, once
from secure_fedgraph.audits.judgement import Judge, Judgement, Maker
from secure_fedgraph.audits.rerun import train_again
from secure_fedgraph.audits.scoring import Score, ScoreKind, independent, share_right
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.evaluation import roc_auc
from secure_fedgraph.federation import Federation
from secure_fedgraph.graph.motifs import every_motif, motifs_of
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
    hits, of, errors, covered, graphs, shown, nearest = [], [], [0.0], 0, 0, {}, {}
    for target, rows in guess.values.items():
        embedded = true[target]
        if len(rows):
            closest = cdist(rows, embedded).argmin(1)
            apart = _apart(rows, embedded[closest])
            hits.append(apart <= EXACT)
            of.append(graphs + closest)
            covered += len(np.unique(closest[apart <= EXACT]))
            errors.append(float(apart.max()))
            shown[target], nearest[target] = rows[:2].round(3), embedded[closest[:2]].round(3)
        graphs += len(embedded)
    means = {o: v.mean(0, keepdims=True) for o, v in true.items()}
    trivial = np.mean([float((_apart(means[o], v) <= EXACT).mean()) for o, v in true.items()])
    details = {
        "claimed": float(sum(map(len, hits))),
        "right": float(sum(int(hit.sum()) for hit in hits)),
        "graphs_read": float(covered),
        "share_of_graphs": covered / max(graphs, 1),
        "largest_error": max(errors),
    }
    trivially = {"the owner's mean embedding": float(trivial)}
    return Judgement(share_right("claimed embeddings exact", hits, of, trivially, details), nearest, shown)


def of_graphs(guess: Guess, finished: FinishedRun) -> Judgement:
    """Embeddings by graph: an unsolved one counts as wrong, and so does one of another graph."""
    true = embeddings(finished)
    solved = {t: ~np.isnan(v).any(1) for t, v in guess.values.items()}
    apart = {t: _apart(guess.values[t][at], true[t][at]) for t, at in solved.items()}
    right = sum(int((a <= 10 * EXACT).sum()) for a in apart.values())
    graphs = sum(map(len, true.values()))
    trivial = np.mean([float((_apart(v.mean(0, keepdims=True), v) <= EXACT).mean()) for v in true.values()])
    details = {
        "graphs": float(graphs),
        "solved": float(sum(int(at.sum()) for at in solved.values())),
        "right": float(right),
        "largest_error": max((float(a.max()) for a in apart.values() if len(a)), default=0.0),
    }
    baselines = {"the owner's mean embedding": float(trivial)}
    score = independent("graphs' embeddings read", right, graphs, baselines, details)
    some_of = {t: np.flatnonzero(at)[:2] for t, at in solved.items()}
    shown, named = ({t: rows[t][at].round(3) for t, at in some_of.items()} for rows in (true, guess.values))
    return Judgement(score, shown, named)


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
    details = {
        "motifs": float(held.sum()),
        "moved": float(moved.sum()),
        **({"embedding_error": float(apart[moved & held].min())} if (moved & held).any() else {}),
        "of_the_right_owner": float(target == owner),
    }
    score = independent("motifs of the graph right", share, 1.0, {"no motif": 0.0}, details)
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
    return np.asarray(np.abs(rows - true).max(1) / np.maximum(np.abs(true).max(1), 1e-12))


def pool(finished: FinishedRun) -> dict[str, payoffs.Candidates]:
    """Agent -> the motifs of its candidates; empty where the algorithm lists no motifs.

    Agents without a graph that they only test on, or only validate on, are left out.
    """
    settings: Any = finished.algorithm.settings
    if not hasattr(settings, "motif_keep"):
        return {}
    key = "motifs", id(finished.transcript)
    return once(key, finished, lambda: {o: _held(finished, o, at) for o, at in _candidates(finished).items()})


def _held(finished: FinishedRun, owner: str, numbers: np.ndarray) -> payoffs.Candidates:
    settings: Any = finished.algorithm.settings
    schema, graph = finished.federation.schema, finished.federation.owners[owner].clone()
    if settings.vocabulary == "public":
        # graphs that count for training are those whose motifs are looked for, in their own order
        graph.train_mask = torch.isin(torch.arange(len(graph.y)), torch.from_numpy(numbers))
        table = holds(cast(ClientContext, StandIn(finished, owner, graph)), settings).numpy() > 0
        order = np.searchsorted(np.sort(numbers), numbers)
        return payoffs.Candidates(every_motif(labels_of(schema), settings.rings).numpy(), table[order])
    motifs = motifs_of(graph, torch.from_numpy(numbers), settings.rings, bool(schema.atoms))
    table = np.zeros((motifs.graphs, len(motifs.codes)), dtype=bool)
    table[motifs.graph, motifs.motif] = True
    return payoffs.Candidates(motifs.codes.numpy(), table)


def _candidates(finished: FinishedRun) -> dict[str, np.ndarray]:
    """Agent -> the numbers of all its graphs, in an order that is drawn."""
    drawn = {}
    for owner, graph in finished.federation.owners.items():
        if 0 < int(graph.train_mask.sum()) < len(graph.y):
            rng = np.random.default_rng(sub_seed(finished.seed, f"candidates/{owner}"))
            drawn[owner] = rng.permutation(len(graph.y))
    return drawn


def members(guess: Guess, finished: FinishedRun) -> Judgement:
    """AUC of training graphs against the agent's others: of each agent, in the mean.

    All graphs of an agent were dealt to it before it drew which it trains on, so both kinds are alike.
    The interval is DeLong's over graphs, or that of the agents' own AUCs, whichever is wider. Trivial: a
    coin; and how rare a graph's motifs are among the candidates, which takes no message.
    """
    numbers, rarity = _candidates(finished), _rarity(pool(finished))
    held = {o: finished.federation.owners[o].train_mask.numpy()[at] for o, at in numbers.items()}
    of = [(np.concatenate([held[o] for o in mine]), guess.values[t]) for t, mine in guess.targets.items()]
    rare = [np.concatenate([rarity[o] for o in mine]) for mine in guess.targets.values()]
    areas = [roc_auc(scores, inside) for inside, scores in of]
    spread = [intervals.delong(scores[inside], scores[~inside])[1] for inside, scores in of]
    outside, value = sum(int((~inside).sum()) for inside, _ in of), float(np.mean(areas))
    variance = float(np.sum(spread)) / len(areas) ** 2
    trivial = [roc_auc(scores, inside) for scores, (inside, _) in zip(rare, of, strict=True)]
    score = Score(
        metric="auc",
        kind=ScoreKind.RANK,
        value=value,
        **intervals.bounds(lambda error: intervals.area(value, variance, outside, areas, error)),
        baselines={"random": 0.5, "rare motifs": float(np.mean(trivial))},
        details={"candidates": float(sum(len(inside) for inside, _ in of)), "held out": float(outside)},
    )
    return Judgement(score)


def _rarity(held: Mapping[str, payoffs.Candidates]) -> dict[str, np.ndarray]:
    """Agent -> ``[candidates]`` how rare a graph's motifs are among the agent's candidates, added up."""
    return {
        owner: one.holds @ -np.log((one.holds.sum(0) + 1) / (len(one.holds) + 1))
        for owner, one in held.items()
    }


def spoilt(finished: FinishedRun) -> dict[str, float]:
    """Agent -> the share of its links that was rewired; empty where no agent's were."""
    facts = finished.federation.facts.get("partition", {})
    shares = facts.get("rewired", {})
    return {agent: float(shares[group]) for agent, group in facts.get("quality", {}).items()}


def differ(finished: FinishedRun) -> bool:
    """Whether agents' data differ in quality."""
    return len(set(spoilt(finished).values())) > 1


def own_graphs(finished: FinishedRun) -> int:
    """The training graphs of the agent that the audit puts in the place of a curious one."""
    return _training(finished, finished.parties(CLIENT))


def quality(guess: Guess, finished: FinishedRun) -> Judgement:
    """Of all pairs of agents of different quality, the share in which the better one has the higher score.

    Ties count half. An agent is in many pairs, so the interval is of agents: its variance is the jackknife's.
    Trivial: a coin.
    """
    rewired = spoilt(finished)
    agents = [agent for agent in guess.values if agent in rewired]
    clean = -np.array([rewired[agent] for agent in agents])
    scores = np.array([float(guess.values[agent][0]) for agent in agents])
    value = concordance(scores, clean)
    without = np.array([concordance(np.delete(scores, i), np.delete(clean, i)) for i in range(len(agents))])
    variance = (len(agents) - 1) * float(np.nanvar(without))
    _, many = np.unique(clean, return_counts=True)
    score = Score(
        metric="auc",
        kind=ScoreKind.UNBOUNDED,
        value=value,
        **intervals.bounds(lambda error: intervals.area(value, variance, int(many.min()), (), error)),
        baselines={"random": 0.5},
        details={"agents": float(len(agents)), "qualities": float(len(many))},
    )
    return Judgement(
        score,
        {agent: np.array([rewired[agent]]) for agent in agents},
        {agent: np.round(guess.values[agent], 6) for agent in agents},
    )


def concordance(scores: np.ndarray, better: np.ndarray) -> float:
    """The share of pairs that differ in ``better`` in which the better one scores more; ties count half.

    >>> concordance(np.array([0.1, 0.2, 0.3]), np.array([0, 1, 1]))
    1.0
    """
    above = better[:, None] > better[None]
    if not above.any():
        return float("nan")
    wins = (scores[:, None] > scores[None]) + 0.5 * (scores[:, None] == scores[None])
    return float(wins[above].mean())


def sizes(guess: Guess, finished: FinishedRun) -> Judgement:
    """Whether the number of training graphs is exact. Trivial: as many at each agent as one has oneself."""
    ((target, named),) = guess.values.items()
    owners = guess.targets[target]
    true, equal = _training(finished, owners), own_graphs(finished) * len(owners)
    hit = abs(float(named[0]) - true) < 0.5
    baselines = {"as many as one's own": float(equal == true)}
    details = {"off_by": abs(float(named[0]) - true), "trivial_off_by": float(abs(equal - true))}
    score = independent("sizes exact", float(hit), 1.0, baselines, details, ScoreKind.UNBOUNDED)
    return Judgement(score, {target: np.array([true])}, {target: np.round(named, 3)})


def _training(finished: FinishedRun, owners: tuple[str, ...]) -> int:
    return sum(int(finished.federation.owners[owner].train_mask.sum()) for owner in owners)


JUDGES: Mapping[str, Judge] = {
    SINGLETONS: singletons,
    GRAPHS: of_graphs,
    CHANGE: change,
    payoffs.LISTED_MEMBERS: members,
    payoffs.QUALITY: quality,
    payoffs.GRAPHS_OF_OTHERS: sizes,
}
MAKERS: Mapping[str, Maker] = {
    INCIDENCE: incidence,
    EARLIER: earlier,
    payoffs.POOL: pool,
    payoffs.DIFFERENT: differ,
    payoffs.OWN_GRAPHS: own_graphs,
}
