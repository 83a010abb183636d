"""The bugs that the prototype made (design.md, section 5), and a server that lies in the same ways.

Each attack is run twice: against the code as it is, where it is refused or learns nothing, and with the one
defence taken out, where it succeeds. The second run is what shows that the first could have failed.
"""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np
import pytest
from parties import NAMES, Toy, pairwise, scope, session, vectors

from secure_fedgraph.client import Client
from secure_fedgraph.core import wire
from secure_fedgraph.core.carriers.homomorphic import sums as he
from secure_fedgraph.core.carriers.homomorphic.scheme import SecretKey
from secure_fedgraph.core.carriers.key_agreement import shared_key
from secure_fedgraph.core.carriers.secagg import pairwise as masking_pairwise
from secure_fedgraph.core.carriers.secagg.pairwise import Pairwise
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.crypto import AgreementKey, key_stream, unseal
from secure_fedgraph.core.errors import HostileMessage, Incompatible, Refused
from secure_fedgraph.core.message import ANSWER, CARRIER, Message
from secure_fedgraph.core.protection.contracts import Party
from secure_fedgraph.core.protection.gaussian import Gaussian
from secure_fedgraph.policies import central_dp, homomorphic, local_dp, masked, plaintext, strictest
from secure_fedgraph.privacy.policy import BoundPolicy, Policy
from secure_fedgraph.round import Round

STEP = 2.0**-26  # of masked() for three clients: see test_encoding
POLICIES = [plaintext(), local_dp(1, 1), central_dp(1, 1), masked(), homomorphic(), strictest()]


def grid(values: np.ndarray) -> np.ndarray:
    return np.rint(values.astype(np.float64) / STEP).astype(np.int64).astype(np.uint32)


def sent_by(made, name: str, channel: str = "update") -> list[np.ndarray]:
    """The words of a client's uploads, as the server has them."""
    replies = [Message.from_bytes(reply) for who, _, reply in made.passed if who == name]
    return [wire.decode(r.body)["data"] for r in replies if r.channel == channel and r.step == ANSWER]


# --- 1. masks that serve twice ------------------------------------------------------------------------------


class Twice(Toy):
    """An algorithm that reduces twice in a round."""

    def round(self, round, state):
        round.reduce(self.UPDATE, {"times": 1.0})
        round.reduce(self.UPDATE, {"times": 0.5})
        return state


def two_uploads() -> tuple[np.ndarray, np.ndarray]:
    """The server's difference of one client's two masked uploads of a round, and the plain one."""
    made = session(pairwise(), algorithm=Twice(), width=500).set_up()
    Twice().round(made.round(), {})
    first, second = (words[:-1] for words in sent_by(made, "owner-1"))  # the last is the tally's
    w = vectors(made)["owner-1"]
    return first - second, grid(w) - grid(w * np.float32(0.5))


class TestTwoTimePad:
    def test_two_sums_of_a_round_have_two_masks(self):
        seen, plain = two_uploads()
        assert np.count_nonzero(seen == plain) < 3  # each by chance at 2**-32

    def test_keys_from_the_round_number_give_the_difference_away(self, monkeypatch):
        def by_round(party, peer, scope, purpose):
            return shared_key(
                party, peer, dataclasses.replace(scope, exchange=scope.round, history_head=""), purpose
            )

        monkeypatch.setattr(masking_pairwise.key_agreement, "shared_key", by_round)
        seen, plain = two_uploads()
        assert np.array_equal(seen, plain)


def ask_twice(made) -> tuple[np.ndarray, np.ndarray]:
    """A server that asks the same client two things under one number."""
    body = wire.encode({"times": 0.5})
    first = made.tell(made.message("owner-1"))["data"][:-1]
    second = made.tell(made.message("owner-1", body=body))["data"][:-1]
    w = vectors(made)["owner-1"]
    return first - second, grid(w) - grid(w * np.float32(0.5))


