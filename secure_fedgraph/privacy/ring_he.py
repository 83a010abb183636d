"""Exact sums of integer vectors under encryption: BFV, one shared key, a server that only adds.

The clients hold one secret key; the server adds what they encrypted and cannot read it. Integers that
are small enough for the ring come out exactly, so there is no rounding and no approximate-decryption
attack (Li and Micciancio 2021 concerns CKKS).

References: Fan and Vercauteren 2012 (BFV); Microsoft SEAL through TenSEAL's ``sealapi``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from secure_fedgraph.crypto import KEY_BYTES, Secret, derive
from secure_fedgraph.errors import BadInput, HostileMessage, Incompatible
from secure_fedgraph.privacy import ring_he_native as native
from secure_fedgraph.privacy.ring_he_worker import NativeWorker

SLOTS = native.DEGREE
"""Values in one ciphertext."""

# SEAL's error is a centred binomial of 42 coins, so at most 21 in every coefficient, and scaling a
# message up by q/t rounds by at most 1/2. Both add over contributors, and nothing else does.
_NOISE_PER_UPLOAD = 22
_PLAIN_BITS = range(20, 55)
_HEADERS = 256  # SEAL's envelope and the frame of its compression; 98 bytes were seen

# Two processes, so that the server's never sees a key, also where one program plays all parties.
_server_side = NativeWorker()
_client_side = NativeWorker()


@dataclass(frozen=True)
class RingParameters:
    """What all parties agree on before the first sum; all of it is public.

    Guarantees:
        - a sum of at most ``contributors`` vectors within ``±bound`` opens exactly: it cannot wrap
          (``2 * bound * contributors < t``), and the noise, at its worst case and not only with high
          probability, leaves a bit to spare (``88 * contributors * t < q``);
        - 128-bit security by the HomomorphicEncryption.org tables, with the smallest modulus that does.

    Args:
        bound: largest absolute value of one coordinate of one upload.
        contributors: the most uploads that are ever added.

    Raises:
        Incompatible: no modulus is large enough for the sum and leaves room for the noise.

    >>> RingParameters(bound=2**24, contributors=10).data_bits
    48
    """

    bound: int
    contributors: int
    plain_bits: int = field(init=False)
    data_bits: int = field(init=False)

    def __post_init__(self) -> None:
        if self.bound < 1 or self.contributors < 1:
            raise BadInput(
                f"bound and contributors are at least 1, not {self.bound} and {self.contributors}."
            )
        for data_bits in native.CHAINS:
            # The smallest modulus leaves the most room for noise, and costs the same bytes.
            for plain_bits in _PLAIN_BITS:
                t = native.plain_modulus(plain_bits)
                if 2 * self.bound * self.contributors < t and _quiet(self.contributors, t, data_bits):
                    object.__setattr__(self, "plain_bits", plain_bits)
                    object.__setattr__(self, "data_bits", data_bits)
                    return
        raise Incompatible(
            f"A homomorphic sum of {self.contributors} uploads within ±{self.bound} fits no ring: "
            f"for {self.contributors} uploads the bound is at most {_largest_bound(self.contributors)}."
        )

    @property
    def plain_modulus(self) -> int:
        """The prime t: sums are exact modulo it."""
        return native.plain_modulus(self.plain_bits)

    def pieces(self, length: int) -> int:
        """How many ciphertexts hold ``length`` values."""
        return -(-length // SLOTS)

    def upload_bytes(self, length: int) -> int:
        """The most bytes that an encrypted vector of ``length`` values has; 0.5 % more than it usually has
        at 60 data bits, 17 % at 48 (compression takes the zero bits out)."""
        return self.pieces(length) * (4 + self._piece_bytes(1)[1])

    def _piece_bytes(self, polynomials: int) -> tuple[int, int]:
        # Coefficients are uniform modulo q, so no compression gets below their entropy; SEAL holds each
        # in 8 bytes, so none stays above.
        return polynomials * SLOTS * (self.data_bits - 1) // 8, polynomials * SLOTS * 8 + _HEADERS

    def _check(self, packed: bytes, length: int, polynomials: tuple[int, ...]) -> None:
        ranges = [self._piece_bytes(count) for count in polynomials]
        limit = self.pieces(length) * (4 + max(high for _, high in ranges))
        if len(packed) > limit:
            raise HostileMessage(
                f"A ciphertext of {length} values has at most {limit} bytes, not {len(packed)}."
            )
        try:
            pieces = native.split(packed)
        except ValueError as error:
            raise HostileMessage(f"A ciphertext does not divide into pieces: {error}.") from None
        if len(pieces) != self.pieces(length):
            raise HostileMessage(
                f"A ciphertext of {length} values has {self.pieces(length)} pieces, not {len(pieces)}."
            )
        for piece in pieces:
            if not any(low <= len(piece) <= high for low, high in ranges):
                raise HostileMessage(
                    f"A piece of a ciphertext has {len(piece)} bytes, which no honest one has."
                )


class SecretKey(Secret):
    """The clients' shared key: it encrypts uploads and opens sums.

    Guarantees:
        - equal vectors never encrypt to equal bytes; the size tells the length only;
        - a sum under another key, with noise it should not have, or outside
          ``±bound * contributors`` is refused, not returned.

    Needs:
        - an honest-but-curious server: it can add a constant of its own, add one upload ten times or
          leave one out, and no client notices;
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
        self.parameters = parameters
        self._secret = secret
        bits = parameters.plain_bits, parameters.data_bits
        self._seed = derive(secret, b"secure-fedgraph ring_he %d %d" % bits, native.SEED_BYTES)
        self._key = native.secret_key(*bits, self._seed)

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

    def encrypt(self, values: np.ndarray) -> bytes:
        """A vector's ciphertexts, ``SLOTS`` values each.

        Args:
            values: signed integers, one dimension, within ``±parameters.bound``.

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
        return native.encrypt(self.parameters.plain_bits, self.parameters.data_bits, self._key, values)

    def decrypt(self, ciphertext: bytes, length: int) -> np.ndarray:
        """The ``length`` values of a sum (or of one upload) as int64.

        Raises:
            HostileMessage: bytes that no honest server sends.
        """
        ours = self.parameters
        ours._check(ciphertext, length, polynomials=(1, 2))
        if not length:
            return np.empty(0, dtype=np.int64)
        opened = _client_side.call(b"O", ours.plain_bits, ours.data_bits, [self._seed, ciphertext])
        values = np.frombuffer(opened, dtype="<i8").astype(np.int64)
        if values[length:].any() or np.abs(values).max() > ours.bound * ours.contributors:
            raise HostileMessage("A sum opens to values that no honest uploads add up to.")
        return values[:length]


@dataclass(frozen=True)
class Adder:
    """The server's half: adds ciphertexts and holds no key.

    Guarantees:
        - it learns the number and the length of the uploads, nothing else;
        - bytes that crash the native library end a worker process, not the server.

    Needs:
        - uploads whose senders were checked, each there once: it cannot tell a copy from a client.
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
        for upload in uploads:
            self.parameters._check(upload, length, polynomials=(1,))
        if not length:
            return b""
        return _server_side.call(b"A", self.parameters.plain_bits, self.parameters.data_bits, list(uploads))


def _quiet(contributors: int, t: int, data_bits: int) -> bool:
    # Opening rounds correctly while noise < q / 2t; each spare bit halves that.
    noise = _NOISE_PER_UPLOAD * contributors
    return (2 * t * noise) << native.SPARE_BITS < native.data_modulus(data_bits)


def _largest_bound(contributors: int) -> int:
    moduli = map(native.plain_modulus, _PLAIN_BITS)
    fitting = [t for t in moduli if any(_quiet(contributors, t, bits) for bits in native.CHAINS)]
    return (max(fitting, default=1) - 1) // (2 * contributors)
