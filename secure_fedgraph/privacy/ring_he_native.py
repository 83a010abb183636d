"""Every call into SEAL (through ``tenseal.sealapi``), and the loop of the process that may crash in it.

Run as a script this file is the worker of :mod:`secure_fedgraph.privacy.ring_he_worker`. It therefore
imports nothing from this package: a worker starts in 0.1 s and holds nothing worth stealing.

SEAL reads and writes ciphertexts by path only, hence the scratch file in memory. No key is ever
written to one: keys are re-made from a seed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO

import numpy as np
import tenseal.sealapi as seal

DEGREE = 4096
"""Polynomial degree N, and so the number of values in one ciphertext."""
CHAINS = {48: 60, 54: 55, 60: 49}
"""Bits of the prime that carries data -> bits of SEAL's unused key-switching prime; 109 bits at most
for 128-bit security at N = 4096 (HomomorphicEncryption.org standard, 2018, table 1)."""
SEED_BYTES = 64
SPARE_BITS = 1
"""Noise budget that an honest sum has left over in the worst case; less means a foreign ciphertext."""

_WORKER_MEMORY = 4 << 30
_REQUEST = struct.Struct("<cBBI")  # task, plain bits, data bits, number of parts
_LENGTH = struct.Struct("<I")


class Scratch:
    """A file that lives in memory, because SEAL saves to a path and loads from one."""

    def __init__(self) -> None:
        try:
            self._fd = os.memfd_create("seal")
            self.path = f"/proc/self/fd/{self._fd}"
            self._named = not os.path.exists(self.path)
        except (AttributeError, OSError):
            self._named = True
        if self._named:
            self._fd, self.path = tempfile.mkstemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)

    def read(self) -> bytes:
        return os.pread(self._fd, os.fstat(self._fd).st_size, 0)

    def write(self, data: bytes) -> None:
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, data, 0)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
        if self._named:
            os.unlink(self.path)


def join(pieces: list[bytes]) -> bytes:
    """Pieces with their lengths before them."""
    return b"".join(part for piece in pieces for part in (_LENGTH.pack(len(piece)), piece))


def split(packed: bytes) -> list[bytes]:
    """What :func:`join` joined.

    Raises:
        ValueError: the lengths do not add up.
    """
    pieces, at = [], 0
    while at < len(packed):
        if len(packed) - at < _LENGTH.size:
            raise ValueError("a length is cut off")
        (length,) = _LENGTH.unpack_from(packed, at)
        at += _LENGTH.size
        if length > len(packed) - at:
            raise ValueError("a piece is cut off")
        pieces.append(packed[at : at + length])
        at += length
    return pieces


@functools.cache
def plain_modulus(bits: int) -> int:
    """The largest prime of ``bits`` bits that is 1 modulo 2N, so that N values fit one plaintext."""
    return int(seal.PlainModulus.Batching(DEGREE, bits).value())


@functools.cache
def data_modulus(bits: int) -> int:
    """The prime q of ``bits`` bits in which ciphertexts live."""
    return int(seal.CoeffModulus.Create(DEGREE, [bits, CHAINS[bits]])[0].value())


def _context(plain_bits: int, data_bits: int, seed: bytes | None = None) -> seal.SEALContext:
    parameters = seal.EncryptionParameters(seal.SCHEME_TYPE.BFV)
    parameters.set_poly_modulus_degree(DEGREE)
    parameters.set_coeff_modulus(seal.CoeffModulus.Create(DEGREE, [data_bits, CHAINS[data_bits]]))
    parameters.set_plain_modulus(seal.PlainModulus.Batching(DEGREE, plain_bits))
    if seed is not None:
        words = np.frombuffer(seed, dtype="<u8").tolist()
        parameters.set_random_generator(seal.Blake2xbPRNGFactory(words))
    return seal.SEALContext(parameters, True, seal.SEC_LEVEL_TYPE.TC128)


@functools.cache
def context(plain_bits: int, data_bits: int) -> seal.SEALContext:
    return _context(plain_bits, data_bits)


def secret_key(plain_bits: int, data_bits: int, seed: bytes) -> seal.SecretKey:
    """The key of a seed. The seeded context ends here: encryption under it would repeat its noise."""
    return seal.KeyGenerator(_context(plain_bits, data_bits, seed)).secret_key()


def encrypt(plain_bits: int, data_bits: int, key: seal.SecretKey, values: np.ndarray) -> bytes:
    """Seeded symmetric ciphertexts of N int64 values each: one polynomial, and a seed for the other."""
    here = context(plain_bits, data_bits)
    encryptor, encoder = seal.Encryptor(here, key), seal.BatchEncoder(here)
    pieces = []
    with Scratch() as file:
        for start in range(0, len(values), DEGREE):
            plain = seal.Plaintext()
            encoder.encode(values[start : start + DEGREE].tolist(), plain)
            encryptor.encrypt_symmetric(plain).save(file.path)
            pieces.append(file.read())
    return join(pieces)


def _load(here: seal.SEALContext, file: Scratch, piece: bytes) -> seal.Ciphertext:
    file.write(piece)
    ciphertext = seal.Ciphertext()
    ciphertext.load(here, file.path)
    if ciphertext.size() != 2 or ciphertext.is_ntt_form() or ciphertext.is_transparent():
        raise ValueError("not a fresh or summed BFV ciphertext")
    return ciphertext


def add(plain_bits: int, data_bits: int, uploads: list[bytes]) -> bytes:
    """The sum of ciphertexts, piece by piece."""
    here = context(plain_bits, data_bits)
    evaluator = seal.Evaluator(here)
    sums = []
    with Scratch() as file:
        for pieces in zip(*map(split, uploads), strict=True):
            total = _load(here, file, pieces[0])
            for piece in pieces[1:]:
                evaluator.add_inplace(total, _load(here, file, piece))
            total.save(file.path)
            sums.append(file.read())
    return join(sums)


def open_sum(plain_bits: int, data_bits: int, seed: bytes, packed: bytes) -> bytes:
    """All N values of each piece as little-endian int64, centred on zero."""
    here = context(plain_bits, data_bits)
    decryptor = seal.Decryptor(here, secret_key(plain_bits, data_bits, seed))
    encoder = seal.BatchEncoder(here)
    opened = []
    with Scratch() as file:
        for piece in split(packed):
            ciphertext = _load(here, file, piece)
            if decryptor.invariant_noise_budget(ciphertext) < SPARE_BITS:
                raise ValueError("it is under another key, was changed, or holds too many uploads")
            plain = seal.Plaintext()
            decryptor.decrypt(ciphertext, plain)
            opened.append(np.array(encoder.decode_int64(plain), dtype="<i8").tobytes())
    return b"".join(opened)


def _requests(stream: BinaryIO) -> Iterator[tuple[bytes, int, int, list[bytes]]]:
    while head := stream.read(_REQUEST.size):
        task, plain_bits, data_bits, count = _REQUEST.unpack(head)
        parts = [stream.read(_LENGTH.unpack(stream.read(_LENGTH.size))[0]) for _ in range(count)]
        yield task, plain_bits, data_bits, parts


def request(task: bytes, plain_bits: int, data_bits: int, parts: list[bytes]) -> bytes:
    """The bytes that :func:`serve` reads as one piece of work: b"A" adds, b"O" opens."""
    return _REQUEST.pack(task, plain_bits, data_bits, len(parts)) + join(parts)


def _confine() -> None:
    # A crash must not write a core that holds a key, nor a compressed bomb take the machine's memory.
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (_WORKER_MEMORY, _WORKER_MEMORY))


Task = Callable[[int, int, list[bytes]], bytes]
"""(plain bits, data bits, parts) -> result."""
TASKS: Mapping[bytes, Task] = {b"A": add, b"O": lambda plain, data, parts: open_sum(plain, data, *parts)}


def serve(requests: BinaryIO, replies: BinaryIO, tasks: Mapping[bytes, Task] = TASKS) -> None:
    """Answers until the requests end: ``+`` or ``-``, a length, and the result or the reason."""
    replies.write(b"R")
    replies.flush()
    for task, plain_bits, data_bits, parts in _requests(requests):
        try:
            done = tasks[task](plain_bits, data_bits, parts)
            reply = b"+" + _LENGTH.pack(len(done)) + done
        except Exception as error:  # SEAL throws many kinds; the parent names the sender and refuses
            reason = str(error).encode()[:200]
            reply = b"-" + _LENGTH.pack(len(reason)) + reason
        replies.write(reply)
        replies.flush()


def work(tasks: Mapping[bytes, Task] = TASKS) -> None:
    """A worker's whole life."""
    _confine()
    # Whatever the native library prints must not end up between two replies.
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        serve(sys.stdin.buffer, out, tasks)


if __name__ == "__main__":
    work()
