"""Encrypted values: exact enough, opened blindly, and nothing of an update in what anybody sees."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from parties import NAMES, session
from scipy.stats import chi2

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.core import wire
from secure_fedgraph.core.carriers.homomorphic import native as ring_he_native
from secure_fedgraph.core.carriers.plain import Plain
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, HostileMessage, Incompatible, Refused
from secure_fedgraph.core.message import Message
from secure_fedgraph.core.protection.binding import Protection
from secure_fedgraph.core.protection.bound import CutWarning
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.policies import homomorphic, local_dp, masked, plaintext, strictest
from secure_fedgraph.privacy.encrypted_values import valuation, valuation_native
from secure_fedgraph.privacy.encrypted_values.valuation import EncryptedValues
from secure_fedgraph.privacy.policy import Policy

WIDTH = 9000  # two ciphertexts
EVEN = dict.fromkeys(NAMES, 1 / 3)


class Valuing(Algorithm):
    name = "valuing"
    VALUED = Channel("valued", Reveal.VALUES)

    @VALUED.answer
    def valued(self, client: Any, given: Mapping[str, Any]) -> Upload:
        return Upload({"w": client.memory["w"] * given.get("times", 1.0)})


def made(policy: Policy | None = None, width: int = WIDTH):
    found = session(policy or homomorphic(), (Valuing.VALUED,), width=width, algorithm=Valuing())
    for number, client in enumerate(found.clients.values()):
        generator = torch.Generator().manual_seed(number)
        client.memory["w"] = 1e-3 * (1 + torch.randn(width, generator=generator) * (1 + number))
    return found.set_up()


@pytest.fixture(scope="module")
def whole():
    found = made()
    return found, found.round().value(Valuing.VALUED, EVEN)


def vectors(found) -> np.ndarray:
    return np.stack([client.memory["w"].double().numpy() for client in found.clients.values()])


class TestValues:
    def test_they_are_the_plaintext_ones(self, whole):
        found, valued = whole
        mine = vectors(found)
        mean = mine.mean(0)
        assert np.abs(valued.aggregate["w"].numpy() - mean).max() < 1e-7
        expected = mine @ mean / np.linalg.norm(mine, axis=1) / np.linalg.norm(mean)
        assert list(valued.alignment.values()) == pytest.approx(expected.tolist(), abs=1e-6)
        assert list(valued.lengths.values()) == pytest.approx(np.linalg.norm(mine, axis=1).tolist(), rel=1e-6)

    def test_weights_count(self):
        found = made()
        weights = dict(zip(NAMES, (0.5, 0.5, 0.0), strict=True))
        valued = found.round().value(Valuing.VALUED, weights)
        mine = vectors(found)
        mean = 0.5 * mine[0] + 0.5 * mine[1]
        assert np.abs(valued.aggregate["w"].numpy() - mean).max() < 1e-7
        last = mine[2] @ mean / np.linalg.norm(mine[2]) / np.linalg.norm(mean)
        assert valued.alignment["owner-2"] == pytest.approx(last, abs=1e-6)

    def test_opposite_and_zero_updates(self):
        found = made(width=40)
        first, second, third = found.clients.values()
        second.memory["w"] = -2 * first.memory["w"]
        third.memory["w"] = torch.zeros(40)
        valued = found.round().value(Valuing.VALUED, EVEN)
        assert list(valued.alignment.values()) == pytest.approx([-1, 1, 0], abs=1e-5)

    def test_weights_of_zero_open_nothing(self):
        found = made(width=40)
        valued = found.round().value(Valuing.VALUED, dict.fromkeys(NAMES, 0.0))
        assert not valued.aggregate["w"].any()
        assert set(valued.alignment.values()) == {0.0}
        assert not any(Message.from_bytes(request).step == "open" for _, request, _ in found.passed)

    @pytest.mark.parametrize("value", [65.0, 1e30, float("nan")])
    def test_a_long_update_is_shortened_and_the_operator_is_told(self, value):
        found, counted = made(width=4), int(value == value)
        found.clients["owner-0"].memory["w"] = torch.full((4,), value)
        with (
            pytest.warns(CutWarning, match="1 of 3 uploads were longer than 128")
            if counted
            else nullcontext()
        ):
            valued = found.round().value(Valuing.VALUED, EVEN)
        assert valued.cut == counted == len(found.transcript.cut)
        assert valued.lengths["owner-0"] == pytest.approx(128.0 * counted, abs=1e-3)

    def test_the_longest_there_may_be_still_fit_the_ring(self):
        found = made(width=4)
        for client in found.clients.values():
            client.memory["w"] = torch.full((4,), 63.9)
        valued = found.round().value(Valuing.VALUED, EVEN)
        assert list(valued.alignment.values()) == pytest.approx([1, 1, 1])
        assert list(valued.lengths.values()) == pytest.approx([127.8] * 3)


def forms(vector: np.ndarray) -> list[bytes]:
    """How a piece of an update could lie in a message."""
    found = []
    for scaled in (vector, vector * valuation.GAIN):
        found += [scaled.astype(kind).tobytes() for kind in ("<f4", "<f8")]
    return found


class TestWhatIsSeen:
    def test_no_message_holds_a_piece_of_an_update(self, whole):
        found, _ = whole
        passed = b"".join(raw for _, request, reply in found.passed for raw in (request, reply))
        for vector in vectors(found):
            for at in range(0, WIDTH - 4, 501):
                assert not any(piece in passed for piece in forms(vector[at : at + 4]))

    def test_the_servers_view_reads_no_update_and_its_record_holds_the_mean_and_the_values(self, whole):
        found, valued = whole
        view = found.transcript.view("server")
        assert view.uploads("valued") == []
        (seen,) = view.sums("valued")
        assert set(seen.values) == {"w", *(f"{k}/{n}" for k in ("alignment", "length") for n in NAMES)}
        assert torch.equal(torch.tensor(seen.values["w"]), valued.aggregate["w"])
        assert "server learns the length" in " ".join(found.policy["valued"].excess)

    def test_a_control_in_the_clear_is_found(self):
        vector = np.arange(8, dtype=np.float64)
        assert any(form in b"x" + vector.astype("<f4").tobytes() for form in forms(vector))

    def test_what_the_holder_opens_is_uniform_whatever_was_uploaded(self):
        for times in (0.0, 1.0):
            found = made(width=40)
            found.round().value(Valuing.VALUED, EVEN, given={"times": times})
            (opened,) = [
                wire.decode(Message.from_bytes(reply).body)
                for _, request, reply in found.passed
                if Message.from_bytes(request).step == "open"
            ]
            words = np.frombuffer(opened["aggregate"], dtype="<u8")
            assert len(words) == len(valuation_native.PRIMES) * valuation_native.DEGREE
            # the six high bits but the top four, which a prime of 60 bits leaves empty
            counts = np.bincount((words >> np.uint64(54)).astype(np.int64), minlength=64)
            expected = len(words) / 64
            assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-9, 63)

    def test_two_openings_of_the_same_have_nothing_in_common(self):
        found = made(width=40)
        for number in (1, 2):
            found.round(number).value(Valuing.VALUED, EVEN)
        opened = [
            np.frombuffer(wire.decode(Message.from_bytes(reply).body)["products"], dtype="<u8")
            for _, request, reply in found.passed
            if Message.from_bytes(request).step == "open"
        ]
        assert len(opened) == 2
        assert not set(opened[0].tolist()) & set(opened[1].tolist())

    def test_equal_updates_have_unequal_ciphertexts(self):
        seed = bytes(range(64))
        public, _ = valuation_native.public_keys(seed)
        values = np.ones(10).astype("<f8").tobytes()
        assert valuation_native.encrypt(public, values) != valuation_native.encrypt(public, values)

    def test_a_blind_is_below_its_prime_and_from_its_whole_range(self):
        for prime in valuation_native.PRIMES:
            words = valuation_native._uniform(prime)
            assert int(words.max()) < prime
            assert abs(float((words >= prime // 2).mean()) - 0.5) < 6 * 0.5 / len(words) ** 0.5


def first_words(piece: bytes) -> tuple[int, int]:
    """The first word of each of a ciphertext's two polynomials, transformed and modulo the first prime."""
    with ring_he_native.Scratch() as file:
        found = valuation_native._loaded(valuation_native.seal.Ciphertext(), file, piece)
    return found.data(0), found.data(1)


