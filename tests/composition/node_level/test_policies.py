"""FedGCN, GraphFL and D-FedGNN under every recipe: they bind, take a form, or are refused; budgets; sums."""

from __future__ import annotations

import warnings

import pytest
import small

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import Refused
from secure_fedgraph.forms import FormWarning
from secure_fedgraph.privacy.policies import RECIPES, policy_with_noise
from secure_fedgraph.protocol.transcript import everything

NAMES = ("fedgcn", "graphfl", "d-fedgnn")
REFUSED = {
    ("fedgcn", "sealed"): "protects peers only",
    ("graphfl", "sealed"): "protects peers only",
    ("d-fedgnn", "central_dp"): "no server adds central_dp's noise",
    ("d-fedgnn", "distributed_dp"): "needs each upload",
}
"""Who is refused under what, and why: updates go to a server, and a ring has neither sums nor a server."""
NOISED = ("local_dp", "central_dp", "distributed_dp")


def run(name: str, policy, **options) -> sfg.Run:
    settings = {"rounds": 1, "seed": 0, **options}
    return sfg.train(small.algorithm(name), small.federation(name), policy, **settings)


@pytest.mark.parametrize("policy", RECIPES.own)
@pytest.mark.parametrize("name", NAMES)
def test_trains_or_is_refused_before_round_1(name, policy, tmp_path):
    recipe, out = policy_with_noise(policy, 1.0, {}), tmp_path / "run"
    if (name, policy) in REFUSED:
        with pytest.raises(Refused, match=REFUSED[name, policy]):
            run(name, recipe, out=out)
        assert not out.exists()
        return
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        made = run(name, recipe, out=out)
    assert len(made.history) == 1
    assert 0 <= made.accuracy["global"] <= 1
    forms = [one for one in said if one.category is FormWarning]
    assert bool(forms) == (name == "fedgcn" and policy in NOISED)
    if name == "fedgcn" and policy in NOISED:
        assert made.form is not None
        assert {c.channel for c in made.charges} == {"update"}


@pytest.mark.parametrize(
    ("name", "policy"),
    [("fedgcn", "masked"), ("fedgcn", "homomorphic"), ("graphfl", "masked"), ("graphfl", "homomorphic")],
)
def test_the_same_model_as_in_plaintext_within_rounding(name, policy):
    plain, hidden = run(name, "plaintext", rounds=2), run(name, policy, rounds=2)
    for key, value in plain.state.items():
        assert float((value - hidden.state[key]).abs().max()) < 1e-4  # sums on a grid of 1e-5, then training


def test_sealing_changes_no_model_of_the_ring():
    open_, hidden = (run("d-fedgnn", policy, rounds=2, keep=everything) for policy in ("plaintext", "sealed"))
    assert open_.history[-1]["accuracy"] == hidden.history[-1]["accuracy"]


@pytest.mark.parametrize(
    ("name", "policy"),
    [("fedgcn", "distributed_dp"), ("graphfl", "distributed_dp"), ("d-fedgnn", "local_dp")],
)
def test_a_budget_for_a_client_is_planned_and_kept(name, policy):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = run(name, policy, rounds=2, budget=sfg.Budget(8.0, unit="client"))
    assert 4.0 < made.privacy("client")["epsilon"] <= 8.0
    assert len(made.history) == 2


@pytest.mark.parametrize("name", NAMES)
def test_without_noise_every_unit_is_unbounded(name):
    made = run(name, "masked")
    assert {made.privacy(unit)["epsilon"] for unit in ("client", "node", "edge")} == {"inf"}
