"""Shared diversity as an incentive: what noise, junk, copies and a split into two agents earn."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.fairgraphfl import fairness, shared_structure
from secure_fedgraph.algorithms.fairgraphfl.settings import FairGraphFLSettings
from secure_fedgraph.core.errors import HostileMessage, Refused
from secure_fedgraph.graph.kinds import GraphSetDataset
from secure_fedgraph.graph.partition.dirichlet import rewired
from secure_fedgraph.graph.sample.packing import pack

SHARED = FairGraphFLSettings(diversity="shared")
OWN = FairGraphFLSettings(diversity="shared", copies="own", prototypes="none")


def clustered(seed: int) -> Data:
    """Points in a square, each linked to the nearest, so that triangles are many; with three labels."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(24, 32))
    at = rng.random((nodes, 2))
    near = np.argsort(((at[:, None] - at) ** 2).sum(-1), axis=1)[:, 1:5]
    once = np.stack([np.repeat(np.arange(nodes), 4), near.flatten()])
    links = to_undirected(torch.from_numpy(once))
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


Change = Callable[[Data, int], Data]
CLEAN = [clustered(seed) for seed in range(40)]
OTHERS = [clustered(seed) for seed in range(100, 140)]
JUNK = [noise(g, i) for i, g in enumerate(CLEAN)]


@cache
def unchanged(junk: bool = False) -> float:
    """What an agent of these graphs earns where there is no other."""
    return earned(JUNK if junk else CLEAN)[0]


@cache
def unchanged_by_another() -> list[float]:
    """What two agents earn."""
    return earned(CLEAN, OTHERS)


# --- what an agent can do to a graph without changing a link that is in a triangle


def grown(graph: Data, added: list[tuple[int, int]], nodes: int = 0) -> Data:
    """The graph with further nodes, and links ``(node, node)`` in both directions."""
    more = torch.tensor(added, dtype=torch.long).reshape(-1, 2).t()
    x = torch.cat([graph.x, graph.x[:1].repeat(nodes, 1)])
    return Data(x=x, edge_index=torch.cat([graph.edge_index, more, more.flip(0)], 1), y=graph.y)


def renumbered(graph: Data, seed: int) -> Data:
    place = torch.randperm(len(graph.x), generator=torch.Generator().manual_seed(seed))
    x = torch.empty_like(graph.x)
    x[place] = graph.x
    return Data(x=x, edge_index=place[graph.edge_index], y=graph.y)


def same(graph: Data, x: torch.Tensor | None = None, links: torch.Tensor | None = None) -> Data:
    """The graph with another part."""
    return Data(
        x=graph.x if x is None else x,
        edge_index=graph.edge_index if links is None else links,
        y=graph.y if x is None else 1 - graph.y,
    )


def with_a_handle(graph: Data, seed: int) -> Data:
    """A long path from one node to another."""
    first, last = len(graph.x), len(graph.x) + 59 + seed
    return grown(graph, [(0, first), (1, last), *((i, i + 1) for i in range(first, last))], 60 + seed)


def padded(links: Callable[[int, int], list[tuple[int, int]]]) -> Change:
    """With 60 nodes or more, and links of them: of the first one's number, and how many there are."""
    return lambda graph, seed: grown(graph, links(len(graph.x), 60 + seed), 60 + seed)


