"""APFLGate, APFL and FedGATE: the limits of one another, exactly; what a client keeps; what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.apflgate.settings import UnstableWarning
from secure_fedgraph.algorithms.training.graph_classifier import GraphTask, Part, batches, training_items
from secure_fedgraph.core import inputs
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.graph.data.molecules import generate
from secure_fedgraph.graph.sample.packing import pack
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.parameters import load, parameters_of

FULL: dict[str, Any] = {"batch": "full", "local_steps": 3, "hidden": (8, 8), "learning_rate": 0.05}
NEVER = 1e30  # a tau that switches tracking off
State = dict[str, Tensor]


class Table:
    """Clients around a table: the verbs of a round without a protocol, so that arithmetic is tested."""

    def __init__(self, algorithm: sfg.ApflGate, clients: Sequence[Any]) -> None:
        self.algorithm, self.clients = algorithm, clients
        self.cohort = tuple(client.name for client in clients)

    def reduce(self, channel: sfg.Channel, given: State) -> Any:
        said = [self.algorithm.update(client, given).values for client in self.clients]
        self.said = said
        mean = {k: torch.stack([s[k] for s in said]).mean(0) for k in said[0]}
        return SimpleNamespace(mean=mean, contributors=self.cohort)

    def scatter(self, channel: sfg.Channel, given: Mapping[str, State]) -> None:
        for client in self.clients:
            assert self.algorithm.mean_update(client, given[client.name]) is None

    def run(self, state: State, rounds: int) -> State:
        for number in range(1, rounds + 1):
            for client in self.clients:
                client.round = number
            state = self.algorithm.round(self, state)
        return state


def client_of(name: str, graph: Data, schema: Any) -> Any:
    client = SimpleNamespace(name=name, graph=graph, schema=schema, memory={}, round=1)
    client.generator = lambda purpose: torch.Generator().manual_seed(
        hash((name, client.round, purpose)) % 2**31
    )
    return client


# ---- a task whose gradients are constant: the loss is linear in the weights


class Pull:
    """``loss = <pull of the client, w>``."""

    def model(self, schema: Any, graph: Data | None = None) -> nn.Module:
        model = nn.Linear(3, 1, bias=False)
        with torch.no_grad():
            model.weight.zero_()
        return model

    def start(self, schema: Any, seed: int) -> State:
        return {"weight": torch.zeros(1, 3)}

    def own(self, model: nn.Module) -> tuple[str, ...]:
        return ()

    def part(self, graph: Data, chosen: Tensor | None) -> Part:
        return Part(graph, chosen, graph.pull)

    def outputs(self, model: Any, part: Part, noise: Any = None) -> Tensor:
        return model.weight[0]

    def loss(self, outputs: Tensor, part: Part) -> Tensor:
        return (outputs * part.answers).sum()


class Pulled(sfg.FedGate):
    name = "pulled"

    def task(self, schema: Any) -> Any:
        return Pull()


PULLS = torch.tensor([[1.0, 0.0, -2.0], [4.0, 1.0, 0.0], [-2.0, 2.0, 5.0]])


def pulled(**settings: Any) -> tuple[Table, State]:
    graphs = [Data(pull=pull, train_mask=torch.ones(1, dtype=torch.bool), num_nodes=1) for pull in PULLS]
    algorithm = Pulled(**{"local_steps": 4, "learning_rate": 0.25, **settings})
    return Table(algorithm, [client_of(f"owner-{i}", g, Schema(0, 0)) for i, g in enumerate(graphs)]), {
        "weight": torch.zeros(1, 3)
    }


def errors_of(table: Table) -> Tensor:
    """``delta_i - (g_i - mean g)``."""
    delta = torch.stack([client.memory["delta"]["weight"][0] for client in table.clients])
    return delta - (PULLS - PULLS.mean(0))


class TestTracking:
    @pytest.mark.parametrize(
        ("settings", "factor"),
        [
            ({"tau": 4}, 0.0),  # R = 4: dead-beat
            ({}, 0.0),  # tau is R by default
            ({"tau": 8}, 0.5),
            ({"tau": 16}, 0.75),
            ({"tau": 3}, -1 / 3),
            ({"tau": 2.5}, -0.6),
            ({"tau": 4, "gain": "1/tau"}, 0.75),
            ({"gain": 0.25}, 0.75),
            ({"gain": 0.0}, 1.0),
        ],
    )
    def test_constant_gradients_contract_by_one_minus_the_gain(self, settings, factor):
        table, state = pulled(**settings)
        expected = -(PULLS - PULLS.mean(0))  # delta starts at zero
        for _ in range(4):
            state = table.run(state, 1)
            expected = factor * expected
            assert torch.allclose(errors_of(table), expected, atol=1e-5)

    def test_as_printed_in_numbers(self):
        # eta 0.25, R 4, tau 8: u_1 = 0.25 * 4 * (1, 0, -2); u = mean = (1, 1, 1); wbar - w_1^R = u_1 - u
        table, state = pulled(tau=8)
        state = table.run(state, 1)
        assert state["weight"].tolist() == [[-1, -1, -1]]  # w - u
        assert table.clients[0].memory["delta"]["weight"].tolist() == [[0.0, -0.5, -1.5]]  # (u_1 - u) / 2

    def test_dead_beat_makes_every_update_the_mean_one(self):
        table, state = pulled(tau=4)
        table.run(state, 2)
        for said in table.said:
            assert torch.allclose(said["weight"], -PULLS.mean(0, keepdim=True), atol=1e-6)

    def test_it_runs_away_below_half_of_the_steps_and_says_so_before(self):
        with pytest.warns(
            UnstableWarning, match="gain 2.5 is above 2.*tau of more than half of local_steps = 4"
        ):
            table, state = pulled(tau=1.6)
        sizes = []
        for _ in range(4):
            state = table.run(state, 1)
            sizes.append(float(errors_of(table).norm()))
        assert all(later == pytest.approx(1.5 * sooner, rel=1e-3) for sooner, later in pairwise(sizes))

    @pytest.mark.parametrize(
        "settings", [{"tau": 2}, {"tau": 0.5, "gain": "1/tau"}, {"gain": 2}, {"tau": 100}]
    )
    def test_no_warning_where_it_does_not(self, settings):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pulled(**settings)
            sfg.Apfl(local_steps=100)

    def test_the_norm_is_clipped(self):
        table, state = pulled(tau=4, delta_norm=1.5)
        table.run(state, 3)
        norms = [float(client.memory["delta"]["weight"].norm()) for client in table.clients]
        assert max(norms) == pytest.approx(1.5) and all(n <= 1.5 + 1e-6 for n in norms)

    def test_the_servers_rate_scales_its_step_and_not_the_terms(self):
        (slow, state), (fast, _) = pulled(server_rate=0.5), pulled()
        half, whole = slow.run(state, 1), fast.run(state, 1)
        assert torch.equal(half["weight"], whole["weight"] / 2)
        for one, other in zip(slow.clients, fast.clients, strict=True):
            assert torch.equal(one.memory["delta"]["weight"], other.memory["delta"]["weight"])


# ---- on molecules


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-molecules", clients=3, partition="dirichlet", graphs=60)


def table_of(algorithm: sfg.ApflGate, federation: sfg.Federation) -> tuple[Table, State]:
    clients = [client_of(name, graph, federation.schema) for name, graph in federation.owners.items()]
    return Table(algorithm, clients), algorithm.init(federation.schema, 7)


def alike(one: State, other: State, atol: float = 1e-6) -> bool:
    return one.keys() == other.keys() and all(torch.allclose(v, other[k], atol=atol) for k, v in one.items())


def local_sgd(federation: sfg.Federation, graph: Data, start: State, steps: int) -> State:
    """Plain full-batch gradient descent, by torch's own optimiser."""
    model = GraphTask((8, 8)).model(federation.schema)
    load(model, start)
    optimizer = torch.optim.SGD(model.parameters(), lr=FULL["learning_rate"])
    task = GraphTask((8, 8))
    part = task.part(graph, graph.train_mask.nonzero().flatten())
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(part.graph), part.answers).backward()
        optimizer.step()
    return parameters_of(model)


