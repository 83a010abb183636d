"""Sums over units: what one unit moves, by brute force; its noise; what the ledger makes of it."""

from __future__ import annotations

import itertools
import math

import dp_accounting as dp
import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from parties import NAMES, scope

from secure_fedgraph.core.accounting import epsilon as accounting
from secure_fedgraph.core.accounting.events import GaussianRelease
from secure_fedgraph.core.carriers.plain import Plain
from secure_fedgraph.core.carriers.secagg.server import Masked
from secure_fedgraph.core.channel import Channel, Reveal, UnitContribution
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.binding import Protection
from secure_fedgraph.core.protection.fixed_point import FixedPoint
from secure_fedgraph.core.protection.gaussian import Clip, Gaussian
from secure_fedgraph.core.protection.pooling import clipped, first, l2_sensitivity, pooled
from secure_fedgraph.core.spending.ledger import OF_GRAPH_SETS, Charge
from secure_fedgraph.core.upload import ContributionRows, Upload
from secure_fedgraph.policies import central_dp, distributed_dp, local_dp, plaintext
from secure_fedgraph.privacy.spent import spent

UNITS, ROWS, WIDTH, KAPPA, NORM = 7, 5, 3, 2, 0.5
TOUCHES = UnitContribution(KAPPA, NORM)
SUMS = Channel("motif_sums", Reveal.SUM, Unit.GRAPH, unit_contribution=TOUCHES)
TANGLED = Channel(
    "motif_sums", Reveal.SUM, Unit.GRAPH, unit_contribution=UnitContribution(KAPPA, NORM, independent=False)
)
EVERY = list(itertools.product([0, 1], repeat=ROWS))  # all 32 sets of rows that a unit can be part of


def sets(seed: int) -> ContributionRows:
    """Units of very different lengths, in many rows each; the first is in all of them and far too long."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(UNITS, WIDTH, generator=generator) * torch.logspace(-2, 2, UNITS)[:, None]
    places = (torch.rand(UNITS, ROWS, generator=generator) < 0.6).float()
    values[0], places[0] = torch.tensor([30.0, 0.0, 40.0]), 1.0
    return ContributionRows({"rows": values}, places)


def without(parts: ContributionRows, unit: int) -> ContributionRows:
    keep = torch.arange(len(parts.places)) != unit
    return ContributionRows({"rows": parts.values["rows"][keep]}, parts.places[keep])


def zeroed(parts: ContributionRows, unit: int) -> ContributionRows:
    values, places = parts.values["rows"].clone(), parts.places.clone()
    values[unit], places[unit] = 0.0, 0.0
    return ContributionRows({"rows": values}, places)


def replaced(parts: ContributionRows, unit: int, row: torch.Tensor, places: torch.Tensor) -> ContributionRows:
    values, all_places = parts.values["rows"].clone(), parts.places.clone()
    values[unit], all_places[unit] = row, places
    return ContributionRows({"rows": values}, all_places)


def summed(parts: ContributionRows, pool=pooled) -> np.ndarray:
    return pool(parts, TOUCHES, Unit.GRAPH)[1]


def farthest(pool=pooled, changed=(without, zeroed)) -> float:
    """How far any one unit of any of these sets moves the sums."""
    return max(
        float(np.linalg.norm(summed(parts, pool) - summed(change(parts, unit), pool)))
        for parts in map(sets, range(20))
        for unit in range(UNITS)
        for change in changed
    )


def in_all_rows(parts: ContributionRows, contribution: UnitContribution, unit: Unit):
    layout, matrix, places = parts.packed(unit)
    return layout, places.T.astype(np.float64) @ clipped(matrix, contribution.norm)


def clipped_behind_the_sum(parts: ContributionRows, contribution: UnitContribution, unit: Unit):
    """The sums' own norm is bounded, each by sqrt(rows) times what one unit may move: and one moves more."""
    layout, matrix, places = parts.packed(unit)
    most = math.sqrt(len(parts.places)) * contribution.norm
    return layout, clipped(first(places, contribution.rows).T.astype(np.float64) @ matrix, most).astype(
        np.float64
    )


