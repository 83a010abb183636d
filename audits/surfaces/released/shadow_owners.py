"""Shadow owners with class shares that are drawn, and what they send and train; the judge of class shares."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.attacks.attack import Guess
from secure_fedgraph.attacks.released.class_shares import MEAN_ANSWERS, MeanAnswers
from secure_fedgraph.attacks.weights.class_shares import CLASS_SHARES, SHADOW_OWNERS, ShadowOwners
from secure_fedgraph.audits.finished_run import FinishedRun, once
from secure_fedgraph.audits.judgement import Judge, Judgement, Maker
from secure_fedgraph.audits.surfaces.released.models import Answering, cut, logs, published, rerun
from secure_fedgraph.audits.surfaces.released.shadows import shadow_models
from secure_fedgraph.audits.surfaces.weights import labels
from secure_fedgraph.graph.kinds import GraphDataset
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.policies import plaintext
from secure_fedgraph.privacy.policy import PlaintextWarning
from secure_fedgraph.running.loop import train

UPDATES_OF = 60
"""Shadow owners that answer one request."""
MODELS_OF = 24
"""Shadow models."""
SPREAD = 0.7
"""Of the Dirichlet distribution that class shares are drawn from: less than 1 makes some classes rare."""
READ = ("update", "moments", "class_sums")


def shadow_owners(finished: FinishedRun) -> ShadowOwners | None:
    """Uploads of the first round of owners that the attacker makes up.

    They take part in a run of the same algorithm, settings and seed, so the first request is the same. None
    where there are no nodes without training nodes among them, or no uploads that could be compared.
    """
    algorithm, federation, classes = (
        finished.algorithm,
        finished.federation,
        finished.federation.schema.classes,
    )
    channels = {one.name for one in algorithm.in_use} & set(READ)
    if federation.schema.kind != GraphDataset.kind or not channels:
        return None

    def make() -> ShadowOwners | None:
        halves = _halves(finished)
        if halves is None:
            return None
        pool, asked = halves
        graphs, shares = _drawn(finished, pool, UPDATES_OF)
        owners = {f"shadow-{number:03d}": graph for number, graph in enumerate(graphs)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PlaintextWarning)
            run = train(
                algorithm,
                replace(federation, owners=owners),
                plaintext(),
                rounds=1,
                seed=finished.seed,
                keep=lambda channel, round: channel in channels,
                evaluation="at_home",
                allow_plaintext=True,
            )
        sends_model = "update" in channels and type(algorithm).predict is not Algorithm.predict
        view, updates = run.transcript.view("server"), {}
        for channel in channels:
            by_owner = {
                seen.clients[0]: {k: v for k, v in seen.values.items() if sends_model or classes in v.shape}
                for seen in reversed(view.uploads(channel))
            }
            if set(by_owner) == set(owners):
                updates[channel] = [by_owner[name] for name in owners]

        def ask(parameters: Mapping[str, np.ndarray]) -> np.ndarray:
            state = {name: torch.tensor(np.array(value)).float() for name, value in parameters.items()}
            return mean_answer(lambda graph: logs(algorithm.predict(state, graph, federation.schema)), asked)

        return ShadowOwners(updates, shares, ask if sends_model else None)

    return once(("shadow owners", id(finished.transcript)), finished, make)


def mean_answers(finished: FinishedRun) -> MeanAnswers | None:
    """What published models, and shadow models with class shares that are drawn, answer in the mean.

    Where owners have models of their own, shadow owners train theirs in one run of the same algorithm and
    settings. Otherwise each shadow model is one of as many shadow owners' nodes as there are owners.
    """
    federation = finished.federation

    def make() -> MeanAnswers | None:
        models, halves = published(finished), _halves(finished)
        if not models or halves is None:
            return None
        pool, asked = halves
        if models.personal:
            graphs, shares = _drawn(finished, pool, MODELS_OF)
            owners = {f"shadow-{number:03d}": graph for number, graph in enumerate(graphs)}
            made = rerun(finished, replace(federation, owners=owners))
            rows = [_summary(made.of(name), asked) for name in owners]
        else:
            many = len(federation.names)
            graphs, drawn = _drawn(finished, pool, MODELS_OF * many)
            shares, rows = drawn.reshape(MODELS_OF, many, -1).mean(1), []
            for number in range(MODELS_OF):
                mine = graphs[number * many : (number + 1) * many]
                owners = dict(zip(federation.names, mine, strict=True))
                made = shadow_models(finished, owners, sub_seed(finished.seed, f"shares {number}"))
                rows.append(_summary(made.of(federation.names[0]), asked))
        return MeanAnswers(
            np.stack(rows),
            shares,
            {owner: _summary(answering, asked) for owner, answering in models.personal.items()},
            None if models.shared is None else _summary(models.shared, asked),
            federation.names,
        )

    if "config" not in finished.result:
        return None
    return once(("mean answers", id(finished.transcript)), finished, make)


def mean_answer(answering: Answering, graph: Data) -> np.ndarray:
    """``[classes]`` the mean probability of each class over a graph's nodes."""
    mean: np.ndarray = np.exp(answering(graph)).mean(0)
    return mean


