"""A lying server gives one client another mean than the others: one masked sum is that client's update then.

FedGATE's clients keep a tracking term, which the mean update moves. A broadcast whose first layer is dead
(its ReLUs never open) makes the gradients of that layer zero for everybody, but for a client whose tracking
term lifts its biases again: the sum of that layer's updates is that client's then, and its words stand in it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from lying import Played, cosine, giving, play

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.core.carriers import history
from secure_fedgraph.core.carriers.history import Exchange, History
from secure_fedgraph.core.carriers.secagg.server import Masked
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, HostileMessage, Refused, SecureFedGraphError
from secure_fedgraph.core.message import Message
from secure_fedgraph.policies import homomorphic, masked, strictest
from secure_fedgraph.privacy.policy import PlaintextWarning

VICTIM = "owner-1"
FIRST = ("layers.0.own.weight", "layers.0.neighbour.weight")
BIAS = "layers.0.bias"
DEAD, LIFT = -2.0, 6.0
SETTINGS = {"hidden": (8, 8), "local_steps": 2, "batch": "full", "learning_rate": 0.1}


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=5, nodes=200, features=16, seed=0)


def started(federation: sfg.Federation, name: str = "fedgate", policy=masked) -> Played:
    made = play(ALGORITHMS[name](**SETTINGS), federation, policy())
    made.state[BIAS] = torch.full_like(made.state[BIAS], DEAD)
    return made


def means(made: Played, number: int) -> dict[str, dict[str, torch.Tensor]]:
    """What each client is to be given: zero, and to the victim what lifts its first layer."""
    zero = {name: torch.zeros_like(value) for name, value in made.state.items()}
    return {name: zero | ({BIAS: zero[BIAS] + LIFT} if name == VICTIM else {}) for name in made.names}


def given_apart(made: Played) -> None:
    """Under one exchange number, to each its own."""
    told = means(made, 1)
    made.transport.lie = giving(told[VICTIM], VICTIM, "mean_update")
    made.round(1).scatter(made.algorithm.MEAN, dict.fromkeys(made.names, told["owner-0"]))
    made.transport.lie = lambda message: message


def one_after_the_other(made: Played) -> None:
    """In two exchanges of the round; each client is asked in one and told the digest of the other."""
    told = means(made, 1)
    rest = tuple(name for name in made.names if name != VICTIM)
    made.round(1).scatter(made.algorithm.MEAN, {VICTIM: told[VICTIM]})
    made.round(1).scatter(made.algorithm.MEAN, dict.fromkeys(rest, told["owner-0"]))


def attack(made: Played, lie=given_apart) -> tuple[float, float, bool]:
    """How far the second sum points along the victim's update, its words that are read, and if it is in."""
    update = made.algorithm.UPDATE
    made.round(1).reduce(update, given=made.state)
    lie(made)
    found = made.round(2).reduce(update, given=made.state)
    own = made.clients[VICTIM].memory["sent"]["update"]
    summed = torch.cat([found.total[name].flatten() for name in FIRST])
    alone = torch.cat([own[name].flatten() for name in FIRST])
    words = (made.clients[VICTIM].graph.x > 0).any(0)
    seen = (found.total[FIRST[0]].abs() > 1e-6).any(0)
    return cosine(summed, alone), float((seen == words).float().mean()), VICTIM in found.contributors


def unbound(monkeypatch: pytest.MonkeyPatch) -> None:
    """What masks are bound to says nothing of what was given before."""
    real = History.add

    def forgetful(self: History, exchange: Exchange) -> None:
        if exchange.channel != "mean_update":
            real(self, exchange)

    monkeypatch.setattr(History, "add", forgetful)


@pytest.mark.parametrize("name", ["fedgate", "apflgate"])
def test_without_the_history_one_sum_is_the_victims_update(federation, name, monkeypatch):
    unbound(monkeypatch)
    along, words, there = attack(started(federation, name))
    assert there
    assert along > 0.999999
    assert words == 1.0


@pytest.mark.parametrize("name", ["fedgate", "apflgate"])
def test_the_victims_update_is_in_no_sum_that_opens(federation, name):
    made = started(federation, name)
    along, _, there = attack(made)
    assert not there
    assert abs(along) < 1e-6
    (note,) = made.courier.transcript.left_out
    assert note.client == VICTIM
    assert "something else than the others" in note.reason


@pytest.mark.filterwarnings(
    "ignore::secure_fedgraph.core.protection.bound.CutWarning"
)  # the tally is noise too
def test_nor_where_it_takes_no_notice_of_what_the_uploads_are_bound_to(federation, monkeypatch):
    """A liar does without the marks that the uploads carry, and the masks do not cancel then."""
    monkeypatch.setattr(Masked, "binding_mark", lambda *_: "")
    along, _, there = attack(started(federation))
    assert there
    assert abs(along) < 0.9


def test_homomorphic_tokens_are_bound_to_it_too(federation, monkeypatch):
    with pytest.raises(SecureFedGraphError):
        attack(started(federation, policy=homomorphic))
    unbound(monkeypatch)
    along, _, _ = attack(started(federation, policy=homomorphic))
    assert along > 0.999999


def test_one_mean_a_round(federation, monkeypatch):
    made = started(federation)
    with pytest.raises((Refused, HostileMessage), match="once a round"):
        attack(made, one_after_the_other)
    monkeypatch.setattr(History, "__init__", _without_once(History.__init__))
    along, _, there = attack(started(federation), one_after_the_other)
    assert there
    assert along > 0.999999


