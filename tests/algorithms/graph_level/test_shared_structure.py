"""Shared diversity as an incentive: what noise, junk, copies and a split into two agents earn."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.fairgraphfl import fairness, shared_structure
from secure_fedgraph.algorithms.fairgraphfl.settings import FairGraphFLSettings
from secure_fedgraph.errors import HostileMessage, Refused
from secure_fedgraph.graph.kinds import GraphSetDataset
from secure_fedgraph.graph.partition.agents import rewired
from secure_fedgraph.graph.sample.packing import pack

SHARED = FairGraphFLSettings(diversity="shared")


def clustered(seed: int) -> Data:
    """A strip of triangles, as proteins have them, with three labels."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(12, 20))
    at = np.arange(nodes)
    once = np.concatenate([np.stack([at[:-1], at[1:]]), np.stack([at[:-2], at[2:]])], axis=1)
    links = torch.from_numpy(np.concatenate([once, once[::-1]], axis=1))
    x = torch.eye(3)[torch.from_numpy(rng.integers(0, 3, nodes))]
    return Data(x=x, edge_index=links, y=torch.tensor([seed % 2]), num_nodes=nodes)


def noise(graph: Data, seed: int) -> Data:
    """The same graph with all its links elsewhere."""
    return rewired(graph, 1.0, np.random.default_rng(seed))


def agent(graphs: list[Data], name: str = "a") -> SimpleNamespace:
    packed = pack([Data(x=g.x, edge_index=g.edge_index, y=g.y) for g in graphs])
    packed.train_mask = torch.ones(len(graphs), dtype=torch.bool)
    return SimpleNamespace(name=name, graph=packed, memory={})


def earned(*agents: list[Data]) -> list[float]:
    """What each agent's graphs are worth, in graphs, once all have shown their fingerprints."""
    clients = [agent(graphs, str(i)) for i, graphs in enumerate(agents)]
    prints = {one.name: shared_structure.own_fingerprints(one) for one in clients}
    for one in clients:
        shared_structure.count_copies(one, {k: v for k, v in prints.items() if k != one.name})
    sums = [shared_structure.structure(one, SHARED).values["triangles"].sum() for one in clients]
    return [float(one) / shared_structure.SHARE for one in sums]


CLEAN = [clustered(seed) for seed in range(40)]
OTHERS = [clustered(seed) for seed in range(100, 140)]


def test_noise_earns_nothing():
    (clean,), (spoilt,) = earned(CLEAN), earned([noise(g, i) for i, g in enumerate(CLEAN)])
    assert clean > 10
    assert -0.5 * clean < spoilt < 0.05 * clean  # chance is a mean over curved values, so it is below 0


def test_the_more_is_rewired_the_less_is_earned():
    shares = (0.0, 0.1, 0.3, 0.5)
    spoilt = [[rewired(g, share, np.random.default_rng(i)) for i, g in enumerate(CLEAN)] for share in shares]
    values = [earned(graphs)[0] for graphs in spoilt]
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.5 * values[0]


def test_padding_with_junk_does_not_pay():
    junk = [noise(clustered(seed), seed) for seed in range(500, 540)]
    alone, others = earned(CLEAN, OTHERS)
    padded, _ = earned([*CLEAN, *junk], OTHERS)
    assert padded / (padded + others) < 1.05 * alone / (alone + others)


def test_further_copies_of_own_graphs_earn_nothing():
    assert earned(CLEAN + CLEAN)[0] == pytest.approx(earned(CLEAN)[0], rel=1e-5)


def test_who_copies_a_neighbour_shares_with_it_what_the_copies_earn():
    """The two together have what the neighbour had, and everybody else what they had."""
    (victim, third), (robbed, thief, beside) = earned(CLEAN, OTHERS), earned(CLEAN, CLEAN, OTHERS)
    assert robbed + thief == pytest.approx(victim, rel=1e-5)
    assert beside == pytest.approx(third, rel=1e-5)
    whole, _ = earned(CLEAN + OTHERS, OTHERS)
    assert whole == pytest.approx(victim + third / 2, rel=1e-5)


