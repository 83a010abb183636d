"""Judges of what models give away: links, words, members, class shares, and whose a node is."""

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
from secure_fedgraph.attacks import released as attack
from secure_fedgraph.attacks.attack import Blind, Guess
from secure_fedgraph.attacks.class_shares import CLASS_SHARES
from secure_fedgraph.attacks.ownership import EVIDENCE, OWN_ANSWERS, OWNERS_OF_NODES, Evidence, OwnAnswers
from secure_fedgraph.audits import intervals, scoring
from secure_fedgraph.audits.empirical_dp.neighbourhoods import around
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.judgement import Judge, Judgement, Maker
from secure_fedgraph.audits.surfaces.links import linked_nodes
from secure_fedgraph.audits.surfaces.released.models import Answering, cut, logs, published, without_links
from secure_fedgraph.audits.surfaces.released.shadows import coins
from secure_fedgraph.audits.surfaces.weights import labels
from secure_fedgraph.core.upload import moments_of
from secure_fedgraph.evaluation import roc_auc
from secure_fedgraph.graph.kinds import GraphDataset
from secure_fedgraph.models.parameters import load
from secure_fedgraph.models.user_models import scores_of

# What outsiders are granted of published answers, of uploads and of owners' models.

RIDGE = 1e-3
"""Added to a sum of ``z z^T`` of rows of length 1."""


def answers(finished: FinishedRun) -> dict[str, attack.Answers]:
    """Owner -> what the published model answers about its nodes, with its links and without."""
    models = published(finished)
    if not models:
        return {}
    return {
        owner: attack.Answers(models.of(owner)(graph), models.of(owner)(without_links(graph)))
        for owner, graph in finished.federation.owners.items()
    }


