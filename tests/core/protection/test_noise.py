"""Gaussian noise: its scale, its grid, its side, its room in a ring, its source."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
import random

import numpy as np
import pytest
import torch
from parties import NAMES, introduced, masked_sum, scope
from scipy.stats import kstest

from secure_fedgraph.core.accounting.events import DiscreteRelease, GaussianRelease
from secure_fedgraph.core.carriers.plain import Plain
from secure_fedgraph.core.carriers.secagg.ring_words import centred
from secure_fedgraph.core.carriers.secagg.server import Masked
from secure_fedgraph.core.channel import Channel, Domain, Reveal, UnitContribution
from secure_fedgraph.core.errors import BadInput, Incompatible, Unbound
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.binding import Protection
from secure_fedgraph.core.protection.contracts import BindContext, Sensitivity
from secure_fedgraph.core.protection.discrete_gaussian import discrete_gaussian, reach_of
from secure_fedgraph.core.protection.fixed_point import FixedPoint
from secure_fedgraph.core.protection.gaussian import COARSEST, EXACT, STEPS, Clip, Gaussian
from secure_fedgraph.core.protection.noise_components import NoiseComponents
from secure_fedgraph.core.protection.pooling import clipped, first, pooled
from secure_fedgraph.core.upload import ContributionRows
from secure_fedgraph.policies import distributed_dp

SUM = Channel("update", Reveal.SUM)
EACH = Channel("single", Reveal.EACH)
SUMS = Channel("motif_sums", Reveal.SUM, Unit.GRAPH, unit_contribution=UnitContribution(2, 0.5))
TERMS = BindContext(SUM, NAMES, "zero-out")
SIDES = ("client", "server")


def many(count: int) -> tuple[str, ...]:
    return tuple(f"c{i}" for i in range(count))


@functools.cache
def bound(multiplier: float, l2: float, by: str = "client") -> Gaussian:
    stage, after = Gaussian(multiplier, by=by).bind(Sensitivity(l2, Unit.CLIENT), TERMS)
    assert after == Sensitivity(l2, Unit.CLIENT, noise_added_by=by)
    assert isinstance(stage, Gaussian)
    return stage


@functools.cache
def shared(
    multiplier: float, clients: int = 3, quorum: float = 3, bits: int = 32, norm: float = 1.0, **more: float
) -> Gaussian:
    """The stage of noise in shares, as the recipe binds it."""
    policy = distributed_dp(norm, multiplier, quorum=quorum, bits=bits, **more)
    stage = policy.bind([SUM], many(clients))["update"].stages[1]
    assert isinstance(stage, Gaussian)
    return stage


def scale(stage: Gaussian) -> float:
    """The standard deviation that is counted on, in the values' own unit."""
    return math.sqrt(stage.honest) * stage.sigma * stage.step


def reach(stage: Gaussian) -> int:
    """The largest noise on one upload, in steps."""
    return stage._sampler(stage.sigma).reach


def distance(stage: Gaussian, width: int) -> float:
    """What the drawn noise may be from its ideal, as the events say it."""
    return sum(getattr(event, "total_variation", 0.0) for event in stage.release(width))


def drawn(stage: Gaussian, size: int = 100_000) -> np.ndarray:
    zeros = np.zeros((1, size))
    return stage.undo(stage.apply(zeros, scope()), scope())


class TestScale:
    @pytest.mark.parametrize("by", SIDES)
    @pytest.mark.parametrize(("multiplier", "l2"), [(0.01, 7.0), (1.5, 0.2), (1.5, 3e4), (300.0, 1e-6)])
    def test_at_least_multiplier_times_sensitivity_and_hardly_more(self, multiplier, l2, by):
        found = scale(bound(multiplier, l2, by))
        assert multiplier * l2 <= found <= multiplier * l2 * 1.001

    @pytest.mark.parametrize("by", SIDES)
    def test_what_is_drawn_has_it(self, by):
        # the standard error of a standard deviation of 1e5 draws is 0.22 %: 3 % is 13 of them
        found = drawn(bound(1.5, 0.2, by))
        assert found.std() == pytest.approx(0.3, rel=0.03)
        assert abs(found.mean()) < 0.3 * 6 / math.sqrt(100_000)

    @pytest.mark.parametrize("by", SIDES)
    def test_draws_are_normal(self, by):
        assert kstest(drawn(bound(2.0, 0.5, by), 50_000)[0], "norm").pvalue > 1e-7

    @pytest.mark.parametrize(("relation", "apart"), [("zero-out", 1), ("replace", 2)])
    def test_nobody_types_a_sensitivity(self, relation, apart):
        stage = Protection(Plain(), (Clip(0.5), Gaussian(3.0))).bind(SUM, NAMES, relation).stages[1]
        assert 1.5 * apart <= scale(stage) < 1.501 * apart

    def test_the_event_is_what_was_added_over_what_may_move(self):
        stage = bound(1.5, 0.2)
        (release, *_) = stage.release(40)
        assert release.noise_multiplier == 1.5 <= scale(stage) / 0.2
        assert release == GaussianRelease(1.5)  # rounding what is continuous is post-processing
        assert distance(stage, 40) >= 40 * stage._sampler(stage.sigma).total_variation > 0


