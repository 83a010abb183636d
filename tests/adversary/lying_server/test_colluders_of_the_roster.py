"""A server picks cohorts in which its colluders are many: they are counted against the roster."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lying_server import LyingServer, citation, lying_server

import secure_fedgraph as sfg
from secure_fedgraph.core import wire
from secure_fedgraph.core.carriers.secagg import neighbours
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, HostileMessage, Refused
from secure_fedgraph.protocol.transcript import everything

P = sfg.policies
VICTIM, COLLUDER = "owner-3", "owner-7"
PAIR = (VICTIM, COLLUDER)
SUM = Channel("update", Reveal.SUM)
ANSWERS = Channel("answers", Reveal.SUM, to="peer")
TEN = tuple(f"owner-{i}" for i in range(10))


def made(policy: Any) -> LyingServer:
    algorithm = sfg.FedAvg(hidden=(4, 4), fanout=(2, 2), batch="full", optimizer="sgd")
    return lying_server(algorithm, citation(10, 100, 8), policy, keep=everything)


def asked(server: LyingServer, cohort: tuple[str, ...]) -> Any:
    state = server.algorithm.init(server.federation.schema, 0)
    return server.asks("update", state, 1, cohort)


def subtracted(server: LyingServer) -> float:
    """How far the sum without the colluder's upload is from the victim's."""
    total = asked(server, PAIR)
    assert not isinstance(total, Exception), total
    made_by = {one.reader: one.number for one in server.courier.transcript.made}
    body = {n: wire.decode(server.courier.transcript.body(made_by[n])) for n in PAIR}
    return max(
        float((value - torch.tensor(body[COLLUDER][name]) - torch.tensor(body[VICTIM][name])).abs().max())
        for name, value in total.total.items()
    )


@pytest.mark.parametrize(
    "policy",
    [
        P.masked(),
        P.masked(quorum=2),  # by hand: two clients more than may collude are asked for all the same
        P.homomorphic(),
        P.distributed_dp(1.0, 1.0),
        P.distributed_dp(1.0, 1.0, quorum=3),
    ],
    ids=["masked", "masked, quorum 2", "homomorphic", "distributed_dp", "distributed_dp, quorum 3"],
)
def test_a_victim_and_a_colluder_are_no_cohort(policy: Any) -> None:
    error = asked(made(policy), PAIR)
    assert isinstance(error, Refused)
    assert "protection.quorum" in str(error)


def test_who_says_that_nobody_colludes_may_have_it() -> None:
    assert subtracted(made(P.masked(quorum=2, colluders=0.0))) < 1e-6


def test_the_list_of_survivors_needs_the_signatures_of_the_rosters_colluders() -> None:
    # of ten three may collude, and all of them may be among six: two lists of four could both be signed
    assert neighbours.thresholds(6, 6, 0.3, 0.2).signatures == 4
    assert neighbours.thresholds(6, 6, 0.3, 0.2, 10).signatures == 5
    carrier = P.masked(colluders=0.3).bind([SUM], TEN)["update"].carrier
    assert carrier._thresholds(TEN[:6], 6).signatures == 5
    # no cohort of few can be signed for where more may collude
    assert neighbours.thresholds(3, 3, 0.3, 0.2, 10).signatures == 4


@pytest.mark.parametrize(("clients", "least"), [(2, 2), (3, 2), (4, 3), (5, 3), (10, 6), (11, 6)])
def test_the_default_quorum_is_a_majority_of_the_roster(clients: int, least: int) -> None:
    names = tuple(f"owner-{i}" for i in range(clients))
    for policy in (P.masked(), P.homomorphic()):
        assert policy.bind([SUM], names)["update"].quorum == least
        if clients > 2:  # the reader of a sum between peers is not in it
            contributors = clients - 1
            assert policy.bind([ANSWERS], names)["answers"].quorum == max(2, contributors // 2 + 1)


@pytest.mark.parametrize("policy", [P.masked(quorum=2), P.distributed_dp(1.0, 1.0, quorum=4)])
def test_a_quorum_leaves_two_besides_the_colluders(policy: Any) -> None:
    bound = policy.bind([SUM, ANSWERS], tuple(f"owner-{i}" for i in range(30)))
    assert [bound[name].quorum for name in ("update", "answers")] == [5, 5]


def test_half_of_the_clients_are_no_cohort_by_default() -> None:
    server = made(P.masked())
    assert isinstance(asked(server, TEN[:5]), Refused)
    assert not isinstance(asked(server, TEN[:6]), Exception)


def test_more_colluders_than_leave_two_others_do_not_bind() -> None:
    with pytest.raises(Refused, match=r"protection\.colluders"):
        P.masked(colluders=0.9).bind([SUM], TEN)


@pytest.mark.parametrize("quorum", [0.0, 1, 1.5, -1])
def test_quorums_that_are_none(quorum: float) -> None:
    with pytest.raises(BadInput, match="quorum"):
        P.masked(quorum=quorum)


def test_a_cohort_that_is_large_enough_is_named_in_the_refusal() -> None:
    error = asked(made(P.masked()), TEN[:2])
    assert isinstance(error, HostileMessage)
    assert "at least 6" in str(error)
