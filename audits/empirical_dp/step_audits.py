"""Audits of noise that is drawn inside a client: noisy training steps and randomised links.

Steps are called as training calls them, on worst-case records
(:mod:`~secure_fedgraph.audits.empirical_dp.worst_cases`). What one step reveals is a trade-off between two
errors, which the claim gives exactly: for the mirrored pair of ``docs/guarantees.md`` a half-line is the best
test of one step, so errors that are smaller than the claimed noise allows refute it. The largest noise that
the errors allow, composed over the steps by the accountant, is the lower bound on epsilon.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import torch

from secure_fedgraph.audits.empirical_dp.epsilon import Audit, Lower, two_worlds
from secure_fedgraph.audits.empirical_dp.mechanisms import CONFIDENCE
from secure_fedgraph.audits.empirical_dp.whole_runs import by_trade_off
from secure_fedgraph.audits.empirical_dp.worst_cases import Records, unit_in_records
from secure_fedgraph.privacy.dp_sgd import PrivateSteps, Training
from secure_fedgraph.privacy.input_dp.features import MultiBitFeatures
from secure_fedgraph.privacy.input_dp.labels import RandomisedLabels
from secure_fedgraph.privacy.input_dp.links import DividedLinks, RandomisedLinks

# Audits of labels and features that a client randomises, by what it reports of one node in two worlds.


def audit_labels(
    labels: RandomisedLabels, classes: int = 7, trials: int = 20_000, confidence: float = CONFIDENCE
) -> Lower:
    """A lower bound on the epsilon of labels: nodes of one class against nodes of another.

    The best test of one answer is whether it is the first class. The test for the second class has the same
    ratio with the errors exchanged. The test whose errors are rare in both worlds is used.

    Args:
        labels: under audit.
        classes: how many there are.
        trials: nodes in each world.
        confidence: that right labels are not accused.
    """
    worlds = (torch.full((trials,), label, dtype=torch.long) for label in (0, 1))
    scores = [(labels.randomized(world, classes) == 0).double().numpy() for world in worlds]
    return two_worlds(scores[0], scores[1], 0.0, confidence, threshold=0.5)


def audit_features(
    features: MultiBitFeatures, columns: int, trials: int = 20_000, confidence: float = CONFIDENCE
) -> Lower:
    """A lower bound on the epsilon of features: nodes at the top of the range against nodes at the bottom.

    The best test is whether every reported column says the top.

    Args:
        features: under audit.
        columns: of each node; all of them are reported where they are few.
        trials: nodes in each world.
        confidence: that right features are not accused.
    """
    middle = (features.low + features.high) / 2
    worlds = (torch.full((trials, columns), value) for value in (features.high, features.low))
    scores = [(features.randomized(world) >= middle).all(1).numpy().astype(np.float64) for world in worlds]
    return two_worlds(scores[0], scores[1], 0.0, confidence, threshold=0.5)


def scores(private_steps: PrivateSteps, records: Records, present: bool, trials: int) -> np.ndarray:
    """Scores of single steps, one a trial: touched records that were drawn, plus the steps' noise."""
    expected = max(private_steps.rate * records.number, 1.0)
    parts = []
    for _ in range(math.ceil(trials / records.blocks)):
        parameters = {
            name: torch.nn.Parameter(torch.zeros(records.blocks, dtype=torch.float64))
            for name in records.names
        }
        training = Training(replace(private_steps, steps=1), "zero-out")
        training.run(
            torch.optim.SGD(parameters.values(), lr=1.0),
            parameters,
            records.number,
            records.gradients(present),
            records.touched,
        )
        moved = torch.stack([p.detach() for p in parameters.values()]).sum(0)
        parts.append((-moved * expected / private_steps.clip / math.sqrt(records.tensors)).numpy())
    return np.concatenate(parts)


def audit_steps(
    private_steps: PrivateSteps,
    occurrences: int = 1,
    *,
    trials: int = 10_000,
    blocks: int = 500,
    delta: float = 1e-5,
    confidence: float = CONFIDENCE,
    touched: int = 0,
) -> Audit:
    """Compares the charge of noisy steps with what worst-case records show of a single one.

    Args:
        private_steps: the steps; its number of steps is what the claim is for.
        occurrences: records of a unit, as they are charged.
        trials: of each world.
        blocks: trials in one call.
        delta: the claim's.
        confidence: that right steps are not accused; either bound has half of what is left.
        touched: how many records the unit really is in; by default as charged.
    """
    records = unit_in_records(private_steps, touched or occurrences, blocks)
    ins, outs = (scores(private_steps, records, present, trials) for present in (True, False))
    one = replace(private_steps, steps=1).events(occurrences, "zero-out", 1)
    charged = private_steps.events(occurrences, "zero-out", records.blocks * records.tensors)
    return by_trade_off(
        ins,
        outs,
        0.5 if records.vanishing else 0.0,  # where a step is as likely in either world
        Counter(one),
        Counter(charged),
        delta=delta,
        confidence=confidence,
        missed=(1 - private_steps.rate) ** occurrences,
    )


def audit_links(
    links: RandomisedLinks, trials: int = 10_000, confidence: float = CONFIDENCE, cliques: int = 40
) -> Lower:
    """A lower bound on the epsilon of randomised links, by pairs whose reported link is always kept.

    Nodes are in cliques of eight with equal features, so a reported link within one is among the most similar
    pairs; half of these pairs, drawn by coins, are linked. As many links between cliques make sure that
    enough are kept. Each pair within a clique is a trial.

    Args:
        links: under audit.
        trials: pairs of each kind, about.
        confidence: that right links are not accused.
        cliques: how many at a time.
    """
    size, rng = 8, np.random.default_rng()
    base = np.arange(cliques)[:, None] * size
    ends = np.array([(a, b) for a in range(size) for b in range(a + 1, size)])
    first, second = ((base + ends[:, i]).reshape(-1) for i in (0, 1))
    nodes = cliques * size
    x = torch.eye(cliques).repeat_interleave(size, dim=0)
    far = np.stack([np.arange(nodes), (np.arange(nodes) + size) % nodes])
    more = np.concatenate([far, np.stack([far[0], (far[0] + 2 * size) % nodes])], axis=1)
    seen: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    while sum(map(len, seen[0])) < trials:
        linked = rng.random(len(first)) < 0.5
        own = np.concatenate([np.stack([first[linked], second[linked]]), more], axis=1)
        drawn = _of_all_clients(links, torch.from_numpy(own), x).numpy()
        reported = np.isin(first * nodes + second, drawn[0] * nodes + drawn[1]).astype(float)
        seen[0].append(reported[linked])
        seen[1].append(reported[~linked])
    return two_worlds(np.concatenate(seen[0]), np.concatenate(seen[1]), 0.0, confidence, threshold=0.5)


def _of_all_clients(links: RandomisedLinks, own: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """What all clients that hold the same links answer together; one client's answers where each pays."""
    if not isinstance(links, DividedLinks):
        return links.randomized(own, x)
    parts = [links.at(place, links.clients) for place in range(links.clients)]
    return torch.cat([part.randomized(own, x) for part in parts], dim=1)