class TestLimits:
    def test_without_tracking_and_personal_model_it_is_fedavg_with_the_servers_rate(self, federation):
        table, start = table_of(sfg.ApflGate(**FULL, alpha=0, tau=NEVER, server_rate=0.5), federation)
        found = table.run(start, 2)
        state = start
        for _ in range(2):
            after = [local_sgd(federation, g, state, 3) for g in federation.owners.values()]
            mean = {k: torch.stack([a[k] for a in after]).mean(0) for k in state}
            state = {k: v + 0.5 * (mean[k] - v) for k, v in state.items()}
        assert alike(found, state)
        assert not alike(found, start, atol=1e-3)

    def test_alpha_0_is_fedgate(self, federation):
        (both, start), (gate, _) = (
            table_of(sfg.ApflGate(**FULL, alpha=0), federation),
            table_of(sfg.FedGate(**FULL), federation),
        )
        assert alike(both.run(start, 3), gate.run(start, 3), atol=0)
        for one, other in zip(both.clients, gate.clients, strict=True):
            assert alike(one.memory["delta"], other.memory["delta"], atol=0)
            assert alike(one.memory["personal"], start, atol=0)  # its gradient has the factor alpha

    def test_alpha_1_is_local_training_beside_a_fedgate_that_nobody_uses(self, federation):
        (both, start), (gate, _) = (
            table_of(sfg.ApflGate(**FULL, alpha=1), federation),
            table_of(sfg.FedGate(**FULL), federation),
        )
        state = both.run(start, 3)
        assert alike(state, gate.run(start, 3), atol=0)
        for client in both.clients:
            alone = local_sgd(federation, client.graph, start, 9)
            assert alike(client.memory["personal"], alone)
            assert both.algorithm._marked(client, state)["test"].equal(
                both.algorithm._marked(client, start)["test"]  # whatever the shared model is
            )

    def test_tau_without_end_is_apfl(self, federation):
        (both, start), (apfl, _) = (
            table_of(sfg.ApflGate(**FULL, alpha=0.3, tau=NEVER), federation),
            table_of(sfg.Apfl(**FULL, alpha=0.3), federation),
        )
        assert alike(both.run(start, 3), apfl.run(start, 3))
        for one, other in zip(both.clients, apfl.clients, strict=True):
            assert alike(one.memory["personal"], other.memory["personal"])
            assert "delta" not in other.memory and "sent" not in other.memory

    def test_tracking_terms_add_up_to_zero(self, federation):
        settings = {**FULL, "batch": 4, "local_steps": 5, "tau": 10}
        table, state = table_of(sfg.ApflGate(**settings), federation)
        for _ in range(4):
            state = table.run(state, 1)
            for name in state:
                terms = torch.stack([client.memory["delta"][name] for client in table.clients])
                assert float(terms.abs().max()) >= 0
                assert torch.allclose(terms.sum(0), torch.zeros(()), atol=1e-5)
        assert max(float(v.norm()) for v in table.clients[0].memory["delta"].values()) > 1e-3

    def test_alike_clients_need_no_term(self, federation):
        graph = federation.owners["owner-0"]
        algorithm = sfg.ApflGate(**FULL)
        table = Table(algorithm, [client_of(f"owner-{i}", graph, federation.schema) for i in range(4)])
        table.run(algorithm.init(federation.schema, 7), 3)
        assert all(not v.any() for client in table.clients for v in client.memory["delta"].values())

    def test_the_personal_step_mixes_outputs_with_the_model_of_the_rounds_start(self, federation):
        algorithm = sfg.ApflGate(**{**FULL, "local_steps": 2}, alpha=0.4, personal_rate=0.2)
        table, start = table_of(algorithm, federation)
        client = table.clients[0]
        algorithm.update(client, start)
        task = GraphTask((8, 8))
        frozen, model = task.model(federation.schema), task.model(federation.schema)
        load(frozen, start)
        load(model, start)
        part = task.part(client.graph, training_items(client.graph))
        for _ in range(2):
            mixed = 0.4 * model(part.graph) + 0.6 * frozen(part.graph).detach()
            gradients = torch.autograd.grad(
                nn.functional.cross_entropy(mixed, part.answers), list(model.parameters())
            )
            with torch.no_grad():
                for p, g in zip(model.parameters(), gradients, strict=True):
                    p -= 0.2 * g
        assert alike(client.memory["personal"], parameters_of(model))

    def test_weight_decay_is_part_of_the_objective(self, federation):
        table, start = table_of(sfg.FedGate(**{**FULL, "local_steps": 1}, weight_decay=0.5), federation)
        plain, _ = table_of(sfg.FedGate(**{**FULL, "local_steps": 1}), federation)
        decayed, free = table.run(start, 1), plain.run(start, 1)
        assert alike(decayed, {k: v - 0.05 * 0.5 * start[k] for k, v in free.items()})


