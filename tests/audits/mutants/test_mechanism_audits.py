"""Every noised upload path against worst-case neighbours: never above its claim, near it, and mutants caught.

The noise is the operating system's: a right mechanism is accused once in ten thousand audits, by design.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
import torch
from parties import NAMES, session
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.audits.empirical_dp.epsilon import Audit
from secure_fedgraph.audits.empirical_dp.mechanisms import Transparent, audit, centred, claims, view
from secure_fedgraph.audits.empirical_dp.worst_cases import (
    Neighbours,
    client_rows,
    long_record,
    pooled_parts,
    sampled_part,
    surely_taken,
)
from secure_fedgraph.core.channel import (
    Channel,
    Reveal,
    UnitContribution,
    UnitContributionMoments,
    UnitContributionSampled,
)
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Reader, Unit
from secure_fedgraph.core.protection import binding, moments, pooling
from secure_fedgraph.core.protection import gaussian as clip
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.contracts import Noise, Sensitivity
from secure_fedgraph.core.protection.gaussian import Clip, Gaussian
from secure_fedgraph.core.upload import ContributionRows, Upload
from secure_fedgraph.policies import central_dp, distributed_dp, local_dp, masked
from secure_fedgraph.privacy.policy import Policy
from secure_fedgraph.privacy.spent import spent

DELTA, EPSILON, NORM = 1e-5, 4.0, 1.5
MULTIPLIER = float(dp.get_sigma_gaussian(EPSILON, DELTA))
UPDATE = Channel("update", Reveal.SUM)
SINGLE = Channel("single", Reveal.EACH)
MOMENTS, CLASS_SUMS = (
    Channel(
        "moments",
        Reveal.SUM,
        unit=Unit.NODE,
        unit_contribution=UnitContributionMoments(targets=0.5, records=64, second=second),
    )
    for second in (True, False)
)
SUMS = Channel("prototypes", Reveal.SUM, unit=Unit.GRAPH, unit_contribution=UnitContribution(3, 0.7))
SAMPLED = Channel(
    "step", Reveal.SUM, unit=Unit.NODE, unit_contribution=UnitContributionSampled(0.7, rate=0.1, records=640)
)
OTHERS = NAMES[1:]


def fitted(policy: Policy, channel: Channel, clients: tuple[str, ...] = NAMES) -> Bound:
    return policy.bind((channel,), clients)[channel.name]


def local(channel: Channel = UPDATE, relation: str = "zero-out") -> Bound:
    return fitted(local_dp(NORM, MULTIPLIER, relation), channel)


def central(channel: Channel = UPDATE, relation: str = "zero-out", clients: tuple[str, ...] = NAMES) -> Bound:
    return fitted(central_dp(NORM, MULTIPLIER, relation), channel, clients)


def one_tensor(bound: Bound) -> Neighbours:
    return client_rows(bound, NORM, tensors=1)


# --- right mechanisms


ROADS: dict[str, tuple[Any, Any, str, tuple[str, ...], int, float]] = {
    # name -> protection, neighbours, reader, colluders, trials in the fast suite, the share that they reach
    "an update noised by the client": (local, one_tensor, "server", (), 16_000, 0.8),
    "an update noised by the server": (
        lambda: central(clients=NAMES[:2]),
        one_tensor,
        "outsider",
        (),
        5_000,
        0.6,
    ),
    "a single upload, replaced": (lambda: local(SINGLE, "replace"), one_tensor, "server", (), 5_000, 0.6),
    "sums over graphs noised by the client": (lambda: local(SUMS), pooled_parts, "server", (), 40_000, 0.8),
    "moments of records noised by the client": (
        lambda: local(MOMENTS),
        long_record,
        "server",
        (),
        16_000,
        0.8,
    ),
    "class sums of records, replaced": (
        lambda: local(CLASS_SUMS, "replace"),
        long_record,
        "server",
        (),
        5_000,
        0.6,
    ),
    "a sampled sum with the unit in it": (
        lambda: surely_taken(local(SAMPLED)),
        sampled_part,
        "server",
        (),
        16_000,
        0.8,
    ),
    "sums over graphs, replaced": (lambda: local(SUMS, "replace"), pooled_parts, "server", (), 20_000, 0.8),
    "sums over graphs noised by the server": (
        lambda: central(SUMS),
        pooled_parts,
        "peers",
        OTHERS,
        20_000,
        0.8,
    ),
}


def run(name: str, trials: int) -> Audit:
    make, neighbours, reader, colluders, *_ = ROADS[name]
    bound = make()
    return audit(bound, neighbours(bound), reader, trials=trials, colluders=colluders)


@pytest.mark.parametrize("name", ROADS)
def test_the_claim_holds_and_is_tight(name):
    *_, trials, share = ROADS[name]
    found = run(name, trials)
    assert found.claim == pytest.approx(EPSILON, abs=1e-3)
    assert not found.broken
    assert found.reached >= share
    assert found.lower.ceiling > 5 * EPSILON  # a broken one would have shown


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ROADS)
def test_a_hundred_thousand_calls(name):
    found = run(name, 100_000)
    assert not found.broken
    assert found.reached >= 0.9
    assert found.any_noise.epsilon < found.lower.epsilon


@pytest.mark.parametrize("multiplier", [0.5, 4.0])
def test_other_claims_hold_too(multiplier):
    bound = fitted(local_dp(NORM, multiplier), SUMS)
    found = audit(bound, pooled_parts(bound), "server", trials=60_000)
    assert not found.broken
    assert found.lower.epsilon > 0.35 * found.claim


@pytest.mark.parametrize(
    ("mutant", "about"),
    [
        ("the target's part left out", "norm"),
        ("off-diagonals weighted twice", "OFF"),
        ("records not clipped", "clipped"),
    ],
)
def test_wrong_moments_are_refuted(mutant, about, monkeypatch):
    """By name: what one record moves is understated, or not enforced."""
    if about == "norm":
        channel = replace(MOMENTS, unit_contribution=replace(MOMENTS.unit_contribution, targets=2.0))
        object.__setattr__(channel.unit_contribution, "norm", 1 / 64)
    else:
        channel = MOMENTS
        wrong = 2 * moments.ON if about == "OFF" else lambda rows, norm: rows
        monkeypatch.setattr(moments, about, wrong)
    bound = local(channel)
    assert audit(bound, long_record(bound), "server", trials=16_000).broken, mutant


def test_the_sum_hides_more_where_nobody_colludes():
    # three clients' noise in the sum: the claim is one client's, so it holds and is not tight
    bound = local(SUMS)
    alone = audit(bound, pooled_parts(bound), "peers", trials=20_000)
    together = audit(bound, pooled_parts(bound), "peers", trials=20_000, colluders=OTHERS)
    assert not alone.broken
    assert not together.broken
    assert alone.reached < 0.6 < 0.75 < together.reached


def test_the_server_of_central_noise_is_promised_nothing_and_sees_all():
    bound = central()
    found = audit(bound, client_rows(bound, NORM), "server", trials=500)
    assert found.claim == math.inf
    assert not found.broken
    assert found.lower.epsilon == found.lower.ceiling
    assert math.isnan(found.reached)


def test_the_claim_is_the_ledgers():
    for policy, channel, upload in (
        (local_dp(NORM, 1.3), UPDATE, Upload({"w": torch.ones(3)})),
        (central_dp(NORM, 1.3), UPDATE, Upload({"w": torch.ones(3)})),
        (local_dp(NORM, 1.3, "replace"), SUMS, ContributionRows({"w": torch.ones(2, 3)}, torch.ones(2, 4))),
    ):
        made = session(policy, (channel,), algorithm=_answering(channel, upload)).set_up()
        for client in made.clients.values():  # of two nodes
            client.graph = client._own = Data(
                x=torch.zeros(2, 1), edge_index=torch.zeros(2, 0, dtype=torch.long)
            )
        made.round().reduce(channel, {})
        (unit,) = {channel.unit.value}
        told = spent([made.ledger.charges[0]], DELTA, units=(unit,))[unit]
        charged = {reader: pytest.approx(found.epsilon, rel=1e-6) for reader, found in told.items()}
        assert claims(fitted(policy, channel), DELTA) == charged


def _answering(channel: Channel, upload: Upload | ContributionRows) -> Algorithm:
    class One(Algorithm):
        name = "one"
        CHANNEL = channel

        @channel.answer
        def work(self, client: Any, given: Any) -> Any:
            return upload

    return One()


# --- mutants


DRAW = Gaussian._draw


def no_noise(patch):
    patch.setattr(Gaussian, "_draw", lambda self, shape, keys=(): np.zeros(shape))


def half_noise(patch):
    patch.setattr(Gaussian, "_draw", lambda self, shape, keys=(): DRAW(self, shape, keys) // 2)


def seeded_noise(patch):
    patch.setattr(
        Gaussian,
        "_draw",
        lambda self, shape, keys=(): self.sigma * np.random.default_rng(0).standard_normal(shape),
    )


def one_draw_for_all(patch):
    # one number a message, added everywhere: whoever subtracts two values is rid of it
    patch.setattr(Gaussian, "_draw", lambda self, shape, keys=(): np.full(shape, DRAW(self, (1, 1))[0, 0]))


def clip_skipped(patch):
    patch.setattr(clip, "clipped", lambda matrix, norm: matrix)


def clip_by_layer(patch):
    def by_layer(matrix, norm):
        return np.concatenate([pooling.clipped(layer, norm) for layer in np.split(matrix, 4, axis=1)], axis=1)

    patch.setattr(clip, "clipped", by_layer)


def clip_after_the_noise(patch):
    patch.setattr(Clip, "bind", lambda self, *_: (self, Sensitivity(self.norm, Unit.CLIENT)))
    kept = Gaussian.apply
    patch.setattr(Gaussian, "apply", lambda self, matrix, scope: clip.clipped(kept(self, matrix, scope), 99))
    patch.setattr(clip.Clip, "apply", lambda self, matrix, scope: matrix)


def replaced_as_zeroed(patch):
    patch.setattr(Clip, "bind", lambda self, *_: (self, Sensitivity(self.norm, Unit.CLIENT)))


def mean_on_the_sum(patch):
    kept = Gaussian.bind

    def bind(self, sensitivity, context):
        return kept(self, replace(sensitivity, l2=sensitivity.l2 / len(context.clients)), context)

    patch.setattr(Gaussian, "bind", bind)


def parts_not_clipped(patch):
    patch.setattr(pooling, "clipped", lambda matrix, norm: matrix)
    patch.setattr(pooling, "_factors", lambda matrix, norm: None)


def in_any_number_of_rows(patch):
    patch.setattr(pooling, "first", lambda places, most: places)


def of_one_row(patch):
    patch.setattr(binding, "l2_sensitivity", lambda contribution, relation: contribution.norm)


def of_the_client(patch):
    # the clip of a client's upload as the sensitivity of one graph's part
    patch.setattr(binding, "l2_sensitivity", lambda contribution, relation: contribution.norm / 2)


def server_noise_against_the_server(patch):
    patch.setattr(Gaussian, "noise", lambda self: Noise(self.release, frozenset(Reader)))


def rows(bound: Bound) -> Neighbours:
    return client_rows(bound, NORM)


MUTANTS: dict[str, tuple[Any, Any, Any, str]] = {
    # what is wrong -> how, protection, neighbours, reader
    "the client's noise is not added": (no_noise, local, rows, "server"),
    "the server's noise is not added": (no_noise, central, rows, "outsider"),
    "the client's noise is halved": (half_noise, local, rows, "server"),
    "the server's noise is halved": (half_noise, central, rows, "outsider"),
    "the noise follows a seed": (seeded_noise, local, rows, "server"),
    "one draw serves all values": (one_draw_for_all, local, rows, "server"),
    "the clip is skipped": (clip_skipped, local, rows, "server"),
    "the clip is skipped, noise by the server": (clip_skipped, central, rows, "outsider"),
    "the clip is taken layer by layer and counted once": (clip_by_layer, local, rows, "server"),
    "the clip follows the noise": (clip_after_the_noise, local, rows, "server"),
    "a replaced unit counts as a zeroed one": (
        replaced_as_zeroed,
        lambda: local(relation="replace"),
        rows,
        "server",
    ),
    "the sum gets the mean's noise": (mean_on_the_sum, central, rows, "outsider"),
    "parts are not clipped": (parts_not_clipped, lambda: local(SUMS), pooled_parts, "server"),
    "a graph is in any number of rows": (in_any_number_of_rows, lambda: local(SUMS), pooled_parts, "server"),
    "the sensitivity is one row's": (of_one_row, lambda: local(SUMS), pooled_parts, "server"),
    "the sensitivity is another unit's": (of_the_client, lambda: central(SUMS), pooled_parts, "outsider"),
    "sampled parts are not clipped": (
        parts_not_clipped,
        lambda: surely_taken(local(SAMPLED)),
        sampled_part,
        "server",
    ),
    "a replaced sampled part counts as a zeroed one": (
        of_one_row,
        lambda: surely_taken(local(SAMPLED, "replace")),
        sampled_part,
        "server",
    ),
    "noise for graphs is not added": (no_noise, lambda: local(SUMS), pooled_parts, "server"),
    "noise for graphs is halved": (half_noise, lambda: local(SUMS), pooled_parts, "server"),
    "the server's noise counts against the server": (
        server_noise_against_the_server,
        central,
        rows,
        "server",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name, monkeypatch):
    wrong, make, neighbours, reader = MUTANTS[name]
    wrong(monkeypatch)
    bound = make()
    found = audit(
        bound, neighbours(bound), reader, trials=5_000 if bound.channel.unit_contribution else 1_500
    )
    assert found.claim == pytest.approx(EPSILON, abs=1e-3)  # it goes on claiming what it claimed
    assert found.broken


# --- noise in shares, under masks


def in_shares(channel: Channel) -> Bound:
    """Six clients, a quorum of three, one colluder tolerated: two honest shares are sure to be in a sum."""
    policy = distributed_dp(NORM, MULTIPLIER, quorum=3, colluders=1 / 6, limit=50.0)
    return fitted(policy, channel, tuple(f"owner-{i}" for i in range(6)))


def sized_by_everybody(patch):
    patch.setattr(Gaussian, "_honest", lambda self, context: len(context.clients))


@pytest.mark.parametrize(("channel", "worst"), [(SAMPLED, sampled_part), (CLASS_SUMS, long_record)])
def test_shares_of_a_step_that_are_too_small_are_caught(channel, worst, monkeypatch):
    """Shares sized by all six clients, in a sum of three of whom one colludes."""
    bound = surely_taken(in_shares(channel))
    right = audit(bound, worst(bound, answering=3), "server", trials=2_000, colluders=("owner-2",))
    assert not right.broken
    sized_by_everybody(monkeypatch)
    bound = surely_taken(in_shares(channel))
    wrong = audit(bound, worst(bound, answering=3), "server", trials=16_000, colluders=("owner-2",))
    assert wrong.broken


@pytest.mark.parametrize("channel", [UPDATE, SUMS], ids=lambda channel: channel.name)
def test_shares_of_the_fewest_honest_survivors_are_enough(channel):
    bound = in_shares(channel)
    neighbours = (
        pooled_parts(bound, answering=3) if channel.unit_contribution else client_rows(bound, NORM, 1, 2, 3)
    )
    found = audit(
        bound,
        neighbours,
        "server",
        trials=20_000 if channel.unit_contribution else 1_000,
        colluders=("owner-2",),
    )
    # concentrated privacy's epsilon is some per cent above the Gaussian curve's
    assert EPSILON < found.claim < 1.1 * EPSILON
    assert not found.broken
    assert found.reached >= (0.75 if channel.unit_contribution else 0.25)


@pytest.mark.parametrize(
    ("counted", "colluders", "trials"),
    [
        pytest.param(6, (), 5_000, id="the quorum is ignored: shares are sized by the cohort"),
        pytest.param(3, ("owner-2",), 60_000, id="a colluder is ignored: shares are sized by the quorum"),
    ],
)
def test_shares_that_are_too_small_are_caught(counted, colluders, trials, monkeypatch):
    monkeypatch.setattr(Gaussian, "_honest", lambda self, context: counted)
    bound = in_shares(SUMS)
    found = audit(
        bound, pooled_parts(bound, answering=3), "server", trials=trials, colluders=colluders or ("owner-1",)
    )
    assert found.broken


def test_the_real_masks_open_what_the_stand_in_opens():
    bound = fitted(masked(), UPDATE)
    neighbours = client_rows(bound, 0.5)
    uploads = dict(neighbours.present)
    through = view(bound, neighbours, "server")(uploads)
    made = session(masked(), (UPDATE,)).set_up()
    for name, upload in uploads.items():
        made.clients[name].memory["w"] = torch.cat(list(upload.values.values()))
    total = made.round().reduce(UPDATE, {}).total["w"].numpy()
    assert through.reshape(-1).tolist() == total.tolist()


# --- the audit itself


def test_a_stand_in_opens_what_the_carrier_would():
    words = {"a": np.array([[2**31 - 2, -5]]), "b": np.array([[7, 9]])}
    carrier = fitted(masked(), UPDATE).carrier
    total = Transparent(carrier).open_sum(words, None, None, None)  # type: ignore[arg-type]
    assert total.tolist() == [[-(2**31) + 5, 4]]
    assert centred(np.array([1.5, -2.0]), 0).tolist() == [1.5, -2.0]


def test_without_noise_the_ring_encoding_shows_everything():
    bound = fitted(masked(), UPDATE)
    neighbours = client_rows(bound, 0.5)
    found = audit(bound, neighbours, "server", trials=400)
    assert found.claim == math.inf
    assert found.lower.epsilon == found.lower.ceiling
    seen = view(bound, neighbours, "peers", OTHERS)(neighbours.present)
    assert seen == pytest.approx(np.tile([5.0, 0.0], 4)[None])


def test_neighbours_and_readers_that_are_none():
    with pytest.raises(BadInput, match="declares no sums over units"):
        pooled_parts(local())
    with pytest.raises(BadInput, match="has no client units"):
        client_rows(local(SUMS), NORM)
    with pytest.raises(BadInput, match="'postman'"):
        audit(local(), rows(local()), "postman")
    with pytest.raises(BadInput, match="owner-0 is the target"):
        audit(local(), rows(local()), "peers", colluders=NAMES)
