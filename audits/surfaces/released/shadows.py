"""Shadow models: of candidates that coins put in or out, and of made-up owners with drawn class shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.data import Batch, Data

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms.fedsgd.algorithm import FedSgd
from secure_fedgraph.algorithms.training.node_classifier import NodeClassifier
from secure_fedgraph.attacks.class_shares import MEAN_ANSWERS, SHADOW_OWNERS, MeanAnswers, ShadowOwners
from secure_fedgraph.attacks.released import CANDIDATES, Candidates
from secure_fedgraph.audits.finished_run import FinishedRun, once
from secure_fedgraph.audits.judgement import Maker
from secure_fedgraph.audits.rerun import in_the_open
from secure_fedgraph.audits.surfaces.released.models import (
    Answering,
    Models,
    cut,
    keeps,
    logs,
    models_of,
    own_models,
    published,
    rerun,
    without_links,
)
from secure_fedgraph.graph.kinds import GraphDataset
from secure_fedgraph.graph.sample.links import EDGE_FIELDS
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.models.parameters import glorot
from secure_fedgraph.models.user_models import scores_of

SHADOWS, STEPS, RATE = 8, 60, 0.01
"""Shadow models, and how each is trained: full batches, whole neighbourhoods, Adam. Half a minute on Cora."""
STEPPED = 10
"""Rounds of a shadow model whose algorithm takes one step a round, at most."""

UPDATES_OF = 60
"""Shadow owners that answer one request."""
MODELS_OF = 24
"""Shadow models."""
SPREAD = 0.7
"""Of the Dirichlet distribution that class shares are drawn from: less than 1 makes some classes rare."""
READ = ("update", "moments", "class_sums")


def coins(finished: FinishedRun) -> dict[str, np.ndarray]:
    """Owner -> ``[nodes]`` the coin that puts each node in or out; only those of training nodes are used."""
    rng = np.random.default_rng(sub_seed(finished.seed, "audited members"))
    owners = finished.federation.owners
    return {owner: rng.random(owners[owner].num_nodes) < 0.5 for owner in sorted(owners)}


@dataclass(frozen=True)
class Shadow:
    """One shadow model's probabilities of the training nodes' labels, by owner, and who was in.

    Args:
        linked, alone: owner -> ``[training nodes]``, asked with their links and without.
        inside: owner -> ``[nodes]``.
    """

    linked: Mapping[str, np.ndarray] = field(repr=False)
    alone: Mapping[str, np.ndarray] = field(repr=False)
    inside: Mapping[str, np.ndarray] = field(repr=False)


def candidates(finished: FinishedRun) -> dict[str, Candidates]:
    """Owner -> what the audited model and shadow models say about its training nodes.

    The audited model is trained as the run was configured, on the nodes that the coins left in. A node that
    is out loses its links too. In or out, the models are asked about it in its whole neighbourhood, and
    without its links.
    """
    if "config" not in finished.result or not _has_model(finished):
        return {}
    audited, shadows = _audited(finished), _shadows(finished)
    by_owner = {}
    for owner, graph in finished.federation.owners.items():
        rows = graph.train_mask.numpy()
        by_owner[owner] = Candidates(
            target=_own_labels(audited.of(owner), graph),
            right=audited.of(owner)(graph)[rows].argmax(1) == graph.y.numpy()[rows],
            shadows=np.stack([one.linked[owner] for one in shadows]),
            inside=np.stack([one.inside[owner][rows] for one in shadows]),
            alone=_own_labels(audited.of(owner), without_links(graph)),
            shadows_alone=np.stack([one.alone[owner] for one in shadows]),
        )
    return by_owner


def _has_model(finished: FinishedRun) -> bool:
    algorithm, schema = finished.algorithm, finished.federation.schema
    if finished.released is None:
        return own_models(algorithm, schema)
    return schema.kind == GraphDataset.kind and type(algorithm).predict is not Algorithm.predict


def _own_labels(answering: Answering, graph: Data) -> np.ndarray:
    """``[training nodes]`` the probability of each one's own label."""
    rows = graph.train_mask.numpy()
    own = graph.y.numpy()[rows]
    return np.asarray(np.exp(answering(graph)[rows][np.arange(len(own)), own]))