class TestTheKey:
    """The exact plaintext of a CKKS ciphertext gives the key away: s = (p - c0) / c1."""

    @pytest.mark.parametrize("flooded", [False, True])
    def test_what_is_handed_back_does_not_solve_for_it(self, flooded, monkeypatch):
        native, prime = valuation_native, valuation_native.PRIMES[0]
        if not flooded:  # the control: then every opening gives the same word of the key
            monkeypatch.setattr(native, "_flooded", lambda words: words)
        seed = bytes(range(64))
        public, relinearisation = native.public_keys(seed)
        upload = native.encrypt(public, np.ones(4).astype("<f8").tobytes())
        weights = np.array([0.5, 0.5]).astype("<f8").tobytes()
        solved = set()
        for _ in range(4):
            made = native.value(public, relinearisation, weights, upload, upload)
            aggregate, _, products, _ = ring_he_native.split(made)
            words, _ = ring_he_native.split(native.open_blinded(seed, aggregate, products))
            opened = int(np.frombuffer(words, dtype="<u8")[0])
            first, second = first_words(ring_he_native.split(aggregate)[0])
            # p = opened - blind and c0 = first - blind: the blind falls out
            solved.add((opened - first) * pow(second, -1, prime) % prime)
        assert len(solved) == (4 if flooded else 1)

    def test_the_holders_noise_is_on_every_bit(self):
        native = valuation_native
        bare = np.zeros(native._WORDS, dtype="<u8").tobytes()
        one, two = (np.frombuffer(native._flooded(bare), dtype="<u8") for _ in range(2))
        assert not set(one.tolist()) & set(two.tolist())
        slots = np.frombuffer(native.unblind(one.tobytes(), bare), dtype="<f8")
        assert 0.9 * native.FLOOD < np.abs(slots).max() <= native.FLOOD * (1 + 1e-9)
        assert slots.std() == pytest.approx(native.FLOOD / 3**0.5, rel=0.05)

    def test_numbers_carry_noise_as_well(self):
        native, seed = valuation_native, bytes(64)
        public, relinearisation = native.public_keys(seed)
        upload = native.encrypt(public, np.ones(4).astype("<f8").tobytes())
        weights = np.array([0.5, 0.5]).astype("<f8").tobytes()
        made = native.value(public, relinearisation, weights, upload, upload)
        aggregate, _, products, covers = ring_he_native.split(made)
        found = [
            native.numbers(ring_he_native.split(native.open_blinded(seed, aggregate, products))[1], covers)
            for _ in range(2)
        ]
        apart = [abs(a - b) for a, b in zip(*found, strict=True)]
        for number, limit in zip(apart, [native.PRODUCT_FLOOD] * 2 + [native.SQUARE_FLOOD] * 2, strict=True):
            assert limit / 2**20 < number <= 2 * limit