class TestShares:
    @pytest.mark.parametrize(
        ("clients", "quorum", "colluders", "honest"),
        [
            (3, 2, 0.0, 1),  # whoever contributes knows its own share: one colluder at least
            (3, 3, 0.1, 2),
            (10, 8, 0.1, 7),
            (10, 8, 0.25, 5),  # 2.5 colluders are 3
            (50, 40, 0.1, 35),
            (50, 0.8, 0.1, 35),
            (7, 0.5, 0.1, 3),  # a quorum of 3.5 is 4
        ],
    )
    @pytest.mark.parametrize("multiplier", [0.3, 20.0])
    def test_a_quorum_without_its_colluders_has_the_whole_noise(
        self, clients, quorum, colluders, honest, multiplier
    ):
        stage = shared(multiplier, clients, quorum, norm=0.7, colluders=colluders)
        assert stage.honest == honest
        counted_on = math.sqrt(honest) * stage.sigma * stage.step
        longest = 0.7 * (1 - 2**-40)  # what the door makes of a row of the norm
        assert multiplier * longest <= counted_on <= multiplier * 0.7 * 1.001
        (event,) = stage.release(10)
        assert isinstance(event, DiscreteRelease)
        assert (event.shares, event.sigma, event.width) == (honest, stage.sigma, 10)
        assert event.noise_multiplier == multiplier <= counted_on / longest
        assert event.total_variation >= 10 * honest * discrete_gaussian(stage.sigma).total_variation

    def test_what_is_drawn_has_it(self):
        stage = shared(2.0, 10, 8)  # 8 survivors, one of them colludes
        shares = [stage.apply(np.zeros((1, 50_000)), scope()) for _ in range(7)]
        assert all(share.dtype == np.int64 for share in shares)
        whole = stage.undo(sum(shares), scope())
        assert whole.std() == pytest.approx(2.0, rel=0.03)
        assert stage.undo(shares[0], scope()).std() == pytest.approx(2.0 / math.sqrt(7), rel=0.03)
        assert kstest(whole[0] / scale(stage), "norm").pvalue > 1e-7

    def test_the_policys_quorum_reaches_the_client(self):
        bound = distributed_dp(1.0, 1.0, quorum=0.8).bind([SUM], many(11))["update"]
        assert bound.protection.quorum == bound.bind_context.quorum == bound.carrier.quorum == 9

    def test_it_is_whole_in_a_sum_only(self):
        stage = Gaussian(1.0, "shares")
        with pytest.raises(Incompatible, match="'update'"):
            stage.bind(Sensitivity(1.0), TERMS)  # no ring
        with pytest.raises(Incompatible, match="'single'"):
            stage.bind(Sensitivity(1.0), BindContext(EACH, NAMES, "zero-out", 2**32, 3))
        with pytest.raises(Incompatible, match=r"'single'.*distributed_dp"):
            distributed_dp(1.0, 1.0).bind([EACH], NAMES)

    def test_noise_in_shares_is_refused_where_single_uploads_are_read(self):
        class Words(Plain):
            """Adds in a ring, and hides nothing."""

            takes = gives = Domain.RING
            reveals = frozenset({Reveal.SUM})
            ring = 2**32

        stages = (Clip(1.0, whole=True), Gaussian(1.0, "shares"))
        with pytest.raises(Incompatible, match=r"shares.*by='client'"):
            Protection(Words(), stages, 2).bind(SUM, many(10))
        assert Protection(Masked(), stages, 3).bind(SUM, many(10)).computational

    def test_nobody_is_left_beside_the_colluders(self):
        alone = BindContext(SUM, many(10), "zero-out", 2**32, 2)
        with pytest.raises(BadInput, match=r"protection\.quorum"):
            Gaussian(1.0, "shares", colluders=0.2).bind(Sensitivity(1.0), alone)
        assert shared(1.0, 10, 2, colluders=0.2).honest == 2  # of four: masks open no sum of fewer