def _audited(finished: FinishedRun) -> Models:
    """The models that the configured run publishes on the nodes that are in."""

    def make() -> Models:
        inside = coins(finished)
        owners = {o: held(g, torch.from_numpy(inside[o])) for o, g in finished.federation.owners.items()}
        return rerun(finished, replace(finished.federation, owners=owners))

    return once(("audited", id(finished.transcript)), finished, make)


def _shadows(finished: FinishedRun) -> list[Shadow]:
    """Models in pairs with opposite coins, so that each node is in half of them.

    Where models are personal, one of each owner's nodes alone.
    """

    def make() -> list[Shadow]:
        rng, owners = np.random.default_rng(sub_seed(finished.seed, "shadows")), finished.federation.owners
        shadows: list[Shadow] = []
        for number in range(SHADOWS):
            if number % 2:
                inside = {owner: ~coin for owner, coin in shadows[-1].inside.items()}
            else:
                inside = {owner: rng.random(graph.num_nodes) < 0.5 for owner, graph in owners.items()}
            graphs = {o: held(graph, torch.from_numpy(inside[o])) for o, graph in owners.items()}
            models = shadow_models(finished, graphs, sub_seed(finished.seed, f"shadow {number}"))
            linked = {owner: _own_labels(models.of(owner), graph) for owner, graph in owners.items()}
            alone = {o: _own_labels(models.of(o), without_links(graph)) for o, graph in owners.items()}
            shadows.append(Shadow(linked, alone, inside))
        return shadows

    key = (
        "shadows",
        finished.federation.facts.get("digest"),
        finished.seed,
        finished.algorithm.name,
        str(finished.algorithm.public()["settings"]),
    )
    return once((*key, finished.federation.names), finished, make)


def shadow_models(finished: FinishedRun, graphs: Mapping[str, Data], seed: int) -> Models:
    """What somebody trains who knows the algorithm and its settings, and has these graphs.

    A network that classifies nodes is trained on whole neighbourhoods, which is cheaper than the run and not
    the same: of all graphs one, or of each its own where models are personal. Every other algorithm runs as
    it was configured, without protection; one that takes a step a round, for a few rounds.
    """
    algorithm, rounds = finished.algorithm, finished.result["config"].get("rounds")
    if isinstance(algorithm, FedSgd):
        rounds = min(rounds or algorithm.rounds, STEPPED)
    if isinstance(algorithm, NodeClassifier) and type(algorithm).predict is NodeClassifier.predict:
        if algorithm.personal() is None:
            return Models(shared=_fitted(finished, list(graphs.values()), seed))
        return Models(personal={owner: _fitted(finished, [graph], seed) for owner, graph in graphs.items()})
    federation = replace(finished.federation, owners=dict(graphs))
    evaluation = "at_home" if algorithm.personal() is None else "referee"
    run = in_the_open(algorithm, federation, seed, rounds, keeps(algorithm), evaluation)
    return models_of(run)


def _fitted(finished: FinishedRun, graphs: list[Data], seed: int) -> Answering:
    """One model of these graphs, on whole neighbourhoods."""
    algorithm, schema = finished.algorithm, finished.federation.schema
    assert isinstance(algorithm, NodeClassifier)
    if algorithm.made_with():  # a user's own model starts as its author has it
        model = algorithm.start(schema, seed)
    else:
        model = algorithm.model(schema)
        glorot(model, seed)
    starts = np.cumsum([0, *(graph.num_nodes for graph in graphs)])
    x, y = torch.cat([g.x for g in graphs]), torch.cat([g.y for g in graphs])
    links = torch.cat([g.edge_index + int(start) for g, start in zip(graphs, starts, strict=False)], dim=1)
    rows = torch.cat([g.train_mask for g in graphs])
    fields = {k: torch.cat([g[k] for g in graphs]) for k in EDGE_FIELDS if graphs[0].get(k) is not None}
    union = Data(x=x, edge_index=links, **fields)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    model.train()
    for _ in range(STEPS):
        optimizer.zero_grad()
        F.cross_entropy(scores_of(model, union)[rows], y[rows]).backward()
        optimizer.step()
    model.eval()

    def answering(graph: Data) -> np.ndarray:
        with torch.no_grad():
            return logs(scores_of(model, graph))

    return answering


