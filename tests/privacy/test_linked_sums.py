"""Sums over links: what one node or one link moves, public bounds, and what each policy adds and charges."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from secure_fedgraph.algorithms.progap import exact_sums as exact
from secure_fedgraph.errors import BadInput, Refused
from secure_fedgraph.policies import central_dp, distributed_dp, local_dp, masked
from secure_fedgraph.privacy.accounting.epsilon import GaussianRelease
from secure_fedgraph.privacy.contracts import Scope
from secure_fedgraph.privacy.input_dp.links import RandomisedLinks
from secure_fedgraph.privacy.linked_sums import check_links, linked_sums
from secure_fedgraph.privacy.policy import KEPT, NO_UPLOAD, Policy
from secure_fedgraph.protocol import Channel, Reveal, Unit
from secure_fedgraph.protocol.channel import WEIGHTS, UnitContribution, UnitContributionLinks
from secure_fedgraph.protocol.upload import ContributionLinks

NODES = 14
OF = UnitContributionLinks(3, 0.8, crowd=NODES, degree=NODES, hops=2)
CHANNEL = Channel("sums", Reveal.NOTHING, unit=Unit.NODE, unit_contribution=OF)
CLIENTS = ("a", "b", "c")
GRIDS = (0.0, 2.0**-18, 2.0**-13)


def parts(seed: int) -> torch.Tensor:
    """Of both signs, from far too short to far too long."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(NODES, 4, generator=draw) * torch.logspace(-2, 2, NODES)[torch.randperm(NODES), None]


def links(seed: int, dense: float = 0.5) -> torch.Tensor:
    """Of either direction, some twice, some loops."""
    draw = torch.Generator().manual_seed(seed)
    return (torch.rand(NODES, NODES, generator=draw) < dense / 2).nonzero().T


def summed(values: torch.Tensor, edge_index: torch.Tensor, of: UnitContributionLinks = OF, grid: float = 0.0):
    return linked_sums(ContributionLinks({"sums": values}, edge_index), of, Unit.NODE, grid)[1]


def without(edge_index: torch.Tensor, node: int) -> torch.Tensor:
    return edge_index[:, (edge_index != node).all(0)]


def crowd_of(edge_index: torch.Tensor, node: int) -> int:
    linked = torch.zeros(NODES, NODES, dtype=torch.bool)
    linked[edge_index[0], edge_index[1]] = True
    linked = (linked | linked.T).fill_diagonal_(False)
    return int((linked[node] & (linked.sum(1) > OF.rows)).sum())


@given(st.integers(0, 2**31), st.sampled_from(GRIDS), st.sampled_from([0.2, 0.5, 1.5]))
def test_a_node_that_goes_moves_the_others_rows_by_what_was_declared(
    seed: int, grid: float, dense: float
) -> None:
    values, edge_index = parts(seed), links(seed, dense)
    before = summed(values, edge_index, grid=grid)
    for node in range(NODES):
        after = summed(values, without(edge_index, node), grid=grid)
        others = torch.arange(NODES) != node
        crowd = crowd_of(edge_index, node)
        bound = math.hypot(math.sqrt(OF.rows) * OF.norm, crowd * OF.spill)
        assert np.linalg.norm((before - after)[others]) <= bound * (1 + 1e-6)


@given(st.integers(0, 2**31), st.sampled_from(GRIDS))
def test_a_link_that_goes_moves_all_rows_by_what_was_declared(seed: int, grid: float) -> None:
    values, edge_index = parts(seed), links(seed, 0.8)
    before = summed(values, edge_index, grid=grid)
    for one, other in edge_index.T.tolist():
        rest = [pair for pair in edge_index.T.tolist() if set(pair) != {one, other}]
        after = summed(values, torch.tensor(rest).reshape(-1, 2).T, grid=grid)
        assert np.linalg.norm(before - after) <= OF.edge * (1 + 1e-6)


@given(st.integers(0, 2**31))
def test_a_node_that_becomes_another_moves_them_by_what_was_declared(seed: int) -> None:
    values, other, edge_index = parts(seed), parts(seed + 1), links(seed)
    values[3:], other[3:] = values[3:], values[3:]
    other[:3] = values[:3]
    other[5] = parts(seed + 2)[5]
    elsewhere = torch.cat([without(edge_index, 5), torch.tensor([[5] * 4, [0, 2, 9, 11]])], dim=1)
    moved = (summed(values, edge_index) - summed(other, elsewhere))[torch.arange(NODES) != 5]
    assert np.linalg.norm(moved) <= OF.replaced * (1 + 1e-6)


def test_the_bounds_are_met() -> None:
    """Two nodes of a crowd have one neighbour too many, and the same others: a node's bound is tight."""
    of = UnitContributionLinks(3, 1.0, crowd=2, degree=8, hops=1)
    hub = [[0, 1], [0, 2], [0, 3]]
    crossing = [[one, two] for one in (1, 2) for two in (4, 5, 6)]
    values = torch.zeros(7, 2)
    values[[0, 1, 2], 0] = 5.0
    moved = (
        summed(values, torch.tensor(hub + crossing).T, of) - summed(values, torch.tensor(crossing).T, of)
    )[1:]
    assert np.linalg.norm(moved) == pytest.approx(of.zeroed, rel=1e-5)
    assert of.zeroed > math.sqrt(3)
    ends = summed(values, torch.tensor([[0], [1]]), of)
    assert np.linalg.norm(ends) == pytest.approx(math.sqrt(2), rel=1e-5) and of.edge >= math.sqrt(2)


