"""Algorithms made for budgets: what leaves, what a link pays, what noise leaves of it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.errors import BadInput, BudgetExhausted
from secure_fedgraph.forms import FormWarning
from secure_fedgraph.graph.descriptors import descriptors
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models import ridge
from secure_fedgraph.protocol.dropouts import Dropouts
from secure_fedgraph.protocol.transcript import everything


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=5, seed=0, nodes=300, features=24, classes=3)


def go(federation: sfg.Federation, policy: Any = "plaintext", **more: Any) -> sfg.Run:
    settings = {"second_moments": "sent", **more.pop("settings", {})}
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


def test_a_client_s_budget_is_refused_with_what_works(federation) -> None:
    with pytest.raises(BudgetExhausted, match=r"noise on this channel is for one node.*give --unit node"):
        go(federation, "distributed_dp", budget=sfg.Budget(epsilon=8.0, unit="client"))


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


class TestClassSumsOnly:
    """The form in which second moments stay at home."""

    OWN: ClassVar = {"second_moments": "own"}

    def test_each_owner_solves_with_its_own_second_moments(self, federation) -> None:
        run = go(federation, "masked", settings=self.OWN)
        graphs = list(federation.owners.values())
        summed = torch.zeros(24, 3, dtype=torch.float64)
        for graph in graphs:
            z = torch.nn.functional.normalize(graph.x[graph.train_mask], dim=1).double()
            summed += z.T @ ridge.targets(graph.y[graph.train_mask], 3, 0.5).double()
        released = run.algorithm.released(run.state)
        assert torch.allclose(released["classes"], summed, atol=1e-2)
        for graph in graphs:
            z = torch.nn.functional.normalize(graph.x, dim=1)
            expected = ridge.own_weights(summed, z, 5, 0.5)
            found = run.algorithm.as_read(released, graph, federation.schema)["weights"].double()
            assert float((found - expected).norm() / expected.norm()) < 1e-2

    def test_no_second_moment_leaves(self, federation) -> None:
        (upload, *_) = (
            go(federation, settings=self.OWN, keep=everything).transcript.view("server").uploads("moments")
        )
        assert upload.values.keys() == {"classes"}

    @pytest.mark.parametrize("policy", ["local_dp", "distributed_dp"])
    def test_noise_chooses_it_and_the_run_says_so(self, federation, policy: str) -> None:
        budget = sfg.Budget(epsilon=1.0, unit="node")
        with pytest.warns(FormWarning, match="second_moments=own"):
            run = go(federation, policy, settings={"second_moments": "auto"}, budget=budget)
        assert run.form == self.OWN
        assert float(run.privacy()["node"]["readers"]["server"]) <= 1
        assert set(run.history[-1]["accuracy"]) >= {"global", "local", "personal", "personal_global"}

    def test_where_noise_leaves_second_moments_they_are_sent(self, federation) -> None:
        budget = sfg.Budget(epsilon=1000.0, unit="node")
        run = go(federation, "distributed_dp", settings={"second_moments": "auto"}, budget=budget)
        assert run.form == {}

    def test_what_was_set_by_hand_stays(self, federation) -> None:
        budget = sfg.Budget(epsilon=1.0, unit="node")
        assert "second" in go(federation, "distributed_dp", budget=budget).state
        assert go(federation, "distributed_dp", budget=budget).form == {}

    def test_half_the_noise_reaches_the_class_sums(self, federation) -> None:
        """A record moves them by a target's length alone."""
        budget = sfg.Budget(epsilon=1.0, unit="node")
        sent, own = (
            go(federation, "distributed_dp", settings={"second_moments": form}, budget=budget)
            for form in ("sent", "own")
        )
        ratio = float(sent.state["variance"].sqrt() / own.state["variance"].sqrt())
        assert ratio == pytest.approx(math.hypot(1, 0.5) / 0.5, rel=0.01)


def test_more_features_than_second_moments_fit_are_refused_with_the_mend() -> None:
    schema = Schema(features=20_000, classes=2)
    with pytest.raises(BadInput, match=r"set training\.second_moments=own"):
        sfg.algorithms.FedRidge().check(schema)
    sfg.algorithms.FedRidge(second_moments="own").check(schema)


