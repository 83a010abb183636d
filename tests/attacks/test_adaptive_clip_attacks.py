"""Attacks beside a clip that follows the clients, and on models that are no GraphSAGE: no crash."""

from __future__ import annotations

from typing import Any

import pytest

from secure_fedgraph.audits.grid import choices, grid
from secure_fedgraph.experiment.config import load

SMALL: dict[str, Any] = {
    "algorithm": "fedsage",
    "data": "synthetic-citation",
    "dataset": {"nodes": 300, "features": 32},
    "rounds": 3,
}


def cells(attacks: list[str], policy: str, **more: Any) -> list[dict[str, Any]]:
    experiment = load(None, {**SMALL, **more, "policy": policy}, ())
    used = {channel.name for channel in experiment.make_algorithm().in_use}
    chosen = [kind for kind in choices.choose(attacks) if kind.channel in used]
    return grid.audit(experiment, [policy], chosen, [0], controls=()).cells


def test_every_attack_on_updates_runs_under_a_budget():
    found = cells(["weights", "rounds"], "distributed_dp", epsilon=8.0, unit="client")
    assert {cell["attack"][:2] for cell in found} >= {"a1", "a4", "f1", "f2"}


@pytest.mark.parametrize("policy", ["plaintext", "masked"])
def test_colluding_owners_still_read_the_last_one(policy: str):
    """All but the bit that says whether it was within the clip: a broadcast does not show that."""
    (cell, _) = cells(["f2"], policy, training={"clip": "adaptive"})
    assert cell["score"] > cell["baseline"] + 0.2 and cell["score"] > 0.85


def test_class_shares_need_the_model_to_be_known():
    found = cells(
        ["a4"], "plaintext", algorithm="gin-fedavg", data="synthetic-molecules", dataset={"graphs": 90}
    )
    assert {cell["outcome"] for cell in found} == {"blind"}
    assert "GraphSAGE" in found[0]["reason"]
