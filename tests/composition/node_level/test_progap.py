"""ProGAP: stages, sums that stay at home and are noised once, budgets, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.algorithms.fedsgd.algorithm import MEAN
from secure_fedgraph.algorithms.fedsgd.heads.perceptron import LAYERS
from secure_fedgraph.algorithms.progap.exact_sums import linked_sums
from secure_fedgraph.client import Client
from secure_fedgraph.errors import BadInput, BudgetExhausted, HostileMessage
from secure_fedgraph.privacy.input_dp.links import RandomisedLinks
from secure_fedgraph.protocol.dropouts import Dropouts
from secure_fedgraph.protocol.transcript import everything

SMALL = {"hidden": 6, "rate": 0.5, "stage": 2, "neighbours": 8, "crowd": 32, "degree": 64}


def made(**settings: Any) -> sfg.algorithms.ProGap:
    return sfg.algorithms.ProGap(**{**SMALL, **settings})


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=4, nodes=160, features=16, seed=0)


def go(federation: sfg.Federation, policy: Any = "masked", rounds: int = 4, **more: Any) -> sfg.Run:
    settings = more.pop("settings", {})
    return sfg.train(made(**settings), federation, policy, rounds=rounds, seed=0, **more)


def rows_given(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, int], list[torch.Tensor]]:
    """Client and hop -> what it was given, ask by ask."""
    seen: dict[tuple[str, int], list[torch.Tensor]] = {}
    real = Client.linked_sums

    def watched(self: Client, channel: Any, hop: int, parts: torch.Tensor) -> torch.Tensor:
        rows = real(self, channel, hop, parts)
        seen.setdefault((self.name, hop), []).append(rows)
        return rows

    monkeypatch.setattr(Client, "linked_sums", watched)
    return seen


def test_it_learns_and_is_listed(federation) -> None:
    assert ALGORITHMS["progap"] is sfg.algorithms.ProGap
    run = go(federation, rounds=80, settings={"stage": 40})
    assert run.history[-1]["accuracy"]["global"] > 0.8


@pytest.mark.parametrize(
    ("policy", "against"), [("distributed_dp", "server"), ("local_dp", "server"), ("central_dp", "outsider")]
)
def test_a_budget_for_a_node_is_kept_over_steps_and_hops(federation, policy: str, against: str) -> None:
    budget = sfg.Budget(8.0, unit="node", against=against)
    run = go(federation, policy, rounds=6, budget=budget, settings={"hops": 2})
    spent = run.privacy()
    assert 7.9 < float(spent["node"]["readers"][against]) <= 8
    assert 0 < float(spent["edge"]["readers"][against]) < 8
    assert spent["client"]["epsilon"] == "inf"
    kept = [charge for charge in run.charges if charge.channel == "sums"]
    assert sorted((c.client, c.round) for c in kept) == sorted(
        (name, round) for name in federation.names for round in (3, 5)
    )


def test_the_budget_is_shared_evenly_between_sums_that_coins_enter_and_rows(federation) -> None:
    run = go(federation, "distributed_dp", rounds=6, budget=sfg.Budget(8.0, unit="node"))
    noise = run.policy.policy.made_with["multiplier"]
    assert noise["step"] / noise["sums"] == pytest.approx(0.5 * math.sqrt(6))


def test_two_holders_pay_twice(federation) -> None:
    run = go(federation, "local_dp", rounds=3, budget=sfg.Budget(8.0, unit="node"))
    (charge, *_) = (charge for charge in run.charges if charge.channel == "sums")
    one, two = (charge.cost.at("node", "server", holders)[0] for holders in (1, 2))
    assert two.noise_multiplier == pytest.approx(one.noise_multiplier / 2)


def test_rows_are_noised_once_and_only_when_their_stage_begins(federation, monkeypatch) -> None:
    seen = rows_given(monkeypatch)
    run = go(federation, sfg.policies.local_dp(1.0, 2.0), rounds=5)
    assert {hop for _, hop in seen} == {1} and {len(rows) for rows in seen.values()} == {3}
    assert all(torch.equal(one, rows[0]) for rows in seen.values() for one in rows)
    again = rows_given(monkeypatch)
    go(federation, sfg.policies.local_dp(1.0, 2.0), rounds=3)
    assert not any(torch.equal(rows[0], seen[key][0]) for key, rows in again.items())
    assert len([c for c in run.charges if c.channel == "sums"]) == 4


def test_the_charge_is_written_before_the_rows_exist(federation, monkeypatch) -> None:
    from secure_fedgraph.privacy.bound import Bound

    order: list[str] = []
    charge, kept = Client._charge_kept, Bound.kept
    monkeypatch.setattr(Client, "_charge_kept", lambda self, *a: (charge(self, *a), order.append("charge")))
    monkeypatch.setattr(Bound, "kept", lambda self, *a: (order.append("rows"), kept(self, *a))[1])
    go(federation, sfg.policies.local_dp(1.0, 2.0), rounds=3)
    assert order == ["charge", "rows"] * 4


def test_a_stage_reads_features_and_the_directions_of_a_node_s_own_row(federation) -> None:
    """Without noise an owner's records are what a reader of its graph computes, in the second stage too."""
    run = go(federation, rounds=4)
    graph, schema = federation.owners["owner-0"], federation.schema
    params = run.algorithm.released(run.state)
    features = F.normalize(graph.x, dim=1) * 5
    finished = {name: params[f"hop1.{name}"] for name in LAYERS}
    z = torch.cat([features, torch.zeros(graph.num_nodes, schema.classes)], dim=1)
    hidden = (z @ finished["inner"] + finished["inner_bias"]).relu()
    shares = F.softmax(hidden @ finished["outer"] + finished["outer_bias"], dim=1)
    weight = run.algorithm.in_use[1].unit_contribution.weight
    sums = linked_sums(F.normalize(shares, dim=1), graph.edge_index, weight)
    z[:, schema.features :] = F.normalize(sums, dim=1) * 3
    expected = (z @ params["inner"] + params["inner_bias"]).relu() @ params["outer"] + params["outer_bias"]
    assert torch.allclose(run.algorithm.scores(params, graph, schema), expected, atol=1e-4)