class TestRepeatedNumber:
    def test_a_client_refuses_it(self):
        with pytest.raises(HostileMessage, match="exchange 100 was already answered by owner-1"):
            ask_twice(session(pairwise(), width=500).set_up())

    def test_a_client_that_did_not_would_give_the_difference_away(self, monkeypatch):
        monkeypatch.setattr(Client, "_refuse_replays", lambda self, request: None)
        monkeypatch.setattr(Client, "_recorded", lambda *_: "")  # else the two broadcasts part the masks
        seen, plain = ask_twice(session(pairwise(), width=500).set_up())
        assert np.array_equal(seen, plain)

    def test_the_identical_request_is_the_identical_reply(self):
        made = session(pairwise()).set_up()
        raw = made.message("owner-1").to_bytes()
        assert made.clients["owner-1"].handle(raw) == made.clients["owner-1"].handle(raw)


# --- 2. the quorum ------------------------------------------------------------------------------------------


def cohort_of_one(made) -> np.ndarray:
    asked = made.message("owner-1", cohort=("owner-1",))
    return made.tell(asked)["data"][:-1].astype(np.int32) * STEP


class TestQuorum:
    def test_a_cohort_of_one_is_refused(self):
        with pytest.raises(HostileMessage, match="answers cohorts of at least 2 and was asked in one of 1"):
            cohort_of_one(session(pairwise()).set_up())

    def test_a_quorum_that_the_server_named_would_open_the_upload(self):
        made = session(pairwise()).set_up()
        bound = made.policy["update"]
        lax = dataclasses.replace(bound, protection=dataclasses.replace(bound.protection, quorum=1))
        made.clients["owner-1"]._protections = BoundPolicy(made.policy.policy, {"update": lax})
        assert np.abs(cohort_of_one(made) - vectors(made)["owner-1"]).max() <= STEP / 2

    def test_the_message_has_no_field_for_it(self):
        assert not any("quorum" in field.name for field in dataclasses.fields(Message))


# --- 3. verbs that open more than was declared --------------------------------------------------------------


class TestVerbs:
    @pytest.mark.parametrize("policy", [plaintext(), local_dp(1, 1), central_dp(1, 1), masked()])
    def test_gather_on_a_sum_is_refused_under_every_policy(self, policy):
        made = session(policy).set_up()
        before = len(made.passed)
        for channel in (Toy.UPDATE, Channel("update", Reveal.EACH)):  # the declared one, and a look-alike
            with pytest.raises(Incompatible):
                made.round().gather(channel)
        assert len(made.passed) == before

    def test_reduce_on_each_and_scatter_on_both(self):
        made = session(plaintext(), channels=(Toy.UPDATE, Toy.SINGLE))
        with pytest.raises(Incompatible, match="use gather, not reduce"):
            made.round().reduce(Toy.SINGLE)
        for channel in (Toy.SINGLE, Toy.UPDATE):
            with pytest.raises(Incompatible, match="not scatter"):
                made.round().scatter(channel, {"owner-0": {}})
        assert made.passed == []

    @pytest.mark.parametrize("channel", [Toy.UPDATE, Channel("update", Reveal.EACH)])
    def test_without_the_check_gather_opens_every_upload_of_a_sum(self, monkeypatch, channel):
        monkeypatch.setattr(Round, "_verb", lambda self, channel, *_: self._policy[channel.name])
        made = session(plaintext())
        opened = made.round().gather(channel)
        assert {n: v["w"].tolist() for n, v in opened.items()} == {
            n: v.tolist() for n, v in vectors(made).items()
        }


# --- 4. peer channels, which the server only carries --------------------------------------------------------

FEEDBACK = Channel("feedback", Reveal.SUM, to="peer")


