"""Audits of labels and features that a client randomises, by what it reports of one node in two worlds."""

from __future__ import annotations

import numpy as np
import torch

from secure_fedgraph.audits.empirical_dp.epsilon import Lower, two_worlds
from secure_fedgraph.audits.empirical_dp.mechanisms import CONFIDENCE
from secure_fedgraph.privacy.input_dp.features import MultiBitFeatures
from secure_fedgraph.privacy.input_dp.labels import RandomisedLabels


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