def unclipped(parts: ContributionRows, contribution: UnitContribution, unit: Unit):
    layout, matrix, places = parts.packed(unit)
    return layout, first(places, contribution.rows).T.astype(np.float64) @ matrix


def the_mean(parts: ContributionRows, contribution: UnitContribution, unit: Unit):
    """What would be noised by norm / count: leaving a unit out moves the others' shares as well."""
    layout, rows = pooled(parts, contribution, unit)
    count = first(parts.packed(unit)[2], contribution.rows).sum(0)[:, None]
    return layout, UNITS * rows / np.maximum(count, 1)


class TestSensitivity:
    bound = math.sqrt(KAPPA) * NORM

    def test_by_hand(self):
        parts = ContributionRows(
            {"rows": torch.tensor([[3.0, 4.0], [0.3, 0.0]])}, torch.tensor([[0, 1, 1, 1], [1, 0, 1, 0]])
        )
        layout, found = pooled(parts, TOUCHES, Unit.GRAPH)
        # the first is shortened from 5 to 0.5 and is not in its third row; the second is short enough
        assert found == pytest.approx(np.array([[0.3, 0], [0.3, 0.4], [0.6, 0.4], [0, 0]]), rel=1e-5)
        assert (layout.rows, layout.width) == (4, 2)

    def test_no_unit_moves_more_and_one_moves_as_much(self):
        worst = farthest()
        assert self.bound * (1 - 1e-5) < worst <= self.bound

    def test_nor_does_one_that_becomes_any_other(self):
        rows = [torch.tensor(v) * 100 for v in ((1.0, 0.0, 0.0), (-0.6, 0.0, -0.8), (0.0, 0.0, 1e-5))]
        parts, limit = sets(0), l2_sensitivity(TOUCHES, "replace")
        worst = max(
            float(np.linalg.norm(summed(parts) - summed(replaced(parts, unit, row, torch.tensor(places)))))
            for unit in range(UNITS)
            for row in rows
            for places in EVERY
        )
        assert (
            0.99 * limit < worst <= limit == 2 * self.bound
        )  # (-0.6, 0, -0.8) is the first one turned round

    def test_whatever_rows_it_is_in(self):
        parts = sets(1)
        for places in EVERY:
            with_it = replaced(parts, 3, torch.ones(WIDTH) * 9, torch.tensor(places))
            gone = float(np.linalg.norm(summed(with_it) - summed(without(with_it, 3))))
            assert gone == pytest.approx(NORM * math.sqrt(min(sum(places), KAPPA)), rel=1e-5)

    def test_counts_move_by_the_root_of_the_rows(self):
        parts = [ContributionRows({"rows": torch.full((UNITS, 1), NORM)}, sets(s).places) for s in range(20)]
        worst = max(
            float(np.linalg.norm(summed(p) - summed(without(p, unit))))
            for p in parts
            for unit in range(UNITS)
        )
        assert worst == pytest.approx(self.bound, rel=1e-12)

    @pytest.mark.parametrize("mutant", [in_all_rows, clipped_behind_the_sum, unclipped, the_mean])
    def test_brute_force_finds_what_is_wrong(self, mutant):
        assert farthest(mutant) > 1.2 * self.bound

    def test_a_unit_alone_decides_which_of_its_rows_count(self):
        places = np.array([[0, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 1]], dtype=bool)
        assert first(places, 2).astype(int).tolist() == [[0, 1, 1, 0, 0], [1, 1, 0, 0, 0], [0, 0, 0, 0, 1]]
        for unit in range(3):
            assert first(places[unit : unit + 1], 2).tolist() == first(places, 2)[unit : unit + 1].tolist()

    def test_no_units(self):
        nothing = ContributionRows({"rows": torch.zeros(0, WIDTH)}, torch.zeros(0, ROWS))
        assert summed(nothing).tolist() == np.zeros((ROWS, WIDTH)).tolist()


