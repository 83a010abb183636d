"""The one door out: whom a client answers, what it refuses, and when it pays."""

from __future__ import annotations

import dataclasses
import pickle

import pytest
import torch
from parties import NAMES, RUN, Toy, session

from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import HostileMessage, Refused, Unbound, WrongType
from secure_fedgraph.core.message import Message
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.policies import homomorphic, local_dp, masked, plaintext

ALL = (Toy.UPDATE, Toy.SINGLE, Toy.TELL, Toy.EXAM)


def test_an_answer_is_sealed_and_charged():
    made = session(local_dp(1.0, 2.0))
    reply = made.tell(made.message("owner-0"))
    assert reply["domain"] == "real"
    assert reply["layout"] == "1\nw:5"
    (charge,) = made.ledger.charges
    assert (charge.client, charge.run, charge.round, charge.exchange) == ("owner-0", RUN, 1, 100)
    assert (charge.channel, charge.unit, charge.relation) == ("update", "client", "zero-out")
    assert charge.releases.keys() == {"server", "peers", "outsider"}
    assert {found[0].noise_multiplier for found in charge.releases.values()} == {2.0}
    assert charge.releases == made.policy["update"].releases(5)  # as many values as the upload had


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"run": "run-2"}, "a request for 'owner-0' in run 'run-2' reached owner-0"),
        ({"cohort": NAMES[1:]}, "repeats a client, names a stranger, or lacks it"),
        ({"cohort": (*NAMES, "owner-0")}, "repeats a client"),
        ({"cohort": (*NAMES, "eve")}, "names a stranger"),
        ({"cohort": ()}, "lacks it"),
        ({"sender": "owner-1"}, "channel 'update' is read by the server, not by 'owner-1'"),
        ({"sender": "referee"}, "channel 'update' is read by the server, not by 'referee'"),
        ({"step": "open"}, "carrier 'plain' has no step 'open'"),
        ({"channel": "carrier/keys"}, "owner-0 uses no 'carrier/keys'"),
        ({"channel": "carrier/masked"}, "owner-0 uses no 'carrier/masked'"),
        ({"channel": "carrier/plain", "step": "x"}, "carrier 'plain' has no step 'x'"),
        ({"body": b"pickle"}, "does not start with the format's mark"),
    ],
)
def test_requests_that_no_honest_server_sends(change, sentence):
    made = session(plaintext())
    with pytest.raises(HostileMessage, match=sentence):
        made.tell(made.message("owner-0", **change))
    assert made.ledger.charges == ()


def test_a_request_for_somebody_else():
    made = session(plaintext())
    raw = made.message("owner-1").to_bytes()
    with pytest.raises(HostileMessage, match="a request for 'owner-1' in run 'run-1' reached owner-0"):
        made.clients["owner-0"].handle(raw)
    with pytest.raises(HostileMessage):
        made.clients["owner-0"].handle(b"SFG")


def test_an_undeclared_channel_does_not_leave():
    made = session(plaintext(), channels=(Toy.TELL,))
    for number, channel in enumerate(("update", "single", "metrics", "nonsense")):
        with pytest.raises(
            Unbound, match=f"channel '{channel}' has no protection under policy plaintext: nothing leaves"
        ):
            made.tell(made.message("owner-0", channel, exchange=number))


@pytest.mark.parametrize(
    ("channel", "sender"), [("exam", "server"), ("single", "referee"), ("update", "referee")]
)
def test_each_reader_its_own_channels(channel, sender):
    made = session(plaintext(), channels=ALL)
    with pytest.raises(HostileMessage, match=f"channel '{channel}' is read by the"):
        made.tell(made.message("owner-0", channel, sender=sender))


def test_the_referees_channel_is_not_charged():
    made = session(plaintext(), channels=ALL)
    made.tell(made.message("owner-0", "exam", sender="referee"))
    assert made.ledger.charges == ()


@pytest.mark.parametrize("sender", ["referee", "owner-1", "eve"])
@pytest.mark.parametrize("policy", [masked(), homomorphic()])
def test_set_up_is_the_servers(policy, sender):
    # What the referee asks for is in no view: a set-up under its name would be invisible to every audit.
    made = session(policy)
    with pytest.raises(HostileMessage, match="sets up 'carrier/keys' with the server only"):
        made.tell(made.message("owner-0", "carrier/keys", step="advertise", sender=sender))
    assert made.parties["owner-0"].secrets == {}


