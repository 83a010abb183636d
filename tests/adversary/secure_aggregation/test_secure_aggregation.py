"""Attacks on sums (threats.md, section F): refused or harmless, and successful with the defence out.

The server here holds everything that passes through its hands, asks whom it likes for what it likes, and may
have clients in its pay. What it wants is always the same: one client's upload.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools

import numpy as np
import pytest
from parties import NAMES, Toy, introduced, people, scope, session, vectors

from secure_fedgraph.core import wire
from secure_fedgraph.core.carriers import history, key_agreement
from secure_fedgraph.core.carriers.homomorphic.scheme import Adder, SecretKey
from secure_fedgraph.core.carriers.key_agreement import shared_key
from secure_fedgraph.core.carriers.secagg import advertisements, client, neighbours
from secure_fedgraph.core.carriers.secagg import server as masking
from secure_fedgraph.core.carriers.secagg.neighbours import SumThresholds
from secure_fedgraph.core.carriers.secagg.ring_words import accumulate, centred
from secure_fedgraph.core.carriers.secagg.server import Masked
from secure_fedgraph.core.carriers.secagg.shamir import combine
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.crypto import AgreementKey
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.protection.contracts import BindContext, Party
from secure_fedgraph.core.upload import Layout
from secure_fedgraph.policies import homomorphic, masked

SIX = tuple(f"c{i}" for i in range(6))
VICTIM = "c2"
CHANNEL = Channel("update", Reveal.SUM)
WIDTH = 40
LAYOUT = Layout((("w", (WIDTH,)),))


class Server:
    """A masked sum up to the uploads, by the book; from there on the test does what it likes.

    Args:
        pays: clients whose secrets it has.
    """

    def __init__(self, parties=None, names=SIX, exchange=10, carrier=None, pays=()):
        self.parties = parties or introduced(names)
        self.names, self.pays = names, pays
        self.carrier = carrier or Masked(colluders=0.0).bind(BindContext(CHANNEL, names, "zero-out"))
        self.numbers = itertools.count(exchange)
        generator = np.random.default_rng(exchange)
        self.uploads = {n: generator.integers(-999, 1000, (1, WIDTH)) for n in names}
        self.words, self.sums = {}, {}

    def ask(self, step, given):
        place = scope(next(self.numbers), cohort=self.names)
        return {n: self.carrier.answer(step, dict(g), place, self.parties[n]) for n, g in given.items()}

    def take_uploads(self, change=lambda name, part: part):
        self.prepared = self.carrier.prepare(self.ask, self.names, "update")
        self.session = self.prepared.session
        self.place = scope(next(self.numbers), cohort=self.names)
        self.secrets = {}
        for name, part in self.prepared.upload_requests(self.names).items():
            self.carrier.accept(change(name, part), self.place, self.parties[name])
            self.words[name] = self.carrier.seal(self.uploads[name], self.place, self.parties[name])
            if name in self.pays:
                self.secrets[name] = self.parties[name].secrets["masked/session"]
        return self

    @property
    def bound_to(self):
        return advertisements.context(self.place, self.session.advertised)

    def sign(self, survivors, who=None):
        given = {"survivors": "\n".join(sorted(survivors))}
        return self.ask("agree", dict.fromkeys(who or survivors, given))

    def unmask(self, signed, who=None):
        names, rows = list(signed), [tree["signature"] for tree in signed.values()]
        given = {"names": "\n".join(names), "signatures": np.stack(rows)}
        return self.ask("unmask", dict.fromkeys(who or names, given))

    def shares_of(self, owner, revealed):
        found = {}
        for holder, tree in revealed.items():
            if owner in self.session.held[holder]:
                row = tree["shares"][self.session.held[holder].index(owner)]
                found[self.session.advertised.places[holder] + 1] = int.from_bytes(row.tobytes(), "little")
        return found

    def seed(self, owner, *revealed):
        """What the shares of one kind give back: the seed, if they are enough and of one kind."""
        shares = {}
        for one in revealed:
            shares.update(self.shares_of(owner, one))
        needed = self.session.thresholds.shares
        some = dict(list(shares.items())[:needed])
        return combine(some).to_bytes(32, "little")

    def open(self, name, mask_seed, own_seed):
        """One upload, from both of its owner's seeds."""
        key, info = AgreementKey.from_seed(mask_seed), advertisements.pair_info(self.bound_to)
        plus, minus = [], [advertisements.own_key(own_seed, self.bound_to)]
        for other in self.session.held[name]:
            if other != name:
                pair = key.shared_with(self.session.advertised.row(other, "public"), info)
                (minus if name < other else plus).append(pair)
        return self.strip(name, plus, minus)

    def strip(self, name, plus, minus):
        words = np.array(self.words[name])
        accumulate(words, plus=plus, minus=minus)
        return centred(words, 32)

    def reads(self, opened, name=VICTIM):
        return np.array_equal(opened.reshape(-1), self.uploads[name].reshape(-1))