class TestPeers:
    @pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
    def test_the_server_opens_no_peer_channel(self, policy):
        # Where it binds at all (sealed), the verbs that open refuse it.
        made = session(plaintext())
        with contextlib.suppress(Refused):
            made.policy = policy.bind([FEEDBACK], NAMES)
        with pytest.raises(Refused, match=r"channel 'feedback' (is read by the peer, not by|declares sum)"):
            made.round().reduce(FEEDBACK)
        assert made.passed == []

    @pytest.mark.parametrize("policy", [masked(), homomorphic()], ids=lambda p: p.name)
    def test_masks_alone_do_not_bind(self, policy):
        try:
            bound = policy.bind([FEEDBACK], NAMES)["feedback"]
        except Refused:
            return
        assert bound.carrier.gives.value == "sealed"

    def test_a_mask_alone_would_let_the_courier_add_them_up(self):
        made = session(pairwise()).set_up()
        place = scope(channel="feedback")
        carried = [
            Pairwise().seal(grid(v).reshape(1, -1), place, made.parties[n]) for n, v in vectors(made).items()
        ]
        total = sum(carried).astype(np.int32) * STEP
        assert np.abs(total - sum(vectors(made).values())).max() <= 3 * STEP / 2


# --- 5. noise that falls short (its shares come with distributed_dp) ----------------------------------------

WIDTH = 50_000  # a standard deviation of 5e4 draws has a standard error of 0.32 %: 3 % is nine of them


def noise_of_each(policy: Policy) -> list[float]:
    """The noise that the server finds on every single upload, as it was sent."""
    made = session(policy, width=WIDTH).set_up()
    for client in made.clients.values():
        client.memory["w"] = client.memory["w"] * 0
    made.round().reduce(Toy.UPDATE)
    return [float(sent_by(made, name)[0].std()) for name in NAMES]


def noise_of_sum(policy: Policy) -> float:
    made = session(policy, width=WIDTH).set_up()
    for client in made.clients.values():
        client.memory["w"] = client.memory["w"] * 0
    return float(made.round().reduce(Toy.UPDATE).total["w"].std())


class TestNoise:
    def test_local_noise_is_full_on_every_upload(self):
        # norm 0.5, multiplier 2: one on each upload, sqrt(3) on the sum
        assert noise_of_each(local_dp(0.5, 2.0)) == pytest.approx([1.0] * 3, rel=0.03)
        assert noise_of_sum(local_dp(0.5, 2.0)) == pytest.approx(3**0.5, rel=0.03)

    def test_central_noise_is_on_the_sum_and_on_no_upload(self):
        assert noise_of_each(central_dp(0.5, 2.0)) == [0.0] * 3
        assert noise_of_sum(central_dp(0.5, 2.0)) == pytest.approx(1.0, rel=0.03)

    def test_a_share_of_the_noise_would_be_seen(self, monkeypatch):
        drawn = Gaussian._draw
        monkeypatch.setattr(Gaussian, "_draw", lambda self, *drawn_for: drawn(self, *drawn_for) / 3**0.5)
        assert noise_of_each(local_dp(0.5, 2.0))[0] < 0.7
        assert noise_of_sum(central_dp(0.5, 2.0)) < 0.7


# --- a server in the middle ---------------------------------------------------------------------------------


class Middle:
    """A server that hands out keys of its own, one for each client that it plays."""

    def __init__(self, made) -> None:
        self.made = made
        self.keys = {name: AgreementKey.generate() for name in NAMES}
        self.publics: dict[str, bytes] = {}

    def swap(self) -> None:
        ask = self.ask("keys")
        offers = {name: ask("advertise", {name: {}})[name] for name in NAMES}
        self.publics = {name: bytes(offer["public"]) for name, offer in offers.items()}
        for name in NAMES:  # to each the others' keys swapped, its own as it was
            shown = {}
            for other in NAMES:
                own = other == name
                shown[f"public/{other}"] = offers[other]["public"] if own else self.keys[other].public
                shown[f"signature/{other}"] = offers[other]["signature"]
            ask("introduce", {name: shown})

    def ask(self, carrier: str):
        def ask(step, given):
            return self.made.courier.ask("server", 0, CARRIER + carrier, step, NAMES, given)[1]

        return ask

    def playing(self, name: str) -> Party:
        """The party that everybody else takes for ``name``."""
        return Party(name, None, {}, {"agreement": self.keys[name], "peers": self.publics})

    def unmask(self, victim: str, words: np.ndarray, place) -> np.ndarray:
        stream = np.empty(words.size, dtype="<u4")
        for peer in place.cohort:
            if peer != victim:
                key_stream(shared_key(self.playing(peer), victim, place, "mask"), stream.data.cast("B"))
                words = words - stream if victim < peer else words + stream
        return words.astype(np.int32) * STEP


