"""Heads and starts of ``fedsgd`` on nodes, by the same steps in one place: forty times faster than its runs.

    python benchmarks/heads.py [--data pubmed] [--epsilon 1,8] [--first 0] [--seeds 3] [--scored validation]
                               [--start classes]

A step is that of the algorithm at its defaults: coins, the clip, the sum, Gaussian noise of the standard
deviation that a budget plans and that owners' shares come to, a step of public length, the mean of weights.
Only carriers are left out. ``mlp`` and ``sage`` are trained alike, so both are scored on the same weights.

``--start classes`` pays for the class sums of ``fedridge`` with three tenths of epsilon, and the network
starts from them; ``--start outer`` starts from random class scores, which costs nothing: what a start that is
not zero does by itself. Scores are of owners' validation nodes on their own graphs, or of all test nodes.
"""

from __future__ import annotations

import argparse
import math
from functools import lru_cache
from statistics import fmean, stdev

import torch
import torch.nn.functional as F
from torch import Tensor

import secure_fedgraph as sfg
from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fedsgd.heads.perceptron import LAYERS, NodePerceptron
from secure_fedgraph.algorithms.fedsgd.heads.sage import SageHead
from secure_fedgraph.algorithms.fedsgd.settings import NodeSgdSettings
from secure_fedgraph.core.accounting.events import Event, GaussianRelease, SampledGaussian
from secure_fedgraph.models import ridge
from secure_fedgraph.privacy.noise_needed import noise_for

STEPS, SHARE, DELTA, TARGET, SHARP = 200, 0.3, 1e-5, 0.5, 1.0
S = NodeSgdSettings()


@lru_cache
def multipliers(budget: float, start: str) -> tuple[float, float]:
    """Noise of the class sums, and of each step beside them."""
    first = noise_for(SHARE * budget, DELTA, lambda z: [GaussianRelease(z)]) if start == "classes" else 0.0
    paid: list[Event] = [GaussianRelease(first)] if first else []
    return first, noise_for(budget, DELTA, lambda z: [*paid, SampledGaussian(z, S.rate, STEPS, "zero-out")])


def clipped_sum(w: list[Tensor], z: Tensor, hot: Tensor) -> list[Tensor]:
    """Of the gradients of some records; their lengths follow from their factors."""
    before = z @ w[0] + w[1]
    hidden = before.relu()
    back = F.softmax(hidden @ w[2] + w[3], dim=1) - hot
    behind = (back @ w[2].T) * (before > 0)
    squared = (z.square().sum(1) + 1) * behind.square().sum(1)
    squared = squared + (hidden.square().sum(1) + 1) * back.square().sum(1)
    short = (S.clip / squared.sqrt().clamp(min=1e-9)).clamp(max=1)[:, None]
    return [z.T @ (behind * short), (behind * short).sum(0), hidden.T @ (back * short), (back * short).sum(0)]


def from_classes(state: State, z: Tensor, hot: Tensor, deviation: float, random: torch.Generator) -> State:
    """A start from noisy class sums: two units a class, for its score and for the score's opposite."""
    classes = hot.shape[1]
    sums = z.T @ ridge.targets(hot.argmax(1), classes, TARGET)
    sums = sums + deviation * TARGET * torch.randn(sums.shape, generator=random)
    towards = sums - sums.mean(dim=1, keepdim=True)
    towards = towards * SHARP * math.sqrt(classes) / towards.norm()
    half = towards.norm(dim=0).sqrt()
    inner, outer = state["inner"].clone(), torch.zeros_like(state["outer"])
    inner[:, :classes], inner[:, classes : 2 * classes] = towards / half, -towards / half
    outer[:classes], outer[classes : 2 * classes] = torch.diag(half), -torch.diag(half)
    return {**state, "inner": inner, "outer": outer}


def trained(federation: sfg.Federation, budget: float, start: str, seed: int) -> State:
    """The mean of the weights over all steps."""
    graphs, classes = list(federation.owners.values()), federation.schema.classes
    z = torch.cat([ridge.records(one.x)[one.train_mask] for one in graphs])
    hot = F.one_hot(torch.cat([one.y[one.train_mask] for one in graphs]), classes).float()
    random = torch.Generator().manual_seed(seed)
    shares = math.sqrt(len(graphs) / (len(graphs) - 1))  # no owner's own share hides anything from it
    first, multiplier = multipliers(budget, start)
    state = NodePerceptron(S).init(federation.schema, seed)
    if start == "classes":
        state = from_classes(state, z, hot, first * shares, random)
    elif start == "outer":
        state["outer"] = torch.randn(state["outer"].shape, generator=random) / math.sqrt(S.hidden)
    weights = [state[name] for name in LAYERS]
    means, speeds = list(weights), [torch.zeros_like(one) for one in weights]
    for step in range(1, STEPS + 1):
        taken = torch.rand(len(z), generator=random) < S.rate
        sums = clipped_sum(weights, z[taken] * S.length, hot[taken])
        noised = [
            one + multiplier * S.clip * shares * torch.randn(one.shape, generator=random) for one in sums
        ]
        speeds = [S.momentum * v + (1 - S.momentum) * one for v, one in zip(speeds, noised, strict=True)]
        length = torch.cat([one.flatten() for one in speeds]).norm()
        weights = [w - S.learning_rate * v / length for w, v in zip(weights, speeds, strict=True)]
        means = [m + 2 / (step + 1) * (w - m) for m, w in zip(means, weights, strict=True)]
    return dict(zip(LAYERS, means, strict=True))


def scored(federation: sfg.Federation, head: NodePerceptron, weights: State, on: str) -> float:
    """Accuracy on owners' validation nodes, each on its own graph; or on all test nodes."""
    if on == "validation":
        right = [
            (head.predict(weights, one, federation.schema).argmax(1) == one.y)[one.val_mask]
            for one in federation.owners.values()
        ]
        return float(torch.cat(right).float().mean())
    test = federation.referee.test_set
    asked = torch.cat(list(test.tests.values()))
    scores = head.predict(weights, test.inputs, federation.schema)
    return float((scores.argmax(1) == test.labels)[asked].float().mean())


def main() -> None:
    """Prints a line a budget and head."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="pubmed")
    parser.add_argument("--epsilon", default="1,8")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scored", choices=("validation", "test"), default="validation")
    parser.add_argument("--start", choices=("zero", "outer", "classes"), default="zero")
    asked = parser.parse_args()
    heads = {"mlp": NodePerceptron(S), "sage": SageHead(S)}
    budgets = [float(one) for one in asked.epsilon.split(",")]
    found: dict[tuple[float, str], list[float]] = {(one, name): [] for one in budgets for name in heads}
    for seed in range(asked.first, asked.first + asked.seeds):
        federation = sfg.federate(asked.data, clients=3, seed=seed)
        for budget in budgets:
            weights = trained(federation, budget, asked.start, seed)
            for name, head in heads.items():
                found[budget, name].append(scored(federation, head, weights, asked.scored))
    for (budget, name), each in found.items():
        print(
            f"{asked.data} {name} epsilon {budget:g} start {asked.start} {asked.scored} "
            f"{fmean(each):.4f} +- {stdev(each) if len(each) > 1 else 0.0:.4f} ({len(each)} seeds)"
        )


if __name__ == "__main__":
    main()
