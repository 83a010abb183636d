"""Every call into SEAL (through ``tenseal.sealapi``), and the loop of the process that may crash in it.

Run as a script this file is what the module ``worker`` beside it starts. It therefore
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import IO, Any, BinaryIO, NamedTuple

import numpy as np
import tenseal.sealapi as seal

DEGREE = 8192
"""Polynomial degree N, and so the number of slots of one ciphertext (CKKS: of real and imaginary parts)."""
DATA_BITS = (48, 54, 60)
"""Bits of the one prime q that a ciphertext lives in. 128-bit security allows 218 at N = 8192, and 109 at
N = 4096 (HomomorphicEncryption.org standard, 2018, table 1); nothing is multiplied, so no other prime is
needed. N = 8192 costs a tenth less for a value, and 66 KB at least."""
BFV, CKKS = "bfv", "ckks"
OFF_GRID = 3 / 8
"""How far from a whole number an honest CKKS sum can be; further off means a foreign ciphertext."""
SEED_BYTES = 64
SPARE_BITS = 1
"""Noise budget that an honest sum has left over in the worst case; less means a foreign ciphertext."""

_WORKER_MEMORY = 4 << 30
_REQUEST = struct.Struct("<cBBII")  # task, plain bits, data bits, number of parts, number of pieces
_LENGTH = struct.Struct("<I")
_SLOTS = struct.Struct(f"<{DEGREE}q")
_GO = b"."
Bytes = bytes | memoryview


class Ring(NamedTuple):
    """What a ciphertext lives in.

    Args:
        scheme: ``"bfv"`` or ``"ckks"``.
        plain_bits: BFV: bits of the plaintext prime t; CKKS: of the scale that one unit of the grid is given.
        data_bits: bits of q.
    """

    scheme: str
    plain_bits: int
    data_bits: int


class Scratch:
    """A file that lives in memory, because SEAL saves to a path and loads from one."""

    def __init__(self) -> None:
        try:
            self.fd = os.memfd_create("seal")
            self.path = f"/proc/self/fd/{self.fd}"
            self._named = not os.path.exists(self.path)
        except (AttributeError, OSError):
            self._named = True
        if self._named:
            self.fd, self.path = tempfile.mkstemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)

    def read(self) -> bytes:
        return os.pread(self.fd, os.fstat(self.fd).st_size, 0)

    def write(self, data: bytes | memoryview) -> None:
        os.pwrite(self.fd, data, 0)
        os.ftruncate(self.fd, len(data))  # afterwards, so that memory pages are reused

    def close(self) -> None:
        os.close(self.fd)
        if self._named:
            os.unlink(self.path)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def join(pieces: list[bytes]) -> bytes:
    """Pieces with their lengths before them."""
    return b"".join(part for piece in pieces for part in (_LENGTH.pack(len(piece)), piece))


def split(packed: bytes) -> list[bytes]:
    """What :func:`join` joined.

    Raises:
        ValueError: the lengths do not add up.
    """
    return [bytes(piece) for piece in views(packed)]


def views(packed: bytes) -> list[memoryview]:
    """As :func:`split`, uncopied."""
    pieces, at, whole = [], 0, memoryview(packed)
    while at < len(whole):
        if len(whole) - at < _LENGTH.size:
            raise ValueError("a length is cut off")
        (length,) = _LENGTH.unpack_from(whole, at)
        at += _LENGTH.size
        if length > len(whole) - at:
            raise ValueError("a piece is cut off")
        pieces.append(whole[at : at + length])
        at += length
    return pieces


@functools.cache
def plain_modulus(bits: int) -> int:
    """The largest prime of ``bits`` bits that is 1 modulo 2N, so that N values fit one plaintext."""
    return int(seal.PlainModulus.Batching(DEGREE, bits).value())


@functools.cache
def data_modulus(bits: int) -> int:
    """The prime q of ``bits`` bits in which ciphertexts live."""
    return int(seal.CoeffModulus.Create(DEGREE, [bits])[0].value())


def _context(ring: Ring, seed: bytes | None = None) -> seal.SEALContext:
    parameters = seal.EncryptionParameters(getattr(seal.SCHEME_TYPE, ring.scheme.upper()))
    parameters.set_poly_modulus_degree(DEGREE)
    parameters.set_coeff_modulus(seal.CoeffModulus.Create(DEGREE, [ring.data_bits]))
    if ring.scheme == BFV:
        parameters.set_plain_modulus(seal.PlainModulus.Batching(DEGREE, ring.plain_bits))
    if seed is not None:
        words = np.frombuffer(seed, dtype="<u8").tolist()
        parameters.set_random_generator(seal.Blake2xbPRNGFactory(words))
    return seal.SEALContext(parameters, True, seal.SEC_LEVEL_TYPE.TC128)


@functools.cache
def context(ring: Ring) -> seal.SEALContext:
    return _context(ring)


def secret_key(ring: Ring, seed: bytes) -> seal.SecretKey:
    """The key of a seed. The seeded context ends here: encryption under it would repeat its noise."""
    return seal.KeyGenerator(_context(ring, seed)).secret_key()


def encrypt(ring: Ring, key: seal.SecretKey, slots: Iterable[np.ndarray]) -> bytes:
    """Seeded symmetric ciphertexts of N int64 slots each: one polynomial, and a seed for the other."""
    seal_context, plain = context(ring), seal.Plaintext()
    encryptor, encode = seal.Encryptor(seal_context, key), _encoding(ring)
    pieces = []
    with Scratch() as file:
        for values in slots:
            encode(values, plain)
            encryptor.encrypt_symmetric(plain).save(file.path)
            pieces.append(file.read())
    return join(pieces)


def _encoding(ring: Ring) -> Callable[[np.ndarray, seal.Plaintext], None]:
    if ring.scheme == BFV:
        whole = seal.BatchEncoder(context(ring))
        return lambda slots, plain: whole.encode(slots.tolist(), plain)
    real, scale = seal.CKKSEncoder(context(ring)), 2.0**ring.plain_bits
    return lambda slots, plain: real.encode(
        slots.astype(np.float64).view(np.complex128).tolist(), scale, plain
    )


def _load(ring: Ring, path: str, ciphertext: seal.Ciphertext) -> seal.Ciphertext:
    ciphertext.load(context(ring), path)
    real = ring.scheme == CKKS
    if (
        ciphertext.size() != 2
        or ciphertext.is_ntt_form() != real
        or ciphertext.is_transparent()
        or ciphertext.scale != (2.0**ring.plain_bits if real else 1.0)
    ):
        raise ValueError(f"not a fresh or summed {ring.scheme.upper()} ciphertext")
    return ciphertext


def add(ring: Ring, terms: int, paths: Iterable[str]) -> bytes:
    """The sums of ciphertexts.

    Args:
        ring: theirs.
        terms: how many are in a sum.
        paths: where they are, sum by sum; a path may hold another one as soon as the next is asked for.
    """
    evaluator, summand, total, sums = seal.Evaluator(context(ring)), seal.Ciphertext(), seal.Ciphertext(), []
    with Scratch() as file:
        for number, path in enumerate(paths):
            if number % terms:
                evaluator.add_inplace(total, _load(ring, path, summand))
            else:
                _load(ring, path, total)
            if number % terms == terms - 1:
                total.save(file.path)
                sums.append(file.read())
    return join(sums)


def open_sum(ring: Ring, seed: bytes, paths: Iterable[str], stamped: bool = False) -> bytes:
    """All N slots of each piece as little-endian int64, centred on zero.

    Args:
        ring: theirs.
        seed: the key's.
        paths: where the pieces are, as for :func:`add`.
        stamped: whether tokens in them are going to be checked. Noise that changes a coefficient changes
            every slot, the tokens' among them, so that BFV's noise need not be measured then.
    """
    decryptor = seal.Decryptor(context(ring), secret_key(ring, seed))
    ciphertext, plain, opened = seal.Ciphertext(), seal.Plaintext(), []
    read = _exact(ring, None if stamped else decryptor) if ring.scheme == BFV else _rounded(ring)
    for path in paths:
        _load(ring, path, ciphertext)
        decryptor.decrypt(ciphertext, plain)
        opened.append(read(ciphertext, plain).tobytes())
    return b"".join(opened)


Reading = Callable[[seal.Ciphertext, seal.Plaintext], np.ndarray]


def _exact(ring: Ring, measuring: seal.Decryptor | None) -> Reading:
    encoder = seal.BatchEncoder(context(ring))

    def read(ciphertext: seal.Ciphertext, plain: seal.Plaintext) -> np.ndarray:
        if measuring is not None and measuring.invariant_noise_budget(ciphertext) < SPARE_BITS:
            raise ValueError("it is under another key, was changed, or holds too many uploads")
        return np.frombuffer(_SLOTS.pack(*encoder.decode_int64(plain)), dtype="<i8")

    return read


def _rounded(ring: Ring) -> Reading:
    encoder = seal.CKKSEncoder(context(ring))

    def read(_: seal.Ciphertext, plain: seal.Plaintext) -> np.ndarray:
        # The distance to a whole number depends on the key (Li and Micciancio 2021): it stays here.
        values = np.array(encoder.decode_complex(plain), dtype=np.complex128).view(np.float64)
        whole = np.rint(values)
        if not np.abs(values - whole).max() <= OFF_GRID:  # also where it is not a number
            raise ValueError("it is under another key, was changed, or holds too many uploads")
        return whole.astype("<i8")

    return read


def _requests(
    stream: BinaryIO, replies: BinaryIO, shelves: Sequence[str]
) -> Iterator[tuple[bytes, int, int, Iterator[Any]]]:
    while head := stream.read(_REQUEST.size):
        task, plain_bits, data_bits, parts, pieces = _REQUEST.unpack(head)
        whole = [stream.read(_LENGTH.unpack(stream.read(_LENGTH.size))[0]) for _ in range(parts)]
        yield task, plain_bits, data_bits, chain(whole, _shelved(stream, replies, shelves, pieces))


def _shelved(stream: BinaryIO, replies: BinaryIO, shelves: Sequence[str], pieces: int) -> Iterator[str]:
    for start in range(0, pieces, len(shelves) or 1):
        stream.read(len(_GO))
        yield from shelves[: pieces - start]
        replies.write(_GO)
        replies.flush()


def send(stream: IO[bytes], head: tuple[bytes, int, int], parts: Sequence[Bytes], pieces: int = 0) -> None:
    """Writes what :func:`serve` reads as one piece of work; then :func:`put` for the pieces."""
    stream.write(_REQUEST.pack(*head, len(parts), pieces))
    for part in parts:
        stream.write(_LENGTH.pack(len(part)))
        stream.write(part)
    stream.flush()


def put(stream: IO[bytes], replies: IO[bytes], shelves: Sequence[Scratch], pieces: Sequence[Bytes]) -> None:
    """Hands pieces over in files that both processes hold, so that no pipe copies them."""
    for start in range(0, len(pieces), len(shelves)):
        for file, piece in zip(shelves, pieces[start : start + len(shelves)], strict=False):
            file.write(piece)
        stream.write(_GO)
        stream.flush()
        if replies.read(len(_GO)) != _GO:
            raise EOFError


def _confine() -> None:
    # A crash must not write a core that holds a key, nor a compressed bomb take the machine's memory.
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (_WORKER_MEMORY, _WORKER_MEMORY))


Task = Callable[[int, int, Iterator[Any]], bytes]
"""(plain bits, data bits, parts as bytes and then pieces by their paths) -> result."""


def _adds(scheme: str) -> Task:
    return lambda plain, data, parts: add(Ring(scheme, plain, data), _LENGTH.unpack(next(parts))[0], parts)


def _opens(scheme: str, stamped: bool) -> Task:
    return lambda plain, data, parts: open_sum(Ring(scheme, plain, data), next(parts), parts, stamped)


TASKS: Mapping[bytes, Task] = {
    b"A": _adds(BFV),
    b"O": _opens(BFV, stamped=False),
    b"T": _opens(BFV, stamped=True),
    b"a": _adds(CKKS),
    b"o": _opens(CKKS, stamped=False),
    b"t": _opens(CKKS, stamped=True),
}
"""Adding, opening, and opening where tokens are checked afterwards; capitals for BFV."""


def serve(
    requests: BinaryIO,
    replies: BinaryIO,
    tasks: Mapping[bytes, Task] = TASKS,
    shelves: Sequence[str] = (),
) -> None:
    """Answers until the requests end: ``+`` or ``-``, a length, and the result or the reason."""
    replies.write(b"R")
    replies.flush()
    for task, plain_bits, data_bits, parts in _requests(requests, replies, shelves):
        try:
            output = tasks[task](plain_bits, data_bits, parts)
            reply = b"+" + _LENGTH.pack(len(output)) + output
        except Exception as error:  # SEAL throws many kinds; the parent names the sender and refuses
            reason = str(error).encode()[:200]
            reply = b"-" + _LENGTH.pack(len(reason)) + reason
        for _ in parts:  # the parent writes all of them before it reads
            pass
        replies.write(reply)
        replies.flush()


def work(tasks: Mapping[bytes, Task] = TASKS) -> None:
    """Runs a worker to its end; its arguments are the paths of the files that hold pieces."""
    _confine()
    # Whatever the native library prints must not end up between two replies.
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        serve(sys.stdin.buffer, out, tasks, sys.argv[1:])


if __name__ == "__main__":
    work()