class TestReplays:
    def test_the_identical_request_gets_the_identical_bytes_at_no_charge(self):
        made = session(local_dp(1.0, 1.0))
        raw = made.message("owner-0").to_bytes()
        first = made.clients["owner-0"].handle(raw)
        assert made.clients["owner-0"].handle(raw) == first
        assert len(made.ledger.charges) == 1

    @pytest.mark.parametrize(
        "change",
        [{"round": 2}, {"body": wire.encode({"times": 2.0})}, {"cohort": NAMES[::-1]}, {"exchange": 99}],
    )
    def test_another_request_under_the_same_or_a_lower_number(self, change):
        made = session(local_dp(1.0, 1.0))
        made.tell(made.message("owner-0"))
        with pytest.raises(HostileMessage, match=r"exchange (99|100) was already answered by owner-0"):
            made.tell(made.message("owner-0", **change))
        assert len(made.ledger.charges) == 1

    def test_an_older_request_is_not_answered_again(self):
        made = session(local_dp(1.0, 1.0))
        first = made.message("owner-0", exchange=1).to_bytes()
        made.clients["owner-0"].handle(first)
        made.tell(made.message("owner-0", exchange=2))
        with pytest.raises(HostileMessage, match="exchange 1 was already answered"):
            made.clients["owner-0"].handle(first)

    def test_a_refused_request_uses_its_number_up(self):
        made = session(masked())
        with pytest.raises(HostileMessage, match="at least 2"):
            made.tell(made.message("owner-0", cohort=("owner-0",)))
        with pytest.raises(HostileMessage, match="already answered"):
            made.tell(made.message("owner-0"))


@pytest.mark.parametrize("quorum", [2, 3])
def test_the_quorum_is_the_clients_own(quorum):
    made = session(masked(quorum=quorum)).set_up()
    with pytest.raises(
        HostileMessage,
        match=f"'update': owner-0 answers cohorts of at least {quorum} and was asked in one of",
    ):
        made.tell(made.message("owner-0", cohort=NAMES[: quorum - 1]))
    assert made.ledger.charges == ()


class TestAnswers:
    def test_nothing_comes_back_on_a_silent_channel(self):
        made = session(plaintext(), channels=ALL)
        assert made.tell(made.message("owner-0", "tell", body=wire.encode({"x": 1.0}))) == {}
        assert made.clients["owner-0"].memory["told"] == {"x": 1.0}
        assert made.ledger.charges == ()

    @pytest.mark.parametrize("answer", [Upload({"w": torch.zeros(1)}), {}, 0])
    def test_an_answer_that_says_something_there_is_refused(self, answer):
        made = session(plaintext(), channels=ALL)
        made.clients["owner-0"].memory["blab"] = answer
        with pytest.raises(WrongType, match="'tell' declares that nothing comes back, and something did"):
            made.tell(made.message("owner-0", "tell"))

    def test_an_answer_is_an_upload(self):
        class Wrong(Toy):
            @Toy.UPDATE.answer
            def update(self, client, given):
                return {"w": client.memory["w"]}

        made = session(plaintext(), algorithm=Wrong())
        with pytest.raises(TypeError, match="channel 'update': an answer returns an Upload, not dict"):
            made.tell(made.message("owner-0"))

    def test_a_diverged_model_is_answered_like_any_other(self):
        made = session(plaintext())
        made.clients["owner-0"].memory["w"] = torch.tensor([1.0, float("inf")])
        assert made.tell(made.message("owner-0"))["data"].tolist() == [1.0, 0.0]

    def test_a_value_beyond_the_limit_is_answered_like_any_other(self):
        lengths = set()
        for value in (9.0, 1.0):
            made = session(masked()).set_up()
            made.clients["owner-0"].memory["w"] = torch.tensor([value])
            lengths.add(made.tell(made.upload(made.prepared(), "owner-0"))["data"].shape)
        assert lengths == {(2,)}  # the value and the word of the tally

    def test_what_was_given_can_be_written_by_the_answer(self):
        class Writes(Toy):
            @Toy.UPDATE.answer
            def update(self, client, given):
                given["v"].add_(1)
                return Upload({"w": given["v"]})

        made = session(plaintext(), algorithm=Writes())
        reply = made.tell(made.message("owner-0", body=wire.encode({"v": torch.zeros(2)})))
        assert reply["data"].tolist() == [1, 1]


def test_generators_are_seeded_by_client_round_and_purpose():
    made = session(plaintext())
    a, b, _ = made.clients.values()

    def draw(client, purpose):
        return torch.rand(1, generator=client.generator(purpose)).item()

    assert draw(a, "x") == draw(a, "x")
    assert len({draw(a, "x"), draw(a, "y"), draw(b, "x")}) == 3
    before = draw(a, "x")
    a.round = 2
    assert draw(a, "x") != before


def test_a_party_does_not_leave_its_process():
    party = session(masked()).set_up().parties["owner-0"]
    with pytest.raises(TypeError, match="Party holds a secret key"):
        pickle.dumps(party)
    assert "secrets" not in repr(party)


def test_a_reply_carries_nothing_beside_the_upload():
    made = session(masked()).set_up()
    asked = made.upload(made.prepared(), "owner-0")
    reply = made.tell(asked)
    assert set(reply) == {"domain", "layout", "grid", "data", "context"}  # the last a hash of what all know
    raw = made.clients["owner-0"].handle(asked.to_bytes())
    envelope = Message.from_bytes(raw)
    assert dataclasses.replace(envelope, body=b"") == asked.reply(b"")


def test_refusals_are_refused():
    assert issubclass(HostileMessage, Refused)
