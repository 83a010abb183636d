"""Attacks on sums and peer channels that a review found: each refused, and what it does undefended."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hostile import Peers
from parties import NAMES, pairwise, scope, session, vectors

from secure_fedgraph.core import wire
from secure_fedgraph.core.carriers import history, sealed
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.parcel import OFFER, READ, Bundle, Parcel
from secure_fedgraph.policies import masked

FOUR = ("owner-0", "owner-1", "owner-2", "owner-3")


def peers(names=FOUR):
    return session(masked(), channels=Peers.channels, names=names, algorithm=Peers()).set_up()


def offered(made, exchange=50):
    """Everybody's parcel, as the server holds them."""
    names = tuple(made.clients)
    trees = {n: made.tell(made.message(n, "offers", exchange)) for n in names}
    return {n: Parcel("offers", n, 1, exchange, names, tree) for n, tree in trees.items()}


def ask(made, parcel, cohort, exchange=60):
    """The replies of a cohort to a parcel, whoever the cohort is."""
    body = wire.encode({OFFER + "offers": parcel.to_parts()})
    return {
        n: made.tell(made.message(n, "answers", exchange, cohort=cohort, body=body))
        for n in cohort
        if n != parcel.sender
    }


def deliver(made, reader, replies, exchange=60):
    bundle = Bundle("answers", reader, 1, exchange, tuple(replies), replies)
    body = wire.encode(bundle.to_tree())
    made.tell(made.message(reader, "answers", exchange + 1, step=READ, cohort=(reader,), body=body))


class TestTheHonestExchange:
    def test_the_reader_reads_the_sum_of_the_others(self):
        made = peers()
        others = FOUR[1:]
        deliver(made, "owner-0", ask(made, offered(made)["owner-0"], others))
        found = made.clients["owner-0"].memory["read"]
        assert found.contributors == others
        expected = sum(vectors(made)[name] for name in others)
        assert np.allclose(found.total["w"].numpy(), expected, atol=1e-6)
        assert np.allclose(made.clients["owner-1"].memory["offered"]["z"], vectors(made)["owner-0"][:3])


class TestOtherBroadcasts:
    """A lying server shows one client the model and the others zeros: the sum would be its update."""

    def lie(self):
        made = session(pairwise()).set_up()
        times = {"owner-0": 1.0, "owner-1": 0.0, "owner-2": 0.0}
        told = {n: made.tell(made.message(n, body=wire.encode({"times": times[n]}))) for n in NAMES}
        # it does not mind that the uploads say themselves that they are of different broadcasts
        replies = {n: {k: v for k, v in tree.items() if k != "context"} for n, tree in told.items()}
        total = made.policy["update"].open_sum(replies, scope(100, "update"), None).total["w"].numpy()
        return np.abs(total - vectors(made)["owner-0"]).max()

    def test_masks_do_not_cancel(self):
        assert self.lie() > 0.01

    def test_masks_that_do_not_bind_it_open_one_update(self, monkeypatch):
        monkeypatch.setattr(history, "given_digest", lambda given: "")
        assert self.lie() < 1e-6


class TestTheReaderInItsOwnQuorum:
    """The reader counts itself into the cohort of two: the other's masked answer has only its own mask."""

    def test_a_client_refuses_it(self):
        made = peers()
        with pytest.raises(HostileMessage, match="a peer outside the cohort: 'owner-0' came with the ask"):
            ask(made, offered(made)["owner-0"], ("owner-0", "owner-1"))

    def test_two_others_are_enough_and_one_is_not(self):
        made = peers()
        parcel = offered(made)["owner-0"]
        assert len(ask(made, parcel, ("owner-1", "owner-2"))) == 2
        with pytest.raises(HostileMessage, match="answers cohorts of at least 2 and was asked in one of 1"):
            ask(made, parcel, ("owner-1",), exchange=70)