@pytest.fixture(scope="module")
def graphs() -> sfg.Federation:
    return sfg.federate("synthetic-molecules", clients=3, partition="random", seed=0, graphs=240)


class TestWholeGraphs:
    def test_without_noise_it_is_the_closed_form_on_all_graphs(self, graphs) -> None:
        run = sfg.train(sfg.algorithms.GraphFedRidge(records=128), graphs, "masked")
        second = classes = torch.zeros(())
        for owner in graphs.owners.values():
            z = descriptors(owner, graphs.schema)[owner.train_mask].double()
            second = second + z.T @ z
            classes = classes + z.T @ ridge.targets(owner.y[owner.train_mask], 2, 1.0).double()
        expected, found = z.float() @ ridge.weights(second, classes, 1.0).float(), run.state["weights"]
        assert float((z.float() @ found - expected).norm() / expected.norm()) < 0.05

    def test_a_graph_s_budget_covers_its_nodes_and_links(self, graphs) -> None:
        budget = sfg.Budget(epsilon=4.0, unit="graph")
        algorithm = sfg.algorithms.GraphFedRidge(second_moments="sent")
        run = sfg.train(algorithm, graphs, "distributed_dp", budget=budget)
        assert 3.9 < float(run.privacy("graph")["readers"]["server"]) <= 4

    def test_nodes_are_not_classified_by_it(self, federation) -> None:
        with pytest.raises(BadInput, match="kind graph"):
            sfg.train(sfg.algorithms.GraphFedRidge(), federation, "masked")


class TestSgc:
    """One gradient of a public length a round, for clients' budgets."""

    def test_a_round_is_a_step_along_the_mean_of_gradients_of_one_length(self, federation) -> None:
        run = sfg.train(sfg.algorithms.FedSgc(reach=0), federation, "masked", rounds=1)
        expected = torch.zeros(24, 3)
        for graph in federation.owners.values():
            z = torch.nn.functional.normalize(graph.x[graph.train_mask], dim=1)
            down = z.T @ (torch.nn.functional.one_hot(graph.y[graph.train_mask], 3).float() - 1 / 3)
            expected += down / down.norm() / 5
        assert torch.allclose(run.state["weights"], expected, atol=1e-4)

    def test_every_upload_has_the_public_length(self, federation) -> None:
        run = sfg.train(sfg.algorithms.FedSgc(), federation, "plaintext", rounds=2, keep=everything)
        uploads = run.transcript.view("server").uploads("gradient")
        lengths = [float(torch.as_tensor(one.values["weights"]).norm()) for one in uploads]
        assert len(lengths) == 10 and lengths == pytest.approx([0.99] * 10, abs=1e-4)

    def test_features_travel_over_own_links_before_training(self, federation) -> None:
        near, far = (
            sfg.train(sfg.algorithms.FedSgc(reach=reach), federation, "masked", rounds=3) for reach in (0, 2)
        )
        assert not torch.allclose(near.state["weights"], far.state["weights"], atol=1e-3)
        assert far.history[-1]["accuracy"]["global"] > 0.8

    def test_noise_is_for_one_client_whatever_their_number(self, federation) -> None:
        budget = sfg.Budget(epsilon=8.0, unit="client")
        run = sfg.train(sfg.algorithms.FedSgc(), federation, "distributed_dp", budget=budget)
        assert 7.9 < float(run.privacy("client")["readers"]["server"]) <= 8

    def test_a_client_whose_gradient_is_nothing_sends_zeros(self, federation) -> None:
        algorithm = sfg.algorithms.FedSgc()
        graph = federation.owners["owner-0"].clone()
        graph.train_mask = torch.zeros_like(graph.train_mask)
        client = SimpleNamespace(graph=graph, schema=federation.schema)
        made = algorithm.gradient(client, {"weights": torch.full((24, 3), float("nan"))})
        assert torch.equal(made.values["weights"], torch.zeros(24, 3))
