"""Policies: recipes, exceptions, strictest, default deny."""

from __future__ import annotations

import dataclasses
import warnings

import pytest
from parties import NAMES

from secure_fedgraph.algorithms import FedAvg, FedSagePlus
from secure_fedgraph.core.carriers.plain import Plain
from secure_fedgraph.core.carriers.secagg.server import Masked
from secure_fedgraph.core.channel import Channel, Domain, Reveal
from secure_fedgraph.core.errors import BadInput, Incompatible, Refused, Unbound
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.binding import Protection
from secure_fedgraph.core.protection.gaussian import Gaussian
from secure_fedgraph.forms import fit
from secure_fedgraph.policies import (
    central_dp,
    distributed_dp,
    homomorphic,
    local_dp,
    masked,
    plaintext,
    strictest,
)
from secure_fedgraph.privacy.policies import RECIPES, policy_with_noise
from secure_fedgraph.privacy.policy import PlaintextWarning, Policy

SUM = Channel("update", Reveal.SUM)
EACH = Channel("egos", Reveal.EACH, Unit.NODE)
TELL = Channel("tell", Reveal.NOTHING)
EXAM = Channel("exam", Reveal.EACH, to="referee")


def many(count: int) -> tuple[str, ...]:
    return tuple(f"c{i}" for i in range(count))


MADE = {name: policy_with_noise(name, 1.0, {}) for name in RECIPES.own}


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("plaintext", Domain.REAL),
        ("local_dp", Domain.REAL),
        ("central_dp", Domain.REAL),
        ("distributed_dp", Domain.MASKED),
        ("masked", Domain.MASKED),
        ("homomorphic", Domain.CIPHER),
        ("strictest", Domain.MASKED),
    ],
)
def test_a_sum_to_the_server(name, domain):
    assert MADE[name].bind([SUM], NAMES)["update"].carrier.gives is domain


@pytest.mark.parametrize("name", ["masked", "homomorphic", "distributed_dp"])
def test_each_upload_needs_another_recipe(name):
    with pytest.raises(Incompatible, match=f"channel 'egos' needs each upload; {name} reveals only the sum"):
        MADE[name].bind([EACH], NAMES)


@pytest.mark.parametrize("name", RECIPES.own)
def test_silent_and_referee_channels(name):
    bound = MADE[name].bind([TELL, EXAM], NAMES[:1])  # no quorum: nothing is added
    assert [row["policy"] for row in bound.describe()] == ["nothing is sent", "outside the guarantee"]


@pytest.mark.parametrize("name", [n for n in RECIPES.own if n != "plaintext"])
@pytest.mark.parametrize("reveal", [Reveal.SUM, Reveal.EACH])
def test_what_a_peer_reads_is_sealed_or_does_not_bind(name, reveal):
    try:
        bound = MADE[name].bind([Channel("offers", reveal, to="peer")], NAMES)
    except Refused:
        return
    assert bound["offers"].carrier.gives.value == "sealed"


def test_an_exception_replaces_the_recipe_and_only_there():
    policy = dataclasses.replace(masked(), exceptions={"egos": Protection(Plain(), name="plaintext")})
    bound = policy.bind([SUM, EACH], NAMES)
    assert [row["policy"] for row in bound.describe()] == ["masked", "plaintext"]
    with pytest.raises(BadInput, match="'egos'"):
        policy.bind([SUM], NAMES)


@pytest.mark.parametrize(("first", "second"), [("bfv", "ckks"), ("ckks", "bfv")])
def test_two_homomorphic_keys_in_one_run_are_refused(first: str, second: str):
    """One of the two would be set up, and ciphertexts of the other refused in round 1."""
    both = dataclasses.replace(
        homomorphic(scheme=first), exceptions={"counts": homomorphic(scheme=second).recipe(SUM)}
    )
    with pytest.raises(Incompatible, match=r"'update'.*'counts'"):
        both.bind([SUM, Channel("counts", Reveal.SUM)], NAMES)
    same = dataclasses.replace(both, exceptions={"counts": homomorphic(scheme=first).recipe(SUM)})
    assert len(same.bind([SUM, Channel("counts", Reveal.SUM)], NAMES).carriers) == 1


def test_strictest_heeds_exceptions_too():
    policy = dataclasses.replace(strictest(), exceptions={"update": Protection(Plain(), name="by hand")})
    assert policy.bind([SUM], NAMES)["update"].protection.name == "by hand"


def test_strictest_takes_the_first_that_binds_and_warns_of_plaintext():
    with pytest.warns(PlaintextWarning, match="'egos'"):
        bound = strictest().bind([SUM, EACH], NAMES)
    assert [row["policy"] for row in bound.describe()] == ["masked", "plaintext"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            strictest(homomorphic(), masked()).bind([SUM], NAMES)["update"].protection.name == "homomorphic"
        )
        assert strictest(masked(), local_dp(1, 1)).bind([EACH], NAMES)["egos"].protection.name == "local_dp"
    with pytest.raises(Incompatible, match=r"'egos': no recipe binds. masked: .* \| homomorphic: "):
        strictest(masked(), homomorphic()).bind([EACH], NAMES)


def test_default_deny():
    with pytest.raises(Unbound, match="'egos'"):
        masked().bind([SUM], NAMES)["egos"]


