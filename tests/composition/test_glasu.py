"""GLASU and its special cases under every recipe: it trains and agrees with plaintext, or is refused."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import BadInput, Refused
from secure_fedgraph.forms import FormWarning
from secure_fedgraph.privacy.policy import PlaintextWarning
from secure_fedgraph.protocol.transcript import everything

SMALL: dict[str, Any] = {"hidden": 8, "steps": 2, "batch": 8, "public_nodes": 24}
PUBLIC = {**SMALL, "sampler": "public"}
POLICIES = {
    "plaintext": sfg.policies.plaintext(),
    "local_dp": sfg.policies.local_dp(1.0, 1.0),
    "central_dp": sfg.policies.central_dp(1.0, 1.0),
    "masked": sfg.policies.masked(),
    "homomorphic": sfg.policies.homomorphic(),
    "sealed": sfg.policies.sealed(),
    "strictest": sfg.policies.strictest(),
}
TO_SERVER = {"sealed"}  # it protects what peers read
VARIANTS: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "public": ("glasu", PUBLIC, TO_SERVER),
    "full": ("glasu", {**SMALL, "sampler": "full"}, TO_SERVER),
    "paper": ("glasu", SMALL, TO_SERVER),  # under all but plaintext in a form that lists no nodes
    "paper by hand": ("glasu", {**SMALL, "sampler": "paper"}, set(POLICIES) - {"plaintext"}),
    "stale": ("glasu", {**PUBLIC, "local_steps": 3}, TO_SERVER),
    "one holds the labels": ("glasu-one-label-holder", PUBLIC, TO_SERVER | {"central_dp"}),
    "simulated": ("glasu-simulated", PUBLIC, TO_SERVER),
    "fedbcd": ("fedbcd", {**SMALL, "local_steps": 2}, TO_SERVER),
    "standalone": ("glasu-standalone", SMALL, set()),
    "centralized": ("glasu-centralized", SMALL, set()),
}


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return split(3)


def split(clients: int, **settings: Any) -> sfg.Federation:
    return sfg.federate(
        "synthetic-citation", clients, "vertical", seed=0, nodes=60, features=18, split=settings
    )


def run(name: str, settings: dict[str, Any], federation: sfg.Federation, policy: str, **more: Any) -> sfg.Run:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlaintextWarning)
        warnings.simplefilter("ignore", FormWarning)
        return sfg.train(ALGORITHMS[name](**settings), federation, POLICIES[policy], rounds=1, seed=0, **more)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_trains_or_is_refused_before_anything_is_sent(variant, policy, federation, tmp_path):
    name, settings, refusing = VARIANTS[variant]
    if policy in refusing:
        with pytest.raises(
            Refused,
            match=r"needs each upload|protects peers only|read by a peer|carries numbers|in plaintext",
        ):
            run(name, settings, federation, policy, out=tmp_path / "run")
        assert not (tmp_path / "run").exists()
        return
    made = run(name, settings, federation, policy)
    assert 0 <= made.accuracy["global"] <= 1
    pooled = {"pooled raw data"} if ALGORITHMS[name].pools else set()
    assert made.form == ({"sampler": "public"} if variant == "paper" and policy != "plaintext" else {})
    in_use = {c.name for c in made.algorithm.in_use} - {"step", "examine"}
    assert {c.channel for c in made.charges} == in_use | pooled


def examined(made: sfg.Run) -> dict[str, torch.Tensor]:
    """Every client's scores of every node after the last round, as the referee was sent them."""
    last = [o for o in made.transcript.opened if o.channel == "examine"][-3:]
    assert [o.contributors for o in last] == [("owner-0",), ("owner-1",), ("owner-2",)]
    bodies = {o.contributors[0]: wire.decode(made.transcript.body(o.number)) for o in last}
    return {owner: torch.tensor(body["scores"]) for owner, body in bodies.items()}


@pytest.mark.parametrize("policy", ["masked", "homomorphic", "strictest"])
@pytest.mark.parametrize("variant", ["public", "full", "stale", "one holds the labels", "simulated"])
def test_a_protected_mean_trains_what_plaintext_trains(variant, policy, federation):
    name, settings, _ = VARIANTS[variant]
    plain, hidden = (
        examined(run(name, settings, federation, p, keep=everything)) for p in ("plaintext", policy)
    )
    for owner, scores in plain.items():
        assert float((scores - hidden[owner]).abs().max()) < 1e-4
        assert float(scores.abs().max()) > 1e-2


def test_the_server_sees_sums_and_no_clients_rows_under_masks(federation):
    made = run("glasu", PUBLIC, federation, "masked", keep=everything)
    view = made.transcript.view("server")
    for channel in ("hidden", "backward"):
        assert view.uploads(channel) == []
        assert all(seen.clients == federation.names for seen in view.sums(channel))
        assert len(view.sums(channel)) == 2 * 2  # steps, aggregated layers


def test_two_clients_are_refused_where_a_sum_should_protect_unless_it_is_accepted_by_name():
    two = split(2)
    sentence = r"mean goes back to both of 2 clients.*accept it with training\.accept_two_clients=true"
    for policy in ("masked", "homomorphic", "strictest"):
        with pytest.raises(Refused, match=sentence):
            run("glasu", PUBLIC, two, policy)
    made = run("glasu", {**PUBLIC, "accept_two_clients": True}, two, "masked")
    assert any("subtracting its own" in words for words in made.policy["hidden"].excess)
    plain = run("glasu", PUBLIC, two, "plaintext")  # nothing is promised, and it is said
    assert any("subtracting its own" in words for words in plain.policy["hidden"].excess)
    run("glasu", PUBLIC, two, "local_dp")  # noise rests on no sum


def test_three_clients_say_nothing_of_two(federation):
    made = run("glasu", PUBLIC, federation, "masked")
    assert not any("subtracting its own" in words for words in made.policy["hidden"].excess)


def test_the_label_holders_gradient_is_sealed_to_the_others():
    one = split(3, labels="one")
    made = run("glasu-one-label-holder", PUBLIC, one, "strictest", keep=everything)
    assert made.transcript.view("server").uploads("gradient") == []
    opened = [o for o in made.transcript.view("owner-1").opened if o.channel == "gradient"]
    assert [o.contributors for o in opened] == [("owner-0",)] * 2
    assert not [o for o in made.transcript.view("owner-0").opened if o.channel == "gradient"]


def test_owners_without_labels_cannot_train_alone():
    with pytest.raises(BadInput, match=r"split\.labels = 'one' gives one client the labels"):
        run("glasu-standalone", SMALL, split(3, labels="one"), "plaintext")


def test_more_clients_than_columns_are_refused():
    with pytest.raises(BadInput, match="vertical split of 18 feature columns gives an owner none"):
        split(19)