PADDED = {
    "lonely nodes": padded(lambda first, more: []),
    "hanging nodes": padded(lambda first, more: [(i % first, first + i) for i in range(more)]),
    "a hanging path": padded(
        lambda first, more: [(0, first), *((first + i, first + i + 1) for i in range(more - 1))]
    ),
    "a tree beside": padded(lambda first, more: [(first + i // 2, first + i + 1) for i in range(more - 1)]),
    "a ring beside": padded(lambda first, more: [(first + i, first + (i + 1) % more) for i in range(more)]),
    "a handle": with_a_handle,
}
SAME_TRIANGLES = {
    "renumbered": renumbered,
    "other features": lambda graph, seed: same(graph, x=graph.x.roll(1, 1)),
    "links twice": lambda graph, seed: same(graph, links=graph.edge_index.repeat(1, 2)),
    "links in one direction": lambda graph, seed: same(
        graph, links=graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    ),
    "loops": lambda graph, seed: grown(graph, [(seed % 5, seed % 5), (7, 7)]),
    **PADDED,
}
by_change = pytest.mark.parametrize("change", SAME_TRIANGLES.values(), ids=SAME_TRIANGLES)


@by_change
def test_changed_copies_of_own_graphs_earn_nothing(change: Change):
    copies = [change(g, i) for i, g in enumerate(CLEAN)]
    assert earned(CLEAN + copies)[0] == pytest.approx(unchanged(), rel=1e-5)


@by_change
def test_who_copies_a_neighbour_shares_with_it_what_the_copies_earn(change: Change):
    """The two together have what the neighbour had at most, and everybody else what they had."""
    victim, third = unchanged_by_another()
    robbed, thief, beside = earned(CLEAN, [change(g, i) for i, g in enumerate(CLEAN)], OTHERS)
    assert robbed == pytest.approx(victim / 2, rel=1e-5)
    assert thief < robbed * 1.00001
    assert beside == pytest.approx(third, rel=1e-5)


@by_change
@pytest.mark.parametrize("graphs", [CLEAN, JUNK], ids=["clean", "junk"])
def test_padding_makes_no_graph_worth_more(change: Change, graphs: list[Data]):
    plain, (padded,) = unchanged(graphs is JUNK), earned([change(g, i) for i, g in enumerate(graphs)])
    assert padded <= plain * 1.00001
    if change is not with_a_handle:
        assert padded == pytest.approx(plain, rel=1e-5)  # and what hangs on an honest graph costs nothing


@pytest.mark.parametrize("change", PADDED.values(), ids=PADDED)
def test_one_graph_padded_in_many_ways_counts_once(change: Change):
    assert earned([change(CLEAN[0], 3 * i) for i in range(20)])[0] < earned(CLEAN[:1])[0] * 1.00001


def test_two_graphs_in_one_earn_no_more_than_the_two():
    both = [
        Data(x=torch.cat([a.x, b.x]), edge_index=torch.cat([a.edge_index, b.edge_index + len(a.x)], 1), y=a.y)
        for a, b in pairwise(CLEAN)
    ]
    (apart,), (together,), (added,) = earned(CLEAN), earned(both), earned(both + CLEAN)
    assert together < 0.7 * apart
    assert added == pytest.approx(apart, rel=1e-5)


def test_one_graph_less_moves_the_sum_by_what_it_is_worth_at_most():
    """Also where its pieces are in other graphs, each by itself: noise for one graph is scaled to that."""
    (a, b), both = CLEAN[:2], pack(CLEAN[:2])
    union = Data(x=both.x, edge_index=both.edge_index, y=a.y)
    graphs = [union, a, b, *CLEAN[2:6]]

    def total(held: list[Data]) -> float:
        rows = shared_structure.structure(agent(held), OWN).values["triangles"] / shared_structure.SHARE
        assert float(rows.min()) >= 0
        assert float(rows.max()) <= 1
        return float(rows.sum())

    for i, graph in enumerate(graphs):
        assert -1e-6 <= total(graphs) - total(graphs[:i] + graphs[i + 1 :]) <= total([graph]) + 1e-6


def test_what_it_cannot_see_pieces_of_a_graph_that_are_called_graphs():
    """The page says so: nobody but its owner knows what one graph is."""
    both = pack(CLEAN[:2])
    one, other = earned([Data(x=both.x, edge_index=both.edge_index, y=CLEAN[0].y)])[0], earned(CLEAN[:2])[0]
    assert other > 1.5 * one


def test_noise_earns_nothing():
    (clean,), (spoilt,) = earned(CLEAN), earned(JUNK)
    assert clean > 10
    assert 0 <= spoilt < 0.01 * clean


def test_the_more_is_rewired_the_less_is_earned():
    shares = (0.0, 0.1, 0.3, 0.5)
    spoilt = [[rewired(g, share, np.random.default_rng(i)) for i, g in enumerate(CLEAN)] for share in shares]
    values = [earned(graphs)[0] for graphs in spoilt]
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.1 * values[0]


def test_junk_graphs_beside_the_own_do_not_pay():
    junk = [noise(clustered(seed), seed) for seed in range(500, 540)]
    alone, others = unchanged_by_another()
    padded, _ = earned([*CLEAN, *junk], OTHERS)
    assert padded / (padded + others) < 1.01 * alone / (alone + others)


def test_who_adds_a_neighbours_graphs_earns_half_of_theirs():
    victim, third = unchanged_by_another()
    whole, _ = earned(CLEAN + OTHERS, OTHERS)
    assert whole == pytest.approx(victim + third / 2, rel=1e-5)


def test_two_agents_with_half_of_the_graphs_each_earn_what_one_does():
    whole, other = unchanged_by_another()
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


def test_fingerprints_before_its_own_are_refused():
    with pytest.raises(HostileMessage, match="before"):
        shared_structure.count_copies(agent(CLEAN[:2]), {})


def agents_of_three_qualities() -> sfg.Federation:
    data = GraphSetDataset("near points", [clustered(i) for i in range(240)], "generated", "", 3, 2)
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