def _without_once(real):
    return lambda self, run, once=(), common="": real(self, run, common=common)


def test_a_victim_that_is_left_without_the_mean_answers_no_more(federation):
    made = started(federation)
    update = made.algorithm.UPDATE
    made.round(1).reduce(update, given=made.state)
    rest = tuple(name for name in made.names if name != VICTIM)
    made.round(1).scatter(made.algorithm.MEAN, dict.fromkeys(rest, means(made, 1)["owner-0"]))
    found = made.round(2).reduce(update, given=made.state)
    assert VICTIM not in found.contributors
    (note,) = made.courier.transcript.left_out
    assert "was not given its mean" in note.reason


class TestHistory:
    """Whoever was not asked is told, and its own record stands."""

    def test_cohorts_drop_outs_and_lost_requests_keep_one_history(self, federation):
        made = play(ALGORITHMS["fedsage"](hidden=(8, 8)), federation, masked())
        cohorts = [made.names, made.names[:3], made.names[1:], made.names]
        for number, cohort in enumerate(cohorts, 1):
            if number == 3:
                made.transport.lie = lambda m: None if (m.recipient, m.step) == ("owner-4", "agree") else m
            found = made.round(number, cohort).reduce(made.algorithm.UPDATE, given=made.state)
            made.transport.lie = lambda message: message
            assert set(found.contributors) == set(cohort)
        heads = {client._history.head for client in made.clients.values()}
        assert heads == {made.courier.head}

    def test_the_own_record_stands(self, federation):
        made = play(ALGORITHMS["fedsage"](hidden=(8, 8)), federation, masked())
        made.round(1).reduce(made.algorithm.UPDATE, given=made.state)
        heard = made.courier._given[-1]
        lied = Exchange(heard.number, 1, "update", bytes(32))

        def report(message: Message) -> Message:
            return message if message.step != "answer" else _reporting(message, [lied])

        made.transport.lie = report
        found = made.round(2).reduce(made.algorithm.UPDATE, given=made.state)
        assert set(found.contributors) == set(made.names)

    @pytest.mark.parametrize("what", ["invented", "left out", "another digest", "another order"])
    def test_a_false_report_leaves_its_reader_out(self, federation, what):
        made = play(ALGORITHMS["fedsage"](hidden=(8, 8)), federation, masked())
        for number in (1, 2):
            made.round(number, made.names[:4]).reduce(made.algorithm.UPDATE, given=made.state)
        true = list(made.courier._given)
        told = {
            "invented": [*true, Exchange(true[-1].number + 1, 2, "update", bytes(32))],
            "left out": true[1:],
            "another digest": [true[0], Exchange(true[1].number, 2, "update", bytes(32))],
            "another order": true[::-1],
        }[what]
        made.transport.lie = lambda m: (
            _reporting(m, told) if (m.recipient, m.step) == ("owner-4", "answer") else m
        )
        found = made.round(3).reduce(made.algorithm.UPDATE, given=made.state)
        assert set(found.contributors) == set(made.names[:4])

    def test_reports_of_later_exchanges_and_of_other_channels_are_refused(self):
        for number, channel in ((9, "update"), (3, "reward")):
            with pytest.raises(HostileMessage, match="reported as missed"):
                History("r").catch_up([Exchange(number, 1, channel, bytes(32))], 9, {"update"})

    def test_rounds_do_not_fall_and_numbers_rise(self):
        made = History("r")
        made.add(Exchange(5, 2, "update", bytes(32)))
        for number, round in ((5, 2), (6, 1)):
            with pytest.raises(HostileMessage, match="rise"):
                made.add(Exchange(number, round, "update", bytes(32)))

    def test_what_is_no_report(self):
        good = history.to_bytes([Exchange(1, 1, "a", bytes(32)), Exchange(2, 1, "b", bytes(32))])
        assert [one.channel for one in history.from_bytes(good)] == ["a", "b"]
        for wrong in (b"x", good[:-1], history.to_bytes([Exchange(1, 1, "a\nb", bytes(32))])):
            with pytest.raises(HostileMessage):
                history.from_bytes(wrong)


def _reporting(message: Message, missed: list[Exchange]) -> Message:
    return replace(message, missed=history.to_bytes(missed))


def test_a_channel_that_gives_each_its_own_says_so(federation):
    made = started(federation)
    told = means(made, 1)
    with pytest.raises(BadInput, match="'mean_update'"):
        made.round(1).scatter(made.algorithm.MEAN, told)
    with pytest.raises(BadInput, match="once"):
        Channel("mine", Reveal.NOTHING, alike=False, once=True)


def test_and_every_sum_names_it_as_excess():
    algorithm = ALGORITHMS["fairgraphfl"]()
    with pytest.warns(PlaintextWarning):
        bound = strictest().bind(algorithm.in_use, tuple("abcde"))
    sums = [one for one in bound.bounds.values() if one.channel.reveal is Reveal.SUM]
    assert sums
    for one in sums:
        assert any("'reward'" in sentence for sentence in one.excess)
    plain = ALGORITHMS["fedgate"]()
    assert not any("likes" in s for s in masked().bind(plain.in_use, tuple("abc"))["update"].excess)
