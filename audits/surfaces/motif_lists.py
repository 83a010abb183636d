"""Motif lists: the candidates that an attacker is granted, and the judge of who was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch

from secure_fedgraph.algorithms.fairgraphfl.motifs import holds, labels_of
from secure_fedgraph.attacks.attack import Guess
from secure_fedgraph.attacks.motif_lists import LISTED_MEMBERS, POOL, Candidates
from secure_fedgraph.audits import intervals, scoring
from secure_fedgraph.audits.finished_run import FinishedRun, once
from secure_fedgraph.audits.judgement import Judge, Judgement, Maker
from secure_fedgraph.audits.surfaces.prototypes import StandIn
from secure_fedgraph.evaluation import roc_auc
from secure_fedgraph.graph.motifs import every_motif, motifs_of
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.seams import ClientContext

SHOWN = 12


def pool(finished: FinishedRun) -> dict[str, Candidates]:
    """Agent -> the motifs of its candidates; empty where the algorithm lists no motifs.

    Agents without a graph that they only test on, or only validate on, are left out.
    """
    settings: Any = finished.algorithm.settings
    if not hasattr(settings, "motif_keep"):
        return {}
    key = "motifs", id(finished.transcript)
    return once(key, finished, lambda: {o: _held(finished, o, at) for o, at in _candidates(finished).items()})


def _held(finished: FinishedRun, owner: str, numbers: np.ndarray) -> Candidates:
    settings: Any = finished.algorithm.settings
    schema, graph = finished.federation.schema, finished.federation.owners[owner].clone()
    if settings.vocabulary == "public":
        # graphs that count for training are those whose motifs are looked for, in their own order
        graph.train_mask = torch.isin(torch.arange(len(graph.y)), torch.from_numpy(numbers))
        table = holds(cast(ClientContext, StandIn(finished, owner, graph)), settings).numpy() > 0
        order = np.searchsorted(np.sort(numbers), numbers)
        return Candidates(every_motif(labels_of(schema), settings.rings).numpy(), table[order])
    motifs = motifs_of(graph, torch.from_numpy(numbers), settings.rings, bool(schema.atoms))
    table = np.zeros((motifs.graphs, len(motifs.codes)), dtype=bool)
    table[motifs.graph, motifs.motif] = True
    return Candidates(motifs.codes.numpy(), table)


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
    numbers, held = _candidates(finished), pool(finished)
    inside = {o: finished.federation.owners[o].train_mask.numpy()[at] for o, at in numbers.items()}
    if len(guess.values) == 1 and set(guess.values) - set(inside):
        return _judged({**guess.values}, _together(inside, guess), _together(_rarity(held), guess))
    mine = {owner: inside[owner] for owner in guess.values}
    return _judged({**guess.values}, mine, {o: v for o, v in _rarity(held).items() if o in mine})


def _judged(
    scores: Mapping[str, np.ndarray], inside: Mapping[str, np.ndarray], rare: Mapping[str, np.ndarray]
) -> Judgement:
    areas = [roc_auc(scores[one], held) for one, held in inside.items()]
    value = float(np.mean(areas))
    spread = [intervals.delong(scores[one][held], scores[one][~held])[1] for one, held in inside.items()]
    outside = sum(int((~held).sum()) for held in inside.values())
    trivial = [roc_auc(rare[one], held) for one, held in inside.items()]
    score = scoring.Score(
        metric="auc",
        kind=scoring.ScoreKind.RANK,
        value=value,
        **intervals.bounds(
            lambda error: intervals.area(
                value, float(np.sum(spread)) / len(areas) ** 2, outside, areas, error
            )
        ),
        baselines={"random": 0.5, "rare motifs": float(np.mean(trivial))},
        details={"candidates": float(sum(map(len, inside.values()))), "held out": float(outside)},
    )
    return Judgement(
        score,
        {one: held[:SHOWN].astype(int) for one, held in inside.items()},
        {one: scores[one][:SHOWN].round(3) for one in inside},
    )


def _together(values: Mapping[str, np.ndarray], guess: Guess) -> dict[str, np.ndarray]:
    ((target, owners),) = guess.targets.items()
    return {target: np.concatenate([values[owner] for owner in owners])}


def _rarity(held: Mapping[str, Candidates]) -> dict[str, np.ndarray]:
    """Agent -> ``[candidates]`` how rare a graph's motifs are among the agent's candidates, added up."""
    return {
        owner: one.holds @ -np.log((one.holds.sum(0) + 1) / (len(one.holds) + 1))
        for owner, one in held.items()
    }


JUDGES: Mapping[str, Judge] = {LISTED_MEMBERS: members}
MAKERS: Mapping[str, Maker] = {POOL: pool}