class TestAlpha:
    def test_adaptive_follows_its_own_slope(self, federation):
        algorithm = sfg.Apfl(
            **{**FULL, "local_steps": 1}, alpha="adaptive", alpha_rate=0.1, personal_rate=0.2
        )
        table, start = table_of(algorithm, federation)
        client = table.clients[0]
        client.memory["personal"] = {k: v + 0.1 for k, v in start.items()}
        before = {k: v.clone() for k, v in client.memory["personal"].items()}
        algorithm.update(client, start)
        task = GraphTask((8, 8))
        part = task.part(client.graph, training_items(client.graph))

        def loss(alpha: float) -> Tensor:
            said = [algorithm.predict(p, part.graph, federation.schema).double() for p in (before, start)]
            return nn.functional.cross_entropy(alpha * said[0] + (1 - alpha) * said[1], part.answers)

        slope = float(loss(0.5 + 1e-4) - loss(0.5 - 1e-4)) / 2e-4
        assert abs(slope) > 1e-3
        assert client.memory["alpha"] == pytest.approx(0.5 - 0.1 * slope, abs=1e-4)

    @pytest.mark.parametrize(("alpha", "ends"), [("adaptive", (0.0, 1.0)), (0.25, (0.25,))])
    def test_it_stays_between_0_and_1_and_fixed_where_it_is(self, federation, alpha, ends):
        table, start = table_of(sfg.Apfl(**FULL, alpha=alpha, alpha_rate=1e6), federation)
        table.run(start, 3)
        assert all(client.memory["alpha"] in ends for client in table.clients)

    def test_adams_moments_stay_with_the_client(self, federation):
        table, start = table_of(sfg.Apfl(**FULL, personal_optimizer="adam"), federation)
        table.run(start, 2)
        assert float(table.clients[0].memory["optimizer"]["0"]["step"]) == 6


