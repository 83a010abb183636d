"""Labels and features randomised, against nodes in two worlds: never above the claim, and near it."""

from __future__ import annotations

import pytest

from secure_fedgraph.audits.empirical_dp.empirical import audit_features, audit_labels
from secure_fedgraph.privacy.input_dp.features import MultiBitFeatures
from secure_fedgraph.privacy.input_dp.labels import RandomisedLabels


@pytest.mark.parametrize(("epsilon", "classes"), [(1.0, 2), (4.0, 2), (4.0, 7)])
def test_labels_hold_and_are_nearly_reached(epsilon, classes):
    found = audit_labels(RandomisedLabels(epsilon), classes)
    assert 0.8 * epsilon < found.epsilon <= epsilon < found.ceiling


@pytest.mark.parametrize(("epsilon", "columns"), [(1.0, 3), (4.0, 1), (4.5, 2)])
def test_features_hold_and_are_nearly_reached(epsilon, columns):
    found = audit_features(MultiBitFeatures(epsilon, -1.0, 1.0), columns, 60_000)
    assert 0.8 * epsilon < found.epsilon <= epsilon < found.ceiling


def test_more_than_is_claimed_is_caught():
    assert audit_labels(RandomisedLabels(3.0)).refutes(2.0)
    assert audit_features(MultiBitFeatures(3.0), 2).refutes(2.0)
