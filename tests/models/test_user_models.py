"""Models that users bring: their initialisation, their buffers, how they are made, called and refused."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GATConv, GCNConv, global_add_pool

import secure_fedgraph as sfg
from secure_fedgraph.backends.failures import may_leave
from secure_fedgraph.core.errors import BadInput, HostileMessage, WrongType
from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models import GraphSage, user_models
from secure_fedgraph.models.parameters import COUNT_SCALE, difference, glorot, load, parameters_of, total
from secure_fedgraph.privacy.dp_sgd import PrivateSteps

SCHEMA = Schema(16, 3)


class Normed(nn.Module):
    """A normalisation of every kind, and a buffer of every kind."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.norm = GCNConv(features, 8), nn.BatchNorm1d(8)
        self.second, self.last = nn.LayerNorm(8), GCNConv(8, classes)
        self.register_buffer("scale", torch.tensor(2.0))
        self.register_buffer("local", torch.ones(3), persistent=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.second(self.norm(self.first(x, edge_index))).relu(), edge_index)


class Weighed(nn.Module):
    """Notes what its forward was given."""

    seen: list[Any] = []  # noqa: RUF012

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.out = nn.Linear(features, classes)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, edge_attr: Any = None) -> Tensor:
        Weighed.seen.append((edge_index, edge_weight, edge_attr))
        return self.out(x)


def graph(nodes: int = 90, **fields: Any) -> Data:
    data = citation(nodes, 16, 3, 0)
    for key, value in fields.items():
        data[key] = value
    return data


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate(graph(), clients=3, partition="random", seed=0)


def trained(
    model: Any, federation: sfg.Federation, policy: Any = "masked", rounds: int = 2, **more: Any
) -> Any:
    algorithm = sfg.FedAvg(model=model, batch="full", learning_rate=0.05, **more)
    return sfg.train(algorithm, federation, policy, rounds=rounds, seed=0)


def same(first: Any, second: Any) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def test_an_instance_starts_with_its_own_weights_and_is_left_alone(federation: sfg.Federation) -> None:
    model = Normed(16, 3)
    with torch.no_grad():
        model.norm.weight.fill_(3.0)
    before = parameters_of(model)
    algorithm = sfg.FedAvg(model=model)
    assert same(algorithm.init(federation.schema, 5), before)
    with (
        torch.no_grad()
    ):  # what becomes of it afterwards is nothing to the algorithm, nor the other way round
        model.norm.weight.fill_(4.0)
    assert same(algorithm.init(federation.schema, 5), before)
    before = parameters_of(model)
    trained(model, federation)
    assert same(parameters_of(model), before)


def test_norms_keep_their_weights_also_under_glorot() -> None:
    model = Normed(16, 3)
    glorot(model, 0)
    assert model.norm.weight.tolist() == [1.0] * 8 and model.second.weight.tolist() == [1.0] * 8
    assert not bool(model.first.bias.any())


@pytest.mark.parametrize("made", [Normed, lambda schema: Normed(schema.features, schema.classes)])
def test_a_class_or_factory_is_made_from_the_seed_alone(made: Any) -> None:
    algorithm, before = sfg.FedAvg(model=made), torch.random.get_rng_state()
    one, again, other = (algorithm.init(SCHEMA, seed) for seed in (1, 1, 2))
    assert same(one, again) and not torch.equal(one["first.lin.weight"], other["first.lin.weight"])
    assert one["norm.weight"].tolist() == [1.0] * 8
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("kind", [GAT, GCN])
def test_models_of_pyg_are_taken(kind: Any, federation: sfg.Federation) -> None:
    run = trained(kind(16, 8, 2, 3, dropout=0.3), federation)
    assert isinstance(run.model, kind)
    assert run.model(graph().x, graph().edge_index).shape == (90, 3)


def test_lazy_layers_take_their_widths_from_the_data(federation: sfg.Federation) -> None:
    run = trained(lambda schema: GATConv(-1, schema.classes), federation)
    assert run.state["lin.weight"].shape == (3, 16)


def test_dropout_of_an_own_model_follows_the_seed(federation: sfg.Federation) -> None:
    states = []
    for _ in range(2):
        torch.rand(3)  # whatever was drawn before does not matter
        states.append(trained(lambda s: GAT(s.features, 8, 2, s.classes, dropout=0.5), federation).state)
    assert same(*states)


