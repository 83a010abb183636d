"""Sums over trees: what one unit moves, by brute force on frozen tables; and what the door refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from parties import NAMES, scope
from torch_geometric.data import Data

from secure_fedgraph.errors import BadInput
from secure_fedgraph.graph.sample.ego_graphs import ego_table
from secure_fedgraph.models.ego.mash import cap_occurrences
from secure_fedgraph.policies import distributed_dp, local_dp, masked, plaintext
from secure_fedgraph.privacy import pooling_trees
from secure_fedgraph.privacy.pooling import clipped, l2_sensitivity
from secure_fedgraph.privacy.pooling_trees import parents, tree_sums
from secure_fedgraph.privacy.stages.gaussian import Gaussian
from secure_fedgraph.protocol import (
    Channel,
    ContributionRows,
    ContributionTrees,
    Reveal,
    Unit,
    UnitContributionTrees,
    Upload,
)

FANOUT, MOST, BATCHES, N, NODES, WIDTH, NORM = (2, 2), (1, 2, 1), 4, 4, 24, 3, 0.5
TOUCHES = UnitContributionTrees(NORM, fanout=FANOUT, most=MOST, batches=BATCHES, trees=N)
MASHES = Channel("egos", Reveal.SUM, Unit.NODE, unit_contribution=TOUCHES)
BOUND = l2_sensitivity(TOUCHES, "zero-out")


def graph(seed: int) -> Data:
    """A random graph with two hubs, all links both ways."""
    generator = torch.Generator().manual_seed(seed)
    one = torch.randint(NODES, (2, 40), generator=generator)
    hub = torch.stack(
        [torch.randint(2, (30,), generator=generator), torch.randint(NODES, (30,), generator=generator)]
    )
    links = torch.cat([one, hub], dim=1)
    links = links[:, links[0] != links[1]]
    return Data(edge_index=torch.cat([links, links.flip(0)], dim=1).unique(dim=1), num_nodes=NODES)


def egos(seed: int, made: Data | None = None) -> torch.Tensor:
    return ego_table(
        made or graph(seed), FANOUT, generator=torch.Generator().manual_seed(seed), slots="stable"
    )


def places(seed: int, table: torch.Tensor | None = None) -> torch.Tensor:
    """``[batches, n, positions]``; the last batch finds no centres any more."""
    order = torch.randperm(NODES, generator=torch.Generator().manual_seed(seed))
    rows = (egos(seed) if table is None else table)[order[: 3 * N].view(3, N)]
    rows = cap_occurrences(rows, FANOUT, MOST, least=1)
    return torch.cat([rows, torch.full_like(rows[:1], -1)])


def values(seed: int) -> torch.Tensor:
    """Rows of one direction, most of them far too long: where nothing cancels a sum moves farthest."""
    generator = torch.Generator().manual_seed(seed)
    return torch.logspace(-2, 2, NODES)[torch.randperm(NODES, generator=generator), None] * torch.ones(WIDTH)


def zeroed(table: torch.Tensor, unit: int) -> torch.Tensor:
    """The same frozen table without a unit, and without whom it had been the way to."""
    gone = table == unit
    for position, parent in enumerate(parents(FANOUT).tolist(), start=1):
        gone[..., position] |= gone[..., parent]
    return torch.where(gone, -1, table)


def sums(table: torch.Tensor, rows: torch.Tensor, grid: float = 0.0) -> np.ndarray:
    return tree_sums(ContributionTrees({"rows": rows}, table), TOUCHES, Unit.NODE, grid)[1]


def farthest(seeds: range = range(20), grid: float = 0.0) -> float:
    return max(
        float(np.linalg.norm(sums(table, rows, grid) - sums(zeroed(table, unit), rows, grid)))
        for seed in seeds
        for table, rows in [(places(seed), values(seed))]
        for unit in range(NODES)
    )


def worst() -> tuple[torch.Tensor, torch.Tensor]:
    """Node 0 as a centre, twice as a neighbour and once as a neighbour's, with everybody below it there."""
    table = torch.full((BATCHES, N, 7), -1)
    table[0, 0] = torch.tensor([0, 1, 2, 3, 4, 5, 6])
    table[1, 0, [0, 1, 3, 4]] = torch.tensor([7, 0, 8, 9])
    table[2, 1, [0, 2, 5, 6]] = torch.tensor([10, 0, 11, 12])
    table[3, 2, [0, 1, 4]] = torch.tensor([13, 14, 0])
    return table, torch.full((NODES, WIDTH), 9.0)


