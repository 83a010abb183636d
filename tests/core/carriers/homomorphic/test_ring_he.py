"""Exact sums under encryption: what opens, what is refused, and that hostile bytes kill only a worker."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

from secure_fedgraph.core.carriers.homomorphic import native as ring_he_native
from secure_fedgraph.core.carriers.homomorphic import parameters as ring_he_parameters
from secure_fedgraph.core.carriers.homomorphic import scheme as ring_he
from secure_fedgraph.core.carriers.homomorphic.packing import Packing, packings
from secure_fedgraph.core.carriers.homomorphic.scheme import Adder, RingParameters, SecretKey
from secure_fedgraph.core.carriers.homomorphic.worker import NativeWorker
from secure_fedgraph.core.errors import BadInput, HostileMessage, Incompatible

PACKAGE = Path(ring_he_native.__file__).parents[3]
PARAMETERS = RingParameters(bound=1000, contributors=3)
SLOTS = PARAMETERS.values  # of one ciphertext: four numbers a slot, less the tokens
SCHEMES = ("bfv", "ckks")


@pytest.fixture(scope="module")
def key() -> SecretKey:
    return SecretKey.generate(PARAMETERS)


def vectors(parameters: RingParameters, count: int, length: int) -> list[np.ndarray]:
    rng = np.random.default_rng(length)
    return [rng.integers(-parameters.bound, parameters.bound + 1, length) for _ in range(count)]


class TestSums:
    @pytest.mark.parametrize("scheme", SCHEMES)
    @pytest.mark.parametrize("over", [None, -1, 0, 1, 3000])
    def test_a_sum_is_exact_at_every_length(self, scheme, over):
        parameters = RingParameters(1000, 3, scheme)
        key, length = SecretKey.generate(parameters), 0 if over is None else parameters.values + over
        uploads = vectors(parameters, 3, length)
        total = Adder(parameters).add([key.encrypt(v) for v in uploads], length)
        opened = key.decrypt(total, length)
        assert opened.dtype == np.int64
        assert opened.tolist() == np.sum(uploads, axis=0).tolist()

    def test_many_sums_are_shared_out_among_workers_in_order(self, monkeypatch):
        monkeypatch.setattr(ring_he, "_SUMS_WORTH_A_WORKER", 1)
        wide = RingParameters(2**29 // 3, 3)
        key, length = SecretKey.generate(wide), 5 * wide.values + 7
        uploads = vectors(wide, 3, length)
        workers = tuple(NativeWorker() for _ in range(2))
        monkeypatch.setattr(ring_he, "_server_side", workers)
        total = Adder(wide).add([key.encrypt(v) for v in uploads], length)
        assert (key.decrypt(total, length) == np.sum(uploads, axis=0)).all()
        assert all(worker._process is not None for worker in workers)
        for worker in workers:
            worker.close()

    @pytest.mark.parametrize("scheme", SCHEMES)
    @pytest.mark.parametrize("sign", [-1, 1])
    def test_all_at_the_bound_does_not_wrap(self, sign, scheme):
        tight = RingParameters(bound=2**30, contributors=10, scheme=scheme)
        key = SecretKey.generate(tight)
        upload = key.encrypt(np.full(5, sign * 2**30))
        total = Adder(tight).add([upload] * 10, 5)  # one upload ten times: its noise adds up in phase
        assert key.decrypt(total, 5).tolist() == [sign * 10 * 2**30] * 5

    @pytest.mark.parametrize(
        ("bound", "contributors", "scheme"),
        [
            (2**36, 3, "bfv"),
            (2**26, 100, "bfv"),
            (2**42, 3, "bfv"),
            (2**32, 100, "bfv"),
            (2**29 // 1000, 1000, "bfv"),
            (2**29 // 100, 100, "ckks"),
            (2**29 // 500, 500, "ckks"),
            (2**32, 4, "ckks"),
        ],
    )
    def test_exact_at_the_edge_of_the_noise(self, bound, contributors, scheme):
        # One ciphertext added to itself is the worst that can happen to the noise: n times, not sqrt(n).
        edge = RingParameters(bound, contributors, scheme)
        key = SecretKey.generate(edge)
        values = vectors(edge, 1, edge.values)[0]
        total = Adder(edge).add([key.encrypt(values)] * contributors, edge.values)
        assert (key.decrypt(total, edge.values) == contributors * values).all()

    @pytest.mark.parametrize("contributors", [2, 10, 100, 500])
    def test_both_schemes_open_the_same(self, contributors):
        opened = []
        for scheme in SCHEMES:
            parameters = RingParameters(2**29 // contributors, contributors, scheme)
            key, uploads = SecretKey.generate(parameters), vectors(parameters, 2, 3000)
            total = Adder(parameters).add([key.encrypt(v) for v in uploads], 3000)
            opened.append(key.decrypt(total, 3000).tobytes())
        assert opened[0] == opened[1]

    @pytest.mark.parametrize(("contributors", "bits"), [(2, 1), (10, 1), (100, 1), (1000, 1)])
    def test_the_noise_budget_of_the_largest_cohort(self, contributors, bits):
        # SEAL's own measure, on one ciphertext added up as often as there may be clients.
        parameters = RingParameters(2**29 // contributors, contributors)
        key, here = SecretKey.generate(parameters), parameters.ring
        upload = key.encrypt(vectors(parameters, 1, parameters.values)[0])
        total = Adder(parameters).add([upload] * contributors, parameters.values)
        with ring_he_native.Scratch() as file:
            file.write(ring_he_native.split(total)[0])
            ciphertext = ring_he_native._load(here, file.path, ring_he_native.seal.Ciphertext())
        opener = ring_he_native.seal.Decryptor(ring_he_native.context(here), key._key)
        assert opener.invariant_noise_budget(ciphertext) >= bits

    @pytest.mark.parametrize("contributors", [10, 100, 500])
    def test_ckks_s_error_is_within_its_bound(self, contributors):
        # Before rounding, in this test's own process: noise in phase, the worst that copies can do.
        parameters = RingParameters(2**29 // contributors, contributors, "ckks")
        key, here, native = SecretKey.generate(parameters), parameters.ring, ring_he_native
        values = vectors(parameters, 1, parameters.values)[0]
        total = Adder(parameters).add([key.encrypt(values)] * contributors, parameters.values)
        with native.Scratch() as file:
            file.write(native.split(total)[0])
            ciphertext = native._load(here, file.path, native.seal.Ciphertext())
        plain = native.seal.Plaintext()
        native.seal.Decryptor(native.context(here), key._key).decrypt(ciphertext, plain)
        seen = np.array(native.seal.CKKSEncoder(native.context(here)).decode_complex(plain)).view(np.float64)
        error = np.abs(seen[ring_he_parameters.TOKENS :] - contributors * values).max()
        assert 0 < error < native.OFF_GRID

    def test_one_upload_opens_too(self, key):
        values = np.array([5, -7, 0])
        assert key.decrypt(key.encrypt(values), 3).tolist() == [5, -7, 0]
        assert key.decrypt(Adder(PARAMETERS).add([key.encrypt(values)], 3), 3).tolist() == [5, -7, 0]

    def test_equal_vectors_encrypt_to_different_bytes(self, key):
        zeros = np.zeros(10, dtype=np.int64)
        assert len({key.encrypt(zeros) for _ in range(20)}) == 20

    def test_the_size_does_not_tell_the_values(self, key):
        zeros = [len(key.encrypt(np.zeros(SLOTS, dtype=np.int64))) for _ in range(20)]
        loud = [len(key.encrypt(v)) for v in vectors(PARAMETERS, 20, SLOTS)]
        assert abs(np.mean(zeros) - np.mean(loud)) < 25  # of 65,740

    @pytest.mark.parametrize(("contributors", "scheme", "times"), [(10, "bfv", 1.35), (10, "ckks", 2.03)])
    def test_an_upload_s_bytes_over_float32(self, contributors, scheme, times):
        # 8 bytes a slot and 204 a ciphertext: three values in two slots, or (CKKS) one in half a slot
        parameters = RingParameters(2**29 // contributors, contributors, scheme)
        length, key = 10 * parameters.values, SecretKey.generate(parameters)
        assert len(key.encrypt(vectors(parameters, 1, length)[0])) < times * 4 * length


class TestParameters:
    def test_a_ring_has_room_for_every_slot_and_for_the_noise(self):
        for bound, contributors in [(1, 1), (1000, 3), (2**24, 10), (2**30, 46), (2**31, 100), (2**29, 1)]:
            chosen = RingParameters(bound, contributors)
            t = ring_he_native.plain_modulus(chosen.plain_bits)
            assert 2 * chosen.packing.reach < t
            assert 88 * contributors * t < ring_he_native.data_modulus(chosen.data_bits)

    def test_numbers_lie_side_by_side_where_the_noise_leaves_room(self):
        # 30 bits and 18 of half a number: 48 of the 50 that ten clients' noise leaves below 2^60
        chosen = RingParameters(2**29 // 10, 10)
        assert (chosen.packing.fields, chosen.packing.cut, chosen.data_bits) == (1, 2, 60)
        assert (chosen.packing.width, chosen.packing.piece, chosen.plain_bits) == (30, 14, 48)
        # a thousand clients' noise leaves 43, and one number a slot is cheaper at 48 data bits
        many = RingParameters(2**29 // 1000, 1000)
        assert (many.packing.fields, many.packing.cut, many.data_bits) == (1, 0, 48)

    @pytest.mark.parametrize(
        ("bound", "contributors"), [(53687091, 10), (1, 1), (7, 2), (1000, 3), (2**29, 1)]
    )
    def test_every_packing_is_additive_at_the_edge(self, bound, contributors):
        for packing in packings(bound, contributors, 58):
            numbers = packing.numbers(8192)
            for vector in (
                np.full(numbers, bound),
                np.full(numbers, -bound),
                vectors(packing, 1, numbers)[0],
            ):
                slots = packing.pack(vector, 8192) * contributors
                if packing.reach < 2**62:
                    assert np.abs(slots).max() <= packing.reach
                    assert (packing.unpack(slots) == contributors * vector).all(), packing

    def test_what_is_left_over_of_a_ciphertext_is_zero(self):
        packing = Packing(100, 3, fields=1, cut=3)
        assert packing.numbers(10) == 12
        assert packing.pack(np.full(12, 100), 10)[9:].tolist() == [0]

    def test_ckks_s_scale_keeps_all_noise_below_a_quarter(self):
        for contributors in (1, 10, 500):
            chosen = RingParameters(2**29 // contributors, contributors, "ckks")
            assert 4 * 8192 * 22 * contributors <= 2**chosen.plain_bits
            reach = 2**29 * 2**chosen.plain_bits
            assert 2 * 2**0.5 * reach < ring_he_native.data_modulus(chosen.data_bits)

    def test_a_plain_modulus_fits_a_batch(self):
        t = ring_he_native.plain_modulus(RingParameters(2**24, 10).plain_bits)
        assert t % (2 * ring_he_native.DEGREE) == 1

    def test_the_refusal_names_a_bound_that_works(self):
        with pytest.raises(Incompatible, match="at most 4398046429") as refused:
            RingParameters(2**33, 1000)
        assert "1000 uploads" in str(refused.value)
        RingParameters(4398046429, 1000)
        with pytest.raises(Incompatible):
            RingParameters(4398046430, 1000)

    @pytest.mark.parametrize(("bound", "contributors"), [(0, 3), (-1, 3), (10, 0)])
    def test_nonsense_is_refused(self, bound, contributors):
        with pytest.raises(BadInput):
            RingParameters(bound, contributors)

    def test_the_refusal_of_ckks_names_a_bound_too(self):
        with pytest.raises(Incompatible, match=r"\(ckks\).*at most 29826"):
            RingParameters(2**29 // 3000, 3000, "ckks")
        RingParameters(29826, 3000, "ckks")

    def test_equal_parameters_are_equal(self):
        assert RingParameters(1000, 3) == PARAMETERS != RingParameters(1000, 4)


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        "values",
        [
            np.array([1001]),
            np.array([-1001]),
            np.array([np.iinfo(np.int64).min]),
            np.array([1.0]),
            np.array([1], dtype=np.uint32),
            np.array([True]),
            np.array([[1]]),
        ],
    )
    def test_values_that_do_not_fit(self, key, values):
        with pytest.raises(BadInput):
            key.encrypt(values)

    def test_more_uploads_than_the_parameters_hold(self, key):
        upload = key.encrypt(np.array([1]))
        for uploads in ([], [upload] * 4):
            with pytest.raises(Incompatible):
                Adder(PARAMETERS).add(uploads, 1)

    def test_another_length(self, key):
        upload = key.encrypt(np.arange(5))
        with pytest.raises(HostileMessage):
            Adder(PARAMETERS).add([upload], SLOTS + 1)
        with pytest.raises(HostileMessage):
            Adder(PARAMETERS).add([upload], 0)
        with pytest.raises(HostileMessage, match="no honest uploads"):
            key.decrypt(upload, 4)  # the fifth value stands where padding should

    def test_a_sum_is_no_upload(self, key):
        total = Adder(PARAMETERS).add([key.encrypt(np.arange(5))], 5)
        with pytest.raises(HostileMessage):
            Adder(PARAMETERS).add([total], 5)

    def test_a_sum_beyond_what_honest_uploads_reach(self, key):
        loose = RingParameters(bound=1020, contributors=3)  # the same ring, another promise
        assert loose.ring == PARAMETERS.ring
        other = SecretKey.from_bytes(loose, key.to_bytes())
        total = Adder(loose).add([other.encrypt(np.array([1020]))] * 3, 1)
        with pytest.raises(HostileMessage, match="honest"):
            key.decrypt(total, 1)

    def test_every_cut_and_stretched_upload(self, key):
        upload = key.encrypt(np.arange(5))
        for wrong in (b"", b"\0", upload[:-1], upload[:100], upload + b"\0", upload + upload, upload[4:]):
            with pytest.raises(HostileMessage):
                Adder(PARAMETERS).add([wrong], 5)

    def test_a_claimed_length_allocates_nothing(self):
        with pytest.raises(HostileMessage):
            Adder(PARAMETERS).add([b"\xff\xff\xff\xff" + bytes(60_000)], 5)


class TestWhoCanRead:
    @pytest.mark.parametrize("scheme", SCHEMES)
    @pytest.mark.parametrize("stamps", [None, [b"a"]])
    def test_another_key_opens_nothing(self, scheme, stamps):
        parameters = RingParameters(1000, 3, scheme)
        key, other = SecretKey.generate(parameters), SecretKey.generate(parameters)
        total = Adder(parameters).add([key.encrypt(np.arange(5), b"a")], 5)
        with pytest.raises(HostileMessage, match=r"another key|each upload"):
            other.decrypt(total, 5, stamps)
        assert key.decrypt(total, 5, stamps).tolist() == [0, 1, 2, 3, 4]

    def test_another_key_sees_uniform_noise_even_without_the_check(self):
        wide = RingParameters(2**28, 3)
        mine = SecretKey.generate(wide)
        upload = mine.encrypt(np.zeros(wide.values, dtype=np.int64))
        with ring_he_native.Scratch() as file:
            file.write(ring_he_native.split(upload)[0])
            seen = ring_he_native.open_sum(wide.ring, os.urandom(64), [file.path], stamped=True)
        seen = np.frombuffer(seen, dtype="<i8") / ring_he_native.plain_modulus(wide.plain_bits)
        assert abs(seen.mean()) < 0.03
        assert abs(seen.std() - 12**-0.5) < 0.02  # uniform on (-1/2, 1/2)

    def test_the_adder_holds_no_key(self, key):
        adder = Adder(PARAMETERS)
        adder.add([key.encrypt(np.arange(5))] * 2, 5)
        assert set(vars(adder)) == {"parameters"}
        public = {"bound", "contributors", "scheme", "plain_bits", "data_bits", "packing"}
        assert set(vars(adder.parameters)) == public
        assert not hasattr(adder, "decrypt")
        assert key.to_bytes() not in pickle.dumps(adder)

    def test_the_server_s_worker_is_never_sent_a_key(self, key, monkeypatch):
        sent: list[tuple[bytes, list[bytes]]] = []
        call = NativeWorker.call

        def listen(self, task, plain_bits, data_bits, parts, pieces):
            if self in ring_he._server_side:
                sent.append((task, [bytes(part) for part in (*parts, *pieces)]))
            return call(self, task, plain_bits, data_bits, parts, pieces)

        monkeypatch.setattr(NativeWorker, "call", listen)
        total = Adder(PARAMETERS).add([key.encrypt(np.arange(5))] * 2, 5)
        assert key.decrypt(total, 5).tolist() == [0, 2, 4, 6, 8]
        assert [task for task, _ in sent] == [b"A"]
        assert all(secret not in part for part in sent[0][1] for secret in (key.to_bytes(), key._seed))

    def test_a_key_is_handed_on_in_32_bytes(self, key):
        twin = SecretKey.from_bytes(PARAMETERS, key.to_bytes())
        assert len(key.to_bytes()) == 32
        assert twin.decrypt(key.encrypt(np.arange(5)), 5).tolist() == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize("length", [0, 31, 33])
    def test_a_key_of_another_length_is_refused(self, length):
        with pytest.raises(BadInput):
            SecretKey.from_bytes(PARAMETERS, bytes(length))

    def test_a_key_does_not_pickle_copy_or_print(self, key):
        for leak in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="secret key"):
                leak(key)
        assert repr(key) == "SecretKey(…)"


class TestTokens:
    STAMPS = (b"a", b"b", b"c")

    @pytest.fixture(params=SCHEMES)
    def sealed(self, request):
        parameters = RingParameters(2**29 // 3, 3, request.param)
        key, length = SecretKey.generate(parameters), parameters.values + 5
        uploads = [
            key.encrypt(v, s) for v, s in zip(vectors(parameters, 3, length), self.STAMPS, strict=True)
        ]
        return key, Adder(parameters), uploads, length

    def test_everybody_once_opens(self, sealed):
        key, adder, uploads, length = sealed
        expected = np.sum(vectors(key.parameters, 3, length), axis=0)
        total = adder.add(uploads[::-1], length)
        assert (key.decrypt(total, length, self.STAMPS) == expected).all()

    @pytest.mark.parametrize("chosen", [(0, 0, 0), (0, 1), (0,), (0, 1, 1)])
    def test_copies_and_gaps_are_refused(self, sealed, chosen):
        key, adder, uploads, length = sealed
        total = adder.add([uploads[i] for i in chosen], length)
        with pytest.raises(HostileMessage, match="each upload of the cohort"):
            key.decrypt(total, length, self.STAMPS)
        key.decrypt(total, length)  # nothing else is wrong with it

    def test_one_piece_of_another_client_s_and_pieces_in_another_order_are_refused(self, sealed):
        key, adder, uploads, length = sealed
        mine, theirs = (ring_he_native.split(upload) for upload in uploads[:2])
        for pieces in ([mine[0], theirs[1]], [theirs[0], mine[1]]):
            total = adder.add([ring_he_native.join(pieces), *uploads[1:]], length)
            with pytest.raises(HostileMessage, match="each upload of the cohort"):
                key.decrypt(total, length, self.STAMPS)
        short = key.parameters.values * 2
        swapped = ring_he_native.join(ring_he_native.split(key.encrypt(np.zeros(short, int), b"a"))[::-1])
        with pytest.raises(HostileMessage, match="each upload of the cohort"):
            key.decrypt(adder.add([swapped], short), short, [b"a"])

    def test_an_upload_of_another_sum_is_refused(self, sealed):
        key, adder, uploads, length = sealed
        old = key.encrypt(vectors(key.parameters, 1, length)[0], b"a, the sum before")
        with pytest.raises(HostileMessage, match="each upload of the cohort"):
            key.decrypt(adder.add([old, *uploads[1:]], length), length, self.STAMPS)

    def test_tokens_are_uniform_within_the_bound_and_differ(self, key):
        tokens = key._tokens([b"a"], 5000)
        assert tokens.min() >= -1000 and tokens.max() <= 1000
        assert abs(tokens.mean()) < 20 and abs(tokens.std() - 2001 / 12**0.5) < 10  # deviations 4 and 2
        assert (tokens == key._tokens([b"b"], 5000)).mean() < 0.01
        assert (tokens + key._tokens([b"b"], 5000) == key._tokens([b"a", b"b"], 5000)).all()


class TestHostileBytes:
    def opens(self, key: SecretKey, total: bytes) -> list[int] | str:
        # A change in the low bits of a coefficient is noise among noise, and opens to the honest sum.
        try:
            return key.decrypt(total, 5).tolist()
        except HostileMessage:
            return "refused"

    def test_mutants_never_hurt_the_parent(self, key):
        rng = np.random.default_rng(7)
        adder, honest = Adder(PARAMETERS), key.encrypt(np.arange(5))
        accepted = []
        for number in range(36):
            mutant = bytearray(honest)
            last = len(mutant) if number % 2 else 160  # envelope and tables, or anywhere
            for _ in range(rng.integers(1, 4)):
                mutant[rng.integers(4, last)] ^= rng.integers(1, 256)
            try:
                accepted.append(adder.add([honest, bytes(mutant)], 5))
            except HostileMessage:
                continue
        assert len(accepted) < 36
        for total in accepted:
            assert self.opens(key, total) in ("refused", [0, 2, 4, 6, 8])
        assert key.decrypt(adder.add([honest, honest], 5), 5).tolist() == [0, 2, 4, 6, 8]

    def test_a_changed_sum_is_refused_at_the_client_or_harmless(self, key):
        total = Adder(PARAMETERS).add([key.encrypt(np.arange(5))], 5)
        for at, allowed in [
            (4, ["refused"]),  # SEAL's magic number
            (20, ["refused"]),  # the frame of the compression
            (30_000, ["refused", [0, 1, 2, 3, 4]]),
            (len(total) - 1, ["refused", [0, 1, 2, 3, 4]]),
        ]:
            changed = bytearray(total)
            changed[at] ^= 0x55
            assert self.opens(key, bytes(changed)) in allowed

    def test_the_header_of_another_compression(self, key):
        upload = bytearray(key.encrypt(np.arange(5)))
        for mode in (0, 1, 3, 255):
            upload[4 + 5] = mode
            with pytest.raises(HostileMessage):
                Adder(PARAMETERS).add([bytes(upload)], 5)


class TestWorker:
    def work(self, worker: NativeWorker, upload: bytes) -> bytes:
        pieces = ring_he_native.split(upload)
        one = (1).to_bytes(4, "little")
        return worker.call(b"A", PARAMETERS.plain_bits, PARAMETERS.data_bits, [one], pieces)

    def test_a_worker_that_hangs_is_a_refusal_and_is_replaced(self, key):
        worker, upload = NativeWorker(seconds=0.3), key.encrypt(np.arange(5))
        self.work(worker, upload)
        first = worker._process
        os.kill(first.pid, signal.SIGSTOP)
        with pytest.raises(HostileMessage, match="killed the process"):
            self.work(worker, upload)
        assert first.poll() == -signal.SIGKILL
        worker._seconds = 60
        self.work(worker, upload)
        assert worker._process.pid != first.pid
        worker.close()

    def test_a_worker_that_crashes_is_a_refusal_and_is_replaced(self, key):
        worker, upload = NativeWorker(), key.encrypt(np.arange(5))
        self.work(worker, upload)
        os.kill(worker._process.pid, signal.SIGSTOP)
        crash = threading.Timer(0.2, os.kill, (worker._process.pid, signal.SIGSEGV))
        resume = threading.Timer(0.3, os.kill, (worker._process.pid, signal.SIGCONT))
        crash.start()
        resume.start()
        with pytest.raises(HostileMessage, match="exit status -11"):
            self.work(worker, upload)
        resume.cancel()
        self.work(worker, upload)
        worker.close()

    def test_a_worker_that_died_between_two_calls_is_nobody_s_fault(self, key):
        worker, upload = NativeWorker(), key.encrypt(np.arange(5))
        self.work(worker, upload)
        os.kill(worker._process.pid, signal.SIGKILL)
        worker._process.wait()
        self.work(worker, upload)
        worker.close()

    def test_it_persists_between_good_calls_and_not_after_bad_ones(self, key):
        worker, upload = NativeWorker(), key.encrypt(np.arange(5))
        self.work(worker, upload)
        first = worker._process.pid
        self.work(worker, upload)
        assert worker._process.pid == first
        with pytest.raises(HostileMessage):
            self.work(worker, ring_he_native.join([b"rubbish" * 4000]))
        self.work(worker, upload)
        assert worker._process.pid != first
        worker.close()
        worker.close()

    def test_threads_share_it(self, key):
        uploads = [key.encrypt(np.array([n])) for n in range(6)]
        opened: dict[int, int] = {}

        def work(n: int) -> None:
            opened[n] = int(key.decrypt(Adder(PARAMETERS).add([uploads[n]] * 2, 1), 1)[0])

        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert opened == {n: 2 * n for n in range(6)}

    @pytest.mark.parametrize("end", ["", "os._exit(0)", "os.kill(os.getpid(), 9)"])
    def test_it_does_not_outlive_its_parent(self, end):
        # A script without a main guard: a worker must not run it a second time.
        script = textwrap.dedent(f"""
            import os, sys, types
            import numpy as np
            for name in ("secure_fedgraph", "secure_fedgraph.privacy"):  # without torch, which takes 5 s
                sys.modules[name] = types.ModuleType(name)
                sys.modules[name].__path__ = [{str(PACKAGE.parent)!r} + "/" + name.replace(".", "/")]
            from secure_fedgraph.core.carriers.homomorphic import scheme as ring_he
            key = ring_he.SecretKey.generate(ring_he.RingParameters(9, 2))
            key.decrypt(key.encrypt(np.arange(3)), 3)
            print(ring_he._client_side._process.pid, flush=True)
            {end}
        """)
        done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, timeout=600)
        assert done.stderr == b""
        pid = int(done.stdout)
        for _ in range(100):
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                return
            if state == "Z":  # dead; a container without an init never collects it
                return
            threading.Event().wait(0.05)
        pytest.fail(f"worker {pid} is still there")


class TestScratch:
    def test_without_memory_files_it_falls_back_and_cleans_up(self, key, monkeypatch):
        key.decrypt(key.encrypt(np.arange(5)), 5)  # the first piece also makes what is kept for all
        made = []
        scratch = ring_he_native.tempfile.mkstemp
        monkeypatch.delattr(os, "memfd_create")
        monkeypatch.setattr(
            ring_he_native.tempfile, "mkstemp", lambda dir: made.append(scratch(dir=dir)) or made[-1]
        )
        assert key.decrypt(key.encrypt(np.arange(5)), 5).tolist() == [0, 1, 2, 3, 4]
        assert len(made) == 1
        assert not os.path.exists(made[0][1])

    def test_a_shorter_piece_after_a_longer_one(self):
        with ring_he_native.Scratch() as file:
            file.write(b"a longer one")
            file.write(b"short")
            assert file.read() == b"short"