def test_our_networks_from_a_factory_still_start_by_their_rule() -> None:
    state = sfg.FedAvg(model=lambda s: GraphSage(s.features, s.classes)).init(SCHEMA, 0)
    assert float(state["head.weight"].abs().sum()) > 0
    kept = GraphSage(16, 3)
    glorot(kept, 3)
    assert same(sfg.FedAvg(model=kept).init(SCHEMA, 0), parameters_of(kept))


# ---- buffers


def test_buffers_are_averaged_with_the_parameters(federation: sfg.Federation) -> None:
    run = trained(Normed, federation, "plaintext", rounds=3)
    assert {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "scale"} <= run.state.keys()
    assert "local" not in run.state
    assert float(run.state["norm.running_mean"].abs().sum()) > 0
    assert run.state["scale"].shape == () and run.state["scale"].dtype == torch.float32
    assert run.state["norm.num_batches_tracked"].dtype == torch.int64
    assert int(run.state["norm.num_batches_tracked"]) == 3
    # one round: the next would start from values a rounding apart, which Adam makes larger
    plain, hidden = (
        trained(Normed, federation, policy, rounds=1).state for policy in ("plaintext", "masked")
    )
    for name, value in hidden.items():
        torch.testing.assert_close(value, plain[name], rtol=0, atol=1e-5)


def test_buffers_are_clipped_and_noised_with_the_upload(federation: sfg.Federation) -> None:
    algorithm = sfg.FedAvg(model=Normed, batch="full", learning_rate=0.05)
    run = sfg.train(
        algorithm,
        federation,
        sfg.policies.local_dp(norm=0.01, multiplier=1e-6),
        rounds=1,
        keep=lambda channel, number: True,
    )
    for upload in run.transcript.view("server").uploads("update"):
        assert "norm.running_var" in upload.values
        assert sum(float((v.astype(float) ** 2).sum()) for v in upload.values.values()) ** 0.5 <= 0.0101
    noised = trained(Normed, federation, sfg.policies.local_dp(norm=1.0, multiplier=20.0), rounds=2)
    assert float(noised.state["norm.running_var"].min()) >= 0
    assert noised.accuracy["global"] >= 0


def test_whole_numbers_become_the_rounded_mean() -> None:
    before = {"count": torch.tensor(5), "on": torch.tensor(False)}
    moved = [difference({"count": torch.tensor(n), "on": torch.tensor(n > 7)}, before) for n in (7, 8, 9)]
    assert float(moved[0]["count"]) == 2 / COUNT_SCALE
    after = total(before, {k: torch.stack([m[k] for m in moved]).mean(0).float() for k in before})
    assert (int(after["count"]), after["count"].dtype, after["on"].dtype) == (8, torch.int64, torch.bool)
    assert bool(after["on"])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("norm.num_batches_tracked", 1.5),
        ("norm.num_batches_tracked", 2**70),
        ("scale", float("nan")),
        ("scale", torch.ones(2)),
        ("norm.running_mean", torch.full((8,), float("inf"))),
    ],
)
def test_buffers_that_do_not_fit_are_hostile(key: str, value: Any) -> None:
    model = Normed(16, 3)
    before = parameters_of(model)
    with pytest.raises(HostileMessage, match=key):
        load(model, {**before, key: value})
    assert same(parameters_of(model), before)


def test_numbers_without_dimensions_come_back_as_the_tensors_they_were() -> None:
    model = Normed(16, 3)
    load(model, {**parameters_of(model), "norm.num_batches_tracked": 7, "scale": 0.5})
    assert (int(model.norm.num_batches_tracked), float(model.scale)) == (7, 0.5)
    assert model.norm.num_batches_tracked.dtype == torch.int64


def noisy(model: Any, federation: sfg.Federation, **how: Any) -> Any:
    steps = replace(sfg.policies.masked(), steps=PrivateSteps(noise=1.0, unit="node", **how))
    return sfg.train(sfg.FedAvg(model=model, fanout=(2, 2)), federation, steps, rounds=1)


class Trees(GraphSage):
    def __init__(self) -> None:
        super().__init__(16, 3)


class NormedTrees(Trees):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)


def test_noisy_steps_refuse_a_normalisation_over_records_before_round_1(federation: sfg.Federation) -> None:
    with pytest.raises(BadInput, match="'norm' is of type BatchNorm1d"):
        noisy(NormedTrees, federation)


