"""Masked sums for the server: exact sums, drop-outs, what is refused, what a word weighs."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from parties import NAMES, Toy, introduced, masked_sum, people, scope, session, vectors

from secure_fedgraph.core import wire
from secure_fedgraph.core.carriers.secagg import advertisements, client
from secure_fedgraph.core.carriers.secagg import ring_words as words
from secure_fedgraph.core.carriers.secagg.advertisements import KeyAdvertisements
from secure_fedgraph.core.carriers.secagg.server import PARTS, Masked
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, HostileMessage, Incompatible, Refused
from secure_fedgraph.core.message import ANSWER
from secure_fedgraph.core.protection.contracts import DIFFERENCES, BindContext
from secure_fedgraph.core.upload import Layout
from secure_fedgraph.policies import masked
from secure_fedgraph.protocol.dropouts import STEPS

FIVE = tuple(f"owner-{i}" for i in range(5))
CHANNEL = Channel("update", Reveal.SUM)
VALUES = np.array([[1, -1, 2**12, -(2**12)]])


def bound(names=NAMES, quorum=2, **settings):
    return Masked(**settings).bind(BindContext(CHANNEL, names, "zero-out", 2**32, quorum))


@pytest.fixture(scope="module")
def five():
    return introduced(FIVE)


class TestSums:
    @pytest.mark.parametrize("bits", words.WIDTHS)
    def test_exact_and_signed(self, five, bits):
        opened = masked_sum(five, bound(FIVE, bits=bits), dict.fromkeys(FIVE, VALUES))
        assert opened.tolist() == [[5, -5, 5 * 2**12, -5 * 2**12]]

    def test_two_clients(self):
        assert masked_sum(introduced(("a", "b")), bound(("a", "b")), {"a": VALUES, "b": VALUES})[0, 0] == 2

    @pytest.mark.parametrize("step", STEPS)
    def test_one_drop_out_at_every_step(self, five, step):
        uploads = {name: VALUES * (i + 1) for i, name in enumerate(FIVE)}
        opened = masked_sum(five, bound(FIVE), uploads, {"owner-3": step})
        counted = 15 if step in ("agree", "unmask") else 11  # whoever left after its upload is in the sum
        assert opened[0, 0] == counted

    @pytest.mark.parametrize("step", STEPS)
    def test_too_few_open_nothing(self, five, step):
        gone = dict.fromkeys(FIVE[:3], step)
        with pytest.raises(Refused, match=r"channel 'update': only 2 of [35] clients .* nothing was opened"):
            masked_sum(five, bound(FIVE), dict.fromkeys(FIVE, VALUES), gone)

    def test_everybody_leaves_before_the_upload(self):
        made = session(masked()).set_up()
        made.tamper = lambda name, reply: None if reply.step == ANSWER else reply
        with pytest.raises(Refused, match="nobody uploaded, so nothing was opened"):
            made.round().reduce(Toy.UPDATE)

    def test_a_large_cohort_with_neighbours(self):
        names = tuple(f"c{i:02d}" for i in range(40))
        carrier = bound(names)
        uploads = {name: VALUES * i for i, name in enumerate(names)}
        left = {"c03": "share", "c11": ANSWER, "c17": ANSWER, "c20": "agree", "c30": "unmask"}
        opened = masked_sum(introduced(names), carrier, uploads, left)
        assert opened[0, 0] == sum(range(40)) - 3 - 11 - 17

    def test_the_callers_matrix_stays_as_it_is(self, five):
        values = VALUES.copy()
        masked_sum(five, bound(FIVE), dict.fromkeys(FIVE, values))
        assert np.array_equal(values, VALUES)


class TestThroughARound:
    def test_the_mean_is_the_survivors(self):
        made = session(masked(), names=FIVE).set_up()
        made.tamper = lambda name, reply: None if name == "owner-1" and reply.step == ANSWER else reply
        found = made.round().reduce(Toy.UPDATE)
        rest = [v for n, v in vectors(made).items() if n != "owner-1"]
        assert found.contributors == tuple(n for n in FIVE if n != "owner-1")
        assert np.allclose(found.mean["w"].numpy(), np.mean(rest, 0), atol=1e-6)
        assert made.transcript.opened[-1].contributors == found.contributors

    def test_a_lost_upload_stays_uniform(self):
        """The reply came too late for the sum: its words are in the record, and stay masked."""
        made = session(masked(), names=FIVE, width=4000).set_up()
        lost = []

        def late(name, reply):
            if name == "owner-1" and reply.step == ANSWER:
                lost.append(reply.tree()["data"])
                return None
            return reply

        made.tamper = late
        made.round().reduce(Toy.UPDATE)
        bits = np.unpackbits(lost[0].view(np.uint8).reshape(-1, 4), axis=1).mean(0)
        assert np.abs(bits - 0.5).max() < 7 * 0.5 / 4000**0.5

    def test_who_dropped_out_comes_back(self):
        made = session(masked(), names=FIVE).set_up()
        made.tamper = lambda name, reply: None if name == "owner-1" else reply
        assert len(made.round(1).reduce(Toy.UPDATE).contributors) == 4
        made.tamper = None
        assert made.round(2).reduce(Toy.UPDATE).contributors == FIVE

    def test_the_policys_quorum_is_the_survivors_too(self):
        made = session(masked(quorum=4), names=FIVE).set_up()
        made.tamper = lambda name, reply: None if name in FIVE[:2] and reply.step == ANSWER else reply
        with pytest.raises(Refused, match="only 3 of 5 clients had uploaded and 4 are needed"):
            made.round().reduce(Toy.UPDATE)

    def test_a_cohort_of_some(self):
        made = session(masked(), names=FIVE).set_up()
        found = made.round(1, FIVE[1:4]).reduce(Toy.UPDATE)
        assert np.allclose(found.total["w"].numpy(), sum(vectors(made)[n] for n in FIVE[1:4]), atol=1e-6)

    def test_secrets_go_with_the_sum(self):
        made = session(masked(), names=FIVE).set_up()
        made.round().reduce(Toy.UPDATE)
        assert all("masked/session" not in party.secrets for party in made.parties.values())

    def test_secrets_are_pickled_by_nobody(self):
        made = session(masked()).set_up()
        made.prepared()
        kept = made.parties["owner-0"].secrets["masked/session"]
        with pytest.raises(TypeError, match="holds a secret key"):
            pickle.dumps(kept)
        assert str(kept.mask_seed) not in repr(kept)
        assert str(kept.own_seed) not in repr(kept)

    @pytest.mark.parametrize(("bits", "most"), [(32, 4.0), (20, 2.5), (16, 2.0)])
    def test_bytes_up(self, bits, most):
        width = 50_000
        made = session(masked(bits=bits), names=tuple(f"c{i}" for i in range(10)), width=width).set_up()
        before = len(made.passed)
        made.round().reduce(Toy.UPDATE)
        up = sum(len(reply) for name, _, reply in made.passed[before:] if name == "c3")
        assert most * width < up < most * width + 4096


class TestWords:
    @pytest.mark.parametrize("bits", words.WIDTHS)
    @pytest.mark.parametrize("size", [0, 1, 2, 7, 1000])
    def test_packing_is_undone(self, bits, size):
        drawn = np.random.default_rng(size).integers(0, 2**bits, size).astype(words.word(bits))
        layout = Layout((("w", (size,)),))
        assert np.array_equal(words.unpack(words.pack(drawn, bits), bits, layout, "a"), drawn)

    def test_bytes_of_a_word(self):
        drawn = np.zeros(1000, dtype="<u4")
        assert [words.pack(drawn.astype(words.word(b)), b).nbytes for b in (16, 20, 32)] == [2000, 2500, 4000]

    def test_what_lies_above_20_bits_does_not_travel(self):
        drawn = np.array([0xFFF12345, 0xABC54321], dtype="<u4")
        found = words.unpack(words.pack(drawn, 20), 20, Layout((("w", (2,)),)), "a")
        assert [hex(w) for w in found] == ["0x12345", "0x54321"]

    @pytest.mark.parametrize(
        ("bits", "raw", "numbers"),
        [
            (16, [0, 1, 0x7FFF, 0x8000, 0xFFFF], [0, 1, 32767, -32768, -1]),
            (20, [0, 1, 0x7FFFF, 0x80000, 0xFFFFF], [0, 1, 524287, -524288, -1]),
            (32, [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], [0, 1, 2**31 - 1, -(2**31), -1]),
        ],
    )
    def test_centred(self, bits, raw, numbers):
        assert words.centred(np.array(raw, dtype=words.word(bits)), bits).tolist() == numbers

    @pytest.mark.parametrize("bits", words.WIDTHS)
    def test_streams_over_several_chunks_and_groups(self, bits, monkeypatch):
        monkeypatch.setattr(words, "CHUNK", 64)
        monkeypatch.setattr(words, "GROUP", 3)
        keys = [bytes([i]) * 32 for i in range(8)]
        start = np.arange(101).astype(words.word(bits))
        total = start.copy()
        words.accumulate(total, [start, start], keys[:5], keys[3:])
        words.accumulate(total, plus=keys[5:], minus=keys[:3])
        assert np.array_equal(total, 3 * start)

    def test_what_no_honest_client_sends(self):
        layout = Layout((("w", (4,)),))
        for wrong in (np.zeros(3, "<u4"), np.zeros(4, "<i4"), b"", np.zeros((2, 2), "<u4"), None):
            with pytest.raises(HostileMessage, match="a's upload does not hold 1 x 4 values"):
                words.unpack(wrong, 32, layout, "a")
        for bits, size in ((16, 7), (20, 11)):
            with pytest.raises(HostileMessage, match=f"values of {bits} bits"):
                words.unpack(np.zeros(size, "u1"), bits, layout, "a")

    def test_a_promise_of_many_values_allocates_nothing(self):
        with pytest.raises(HostileMessage, match="does not hold"):
            words.unpack(np.zeros(1, "<u4"), 32, Layout((("w", (2**20,)),), 2**20), "a")


class TestSettings:
    def test_a_ring_that_leaves_too_few_bits_is_refused(self):
        many = tuple(f"c{i:03d}" for i in range(200))
        with pytest.raises(Incompatible, match=r"protection\.bits"):
            masked(bits=16).bind((CHANNEL,), many)
        step = masked(bits=20).bind((CHANNEL,), many)["update"].stages[0].step
        assert 200 * (8 / step + 1) < 2**19
        assert masked(bits=16).bind((CHANNEL,), many[:100])["update"].bind_context.ring == 2**16

    @pytest.mark.parametrize(
        ("settings", "sentence"),
        [
            ({"bits": 24}, "bits 24: masked words have 16, 20 or 32"),
            ({"colluders": 1.0}, "colluders 1.0: a share"),
            ({"dropouts": -0.1}, "dropouts -0.1: a share"),
            ({"batch": 0}, "batch 0: a number of clients"),
        ],
    )
    def test_out_of_range(self, settings, sentence):
        with pytest.raises(BadInput, match=sentence):
            masked(**settings)

    def test_batches_beyond_the_federation(self):
        with pytest.raises(BadInput, match="batch 4: there are 3 clients"):
            bound(batch=4)

    def test_more_colluders_need_more_survivors(self, five):
        uploads = dict.fromkeys(FIVE, VALUES)
        gone = {"owner-0": ANSWER, "owner-1": ANSWER}
        assert masked_sum(five, bound(FIVE, colluders=0.0), uploads, gone)[0, 0] == 3
        with pytest.raises(Refused, match="only 3 of 5 clients had uploaded and 4 are needed"):
            masked_sum(five, bound(FIVE, colluders=0.2), uploads, gone)

    def test_excess(self):
        assert bound().excess(BindContext(CHANNEL, NAMES, "zero-out")) == (DIFFERENCES,)
        assert (
            bound(("a", "b"))
            .excess(BindContext(CHANNEL, ("a", "b"), "zero-out"))[1]
            .startswith("with two clients")
        )
        assert "one batch" in bound(batch=3).excess(BindContext(CHANNEL, NAMES, "zero-out"))[0]


class TestBatches:
    def test_the_last_one_takes_what_is_left(self):
        assert bound(FIVE, batch=2).batches == (("owner-0", "owner-1"), ("owner-2", "owner-3", "owner-4"))
        assert bound(FIVE).batches == ()

    def test_a_drop_out_costs_its_batch(self):
        made = session(masked(batch=2), names=FIVE).set_up()
        made.tamper = lambda name, reply: None if name == "owner-1" else reply
        found = made.round().reduce(Toy.UPDATE)
        assert found.contributors == ("owner-2", "owner-3", "owner-4")
        assert np.allclose(
            found.total["w"].numpy(), sum(vectors(made)[n] for n in found.contributors), atol=1e-6
        )

    @pytest.mark.parametrize("batch", [1, 2, 3, 5])
    def test_the_stated_cost(self, batch):
        """Of clients that answer with probability q, q to the batch are summed."""
        names = tuple(f"c{i:02d}" for i in range(30))
        carrier, generator = bound(names, batch=batch), np.random.default_rng(0)
        kept = [
            len(carrier.contributors(tuple(n for n in names if generator.random() < 0.9)))
            for _ in range(2000)
        ]
        assert np.mean(kept) / 30 == pytest.approx(0.9**batch, abs=0.01)


class TestDeck:
    def adverts(self):
        return {
            n: {
                "public": np.full(32, i, "u1"),
                "commitment": np.zeros(32, "u1"),
                "signature": np.zeros(64, "u1"),
            }
            for i, n in enumerate("cab")
        }

    def test_it_is_sorted_and_survives_the_wire(self):
        advertised = KeyAdvertisements.of(self.adverts())
        assert advertised.names == ("a", "b", "c")
        assert advertised.row("c", "public") == bytes(32)
        again = KeyAdvertisements.from_tree(wire.decode(wire.encode(advertised.to_tree())))
        assert again.digest == advertised.digest

    def test_every_byte_counts(self):
        digests = {KeyAdvertisements.of(self.adverts()).digest}
        for key in ("public", "commitment", "signature"):
            for name in "abc":
                adverts = self.adverts()
                adverts[name][key][5] ^= 128
                digests.add(KeyAdvertisements.of(adverts).digest)
        assert len(digests) == 10

    @pytest.mark.parametrize("key", ["public", "commitment", "signature"])
    def test_what_no_client_advertises(self, key):
        adverts = self.adverts()
        for wrong in (b"x", np.zeros(31, "u1"), np.zeros((1, 32), "u1"), np.zeros(32, "<f4")):
            adverts["b"][key] = wrong
            with pytest.raises(HostileMessage, match="b advertised something that is no signed key"):
                KeyAdvertisements.of(adverts)

    def test_masks_hang_on_everything(self):
        advertised = KeyAdvertisements.of(self.adverts())
        places = [
            scope(),
            scope(8),
            scope(channel="x"),
            scope(cohort=NAMES[::-1]),
            scope(round=2),
        ]
        assert len({advertisements.context(place, advertised) for place in places}) == 5


class TestOrder:
    """What a client insists on: each step once, in order, in the sum that it advertised for."""

    def test_no_other_steps(self):
        with pytest.raises(HostileMessage, match="carrier 'masked' has no step 'open'"):
            bound().answer("open", {}, scope(), introduced()["owner-0"])

    @pytest.mark.parametrize("step", ["share", "agree", "unmask"])
    def test_out_of_order(self, step):
        with pytest.raises(HostileMessage, match=f"asked to {step} out of order, or a second time"):
            bound().answer(step, {}, scope(), introduced()["owner-0"])

    def test_an_upload_before_its_time(self):
        with pytest.raises(HostileMessage, match="asked to upload out of order"):
            bound().seal(VALUES, scope(), introduced()["owner-0"])
        with pytest.raises(HostileMessage, match="asked to accept out of order"):
            bound().accept({}, scope(), introduced()["owner-0"])

    def test_nobody_advertises_below_its_quorum(self):
        with pytest.raises(HostileMessage, match="cohorts of at least 3 and was asked in one of 2"):
            bound(quorum=3).answer("advertise", {}, scope(cohort=NAMES[:2]), introduced()["owner-0"])

    def test_a_server_that_did_not_prepare(self):
        with pytest.raises(HostileMessage, match="prepared before"):
            bound().open_sum({}, Layout((("w", (1,)),)), scope(), None)

    def test_another_sum(self):
        parties = introduced()
        carrier = bound()
        carrier.answer("advertise", {}, scope(1), parties["owner-0"])
        for other in (scope(2, "metrics"), scope(2, cohort=NAMES[::-1]), scope(2, round=2)):
            with pytest.raises(HostileMessage, match="in another sum than it advertised for"):
                carrier.answer("share", {}, other, parties["owner-0"])

    def test_a_client_without_agreed_keys(self):
        parties = people()
        with pytest.raises(HostileMessage, match="never introduced"):
            masked_sum(parties, bound(), dict.fromkeys(NAMES, VALUES))

    def test_a_new_sum_forgets_the_one_before(self):
        parties = introduced()
        carrier = bound()
        carrier.answer("advertise", {}, scope(1), parties["owner-0"])
        first = parties["owner-0"].secrets[client._SESSION]
        carrier.answer("advertise", {}, scope(2), parties["owner-0"])
        second = parties["owner-0"].secrets[client._SESSION]
        assert first.mask_seed != second.mask_seed
        assert first.own_seed != second.own_seed
        assert first.key.public != second.key.public


@pytest.mark.parametrize(
    ("clients", "quorum", "told"), [(10, 2, False), (32, 2, False), (200, 2, True), (200, 160, False)]
)
def test_sums_that_a_lying_server_may_open_in_parts_are_told(clients, quorum, told):
    everybody = tuple(f"c{i:03d}" for i in range(clients))
    context = BindContext(Channel("update", Reveal.SUM), everybody, "zero-out", 2**32, quorum)
    assert (PARTS in Masked().excess(context)) == told