class TestBatches:
    def test_every_walk_takes_each_item_at_most_once(self):
        items = torch.arange(10, 17)
        found = batches(items, 7, 3, torch.Generator().manual_seed(0))
        assert [len(b) for b in found] == [3] * 7
        for first, second in zip(found[::2], found[1::2], strict=False):
            assert len(torch.cat([first, second]).unique()) == 6
        assert set(torch.cat(found).tolist()) <= set(items.tolist())

    def test_more_than_there_are_is_all(self):
        assert [b.tolist() for b in batches(torch.arange(3), 2, 5, torch.Generator())] == [[0, 1, 2]] * 2
        assert [b.tolist() for b in batches(torch.arange(3), 1, "full", torch.Generator())] == [[0, 1, 2]]


class TestHostileServer:
    @pytest.fixture
    def asked(self, federation) -> tuple[sfg.ApflGate, Any, State, State]:
        algorithm = sfg.ApflGate(**FULL)
        table, start = table_of(algorithm, federation)
        client = table.clients[0]
        return algorithm, client, start, dict(algorithm.update(client, start).values)

    def test_a_mean_without_an_update(self, asked):
        algorithm, client, start, said = asked
        client.round = 2
        algorithm.mean_update(client, said)  # as a client that dropped out of the sum is given it
        assert "delta" not in client.memory
        with pytest.raises(HostileMessage, match="was not given its mean"):
            algorithm.update(client, start)

    def test_a_mean_twice(self, asked):
        algorithm, client, _start, said = asked
        algorithm.mean_update(client, said)
        assert "sent" not in client.memory
        term = {name: value.clone() for name, value in client.memory["delta"].items()}
        algorithm.mean_update(client, {name: value + 1 for name, value in said.items()})
        assert all(torch.equal(client.memory["delta"][name], value) for name, value in term.items())

    @pytest.mark.parametrize(
        "bend",
        [
            lambda s: dict(list(s.items())[1:]),
            lambda s: {**s, "more": torch.zeros(1)},
            lambda s: {**s, "head.bias": torch.zeros(7)},
            lambda s: {**s, "head.bias": s["head.bias"] * float("nan")},
            lambda s: {**s, "head.bias": 1.0},
        ],
    )
    def test_a_mean_that_does_not_fit(self, asked, bend):
        """The door refuses it, before the client looks."""
        algorithm, client, _start, said = asked
        with pytest.raises(HostileMessage):
            inputs.check(algorithm.expected("mean_update", client.schema), bend(said), "the mean update")
        algorithm.mean_update(client, said)  # and the honest one is still taken

    def test_weights_of_another_model(self, asked):
        algorithm, client, start, _said = asked
        with pytest.raises(HostileMessage):
            algorithm.update(client, {**start, "head.bias": torch.tensor([float("inf"), 0.0])})
        with pytest.raises(HostileMessage):
            algorithm.update(client, {})