def test_noisy_steps_leave_frozen_parameters_as_they_are(federation: sfg.Federation) -> None:
    model = GraphSage(16, 3)
    glorot(model, 0)
    model.head.weight.requires_grad_(False)
    before = parameters_of(model)
    run = noisy(model, federation, rate=0.5, steps=2)
    assert torch.equal(run.state["head.weight"], before["head.weight"])
    assert not torch.equal(run.state["head.bias"], before["head.bias"])


def test_no_buffer_moves_under_noisy_steps(federation: sfg.Federation) -> None:
    class Counting(Trees):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rows", torch.zeros(1))

        def forward_positions(self, values: Tensor, filled: Tensor) -> Tensor:
            self.rows = self.rows + 1.0
            return super().forward_positions(values, filled)

    assert noisy(Counting, federation, rate=0.5, steps=2).state["rows"].tolist() == [0.0]


# ---- what a forward takes


def test_edge_fields_reach_a_model_that_names_them_and_are_cut_with_the_links() -> None:
    data = graph()
    data.edge_weight = data.edge_index[0] * 1000.0 + data.edge_index[1]
    data.edge_attr = data.edge_weight.unsqueeze(1).repeat(1, 2)
    for partition in ("random", "louvain"):
        made = sfg.federate(data, 3, partition)
        Weighed.seen.clear()
        trained(Weighed, made, "plaintext", rounds=1)
        assert len(Weighed.seen) >= 4
        for owner in made.owners.values():
            ends = owner.node_id[owner.edge_index]
            assert torch.equal(owner.edge_weight, ends[0] * 1000.0 + ends[1])
        known = {tuple(o.edge_weight.tolist()) for o in made.owners.values()} | {
            tuple(data.edge_weight.tolist())
        }
        given_to = [tuple(w.tolist()) for _, w, _ in Weighed.seen if len(w) != 8]
        assert given_to and set(given_to) <= known
        assert all(a is not None and torch.equal(a[:, 0], w) for _, w, a in Weighed.seen if len(w) != 8)


def test_a_vertical_split_keeps_the_weights_of_its_links() -> None:
    data = graph()
    low, high = data.edge_index.min(0).values, data.edge_index.max(0).values
    data.edge_weight = low * 1000.0 + high
    for owner in sfg.federate(data, 2, "vertical").owners.values():
        ends = owner.edge_index
        assert torch.equal(owner.edge_weight, ends.min(0).values * 1000.0 + ends.max(0).values)


def test_edge_fields_that_a_model_does_not_read_are_named() -> None:
    made = sfg.federate(graph(edge_weight=torch.ones(graph().num_edges)), 2, "random")
    with pytest.warns(sfg.DataWarning, match="edge_weight"):
        trained(Normed, made, rounds=1)


def test_a_field_that_a_model_needs_and_the_data_lack() -> None:
    with pytest.raises(BadInput, match="edge_weight"):
        sfg.FedAvg(model=Weighed).check(SCHEMA)


def test_links_drawn_anew_have_no_weights() -> None:
    from secure_fedgraph.privacy.input_dp.registry import RANDOMIZERS

    made = sfg.federate(graph(edge_weight=torch.ones(graph().num_edges)), 2, "random")
    policy = replace(sfg.policies.masked(), randomizers=(RANDOMIZERS["links"](4.0),))
    with pytest.raises(BadInput, match="edge_weight"):
        sfg.train(sfg.FedAvg(), made, policy, rounds=1)


def test_cached_convolutions_forget_another_graph(federation: sfg.Federation) -> None:
    layer = GCNConv(16, 3, cached=True)
    layer(graph().x, graph().edge_index)
    assert layer._cached_edge_index is not None
    assert user_models.build(user_models.own_copy(layer), SCHEMA, 0)._cached_edge_index is None


# ---- models that work in place


def standardising(in_place: bool) -> type[nn.Module]:
    class Net(nn.Module):
        def __init__(self, features: int, classes: int) -> None:
            super().__init__()
            self.out = nn.Linear(features + 1, classes)

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
            if in_place:
                x.sub_(0.2).mul_(3.0)
                edge_weight.mul_(2.0)
                edge_index.copy_(edge_index.flip(0))
            else:
                x, edge_weight, edge_index = (x - 0.2) * 3.0, edge_weight * 2.0, edge_index.flip(0)
            around = torch.zeros(len(x)).index_add(0, edge_index[1], edge_weight)
            return self.out(torch.cat([x, around.unsqueeze(1)], 1))

    return Net


