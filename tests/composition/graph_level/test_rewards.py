"""DW, EU, CFFL and CGSV under every recipe: they bind, take a form, or are refused; values and payoffs."""

from __future__ import annotations

import warnings

import pytest
import small

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import LeftInPlaintext, Refused
from secure_fedgraph.forms import FormWarning
from secure_fedgraph.privacy.policies import RECIPES, policy_with_noise

NAMES = ("dw", "eu", "cffl", "cgsv")
SUMS_ONLY = ("masked", "distributed_dp")
"""What hides single updates, which every value here is made of."""
ENCRYPTED = ("homomorphic", "strictest")


def run(name: str, policy, **options) -> sfg.Run:
    settings = {"rounds": 2, "seed": 0, **options}
    return sfg.train(small.algorithm(name), small.federation(name), policy, **settings)


def notes_of(made: sfg.Run) -> dict:
    return made.algorithm.notes(made.state)


@pytest.mark.parametrize("policy", RECIPES.own)
@pytest.mark.parametrize("name", NAMES)
def test_trains_or_is_refused_before_round_1(name, policy, tmp_path):
    recipe, out = policy_with_noise(policy, 1.0, {}), tmp_path / "run"
    sizes = name == "dw" and policy in ENCRYPTED  # nobody computes with a size that it cannot read
    if policy in ("sealed", *SUMS_ONLY) or sizes:
        with pytest.raises((Refused, LeftInPlaintext)):
            run(name, recipe, out=out)
        assert not out.exists()
        return
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        made = run(name, recipe, out=out)
    forms = [one for one in said if one.category is FormWarning]
    assert bool(forms) == (policy in ENCRYPTED)
    assert len(made.history) == 2
    for row in notes_of(made)["by_round"]["payoffs"]:
        assert sum(row) == pytest.approx(1.0)
        assert min(row) >= 0


@pytest.mark.parametrize("name", ["eu", "cffl", "cgsv"])
def test_values_on_ciphertexts_are_the_values_in_the_clear(name):
    settings = {"first_weights": "equal"} if name == "cgsv" else {}
    plain = sfg.train(
        small.algorithm(name, **settings), small.federation(name), "plaintext", rounds=2, seed=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FormWarning)
        hidden = run(name, "homomorphic")
    for round_, other in zip(
        notes_of(plain)["by_round"]["values"], notes_of(hidden)["by_round"]["values"], strict=True
    ):
        assert round_ == pytest.approx(other, abs=1e-3)
