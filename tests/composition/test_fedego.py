"""FedEgo under every recipe: what binds trains, single mashes are refused where only sums are revealed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import small
import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.client import Client
from secure_fedgraph.core.errors import Refused
from secure_fedgraph.privacy.policy import PlaintextWarning
from secure_fedgraph.protocol.transcript import everything

ORDER = Client.secret_order
SMALL = {key: value for key, value in small.EGO.items() if key != "mash"}
POLICIES = {
    "plaintext": sfg.policies.plaintext(),
    "local_dp": sfg.policies.local_dp(1.0, 0.5),
    "central_dp": sfg.policies.central_dp(1.0, 0.5),
    "masked": sfg.policies.masked(),
    "homomorphic": sfg.policies.homomorphic(),
    "strictest": sfg.policies.strictest(),
}
SUMS_ONLY = ("masked", "homomorphic")


@pytest.fixture(scope="module", autouse=True)
def _foreseeable() -> Iterator[None]:
    """Mixing is secret; runs that are compared here draw the same."""
    with pytest.MonkeyPatch.context() as patch:
        small.foreseeable(patch)
        yield


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    split = {"local_tests": 5, "local_share": 0.4}
    return sfg.federate(
        "synthetic-citation", clients=3, partition="label_skew", split=split, nodes=120, features=16, seed=0
    )


def run(federation: sfg.Federation, policy: str, rounds: int = 2, **settings: Any) -> sfg.Run:
    more = {k: settings.pop(k) for k in ("out", "resume") if k in settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlaintextWarning)
        kind: type[sfg.FedEgo] = settings.pop("kind", sfg.FedEgo)
        algorithm = kind(**{**SMALL, **settings})
        return sfg.train(algorithm, federation, POLICIES[policy], rounds=rounds, keep=everything, **more)


def apart(one: sfg.Run, other: sfg.Run, names: str = "") -> float:
    return max(float((one.state[k] - other.state[k]).abs().max()) for k in other.state if k.startswith(names))


@pytest.fixture(scope="module")
def across(federation: sfg.Federation) -> sfg.Run:
    return run(federation, "plaintext", mash="across")


@pytest.mark.parametrize("mash", ["client", "across"])
@pytest.mark.parametrize("policy", POLICIES)
def test_it_trains_or_is_refused_before_anything_is_sent(
    federation: sfg.Federation, policy: str, mash: str
) -> None:
    if mash == "client" and policy in (*SUMS_ONLY, "strictest"):
        words = (
            f"channel 'egos' needs each upload; {policy} reveals only the sum|'egos' of fedego in plaintext"
        )
        with pytest.raises(Refused, match=words):
            run(federation, policy, mash=mash)
        return
    found = run(federation, policy, mash=mash)
    assert len(found.history) == 2
    assert np.isfinite(found.accuracy["global"])
    assert all(bool(torch.isfinite(value).all()) for value in found.state.values())


@pytest.mark.parametrize("policy", ["plaintext", "masked"])
def test_the_released_variant_trains_where_the_paper_does(federation: sfg.Federation, policy: str) -> None:
    kind = ALGORITHMS["fedego-released"]
    released = run(federation, policy, kind=kind, mash="across", batching="seeded", profile="released")
    assert len(released.history) == 2 and np.isfinite(released.accuracy["global"])


def test_the_strictest_recipe_masks_the_sum_and_says_that_single_mashes_are_in_the_clear(
    federation: sfg.Federation,
) -> None:
    with pytest.warns(PlaintextWarning, match="egos"):
        bound = sfg.policies.strictest().bind(sfg.FedEgo(**SMALL).in_use, federation.names)
    assert {row["name"]: row["policy"] for row in bound.describe()}["reduction"] == "masked"
    with warnings.catch_warnings():
        warnings.simplefilter("error", PlaintextWarning)
        bound = sfg.policies.strictest().bind(sfg.FedEgo(mash="across").in_use, federation.names)
    assert {row["name"]: row["policy"] for row in bound.describe()}["egos_across"] == "masked"


@pytest.mark.parametrize("policy", SUMS_ONLY)
def test_sums_under_masks_train_the_same_models(
    federation: sfg.Federation, across: sfg.Run, policy: str
) -> None:
    hidden = run(federation, policy, mash="across")
    assert apart(hidden, across, "shares") < 1e-5
    # Adam turns a rounding of a gradient near zero into a whole step, so weights are held after one round
    first, plain = (run(federation, p, 1, mash="across") for p in (policy, "plaintext"))
    assert apart(first, plain, "reduction.") < 1e-5
    assert apart(first, plain) < 1e-3


@pytest.mark.parametrize("policy", SUMS_ONLY)
def test_the_server_reads_mixtures_of_all_clients_only(federation: sfg.Federation, policy: str) -> None:
    view = run(federation, policy, 1, mash="across").transcript.view("server")
    assert view.uploads("egos_across") == []
    (summed,) = view.sums("egos_across")
    assert summed.clients == federation.names
    assert summed.values["rows"].shape == (3, 7, 4)
    # the control: in plaintext it reads every client's
    plain = run(federation, "plaintext", 1).transcript.view("server")
    assert len(plain.uploads("egos")) == 3


def test_noise_on_mashes_is_on_features_and_labels_alike(federation: sfg.Federation) -> None:
    """The released code noises the features and leaves the labels exact."""
    plain, noised = (run(federation, p, 1).transcript.view("server") for p in ("plaintext", "local_dp"))
    for one, other in zip(plain.uploads("egos"), noised.uploads("egos"), strict=True):
        counts = np.asarray(one.values["labels"])[:, 0] * 8
        assert np.allclose(counts, counts.round(), atol=1e-4)
        assert not np.isclose(
            np.asarray(other.values["labels"]) * 8,
            np.round(np.asarray(other.values["labels"]) * 8),
            atol=1e-4,
        ).all()
        assert not np.allclose(one.values["rows"], other.values["rows"], atol=1e-2)


def test_two_runs_of_one_seed_mix_other_nodes(federation: sfg.Federation) -> None:
    """Batches that followed from the public seed would be known to the server, which solves them (B6)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.undo()
        patch.setattr(Client, "secret_order", ORDER)
        piles = [run(federation, "plaintext", 1).transcript.view("server").uploads("egos") for _ in range(2)]
    for one, other in zip(*piles, strict=True):
        assert not np.array_equal(one.values["labels"], other.values["labels"])