def _summary(answering: Answering, graph: Data) -> np.ndarray:
    """``[3 * classes]``: mean probabilities, mean log-probabilities, and those of each class's own nodes."""
    answers, y = answering(graph), graph.y.numpy()
    classes = answers.shape[1]
    own = np.exp(answers[np.arange(len(y)), y])
    many = np.bincount(y, minlength=classes)
    of_own = np.bincount(y, weights=own, minlength=classes) / np.maximum(many, 1)
    return np.concatenate([np.exp(answers).mean(0), np.maximum(answers, -30).mean(0), of_own])


def _halves(finished: FinishedRun) -> tuple[Data, Data] | None:
    """The nodes that nobody trained on, in two halves, each with its links; None where there are few."""
    rng, parts = np.random.default_rng(sub_seed(finished.seed, "shadow owners")), ([], [])  # type: ignore[var-annotated]
    if finished.federation.schema.kind != GraphDataset.kind:
        return None
    for graph in finished.federation.owners.values():
        rest = ~graph.train_mask
        first = torch.from_numpy(rng.random(int(graph.num_nodes)) < 0.5)
        for half, kept in zip(parts, (rest & first, rest & ~first), strict=True):
            half.append(_only(graph, kept))
    pool, asked = (_joined(half) for half in parts)
    return (
        (pool, asked) if min(pool.num_nodes, asked.num_nodes) >= finished.federation.schema.classes else None
    )


def _only(graph: Data, kept: torch.Tensor) -> Data:
    among = cut(graph, kept)
    place = torch.cumsum(kept, 0) - 1
    return Data(x=graph.x[kept], y=graph.y[kept], edge_index=place[among.edge_index])


def _joined(graphs: list[Data]) -> Data:
    starts = np.cumsum([0, *(len(graph.x) for graph in graphs)])
    links = [graph.edge_index + int(start) for graph, start in zip(graphs, starts, strict=False)]
    return Data(
        x=torch.cat([g.x for g in graphs]), y=torch.cat([g.y for g in graphs]), edge_index=torch.cat(links, 1)
    )


def _drawn(finished: FinishedRun, pool: Data, many: int) -> tuple[list[Data], np.ndarray]:
    """Training graphs whose class shares are drawn, and these shares ``[many, classes]``.

    Nodes are drawn with replacement, as many as an owner has training nodes on average; copies of two linked
    nodes are linked.
    """
    owners, classes = finished.federation.owners.values(), finished.federation.schema.classes
    size = max(2, round(float(np.mean([int(graph.train_mask.sum()) for graph in owners]))))
    rng = np.random.default_rng(sub_seed(finished.seed, "class shares"))
    labels = pool.y.numpy()
    by_class = [np.flatnonzero(labels == one) for one in range(classes)]
    known = np.array([len(nodes) > 0 for nodes in by_class])
    graphs, shares = [], []
    for _ in range(many):
        wanted = rng.dirichlet(np.full(classes, SPREAD)) * known
        counts = rng.multinomial(size, wanted / wanted.sum())
        nodes = np.concatenate([rng.choice(of, n) for of, n in zip(by_class, counts, strict=True) if n])
        graphs.append(_copies(pool, nodes))
        shares.append(counts / size)
    return graphs, np.stack(shares)


def _copies(pool: Data, nodes: np.ndarray) -> Data:
    """The graph of these nodes of another, one of which may come several times."""
    source, target = pool.edge_index.numpy()
    where: list[list[int]] = [[] for _ in range(int(pool.num_nodes))]
    for place, node in enumerate(nodes.tolist()):
        where[node].append(place)
    pairs = [
        (a, b)
        for u, v in zip(source.tolist(), target.tolist(), strict=True)
        for a in where[u]
        for b in where[v]
    ]
    links = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T.contiguous()
    all_in, none = torch.ones(len(nodes), dtype=torch.bool), torch.zeros(len(nodes), dtype=torch.bool)
    return Data(
        x=pool.x[nodes],
        y=pool.y[nodes],
        edge_index=links,
        train_mask=all_in,
        val_mask=none,
        test_mask=none.clone(),
        node_id=torch.arange(len(nodes)),
    )


def class_shares(guess: Guess, finished: FinishedRun) -> Judgement:
    """The share of labels that are put into the right class, as for label counts.

    One more trivial guess than there: the shares among nodes that nobody trained on. Of several owners the
    truth is the mean of their shares.
    """
    classes = finished.federation.schema.classes
    rest = [g.y[~g.train_mask] for g in finished.federation.owners.values()]
    public = torch.bincount(torch.cat(rest), minlength=classes).double().numpy()
    judged = labels(guess, finished)
    public /= max(float(public.sum()), 1.0)
    placed = [1 - np.abs(public - one / one.sum()).sum() / 2 for one in judged.true.values()]
    known = {"the shares of nodes that nobody trained on": float(np.mean(placed))}
    return replace(judged, score=replace(judged.score, baselines={**judged.score.baselines, **known}))


MAKERS: Mapping[str, Maker] = {SHADOW_OWNERS: shadow_owners, MEAN_ANSWERS: mean_answers}
JUDGES: Mapping[str, Judge] = {CLASS_SHARES: class_shares}