def held(graph: Data, inside: torch.Tensor) -> Data:
    """The graph without the training nodes that are out, and without the links at them."""
    made = cut(graph, inside | ~graph.train_mask)
    made.train_mask = graph.train_mask & inside
    return made


def shadow_owners(finished: FinishedRun) -> ShadowOwners | None:
    """Uploads of the first round of owners that the attacker makes up.

    They take part in a run of the same algorithm, settings and seed, so the first request is the same. None
    where there are no nodes without training nodes among them, or no uploads that could be compared.
    """
    algorithm, federation = finished.algorithm, finished.federation
    channels, classes = {one.name for one in algorithm.in_use} & set(READ), federation.schema.classes
    if federation.schema.kind != GraphDataset.kind or not channels:
        return None

    def make() -> ShadowOwners | None:
        halves = _halves(finished)
        if halves is None:
            return None
        owners, shares = _drawn(finished, halves[0], UPDATES_OF)
        made_up = replace(federation, owners=owners)
        run = in_the_open(algorithm, made_up, finished.seed, 1, lambda one, round: one in channels, "at_home")
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
            model = algorithm.released(state) or state  # a clip may travel with it
            return np.asarray(np.exp(logs(algorithm.predict(model, halves[1], federation.schema))).mean(0))

        return ShadowOwners(updates, shares, ask if sends_model else None)

    return once(("shadow owners", id(finished.transcript)), finished, make)


def mean_answers(finished: FinishedRun) -> MeanAnswers | None:
    """What owners' own models answer in the mean, and those of shadow owners with drawn class shares.

    Shadow owners train theirs in one run of the same algorithm and settings. None where owners publish none.
    """

    def make() -> MeanAnswers | None:
        models, halves = published(finished).personal, _halves(finished)
        if not models or halves is None:
            return None
        owners, shares = _drawn(finished, halves[0], MODELS_OF)
        made = rerun(finished, replace(finished.federation, owners=owners))
        shadows = np.stack([_summary(made.of(name), halves[1]) for name in owners])
        personal = {owner: _summary(answering, halves[1]) for owner, answering in models.items()}
        return MeanAnswers(shadows, shares, personal)

    if "config" not in finished.result:
        return None
    return once(("mean answers", id(finished.transcript)), finished, make)


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
        plain, rest = Data(x=graph.x, y=graph.y, edge_index=graph.edge_index), ~graph.train_mask
        first = torch.from_numpy(rng.random(int(graph.num_nodes)) < 0.5)
        for half, kept in zip(parts, (rest & first, rest & ~first), strict=True):
            half.append(plain.subgraph(kept))
    pool, asked = (Batch.from_data_list(half) for half in parts)
    return (
        (pool, asked) if min(pool.num_nodes, asked.num_nodes) >= finished.federation.schema.classes else None
    )


def _drawn(finished: FinishedRun, pool: Data, many: int) -> tuple[dict[str, Data], np.ndarray]:
    """Made-up owners' graphs whose class shares are drawn, and these shares ``[many, classes]``.

    Nodes are drawn with replacement, as many as an owner has training nodes on average; copies of two linked
    nodes are linked.
    """
    owners, classes = finished.federation.owners.values(), finished.federation.schema.classes
    size = max(2, round(float(np.mean([int(graph.train_mask.sum()) for graph in owners]))))
    rng = np.random.default_rng(sub_seed(finished.seed, "class shares"))
    labels = pool.y.numpy()
    by_class = [np.flatnonzero(labels == one) for one in range(classes)]
    known = np.array([len(nodes) > 0 for nodes in by_class])
    graphs, shares = {}, []
    for number in range(many):
        wanted = rng.dirichlet(np.full(classes, SPREAD)) * known
        counts = rng.multinomial(size, wanted / wanted.sum())
        nodes = np.concatenate([rng.choice(of, n) for of, n in zip(by_class, counts, strict=True) if n])
        graphs[f"shadow-{number:03d}"] = _copies(pool, nodes)
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


MAKERS: Mapping[str, Maker] = {
    CANDIDATES: candidates,
    SHADOW_OWNERS: shadow_owners,
    MEAN_ANSWERS: mean_answers,
}