def test_row_i_is_the_sum_of_its_neighbours_short_parts_of_0_and_above() -> None:
    values = torch.tensor([[0.3, -1.0], [0.0, 4.0], [0.1, 0.1], [0.0, 0.0]])
    edge_index = torch.tensor([[0, 1, 1, 2, 3], [1, 0, 2, 2, 0]])  # one twice, one loop
    expected = [[0.0, 0.8], [0.4, 0.1], [0.0, 0.8], [0.3, 0.0]]
    assert summed(values, edge_index) == pytest.approx(np.array(expected), abs=1e-5)


def test_a_reader_s_own_sums_have_the_same_weights() -> None:
    values, edge_index = torch.rand(NODES, 3) / 4, links(3, 1.2)
    mine = exact.linked_sums(values, edge_index, OF.weight).numpy()
    assert summed(values, edge_index) == pytest.approx(mine, abs=1e-5)
    assert exact.WEIGHT_OF_ONE == WEIGHTS


def test_graphs_beyond_the_public_bounds_are_refused_by_key() -> None:
    star = torch.stack([torch.zeros(5, dtype=torch.int64), torch.arange(1, 6)])
    check_links(star, 6, UnitContributionLinks(2, 1.0, crowd=1, degree=5, hops=1), "a")
    with pytest.raises(
        BadInput, match=r"training\.degree = 4: a node of a has more neighbours.*set training\.degree"
    ):
        check_links(star, 6, UnitContributionLinks(2, 1.0, crowd=1, degree=4, hops=1), "a")
    with pytest.raises(
        BadInput, match=r"training\.crowd = 0: a node of a has more .*neighbours = 2.*training\.crowd"
    ):
        check_links(star, 6, UnitContributionLinks(2, 1.0, crowd=0, degree=5, hops=1), "a")
    check_links(torch.zeros(2, 0, dtype=torch.int64), 0, OF, "a")


def bound(policy: Policy):
    return policy.bind((CHANNEL,), CLIENTS)["sums"]


@pytest.mark.parametrize(
    "policy",
    [local_dp(1.0, 2.0), central_dp(1.0, 2.0), distributed_dp(1.0, 2.0)],
    ids=lambda policy: policy.name,
)
def test_whoever_noises_uploads_the_client_noises_what_it_keeps(policy: Policy) -> None:
    one = bound(policy)
    assert one.protection.name == KEPT and one.excess == () and not one.computational
    for events in (one.releases(10)[reader] for reader in ("server", "peers", "outsider")):
        assert GaussianRelease(2.0) in events
    nothing = ContributionLinks({"sums": torch.zeros(4000, 3)}, torch.zeros(2, 0, dtype=torch.int64))
    rows = one.kept(nothing, Scope("r", 1, 1, "sums", CLIENTS))
    assert float(rows.std()) == pytest.approx(2.0 * OF.zeroed, rel=0.03)
    assert not torch.equal(rows, one.kept(nothing, Scope("r", 1, 1, "sums", CLIENTS)))


def test_a_link_costs_less_than_a_node_and_a_client_nothing() -> None:
    for relation, of_a_node, of_a_link in (
        ("zero-out", OF.zeroed, OF.edge),
        ("replace", OF.replaced, 2 * OF.edge),
    ):
        one = bound(local_dp(1.0, 2.0, relation=relation))
        others = one.smaller_and_larger(1)
        assert others["client"] == ()
        multiplier = others["edge"][0].noise_multiplier  # type: ignore[attr-defined]
        assert multiplier == pytest.approx(2.0 * of_a_node / of_a_link)


def test_without_noise_nothing_is_added_and_nothing_is_promised() -> None:
    one = bound(masked())
    assert one.protection is NO_UPLOAD or one.protection == NO_UPLOAD
    assert one.releases() == {} and one.smaller_and_larger(1) == {"client": ()}
    values, edge_index = parts(1), links(1)
    kept = one.kept(ContributionLinks({"sums": values}, edge_index), Scope("r", 1, 1, "sums", CLIENTS))
    assert kept.numpy() == pytest.approx(summed(values, edge_index), abs=1e-5)


def test_randomised_links_beside_noised_sums_and_add_remove_are_refused() -> None:
    noised = local_dp(1.0, 2.0)
    mixed = Policy("local_dp", noised.recipe, randomizers=(RandomisedLinks(1.0),))
    with pytest.raises(BadInput, match="links are randomised, and 'sums' are noised sums"):
        bound(mixed)
    with pytest.raises(Refused, match="add-remove"):
        bound(local_dp(1.0, 2.0, relation="add-remove"))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"rows": 0}, "touches 0 rows"),
        ({"crowd": -1}, "crowd = -1"),
        ({"degree": 0}, "degree = 0"),
        ({"hops": 0}, "hops = 0"),
    ],
)
def test_bounds_out_of_range_are_refused(values: dict[str, int], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        UnitContributionLinks(**{"rows": 3, "norm": 1.0, "crowd": 1, "degree": 9, "hops": 1, **values})


def test_only_a_channel_on_which_nothing_is_sent_keeps_sums() -> None:
    assert CHANNEL.kept and not Channel("a", Reveal.NOTHING).kept
    assert not Channel("a", Reveal.SUM, unit=Unit.NODE, unit_contribution=UnitContribution(1, 1.0)).kept
    with pytest.raises(BadInput, match=r"stay in the client.*Reveal\.NOTHING"):
        Channel("a", Reveal.SUM, unit=Unit.NODE, unit_contribution=OF)


@pytest.mark.parametrize("wrong", [torch.tensor([[0, NODES]]).T, torch.tensor([[-1, 0]]).T, torch.ones(3, 2)])
def test_links_that_are_no_pairs_of_nodes_are_refused(wrong: torch.Tensor) -> None:
    with pytest.raises(BadInput, match="links"):
        summed(parts(0), wrong)