def test_channels_in_use() -> None:
    used = [{channel.name for channel in kind().in_use} for kind in (sfg.ApflGate, sfg.Apfl, sfg.FedGate)]
    assert used[0] == {"update", "mean_update", "personal_model"}
    assert used[1:] == [{"update", "personal_model"}, {"update", "mean_update"}]


class TestAwkwardClients:
    def test_one_class_and_graphs_without_links(self):
        dataset = generate(graphs=40, seed=1)
        lonely = [
            Data(x=g.x[:1], edge_index=g.edge_index[:, :0], edge_attr=g.edge_attr[:0], y=torch.tensor([1]))
            for g in dataset.graphs[:8]
        ]
        packed = pack(lonely)
        for key in ("train_mask", "val_mask", "test_mask"):
            packed[key] = torch.ones(8, dtype=torch.bool)
        other = sfg.federate(dataset, clients=2, partition="dirichlet")
        algorithm = sfg.ApflGate(**{**FULL, "batch": 4})
        clients = [client_of("owner-0", packed, other.schema)]
        clients += [client_of(f"{name}b", graph, other.schema) for name, graph in other.owners.items()]
        table = Table(algorithm, clients)
        state = table.run(algorithm.init(other.schema, 0), 3)
        assert all(torch.isfinite(v).all() for v in state.values())
        assert algorithm._marked(clients[0], state)["test"][1] == 8

    def test_nothing_to_train_on(self):
        with pytest.raises(BadInput, match="nothing to train on"):
            training_items(Data(train_mask=torch.zeros(3, dtype=torch.bool)))

    @pytest.mark.filterwarnings("ignore::secure_fedgraph.evaluation.ScoreWarning")
    @pytest.mark.parametrize("largest", [{}, {"largest_gradient": 1e30}])
    def test_what_diverges_stays_finite_or_is_said_in_the_clients_own_log(self, federation, caplog, largest):
        algorithm = sfg.ApflGate(**{**FULL, "learning_rate": 1e18, **largest})
        with suppress(HostileMessage if largest else ()):  # the mean may itself be no model any more
            run = sfg.train(algorithm, federation, sfg.policies.plaintext(), rounds=4)
            assert largest or all(torch.isfinite(value).all() for value in run.state.values())
        said = [record.getMessage() for record in caplog.records]
        assert not largest or any("training diverged; lower the learning rate" in one for one in said)