def test_two_agents_with_half_of_the_graphs_each_earn_what_one_does():
    whole, other = earned(CLEAN, OTHERS)
    first, second, beside = earned(CLEAN[:20], CLEAN[20:], OTHERS)
    assert first + second == pytest.approx(whole, rel=1e-5)
    one = fairness.shares(torch.tensor([whole, other]))
    two = fairness.shares(torch.tensor([first, second, beside]))
    values = fairness.next_shared_values(one, torch.tensor([0.5, 0.5]), one)
    split = fairness.next_shared_values(two, torch.tensor([0.5, 0.5, 0.5]), two)
    assert float(split[:2].sum()) == pytest.approx(float(values[0]))


def test_alignment_alone_earns_nothing():
    values = fairness.next_shared_values(
        torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.1]), torch.tensor([0.0, 1.0]), 1.0
    )
    assert values.tolist() == [0, 1]


def test_fingerprints_know_a_graph_by_another_order_of_its_nodes_and_no_other_graph():
    graph = CLEAN[0]
    order = torch.randperm(len(graph.x), generator=torch.Generator().manual_seed(0))
    place = torch.argsort(order)
    other = Data(x=graph.x[order], edge_index=place[graph.edge_index], y=graph.y)
    relabelled = Data(x=graph.x.roll(1, 1), edge_index=graph.edge_index, y=graph.y)
    prints = shared_structure.own_fingerprints(agent([graph]))["prints"]
    assert torch.equal(prints, shared_structure.own_fingerprints(agent([other]))["prints"])
    assert not torch.equal(prints, shared_structure.own_fingerprints(agent([relabelled]))["prints"])
    assert not torch.equal(prints, shared_structure.own_fingerprints(agent([noise(graph, 0)]))["prints"])


@pytest.mark.parametrize("nodes", [1, 2, 3, 7])
def test_a_graph_without_links_and_a_complete_one_are_worth_nothing(nodes):
    all_pairs = np.argwhere(~np.eye(nodes, dtype=bool)).T
    for links in (np.zeros((2, 0), dtype=np.int64), all_pairs):
        assert float(shared_structure.above_chance(links, nodes)) == 0


def test_fingerprints_before_its_own_are_refused():
    with pytest.raises(HostileMessage, match="before"):
        shared_structure.count_copies(agent(CLEAN[:2]), {})


def agents_of_three_qualities() -> sfg.Federation:
    data = GraphSetDataset("strips", [clustered(i) for i in range(240)], "generated", "", 3, 2)
    return sfg.federate(data, clients=6, partition="random", seed=0, split={"perturbed": True})


def test_payoffs_follow_quality():
    federation = agents_of_three_qualities()
    quality = federation.facts["partition"]["quality"]
    paid = {}
    for diversity in ("printed", "shared"):
        algorithm = sfg.FairGraphFL(hidden=8, diversity=diversity)
        run = sfg.train(algorithm, federation, "plaintext", rounds=3)
        paid[diversity] = algorithm.notes(run.state)["payoffs"]
        assert sum(paid[diversity].values()) == pytest.approx(1)
    by = {
        group: [paid["shared"][a] for a in quality if quality[a] == group]
        for group in ("low", "medium", "high")
    }
    assert max(by["low"]) < min(by["medium"])
    assert max(by["medium"]) < min(by["high"])


def test_a_graph_s_part_in_its_agent_s_structure_is_noised():
    """With neither prototypes nor other agents' fingerprints everything is bounded for one graph."""
    algorithm = sfg.FairGraphFL(hidden=8, diversity="shared", copies="own", prototypes="none")
    budget = sfg.Budget(8.0, unit="graph")
    run = sfg.train(algorithm, agents_of_three_qualities(), "local_dp", rounds=2, budget=budget)
    assert {one.channel for one in run.charges} >= {"structure", "update"}
    assert 4 < run.privacy("graph")["epsilon"] <= 8


def test_fingerprints_cannot_be_noised():
    algorithm = sfg.FairGraphFL(hidden=8, diversity="shared", prototypes="none")
    with pytest.raises(Refused, match="copies=own"):
        sfg.train(algorithm, agents_of_three_qualities(), sfg.policies.local_dp(1.0, 1.0), rounds=1)