class _First(Kept):
    """The first result, whatever is asked later."""

    def of(self, given: tuple[torch.Tensor, ...], make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """What the first question was answered with."""
        if not self:
            self.append((given, make()))
        return self[0][1]


def service(finished: FinishedRun) -> dict[str, attack.Service]:
    """Owner -> a service that answers by its links for features that are sent to it.

    Where weights are solved for the graph that is asked about, a service solves them once.
    """
    models = published(finished)
    if not models:
        return {}

    def of(owner: str, graph: Data) -> attack.Service:
        settled, asked = copy.copy(finished.algorithm), copy.copy(graph)
        if isinstance(settled, OfRecords):
            settled.kept = _First()
        answering = published(replace(finished, algorithm=settled)).of(owner)

        def ask(features: np.ndarray) -> np.ndarray:
            asked.x = torch.from_numpy(features)
            return answering(asked)

        return attack.Service(ask, graph.x.numpy().copy())

    return {owner: of(owner, graph) for owner, graph in finished.federation.owners.items()}


def embedded(finished: FinishedRun) -> dict[str, attack.Embedded]:
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
            by_owner[owner] = attack.Embedded(
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
    return {**by_owner, **({"": attack.Embedded(*joined)} if len(joined[0]) else {})}


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
    return np.concatenate([g.y.numpy()[g.train_mask.numpy()] for g in owners])


def _answers(finished: FinishedRun, answering: Answering) -> np.ndarray:
    """``[training nodes of all, classes]`` log-probabilities, each node among its own links."""
    graphs = finished.federation.owners.values()
    return np.concatenate([answering(graph)[graph.train_mask.numpy()] for graph in graphs])


def _sure(finished: FinishedRun, answering: Answering) -> np.ndarray:
    """The log-probability of each one's label."""
    y = training_labels(finished)
    return np.asarray(_answers(finished, answering)[np.arange(len(y)), y])


def _right(finished: FinishedRun, answering: Answering) -> np.ndarray:
    return np.asarray(_answers(finished, answering).argmax(1) == training_labels(finished))


def _in_row_space(algorithm: FedRidge, finished: FinishedRun, upload: Mapping[str, np.ndarray]) -> np.ndarray:
    """Minus ``z^T (sum + ridge)^-1 z``; of class sums alone the product with the sum of the node's class."""
    schema, owners = finished.federation.schema, finished.federation.owners.values()
    z = torch.cat([algorithm.records(g, schema)[g.train_mask] for g in owners]).double()
    total = {name: torch.tensor(np.array(value)) for name, value in upload.items()}
    contribution = algorithm.in_use[0].unit_contribution
    second, classes = moments_of(total, contribution)  # type: ignore[arg-type]
    if second is None:
        y = torch.cat([g.y[g.train_mask] for g in owners])
        return (z * classes.T[y]).sum(1).numpy()
    solved = torch.linalg.solve(second + RIDGE * torch.eye(len(second), dtype=torch.float64), z.T)
    return np.asarray(-(z.T * solved).sum(0).numpy())


MAKERS: Mapping[str, Maker] = {
    attack.ANSWERS: answers,
    attack.EMBEDDED: embedded,
    attack.SERVICE: service,
    EVIDENCE: evidence,
    OWN_ANSWERS: own_answers,
}


RESAMPLES = 200
SHOWN = 20
"""Values that are kept for pictures."""


def links(guess: Guess, finished: FinishedRun) -> Judgement:
    """AUC over all pairs of an owner's nodes, mean over owners; the baseline is that of similar features.

    The interval comes from resampled nodes: pairs of one node are not independent. Beyond what so few
    resamples show it is normal, with their variance.

    Raises:
        Blind: where no owner has pairs with a link beside pairs without one.
    """
    rng, scores, plain, draws, hits, pairs, apart = np.random.default_rng(0), [], [], [], 0, 0, 0
    graphs = {}
    for owner, pair_scores in guess.values.items():
        graph = finished.federation.owners[owner]
        nodes = graph.num_nodes
        first, second = np.triu_indices(nodes, 1)
        linked = linked_nodes(graph)
        true = linked[first, second]
        if not true.any() or true.all():
            continue  # there is nothing to tell apart
        x = graph.x.double().numpy()
        x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        scores.append(roc_auc(pair_scores, true))
        plain.append(roc_auc((x @ x.T)[first, second], true))
        order = np.argsort(pair_scores, kind="stable")
        weights = [rng.multinomial(nodes, np.full(nodes, 1 / nodes)) for _ in range(RESAMPLES)]
        draws.append([_weighted_auc(true[order], (w[first] * w[second])[order]) for w in weights])
        guessed = order[-int(true.sum()) :]
        hits, pairs = hits + int(true[guessed].sum()), pairs + int(true.sum())
        apart += max(1, int(linked.any(0).sum()) // 2)  # so many links have no node in common, at most
        graphs[owner] = around(first, second, pair_scores, true)
    if not scores:
        raise Blind(
            "no owner has both linked and unlinked pairs of nodes, so no link can be told from others"
        )
    value, resampled = float(np.mean(scores)), np.mean(draws, axis=0)

    def interval(error: float) -> tuple[float, float]:
        if error * RESAMPLES < 1:
            return intervals.area(value, float(np.var(resampled, ddof=1)), apart, (), error)
        low, high = np.quantile(resampled, [error, 1 - error])
        return float(low), float(high)

    score = scoring.Score(
        metric="auc",
        kind=scoring.ScoreKind.RANK,
        value=value,
        **intervals.bounds(interval),
        baselines={"random": 0.5, "alike features": float(np.mean(plain))},
        details={"f1_at_as_many_links": hits / pairs, "links": float(pairs)},
    )
    return Judgement(score, graphs=graphs)


def _weighted_auc(true: np.ndarray, weights: np.ndarray) -> float:
    """AUC of pairs in ascending order of their scores, each counted as often as it was drawn."""
    negative = np.where(true, 0, weights).cumsum()
    positive = np.where(true, weights, 0)
    return float((positive * negative).sum() / max(positive.sum() * negative[-1], 1))


def words(guess: Guess, finished: FinishedRun) -> Judgement:
    """Mean cosine with the features of the training nodes, and how often the own node is the nearest of all.

    The baseline is the mean of the nodes that nobody trained on, which an outsider has without an embedding.
    """
    by_owner, plain, nearest = [], [], []
    owners = finished.federation.owners
    public = np.concatenate([g.x[~g.train_mask].double().numpy() for g in owners.values()]).mean(0)
    true = {owner: owners[owner].x[owners[owner].train_mask].double().numpy() for owner in guess.values}
    for owner, rows in guess.values.items():
        by_owner.append(scoring.cosine(rows, true[owner]))
        plain.append(scoring.cosine(np.broadcast_to(public, true[owner].shape), true[owner]))
        alike = _unit(rows - public) @ _unit(true[owner] - public).T
        nearest.append(alike.argmax(1) == np.arange(len(rows)))
    cosines = np.concatenate(by_owner)
    hits = np.concatenate(nearest)
    score = scoring.Score(
        metric="cosine with the words",
        kind=scoring.ScoreKind.COSINE,
        value=float(cosines.mean()),
        **intervals.bounds(lambda error: intervals.mean_cosine(cosines, error)),
        baselines={"the mean of public nodes": float(np.concatenate(plain).mean())},
        details={
            "nodes": float(len(cosines)),
            "own_node_is_nearest": float(hits.mean()),
            "by_chance": float(np.mean([1 / len(rows) for rows in true.values()])),
        },
    )
    return Judgement(
        score,
        {t: v[:2, :SHOWN].round(3) for t, v in true.items()},
        {t: v[:2, :SHOWN].round(3) for t, v in guess.values.items()},
    )


def members(guess: Guess, finished: FinishedRun) -> Judgement:
    """AUC and the true positives at one false positive in a hundred, against the coins.

    Coins are independent, answers are not: they come from one model. So the interval is DeLong's over nodes,
    or that of the owners' own AUCs, whichever is wider.
    """
    inside, owners = coins(finished), finished.federation.owners
    true = {owner: inside[owner][owners[owner].train_mask.numpy()] for owner in guess.values}
    member, guessed = (np.concatenate([d[o] for o in guess.values]) for d in (true, guess.values))
    value, variance = intervals.delong(guessed[member], guessed[~member])
    parts = [(true[owner], guess.values[owner]) for owner in guess.values]
    mine = [roc_auc(scores, held) for held, scores in parts if held.any() and not held.all()]
    one, tenth = np.quantile(guessed[~member], [0.99, 0.999], method="higher")
    hits, of = int((guessed[member] > one).sum()), int(member.sum())
    tpr_low, tpr_high = intervals.share(hits, of)
    fewer = min(of, len(member) - of)
    score = scoring.Score(
        metric="auc",
        kind=scoring.ScoreKind.RANK,
        value=value,
        **intervals.bounds(lambda error: intervals.area(value, variance, fewer, mine, error, by_coins=True)),
        baselines={"random": 0.5},
        details={
            "tpr_at_1_fpr": hits / of,
            "tpr_low": tpr_low,
            "tpr_high": tpr_high,
            "tpr_at_0.1_percent": float((guessed[member] > tenth).mean()),
            "members": float(of),
            "others": float(len(member) - of),
        },
    )
    return Judgement(score)


def _unit(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


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


def owners_of_nodes(guess: Guess, finished: FinishedRun) -> Judgement:
    """The share of training nodes whose owner is named; in the interval an owner's nodes of a class are one.

    Trivial: the owner with most training nodes, and for each class the owner with most of its nodes, which
    whoever knows everybody's label counts could say without a model.
    """
    owners = finished.federation.owners
    names = list(guess.values)
    true = np.concatenate([np.full(int(g.train_mask.sum()), names.index(o)) for o, g in owners.items()])
    y = training_labels(finished)
    named = np.stack([guess.values[name] for name in names]).argmax(0)
    table = np.zeros((len(names), finished.federation.schema.classes), dtype=int)
    np.add.at(table, (true, y), 1)
    baselines = {
        "the owner with most nodes": float(table.sum(1).max() / len(y)),
        "the owner with most of the node's class": float(table.max(0).sum() / len(y)),
    }
    # unbounded: one node is in one owner's data, and the others' say whose it is not
    score = scoring.share_right(
        "owners named right",
        [named == true],
        [true * table.shape[1] + y],
        baselines,
        {"nodes": float(len(y)), "owners": float(len(names))},
    )
    return Judgement(score)


JUDGES: Mapping[str, Judge] = {
    attack.LINKS: links,
    attack.WORDS: words,
    attack.MEMBERS: members,
    CLASS_SHARES: class_shares,
    OWNERS_OF_NODES: owners_of_nodes,
}
