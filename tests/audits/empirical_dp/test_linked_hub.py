"""Sums over links that clients keep, against worst-case neighbours: near the claim, never above it."""

from __future__ import annotations

import dp_accounting as dp
import numpy as np
import pytest

from secure_fedgraph.audits.empirical_dp.mechanisms import Audit, audit
from secure_fedgraph.audits.empirical_dp.worst_cases import linked_hub
from secure_fedgraph.policies import local_dp
from secure_fedgraph.privacy import linked_sums
from secure_fedgraph.protocol import Channel, Reveal, Unit
from secure_fedgraph.protocol.channel import WEIGHTS, UnitContributionLinks

MULTIPLIER = float(dp.get_sigma_gaussian(4.0, 1e-5))
OF = UnitContributionLinks(8, 0.7, crowd=4, degree=128, hops=1)
CHANNEL = Channel("sums", Reveal.NOTHING, unit=Unit.NODE, unit_contribution=OF)


def audited(relation: str, trials: int) -> Audit:
    bound = local_dp(1.0, MULTIPLIER, relation=relation).bind((CHANNEL,), ("a", "b"))["sums"]
    return audit(bound, linked_hub(bound), "server", trials=trials)


@pytest.mark.parametrize("relation", ["zero-out", "replace"])
def test_the_worst_case_comes_near_the_claim_and_never_above(relation: str) -> None:
    found = audited(relation, 60_000)
    assert not found.broken and found.reached > 0.8, found.sentence()


def test_a_hub_that_counts_whole_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = lambda degrees, contribution: np.full(len(degrees), float(WEIGHTS))  # noqa: E731
    monkeypatch.setattr(linked_sums, "_weights", whole)
    assert audited("zero-out", 10_000).broken


def test_noise_for_one_row_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UnitContributionLinks, "zeroed", property(lambda self: self.norm))
    assert audited("zero-out", 10_000).broken
