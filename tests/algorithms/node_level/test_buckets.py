"""Sums over buckets of owners: what one liar can move, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.training.buckets import COMBINED, buckets
from secure_fedgraph.core.errors import BadInput, Refused
from secure_fedgraph.protocol.dropouts import STEPS, Dropouts
from secure_fedgraph.protocol.transcript import everything

OWNERS, SIZE = 10, 3
P = sfg.policies
OPEN = P.masked(quorum=SIZE)
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def federation():
    return sfg.federate("synthetic-citation", clients=OWNERS, nodes=200, features=12, seed=0)


def trained(federation, policy, kind=sfg.FedAvg, **settings):
    return sfg.train(kind(bucket=SIZE, **settings), federation, policy, rounds=1, seed=0, keep=everything)


@pytest.mark.parametrize("rule", COMBINED)
def test_the_model_moves_by_what_the_buckets_have_in_common(federation, rule):
    run = trained(federation, "plaintext", combine=rule)
    view = run.transcript.view("server")
    sent = {seen.clients[0]: seen.values for seen in view.uploads("update")}
    given = view.asked("update")[0].values
    names = sorted(federation.names)
    for name, value in run.algorithm.released(run.state).items():
        means = [
            np.mean([sent[o][name] for o in part], axis=0) for part in (names[:3], names[3:6], names[6:])
        ]
        moved = value.numpy() - given[name]
        if rule == "median":
            assert moved == pytest.approx(np.median(means, axis=0), abs=1e-6)
        else:
            kept = [means, *([means[a], means[b]] for a, b in ((0, 1), (0, 2), (1, 2)))]
            assert any(np.allclose(moved, np.mean(one, axis=0), atol=1e-6) for one in kept)


@pytest.mark.parametrize("rule", COMBINED)
def test_one_bucket_moves_the_model_no_further_than_the_others_are(rule):
    honest = [{"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([1.5, 2.5])}]
    for far in (1e3, -1e6):
        made = COMBINED[rule]([honest[0], {"w": torch.full((2,), far)}, honest[1]])["w"]
        assert bool((made >= honest[0]["w"]).all() and (made <= honest[1]["w"]).all())


def test_buckets_that_differ_as_owners_do_are_all_counted():
    means = [{"w": torch.tensor([value, 0.0])} for value in (0.0, 1.0, 2.5)]
    assert COMBINED["inliers"](means)["w"].tolist() == pytest.approx([3.5 / 3, 0.0])


def test_under_masks_a_sum_is_of_a_bucket_and_the_result_says_so(federation):
    run, plain = trained(federation, OPEN), trained(federation, "plaintext")
    sums = run.transcript.view("server").sums("update")
    assert [seen.clients for seen in sums] == buckets(federation.names, SIZE)
    for name, value in plain.algorithm.released(plain.state).items():
        assert run.state[name].numpy() == pytest.approx(value.numpy(), abs=1e-4)
    assert any("every bucket of at least 3 owners" in told for told in run.policy["update"].excess)


@pytest.mark.parametrize(
    ("policy", "settings", "key"),
    [
        ("plaintext", {"bucket": 2}, r"training\.bucket = 2.*set 3"),
        ("plaintext", {"combine": "median"}, r"training\.combine.*bucket=3"),
        ("plaintext", {"bucket": 3, "clip": "adaptive"}, "clip=policy"),
        ("plaintext", {"bucket": 4}, r"training\.bucket"),
        ("masked", {"bucket": 3}, r"protection\.quorum=3.*training\.bucket"),
    ],
    ids=str,
)
def test_what_cannot_be_summed_so_is_refused_before_anything_is_asked(federation, policy, settings, key):
    with pytest.raises((BadInput, Refused), match=key):
        sfg.train(sfg.FedAvg(**settings), federation, policy, rounds=1)
    with pytest.raises(BadInput, match="bucket"):  # its exchange of sums has no buckets
        sfg.FedGcn(bucket=3)


def test_a_bucket_is_of_the_cohort(federation):
    class Strangers(sfg.FedAvg):
        def round(self, round, state):
            round.among((*round.cohort[:2], self.other(round.cohort)))

        @staticmethod
        def other(cohort):
            return cohort[0]

    class Unknown(Strangers):
        @staticmethod
        def other(cohort):
            return "nobody"

    for kind in (Strangers, Unknown):
        with pytest.raises(BadInput, match="among"):
            trained(federation, "plaintext", kind)


def test_no_sum_of_two_opens_whatever_the_quorum(federation):
    policy, gone = P.masked(quorum=2, colluders=0.0), Dropouts(at={(1, min(federation.names)): STEPS[2]})
    with pytest.raises(Refused):
        sfg.train(sfg.FedAvg(bucket=SIZE), federation, policy, rounds=1, seed=0, dropouts=gone)