@pytest.mark.parametrize("name", ["local_dp", "central_dp", "distributed_dp"])
@pytest.mark.parametrize("unit", [Unit.NODE, Unit.GRAPH])
def test_noise_on_rows_is_scaled_to_the_whole_upload_and_speaks_for_the_client(name, unit):
    bound = RECIPES[name](2.0, 3.0).bind([Channel("egos", Reveal.SUM, unit)], NAMES)["egos"]
    assert bound.stages[0].whole
    assert bound.unit is Unit.CLIENT
    assert {found[0].noise_multiplier for found in bound.releases(9).values()} == {3.0}
    if (
        name != "distributed_dp"
    ):  # whose noise would be that of a row, times the root of nothing that is known
        rows = RECIPES[name](2.0, 3.0, rows=True).bind([Channel("egos", Reveal.SUM, unit)], NAMES)["egos"]
        assert not rows.stages[0].whole
        assert rows.releases(9) == {}


def test_distributed_noise_for_a_sum_that_a_peer_reads():
    bound = distributed_dp(1.0, 2.0).bind([Channel("feedback", Reveal.SUM, to="peer")], many(6))["feedback"]
    assert bound.carrier.gives is Domain.SEALED
    assert bound.bind_context.quorum == 4  # of the five that contribute, 0.8
    assert bound.stages[1].honest == 3
    assert bound.releases(3)["peers"][0].noise_multiplier >= 2.0
    with pytest.raises(Incompatible):
        distributed_dp(1.0, 2.0).bind([Channel("offers", Reveal.EACH, to="peer")], NAMES)


def test_an_amount_by_channel():
    other = Channel("hidden", Reveal.SUM)
    policy = distributed_dp({"update": 1.0, "hidden": 0.5}, {"update": 2.0, "hidden": 4.0})
    bound = policy.bind([SUM, other], NAMES)
    assert [b.stages[0].norm for b in bound.bounds.values()] == [1.0, 0.5]
    assert [b.releases()["server"][0].noise_multiplier for b in bound.bounds.values()] == [
        pytest.approx(2.0, rel=0.01),
        pytest.approx(4.0, rel=0.01),
    ]
    with pytest.raises(BadInput, match="'hidden'"):
        local_dp(1.0, {"update": 1.0}).bind([SUM, other], NAMES)


@pytest.mark.parametrize(
    "policy",
    [
        local_dp(norm={"update": 1.0, "upate": 2.0}, multiplier=1.0),
        central_dp(norm=1.0, multiplier={"update": 1.0, "upate": 2.0}),
        distributed_dp(norm={"update": 1.0, "upate": 2.0}, multiplier=1.0),
        strictest(masked(), local_dp(norm=1.0, multiplier={"update": 1.0, "upate": 2.0})),
        dataclasses.replace(local_dp(norm={"upate": 1.0}, multiplier=1.0), name="another's"),
    ],
    ids=["local_dp", "central_dp", "distributed_dp", "strictest", "renamed"],
)
def test_an_amount_for_a_channel_that_no_algorithm_has_is_refused(policy):
    with pytest.raises(BadInput, match=r"'upate'.*'update'"):
        fit(FedAvg(), policy, NAMES)


def test_an_amount_for_a_channel_that_no_setting_uses_is_none_of_these():
    spared = {c.name for c in FedSagePlus.channels} - {c.name for c in FedSagePlus(generator="own").in_use}
    assert spared
    policy = local_dp(norm=dict.fromkeys(FedSagePlus.channel_names(), 1.0), multiplier=1.0)
    assert fit(FedSagePlus(generator="own"), policy, NAMES).form is None


@pytest.mark.parametrize("recipe", [local_dp, central_dp, distributed_dp])
def test_amounts_that_are_none_are_refused_before_there_is_a_channel(recipe):
    with pytest.raises(BadInput, match="noise needs a positive number"):
        recipe(1.0, {"update": 1.0, "hidden": 0.0})
    with pytest.raises(BadInput, match="the clip must be a positive number"):
        recipe({"update": -1.0}, 1.0)


@pytest.mark.parametrize("quorum", [1, 0, -1])
@pytest.mark.parametrize("recipe", [masked, homomorphic])
def test_quorums(recipe, quorum):
    with pytest.raises(BadInput, match=f"quorum {quorum}: a sum of one upload is that upload; use 2 or more"):
        recipe(quorum=quorum)


def test_relations():
    with pytest.raises(BadInput, match="'swap'"):
        local_dp(1.0, 1.0, relation="swap")
    bound = local_dp(1.0, 1.0, relation="replace").bind([SUM], NAMES)["update"]
    assert isinstance(bound.stages[1], Gaussian)
    stage = bound.stages[1]
    assert stage.sigma * stage.step == pytest.approx(2.0, rel=1e-6)


def test_noise_without_a_clip_never_binds():
    policy = Policy("mine", lambda channel: Protection(Plain(), (Gaussian(1.0),)))
    with pytest.raises(Unbound, match=r"put Clip\(norm\) in front"):
        policy.bind([SUM], NAMES)


def test_what_results_print():
    (row,) = plaintext().bind([SUM], NAMES).describe()
    assert row["excess"] == ["the server sees every single upload, not only the sum"]
    assert {k: row[k] for k in ("name", "reveal", "unit", "to", "policy", "domain", "relation")} == {
        "name": "update",
        "reveal": "sum",
        "unit": "client",
        "to": "server",
        "policy": "plaintext",
        "domain": "real",
        "relation": "zero-out",
    }
    assert [type(c) for c in masked().bind([SUM], NAMES).carriers.values()] == [Masked]
