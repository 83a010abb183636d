"""Algorithms made for budgets: what leaves, what a link pays, what noise leaves of it."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.fedsgd.heads.perceptron import LAYERS
from secure_fedgraph.core.errors import BadInput, BudgetExhausted
from secure_fedgraph.core.upload import OFF, ON
from secure_fedgraph.forms import FormWarning
from secure_fedgraph.graph.descriptors import descriptors
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models import ridge
from secure_fedgraph.models.ridge import fourier
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


NAMED = ("fedridge", "fedsgd")


def steps(**settings: Any) -> sfg.Algorithm:
    return sfg.algorithms.FedSgd(**{"hidden": 6, "rate": 0.5, **settings})


@pytest.mark.parametrize("algorithm", [sfg.algorithms.FedRidge(second_moments="sent"), steps()], ids=NAMED)
@pytest.mark.parametrize("policy", ["local_dp", "distributed_dp", "central_dp"])
def test_a_budget_for_a_node_is_kept_and_links_are_free(federation, algorithm: Any, policy: str) -> None:
    against = "outsider" if policy == "central_dp" else "server"
    budget = sfg.Budget(epsilon=8.0, unit="node", against=against)
    spent = sfg.train(algorithm, federation, policy, rounds=2, budget=budget).privacy()
    assert 7.9 < float(spent["node"]["readers"][against]) <= 8.0
    assert float(spent["edge"]["readers"][against]) == 0 and spent["client"]["epsilon"] == "inf"


def test_a_client_s_budget_is_refused_with_what_works(federation) -> None:
    with pytest.raises(BudgetExhausted, match=r"noise on this channel is for one node.*give --unit node"):
        go(federation, "distributed_dp", budget=sfg.Budget(epsilon=8.0, unit="client"))


def test_no_byte_that_leaves_depends_on_a_link(federation) -> None:
    owners = {name: graph.clone() for name, graph in federation.owners.items()}
    for graph in owners.values():
        graph.edge_index = graph.edge_index[:, :2].flip(0)
    before, after = (
        go(one, keep=everything).transcript.view("server").uploads("moments")
        for one in (federation, replace(federation, owners=owners))
    )
    assert len(before) == len(after) == 5
    for one, other in zip(before, after, strict=True):
        assert one.clients == other.clients and one.values.keys() == other.values.keys()
        assert all(np.array_equal(value, other.values[key]) for key, value in one.values.items())


@pytest.mark.parametrize(
    ("algorithm", "name"), [(sfg.algorithms.FedRidge(), "moments"), (steps(), "gradient")]
)
def test_an_answer_sees_no_link(federation, algorithm: Any, name: str, monkeypatch) -> None:
    seen, answer = [], getattr(type(algorithm), name)

    def watched(self: Any, client: Any, given: Any) -> Any:
        seen.append((client.graph.num_edges, client.graph.cross_links.shape[1]))
        return answer(self, client, given)

    monkeypatch.setattr(type(algorithm), name, watched)
    sfg.train(algorithm, federation, "plaintext", rounds=1)
    assert seen == [(0, 0)] * 5
    assert all(g.num_edges and g.cross_links.shape[1] for g in federation.owners.values())


def test_who_drops_out_is_left_out_of_the_sum(federation) -> None:
    run = go(federation, "masked", dropouts=Dropouts(share=0.2, seed=1))
    assert torch.isfinite(run.state["weights"]).all()
    assert not torch.allclose(run.state["weights"], pooled(federation), atol=1e-4)


@pytest.mark.parametrize("algorithm", [sfg.algorithms.FedRidge(records=4), steps(records=4)])
def test_more_training_nodes_than_records_are_refused_by_name(federation, algorithm: Any) -> None:
    with pytest.raises(BadInput, match=r"training\.records = 4: .* set training\.records=\d+ or more"):
        sfg.train(algorithm, federation, "masked", rounds=1)


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

    def test_whoever_predicts_solves_with_second_moments_of_its_graph(self, federation) -> None:
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
            found = run.algorithm.solved(released, graph, federation.schema).double()
            assert float((found - expected).norm() / expected.norm()) < 1e-2

    def test_no_second_moment_leaves(self, federation) -> None:
        (upload, *_) = (
            go(federation, settings=self.OWN, keep=everything).transcript.view("server").uploads("moments")
        )
        assert upload.values.keys() == {"classes"}

    @pytest.mark.parametrize("policy", ["local_dp", "distributed_dp"])
    def test_few_features_send_those_of_all_nodes_and_the_run_says_so(self, federation, policy: str) -> None:
        budget = sfg.Budget(epsilon=1.0, unit="node")
        with pytest.warns(FormWarning, match="second_moments=all"):
            run = go(federation, policy, settings={"second_moments": "auto"}, budget=budget)
        assert run.form == {"second_moments": "all", "target_norm": 1.0}
        assert float(run.privacy()["node"]["readers"]["server"]) <= 1
        assert set(run.history[-1]["accuracy"]) >= {"global", "local", "personal", "personal_global"}

    @pytest.mark.parametrize(("features", "form"), [(128, "all"), (129, "own")])
    def test_where_noise_leaves_second_moments_they_are_sent(self, features: int, form: str) -> None:
        algorithm, schema = sfg.algorithms.FedRidge(), Schema(features, 3)
        (channel,) = algorithm.in_use
        records = 0.6 * 1000
        noise = 0.002 * records / (2 * math.sqrt(features)) * (OFF / ON) / algorithm.settings.records
        less, more = (algorithm.suited(channel, k * noise, schema, 5, {"node": 1000}) for k in (0.99, 1.01))
        assert less is algorithm
        assert more.settings.second_moments == form
        unknown = algorithm.suited(
            channel, 0.99 * noise, schema, 5, {}
        )  # over machines nobody knows how many
        assert unknown.settings.second_moments == ("all" if form == "all" else "auto")

    def test_all_nodes_are_in_second_moments_and_those_with_an_answer_in_class_sums(self, federation) -> None:
        run = go(federation, "masked", settings={"second_moments": "all", "class_weight": (1.0, 0.5, 1.0)})
        second, summed = torch.zeros(24, 24).double(), torch.zeros(24, 3).double()
        for graph in federation.owners.values():
            z = torch.nn.functional.normalize(graph.x, dim=1).double()
            z[graph.train_mask & (graph.y == 1)] *= math.sqrt(0.5)
            weight = torch.tensor([1.0, math.sqrt(0.5), 1.0])[graph.y[graph.train_mask]][:, None]
            second += z.T @ z
            summed += (
                z[graph.train_mask].T @ (weight * ridge.targets(graph.y[graph.train_mask], 3, 0.5)).double()
            )
        assert torch.allclose(run.state["second"], second, atol=1e-2)
        assert torch.allclose(run.state["classes"], summed, atol=1e-2)

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
    with pytest.raises(BadInput, match=r"set training\.second_moments=own.*map_width=2048 \(8 MiB"):
        sfg.algorithms.FedRidge().check(schema)
    sfg.algorithms.FedRidge(map="fourier", map_width=2048).check(schema)
    sfg.algorithms.FedRidge(second_moments="own").check(schema)


@pytest.fixture(scope="module")
def graphs() -> sfg.Federation:
    return sfg.federate("synthetic-molecules", clients=3, partition="random", seed=0, graphs=240)


class TestWholeGraphs:
    def test_without_noise_it_is_the_closed_form_on_all_graphs(self, graphs) -> None:
        algorithm = sfg.algorithms.GraphFedRidge(records=128, map_width=64, map_scale=1.5)
        run = sfg.train(algorithm, graphs, "masked")
        second = classes = torch.zeros(())
        for owner in graphs.owners.values():
            given = descriptors(owner, graphs.schema)[owner.train_mask]
            z = fourier(given, 64, 1.5).double()
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

    def test_a_client_whose_gradient_is_nothing_sends_zeros(self, federation) -> None:
        algorithm = sfg.algorithms.FedSgc()
        graph = federation.owners["owner-0"].clone()
        graph.train_mask = torch.zeros_like(graph.train_mask)
        client = SimpleNamespace(graph=graph, schema=federation.schema)
        made = algorithm.gradient(client, {"weights": torch.full((24, 3), float("nan"))})
        assert torch.equal(made.values["weights"], torch.zeros(24, 3))


class TestStepsUnderSharedNoise:
    """fedsgd, and fedsgd-graphs."""

    @pytest.mark.parametrize("policy", ["plaintext", "masked", "homomorphic"])
    def test_a_step_goes_along_the_sum_of_clipped_gradients(
        self, federation, policy: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With every record in the step: by automatic differentiation, record by record."""
        algorithm = steps(rate=1.0, clip=0.8)
        state = algorithm.init(federation.schema, 0)
        state["outer"] = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
        monkeypatch.setattr(algorithm, "init", lambda schema, seed: state)
        layers = [state[name].clone().requires_grad_() for name in LAYERS]
        totals = [torch.zeros_like(layer) for layer in layers]
        for graph in federation.owners.values():
            z = 5 * torch.nn.functional.normalize(graph.x, dim=1)
            for node in graph.train_mask.nonzero().flatten().tolist():
                hidden = (z[node] @ layers[0] + layers[1]).relu()
                loss = torch.nn.functional.cross_entropy(hidden @ layers[2] + layers[3], graph.y[node])
                gradients = torch.autograd.grad(loss, layers)
                length = torch.cat([g.flatten() for g in gradients]).norm()
                for total, gradient in zip(totals, gradients, strict=True):
                    total += gradient * min(1.0, 0.8 / float(length))
        length = torch.cat([total.flatten() for total in totals]).norm()
        run = sfg.train(algorithm, federation, policy, rounds=1)
        for name, layer, total in zip(LAYERS, layers, totals, strict=True):
            expected = layer.detach() - 0.3 * total / length
            assert torch.allclose(run.state[name], expected, atol=2e-3), name

    def test_it_learns(self, federation) -> None:
        run = sfg.train(steps(), federation, "masked", rounds=60)
        assert run.history[-1]["accuracy"]["global"] > 0.8

    def test_an_owner_without_training_nodes_adds_nothing(self, federation) -> None:
        graph = federation.owners["owner-0"].clone()
        graph.train_mask = torch.zeros_like(graph.train_mask)
        algorithm = steps()
        client = SimpleNamespace(
            graph=graph, schema=federation.schema, sampled=lambda: torch.arange(graph.num_nodes)
        )
        nowhere = {
            name: torch.full_like(v, float("nan")) for name, v in algorithm.init(federation.schema, 0).items()
        }
        given = algorithm.gradient(client, nowhere)
        assert len(given.units) == 0 and given.values["inner"].shape == (0, 24, 6)

    def test_a_graph_is_a_record(self, graphs) -> None:
        algorithm = sfg.algorithms.GraphFedSgd(hidden=6, rate=0.5)
        budget = sfg.Budget(epsilon=4.0, unit="graph")
        run = sfg.train(algorithm, graphs, "distributed_dp", rounds=3, budget=budget)
        assert 3.9 < float(run.privacy("graph")["readers"]["server"]) <= 4
        # a node of a graph changes the graph's part, instead of taking it away
        of_node = float(run.privacy("node")["readers"]["server"])
        assert 4 < of_node < 8.5


@pytest.mark.parametrize("width", [5, 16, 40])
def test_a_record_is_described_by_the_same_bits_whichever_others_there_are(width: int) -> None:
    given = torch.nn.functional.normalize(
        torch.randn(300, width, generator=torch.Generator().manual_seed(0)), dim=1
    )
    whole = fourier(given, 256, 2.0)
    for some in (1, 2, 3, 5, 17, 151):
        assert torch.equal(fourier(given[:some], 256, 2.0), whole[:some])
        assert torch.equal(fourier(given[-some:], 256, 2.0), whole[-some:])