def test_a_finished_stage_s_mean_weights_make_the_sums(federation) -> None:
    before = go(federation, rounds=2)
    assert float(before.state["stage"]) == 0
    algorithm = made()
    moved = algorithm._next_stage(before.state, 1)
    for name in LAYERS:
        assert torch.equal(moved[f"hop1.{name}"], before.state[MEAN + name])
        assert torch.equal(moved[name], before.state[MEAN + name])


def test_noise_on_what_no_stage_reads_moves_no_weight(federation) -> None:
    run = go(federation, sfg.policies.local_dp(1.0, 2.0), rounds=2)
    assert not run.state["inner"][federation.schema.features :].any()


def test_no_link_enters_an_upload_but_through_noised_rows(federation, monkeypatch) -> None:
    seen = []
    answer = sfg.algorithms.ProGap.gradients

    def watched(self: Any, client: Any, given: Any, chosen: Any) -> Any:
        seen.append(client.graph.num_edges)
        return answer(self, client, given, chosen)

    monkeypatch.setattr(sfg.algorithms.ProGap, "gradients", watched)
    go(federation)
    assert set(seen) == {0}


def test_without_noise_a_link_is_not_free(federation) -> None:
    spent = go(federation).privacy()
    assert spent["edge"]["epsilon"] == "inf" and spent["node"]["epsilon"] == "inf"


def test_a_client_that_missed_the_first_step_of_a_stage_makes_its_rows_later(federation) -> None:
    run = go(federation, "masked", rounds=6, dropouts=Dropouts(share=0.25, seed=1))
    assert torch.isfinite(run.state["inner"]).all()
    paid = [charge.client for charge in run.charges if charge.channel == "sums"]
    assert sorted(set(paid)) == sorted(paid)


def test_owners_without_links_take_part(federation) -> None:
    owner = federation.owners["owner-0"]
    links = owner.edge_index
    try:
        owner.edge_index = links[:, :0]
        run = go(federation, "distributed_dp", budget=sfg.Budget(8.0, unit="node"))
    finally:
        owner.edge_index = links
    assert torch.isfinite(run.state["inner"]).all()


def test_a_resumed_run_has_the_rows_that_it_had(federation, tmp_path: Path, monkeypatch) -> None:
    policy = sfg.policies.local_dp(1.0, 2.0)
    seen = rows_given(monkeypatch)
    real = sfg.algorithms.ProGap.round

    def killed(self: Any, round: Any, state: Any) -> Any:
        if round.number == 4:
            raise KeyboardInterrupt
        return real(self, round, state)

    with monkeypatch.context() as patch:
        patch.setattr(sfg.algorithms.ProGap, "round", killed)
        with pytest.raises(KeyboardInterrupt):
            go(federation, policy, rounds=5, out=tmp_path)
    again = rows_given(monkeypatch)
    run = go(federation, policy, rounds=5, out=tmp_path, resume=True)
    assert again and all(torch.equal(rows[0], seen[key][0]) for key, rows in again.items())
    assert not [charge for charge in run.charges if charge.channel == "sums" and charge.round > 3]


def test_clients_in_processes_of_their_own(federation) -> None:
    run = go(federation, "distributed_dp", rounds=3, budget=sfg.Budget(8.0, unit="node"), isolated=True)
    assert len([charge for charge in run.charges if charge.channel == "sums"]) == 4


