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

from secure_fedgraph.errors import BadInput, HostileMessage, Incompatible
from secure_fedgraph.privacy import ring_he, ring_he_native
from secure_fedgraph.privacy.ring_he import SLOTS, Adder, RingParameters, SecretKey
from secure_fedgraph.privacy.ring_he_worker import NativeWorker

PACKAGE = Path(ring_he_native.__file__).parents[1]
PARAMETERS = RingParameters(bound=1000, contributors=3)


@pytest.fixture(scope="module")
def key() -> SecretKey:
    return SecretKey.generate(PARAMETERS)


def vectors(parameters: RingParameters, count: int, length: int) -> list[np.ndarray]:
    rng = np.random.default_rng(length)
    return [rng.integers(-parameters.bound, parameters.bound + 1, length) for _ in range(count)]


class TestSums:
    @pytest.mark.parametrize("length", [0, 1, SLOTS - 1, SLOTS, SLOTS + 1, 10_000])
    def test_a_sum_is_exact_at_every_length(self, key, length):
        uploads = vectors(PARAMETERS, 3, length)
        total = Adder(PARAMETERS).add([key.encrypt(v) for v in uploads], length)
        opened = key.decrypt(total, length)
        assert opened.dtype == np.int64
        assert opened.tolist() == np.sum(uploads, axis=0).tolist()

    @pytest.mark.parametrize("sign", [-1, 1])
    def test_all_at_the_bound_does_not_wrap(self, sign):
        tight = RingParameters(bound=2**30, contributors=10)
        key = SecretKey.generate(tight)
        upload = key.encrypt(np.full(5, sign * 2**30))
        total = Adder(tight).add([upload] * 10, 5)  # one upload ten times: its noise adds up in phase
        assert key.decrypt(total, 5).tolist() == [sign * 10 * 2**30] * 5

    @pytest.mark.parametrize(("bound", "contributors"), [(2**36, 3), (2**26, 100), (2**42, 3), (2**32, 100)])
    def test_exact_at_the_edge_of_the_noise(self, bound, contributors):
        # One ciphertext added to itself is the worst that can happen to the noise: n times, not sqrt(n).
        edge = RingParameters(bound, contributors)
        key = SecretKey.generate(edge)
        values = vectors(edge, 1, SLOTS)[0]
        total = Adder(edge).add([key.encrypt(values)] * contributors, SLOTS)
        assert (key.decrypt(total, SLOTS) == contributors * values).all()

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
        assert abs(np.mean(zeros) - np.mean(loud)) < 25  # of 28,150; one upload's deviation is about 10
        assert max(zeros + loud) <= PARAMETERS.upload_bytes(SLOTS)

    def test_an_upload_costs_less_than_1_75_times_float32(self, key):
        length = 10 * SLOTS
        assert len(key.encrypt(vectors(PARAMETERS, 1, length)[0])) < 1.75 * 4 * length


class TestParameters:
    def test_the_smallest_modulus_that_holds_the_sum(self):
        assert RingParameters(2**20, 10).plain_bits == 25  # 2 * 2**20 * 10 is 24.3 bits
        for bound, contributors in [(1, 1), (1000, 3), (2**24, 10), (2**30, 46), (2**31, 100)]:
            chosen = RingParameters(bound, contributors)
            assert 2 * bound * contributors < chosen.plain_modulus
            assert 88 * contributors * chosen.plain_modulus < ring_he_native.data_modulus(chosen.data_bits)

    def test_a_larger_ciphertext_only_where_the_noise_needs_it(self):
        assert [RingParameters(b, n).data_bits for b, n in [(2**30, 10), (2**31, 100), (2**33, 500)]] == [
            48,
            54,
            60,
        ]

    def test_a_plain_modulus_fits_a_batch(self):
        t = RingParameters(2**24, 10).plain_modulus
        assert t % (2 * SLOTS) == 1

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
        with pytest.raises(HostileMessage, match="honest"):
            key.decrypt(upload, 4)  # the fifth value stands where padding should

    def test_a_sum_is_no_upload(self, key):
        total = Adder(PARAMETERS).add([key.encrypt(np.arange(5))], 5)
        with pytest.raises(HostileMessage):
            Adder(PARAMETERS).add([total], 5)

    def test_a_sum_beyond_what_honest_uploads_reach(self, key):
        loose = RingParameters(bound=1040, contributors=3)  # the same modulus, another promise
        assert loose.plain_bits == PARAMETERS.plain_bits
        other = SecretKey.from_bytes(loose, key.to_bytes())
        total = Adder(loose).add([other.encrypt(np.array([1040]))] * 3, 1)
        with pytest.raises(HostileMessage, match="honest"):
            key.decrypt(total, 1)

    def test_every_cut_and_stretched_upload(self, key):
        upload = key.encrypt(np.arange(5))
        for wrong in (b"", b"\0", upload[:-1], upload[:100], upload + b"\0", upload + upload, upload[4:]):
            with pytest.raises(HostileMessage):
                Adder(PARAMETERS).add([wrong], 5)

    def test_a_claimed_length_allocates_nothing(self):
        with pytest.raises(HostileMessage):
            Adder(PARAMETERS).add([b"\xff\xff\xff\xff" + bytes(28_000)], 5)


class TestWhoCanRead:
    def test_another_key_opens_nothing(self, key):
        total = Adder(PARAMETERS).add([key.encrypt(np.arange(5))], 5)
        with pytest.raises(HostileMessage, match="another key"):
            SecretKey.generate(PARAMETERS).decrypt(total, 5)

    def test_another_key_sees_uniform_noise_even_without_the_check(self, key, monkeypatch):
        monkeypatch.setattr(ring_he_native, "SPARE_BITS", 0)
        wide = RingParameters(2**28, 3)
        mine = SecretKey.generate(wide)
        upload = mine.encrypt(np.zeros(SLOTS, dtype=np.int64))
        seen = ring_he_native.open_sum(wide.plain_bits, wide.data_bits, os.urandom(64), upload)
        seen = np.frombuffer(seen, dtype="<i8") / wide.plain_modulus
        assert abs(seen.mean()) < 0.03
        assert abs(seen.std() - 12**-0.5) < 0.02  # uniform on (-1/2, 1/2)

    def test_the_adder_holds_no_key(self, key):
        adder = Adder(PARAMETERS)
        adder.add([key.encrypt(np.arange(5))] * 2, 5)
        assert set(vars(adder)) == {"parameters"}
        assert set(vars(adder.parameters)) == {"bound", "contributors", "plain_bits", "data_bits"}
        assert not hasattr(adder, "decrypt")
        assert key.to_bytes() not in pickle.dumps(adder)

    def test_the_server_s_worker_is_never_sent_a_key(self, key, monkeypatch):
        sent: list[tuple[bytes, list[bytes]]] = []
        call = NativeWorker.call

        def listen(self, task, plain_bits, data_bits, parts):
            if self is ring_he._server_side:
                sent.append((task, parts))
            return call(self, task, plain_bits, data_bits, parts)

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
        return worker.call(b"A", PARAMETERS.plain_bits, PARAMETERS.data_bits, [upload])

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
            from secure_fedgraph.privacy import ring_he
            key = ring_he.SecretKey.generate(ring_he.RingParameters(9, 2))
            key.decrypt(key.encrypt(np.arange(3)), 3)
            print(ring_he._client_side._process.pid, flush=True)
            {end}
        """)
        done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, timeout=60)
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