class TestDoor:
    def test_the_policys_norm_is_not_put_on_sums(self):
        # a clip of 0.01 behind the sum would leave nothing of it
        parts = sets(2)
        bound = Protection(Plain(), (Clip(0.01),)).bind(SUMS, NAMES)
        replies = {n: bound.seal(parts, scope(), None) for n in NAMES}
        opened = bound.open_sum(replies, scope(), None).total["rows"]
        assert opened.shape == (ROWS, WIDTH)
        assert opened.numpy() == pytest.approx(3 * summed(parts), rel=1e-5, abs=1e-6)

    def test_nothing_goes_round_the_clip_of_the_parts(self):
        with pytest.raises(TypeError, match="'motif_sums': an answer returns ContributionRows, not Upload"):
            plaintext().bind([SUMS], NAMES)["motif_sums"].seal(
                Upload({"rows": torch.ones(2, 2)}), scope(), None
            )
        update = plaintext().bind([Channel("update", Reveal.SUM)], NAMES)["update"]
        with pytest.raises(TypeError, match="'update': an answer returns an Upload, not ContributionRows"):
            update.seal(sets(0), scope(), None)

    def test_what_is_no_declaration(self):
        for rows, norm in ((0, 1.0), (1, 0.0), (1, math.inf), (1, math.nan)):
            with pytest.raises(BadInput, match="give 1 row or more and a positive norm"):
                UnitContribution(rows, norm)
        with pytest.raises(BadInput, match="its unit is not the client"):
            Channel("update", Reveal.SUM, unit_contribution=TOUCHES)
        with pytest.raises(BadInput, match="its values are not exact"):
            Channel("motifs", Reveal.SUM, Unit.GRAPH, exact=True, unit_contribution=TOUCHES)
        with pytest.raises(BadInput, match="one row a graph"):
            ContributionRows({"rows": torch.ones(3, 2)}, torch.ones(2, 4)).packed(Unit.GRAPH)


READERS = ("server", "peers", "outsider")


def multipliers(bound) -> dict[str, float]:
    """The noise that each reader saw the sums with; 0 where it saw them bare."""
    found = bound.releases(ROWS * WIDTH)
    return {reader: found[reader][0].noise_multiplier if reader in found else 0.0 for reader in READERS}


class TestNoise:
    """Noise is scaled to the channel's own bound: sqrt(kappa) times the norm, times the multiplier."""

    wide = ContributionRows({"rows": torch.zeros(2, 4000)}, torch.ones(2, ROWS))

    @pytest.mark.parametrize(("relation", "times"), [("zero-out", 1), ("replace", 2)])
    def test_what_the_client_adds(self, relation, times):
        bound = local_dp(3.0, 1.7, relation).bind([SUMS], NAMES)["motif_sums"]
        noise = np.asarray(bound.seal(self.wide, scope(), None)["data"])
        # 20,000 draws: the standard error of their deviation is 0.5 %
        assert noise.std() == pytest.approx(1.7 * math.sqrt(KAPPA) * NORM * times, rel=0.03)

    def test_what_the_server_adds(self):
        bound = central_dp(3.0, 1.7).bind([SUMS], NAMES)["motif_sums"]
        replies = {n: bound.seal(self.wide, scope(), None) for n in NAMES}
        assert not any(np.any(r["data"]) for r in replies.values())
        opened = bound.open_sum(replies, scope(), None).total["rows"].numpy()
        assert opened.std() == pytest.approx(1.7 * math.sqrt(KAPPA) * NORM, rel=0.03)

    def test_on_the_integer_road(self):
        stages = (Gaussian(1.7), FixedPoint(64.0))
        bound = Protection(Masked(), stages, 2, "masked, noised").bind(SUMS, NAMES)
        grid = self.noised(bound)
        assert grid.std() == pytest.approx(1.7 * math.sqrt(KAPPA) * NORM, rel=0.03)
        assert multipliers(bound) == dict.fromkeys(READERS, pytest.approx(1.7, rel=0.01))

    def noised(self, bound) -> np.ndarray:
        matrix = np.zeros((ROWS, 4000))
        for stage in bound.stages:
            matrix = stage.apply(matrix, scope())
        return bound.stages[-1].undo(matrix, scope())

    def test_against_whom_it_counts(self):
        def found(policy):
            bound = policy.bind([SUMS], NAMES)["motif_sums"]
            assert bound.unit is Unit.GRAPH
            return multipliers(bound)

        about = pytest.approx(2.0, rel=0.01)
        assert found(local_dp(1.0, 2.0)) == dict.fromkeys(READERS, about)
        assert found(central_dp(1.0, 2.0)) == {"server": 0.0, "peers": about, "outsider": about}
        assert found(distributed_dp(1.0, 2.0, quorum=3, limit=9.0)) == dict.fromkeys(READERS, about)
        assert found(plaintext()) == dict.fromkeys(READERS, 0.0)

    def test_parts_that_other_units_move_are_noised_and_not_accounted(self):
        bound = local_dp(1.0, 2.0).bind([TANGLED], NAMES)["motif_sums"]
        assert np.asarray(bound.seal(self.wide, scope(), None)["data"]).std() > 0
        assert bound.releases() == {}
        assert "one graph moves the others' parts too: the noise bounds no graph" in bound.excess
        assert not any(
            "moves the others" in line for line in plaintext().bind([TANGLED], NAMES)["motif_sums"].excess
        )