def test_the_server_cannot_ask_for_the_rows_or_for_more_hops(federation, monkeypatch) -> None:
    asked: list[str] = []

    def asks(self: Any, client: Client, given: Any, chosen: torch.Tensor) -> Any:
        for hop in (0, 2):
            with pytest.raises(HostileMessage, match=f"makes 1 hops and was asked for hop {hop}"):
                client.linked_sums(self.in_use[1], hop, torch.zeros(client.graph.num_nodes, 2))
        with pytest.raises(BadInput, match="give a part for each node"):
            client.linked_sums(self.in_use[1], 1, torch.zeros(3, 2))
        asked.append(client.name)
        return {name: torch.zeros(len(chosen), *given[name].shape) for name in LAYERS}

    monkeypatch.setattr(sfg.algorithms.ProGap, "gradients", asks)
    go(federation, "plaintext", rounds=1)
    assert len(asked) == 4


def test_a_server_that_lies_about_the_stage_gets_no_further_hop(federation) -> None:
    algorithm = made()
    state = algorithm.init(federation.schema, 0)
    graph = federation.owners["owner-0"]
    hops: list[int] = []

    def sums(hop: int, parts: torch.Tensor) -> torch.Tensor:
        hops.append(hop)
        return parts

    for stage in (-4.0, 9.0):
        algorithm._inputs({**state, "stage": torch.full((1,), stage)}, graph, federation.schema, sums)
    assert hops == [1]


def test_graphs_beyond_the_public_bounds_are_refused_before_round_1(federation) -> None:
    with pytest.raises(BadInput, match=r"training\.crowd = 0: a node of owner-.*set training\.crowd"):
        go(federation, sfg.policies.local_dp(1.0, 2.0), settings={"crowd": 0, "neighbours": 1})
    with pytest.raises(BadInput, match=r"training\.degree = 1: .*set training\.degree"):
        go(federation, sfg.policies.local_dp(1.0, 2.0), settings={"degree": 1})
    go(federation, "masked", rounds=1, settings={"degree": 1})  # no noise is planned for anybody


@pytest.mark.parametrize("key", ["hops", "neighbours", "stage", "degree"])
def test_settings_out_of_range_are_refused_by_name(key: str) -> None:
    with pytest.raises(BadInput, match=rf"training\.{key}|{key}"):
        made(**{key: 0})


def test_a_budget_that_holds_the_steps_and_not_the_hop_stops_there(federation) -> None:
    policy = sfg.policies.local_dp(1.0, {"step": 40.0, "sums": 0.05})
    with pytest.raises(BudgetExhausted, match="sums"), pytest.warns(sfg.EarlyStopWarning, match="2 rounds"):
        go(federation, policy, rounds=3, budget=sfg.Budget(2.0, unit="node"))


def test_an_algorithm_from_outside_gets_rows_and_no_promise(federation) -> None:
    class Mine(sfg.algorithms.ProGap):
        name = "mine"

    run = sfg.train(Mine(**SMALL), federation, sfg.policies.local_dp(1.0, 2.0), rounds=3, seed=0)
    assert run.privacy()["node"]["epsilon"] == "inf"
    (charge, *_) = (charge for charge in run.charges if charge.channel == "sums")
    assert not charge.releases and not charge.steps


def test_an_edge_s_budget_is_spent_on_sums_alone(federation) -> None:
    run = go(federation, "distributed_dp", rounds=3, budget=sfg.Budget(4.0, unit="edge"))
    assert 3.9 < float(run.privacy()["edge"]["readers"]["server"]) <= 4
    made_with = run.policy.policy.made_with["multiplier"]
    assert made_with["step"] < 0.02 < made_with["sums"]


def test_the_record_passes_conformance(federation) -> None:
    from secure_fedgraph.audits.conformance.rows import FAILED, conformance_rows

    run = go(federation, sfg.policies.local_dp(1.0, 2.0), rounds=4, keep=everything)
    assert [row["check"] for row in conformance_rows(run) if row["outcome"] == FAILED] == []


def test_the_planner_does_not_choose_it() -> None:
    from secure_fedgraph.experiment.planner import asked_experiment, choose
    from secure_fedgraph.experiment.results import make_federation

    values = {
        "data": "synthetic-citation",
        "dataset": {"nodes": 600, "features": 16},
        "epsilon": 8,
        "unit": "node",
    }
    asked = asked_experiment(values)
    choice = choose(asked, make_federation(asked), "distributed_dp")
    assert "progap" not in {one.algorithm for one in choice.candidates}
    assert math.isfinite(choice.least.noise_to_signal or math.inf)


@pytest.mark.parametrize("made_of", ["local_dp", "distributed_dp"])
def test_strictest_refuses_randomised_links_beside_rows_as_what_it_is_made_of_does(
    federation, made_of
) -> None:
    policy = sfg.policies.strictest(getattr(sfg.policies, made_of)(1.0, 20.0))
    with pytest.raises(BadInput, match="links are randomised"):
        go(federation, replace(policy, randomizers=(RandomisedLinks(1.0),)))
