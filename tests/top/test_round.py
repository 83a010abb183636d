"""The verbs and the courier."""

from __future__ import annotations

import dataclasses

import pytest
from parties import NAMES, Toy, pairwise, session, vectors

from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, HostileMessage, Incompatible, Refused, Unbound
from secure_fedgraph.core.message import Message
from secure_fedgraph.policies import masked, plaintext
from secure_fedgraph.round import everyone

ALL = (Toy.UPDATE, Toy.SINGLE, Toy.TELL, Toy.EXAM)


@pytest.fixture
def made():
    return session(plaintext(), channels=ALL)


def test_reduce_gather_scatter(made):
    round = made.round()
    w = vectors(made)
    assert round.reduce(Toy.UPDATE, {"times": 2.0}).total["w"].numpy() == pytest.approx(
        2 * sum(w.values()), abs=1e-6
    )
    assert {n: v["w"].tolist() for n, v in round.gather(Toy.SINGLE).items()} == {
        n: v.tolist() for n, v in w.items()
    }
    assert round.scatter(Toy.TELL, {"owner-1": {"x": 1.0}}) is None
    assert "told" not in made.clients["owner-0"].memory
    assert made.clients["owner-1"].memory["told"] == {"x": 1.0}


@pytest.mark.parametrize(
    ("verb", "channel", "sentence"),
    [
        ("gather", Toy.UPDATE, "channel 'update' declares sum: use reduce, not gather"),
        ("reduce", Toy.SINGLE, "channel 'single' declares each: use gather, not reduce"),
        ("gather", Toy.TELL, "channel 'tell' declares nothing: use scatter, not gather"),
        ("reduce", Toy.TELL, "channel 'tell' declares nothing: use scatter, not reduce"),
        ("scatter", Toy.UPDATE, "channel 'update' declares sum: use reduce, not scatter"),
        ("scatter", Toy.SINGLE, "channel 'single' declares each: use gather, not scatter"),
        ("gather", Toy.EXAM, "channel 'exam' is read by the referee, not by the server"),
    ],
)
def test_a_verb_matches_the_declaration(made, verb, channel, sentence):
    arguments = ({"owner-0": {}},) if verb == "scatter" else ()
    with pytest.raises(Incompatible, match=sentence):
        getattr(made.round(), verb)(channel, *arguments)
    assert made.passed == []


@pytest.mark.parametrize(
    ("policy", "given", "words"),
    [
        (plaintext, [1], "given is a list"),
        (masked, [1], "given is a list"),
        (plaintext, {1: 2.0}, "entry name 1 is no text"),
        (plaintext, {"a": object()}, "entry 'a' is of type object"),
    ],
)
def test_what_clients_are_given_is_of_names_and_values(policy, given, words):
    made = session(policy(), channels=(Toy.UPDATE,))
    with pytest.raises(BadInput, match=f"^channel 'update': .*{words}"):
        made.round().reduce(Toy.UPDATE, given)


def test_each_client_is_given_a_dict(made):
    with pytest.raises(BadInput, match=r"^channel 'tell': .*a dict from names to values, not a list"):
        made.round().scatter(Toy.TELL, {"owner-0": [1]})
    assert made.passed == []


@pytest.mark.parametrize("verb", ["reduce", "gather", "collect", "share"])
@pytest.mark.parametrize("channel", ["update", None])
def test_a_verb_takes_a_channel(made, verb, channel):
    with pytest.raises(BadInput, match=r"^channel is a .*: give the Channel"):
        getattr(made.round(), verb)(channel)


def test_the_referee_reads_its_own_only(made):
    examination = made.round(reader="referee")
    assert set(examination.gather(Toy.EXAM)) == set(NAMES)
    with pytest.raises(Incompatible, match="'single'"):
        examination.gather(Toy.SINGLE)


