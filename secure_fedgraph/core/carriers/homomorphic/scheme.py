"""Exact sums of integer vectors under encryption: one shared key, a server that only adds.

The clients hold one secret key; the server adds what they encrypted and cannot read it. Integers that are
small enough for the ring come out exactly: under BFV by construction, under CKKS because what opens is
rounded to whole numbers in the process that opens it, and the digits that rounding takes off never leave it
(Li and Micciancio 2021).

References: Fan and Vercauteren 2012 (BFV); Cheon et al. 2017 (CKKS); Microsoft SEAL through TenSEAL's
``sealapi``.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from secure_fedgraph.core.carriers.homomorphic import native
from secure_fedgraph.core.carriers.homomorphic.parameters import TOKENS, RingParameters
from secure_fedgraph.core.carriers.homomorphic.worker import NativeWorker
from secure_fedgraph.core.crypto import KEY_BYTES, Secret, derive, key_stream
from secure_fedgraph.core.errors import BadInput, HostileMessage, Incompatible

__all__ = ["Adder", "RingParameters", "SecretKey"]

_SUMS_WORTH_A_WORKER = 16
_ADD, _OPEN = {native.BFV: b"A", native.CKKS: b"a"}, {native.BFV: (b"O", b"T"), native.CKKS: (b"o", b"t")}

# The opener has a process of its own, so that the server's never see a key, also where one program plays all
# parties. The server has one for each core; each starts when it is needed.
_server_side = tuple(NativeWorker() for _ in range(min(os.cpu_count() or 1, 8)))
_client_side = NativeWorker()


class SecretKey(Secret):
    """The clients' shared key: it encrypts uploads and opens sums.

    Guarantees:
        - equal vectors never encrypt to equal bytes; the size tells the length only;
        - a sum under another key, with noise it should not have, or outside
          ``±bound * contributors`` is refused, not returned;
        - every ciphertext carries secret tokens of its sender's stamp, so that a sum in which an upload is
          missing, stands twice, or comes from another exchange is refused by the client that opens it with
          the right stamps: any other choice of whole multiples of uploads passes with probability
          ``(2 * bound + 1) ** -4`` for each ciphertext.

    Needs:
        - an honest-but-curious server: it can add constants of its own to what is no token, and whatever
          else can be computed on ciphertexts;
        - clients that do not collude with it: each holds the key to every upload;
        - the same TenSEAL build at all clients, since a key is re-made from its 32 bytes.

    >>> parameters = RingParameters(bound=1000, contributors=3)
    >>> key = SecretKey.generate(parameters)
    >>> uploads = [key.encrypt(np.array([1, -2, n])) for n in (3, 4, 5)]
    >>> key.decrypt(Adder(parameters).add(uploads, length=3), length=3).tolist()
    [3, -6, 12]
    """

    __slots__ = ("_key", "_secret", "_seed", "parameters")

    def __init__(self, parameters: RingParameters, secret: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise BadInput(f"A homomorphic key has {KEY_BYTES} bytes; this one has {len(secret)}.")
        self.parameters, ring = parameters, parameters.ring
        self._secret = secret
        named = b"secure-fedgraph ring_he %s %d %d" % (ring.scheme.encode(), ring.plain_bits, ring.data_bits)
        self._seed = derive(secret, named, native.SEED_BYTES)
        self._key = native.secret_key(ring, self._seed)

    @classmethod
    def generate(cls, parameters: RingParameters) -> SecretKey:
        return cls(parameters, os.urandom(KEY_BYTES))

    @classmethod
    def from_bytes(cls, parameters: RingParameters, secret: bytes) -> SecretKey:
        """The key that another client gave away with :meth:`to_bytes`."""
        return cls(parameters, secret)

    def to_bytes(self) -> bytes:
        """32 secret bytes, to be sealed for the other clients and never to be sent to the server."""
        return self._secret

    def encrypt(self, values: np.ndarray, stamp: bytes = b"") -> bytes:
        """A vector's ciphertexts.

        Args:
            values: signed integers, one dimension, within ``±parameters.bound``.
            stamp: names the sender and the sum, and never serves twice.

        Raises:
            BadInput: another type or shape, or a value beyond the bound.
        """
        if values.ndim != 1 or values.dtype.kind != "i":
            raise BadInput(
                f"Encrypt a vector of signed integers, not {values.dtype} of shape {values.shape}."
            )
        if (
            values.size
            and not -self.parameters.bound <= values.min() <= values.max() <= self.parameters.bound
        ):
            raise BadInput(f"A value to encrypt is outside ±{self.parameters.bound}; clip before encoding.")
        return native.encrypt(self.parameters.ring, self._key, self._slots(values, stamp))

    def decrypt(self, ciphertext: bytes, length: int, stamps: Sequence[bytes] | None = None) -> np.ndarray:
        """The ``length`` values of a sum (or of one upload) as int64.

        Args:
            ciphertext: what the server hands over.
            length: of the vectors.
            stamps: of the uploads that the sum has to hold, each once; None leaves that unchecked.

        Raises:
            HostileMessage: bytes that no honest server sends.
        """
        ours = self.parameters
        pieces = ours.divided(ciphertext, length, polynomials=(1, 2))
        values = np.empty(len(pieces) * ours.values, dtype=np.int64)
        tokens = np.empty((len(pieces), TOKENS), dtype=np.int64)
        if not length:
            return values
        task = _OPEN[ours.scheme][stamps is not None]
        opened = _client_side.call(task, ours.plain_bits, ours.data_bits, [self._seed], pieces)
        slots = np.frombuffer(opened, dtype="<i8").reshape(len(pieces), native.DEGREE)
        for number, piece in enumerate(slots):
            numbers = ours.packing.unpack(piece)
            tokens[number] = numbers[:TOKENS]
            values[number * ours.values : (number + 1) * ours.values] = numbers[TOKENS:]
        if stamps is not None and not self._genuine(tokens, stamps):
            raise HostileMessage("A sum does not hold each upload of the cohort exactly once.")
        reach = ours.bound * ours.contributors
        if values[length:].any() or not -reach <= values.min() <= values.max() <= reach:
            raise HostileMessage("A sum opens to values that no honest uploads add up to.")
        return values[:length]

    def _slots(self, values: np.ndarray, stamp: bytes) -> Iterator[np.ndarray]:
        ours = self.parameters
        for number, tokens in enumerate(self._tokens([stamp], ours.pieces(values.size))):
            part = values[number * ours.values : (number + 1) * ours.values]
            numbers = np.zeros(ours.numbers, dtype=np.int64)
            numbers[:TOKENS] = tokens
            numbers[TOKENS : TOKENS + part.size] = part
            yield ours.packing.pack(numbers, native.DEGREE)

    def _genuine(self, tokens: np.ndarray, stamps: Sequence[bytes]) -> bool:
        return np.array_equal(tokens, self._tokens(stamps, len(tokens)))

    def _tokens(self, stamps: Sequence[bytes], pieces: int) -> np.ndarray:
        """The sum of the tokens of some stamps, ``[pieces, TOKENS]``, each uniform within the bound."""
        total, words = np.zeros((pieces, TOKENS), dtype=np.int64), np.empty((pieces, TOKENS), dtype="<u8")
        for stamp in stamps:
            key_stream(derive(self._secret, b"secure-fedgraph ring_he tokens " + stamp), words.data)
            total += (words % np.uint64(2 * self.parameters.bound + 1)).astype(np.int64)
            total -= self.parameters.bound
        return total


@dataclass(frozen=True)
class Adder:
    """The server's half: adds ciphertexts and holds no key.

    Guarantees:
        - it learns the number and the length of the uploads, nothing else;
        - bytes that crash the native library end a worker process, not the server.

    Needs:
        - uploads whose senders were checked, one for each: it cannot tell a copy from a client.
    """

    parameters: RingParameters

    def add(self, uploads: Sequence[bytes], length: int) -> bytes:
        """The ciphertexts of the sum of ``uploads``, each of ``length`` values.

        Raises:
            Incompatible: more uploads than the parameters have room for.
            HostileMessage: bytes that :meth:`SecretKey.encrypt` does not make.
        """
        if not 1 <= len(uploads) <= self.parameters.contributors:
            raise Incompatible(
                f"These parameters add 1 to {self.parameters.contributors} uploads, not {len(uploads)}; "
                "size contributors by the cohort."
            )
        divided = [self.parameters.divided(upload, length, polynomials=(1,)) for upload in uploads]
        sums = list(zip(*divided, strict=True))
        if not sums:
            return b""
        workers = _server_side[: max(1, len(sums) // _SUMS_WORTH_A_WORKER)]
        if len(workers) == 1:
            return self._added(workers[0], sums)
        each = -(-len(sums) // len(workers))
        shares = [sums[start : start + each] for start in range(0, len(sums), each)]
        with ThreadPoolExecutor(len(workers)) as pool:
            return b"".join(pool.map(self._added, workers, shares))

    def _added(self, worker: NativeWorker, sums: Sequence[tuple[memoryview, ...]]) -> bytes:
        ring, terms = self.parameters.ring, struct.pack("<I", len(sums[0]))
        pieces = [piece for one in sums for piece in one]
        return worker.call(_ADD[ring.scheme], ring.plain_bits, ring.data_bits, [terms], pieces)
