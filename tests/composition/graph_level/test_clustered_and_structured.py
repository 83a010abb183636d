"""GCFL, GCFL+ and FedStar under every recipe: they bind or are refused; sums within rounding; what leaves."""

from __future__ import annotations

import pytest
import small
import torch

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import LeftInPlaintext, Refused
from secure_fedgraph.privacy.policies import RECIPES, policy_with_noise
from secure_fedgraph.protocol.transcript import everything

NAMES = ("gcfl", "gcfl+", "fedstar")
BINDS = {
    "gcfl": ("plaintext", "local_dp", "central_dp"),
    "gcfl+": ("plaintext", "local_dp", "central_dp"),
    "fedstar": tuple(name for name in RECIPES.own if name != "sealed"),
}


def run(name: str, policy, **options) -> sfg.Run:
    settings = {"rounds": 2, "seed": 0, **options}
    return sfg.train(small.algorithm(name), small.federation(name), policy, **settings)


@pytest.mark.parametrize("policy", RECIPES.own)
@pytest.mark.parametrize("name", NAMES)
def test_trains_or_is_refused_before_round_1(name, policy, tmp_path):
    recipe, out = policy_with_noise(policy, 1.0, {}), tmp_path / "run"
    if policy not in BINDS[name]:
        with pytest.raises((Refused, LeftInPlaintext)):
            run(name, recipe, out=out)
        assert not out.exists()
        return
    made = run(name, recipe, out=out)
    assert len(made.history) == 2
    assert 0 <= made.accuracy["local"] <= 1


@pytest.mark.parametrize("policy", ["masked", "homomorphic"])
def test_the_same_structure_as_in_plaintext_within_rounding(policy):
    plain, hidden = run("fedstar", "plaintext"), run("fedstar", policy)
    for key, value in plain.state.items():
        assert float((value - hidden.state[key]).abs().max()) < 1e-4


def test_only_what_reads_structure_leaves_a_fedstar_agent():
    made = run("fedstar", "plaintext", keep=everything)
    for seen in made.transcript.view("server").uploads("update"):
        assert seen.values
        assert all(name.startswith("structure.") for name in seen.values)


def test_structure_is_of_each_graph_alone():
    """Walks and degrees of a union are those of its graphs."""
    from secure_fedgraph.algorithms.fedstar.structure import structure_of

    ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
    ring = torch.cat([ring, ring.flip(0)], dim=1)
    pair = torch.tensor([[0, 1], [1, 0]])
    union = structure_of(torch.cat([ring, pair + 3], dim=1), 5)
    assert torch.equal(union[:3], structure_of(ring, 3))
    assert torch.equal(union[3:], structure_of(pair, 2))


def test_a_budget_for_a_client_is_planned_and_kept():
    made = run("fedstar", "distributed_dp", budget=sfg.Budget(8.0, unit="client"))
    assert 4.0 < made.privacy("client")["epsilon"] <= 8.0