REST = tuple(n for n in SIX if n != VICTIM)


class TestTwoLists:
    """One half of the cohort is told that the victim is there, the other half that it is not (F5, F10)."""

    def two_halves(self):
        server = Server().take_uploads()
        with_it, without = ("c1", VICTIM, "c3"), ("c0", "c4", "c5")
        one = server.unmask(server.sign(SIX, with_it))
        two = server.unmask(server.sign(REST, without))
        return server.reads(server.open(VICTIM, server.seed(VICTIM, two), server.seed(VICTIM, one))), server

    def few(self, monkeypatch):
        """A threshold of half the cohort: two lists reach it."""
        for module in (masking, client):
            monkeypatch.setattr(
                module, "thresholds", lambda cohort, *_: SumThresholds(cohort // 2, cohort // 2, cohort - 1)
            )

    def test_too_few_signed_either(self):
        with pytest.raises(HostileMessage, match="with 3 signatures on the survivors; 4 are needed"):
            self.two_halves()

    def test_signatures_on_the_other_list_do_not_count(self):
        server = Server().take_uploads()
        signed = {**server.sign(SIX, ("c1", VICTIM, "c3")), **server.sign(REST, ("c0", "c4", "c5"))}
        with pytest.raises(HostileMessage, match=r"c0 signed another list of survivors than c1"):
            server.unmask(signed, ("c1",))

    def test_with_half_the_cohort_for_a_threshold_it_reads_the_upload(self, monkeypatch):
        self.few(monkeypatch)
        assert self.two_halves()[0]

    def test_without_signatures_the_number_of_shares_still_holds(self, monkeypatch):
        monkeypatch.setattr(client, "_check_signatures", lambda *_: None)
        assert not self.two_halves()[0]

    def test_a_client_in_its_pay_is_counted(self):
        """With one colluder that reveals both, two lists of three honest clients would do at four of six."""
        server = Server(
            pays=("c0",), carrier=Masked(colluders=0.2).bind(BindContext(CHANNEL, SIX, "zero-out"))
        )
        server.take_uploads()
        assert 2 * server.session.thresholds.signatures > 6 + 1


class TestListsThatMix:
    """Lists that differ from client to client would single out the one that all of them name.

    For every other client as many say that it is gone as give back its mask's key; the victim alone is left.
    """

    def mixed(self):
        names = tuple(f"c{i:02d}" for i in range(10))
        server = Server(
            names=names, carrier=Masked(colluders=0.0).bind(BindContext(CHANNEL, names, "zero-out"))
        )
        server.take_uploads()
        others = names[1:]
        # client i is told that only itself, the victim and one more are alive
        signed, revealed = {}, {}
        for i, name in enumerate(others):
            listed = {names[0], name, others[(i + 1) % 9]}
            signed |= server.sign(listed, (name,))
        for name in others:
            revealed |= server.unmask(signed, (name,))
        own = server.seed(names[0], revealed)
        plus, minus = [], [advertisements.own_key(own, server.bound_to)]
        info = advertisements.pair_info(server.bound_to)
        kinds = {n: [m for m in others if m not in (n, others[others.index(n) - 1])] for n in others}
        for name in others:  # holders that were told it is gone hold back nothing of its mask's key
            shares = server.shares_of(name, {m: revealed[m] for m in kinds[name]})
            needed = server.session.thresholds.shares
            seed = combine(dict(list(shares.items())[:needed])).to_bytes(32, "little")
            pair = AgreementKey.from_seed(seed).shared_with(
                server.session.advertised.row(names[0], "public"), info
            )
            minus.append(pair)  # the victim's name is the lowest
        return server.reads(server.strip(names[0], plus, minus), names[0])

    def test_refused(self):
        with pytest.raises(HostileMessage, match="answers cohorts of at least 6 and was asked in one of 3"):
            self.mixed()

    def test_without_signatures_and_numbers_it_reads_the_upload(self, monkeypatch):
        monkeypatch.setattr(client, "_check_signatures", lambda *_: None)
        monkeypatch.setattr(client, "_large_enough", lambda *_: None)
        real = client._next

        def lax(scope, party, step):
            found = real(scope, party, step)
            if step == "agree":  # and whoever asks for few surviving neighbours
                found.thresholds = dataclasses.replace(found.thresholds, shares=1)
            return found

        monkeypatch.setattr(client, "_next", lax)
        assert self.mixed()


class TestBothShares:
    """The same clients are asked twice: for the share of the own mask, then for that of the mask key (F5)."""

    def twice(self):
        server = Server().take_uploads()
        signed = server.sign(SIX)
        one = server.unmask(signed)
        two = server.unmask(server.sign(REST), REST)
        return server.reads(server.open(VICTIM, server.seed(VICTIM, two), server.seed(VICTIM, one)))

    def test_a_client_answers_once(self):
        with pytest.raises(HostileMessage, match="asked to agree out of order, or a second time"):
            self.twice()

    def test_one_upload_a_sum(self):
        server = Server().take_uploads()
        with pytest.raises(HostileMessage, match="asked to upload out of order, or a second time"):
            server.carrier.seal(server.uploads["c0"], server.place, server.parties["c0"])

    def test_clients_that_do_not_mind_their_steps_give_both(self, monkeypatch):
        kept = {}

        def remembers(scope, party, step):
            kept.setdefault(party.name, party.secrets.get("masked/session"))
            party.secrets["masked/session"] = kept[party.name]
            return kept[party.name]

        monkeypatch.setattr(client, "_next", remembers)
        assert self.twice()

    def test_a_second_upload_under_the_same_masks_would_subtract(self, monkeypatch):
        server = Server().take_uploads()
        first = server.words["c0"]
        monkeypatch.setattr(client, "_next", lambda scope, party, step: party.secrets["masked/session"])
        second = server.carrier.seal(server.uploads["c0"] * 2, server.place, server.parties["c0"])
        assert np.array_equal((second - first).view(np.int32), server.uploads["c0"].reshape(-1))


class TestADropOutThatIsNone:
    """The upload arrived, and the server says it did not: the mask key comes back, the own mask does not."""

    def declared_dead(self):
        server = Server().take_uploads()
        revealed = server.unmask(server.sign(REST))
        mask_seed = server.seed(VICTIM, revealed)
        assert AgreementKey.from_seed(mask_seed).public == server.session.advertised.row(VICTIM, "public")
        return server, mask_seed

    def test_the_own_mask_is_still_on_it(self):
        server, mask_seed = self.declared_dead()
        left = server.open(VICTIM, mask_seed, bytes(32))
        assert not server.reads(left)
        assert np.abs(left.astype(np.int64)).max() > 2**20  # forty words below that by chance: 2**-440

    def test_with_single_masks_it_would_be_open(self, monkeypatch):
        monkeypatch.setattr(advertisements, "own_key", lambda seed, bound_to: bytes(32))
        server, mask_seed = self.declared_dead()
        assert server.reads(server.open(VICTIM, mask_seed, b""))

    def test_a_list_without_oneself_is_not_signed(self):
        server = Server().take_uploads()
        with pytest.raises(HostileMessage, match="survivors that repeat, are strangers, or lack it"):
            server.sign(REST, (VICTIM,))


class TestSecretsThatServeTwice:
    """A secret that shares gave back opens what was recorded under it (F4, F10): so it serves one sum."""

    def two_sums(self):
        parties = introduced(SIX)
        first = Server(parties).take_uploads()
        own = first.seed(VICTIM, first.unmask(first.sign(SIX)))  # alive in the first
        second = Server(parties, exchange=50).take_uploads()
        mask = second.seed(VICTIM, second.unmask(second.sign(REST)))  # said to be gone in the second
        return first.reads(first.open(VICTIM, mask, own))

    def test_fresh_secrets_open_nothing_of_another_sum(self):
        assert not self.two_sums()

    def test_secrets_of_a_run_would_open_the_earlier_upload(self, monkeypatch):
        drawn = [client.random_secret() for _ in range(12)]
        again = itertools.cycle(drawn)
        monkeypatch.setattr(client, "random_secret", lambda: next(again))
        assert self.two_sums()

    def test_an_advert_of_another_sum_is_refused(self):
        parties = introduced(SIX)
        old = Server(parties)
        replayed = old.ask("advertise", {n: {} for n in SIX})["c5"]
        new = Server(parties, exchange=50)
        adverts = new.ask("advertise", {n: {} for n in SIX})
        advertised = advertisements.KeyAdvertisements.of({**adverts, "c5": replayed})
        with pytest.raises(HostileMessage, match="A signature does not belong to identity"):
            new.ask("share", {"c0": advertised.to_tree()})

    def test_if_signatures_named_no_exchange_it_would_be_taken(self, monkeypatch):
        real = advertisements.statement
        monkeypatch.setattr(
            advertisements,
            "statement",
            lambda place, *rest: real(dataclasses.replace(place, exchange=0), *rest),
        )
        parties = introduced(SIX)
        replayed = Server(parties).ask("advertise", {n: {} for n in SIX})["c5"]
        new = Server(parties, exchange=50)
        advertised = advertisements.KeyAdvertisements.of(
            {**new.ask("advertise", {n: {} for n in SIX}), "c5": replayed}
        )
        assert new.ask("share", {"c0": advertised.to_tree()})["c0"]["shares"].shape == (5, 92)

    def test_a_client_that_came_back_from_a_checkpoint_has_no_old_secrets(self):
        server = Server().take_uploads()
        back = people(SIX)["c0"]  # the same name; secrets are never kept on disk
        assert back.secrets == {}
        with pytest.raises(HostileMessage, match="out of order"):
            server.carrier.answer("agree", {"survivors": "\n".join(SIX)}, server.place, back)


class TestMiddle:
    """The server plays everybody else towards the victim, with keys of its own."""

    def play(self):
        real = people(SIX)
        victim = real[VICTIM]
        fakes = {n: Party(n, p.identity, real[n].roster) for n, p in people(SIX).items() if n != VICTIM}
        played = {**fakes, VICTIM: victim}
        place = scope(0, "carrier/keys", SIX)

        def ask(step, given):
            return {n: key_agreement.answer(step, dict(g), place, played[n]) for n, g in given.items()}

        key_agreement.set_up(ask, SIX)
        return self.sum(played)

    def sum(self, played):
        server = Server(played)
        server.uploads = {n: v * (n == VICTIM) for n, v in server.uploads.items()}  # its own are zeros
        server.take_uploads()
        opened = server.prepared.open_sum(server.words, LAYOUT, server.place, server.ask)
        return server.reads(opened)

    def test_the_run_s_keys_are_signed(self):
        with pytest.raises(HostileMessage, match="A signature does not belong to identity"):
            self.play()

    def test_so_are_the_sums(self, monkeypatch):
        checks = Party.verify

        def of_sums_only(party, name, signature, message):
            if b"masked: advertise" in message:
                checks(party, name, signature, message)

        monkeypatch.setattr(Party, "verify", of_sums_only)
        with pytest.raises(HostileMessage, match="A signature does not belong to identity"):
            self.play()

    def test_without_both_signatures_it_reads_the_upload(self, monkeypatch):
        monkeypatch.setattr(Party, "verify", lambda *_: None)
        assert self.play()

    def test_keys_swapped_in_one_sum_alone(self):
        server = Server()
        adverts = server.ask("advertise", {n: {} for n in SIX})
        adverts["c4"] = {**adverts["c4"], "public": np.frombuffer(AgreementKey.generate().public, "u1")}
        advertised = advertisements.KeyAdvertisements.of(adverts)
        with pytest.raises(HostileMessage, match="A signature does not belong"):
            server.ask("share", {"c0": advertised.to_tree()})
        with pytest.raises(HostileMessage, match="c4's own key came back changed"):
            server.ask("share", {"c4": advertised.to_tree()})


class TestQuorum:
    """Few survivors, or few that are honest (F2)."""

    def test_survivors_below_the_quorum(self):
        server = Server(
            carrier=Masked(colluders=0.0).bind(BindContext(CHANNEL, SIX, "zero-out", 0, 5))
        ).take_uploads()
        with pytest.raises(HostileMessage, match="cohorts of at least 5 and was asked in one of 4"):
            server.sign(SIX[:4])

    def test_a_quorum_that_counts_the_cohort_only_opens_four(self, monkeypatch):
        monkeypatch.setattr(client, "_large_enough", lambda *_: None)
        carrier = Masked(colluders=0.0).bind(BindContext(CHANNEL, SIX, "zero-out", 0, 5))
        server = Server(carrier=carrier).take_uploads()
        server.unmask(server.sign(SIX[:4]))

    def test_a_list_of_the_victim_alone(self):
        server = Server().take_uploads()
        with pytest.raises(HostileMessage, match="cohorts of at least 4 and was asked in one of 1"):
            server.sign((VICTIM,))

    def test_a_client_that_signs_it_still_reveals_too_little(self, monkeypatch):
        monkeypatch.setattr(client, "_large_enough", lambda *_: None)
        monkeypatch.setattr(client, "_check_signatures", lambda *_: None)
        real = client._next

        def lax(scope, party, step):
            found = real(scope, party, step)
            found.thresholds = found.thresholds and dataclasses.replace(found.thresholds, shares=1)
            return found

        server = Server().take_uploads()
        monkeypatch.setattr(client, "_next", lax)
        revealed = server.unmask(server.sign((VICTIM,)))
        assert len(server.shares_of(VICTIM, revealed)) == 1 < server.session.thresholds.shares

    def test_a_threshold_that_the_server_named_would_open_it(self, monkeypatch):
        for module in (masking, client):
            monkeypatch.setattr(
                module, "thresholds", lambda cohort, present, *_: SumThresholds(1, 1, present - 1)
            )
        monkeypatch.setattr(client, "_large_enough", lambda *_: None)
        server = Server().take_uploads()
        revealed = server.unmask(server.sign((VICTIM,)))
        plus, minus = [], [advertisements.own_key(server.seed(VICTIM, revealed), server.bound_to)]
        for other in REST:
            key = AgreementKey.from_seed(server.seed(other, revealed))
            pair = key.shared_with(
                server.session.advertised.row(VICTIM, "public"), advertisements.pair_info(server.bound_to)
            )
            (minus if other > VICTIM else plus).append(pair)
        assert server.reads(server.strip(VICTIM, plus, minus))

    def test_too_few_others_behind_an_upload(self):
        server = Server()
        prepared = server.carrier.prepare(server.ask, SIX, "update")
        part = prepared.upload_requests(SIX)["c0"]
        fewer = {
            client.SENDERS: "\n".join(part[client.SENDERS].split("\n")[:2]),
            client.SHARES: part[client.SHARES][:2],
        }
        with pytest.raises(
            HostileMessage, match="beside at least 3 neighbours and was handed the shares of 2"
        ):
            server.carrier.accept(fewer, scope(40, cohort=SIX), server.parties["c0"])


class TestNeighbours:
    """A server that chose the graph would surround the victim with clients in its pay (F10)."""

    NAMES = tuple(f"n{i:02d}" for i in range(33))
    PAID = NAMES[1:19]  # more than it is assumed to have

    def surrounded(self):
        context = BindContext(CHANNEL, self.NAMES, "zero-out")
        server = Server(names=self.NAMES, carrier=Masked().bind(context), pays=self.PAID).take_uploads()
        victim = self.NAMES[0]
        own = server.seed(victim, server.unmask(server.sign(self.NAMES)))
        plus, minus = [], [advertisements.own_key(own, server.bound_to)]
        info = advertisements.pair_info(server.bound_to)
        for other in set(server.session.neighbours[victim]) & set(self.PAID):
            pair = server.secrets[other].key.shared_with(
                server.session.advertised.row(victim, "public"), info
            )
            (minus if victim < other else plus).append(pair)
        return server.reads(server.strip(victim, plus, minus), victim)

    def test_the_graph_comes_from_everybodys_keys(self):
        assert not self.surrounded()

    def test_one_that_the_server_chose_opens_the_upload(self, monkeypatch):
        chosen = (*self.PAID[:9], self.NAMES[0], *self.PAID[9:], *self.NAMES[19:])
        for module in (masking, client):
            monkeypatch.setattr(module, "circle", lambda names, seed: chosen)
        assert neighbours.thresholds(33, 33, 0.1, 0.2).degree == 18
        assert self.surrounded()


class TestWithheldShares:
    """The victim is handed few neighbours' shares, so masks with few; those are said to have dropped out."""

    NAMES = tuple(f"n{i:02d}" for i in range(33))

    def withheld(self):
        victim, context = self.NAMES[0], BindContext(CHANNEL, self.NAMES, "zero-out")
        server = Server(names=self.NAMES, carrier=Masked().bind(context))
        few: list[str] = []

        def fewer(part):
            few.extend(part[client.SENDERS].split("\n")[: server.prepared.session.thresholds.shares - 1])
            rows = part[client.SHARES][: len(few)]
            return {client.SENDERS: "\n".join(few), client.SHARES: rows}

        server.take_uploads(lambda name, part: fewer(part) if name == victim else part)
        survivors, signed = [n for n in self.NAMES if n not in few], {}
        for name in survivors[1:]:  # the victim would not sign: some of them never shared with it
            with contextlib.suppress(HostileMessage):  # nor would those with too many of the few around
                signed |= server.sign(survivors, (name,))
        if len(signed) < server.session.thresholds.signatures:
            return False
        revealed = server.unmask(signed)
        if len(server.shares_of(victim, revealed)) < server.session.thresholds.shares:
            return False
        plus, minus = [], [advertisements.own_key(server.seed(victim, revealed), server.bound_to)]
        info = advertisements.pair_info(server.bound_to)
        for other in few:
            key = AgreementKey.from_seed(server.seed(other, revealed))
            minus.append(key.shared_with(server.session.advertised.row(victim, "public"), info))
        return server.reads(server.strip(victim, plus, minus), victim)

    def test_those_who_open_its_own_mask_and_those_it_masked_with_overlap(self):
        assert not self.withheld()

    def test_fewer_shares_than_half_the_holders_would_not(self, monkeypatch):
        for module in (masking, client):
            monkeypatch.setattr(module, "thresholds", lambda *_: SumThresholds(19, 6, 12))
        assert self.withheld()

    def test_in_a_complete_graph_the_same_number_does_it(self, monkeypatch):
        monkeypatch.setattr(type(self), "NAMES", self.NAMES[:9])
        assert not self.withheld()

    def test_the_victim_does_not_sign(self):
        server = Server()
        server.take_uploads(
            lambda name, part: (
                part
                if name != VICTIM
                else {
                    client.SENDERS: "\n".join(part[client.SENDERS].split("\n")[:3]),
                    client.SHARES: part[client.SHARES][:3],
                }
            )
        )
        with pytest.raises(HostileMessage, match="a survivor that never shared its secrets with it"):
            server.sign(SIX, (VICTIM,))


class TestBroadcasts:
    """A lying server shows one client the model and the others zeros: the sum would be its update (A5)."""

    def lie(self):
        made = session(masked(), names=SIX).set_up()
        bound = made.prepared()
        times = {n: float(n == VICTIM) for n in SIX}
        asked = {n: made.upload(bound, n, {"times": times[n]}) for n in SIX}
        told = {n: made.tell(m) for n, m in asked.items()}
        # it does not mind that the uploads say themselves that they are of different broadcasts
        replies = {n: {k: v for k, v in tree.items() if k != "context"} for n, tree in told.items()}
        head = made.clients[VICTIM]._history.head
        place = dataclasses.replace(scope(100, cohort=SIX), history_head=head)
        made.courier._exchange = 100
        ask = made.round()._tolerant_ask(bound.channel)
        total = bound.open_sum(replies, place, ask).total["w"].numpy()
        return np.abs(total - vectors(made)[VICTIM]).max()

    def test_clients_notice_before_anything_opens(self):
        with pytest.raises(HostileMessage, match=r"signed another list .* or was given another broadcast"):
            self.lie()

    def test_and_the_masks_do_not_cancel(self, monkeypatch):
        monkeypatch.setattr(client, "_check_signatures", lambda *_: None)
        assert self.lie() > 0.01

    def test_masks_that_do_not_bind_it_open_one_update(self, monkeypatch):
        monkeypatch.setattr(history, "given_digest", lambda given: "")
        real = advertisements.context
        monkeypatch.setattr(
            advertisements,
            "context",
            lambda place, advertised: real(dataclasses.replace(place, history_head=""), advertised),
        )
        assert self.lie() < 1e-6


class TestShares:
    def test_a_share_for_another_reader_does_not_open(self):
        server = Server()
        prepared = server.carrier.prepare(server.ask, SIX, "update")
        parts = prepared.upload_requests(SIX)
        swapped = {**parts["c1"], client.SENDERS: parts["c0"][client.SENDERS]}
        with pytest.raises(HostileMessage, match=r"not its neighbours'|does not open"):
            server.carrier.accept(swapped, scope(40, cohort=SIX), server.parties["c1"])
        rows = parts["c0"][client.SHARES][::-1].copy()
        with pytest.raises(HostileMessage, match="does not open"):
            server.carrier.accept(
                {**parts["c0"], client.SHARES: rows}, scope(40, cohort=SIX), server.parties["c0"]
            )

    def test_nor_one_of_another_sum(self):
        parties = introduced(SIX)
        old = Server(parties)
        stale = old.carrier.prepare(old.ask, SIX, "update").upload_requests(SIX)["c0"]
        new = Server(parties, exchange=50)
        new.carrier.prepare(new.ask, SIX, "update")
        with pytest.raises(HostileMessage, match="does not open"):
            new.carrier.accept(stale, scope(90, cohort=SIX), parties["c0"])

    def test_if_seals_did_not_name_the_sum_it_would(self, monkeypatch):
        monkeypatch.setattr(advertisements, "parcel", lambda advertised, sender, reader: b"shares")
        self.stale_opens()

    def stale_opens(self):
        parties = introduced(SIX)
        old = Server(parties)
        stale = old.carrier.prepare(old.ask, SIX, "update").upload_requests(SIX)["c0"]
        new = Server(parties, exchange=50)
        new.carrier.prepare(new.ask, SIX, "update")
        new.carrier.accept(stale, scope(90, cohort=SIX), parties["c0"])

    def test_the_server_cannot_open_them(self):
        server = Server().take_uploads()
        played = Party("c1", None, {}, {"agreement": AgreementKey.generate(), "peers": {}})
        played.secrets["peers"] = {n: p.secrets["agreement"].public for n, p in server.parties.items()}
        part = server.prepared.upload_requests(SIX)["c1"]
        key = shared_key(played, "c0", scope(0, "", ()), "masked: shares")
        with pytest.raises(HostileMessage, match="does not open"):
            client.unseal(
                key,
                part[client.SHARES][0].tobytes(),
                advertisements.parcel(server.session.advertised, "c0", "c1"),
            )


class TestLiars:
    """Clients that reveal what is not a share."""

    def opened(self, liars, leave=()):
        server = Server().take_uploads()
        there = [n for n in SIX if n not in leave]

        def ask(step, given):
            replies = server.ask(step, {n: g for n, g in given.items() if step != "unmask" or n in there})
            for liar in set(liars) & set(replies) if step == "unmask" else ():
                replies[liar] = {"shares": replies[liar]["shares"] ^ np.uint8(1)}
            return replies

        total = server.prepared.open_sum(server.words, LAYOUT, server.place, ask)
        return np.array_equal(total, sum(server.uploads.values()))

    def with_a_drop_out(self, liars):
        server = Server().take_uploads()
        del server.words[VICTIM]

        def ask(step, given):
            replies = server.ask(step, given)
            for liar in liars if step == "unmask" else ():
                replies[liar] = {"shares": replies[liar]["shares"] ^ np.uint8(1)}
            return replies

        total = server.prepared.open_sum(server.words, LAYOUT, server.place, ask)
        return np.array_equal(total, sum(server.uploads[n] for n in REST))

    def test_the_key_of_a_drop_out_is_checked_too(self):
        for liar in REST:
            assert self.with_a_drop_out((liar,))
        with pytest.raises(HostileMessage, match=r"do not give what c\d advertised.*nothing was opened"):
            self.with_a_drop_out(REST[:2])

    def test_one_too_many_and_the_sum_is_refused(self):
        with pytest.raises(HostileMessage, match=r"do not give what c0 advertised.*nothing was opened"):
            self.opened(SIX[:3])
        with pytest.raises(HostileMessage, match="do not give what c0 advertised"):
            self.opened(("c1",), leave=("c4", "c5"))

    def test_unchecked_shares_would_open_a_wrong_sum(self, monkeypatch):
        real = advertisements.commitment
        monkeypatch.setattr(masking.advertisements, "commitment", lambda seed: self.any(real(seed)))
        assert not self.opened(("c0",))

    @staticmethod
    def any(_):
        class Anything(bytes):
            def __eq__(self, other):
                return True

            __hash__ = bytes.__hash__

        return Anything(32)


class TestDifferencing:
    """Two sums over cohorts that differ in one client (F1): whole batches only, where the policy says so."""

    def difference(self, policy):
        made = session(policy, names=SIX, width=WIDTH).set_up()
        everybody = made.round(1).reduce(Toy.UPDATE)
        others = made.round(1, SIX[1:]).reduce(Toy.UPDATE)
        apart = set(everybody.contributors) - set(others.contributors)
        left = (everybody.total["w"] - others.total["w"]).numpy()
        return apart, np.abs(left - vectors(made)["c0"]).max()

    def test_a_batch_at_a_time(self):
        apart, distance = self.difference(masked(batch=2))
        assert apart == {"c0", "c1"}
        assert distance > 0.01

    @pytest.mark.parametrize("policy", [masked(), homomorphic()], ids=lambda policy: policy.name)
    def test_without_batches_one_client_stands_alone(self, policy):
        """So that nobody claims a sum of all against a server that picks cohorts."""
        apart, distance = self.difference(policy)
        assert apart == {"c0"}
        assert distance < 1e-6

    def test_a_server_that_lists_half_a_batch_is_refused(self):
        carrier = Masked(colluders=0.0, batch=2).bind(BindContext(CHANNEL, SIX, "zero-out"))
        server = Server(carrier=carrier).take_uploads()
        with pytest.raises(HostileMessage, match="survivors that are not whole batches"):
            server.sign(SIX[1:])

    def test_clients_that_do_not_look_would_sign_it(self, monkeypatch):
        carrier = Masked(colluders=0.0, batch=2).bind(BindContext(CHANNEL, SIX, "zero-out"))
        server = Server(carrier=carrier).take_uploads()
        monkeypatch.setattr(Masked, "contributors", lambda self, uploaded: uploaded)
        revealed = server.unmask(server.sign(SIX[1:]))
        assert len(revealed) == 5

    def test_no_combination_of_any_rounds_tells_a_batch_apart(self):
        """Every list that clients sign is a union of batches, so the row space of all is constant on each."""
        carrier = Masked(batch=2).bind(BindContext(CHANNEL, SIX, "zero-out"))
        rows = []
        for chosen in itertools.product((False, True), repeat=6):
            kept = carrier.contributors(tuple(n for n, there in zip(SIX, chosen, strict=True) if there))
            rows.append([float(n in kept) for n in SIX])
        matrix = np.array(rows)
        rank = np.linalg.matrix_rank(matrix)
        assert rank == 3
        for one in np.eye(6):
            assert np.linalg.matrix_rank(np.vstack([matrix, one])) == rank + 1


def test_an_upload_from_outside():
    server = Server().take_uploads()
    with pytest.raises(HostileMessage, match="from outside the cohort"):
        server.prepared.open_sum(
            {**server.words, "eve": server.words["c0"]}, LAYOUT, server.place, server.ask
        )


def test_carried_entries_do_not_reach_the_algorithm():
    seen = []

    class Nosy(Toy):
        @Toy.UPDATE.answer
        def update(self, client, given):
            seen.append(set(given))
            return super().update(client, given)

    made = session(masked(), algorithm=Nosy()).set_up()
    made.round().reduce(Toy.UPDATE, {"times": 1.0})
    assert seen == [{"times"}] * 3


# --- ciphertexts that the opening client is handed ----------------------------------------------------------


class Adds:
    """A server that adds what it likes, and has the cohort's first client open it as the cohort's sum."""

    def __init__(self, scheme):
        self.made = session(homomorphic(scheme=scheme)).set_up()
        self.adder = Adder(self.made.policy["update"].carrier.parameters)
        self.number = self.made.courier._exchange + 1
        self.uploads = self.take(self.number)

    def take(self, number, times=None):
        self.made.courier._exchange = number + 1
        bodies = {name: wire.encode({} if times is None else {"times": times[name]}) for name in NAMES}
        asked = {n: self.made.message(n, exchange=number, body=bodies[n]) for n in NAMES}
        return {name: bytes(self.made.tell(message)["data"]) for name, message in asked.items()}

    def opened(self, uploads, number=None):
        self.made.courier._exchange += 1
        given = {"total": self.adder.add(uploads, 6), "exchange": number or self.number}
        asked = self.made.message(
            NAMES[0], step="open", exchange=self.made.courier._exchange, body=wire.encode(given)
        )
        return self.made.tell(asked)["values"][:-1] * 2.0**-24  # the last is the tally's

    def victim(self, name):
        return vectors(self.made)[name]


def copies_of_one(server):
    victim = NAMES[1]
    return server.opened([server.uploads[victim]] * len(NAMES)) / len(NAMES), server.victim(victim)


def a_single_upload(server):
    return server.opened([server.uploads[NAMES[1]]]), server.victim(NAMES[1])


def without_one(server):
    """The difference to the sum, which the server has from elsewhere, is the missing client's upload."""
    total = sum(vectors(server.made).values())
    return total - server.opened([server.uploads[n] for n in NAMES if n != NAMES[1]]), server.victim(NAMES[1])


def zeros_for_the_others(server):
    """Toy's answers are multiples of what is given: nothing but one client's upload is in the sum."""
    number = server.made.courier._exchange + 1
    uploads = server.take(number, {name: float(name == NAMES[1]) for name in NAMES})
    return server.opened(list(uploads.values()), number), server.victim(NAMES[1])


def an_old_upload(server):
    """The opener's own upload of the exchange before stands for everybody else's."""
    old, number = server.uploads, server.made.courier._exchange + 1
    new = server.take(number)
    found = server.opened([new[NAMES[1]], old[NAMES[0]], old[NAMES[0]]], number)
    return found - 2 * server.victim(NAMES[0]), server.victim(NAMES[1])  # by a helper that is the opener


@pytest.mark.parametrize("scheme", ["bfv", "ckks"])
@pytest.mark.parametrize(
    "attack", [copies_of_one, a_single_upload, without_one, zeros_for_the_others, an_old_upload]
)
class TestCiphertextsThatAreNoSum:
    def test_the_opening_client_refuses(self, attack, scheme):
        with pytest.raises(HostileMessage, match="does not hold"):
            attack(Adds(scheme))

    def test_without_the_tokens_it_opens_one_upload(self, attack, scheme, monkeypatch):
        monkeypatch.setattr(SecretKey, "_genuine", lambda *_: True)
        found, upload = attack(Adds(scheme))
        assert np.abs(found - upload).max() <= 2.0**-22


def test_a_server_with_a_client_in_its_pay_knows_the_tokens():
    """What no token covers: whoever holds the clients' key decrypts, and makes whatever passes."""
    server = Adds("bfv")
    key = server.made.parties[NAMES[2]].secrets["homomorphic/key"]
    found = key.decrypt(server.uploads[NAMES[1]], 6)[:-1] * 2.0**-24
    assert np.abs(found - server.victim(NAMES[1])).max() <= 2.0**-24