def test_a_model_that_works_in_place_changes_no_data_and_equals_its_twin() -> None:
    data = graph(edge_weight=torch.ones(graph().num_edges))
    before = data.clone()
    made = sfg.federate(data, clients=1, partition="random", seed=0)
    runs = [trained(standardising(kind), made, "plaintext", rounds=3) for kind in (False, True, True)]
    assert all(same(run.state, runs[0].state) and run.accuracy == runs[0].accuracy for run in runs)
    for held in (data, made.owners["owner-0"]):
        assert all(torch.equal(held[key], before[key]) for key in ("x", "edge_index", "edge_weight"))


class Zeroing(nn.Module):
    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.out = nn.Linear(features, classes)

    def forward(self, packed: Data, generator: torch.Generator | None = None) -> Tensor:
        packed.x.zero_()
        return self.out(global_add_pool(packed.x, packed.graph))


def test_a_union_of_graphs_is_not_changed_either() -> None:
    made = sfg.federate("synthetic-molecules", 2, "random", graphs=40)
    union = made.owners["owner-0"]
    before = union.x.clone()
    user_models.scores_of(user_models.build(Zeroing, made.schema, 0), union)
    assert torch.equal(union.x, before)


def test_a_model_of_ones_own_is_trained_on_trees(federation: sfg.Federation) -> None:
    trained(OwnTrees, federation, rounds=1, fanout=(3,))


def test_trees_are_read_from_features_that_a_model_may_write_to(federation: sfg.Federation) -> None:
    class Trees(GraphSage):
        def forward_tree(self, x: Tensor, *tree: Any, **more: Any) -> Tensor:
            return super().forward_tree(x.mul_(0.5), *tree, **more)

    before = {name: owner.x.clone() for name, owner in federation.owners.items()}
    trained(lambda s: Trees(s.features, s.classes), federation, rounds=1)
    assert all(torch.equal(owner.x, before[name]) for name, owner in federation.owners.items())


class OwnTrees(nn.Module):
    """A model of somebody's own that is trained on trees of one level."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.out = nn.Linear(2 * features, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        around = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        return self.out(torch.cat([x, around], 1))

    def rows(self, x: Tensor, level: Tensor) -> Tensor:
        return x[level.clamp(min=0)] * (level >= 0).unsqueeze(-1)

    def forward_tree(self, x: Tensor, tree: Any) -> Tensor:
        return self.out(torch.cat([x[tree[0]], self.rows(x, tree[1]).sum(1)], 1))


class Shaped(nn.Module):
    """A layer whose scores something is done to."""

    def __init__(self, schema: Schema, shape: Any) -> None:
        super().__init__()
        self.out, self.shape = nn.Linear(schema.features, schema.classes), shape

    def forward(self, x: Tensor, edge_index: Tensor, batch: Any = None) -> Tensor:
        scores = self.out(x)
        return self.shape(self, scores if batch is None else global_add_pool(scores, batch))


class Checkpointed(nn.Module):
    """Its middle is computed again on the way back."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(16, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        scores: Tensor = self.last(checkpoint(self.middle, self.first(x), use_reentrant=True))
        return scores


@pytest.mark.filterwarnings("ignore:None of the inputs")  # of predictions
def test_a_checkpoint_that_autograd_grad_refuses_trains(federation: sfg.Federation) -> None:
    model = Checkpointed()
    before = parameters_of(model)
    after = trained(model, federation, rounds=1).state
    assert not any(torch.equal(after[name], value) for name, value in before.items())


@pytest.mark.parametrize(
    ("value", "words"),
    [(torch.ones(16, dtype=torch.bool), "persistent=False"), (torch.full((16,), -math.inf), "not finite")],
)
def test_buffers_that_no_message_carries_stay_at_home_or_are_refused(
    value: Tensor, words: str, federation: sfg.Federation
) -> None:
    model = Normed(16, 3)
    model.register_buffer("keep", value)
    with pytest.raises(BadInput, match=f"'keep' .*{words}"):
        trained(model, federation)
    model.register_buffer("keep", value, persistent=False)
    assert "keep" not in trained(model, federation, rounds=1).state


@pytest.mark.parametrize("hidden", [(8,), (8, 8, 8)])
def test_a_graphsage_of_another_depth_than_fanout_names_fanout(
    hidden: tuple[int, ...], federation: sfg.Federation
) -> None:
    model = GraphSage(16, 3, hidden)
    glorot(model, 0)
    for policy in ("masked", replace(sfg.policies.masked(), steps=PrivateSteps(noise=1.0, unit="node"))):
        with pytest.raises(BadInput, match=r"training\.fanout = \[5, 5\].*depth " + str(len(hidden))):
            sfg.train(sfg.FedAvg(model=model), federation, policy, rounds=1)
    fanout = (2,) * len(hidden)
    trained(
        model, federation, rounds=1, fanout=fanout
    )  # widths of the built-in network are no business of it
    with pytest.raises(BadInput, match=f"'hidden'.*fanout has numbers, which is {len(fanout)}, or fanout 2"):
        sfg.FedAvg(model=model, hidden=(4, 4), fanout=fanout)