def first_upload(made, victim: str):
    asked = made.message(victim)
    words = made.tell(asked)["data"][:-1]
    head = made.clients[victim]._history.head
    return words, dataclasses.replace(scope(asked.exchange, "update"), history_head=head)


class TestMiddle:
    def test_swapped_keys_are_caught_by_the_roster(self):
        made = session(pairwise())
        with pytest.raises(HostileMessage, match="A signature does not belong to identity"):
            Middle(made).swap()
        with pytest.raises(HostileMessage, match="never introduced"):
            first_upload(made, "owner-0")

    @pytest.mark.parametrize("victim", NAMES)
    def test_without_signatures_the_server_opens_one_upload(self, monkeypatch, victim):
        monkeypatch.setattr(Party, "verify", lambda *_: None)
        made = session(pairwise())
        server = Middle(made)
        server.swap()
        words, place = first_upload(made, victim)
        opened = server.unmask(victim, words, place)
        assert np.abs(opened - vectors(made)[victim]).max() <= STEP / 2

    def test_keys_made_up_afterwards_open_nothing(self):
        # the same arithmetic against an honest agreement: the server has every public key and no secret one
        made = session(pairwise()).set_up()
        server = Middle(made)
        server.publics = {n: p.secrets["agreement"].public for n, p in made.parties.items()}
        words, place = first_upload(made, "owner-0")
        opened = server.unmask("owner-0", words, place)
        assert np.abs(opened - vectors(made)["owner-0"]).max() > 1e-3  # by chance at (1e-3/32)**5


# --- the homomorphic key ------------------------------------------------------------------------------------


def sealed_key(made) -> tuple[str, str, bytes]:
    """What the server carried from the dealer to the last client."""
    for _, _, raw in made.passed:
        reply = Message.from_bytes(raw)
        if reply.step == "deal":
            name, parcel = list(wire.decode(reply.body).items())[-1]
            return reply.sender, name, parcel
    raise AssertionError("no key was dealt")


def unseal_as(server: Middle, dealer: str, name: str, parcel: bytes) -> bytes:
    place = scope(0, CARRIER + "homomorphic")
    return unseal(he._pair_key(server.playing(name), dealer, place), parcel, he._parcel(place, dealer, name))


class TestDealtKey:
    def test_the_server_cannot_unseal_it(self):
        made = session(homomorphic()).set_up()
        server = Middle(made)
        server.publics = {n: p.secrets["agreement"].public for n, p in made.parties.items()}
        dealer, name, parcel = sealed_key(made)
        with pytest.raises(HostileMessage, match="does not open"):
            unseal_as(server, dealer, name, parcel)

    def test_without_signatures_it_can_and_opens_one_upload(self, monkeypatch):
        monkeypatch.setattr(Party, "verify", lambda *_: None)
        made = session(homomorphic())
        server = Middle(made)
        server.swap()
        server.ask("homomorphic")("deal", {"owner-0": {}})
        key = SecretKey.from_bytes(
            made.policy["update"].carrier.parameters, unseal_as(server, *sealed_key(made))
        )
        upload = made.tell(made.message("owner-0"))["data"]
        opened = key.decrypt(upload, 5) * 2.0**-24
        assert np.abs(opened - vectors(made)["owner-0"]).max() <= 2.0**-25