class TestGrid:
    @pytest.mark.parametrize("by", SIDES)
    @pytest.mark.parametrize(("multiplier", "l2"), [(0.013, 0.7), (1.0, 1.0), (55.5, 123.4)])
    def test_as_many_steps_to_a_deviation_whatever_it_is(self, multiplier, l2, by):
        stage = bound(multiplier, l2, by)
        assert stage.public() == {"grid": stage.step, "sigma": stage.sigma}
        if by == "server":
            assert STEPS <= stage.sigma <= 2 * STEPS
            assert math.frexp(stage.step)[0] == 0.5
            assert 1 <= stage.sigma * stage.step / (multiplier * l2) < 1 + 1 / STEPS
            return
        assert stage.sigma == STEPS
        assert stage.step == pytest.approx(multiplier * l2 / STEPS, rel=1e-9)

    @pytest.mark.parametrize("multiplier", [0.7, 1.0, 1.1])
    def test_sums_over_many_units_are_whole_on_the_wire_too(self, multiplier):
        """Steps of 0.7 / 4096 above 2**23 of them are not: a single-precision product is off by one."""
        stage = Gaussian(multiplier, "server").bind(Sensitivity(1.0), BindContext(SUMS, NAMES, "zero-out"))[0]
        steps = np.arange(2**23, 2**24, 997, dtype=np.float64)
        wire = (steps * stage.step).astype(np.float32).astype(np.float64)
        assert np.array_equal(wire / stage.step, steps)

    @pytest.mark.parametrize("by", SIDES)
    def test_what_leaves_is_whole_steps_whatever_came(self, by):
        stage = bound(1.3, 1.0, by)
        rows = np.random.default_rng(0).normal(size=(5, 1000)).astype(np.float32) / 40
        for out in (stage.apply(rows, scope()), stage.undo(stage.apply(rows, scope()), scope())):
            steps = out / stage.step
            assert np.abs(steps - np.rint(steps)).max() < 1e-9 * np.abs(steps).max()

    def test_whole_steps_survive_the_way_to_the_server(self):
        """Single precision holds every number of steps that a client may send, so sums of them are exact."""
        stage = bound(0.001, 1.0, "server")
        edge = np.array([[1.0, -1.0, stage.step, np.nextafter(1.0, 0.0)]])
        steps = np.rint(stage.apply(edge, scope()).astype(np.float32).astype(np.float64) / stage.step)
        assert np.array_equal(steps, np.rint(stage.apply(edge, scope()) / stage.step))
        assert stage.undo(stage.apply(edge, scope()), scope()).shape == edge.shape
        assert np.abs(steps).max() < EXACT["server"]

    def test_what_single_precision_cannot_hold_is_refused(self):
        """Noise of a millionth of the clip has more steps to the clip than a float32 has integers."""
        with pytest.raises(Incompatible, match="have no room for values up to 1 and noise of 1e-06"):
            Gaussian(1e-6, "server").bind(Sensitivity(1.0), TERMS)
        assert bound(1e-6, 1.0).sigma == STEPS  # in the client doubles hold them

    @pytest.mark.parametrize("make", [lambda: bound(1.0, 1.0, "server"), lambda: silent(shared(1.0))])
    def test_truncation_never_lengthens(self, make):
        stage = make()
        rows = np.random.default_rng(1).normal(size=(300, 20)) * np.logspace(-6, -0.7, 300)[:, None]
        rows = Clip(1.0).apply(rows.astype(np.float32), scope()).astype(np.float64)
        out = stage.apply(rows, scope()) * (stage.step if stage.by == "shares" else 1.0)
        assert np.all(np.abs(out) <= np.abs(rows))
        assert np.all(np.abs(rows - out) < stage.step)
        assert not np.any((out != 0) & (np.sign(out) != np.sign(rows)))
        assert np.linalg.norm(out, axis=1).max() <= 1.0
        # a control: rounding to the nearest step does lengthen
        nearest = np.rint(rows / stage.step) * stage.step
        assert np.any(np.linalg.norm(nearest, axis=1) > np.linalg.norm(rows, axis=1))

    @pytest.mark.parametrize("limit", [0.001, 0.25])
    def test_coordinates_beyond_the_limit_are_cut(self, limit):
        stage, _ = Gaussian(1.0, "server", limit).bind(Sensitivity(1.0), TERMS)
        out = stage.apply(np.array([[0.9, -0.9, limit / 2]]), scope())
        assert np.abs(out).max() <= limit
        assert out[0] == pytest.approx([limit, -limit, limit / 2], abs=stage.step)