class TestSensitivity:
    def test_what_is_declared(self):
        assert (TOUCHES.below, TOUCHES.rows) == ((7, 3, 1), 7 + 2 * 3 + 1)
        assert pytest.approx(math.sqrt(14) * NORM) == BOUND
        assert l2_sensitivity(TOUCHES, "replace") == 2 * BOUND
        # once in a batch: fewer batches than places, and the smallest are left out
        few = UnitContributionTrees(NORM, fanout=(6, 6), most=(1, 6, 36), batches=3, trees=2)
        assert few.rows == 43 + 2 * 7

    def test_by_hand(self):
        table = torch.tensor([[[0, 1, -1], [2, -1, 3]]])
        contribution = UnitContributionTrees(1.0, fanout=(2,), most=(1, 1), batches=1, trees=2)
        rows = torch.tensor([[0.5], [3.0], [0.25], [0.1]])
        layout, found = tree_sums(ContributionTrees({"rows": rows}, table), contribution, Unit.NODE)
        assert found.flatten() == pytest.approx([0.75, 1.0, 0.1], rel=1e-5)
        assert (layout.rows, layout.width) == (3, 1)
        assert ContributionTrees({"rows": rows}, table).size == 3

    def test_no_node_of_any_graph_moves_more(self):
        found = farthest()
        assert 0.3 * BOUND < found <= BOUND

    def test_and_one_that_is_built_for_it_moves_as_much(self):
        table, rows = worst()
        apart = np.linalg.norm(sums(table, rows) - sums(zeroed(table, 0), rows))
        assert 0.9999 * BOUND < apart <= BOUND
        others = [np.linalg.norm(sums(table, rows) - sums(zeroed(table, u), rows)) for u in range(1, NODES)]
        assert max(others) < apart

    def test_nor_does_one_that_is_rounded(self):
        table, rows = worst()
        for grid in (0.01, 0.13, NORM / math.sqrt(WIDTH)):
            apart = np.linalg.norm(sums(table, rows, grid) - sums(zeroed(table, 0), rows, grid))
            assert apart <= BOUND
            assert farthest(range(3), grid) <= BOUND

    def test_nor_does_one_that_becomes_any_other(self):
        """Another node in the same places, with other neighbours: all of it turned round."""
        table, _ = worst()
        gone = zeroed(table, 0) != table
        strangers = torch.where(gone & (table != 0), table + 14, table)
        many = torch.full((NODES + 10, WIDTH), 9.0)
        other = many.clone()
        other[15:], other[0] = -9.0, -9.0
        many[15:] = -9.0
        apart = np.linalg.norm(sums(table, many) - sums(strangers, other))
        assert 0.9999 * 2 * BOUND < apart <= 2 * BOUND

    def test_trees_that_fill_few_places_move_less(self):
        few = UnitContributionTrees(NORM, fanout=FANOUT, most=MOST, batches=BATCHES, trees=N, filled=3)
        assert few.rows == 3 + 2 * 2 + 1  # a neighbour's tree has its centre above it
        limit, found = l2_sensitivity(few, "zero-out"), 0.0
        for seed in range(20):
            order = torch.randperm(NODES, generator=torch.Generator().manual_seed(seed))
            table = cap_occurrences(egos(seed)[order[: 4 * N].view(4, N)], FANOUT, MOST, least=1, filled=3)
            assert int((table >= 0).sum(2).max()) == 3
            rows = torch.full((NODES, WIDTH), 9.0)

            def sent(places: torch.Tensor, rows: torch.Tensor = rows) -> np.ndarray:
                return tree_sums(ContributionTrees({"rows": rows}, places), few, Unit.NODE)[1]

            whole = sent(table)
            found = max(found, *(float(np.linalg.norm(whole - sent(zeroed(table, u)))) for u in range(NODES)))
        assert 0.7 * limit < found <= limit
        with pytest.raises(BadInput, match="fills more than 3 places"):
            tree_sums(ContributionTrees({"rows": values(0)}, worst()[0]), few, Unit.NODE)

    @pytest.mark.parametrize("mutant", ["cells are counted as one", "below it is not counted", "not clipped"])
    def test_brute_force_finds_what_is_wrong(self, mutant, monkeypatch):
        claim = BOUND
        if mutant == "not clipped":
            monkeypatch.setattr(pooling_trees, "clipped", lambda matrix, norm: matrix)
        elif mutant == "cells are counted as one":
            claim = NORM
        else:
            claim = NORM * math.sqrt(sum(MOST))
        table, rows = worst()
        apart = np.linalg.norm(sums(table, rows) - sums(zeroed(table, 0), rows))
        assert apart > 1.2 * claim

    def test_a_table_that_is_drawn_again_is_not_covered(self):
        """Collisions, caps and who stands once react to one who is away: others move (threats 6.0a)."""
        found = 0.0
        for seed in range(30):
            whole, rows = graph(seed), torch.full((NODES, WIDTH), 9.0)
            for unit in (0, 1):
                there = (whole.edge_index != unit).all(dim=0)
                less = Data(edge_index=whole.edge_index[:, there], num_nodes=NODES)
                again = zeroed(places(seed, egos(seed, less)), unit)
                found = max(found, float(np.linalg.norm(sums(places(seed), rows) - sums(again, rows))))
        assert found > 1.05 * BOUND