def charge(channel: str, unit: str = "graph", relation: str = "zero-out", **multipliers: float) -> Charge:
    """With continuous noise, whose epsilon is known exactly; ``all`` stands for every reader."""
    of = dict.fromkeys(READERS, multipliers.pop("all")) if "all" in multipliers else multipliers
    releases = {reader: (GaussianRelease(multiplier),) for reader, multiplier in of.items()}
    return Charge("a", "run", 1, 1, channel, unit, relation, releases)


def epsilon(multipliers: list[float], delta: float) -> float:
    return accounting.epsilon([GaussianRelease(multiplier) for multiplier in multipliers], delta).epsilon


def at(charges: list[Charge], unit: str = "graph", reader: str = "server") -> float:
    return spent(charges, 1e-5, units=OF_GRAPH_SETS)[unit][reader].epsilon


class TestLedger:
    def test_counts_and_sums_by_the_formula(self):
        # mu^2 = kappa (C^2 / ss^2 + 1 / sc^2), in sums' and counts' own units
        kappa, clip, of_sums, of_counts = 8, 50.0, 600.0, 9.0
        mu = math.sqrt(kappa * (clip**2 / of_sums**2 + 1 / of_counts**2))
        earned = [of_counts / math.sqrt(kappa), of_sums / (math.sqrt(kappa) * clip)]
        charges = [charge("motif_counts", all=earned[0]), charge("motif_sums", all=earned[1])]
        found = at(charges)
        assert found == pytest.approx(epsilon([1 / mu], 1e-5), rel=1e-9)
        accountant = PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
        for multiplier in earned:
            accountant.compose(dp.GaussianDpEvent(multiplier))
        assert found == pytest.approx(accountant.get_epsilon(1e-5), abs=2e-3)
        assert at(charges, "client") == math.inf

    def test_by_brute_force_it_moves_it_no_farther_and_some_as_far(self):
        """What a graph turns into when a node of it changes is any row in any places: over all of both."""
        parts, way = sets(4), l2_sensitivity(TOUCHES, "zero-out")
        ends = [
            (torch.tensor(row) * 100, torch.tensor(places))
            for row in ((1.0, 0, 0), (-1.0, 0, 0))
            for places in EVERY
        ]
        worst = max(
            float(np.linalg.norm(summed(replaced(parts, 2, *here)) - summed(replaced(parts, 2, *there))))
            for here in ends
            for there in ends
        )
        assert worst == pytest.approx(2 * way, rel=1e-5)

    def test_a_client_is_worth_half_for_a_graph_of_its_own(self):
        # u and u' lie within the clip: 2 C apart, where u and zero are C apart
        update, sums = charge("update", "client", all=4.0), charge("motif_sums", all=3.0)
        found = at([update, update, sums])
        assert found == pytest.approx(epsilon([2.0, 2.0, 3.0], 1e-5), rel=1e-9)
        swapped = [
            charge("update", "client", "replace", all=4.0),
            charge("motif_sums", relation="replace", all=3.0),
        ]
        assert at(swapped) == pytest.approx(epsilon([4.0, 3.0], 1e-5), rel=1e-9)
        assert at([update, charge("motif_sums")]) == math.inf
        assert "graph" not in spent([update], 1e-5)  # where nobody holds graphs, none is counted