def test_no_cell_of_a_mash_holds_a_single_node(federation: sfg.Federation) -> None:
    """Nodes without neighbours leave slots empty, and would leave cells with one node in the clear."""
    owners = {name: copy(graph) for name, graph in federation.owners.items()}
    for graph in owners.values():  # most nodes have no neighbour, so most cells have few nodes
        graph.edge_index = graph.edge_index[:, :6]
    view = run(replace(federation, owners=owners), "plaintext", 1).transcript.view("server")
    for seen in view.uploads("egos"):
        held = np.asarray(seen.values["labels"]).sum(-1) * SMALL["batch"]
        assert np.all((held < 1e-4) | (held > 3.99))
        assert np.any(held < 1e-4)  # the rule did something


@pytest.mark.parametrize(
    "settings",
    [
        {"mixup": False},
        {"average_reduction": False},
        {"mixing": 0},
        {"mixing": 0.5},
        {"mixing": 1},
        {"kind": sfg.FedEgoReleased, "batching": "secret"},
        {"gamma": 0.125},
    ],
)
def test_the_ablations_train_and_matter(federation: sfg.Federation, settings: dict[str, Any]) -> None:
    changed, plain = (run(federation, "plaintext", 2, **s) for s in (settings, {}))
    scores = [[row["loss"] for row in found.history] for found in (changed, plain)]
    assert scores[0] != scores[1]


def test_clients_score_their_own_models_in_band(federation: sfg.Federation) -> None:
    algorithm = sfg.FedEgo(**SMALL, mash="across")
    found = sfg.train(algorithm, federation, sfg.policies.masked(), rounds=2, evaluation="in_band")
    referee = run(federation, "masked", 2, mash="across")
    assert found.accuracy["local"] == pytest.approx(referee.accuracy["local"], abs=1e-6)
    assert "personal_model" not in {s.channel for s in found.transcript.sent}


def test_a_cohort_may_leave_clients_out(federation: sfg.Federation) -> None:
    """Whoever was never asked is examined with a fresh model; late comers start as the others did."""

    def some(number: int, clients: tuple[str, ...], seed: int) -> tuple[str, ...]:
        return clients[:2] if number < 3 else clients[1:]

    algorithm = sfg.FedEgo(**SMALL)
    found = sfg.train(
        algorithm, federation, sfg.policies.plaintext(), rounds=4, sampler=some, keep=everything
    )
    asked = [u.clients for u in found.transcript.view("server").uploads("egos")]
    assert asked == [("owner-0",), ("owner-1",)] * 2 + [("owner-1",), ("owner-2",)] * 2