def replacing(liar: str, step: str, key: str):
    """A client that puts garbage of the right length under one key of its reply."""

    def changed(name: str, reply: Message) -> Message:
        if (name, reply.step) != (liar, step):
            return reply
        tree = reply.tree()
        honest = bytes(tree[key])
        body = wire.encode({**tree, key: honest[:8] + b"\xff" * (len(honest) - 8)})
        return Message(**{**{k: getattr(reply, k) for k in Message.__dataclass_fields__}, "body": body})

    return changed


class TestRefusals:
    @pytest.mark.parametrize(
        "weights",
        [(1.0, 0.0, 0.0), (0.9, 0.1, 0.0), (0.97, 0.02, 0.01)],
        ids=["one", "nearly", "nearly of three"],
    )
    def test_a_sum_of_nearly_one_update_is_not_opened(self, weights):
        found = made(width=40)
        with pytest.raises(Refused, match="effective contributors"):
            found.round().value(Valuing.VALUED, dict(zip(NAMES, weights, strict=True)))

    @pytest.mark.parametrize("weights", [(0.5, 0.6, -0.1), (0.5, 0.5, float("nan"))])
    def test_weights_that_are_none(self, weights):
        with pytest.raises(BadInput, match="finite and not negative"):
            made(width=40).round().value(Valuing.VALUED, dict(zip(NAMES, weights, strict=True)))

    def test_everybody_has_a_weight(self):
        with pytest.raises(Refused, match="a weight for each"):
            made(width=40).round().value(Valuing.VALUED, {"owner-0": 0.5, "owner-1": 0.5})

    def test_the_holder_opens_once_and_only_what_it_contributed_to(self):
        found = made(homomorphic(holder="owner-1"), width=40)
        found.round().value(Valuing.VALUED, EVEN)
        (request,) = [
            Message.from_bytes(raw) for _, raw, _ in found.passed if Message.from_bytes(raw).step == "open"
        ]
        assert request.recipient == "owner-1"
        for name in NAMES:
            again = found.message(name, "valued", 1000, step="open", body=bytes(request.body))
            with pytest.raises(HostileMessage, match="opens values once"):
                found.tell(again)

    def test_a_holder_is_named_or_drawn(self):
        found = made(homomorphic(holder="owner-2"), width=40)
        assert found.policy["valued"].carrier.public["holder"] == "owner-2"
        drawn = {made(width=4).policy["valued"].carrier.public["holder"] for _ in range(12)}
        assert len(drawn) > 1  # all alike by chance: 3 ** -11
        with pytest.raises(BadInput, match=r"protection\.holder"):
            made(homomorphic(holder="owner-7"))

    def test_a_key_of_the_servers_own_is_refused(self):
        found = session(homomorphic(holder="owner-0"), (Valuing.VALUED,), width=40, algorithm=Valuing())
        other, _ = valuation_native.public_keys(bytes(64))
        exchange = found.exchange

        def swapped(requests):
            changed = {}
            for name, raw in requests.items():
                message = Message.from_bytes(raw)
                if message.step == "take":
                    tree = {**message.tree(), "public": other}
                    fields = {k: getattr(message, k) for k in Message.__dataclass_fields__}
                    raw = Message(**{**fields, "body": wire.encode(tree)}).to_bytes()
                changed[name] = raw
            return exchange(changed)

        found.exchange = swapped
        with pytest.raises(HostileMessage, match="not owner-0's"):
            found.set_up()

    @pytest.mark.parametrize("cut", [0, 10, -1])
    def test_an_upload_of_another_size_never_reaches_the_native_library(self, cut):
        found = made(width=40)

        def shorter(name, reply):
            tree = reply.tree()
            if name != "owner-1" or "data" not in tree:
                return reply
            data = bytes(tree["data"])[:cut]
            fields = {k: getattr(reply, k) for k in Message.__dataclass_fields__}
            return Message(**{**fields, "body": wire.encode({**tree, "data": data})})

        found.tamper = shorter
        with pytest.raises(HostileMessage, match="owner-1's upload is no ciphertext of 40 values"):
            found.round().value(Valuing.VALUED, EVEN)

    def test_hostile_bytes_of_the_right_size_end_a_worker_and_not_the_server(self):
        public, relinearisation = valuation_native.public_keys(bytes(64))
        rng = np.random.default_rng(0)
        good = valuation_native.encrypt(public, np.ones(4).astype("<f8").tobytes())
        weights = np.array([0.5, 0.5]).astype("<f8").tobytes()
        call = valuation._server_side.call
        for _ in range(4):
            bad = bytearray(good)
            for at in rng.integers(4, 200, 8):
                bad[at] ^= int(rng.integers(1, 256))
            with pytest.raises(HostileMessage):
                call(b"V", 0, 0, [public, relinearisation, weights, good, bytes(bad)])
        assert ring_he_native.split(call(b"V", 0, 0, [public, relinearisation, weights, good, good]))

    @pytest.mark.parametrize(
        ("liar", "step", "key"),
        [
            ("owner-1", "answer", "data"),  # no ciphertext
            ("owner-0", "deal", "relinearisation"),  # no keys
            ("owner-0", "deal", "owner-1"),  # no seal
        ],
    )
    def test_who_sends_garbage_of_the_right_size_is_named_and_no_other_is(self, liar, step, key):
        found = session(homomorphic(holder="owner-0"), (Valuing.VALUED,), width=40, algorithm=Valuing())
        for number, client in enumerate(found.clients.values()):
            client.memory["w"] = torch.full((40,), 1e-3 * (number + 1))
        found.tamper = replacing(liar, step, key)
        with pytest.raises(HostileMessage) as refused:
            found.set_up().round().value(Valuing.VALUED, EVEN)
        named = {name for name in NAMES if name in str(refused.value)}
        assert named == {liar} or (key == "owner-1" and liar in named)  # who cannot open it says so

    def test_fewer_than_two_effective_contributors_cannot_be_asked_for(self):
        with pytest.raises(BadInput, match="one effective contributor"):
            Protection(EncryptedValues(least=1.0), quorum=2).bind(Valuing.VALUED, NAMES)


class TestBinding:
    @pytest.mark.parametrize("policy", [plaintext(), masked(), local_dp(1.0, 1.0)], ids=lambda p: p.name)
    def test_only_what_can_value_unread_binds(self, policy):
        with pytest.raises(
            Incompatible, match=r"is valued without being read, which .* use homomorphic or strictest"
        ):
            policy.bind((Valuing.VALUED,), NAMES)
        assert Reveal.VALUES not in Plain.reveals

    def test_strictest_finds_it(self):
        bound = strictest().bind((Valuing.VALUED,), NAMES)["valued"]
        assert bound.protection.name == "homomorphic"
        assert bound.carrier.name == "valued"

    def test_verbs_match_the_declaration(self):
        found = made(width=4)
        for verb in ("reduce", "gather"):
            with pytest.raises(Incompatible, match="use value"):
                getattr(found.round(), verb)(Valuing.VALUED)