def test_a_graphsage_that_is_given_is_not_trained_on_nodes_alone() -> None:
    model = GraphSage(16, 3, (8,))
    with pytest.raises(BadInput, match=r"training\.fanout = \[0\]") as refusal:
        sfg.FedAvg(model=model, fanout=(0,))
    assert "network=sage" not in str(refusal.value)
    assert sfg.FedAvg(fanout=(0,), hidden=(64,)).settings.trains_alone  # what the sentence says


# ---- refusals


class Needs(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()


def with_a_lock() -> nn.Module:
    model = Normed(16, 3)
    model.lock = threading.Lock()
    return model


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (with_a_lock(), "Normed cannot be copied .*: give a factory"),
        (3, r"model is an int \(3\)"),
        ("gcn", r"model is a str \('gcn'\)"),
        (dict, "model is the class dict"),
        (Needs, "Needs needs depth"),
        (lambda schema: None, "makes a NoneType"),
        (lambda schema: 1 / 0, "ZeroDivisionError"),
        (lambda: Normed(12, 3), "takes 12 features a node, and the data have 16"),
        (lambda: Normed(16, 5), r"gives \[4, 5\] for 4 nodes, and the data have 3"),
        (lambda: nn.Linear(16, 3), "forward takes x and edge_index"),
        (lambda: Normed(16, 3).requires_grad_(False), "no parameter that can be trained"),
        (lambda: Normed(16, 3).half(), r"convert it with model.float\(\)"),
    ],
)
def test_a_model_that_does_not_fit_is_one_line(model: Any, words: str, federation: sfg.Federation) -> None:
    with pytest.raises(BadInput, match=words) as refusal:
        sfg.train(sfg.FedAvg(model=model), federation, rounds=1)
    assert "\n" not in str(refusal.value)


def test_the_head_of_an_own_model_is_its_own() -> None:
    with pytest.raises(BadInput, match="head = 'zeros'"):
        sfg.FedAvg(model=Normed, head="zeros")


def on_real_graphs(other: Any) -> Any:
    """Gives what it should on the graph of four nodes that it is tried on, else something other."""

    class OtherOnRealGraphs(Shaped):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Any = None) -> Any:
            self.shape = (
                (lambda self, scores: scores) if len(x) == 4 else (lambda self, scores: other(scores))
            )
            return super().forward(x, edge_index, batch)

    return lambda schema: OtherOnRealGraphs(schema, None)


@pytest.mark.filterwarnings("ignore::secure_fedgraph.evaluation.ScoreWarning")
@pytest.mark.parametrize("evaluation", ["referee", "in_band"])
def test_scores_that_are_nan_are_wrong_answers(federation: sfg.Federation, evaluation: str) -> None:
    algorithm = sfg.FedAvg(model=on_real_graphs(lambda scores: scores * float("nan")))
    run = sfg.train(algorithm, federation, "plaintext", rounds=1, evaluation=evaluation)
    assert run.accuracy["local"] == 0.0


@pytest.mark.parametrize(
    ("kind", "other", "words"),
    [
        ("node", lambda scores: scores[:3], r"gives \[3, 3\] for \d+ nodes"),
        ("node", lambda scores: scores[:, :2], r"gives \[\d+, 2\] for \d+ nodes"),
        ("node", lambda scores: None, r"gives NoneType for \d+ nodes"),
        ("graph", lambda scores: scores[:1], r"gives \[1, \d\] for \d+ graphs"),
    ],
)
def test_scores_of_another_shape_on_real_graphs_name_the_model(
    kind: str, other: Any, words: str, federation: sfg.Federation
) -> None:
    if kind == "graph":
        federation = sfg.federate("synthetic-molecules", clients=2, partition="random", seed=0)
    with pytest.raises(WrongType, match=f"^model OtherOnRealGraphs {words}") as raised:
        sfg.train(sfg.FedAvg(model=on_real_graphs(other)), federation, "plaintext", rounds=1)
    assert not may_leave(raised.value)  # it says how many nodes an owner has
