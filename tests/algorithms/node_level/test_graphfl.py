"""GraphFL: the meta-gradient by hand, all query batches in it, the server's Adam, sets that do not fit."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCNConv

import secure_fedgraph as sfg
from secure_fedgraph.client import seeded
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.models.parameters import load
from secure_fedgraph.protocol.transcript import everything

CLIENTS = sub_seed(0, "clients")
SETS = {"support": 4, "query": 7, "batch": 3, "inner_steps": 2, "inner_rate": 0.5}


class Net(torch.nn.Module):
    """A model without sampling, so that its gradient follows from the sets alone."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = GCNConv(in_channels, out_channels)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


@pytest.fixture(scope="module")
def federation():
    return sfg.federate("synthetic-citation", clients=3, partition="random", nodes=90, features=16)


def test_the_upload_is_the_gradient_of_the_whole_query_set_at_the_adapted_weights(federation):
    algorithm = sfg.GraphFL(Net, meta_rounds=1, **SETS)
    run = sfg.train(algorithm, federation, "plaintext", rounds=1, seed=0, keep=everything)
    start = algorithm.init(federation.schema, sub_seed(0, "initialisation"))
    total = {name: torch.zeros_like(value) for name, value in start.items()}
    for seen in run.transcript.view("server").uploads("meta_gradient"):
        (name,) = seen.clients
        graph, model = federation.owners[name], algorithm.model(federation.schema)
        load(model, start)
        nodes = graph.train_mask.nonzero().flatten()
        order = torch.randperm(len(nodes), generator=seeded(CLIENTS, name, 1, "support and query"))
        support, query = nodes[order[:4]], nodes[order[4:11]]

        def loss(of, model=model, graph=graph):
            return F.cross_entropy(model(graph.x, graph.edge_index)[of], graph.y[of])

        for _ in range(2):
            model.zero_grad()
            loss(support).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.5 * p.grad
        model.zero_grad()
        loss(query).backward()  # at once: the batches' gradients, 3 + 3 + 1 nodes, have to add up to it
        for key, p in model.named_parameters():
            assert torch.allclose(torch.tensor(seen.values[key]).float(), p.grad, atol=1e-6)
            total[key] += p.grad
    by_torch = {k: torch.nn.Parameter(v.clone()) for k, v in start.items()}
    for key, p in by_torch.items():
        p.grad = total[key] / 3
    torch.optim.Adam(by_torch.values(), lr=algorithm.settings.meta_rate, eps=1e-3).step()
    (after, *_) = run.transcript.view("server").asked("update")
    for key, p in by_torch.items():
        assert torch.allclose(torch.tensor(after.values[key]).float(), p.detach(), atol=1e-5)


def test_the_servers_moments_go_on_between_meta_rounds_and_end_with_them(federation):
    algorithm = sfg.GraphFL(hidden=(8, 8), meta_rounds=2, **SETS)
    params = algorithm.init(federation.schema, 0)
    gradient = {name: torch.ones_like(value) for name, value in params.items()}
    first, held = algorithm._meta_step(params, gradient, {})
    second, held = algorithm._meta_step(first, {k: -v for k, v in gradient.items()}, held)
    by_torch = torch.nn.Parameter(next(iter(params.values())).clone())
    adam = torch.optim.Adam([by_torch], lr=algorithm.settings.meta_rate, eps=1e-3)
    for sign in (1, -1):
        by_torch.grad = torch.full_like(by_torch, sign)
        adam.step()
    assert torch.allclose(next(iter(second.values())), by_torch.detach())
    run = sfg.train(algorithm, federation, "plaintext", rounds=1)
    assert run.state.keys() == params.keys()


def test_without_meta_rounds_it_is_fedavg(federation):
    mine = sfg.train(sfg.GraphFL(hidden=(8, 8), meta_rounds=0), federation, "plaintext", rounds=2)
    fedavg = sfg.train(sfg.FedAvg(hidden=(8, 8)), federation, "plaintext", rounds=2)
    assert all(torch.equal(mine.state[key], value) for key, value in fedavg.state.items())


def test_sets_larger_than_a_client_are_refused_before_anything_is_sent(federation, tmp_path):
    with pytest.raises(BadInput, match=r"training\.support = 100 and training\.query = 100 take 200"):
        sfg.train(sfg.GraphFL(), federation, "plaintext", rounds=1, out=tmp_path / "run")
    assert (
        not list((tmp_path / "run").glob("transcript/*")) or not (tmp_path / "run" / "result.json").exists()
    )