class Silent:
    """A sampler that adds one value to everything."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __call__(self, shape: tuple[int, ...], keys: object = ()) -> np.ndarray:
        return np.full(shape, self.value, dtype=np.int32)


def silent(stage: Gaussian, value: int = 0) -> Gaussian:
    stage = dataclasses.replace(stage)  # others keep theirs
    object.__setattr__(stage, "_draw", Silent(value))
    return stage


CASES = [
    (16, 3, 0.2),
    (16, 9, 1.0),
    (16, 20, 1.0),
    (16, 30, 1e6),
    (20, 3, 1.0),
    (20, 100, 0.2),
    (32, 3, 1e6),
    (32, 1000, 1.0),
]


class TestRing:
    """The noise has a largest value and uploads have one, so that no sum of all clients leaves the ring."""

    @pytest.mark.parametrize(("bits", "clients", "multiplier"), CASES)
    @pytest.mark.parametrize("sign", [1, -1])
    def test_the_most_that_all_may_send_does_not_wrap(self, bits, clients, multiplier, sign):
        stage = shared(multiplier, clients, 0.9, bits)
        farthest = silent(stage, sign * reach(stage))
        upload = np.array([[sign * 1.0, sign * 1e30, sign * math.inf, 0.0]])
        words = farthest.apply(upload, scope())
        total = words * clients
        assert np.abs(total).max() < 2 ** (bits - 1)
        modulus = (total % 2**bits).astype(np.uint16 if bits == 16 else np.uint32)
        assert np.array_equal(centred(modulus.reshape(-1), bits), total.reshape(-1))

    @pytest.mark.parametrize(("bits", "clients", "multiplier"), CASES)
    def test_the_grid_is_no_coarser_than_that_takes(self, bits, clients, multiplier):
        stage = shared(multiplier, clients, 0.9, bits)
        assert stage.sigma in [2**k for k in range(6, 13)]
        if stage.sigma < STEPS:  # a finer grid would have been taken if it fitted
            finer = 2 * (stage.limit / stage.step) + discrete_gaussian(2 * stage.sigma).reach
            assert clients * (finer + 2) >= 2 ** (bits - 1)
        assert COARSEST <= stage.sigma <= STEPS

    @pytest.mark.parametrize("bits", [16, 20, 32])
    @pytest.mark.parametrize("sign", [1, -1])
    def test_nor_under_real_masks(self, bits, sign):
        stage = shared(1.0, 3, 3, bits)
        farthest = silent(stage, sign * reach(stage))
        words = farthest.apply(np.array([[sign * 1e30, 0.0, -0.0]]), scope())
        opened = masked_sum(introduced(), Masked(bits=bits, quorum=3), dict.fromkeys(NAMES, words))
        assert np.array_equal(opened, 3 * words)
        assert stage.undo(opened, scope())[0, 0] == 3 * words[0, 0] * stage.step

    def test_a_ring_that_is_too_small_is_refused_with_the_mend(self):
        with pytest.raises(Incompatible, match="'update'"):
            shared(1.0, 50, 40, 16)
        # the noise fits, the values do not, until they are cut
        with pytest.raises(Incompatible, match=r"no room for values up to 1 and noise of 0.000707"):
            shared(0.001, 3, 3, 16)
        assert shared(0.001, 3, 3, 16, limit=0.01).limit == 0.01

    def test_sums_over_units_need_a_largest_value(self):
        policy = distributed_dp(1.0, 1.0, quorum=3)
        with pytest.raises(BadInput, match="'motif_sums'"):
            policy.bind([SUMS], NAMES)
        stage = distributed_dp(1.0, 1.0, quorum=3, limit=4.0).bind([SUMS], NAMES)["motif_sums"].stages[1]
        assert stage.limit == 4.0

    @pytest.mark.parametrize("by", SIDES)
    def test_elsewhere_sums_over_units_are_cut_where_numbers_end_to_be_exact(self, by):
        stage = Gaussian(1.0, by).bind(Sensitivity(0.7), BindContext(SUMS, NAMES, "zero-out"))[0]
        assert 0.7 < stage.limit <= EXACT[by] * stage.step
        cut = stage.apply(np.array([[1e300, -1e300]]), scope()) / stage.step
        assert np.abs(cut).max() <= EXACT[by] * (1 + 1e-9)


class TestPooledOnTheGrid:
    """Sums over units: each part is rounded before anything is added up, so a unit moves them by no more."""

    contribution = UnitContribution(2, 0.5)
    bound = math.sqrt(2) * 0.5

    def parts(self, seed: int) -> ContributionRows:
        generator = torch.Generator().manual_seed(seed)
        places = (torch.rand(7, 5, generator=generator) < 0.6).float()
        return ContributionRows({"rows": torch.randn(7, 3, generator=generator)}, places)

    def farthest(self, pool, grid: float) -> float:
        worst = 0.0
        for parts, unit in itertools.product(map(self.parts, range(20)), range(7)):
            keep = torch.arange(7) != unit
            less = ContributionRows({"rows": parts.values["rows"][keep]}, parts.places[keep])
            moved = pool(parts, self.contribution, grid) - pool(less, self.contribution, grid)
            worst = max(worst, float(np.linalg.norm(moved)))
        return worst

    @staticmethod
    def behind_the_sum(parts: ContributionRows, contribution: UnitContribution, grid: float) -> np.ndarray:
        return np.trunc(pooled(parts, contribution, Unit.GRAPH)[1] / grid) * grid

    @staticmethod
    def to_the_nearest(parts: ContributionRows, contribution: UnitContribution, grid: float) -> np.ndarray:
        _, matrix, places = parts.packed(Unit.GRAPH)
        rounded = np.rint(clipped(matrix, contribution.norm).astype(np.float64) / grid) * grid
        return first(places, contribution.rows).T.astype(np.float64) @ rounded

    @pytest.mark.parametrize("grid", [2.0**-2, 0.07, 2.0**-12])
    def test_no_unit_moves_more(self, grid):
        def pool(parts, contribution, grid):
            return pooled(parts, contribution, Unit.GRAPH, grid)[1]

        assert 0 < self.farthest(pool, grid) <= self.bound
        sums = pool(self.parts(0), self.contribution, grid) / grid
        assert np.abs(sums - np.rint(sums)).max() < 1e-9

    @pytest.mark.parametrize("mutant", [behind_the_sum, to_the_nearest])
    def test_rounded_elsewhere_one_does(self, mutant):
        assert self.farthest(mutant.__func__, 0.25) > 1.05 * self.bound

    def test_the_door_takes_the_noises_grid(self):
        """Few steps to a deviation, so that rounding shows: by the server, what leaves is not noised."""
        made = Protection(Plain(), (Gaussian(1.0, "server"),)).bind(SUMS, NAMES)
        stage = dataclasses.replace(made.stages[0], step=0.25, sigma=3, limit=1e6)
        made = dataclasses.replace(made, stages=(stage,))

        def sent(parts, contribution, grid):
            return np.asarray(made.seal(parts, scope(), None)["data"], dtype=np.float64)

        assert 0 < self.farthest(sent, 0.25) <= self.bound
        # whole steps; at most one fewer than the sums have, since the door shortens by a hair and truncates
        expected = pooled(self.parts(3), SUMS.unit_contribution, Unit.GRAPH, 0.25)[1].reshape(-1) / 0.25
        steps = sent(self.parts(3), None, 0).reshape(-1) / 0.25
        assert np.array_equal(steps, np.rint(steps))
        assert np.all(np.abs(expected) - np.abs(steps) <= 1)
        assert np.all(np.abs(steps) <= np.abs(expected))
        assert np.abs(expected).max() > 1

    def test_behind_fixed_points_too(self):
        stages = (Gaussian(1.0), FixedPoint(64.0))
        made = Protection(Masked(), stages, 2, "masked, noised").bind(SUMS, NAMES)
        assert made.stages[0].grid == made.stages[0].step > 0
        assert made.stages[1].grid == 0.0


class TestSides:
    def test_each_adds_its_own_and_leaves_the_others(self):
        zeros = np.zeros((1, 1000))
        # one draw in 2.5 * 4096 is a zero: of a thousand hardly ever ten
        assert np.count_nonzero(bound(1.0, 1.0).apply(zeros, scope())) > 990
        assert np.count_nonzero(bound(1.0, 1.0).undo(zeros, scope())) == 0
        assert np.count_nonzero(bound(1.0, 1.0, "server").apply(zeros, scope())) == 0
        assert np.count_nonzero(bound(1.0, 1.0, "server").undo(zeros, scope())) > 990
        assert np.count_nonzero(shared(1.0).apply(zeros, scope())) > 990
        assert np.count_nonzero(shared(1.0).undo(zeros, scope())) == 0

    def test_against_whom(self):
        everybody = {"server", "peers", "outsider"}
        assert bound(1.0, 1.0).noise().against == everybody
        assert bound(1.0, 1.0, "server").noise().against == everybody - {"server"}
        assert shared(1.0).noise().against == everybody

    def test_only_shares_rest_on_the_masks(self):
        assert shared(1.0).noise().computational
        assert not any(bound(1.0, 1.0, by).noise().computational for by in SIDES)

    def test_what_is_on_a_single_upload(self):
        assert [Gaussian(1.0, by).effect_words for by in ("client", "server", "shares")] == [
            "noised",
            "",
            "with a share of the noise",
        ]


@pytest.mark.parametrize(
    "make", [lambda: bound(1.0, 1.0), lambda: bound(1.0, 1.0, "server"), lambda: shared(1.0)]
)
def test_no_seed_repeats_it(make):
    draws = []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        draws.append(drawn(make(), 1000))
    # two draws are the same step once in 3.5 * 4096
    assert np.count_nonzero(draws[0] == draws[1]) < 10


class TestRefused:
    @pytest.mark.parametrize("multiplier", [0.0, -1.0, math.inf, math.nan])
    def test_multipliers_that_are_none(self, multiplier):
        with pytest.raises(BadInput, match="--multiplier"):
            Gaussian(multiplier)

    def test_by_nobody_known(self):
        with pytest.raises(BadInput, match="'peer'"):
            Gaussian(1.0, by="peer")

    @pytest.mark.parametrize("limit", [0.0, -1.0, math.nan])
    def test_limits(self, limit):
        with pytest.raises(BadInput, match="the largest coordinate is a positive number"):
            Gaussian(1.0, limit=limit)

    @pytest.mark.parametrize("colluders", [-0.1, 1.0, math.nan])
    def test_colluders(self, colluders):
        with pytest.raises(BadInput, match="a share of the cohort, from 0 to below 1"):
            Gaussian(1.0, "shares", colluders=colluders)

    @pytest.mark.parametrize("by", ["client", "server", "shares"])
    def test_unbounded(self, by):
        with pytest.raises(Unbound, match="'update'"):
            Gaussian(1.0, by).bind(Sensitivity(), TERMS)

    @pytest.mark.parametrize("first", SIDES)
    @pytest.mark.parametrize("second", SIDES)
    def test_noise_on_noise(self, first, second):
        """The second's largest value would cut the first's noise off."""
        with pytest.raises(Incompatible, match=f"'update': noise is added by the {first} already: keep one"):
            Protection(Plain(), (Clip(1.0), Gaussian(3.0, first), Gaussian(4.0, second))).bind(SUM, NAMES)


class TestParts:
    """A share of the noise in parts, of which what a sum does not need is taken off again."""

    ZEROS = np.zeros((1, 100_000))

    def opened(self, stage: Gaussian, uploads: int, silent: int = 0) -> np.ndarray:
        """A sum of zeros, of which all but so many clients hand out what it does not need."""
        total, unneeded = np.zeros(self.ZEROS.shape, dtype=np.int64), stage.noise_components.unneeded(uploads)
        for client in range(uploads):
            keys = [os.urandom(32) for _ in stage.noise_components.removable]
            total = total + stage.apply_with_keys(self.ZEROS, scope(), keys)
            if client >= silent:
                total = stage.take_off(total, keys[len(keys) - unneeded :])
        return stage.undo(total, scope())

    @pytest.mark.parametrize(("uploads", "silent"), [(10, 0), (10, 2), (9, 0), (9, 9), (8, 0)])
    def test_what_is_left_is_what_the_stage_says(self, uploads, silent):
        stage = shared(2.0, 10, 8)
        left = self.opened(stage, uploads, silent)
        # the standard error of a standard deviation of 1e5 draws is 0.22 %: 2 % is nine of them
        assert left.std() == pytest.approx(stage.deviation(uploads, silent), rel=0.02)
        assert kstest(left[0, ::10] / stage.deviation(uploads, silent), "norm").pvalue > 1e-7

    @pytest.mark.parametrize("uploads", [8, 9, 10])
    def test_without_one_colluder_it_is_the_whole_noise_and_hardly_more(self, uploads):
        stage = shared(2.0, 10, 8)
        without_one = stage.deviation(uploads) * math.sqrt((uploads - 1) / uploads)
        assert 2.0 * (1 - 1e-12) <= without_one <= 2.0 * 1.001
        before = shared(2.0, 10, 8, remove_excess=False).deviation(uploads)
        assert stage.deviation(uploads) <= before * (1 + 1e-12)

    def test_with_all_keys_the_base_is_left_exactly(self):
        stage, keys = shared(2.0, 10, 8), [bytes([i]) * 32 for i in range(2)]
        values = stage.apply_with_keys(np.zeros((1, 50_000)), scope(), keys)
        alone = stage.take_off(values, keys)
        assert alone.std() == pytest.approx(stage.noise_components.base, rel=0.03)
        assert np.array_equal(stage.take_off(stage.take_off(values, keys), []), alone)
        one = stage.take_off(values, keys[1:])  # the last ones first
        assert one.std() == pytest.approx(math.hypot(*stage.noise_components.all[:2]), rel=0.03)

    def test_another_key_only_adds_noise(self):
        stage, keys = shared(2.0, 10, 8), [os.urandom(32) for _ in range(2)]
        values = stage.apply_with_keys(self.ZEROS, scope(), keys)
        wrong = stage.take_off(values, [os.urandom(32) for _ in keys])
        assert wrong.std() > stage.sigma * 1.05 > values.std()

    def test_the_charge_is_that_of_one_part(self):
        stage, before = shared(2.0, 10, 8), shared(2.0, 10, 8, remove_excess=False)
        (now,), (then,) = stage.release(1000), before.release(1000)
        assert dataclasses.replace(now, total_variation=0.0) == dataclasses.replace(then, total_variation=0.0)
        assert then.total_variation < now.total_variation < 3 * then.total_variation < 1e-20

    def test_the_distance_counts_every_part_and_their_sum(self):
        """Of seven shares of three parts, eight of two, or nine of one: the most; and their sum's own."""
        stage = shared(2.0, 10, 8)
        widths = stage.noise_components.all
        drawn = max(
            shares * sum(discrete_gaussian(width).total_variation for width in widths[:count])
            for count, shares in ((1, 9), (2, 8), (3, 7))
        )
        assert stage.release(1)[0].total_variation == pytest.approx(drawn, rel=1e-12)
        narrow = dataclasses.replace(
            stage, noise_components=NoiseComponents(stage.noise_components.base, (2.0, 2.0), (10, 9))
        )
        assert narrow.release(1)[0].total_variation > 5 * 20 * math.exp(-4 * math.pi**2)

    @pytest.mark.parametrize("bits", [16, 20, 32])
    def test_every_ring_has_room_or_the_share_is_one_part(self, bits):
        for clients in (3, 10, 20, 30, 100):
            try:
                stage = shared(1.0, clients, 0.8, bits)
            except Incompatible:
                continue
            widest = sum(map(reach_of, stage.noise_components.all)) + stage.limit / stage.step
            assert clients * widest < 2 ** (bits - 1)
        assert bool(shared(1.0, 10, 0.8, bits).noise_components.removable)

    def test_a_ring_without_room_falls_back_publicly(self):
        stage = shared(1.0, 30, 0.8, 16)
        assert not stage.noise_components.removable
        assert stage == dataclasses.replace(shared(1.0, 30, 0.8, 16, remove_excess=False), remove_excess=True)

    def test_where_nobody_hands_out_keys_there_is_one_part(self):
        def parts(**more: float) -> tuple[float, ...]:
            return shared(1.0, 40, 0.5, **more).noise_components.removable

        assert parts()
        assert not parts(remove_excess=False)
        # of 3000 more may collude than a client has to mask with: parts of a sum could open
        assert not shared(1.0, 3000, 0.8).noise_components.removable
