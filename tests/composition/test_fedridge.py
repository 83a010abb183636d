"""Federated ridge: what leaves, what a link pays, what noise leaves of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.errors import BadInput
from secure_fedgraph.models import ridge
from secure_fedgraph.protocol.dropouts import Dropouts
from secure_fedgraph.protocol.transcript import everything


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=5, seed=0, nodes=300, features=24, classes=3)


def go(federation: sfg.Federation, policy: Any = "plaintext", **more: Any) -> sfg.Run:
    settings = more.pop("settings", {})
    return sfg.train(sfg.algorithms.FedRidge(**settings), federation, policy, **{"rounds": 1, **more})


def pooled(federation: sfg.Federation) -> torch.Tensor:
    """The closed form on everybody's records, put together in one place."""
    graphs = list(federation.owners.values())
    z = torch.cat([torch.nn.functional.normalize(g.x[g.train_mask], dim=1) for g in graphs]).double()
    y = torch.cat([g.y[g.train_mask] for g in graphs])
    t = ridge.targets(y, federation.schema.classes, 0.5).double()
    return ridge.weights(z.T @ z, z.T @ t, 0.5).float()


@pytest.mark.parametrize(("policy", "near"), [("plaintext", 1e-4), ("masked", 1e-3), ("homomorphic", 1e-2)])
def test_without_noise_it_is_the_closed_form_on_all_records(federation, policy: str, near: float) -> None:
    run = go(federation, policy)
    expected = pooled(federation)
    assert float((run.state["weights"] - expected).norm() / expected.norm()) < near


def test_more_rounds_change_nothing_where_there_is_no_noise(federation) -> None:
    one, three = go(federation), go(federation, rounds=3)
    assert one.history[-1]["accuracy"]["global"] == pytest.approx(
        three.history[-1]["accuracy"]["global"], abs=0.03
    )


@pytest.mark.parametrize("policy", ["local_dp", "distributed_dp", "central_dp"])
def test_a_budget_for_a_node_is_kept_and_links_are_free(federation, policy: str) -> None:
    against = "outsider" if policy == "central_dp" else "server"
    budget = sfg.Budget(epsilon=8.0, unit="node", against=against)
    spent = go(federation, policy, budget=budget).privacy()
    assert 7.9 < float(spent["node"]["readers"][against]) <= 8.0
    assert float(spent["edge"]["readers"][against]) == 0


def test_no_byte_that_leaves_depends_on_a_link(federation) -> None:
    links = {name: graph.edge_index for name, graph in federation.owners.items()}
    before = go(federation, keep=everything).transcript.view("server").uploads("moments")
    try:
        for graph in federation.owners.values():
            graph.edge_index = graph.edge_index[:, :2].flip(0)
        after = go(federation, keep=everything).transcript.view("server").uploads("moments")
    finally:
        for name, graph in federation.owners.items():
            graph.edge_index = links[name]
    assert len(before) == len(after) == 5
    for one, other in zip(before, after, strict=True):
        assert one.clients == other.clients
        assert all(
            torch.equal(torch.as_tensor(one.values[k]), torch.as_tensor(other.values[k])) for k in one.values
        )


def test_an_answer_sees_no_link(federation, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    answer = sfg.algorithms.FedRidge.moments

    def watched(self: Any, client: Any, given: Any) -> Any:
        seen.append(client.graph.num_edges)
        return answer(self, client, given)

    monkeypatch.setattr(sfg.algorithms.FedRidge, "moments", watched)
    go(federation)
    assert seen == [0] * 5 and all(graph.num_edges for graph in federation.owners.values())


def test_who_drops_out_is_left_out_of_the_sum(federation) -> None:
    run = go(federation, "masked", dropouts=Dropouts(share=0.2, seed=1))
    assert torch.isfinite(run.state["weights"]).all()
    assert not torch.allclose(run.state["weights"], pooled(federation), atol=1e-4)


def test_more_training_nodes_than_records_are_refused_by_name(federation) -> None:
    with pytest.raises(BadInput, match=r"training\.records = 4: .* set training\.records=\d+ or more"):
        go(federation, settings={"records": 4})


def test_noise_is_worth_what_the_budget_says(federation) -> None:
    """More noise, less accuracy: a budget of 0.1 leaves less than one of 1,000."""
    scores = [
        go(federation, "distributed_dp", budget=sfg.Budget(epsilon=e, unit="node")).history[-1]["accuracy"][
            "global"
        ]
        for e in (0.1, 1000.0)
    ]
    assert scores[0] < scores[1] - 0.1
