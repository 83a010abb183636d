"""FedEgo under the rules of node-level bounds: what one node moves, what is frozen, what is promised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.fedego import bounded
from secure_fedgraph.client import Client
from secure_fedgraph.errors import BadInput, BudgetExhausted, HostileMessage
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.protect import protect
from secure_fedgraph.experiment.results import execute
from secure_fedgraph.privacy.pooling import l2_sensitivity
from secure_fedgraph.privacy.pooling_trees import check_table, parents, tree_sums
from secure_fedgraph.privacy.spending.ledger import Ledger
from secure_fedgraph.protocol import ContributionTrees, Unit
from secure_fedgraph.protocol.transcript import everything

SMALL: dict[str, Any] = {
    "hidden": (8, 8),
    "fanout": (3, 2),
    "batch": 8,
    "mashes": 4,
    "learning_rate": 0.01,
    "epochs": 1,
    "mash": "across",
    "mash_rounds": 0,
}
NOISED = sfg.policies.local_dp(1.0, 2.0)


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    split = {"local_tests": 10}
    return sfg.federate(
        "synthetic-citation", clients=3, partition="label_skew", split=split, nodes=240, features=24, seed=0
    )


def made(**settings: Any) -> sfg.FedEgoNode:
    return sfg.FedEgoNode(**{**SMALL, **settings})


def enlisted(federation: sfg.Federation, algorithm: sfg.FedEgoNode) -> Client:
    bound = sfg.policies.plaintext().bind(algorithm.in_use, federation.names)
    return federation.make_clients(algorithm, bound, "run-1", Ledger(), seed=0)[0]


def answered(federation: sfg.Federation, **settings: Any) -> tuple[sfg.FedEgoNode, Client, ContributionTrees]:
    algorithm = made(**settings)
    client = enlisted(federation, algorithm)
    return algorithm, client, algorithm.egos_across(client, {"seed": 5})


def go(federation: sfg.Federation, policy: Any = NOISED, rounds: int = 2, **settings: Any) -> sfg.Run:
    return sfg.train(made(**settings), federation, policy, rounds=rounds, seed=0, keep=everything)


def zeroed(table: torch.Tensor, unit: int, fanout: tuple[int, ...]) -> torch.Tensor:
    gone = table == unit
    for position, parent in enumerate(parents(fanout).tolist(), start=1):
        gone[..., position] |= gone[..., parent]
    return torch.where(gone, -1, table)


def test_no_node_of_a_clients_graph_moves_more_than_is_declared(federation: sfg.Federation) -> None:
    for caps, clip in (((1, 1), 0.5), ((2, 3), 3.0)):
        algorithm, client, trees = answered(federation, caps=caps, clip=clip)
        channel = algorithm.in_use[0]
        assert channel.name == "egos_across"
        contribution = channel.unit_contribution
        assert contribution is not None
        limit = l2_sensitivity(contribution, "zero-out")
        cells = 10 + 3 * min(caps[0], 3) + min(caps[1], 3 - min(caps[0], 3))
        assert limit == pytest.approx(np.hypot(clip, 1.0) / 8 * np.sqrt(cells))
        whole = tree_sums(trees, contribution, Unit.NODE)[1]
        found = [
            float(
                np.linalg.norm(
                    whole
                    - tree_sums(
                        ContributionTrees(trees.values, zeroed(trees.places, v, (3, 2))),
                        contribution,
                        Unit.NODE,
                    )[1]
                )
            )
            for v in range(len(client.graph.x))
        ]
        assert 0 < max(found) <= limit


def test_a_node_that_is_zeroed_changes_nobody_elses_row(federation: sfg.Federation) -> None:
    algorithm, client, trees = answered(federation)
    client.graph = client.graph.clone()
    client.graph.x[3] = 0.0
    client.graph.y[3] = 0
    again = algorithm.egos_across(client, {})  # after one more round of training, on other features
    rest = torch.arange(len(client.graph.x)) != 3
    for key in ("rows", "labels"):
        assert torch.equal(again.values[key][rest], trees.values[key][rest])
    assert torch.equal(again.places, trees.places)
    assert not torch.equal(again.values["rows"][3], trees.values["rows"][3])


def test_without_a_frozen_reduction_every_row_depends_on_every_node(federation: sfg.Federation) -> None:
    algorithm, client, trees = answered(federation, reduction="trained", average_reduction=False)
    again = algorithm.egos_across(client, {})
    assert not torch.equal(again.values["rows"], trees.values["rows"])
    assert torch.equal(again.places, trees.places)  # drawn once
    bound = NOISED.bind(algorithm.in_use, federation.names)["egos_across"]
    assert bound.releases(10) == {}
    assert "one node moves the others' parts too: the noise bounds no node" in bound.excess
    told = go(federation, reduction="trained").privacy("node")
    assert told["epsilon"] == "inf"
    assert "egos_across" in told["reason"]


def test_the_table_keeps_the_rules_and_empty_mashes_are_sent(federation: sfg.Federation) -> None:
    algorithm, client, trees = answered(federation, mashes=30)
    pool = int(client.graph.train_mask.sum())
    contribution = bounded.unit_contribution(algorithm.settings)
    check_table(trees.places.numpy(), contribution)
    whole = pool // 8
    assert 1 <= whole < 30
    assert bool((trees.places[:whole, :, 0] >= 0).all())  # whole mashes, or none
    assert bool((trees.places[whole:] == -1).all())
    cells = (trees.places >= 0).sum(1)
    assert set(cells.flatten().tolist()).isdisjoint({1, 2, 3})
    assert trees.places[:whole, :, 0].flatten().unique().numel() == whole * 8  # once a centre
    lengths = trees.values["rows"].norm(dim=1)
    assert float(lengths.max()) <= 1 / 8 * (1 + 1e-5)


def test_a_frozen_reduction_is_never_trained_nor_sent(federation: sfg.Federation) -> None:
    run = go(federation, sfg.policies.plaintext(), rounds=2)
    first = made().init(federation.schema, int(run.state["seed"]))
    assert torch.equal(run.state["reduction.weight"], first["reduction.weight"])
    assert not torch.equal(run.state["head.weight"], first["head.weight"])
    assert [c.name for c in made().in_use] == ["egos_across", "mix", "personal_model"]
    algorithm, client, _ = answered(federation)
    assert torch.equal(
        client.memory["model"]["reduction.weight"], algorithm.start(client.schema, 5).reduction.weight
    )
    assert not torch.equal(
        client.memory["model"]["head.weight"], algorithm.start(client.schema, 5).head.weight
    )


@pytest.mark.parametrize("mash", ["across", "client"])
def test_a_nodes_epsilon_is_finite_and_counts_its_holders(federation: sfg.Federation, mash: str) -> None:
    told = go(federation, rounds=3, mash=mash, mash_rounds=1).privacy("node")
    assert told["holders"] == 3
    assert told["against"] == "server"
    assert told["relation"] == "zero-out on the frozen table"
    # one release, of a multiplier of 2, that three clients' uploads of one node share
    assert told["epsilon"] == pytest.approx(_gaussian(2.0 / 3), abs=2e-3)
    more = go(federation, rounds=3, mash=mash).privacy("node")["epsilon"]
    assert more == pytest.approx(_gaussian(2.0 / 3 / 3**0.5), abs=1e-2)


def _gaussian(multiplier: float) -> float:
    from secure_fedgraph.privacy.accounting import epsilon
    from secure_fedgraph.privacy.accounting.epsilon import GaussianRelease

    return epsilon.epsilon([GaussianRelease(multiplier)], 1e-5).epsilon


def test_mashes_are_released_once_and_used_again(federation: sfg.Federation) -> None:
    run = go(federation, rounds=3, mash_rounds=1)
    assert {sent.round for sent in run.transcript.sent if sent.channel == "egos_across"} == {1}
    assert run.state["released.rows"].shape == (4, 10, 8)
    assert made(mash_rounds=2).uses(made().in_use[0], 9, 3) == 2
    # later rounds train on them, in the server and in the clients
    one = go(federation, rounds=1, mash_rounds=1)
    assert not torch.equal(run.state["head.weight"], one.state["head.weight"])
    algorithm, client, _ = answered(federation, mash_rounds=1)
    with pytest.raises(HostileMessage, match="released in 1 round"):
        algorithm.egos_across(client, {})


def test_a_client_that_is_asked_for_nothing_trains_before_it_mixes(federation: sfg.Federation) -> None:
    algorithm, client, _ = answered(federation, mash_rounds=1)
    state = algorithm.init(federation.schema, 5)
    told = {k: v for k, v in state.items() if not k.startswith(("reduction.", "seed"))}
    told["shares"] = torch.full((federation.schema.classes,), 1 / federation.schema.classes)

    def steps() -> int:
        return int(next(iter(client.memory["optimizer"].values()))["step"])

    before = steps()
    algorithm.mix(client, told)  # in the round of its mashes, when it has trained
    assert steps() == before > 0
    client.scratch.clear()
    algorithm.mix(client, told)
    assert steps() == 2 * before


def test_labels_come_back_in_their_own_size(federation: sfg.Federation) -> None:
    open_ = sfg.policies.plaintext()
    small, large = (go(federation, open_, rounds=1, mash_rounds=1, label_clip=lam) for lam in (0.1, 2.0))
    for run in (small, large):
        labels = run.state["released.labels"]
        assert labels[:, 0].sum(1).max() == pytest.approx(1.0, abs=1e-5)


def test_a_budget_plans_the_noise_or_says_that_none_is_enough(federation: sfg.Federation) -> None:
    def planned(**settings: Any) -> Any:
        algorithm = made(mash_rounds=1, **settings)
        given = {k: list(v) if isinstance(v, tuple) else v for k, v in SMALL.items()}
        experiment = Experiment(
            algorithm="fedego-node",
            data="synthetic-citation",
            clients=3,
            rounds=3,
            policy="distributed_dp",
            epsilon=8,
            unit="node",
            training={**given, "mash_rounds": 1, **settings},
            protection={"norm": 1.0},
        )
        return protect(experiment, algorithm, federation)

    plan = planned().plan
    assert 7.9 < plan.epsilon <= 8
    assert plan.uses["egos_across"] == 1
    with pytest.raises(BudgetExhausted, match="no noise protects one node"):
        planned(reduction="trained")


def test_under_noise_in_shares_the_server_reads_the_noised_sum(federation: sfg.Federation) -> None:
    run = go(federation, sfg.policies.distributed_dp(1.0, 1.0, quorum=3), rounds=2, mash_rounds=1)
    told = run.privacy("node")
    assert told["computational"] is True
    assert 0 < float(told["epsilon"]) < 100


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mixup": False}, "mixup.*mash of ego-graphs"),
        ({"ego": False}, "ego.*mash of ego-graphs"),
        ({"mixing": 0}, "mixing.*mash of ego-graphs"),
        ({"rules": "node"}, r"'rules'.*leave it out"),
        ({"batching": "released"}, "fedego-released"),
        ({"caps": (1,)}, "one number a level of fanout"),
        ({"caps": (1, -1)}, "one number a level of fanout"),
        ({"clip": 0.0}, "clip"),
        ({"label_clip": float("inf")}, "label_clip"),
        ({"mash_rounds": -1}, "mash_rounds"),
    ],
)
def test_bad_settings_are_refused_by_name(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        sfg.FedEgoNode(**settings)


def test_sums_that_are_none_are_refused() -> None:
    settings = made().settings
    right = {"rows": torch.zeros(40, 8), "labels": torch.ones(40, 3)}
    assert bounded.opened(right, settings, "a")["rows"].shape == (4, 10, 8)
    for wrong in ({"rows": torch.zeros(39, 8)}, {"rows": torch.zeros(40, 8)}, {"rows": torch.zeros(40)}):
        with pytest.raises(HostileMessage, match="the mashes of a are not 4 of 10 positions"):
            bounded.opened(wrong, settings, "a")


@pytest.mark.parametrize("policy", ["local_dp", "distributed_dp"])
def test_its_defaults_make_epsilon_finite(policy: str) -> None:
    split = {"local_tests": 10, "local_share": 0.4}
    experiment = Experiment(
        algorithm="fedego-node", data="synthetic-citation", rounds=2, policy=policy, epsilon=8, unit="node",
        split=split, dataset={"nodes": 300}, training={"mashes": 16},
    )  # fmt: skip
    assert 7.9 < execute(experiment, None).privacy("node")["epsilon"] <= 8


def test_the_papers_algorithm_bounds_no_node() -> None:
    assert all(channel.unit_contribution is None for channel in sfg.FedEgo().in_use)
    for key in ("rules", "caps", "filled", "clip", "label_clip", "reduction", "mash_rounds"):
        with pytest.raises(BadInput, match=f"{key}.*fedego-node"):
            sfg.FedEgo(**{key: 1})
