"""One set-up for several masked sums: each sum's secrets are its own, whatever the server asks in between."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pytest
from parties import Toy, introduced, scope, session, vectors

from secure_fedgraph.core.carriers.secagg import advertisements, client, shamir
from secure_fedgraph.core.carriers.secagg.server import Masked
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import HostileMessage, Refused
from secure_fedgraph.core.message import ANSWER, Message
from secure_fedgraph.core.protection.contracts import BindContext
from secure_fedgraph.core.upload import Layout
from secure_fedgraph.policies import masked

FIVE = tuple(f"owner-{i}" for i in range(5))
VICTIM = "owner-3"
VALUES = np.array([[1, -2, 3]])
WORDS = Layout((("w", (3,)),))


def bound(names=FIVE, **settings):
    context = BindContext(Channel("update", Reveal.SUM), names, "zero-out", 2**32, 2)
    return Masked(**settings).bind(context)


class Server:
    """A server that asks parties for any step, in any order, and keeps what they reveal."""

    def __init__(self, names=FIVE, sums=3, round=1, parties=None, **settings):
        self.names, self.number, self.at = names, 10, round
        self.parties = parties or introduced(names)
        self.carrier = bound(names, **settings)
        self.revealed = {}
        self.prepared = self.carrier.prepare(self.ask, names, "update", sums)

    def place(self):
        self.number += 1
        return scope(self.number, cohort=self.names, round=self.at)

    def ask(self, step, given):
        place = self.place()
        replies = {n: self.carrier.answer(step, dict(g), place, self.parties[n]) for n, g in given.items()}
        if step == client.UNMASK:
            self.revealed[self.prepared.session.number] = replies
        return replies

    def upload(self, name, place, part=None):
        self.carrier.accept(part or self.part(name), place, self.parties[name])
        return self.carrier.seal(VALUES, place, self.parties[name])

    def part(self, name):
        return self.prepared.upload_requests(self.names)[name]

    def sum(self, missing=()):
        """The sum of everybody but those who upload too late for it."""
        place = self.place()
        uploads = {name: self.upload(name, place) for name in self.names}
        left = {name: words for name, words in uploads.items() if name not in missing}
        return self.prepared.open_sum(left, WORDS, place, self.ask)

    def go_on(self):
        self.prepared = self.prepared.following(self.names)


class TestSums:
    def test_exact_with_one_set_up(self):
        server = Server()
        for number in range(3):
            assert server.prepared.session.number == number
            assert server.sum()[0].tolist() == [5, -10, 15]
            server.go_on()
        assert server.prepared is None

    def test_as_many_set_ups_as_doubling_needs_and_then_one(self):
        made = session(masked(), names=FIVE).set_up()
        round, counted = made.round(1), []
        for number in (1, 2):
            round = made.round(1) if number == 1 else _next_round(round, made)
            before = len(made.passed)
            for _ in range(8):
                total = round.reduce(Toy.UPDATE).total["w"].numpy()
                assert np.allclose(total, sum(vectors(made).values()), atol=1e-6)
            counted.append(_steps(made, before)["advertise"])
        assert counted == [4 * len(FIVE), len(FIVE)]  # for 1, 1, 2 and 4 sums; then for 8

    def test_who_drops_out_of_a_sum_is_in_the_next(self):
        made = session(masked(), names=FIVE).set_up()
        round, found = made.round(1), []
        for number in range(7):
            gone = number == 4  # the first of four sums
            made.tamper = _without(VICTIM) if gone else None
            found.append(len(round.reduce(Toy.UPDATE).contributors))
        assert found == [5, 5, 5, 5, 4, 5, 5]

    def test_bytes_on_the_wire_for_one_sum_are_as_before(self):
        one = Server(sums=1)
        assert set(one.part("owner-0")) == {client.SENDERS, client.SHARES}
        assert one.part("owner-0")[client.SHARES].shape == (4, client.SEALED_SHARES)


class TestNoMaskTwice:
    """A stream that masks two uploads gives their difference away."""

    def test_every_pair_and_sum_has_its_own_key(self, monkeypatch):
        keys = Counter()
        given_out = client.mask_keys

        def noted(*args):
            plus, minus = given_out(*args)
            keys.update(plus + minus)
            return plus, minus

        monkeypatch.setattr(client, "mask_keys", noted)
        sums = 0
        for first in (0, 0, 1000):  # the same run: as it was, taken up at the same numbers, and above them
            made = session(masked(), names=FIVE)
            made.courier._exchange = first
            made.set_up()
            round = made.round(1)
            for number in range(6):
                made.tamper = _without(VICTIM) if number == 3 else None
                round.reduce(Toy.UPDATE)
                sums += 1
        # a pair's key is at both of its ends, a client's own at one
        assert Counter(keys.values()) == {2: sums * 10, 1: sums * 5}

    def test_a_sum_is_answered_once(self):
        server = Server()
        server.sum()
        again = {**server.part("owner-0")}
        with pytest.raises(HostileMessage, match="a sum that is over"):
            server.upload("owner-0", server.place(), again)

    def test_a_sum_that_was_skipped_is_over(self):
        server = Server()
        last = {**server.part("owner-0"), client.SUM: 2}
        server.upload("owner-0", server.place(), last)
        for number in (0, 1, 2):
            with pytest.raises(HostileMessage, match="a sum that is over"):
                server.upload("owner-0", server.place(), {**last, client.SUM: number})

    @pytest.mark.parametrize("number", [3, -1, 2**40, 1.0, True, "0", np.array([0])])
    def test_numbers_that_name_no_sum(self, number):
        server = Server()
        with pytest.raises(HostileMessage):
            server.upload("owner-0", server.place(), {**server.part("owner-0"), client.SUM: number})

    def test_secrets_of_a_sum_are_gone_once_it_begins(self):
        server = Server()
        set_up = server.parties["owner-0"].secrets["masked/set-ups"]["update"]
        server.sum()
        assert set_up.waiting[0] is None
        assert "masked/session" not in server.parties["owner-0"].secrets
        with pytest.raises(TypeError, match="holds a secret key"):
            pickle.dumps(set_up)
        assert str(set_up.waiting[1].mask_seed) not in repr(set_up)


class TestALyingServer:
    def seeds(self, server, number, name):
        """Of both secrets of a client in a sum: those that the revealed shares give."""
        session = server.prepared.session
        places, needed = session.advertised.places, session.thresholds.shares
        shares = {}
        for holder, tree in server.revealed[number].items():
            row = tree["shares"][session.held[holder].index(name)]
            shares[places[holder] + 1] = int.from_bytes(row.tobytes(), "little")
        picked = dict(list(shares.items())[:needed])
        return shamir.combine(picked).to_bytes(32, "little") if len(picked) == needed else b""

    def test_what_one_sum_opens_opens_no_other(self):
        """The victim is in the sums 0 and 2, and reported as gone in sum 1, whose upload the server has."""
        server, opened = Server(), []
        sessions = list(server.parties[VICTIM].secrets["masked/set-ups"]["update"].waiting)
        for number in range(3):
            server.sum(missing=(VICTIM,) if number == 1 else ())
            opened.append(self.seeds(server, number, VICTIM))
            server.go_on()
        for number, seed in enumerate(opened):
            of_masks = [one.mask_seed.to_bytes(32, "little") == seed for one in sessions]
            own = [one.own_seed.to_bytes(32, "little") == seed for one in sessions]
            here = [place == number for place in range(3)]
            # one of the two secrets, of this sum alone
            assert (of_masks, own) == ((here, [False] * 3) if number == 1 else ([False] * 3, here))

    def test_a_list_that_was_signed_in_one_sum_is_none_in_another(self):
        server = Server()
        place = server.place()
        for name in FIVE:
            server.upload(name, place)
        survivors = {"survivors": "\n".join(FIVE)}
        first = server.ask(client.AGREE, dict.fromkeys(FIVE, survivors))
        server.go_on()  # the server abandons the sum and has everybody sign the same list in the next
        place = server.place()
        for name in FIVE:
            server.upload(name, place)
        server.ask(client.AGREE, dict.fromkeys(FIVE, survivors))
        stale = {
            "names": "\n".join(FIVE),
            "signatures": np.stack([tree["signature"] for tree in first.values()]),
        }
        with pytest.raises(HostileMessage, match="signed another list"):
            server.ask(client.UNMASK, {"owner-0": stale})

    def test_shares_of_an_earlier_set_up_do_not_open(self):
        old = Server()
        stale = old.part("owner-0")
        new = Server(parties=old.parties)
        with pytest.raises(HostileMessage, match="does not open as its shares"):
            new.upload("owner-0", new.place(), stale)

    def test_other_shares_than_those_it_took(self):
        server = Server()
        first = server.part("owner-0")
        server.sum()
        rows = first[client.SHARES][::-1]
        with pytest.raises(HostileMessage, match="other shares than those that it took"):
            server.upload("owner-0", server.place(), {**first, client.SHARES: rows, client.SUM: 1})
        server.upload("owner-0", server.place(), {**first, client.SUM: 1})  # the same ones are no harm

    def test_a_set_up_serves_one_round(self):
        server = Server()
        server.at = 2
        with pytest.raises(HostileMessage, match="in another sum than it advertised for"):
            server.upload("owner-0", server.place())

    def test_a_sum_without_a_set_up(self):
        server = Server(sums=1)
        with pytest.raises(HostileMessage, match="that it did not set up"):
            server.upload("owner-0", server.place(), {**server.part("owner-0"), client.SUM: 0})

    def test_a_first_sum_without_shares(self):
        server = Server()
        with pytest.raises(HostileMessage, match="not its neighbours'"):
            server.upload("owner-0", server.place(), {client.SUM: 0})

    @pytest.mark.parametrize("given", [{"sums": 0}, {"sums": 1}, {"sums": 257}, {"sums": 2.0}, {"more": 1}])
    def test_advertising_for_no_number_of_sums(self, given):
        parties = introduced(FIVE)
        with pytest.raises(HostileMessage, match="advertise for other than"):
            bound().answer(client.ADVERTISE, given, scope(11, cohort=FIVE), parties["owner-0"])

    def test_sums_of_one_set_up_that_are_abandoned_are_counted(self):
        server, name = Server(sums=8, abandoned=2), "owner-0"
        part = server.part(name)
        for number in range(3):
            server.upload(name, server.place(), {**part, client.SUM: number})
        with pytest.raises(Refused, match=r"3 of the 3 sums .* were abandoned"):
            server.upload(name, server.place(), {**part, client.SUM: 3})

    def test_a_key_that_serves_two_sums(self):
        server = Server()
        tree = server.prepared.session.set_up.to_tree()
        public = tree["public"].copy()
        public[1, :32] = public[0, 32:64]  # the key of another client's other sum
        with pytest.raises(HostileMessage, match="one key twice"):
            advertisements.KeyAdvertisements.from_tree({**tree, "public": public}, 3)
        adverts = {name: {"public": public[place]} for place, name in enumerate(FIVE)}
        copied = advertisements.copies(adverts)
        assert set(copied) == {"owner-0", "owner-1"}
        own = np.tile(public[2, :32], 3)
        assert set(advertisements.copies({**adverts, "owner-2": {"public": own}})) == {*copied, "owner-2"}

    def test_signatures_are_over_all_sums(self):
        parties, fresh, place = introduced(FIVE), bound(), scope(99, cohort=FIVE)
        adverts = {n: fresh.answer(client.ADVERTISE, {"sums": 3}, place, parties[n]) for n in FIVE}
        changed = adverts["owner-1"]["commitment"].copy()
        changed[95] ^= 1  # of the last sum
        adverts["owner-1"]["commitment"] = changed
        deck = advertisements.KeyAdvertisements.of(adverts, 3).to_tree()
        with pytest.raises(HostileMessage):
            fresh.answer(client.SHARE, deck, scope(100, cohort=FIVE), parties["owner-0"])


def _steps(made, before):
    return Counter(Message.from_bytes(raw).step for _, raw, _ in made.passed[before:])


def _without(name):
    return lambda sender, reply: None if (sender, reply.step) == (name, ANSWER) else reply


def _next_round(round, made):
    following = made.round(2)
    following._set_ups = round._set_ups
    return following


def test_a_client_sets_up_no_more_sums_than_an_honest_server_asks_for() -> None:
    names = tuple(f"owner-{i:03d}" for i in range(60))
    degree = bound(names)._thresholds(names, 60).degree
    assert client.most_sums(60, degree) == bound(names)._most_sums(names)
    assert client.most_sums(400, 399) < 20 < client.most_sums(5, 4) == advertisements.MOST_SUMS


def test_shares_of_another_size_are_refused_before_they_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    place, part = server.place(), server.part(VICTIM)
    server.carrier.accept(part, place, server.parties[VICTIM])
    server.go_on()
    following = server.part(VICTIM)
    huge = {**following, client.SENDERS: part[client.SENDERS], client.SHARES: np.zeros((9000, 9), np.uint8)}
    monkeypatch.setattr(client.hashlib, "sha256", lambda *_: pytest.fail("hashed"))
    with pytest.raises(HostileMessage, match="other shares"):
        server.carrier.accept(huge, server.place(), server.parties[VICTIM])


def test_a_client_refuses_to_set_up_more_sums_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(sums=1)
    monkeypatch.setattr(client, "MOST_BYTES", 1)
    with pytest.raises(HostileMessage, match="more sums"):
        server.carrier.answer(client.ADVERTISE, {client.SUMS: 3}, server.place(), server.parties[VICTIM])
