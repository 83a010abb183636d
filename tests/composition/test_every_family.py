"""Families with messages of their own under every recipe: each trains, takes a form, or is refused."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import small
import torch

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import LeftInPlaintext, Refused
from secure_fedgraph.forms import FormWarning
from secure_fedgraph.privacy.policies import RECIPES, policy_with_noise
from secure_fedgraph.protocol.transcript import everything

SUMS_ONLY, ENCRYPTED = ("masked", "distributed_dp"), ("homomorphic", "strictest")
NOISED = ("local_dp", "central_dp", "distributed_dp")
BY_SUMS = ("fedstar", "fedgcn", "graphfl", "apfl", "fedgate", "apflgate", "apflgate on ratings", "gin-fedavg")
REFUSED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(BY_SUMS, ("sealed",)),  # it protects what peers read
    **dict.fromkeys(("gcfl", "gcfl+"), tuple({*RECIPES.own} - {"plaintext", "local_dp", "central_dp"})),
    **dict.fromkeys(("eu", "cffl", "cgsv"), ("sealed", *SUMS_ONLY)),  # values of single updates
    "dw": ("sealed", *SUMS_ONLY, *ENCRYPTED),  # nobody computes with a size that it cannot read
    "d-fedgnn": ("central_dp", "distributed_dp"),  # a ring has neither sums nor a server
    "gin-local": (),
}
"""Family -> the recipes under which it is refused; under all others it trains."""
FORMED = {**dict.fromkeys(("eu", "cffl", "cgsv"), ENCRYPTED), "fedgcn": NOISED}
"""Family -> the recipes under which it takes another form."""


def run(case: str, policy: Any, rounds: int = 2, **options: Any) -> sfg.Run:
    name, _, ratings = case.partition(" on ")
    owners = sfg.federate(small.ratings(), 3, "by_category") if ratings else small.federation(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FormWarning)
        return sfg.train(small.algorithm(name), owners, policy, rounds=rounds, seed=0, **options)


@pytest.mark.parametrize("policy", RECIPES.own)
@pytest.mark.parametrize("case", REFUSED)
def test_trains_or_is_refused_before_round_1(case: str, policy: str, tmp_path) -> None:
    recipe, out = policy_with_noise(policy, 1.0, {}), tmp_path / "run"
    if policy in REFUSED[case]:
        with pytest.raises((Refused, LeftInPlaintext)):
            run(case, recipe, out=out)
        assert not out.exists()
        return
    made = run(case, recipe, out=out)
    assert len(made.history) == 2
    assert bool(made.form) == (policy in FORMED.get(case, ()))
    scores = {key: value for key, value in made.accuracy.items() if isinstance(value, float)}
    assert scores and all(0 <= value <= (5 if "mae" in key else 1) for key, value in scores.items())
    if case in ("fedgcn", "apfl", "fedgate", "apflgate", "gin-fedavg") and policy in NOISED:
        assert {charge.channel for charge in made.charges} == {"update"}
    for payoffs in made.algorithm.notes(made.state).get("by_round", {}).get("payoffs", ()):
        assert sum(payoffs) == pytest.approx(1.0) and min(payoffs) >= 0


@pytest.mark.parametrize("policy", ["masked", "homomorphic"])
@pytest.mark.parametrize("name", ["fedstar", "fedgcn", "graphfl", "fedsage+", "apflgate"])
def test_the_same_model_as_in_plaintext_within_rounding(name: str, policy: str) -> None:
    plain, hidden = run(name, "plaintext"), run(name, policy, keep=everything)
    for key, value in plain.state.items():
        assert float((value - hidden.state[key]).abs().max()) < 1e-3, key
    assert hidden.transcript.view("server").uploads("update") == []


@pytest.mark.parametrize("name", ["eu", "cffl", "cgsv"])
def test_values_on_ciphertexts_are_the_values_in_the_clear(name: str) -> None:
    settings = {"first_weights": "equal"} if name == "cgsv" else {}
    plain = sfg.train(
        small.algorithm(name, **settings), small.federation(name), "plaintext", rounds=2, seed=0
    )
    values = [
        made.algorithm.notes(made.state)["by_round"]["values"] for made in (plain, run(name, "homomorphic"))
    ]
    for one, other in zip(*values, strict=True):
        assert one == pytest.approx(other, abs=1e-3)


@pytest.mark.parametrize("name", ["fedstar", "fedgcn", "graphfl", "fedsgc", "d-fedgnn"])
def test_a_budget_for_a_client_is_planned_and_kept(name: str) -> None:
    policy = "local_dp" if name == "d-fedgnn" else "distributed_dp"
    made = run(name, policy, budget=sfg.Budget(8.0, unit="client"))
    assert 4.0 < made.privacy("client")["epsilon"] <= 8.0 and len(made.history) == 2


@pytest.mark.parametrize("name", ["fedgcn", "graphfl", "d-fedgnn"])
def test_without_noise_every_unit_is_unbounded(name: str) -> None:
    made = run(name, "masked", 1)
    assert {made.privacy(unit)["epsilon"] for unit in ("client", "node", "edge")} == {"inf"}


def test_sealing_changes_no_model_of_the_ring() -> None:
    open_, hidden = (run("d-fedgnn", policy) for policy in ("plaintext", "sealed"))
    assert open_.history[-1]["accuracy"] == hidden.history[-1]["accuracy"]


def test_only_what_reads_structure_leaves_a_fedstar_agent() -> None:
    for seen in run("fedstar", "plaintext", keep=everything).transcript.view("server").uploads("update"):
        assert seen.values and all(name.startswith("structure.") for name in seen.values)


def test_structure_is_of_each_graph_alone() -> None:
    """Walks and degrees of a union are those of its graphs."""
    from secure_fedgraph.algorithms.fedstar.structure import structure_of

    ring = torch.tensor([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]])
    pair = torch.tensor([[0, 1], [1, 0]])
    union = structure_of(torch.cat([ring, pair + 3], dim=1), 5)
    assert torch.equal(union[:3], structure_of(ring, 3)) and torch.equal(union[3:], structure_of(pair, 2))


@pytest.mark.parametrize("name", ["fedego", "fedsage+"])
def test_a_row_of_features_crosses_no_wire(name: str) -> None:
    made = run(name, "plaintext", 1, keep=everything)
    bodies = b"".join(made.transcript.body(one.number) for one in made.transcript.sent if one.kept)
    for graph in made.federation.owners.values():
        rows = [row for row in graph.x[:20].float().numpy() if row.any()]
        assert rows and not any(row.tobytes() in bodies for row in rows)
