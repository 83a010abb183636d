"""``device="cuda"``: training and scores lie there, all else on the CPU, and the results are the CPU's.

Without a GPU they run on a pretended one, which refuses what a forgotten move would do. Tests with the mark
``cuda`` compare with a real one.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import small
import torch
from pretended_gpu import GPU, OnGpu, PretendedGpu, pretended_gpu
from torch import nn
from torch_geometric.nn import GCNConv

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.client import Client
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.models import user_models
from secure_fedgraph.privacy.dp_sgd import PrivateSteps
from secure_fedgraph.running.options import RunOptions

DECLARED = ("d-fedgnn", "fedavg", "fedprox", "fedsage", "globsage", "local", "locsage")
STEP, LAYER = "aten::_fused_adam_", "aten::addmm"
SMALL: dict[str, Any] = {"hidden": (8, 8)}


class Net(nn.Module):
    """A user's own: a buffer that moves, and dropout from torch's generator."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.norm = GCNConv(features, 8), nn.BatchNorm1d(8)
        self.second = GCNConv(8, classes)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.first(x, edge_index)).relu()
        return self.second(nn.functional.dropout(hidden, 0.3, self.training), edge_index)


class OfUnions(Net):
    """One that asks which graph a node is of, and notes the generator that its dropout would draw from."""

    states: ClassVar[list[bytes]] = []

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.states.append(torch.cuda.get_rng_state(GPU).numpy().tobytes())
        return super().forward(x + batch.unsqueeze(1), edge_index)