def two_openers(made) -> list[np.ndarray]:
    """A server that has one client after the other open a single upload of the same exchange."""
    made.round().reduce(Toy.UPDATE)
    upload = sent_by(made, "owner-2")[0]
    number = next(Message.from_bytes(q).exchange for _, q, _ in made.passed if b"update" in q)
    opened = []
    for name in ("owner-1", "owner-2"):
        made.courier._exchange += 1
        body = wire.encode({"total": upload, "exchange": number})
        cohort = (name, *(n for n in NAMES if n != name))
        asked = made.message(name, exchange=made.courier._exchange, step="open", cohort=cohort, body=body)
        opened.append(made.tell(asked)["values"] * 2.0**-24)
    return opened


class TestOpener:
    def test_nobody_else_opens(self):
        with pytest.raises(
            HostileMessage, match="owner-1 opens a sum once, and only one that it contributed to"
        ):
            two_openers(session(homomorphic()).set_up())

    def test_if_the_asker_named_the_opener_each_would_open_once(self, monkeypatch):
        def careless(self, matrix, scope, party):
            kept = party.secrets.setdefault(he._SEALED, {})
            for first in NAMES:
                cohort = (first, *(n for n in NAMES if n != first))
                if first == party.name:
                    kept[scope.exchange] = (scope.channel, cohort, matrix.size, [])
            return he._key(party).encrypt(matrix.reshape(-1))

        monkeypatch.setattr(he.Homomorphic, "seal", careless)
        monkeypatch.setattr(SecretKey, "_genuine", lambda *_: True)
        made = session(homomorphic()).set_up()
        for opened in two_openers(made):
            assert np.abs(opened[:-1] - vectors(made)["owner-2"]).max() <= 2.0**-25


# --- clients that lie ---------------------------------------------------------------------------------------

LIES = {
    "another layout": ({"layout": "1\nv:5"}, "another layout"),
    "more rows": ({"layout": "2\nw:5"}, "another layout"),
    "another type": ({"data": np.zeros(5)}, "does not hold 1 x 5 values"),
    "too few": ({"data": np.zeros(4, "<f4")}, "does not hold 1 x 5 values"),
    "bytes": ({"data": b"pickle"}, "does not hold 1 x 5 values"),
    "NaN": ({"data": np.full(5, np.nan, "<f4")}, "holds NaN or infinity"),
    "another domain": ({"domain": "cipher"}, "'cipher' numbers, the policy promises"),
}


@pytest.mark.parametrize("liar", NAMES)
@pytest.mark.parametrize("lie", LIES)
def test_a_client_that_lies_is_named(lie, liar):
    change, sentence = LIES[lie]
    made = session(plaintext()).set_up()

    def tamper(name, reply):
        if name != liar or reply.step != "answer":
            return reply
        return dataclasses.replace(reply, body=wire.encode({**wire.decode(reply.body), **change}))

    made.tamper = tamper
    with pytest.raises(HostileMessage, match=f"{liar}.*{sentence}"):
        made.round().reduce(Toy.UPDATE)
    assert made.transcript.opened == []


def test_a_drop_out_among_peers_opens_nothing_and_the_rest_does_not_add_up():
    made = session(pairwise()).set_up()
    made.tamper = lambda name, reply: None if name == "owner-2" else reply
    with pytest.raises(Refused, match="owner-2 did not answer"):
        made.round().reduce(Toy.UPDATE)
    assert made.transcript.opened == []
    words = (sent_by(made, "owner-0")[0] + sent_by(made, "owner-1")[0])[:-1]
    plain = vectors(made)["owner-0"] + vectors(made)["owner-1"]
    # what the server could add up is under owner-2's masks still; five words by chance at (2e-3/64)**5
    assert np.abs(words.astype(np.int32) * STEP - plain).max() > 1e-3