class TestTable:
    def test_capped_tables_keep_what_is_declared(self):
        for seed in range(20):
            pooling_trees.check_table(places(seed).numpy(), TOUCHES)  # refuses what does not

    def test_centres_stay_and_nobody_hangs_below_an_empty_place(self):
        rows = torch.tensor([[[0, 1, 2, 3, 4, 5, 6], [1, 0, 7, 8, 9, 3, 10]]])
        found = cap_occurrences(rows, FANOUT, (1, 2, 2), least=1)[0]
        # 1 is a centre, so it is no neighbour of 0, and 3 and 4 were reached through it
        assert found[0].tolist() == [0, -1, 2, -1, -1, 5, 6]
        assert found[1].tolist() == [1, -1, 7, -1, -1, 3, 10]

    def test_caps_are_over_all_batches(self):
        rows = torch.tensor([[[0, 9, 9]], [[1, 9, -1]], [[2, -1, 9]]])
        assert cap_occurrences(rows, (2,), (1, 2), least=1).tolist() == [
            [[0, 9, -1]],
            [[1, 9, -1]],
            [[2, -1, -1]],
        ]
        assert cap_occurrences(rows, (2,), (1, 0), least=1)[..., 1:].max() == -1

    def test_cells_of_few_are_emptied_with_all_below(self):
        rows = torch.tensor([[[0, 1, 2, 3, 4, 5, 6], [7, 8, -1, 9, 10, -1, -1]]])
        found = cap_occurrences(rows, FANOUT, (1, 1, 1), least=2)[0]
        assert found.tolist() == [[0, 1, -1, 3, 4, -1, -1], [7, 8, -1, 9, 10, -1, -1]]


class TestDoor:
    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({(0, 1, 0): 0}, "twice in a batch"),
            ({(1, 0, 0): 0, (1, 0, 1): 7}, "more than 1 times at level 0"),
            ({(3, 2, 1): 0, (3, 2, 4): 14}, "more than 2 times at level 1"),
            ({(0, 0, 1): -1}, "below an empty one"),
        ],
    )
    def test_tables_that_break_the_declaration(self, change, words):
        table, rows = worst()
        for place, unit in change.items():
            table[place] = unit
        with pytest.raises(BadInput, match=words):
            sums(table, rows)

    def test_other_shapes(self):
        table, rows = worst()
        for wrong in (table[:3], table[:, :3], table[..., :3]):
            with pytest.raises(BadInput, match="were declared"):
                sums(wrong, rows)
        with pytest.raises(BadInput, match="names others"):
            sums(table + 30, rows)
        with pytest.raises(BadInput, match="give a table of nodes"):
            sums(table.float(), rows)
        for wrong in (
            {"fanout": (), "most": (1,), "batches": 1, "trees": 1},
            {"fanout": (2,), "most": (1,), "batches": 1, "trees": 1},
            {"fanout": (2,), "most": (1, -1), "batches": 1, "trees": 1},
            {"fanout": (2,), "most": (1, 1), "batches": 0, "trees": 1},
        ):
            with pytest.raises(BadInput, match="a level more than children"):
                UnitContributionTrees(1.0, **wrong)
        with pytest.raises(BadInput, match="give 1 row or more"):
            UnitContributionTrees(1.0, fanout=(2,), most=(0, 0), batches=1, trees=1)

    def test_nothing_goes_round_it(self):
        bound = plaintext().bind([MASHES], NAMES)["egos"]
        for wrong in (
            Upload({"rows": torch.ones(2, 2)}),
            ContributionRows({"rows": torch.ones(2, 2)}, torch.ones(2, 4)),
        ):
            with pytest.raises(TypeError, match="'egos': an answer returns ContributionTrees"):
                bound.seal(wrong, scope(), None)

    def test_a_sum_under_noise_in_shares_needs_no_limit(self):
        bound = distributed_dp(1.0, 2.0, quorum=3).bind([MASHES], NAMES)["egos"]
        noise = next(stage for stage in bound.stages if isinstance(stage, Gaussian))
        assert noise.limit == pytest.approx(N * NORM)
        assert bound.releases(10)["server"][0].noise_multiplier == pytest.approx(2.0)
        assert bound.unit is Unit.NODE

    def test_the_sum_arrives_and_its_noise_is_scaled_to_the_node(self):
        table, rows = worst()
        trees = ContributionTrees({"rows": rows}, table)
        for policy in (plaintext(), masked()):
            bound = policy.bind([MASHES], NAMES)["egos"]
            assert bound.releases(10) == {}
        bound = plaintext().bind([MASHES], NAMES)["egos"]
        opened = bound.open_sum({n: bound.seal(trees, scope(), None) for n in NAMES}, scope(), None)
        assert opened.total["rows"].numpy() == pytest.approx(3 * sums(table, rows), rel=1e-5)
        wide = ContributionTrees({"rows": torch.zeros(NODES, 4000)}, table)
        sent = np.asarray(local_dp(9.0, 1.7).bind([MASHES], NAMES)["egos"].seal(wide, scope(), None)["data"])
        assert sent.std() == pytest.approx(1.7 * BOUND, rel=0.03)

    def test_rows_are_clipped_one_by_one_before_they_are_mixed(self):
        table, rows = worst()
        assert np.abs(sums(table, rows)).max() <= NORM
        assert clipped(rows.numpy(), NORM)[0] == pytest.approx(NORM / math.sqrt(WIDTH), rel=1e-4)