class Fixed(Net):
    """One that holds a tensor that does not move with it."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__(features, classes)
        self.scale = torch.ones(features)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return super().forward(x * self.scale, edge_index)


class Forgetful(sfg.FedAvg):
    """Its penalty holds a tensor of the CPU."""

    name = "forgetful"

    def penalty(self, given: Any) -> Any:
        return lambda model: sum((p - given[name]).square().sum() for name, p in model.named_parameters())


@pytest.fixture(scope="module")
def nodes() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, seed=0, nodes=90, features=16)


@pytest.fixture(scope="module")
def words() -> sfg.Federation:
    """Features so sparse that the first layer multiplies by their non-zeros."""
    made = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=90, features=200)
    draw = torch.Generator().manual_seed(0)
    for graph in made.owners.values():
        graph.x = (torch.rand(graph.x.shape, generator=draw) < 0.02).float()
    return made


@pytest.fixture(scope="module")
def graphs() -> sfg.Federation:
    return sfg.federate("synthetic-molecules", clients=3, partition="random", seed=0, graphs=60)


def train(algorithm: sfg.Algorithm, federation: sfg.Federation, **options: Any) -> sfg.Run:
    return sfg.train(algorithm, federation, **{"policy": "plaintext", "rounds": 2, "seed": 1, **options})


def on_both(
    algorithm: sfg.Algorithm, federation: sfg.Federation, **options: Any
) -> tuple[sfg.Run, sfg.Run, PretendedGpu]:
    """The run on the CPU, and on the pretended GPU."""
    here = train(algorithm, federation, **options)
    with pretended_gpu() as gpu:
        there = train(algorithm, federation, device="cuda", **options)
    return here, there, gpu


def check_the_same(here: sfg.Run, there: sfg.Run) -> None:
    assert here.state.keys() == there.state.keys() and here.history == there.history
    assert all(type(value) is torch.Tensor for value in there.state.values())
    assert all(torch.equal(value, there.state[key]) for key, value in here.state.items())
    assert there.algorithm.device.type == "cpu"  # what reads a finished run needs no GPU


def test_a_move_that_is_forgotten_ends_the_run(nodes: sfg.Federation) -> None:
    """The pretended GPU refuses what a real one refuses; else the tests below would say nothing."""
    with pretended_gpu(), pytest.raises(RuntimeError, match="same device"):
        train(Forgetful(**SMALL), nodes, device="cuda")


def test_those_that_declare_it() -> None:
    assert tuple(sorted(name for name, kind in ALGORITHMS.items() if "cuda" in kind.devices)) == DECLARED


@pytest.mark.parametrize("name", DECLARED)
def test_training_and_scores_lie_there_and_the_results_are_the_same(name: str) -> None:
    here, there, gpu = on_both(small.algorithm(name), small.federation(name))
    check_the_same(here, there)
    assert gpu.ran[STEP] and gpu.ran[LAYER]
    assert not gpu.beside[STEP] and not gpu.beside[LAYER]


@pytest.mark.parametrize(
    "settings",
    [
        {"network": "ego", "fanout": (2, 2), "dropout": 0.3},
        {"fanout": (0, 0)},
        {"optimizer": "sgd"},
        {"weighted": True},
        {"batch": "full", "weight_decay": 0.01},
    ],
    ids=str,
)
def test_networks_and_settings_of_nodes(settings: dict[str, Any], nodes: sfg.Federation) -> None:
    here, there, gpu = on_both(sfg.FedAvg(**{**SMALL, **settings}), nodes)
    check_the_same(here, there)
    assert gpu.ran["aten::mm"] and not gpu.beside["aten::mm"]


def test_rows_of_few_non_zeros(words: sfg.Federation) -> None:
    here, there, gpu = on_both(sfg.FedSage(**SMALL), words)
    check_the_same(here, there)
    product = "aten::_embedding_bag_forward_only"  # its gradient is a product of its own
    assert gpu.ran[product] and not gpu.beside[product]


@pytest.mark.parametrize("network", ["gin", "gcn", "gat", "sage"])
def test_networks_of_whole_graphs(network: str, graphs: sfg.Federation) -> None:
    dropout = 0.0 if network == "sage" else 0.2
    here, there, gpu = on_both(sfg.FedAvg(network=network, dropout=dropout, **SMALL), graphs)
    check_the_same(here, there)
    assert not gpu.beside[LAYER]


@pytest.mark.parametrize(
    "options",
    [
        {"policy": "masked"},
        {"policy": "masked", "evaluation": "in_band"},
        {"policy": "masked", "evaluate_sample": 10},
        {"policy": "strictest", "evaluation": "at_home"},
    ],
    ids=str,
)
def test_what_protects_and_who_scores_change_nothing(options: dict[str, Any], nodes: sfg.Federation) -> None:
    check_the_same(*on_both(sfg.FedSage(**SMALL), nodes, **options)[:2])


def test_noise_on_what_leaves_is_the_cpus(nodes: sfg.Federation) -> None:
    with pretended_gpu() as gpu:
        run = train(
            sfg.FedSage(**SMALL),
            nodes,
            device="cuda",
            policy=sfg.policies.distributed_dp(norm=1.0, multiplier=1.0),
        )
    assert gpu.ran[STEP] and all(type(value) is torch.Tensor for value in run.state.values())


def test_an_own_model_moves_with_its_buffers(nodes: sfg.Federation) -> None:
    here, there, gpu = on_both(sfg.FedAvg(model=Net), nodes)
    check_the_same(here, there)  # the pretended generator is the CPU's; a real one draws other dropout
    assert gpu.ran["aten::native_batch_norm"] or gpu.ran["aten::_native_batch_norm_legit"]


def test_an_own_model_is_given_all_there_and_its_dropout_is_seeded_for_each_client_and_round(
    nodes: sfg.Federation,
) -> None:
    with pretended_gpu():
        train(sfg.FedAvg(model=OfUnions), nodes, device="cuda")
        nowhere = torch.cuda.get_rng_state(GPU).numpy().tobytes()
    assert len(set(OfUnions.states)) == 3 * 2 and nowhere not in OfUnions.states


def test_an_own_model_that_does_not_move_is_refused_before_round_1(
    nodes: sfg.Federation, tmp_path: Path
) -> None:
    train(sfg.FedAvg(model=Fixed), nodes, rounds=1)
    with pretended_gpu(), pytest.raises(BadInput, match=r"model Fixed fails .*same device"):
        train(sfg.FedAvg(model=Fixed), nodes, device="cuda", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_generator_of_the_gpu_is_seeded_and_restored() -> None:
    with pretended_gpu():
        before = torch.cuda.get_rng_state(GPU)
        with user_models.seeded(3, GPU):
            assert torch.equal(torch.cuda.get_rng_state(GPU), torch.Generator().manual_seed(3).get_state())
        assert torch.equal(torch.cuda.get_rng_state(GPU), before)


def test_memories_and_checkpoints_are_the_cpus(nodes: sfg.Federation, tmp_path: Path) -> None:
    """A run that stopped on a GPU goes on without one."""

    class Stopped(Exception):
        pass

    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise Stopped

    whole = train(sfg.FedSage(**SMALL), nodes, rounds=3, policy="masked")
    out = tmp_path / "run"
    with pretended_gpu() as gpu, pytest.MonkeyPatch.context() as patch, contextlib.suppress(Stopped):
        memories: list[Any] = []
        save = Client.save

        def kept(self: Client, *labels: str) -> None:
            memories.append(dict(self.memory))
            save(self, *labels)

        patch.setattr(Client, "save", kept)
        train(sfg.FedSage(**SMALL), nodes, rounds=3, policy="masked", device="cuda", out=out, on_round=stop)
    assert gpu.ran[STEP] and any("optimizer" in memory for memory in memories)
    slots = [s for memory in memories for one in memory.get("optimizer", {}).values() for s in one.values()]
    assert slots and not any(isinstance(slot, OnGpu) for slot in slots)
    check_the_same(whole, train(sfg.FedSage(**SMALL), nodes, rounds=3, policy="masked", out=out, resume=True))


class TestRefused:
    """Before anything is sent, by name."""

    @pytest.mark.parametrize("name", sorted(ALGORITHMS.keys() - set(DECLARED)))
    def test_an_algorithm_that_does_not_declare_it(self, name: str, tmp_path: Path) -> None:
        with (
            pretended_gpu(),
            pytest.raises(BadInput, match=rf"device = 'cuda': {name.replace('+', '.')} trains"),
        ):
            sfg.train(small.algorithm(name), small.federation(name), device="cuda", out=tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_noisy_steps(self, nodes: sfg.Federation, tmp_path: Path) -> None:
        policy = replace(sfg.policies.masked(), steps=PrivateSteps(noise=4.0))
        with (
            pretended_gpu(),
            pytest.raises(BadInput, match=r"device = 'cuda': noisy training steps .* the CPU"),
        ):
            train(sfg.FedSage(**SMALL), nodes, policy=policy, device="cuda", out=tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_a_gpu_that_is_not_there(self, nodes: sfg.Federation, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        with pytest.raises(BadInput, match="device = 'cuda': torch"):
            train(sfg.FedSage(), nodes, device="cuda")
        with pytest.raises(BadInput, match="device = 'gpu': use one of the texts cpu, cuda"):
            train(sfg.FedSage(), nodes, device="gpu")

    def test_a_gpu_that_is_not_there_before_any_run_of_several(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        experiment = sfg.Experiment(data="synthetic-citation", dataset={"nodes": 60}, rounds=1, device="cuda")
        with pytest.raises(BadInput, match="device = 'cuda': torch"):
            sfg.compare(experiment, tmp_path / "out", policies=["masked"])
        counts = sfg.attacks.ATTACKS["a4-label-counts"]
        with pytest.raises(BadInput, match="device = 'cuda': torch"):
            sfg.audit(experiment, policies=["masked"], attacks=[counts], out=tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_clients_on_other_machines(self) -> None:
        with pretended_gpu(), pytest.raises(BadInput, match="device = 'cuda': clients on other machines"):
            RunOptions(device="cuda", connect=lambda *_: None)  # type: ignore[arg-type,return-value]


@pytest.mark.cuda
@pytest.mark.parametrize("name", DECLARED)
def test_a_real_gpu_agrees_up_to_rounding(name: str) -> None:
    here = train(small.algorithm(name), small.federation(name))
    there = train(small.algorithm(name), small.federation(name), device="cuda")
    assert here.state.keys() == there.state.keys()
    for key, value in here.state.items():
        torch.testing.assert_close(there.state[key], value, rtol=1e-3, atol=1e-4)


@pytest.mark.cuda
@pytest.mark.parametrize("network", ["gin", "gcn", "gat", "sage"])
def test_a_real_gpu_agrees_on_whole_graphs(network: str, graphs: sfg.Federation) -> None:
    dropout = 0.0 if network == "sage" else 0.2
    algorithm = sfg.FedAvg(network=network, dropout=dropout, **SMALL)
    here, there = train(algorithm, graphs), train(algorithm, graphs, device="cuda")
    for key, value in here.state.items():
        torch.testing.assert_close(there.state[key], value, rtol=1e-3, atol=1e-4)
