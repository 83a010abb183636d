"""The forms that families take under a budget, under every recipe: each trains or is refused."""

from __future__ import annotations

import math

import pytest
import small

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput, LeftInPlaintext, Refused
from secure_fedgraph.models import perceptron, personal
from secure_fedgraph.privacy.policies import RECIPES, policy_with_noise

FORMS = {
    "fedsage-steps": "node",
    "fedgcn-steps": "node",
    "fedego-sums": "node",
    "fedavg-moments": "graph",
    "apflgate-moments": "graph",
    "apflgate-ratings": "edge",
    "fairgraphfl-moments": "graph",
    "glasu-at-home": "node",
}
"""Name -> the record that its sums have a bound for."""


@pytest.mark.filterwarnings("ignore::UserWarning")  # of what a form takes by itself
@pytest.mark.parametrize("policy", RECIPES.own)
@pytest.mark.parametrize("name", list(FORMS))
def test_it_trains_or_is_refused_before_round_1(
    name: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perceptron, "STEPS", 15)  # of owners' own networks, of which no score is read
    monkeypatch.setattr(personal, "_KEPT", {})
    recipe, federation = policy_with_noise(policy, 1.0, {}), small.federation(name)
    try:
        made = sfg.train(small.algorithm(name), federation, recipe, rounds=2, seed=0)
    except (BadInput, LeftInPlaintext, Refused):
        assert policy not in ("plaintext", "masked", "distributed_dp" if name != "glasu-at-home" else "")
        return
    assert made.charges and 0 <= made.accuracy.get("global", made.accuracy.get("mae", -1)) <= 5
    noised = policy in ("distributed_dp", "local_dp") and name != "glasu-at-home"
    assert math.isfinite(float(made.privacy(FORMS[name])["epsilon"])) == noised