def test_a_look_alike_of_a_channel_is_refused(made):
    # The verbs look a protection up by name; a channel made on the spot could declare what it likes.
    for fake, verb in (
        (Channel("update", Reveal.EACH), "gather"),
        (Channel("single", Reveal.SUM), "reduce"),
        (dataclasses.replace(Toy.EXAM, to="server"), "gather"),
    ):
        with pytest.raises(
            Incompatible, match=f"channel '{fake.name}' was bound as .* and is used as another"
        ):
            getattr(made.round(), verb)(fake)
    assert made.passed == []


def test_a_channel_that_is_not_bound():
    made = session(plaintext(), channels=(Toy.TELL,))
    with pytest.raises(Unbound, match="nothing leaves"):
        made.round().reduce(Toy.UPDATE)
    assert made.passed == []


def test_a_round_of_nobody(made):
    round = made.round()
    round.cohort = ()
    with pytest.raises(BadInput, match="nobody is asked; the cohort is empty"):
        round.reduce(Toy.UPDATE)
    with pytest.raises(BadInput, match="nobody is asked"):
        made.round().scatter(Toy.TELL, {})


class TestCourier:
    def test_numbers_never_repeat_however_often_a_round_asks(self):
        made = session(masked()).set_up()
        for number in (1, 1, 2):
            round = made.round(number)
            round.reduce(Toy.UPDATE)
            round.reduce(Toy.UPDATE)
        asked = [Message.from_bytes(request) for _, request, _ in made.passed]
        by_client = [m.exchange for m in asked if m.recipient == "owner-0"]
        assert by_client == sorted(set(by_client))
        # advertise, introduce, and six sums: advertise, share, answer, agree, unmask each
        assert by_client == list(range(1, 33))

    def test_everything_is_recorded_as_it_went_over_the_wire(self):
        made = session(masked()).set_up()
        made.round().reduce(Toy.UPDATE)
        recorded = sorted(made.transcript.body(s.number) for s in made.transcript.sent)
        assert recorded == sorted(raw for _, *both in made.passed for raw in both)
        assert made.transcript.traffic() == {
            "down": sum(len(request) for _, request, _ in made.passed),
            "up": sum(len(reply) for _, _, reply in made.passed),
            "evaluation": 0,
        }

    def test_a_drop_out_opens_nothing(self):
        for policy in (pairwise(), plaintext()):
            made = session(policy).set_up()
            made.tamper = lambda name, reply: None if name == "owner-1" else reply
            with pytest.raises(Refused, match="round 1, channel 'update': owner-1 did not answer"):
                made.round().reduce(Toy.UPDATE)
            assert made.transcript.opened == []

    @pytest.mark.parametrize(
        "change",
        [
            {"exchange": 99},
            {"round": 2},
            {"run": "x"},
            {"channel": "single"},
            {"sender": "owner-0"},
            {"recipient": "referee"},
            {"step": "open"},
            {"cohort": ("owner-1",)},
        ],
    )
    def test_replies_to_other_questions(self, made, change):
        made.tamper = lambda name, reply: dataclasses.replace(reply, **change) if name == "owner-1" else reply
        with pytest.raises(HostileMessage, match="'owner-1' answered something that it was not asked"):
            made.round().reduce(Toy.UPDATE)

    def test_somebody_who_was_not_asked(self, made):
        class Extra:
            def exchange(self, requests):
                return {**made.exchange(requests), "eve": made.passed[0][2]}

        made.courier._transport = Extra()
        with pytest.raises(HostileMessage, match="'eve' answered something that it was not asked"):
            made.round().reduce(Toy.UPDATE)

    def test_bytes_that_are_no_message(self, made):
        class Noise:
            def exchange(self, requests):
                return dict.fromkeys(requests, b"\x80\x04K.")

        made.courier._transport = Noise()
        with pytest.raises(HostileMessage, match="format's mark"):
            made.round().reduce(Toy.UPDATE)


def test_everyone():
    assert everyone(3, NAMES, 0) == NAMES