class TestSealedParcels:
    def test_the_courier_finds_no_layout_to_change(self):
        parcel = offered(peers())["owner-0"]
        assert set(parcel.tree) == {"domain", "content", "key/owner-1", "key/owner-2", "key/owner-3"}

    @pytest.mark.parametrize("change", [b"\x01", b"\x80"])
    def test_a_changed_byte_is_refused(self, change):
        made = peers()
        parcel = offered(made)["owner-0"]
        content = bytearray(parcel.tree["content"])
        content[len(content) // 2] ^= change[0]
        forged = dataclasses.replace(parcel, tree={**parcel.tree, "content": bytes(content)})
        with pytest.raises(HostileMessage, match="does not open"):
            ask(made, forged, ("owner-1", "owner-2"))

    def forge(self, made):
        """Owner-1, who may read owner-0's offer, puts its own words under owner-0's key for owner-2."""
        parcel = offered(made)["owner-0"]
        made_under = scope(50, "offers", FOUR)
        thief = made.parties["owner-1"]
        pair = sealed._pair_key(thief, "owner-0", "owner-0", made_under)
        binding = sealed._binding(made_under, "owner-0", "owner-1", parcel.tree["content"])
        key = sealed.unseal(pair, parcel.tree["key/owner-1"], binding)
        words = {"domain": "real", "layout": "1\nz:3\ncounts:2", "data": np.full(5, 0.5, dtype="<f4")}
        inner = wire.encode(words)
        padded = inner + bytes(-(len(inner) + 8) % sealed.PAD) + len(inner).to_bytes(8, "little")
        content = sealed.seal(key, padded, sealed._binding(made_under, "owner-0"))
        forged = dataclasses.replace(parcel, tree={**parcel.tree, "content": content})
        ask(made, forged, ("owner-2", "owner-3"))
        return made.clients["owner-2"].memory["offered"]["z"].tolist()

    def test_another_reader_cannot_pass_off_its_own_words(self):
        with pytest.raises(HostileMessage, match="does not open"):
            self.forge(peers())

    def test_keys_that_do_not_name_their_content_let_it(self, monkeypatch):
        real = sealed._binding
        monkeypatch.setattr(
            sealed, "_binding", lambda scope, sender, reader="", content=b"": real(scope, sender, reader)
        )
        assert self.forge(peers()) == [0.5, 0.5, 0.5]

    def test_a_parcel_of_another_round_is_refused(self):
        made = peers()
        parcel = dataclasses.replace(offered(made)["owner-0"], round=2)
        with pytest.raises(HostileMessage, match="not this round's offer"):
            ask(made, parcel, ("owner-1", "owner-2"))

    def test_a_parcel_under_another_senders_name_is_refused(self):
        made = peers()
        parcel = dataclasses.replace(offered(made)["owner-0"], sender="owner-3")
        with pytest.raises(HostileMessage, match="does not open"):
            ask(made, parcel, ("owner-1", "owner-2"))

    def test_answers_to_a_superseded_offer_are_refused(self):
        made = peers()
        old = offered(made, 50)["owner-0"]
        offered(made, 55)
        replies = ask(made, old, ("owner-1", "owner-2"))
        with pytest.raises(HostileMessage, match="does not open"):
            deliver(made, "owner-0", replies)

    def test_a_sum_is_read_once(self):
        made = peers()
        replies = ask(made, offered(made)["owner-0"], ("owner-1", "owner-2"))
        deliver(made, "owner-0", replies)
        bundle = wire.encode(Bundle("answers", "owner-0", 1, 60, tuple(replies), replies).to_tree())
        again = made.message("owner-0", "answers", 62, step=READ, cohort=("owner-0",), body=bundle)
        with pytest.raises(HostileMessage, match="already read"):
            made.tell(again)

    def test_the_courier_that_holds_all_parcels_cannot_add_them_up(self):
        """Sealed over masks: without the seal it could, which is the prototype's fourth bug."""
        made = peers()
        replies = ask(made, offered(made)["owner-0"], ("owner-1", "owner-2"))
        assert {tree["domain"] for tree in replies.values()} == {"sealed"}
        assert made.policy["answers"].carrier.over.gives.value == "masked"
        seen = dataclasses.replace(scope(60, "answers", ("owner-1", "owner-2")), reader="owner-0", offer=50)
        opened = made.policy["answers"].read(replies, seen, made.parties["owner-0"])
        total = made.policy["answers"].open_sum(opened, seen, None).total["w"].numpy()
        assert np.allclose(total, vectors(made)["owner-1"] + vectors(made)["owner-2"], atol=1e-6)
