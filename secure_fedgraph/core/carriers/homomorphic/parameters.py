"""What all parties of a homomorphic sum agree on, and why its result is exact."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field

from secure_fedgraph.core.carriers.homomorphic import native
from secure_fedgraph.core.carriers.homomorphic.native import BFV, CKKS, DEGREE, Ring
from secure_fedgraph.core.carriers.homomorphic.packing import Packing, packings
from secure_fedgraph.core.errors import BadInput, HostileMessage, Incompatible

SCHEMES = (BFV, CKKS)
TOKENS = 4
"""Numbers at the head of every ciphertext that say whose it is, and in which sum."""

# SEAL's error is a centred binomial of 42 coins, so at most 21 in every coefficient, and scaling a
# message up by q/t (BFV) or rounding an encoding (CKKS) moves a coefficient by at most 1/2. Both add over
# contributors, and nothing else does.
_NOISE_PER_UPLOAD = 22
_PLAIN_BITS = range(20, 59)
_HEADERS = 256  # SEAL's envelope and the frame of its compression; 204 bytes were seen
_WIRE_BYTES = {48: 6.9, 54: 7.6, 60: 8.05}  # of a slot, compressed, as measured
# Of the floating point in encoding and decoding, in units of the grid and of 2^-53: two transforms of length
# N, each within log2(N) * 16 of the 2-norm (Higham 2002, theorem 24.2), which is at most sqrt(2N) times the
# largest part.
_TRANSFORMS = 2 * math.log2(DEGREE) * 16 * math.sqrt(2 * DEGREE)


@dataclass(frozen=True)
class RingParameters:
    """What all parties agree on before the first sum; all of it is public.

    Guarantees:
        - a sum of at most ``contributors`` vectors within ``±bound`` opens exactly, at the noise's worst and
          not only with high probability;
        - under BFV no slot can wrap (``2 * reach < t``), and the noise leaves a bit to spare
          (``88 * contributors * t < q``);
        - under CKKS no coefficient can wrap, and a slot is off by at most a quarter of the grid for noise and
          encoding (``N * 22 * contributors <= scale / 4``) and an eighth for floating point: rounding to
          the grid gives the sum;
        - at least 128-bit security by the HomomorphicEncryption.org tables.

    Args:
        bound: largest absolute value of one coordinate of one upload.
        contributors: the most uploads that are ever added.
        scheme: ``"bfv"``, or ``"ckks"``: the same sums for more bytes.

    Raises:
        Incompatible: no modulus is large enough for the sum and leaves room for the noise.

    References:
        Cheon et al., Homomorphic Encryption for Arithmetic of Approximate Numbers, 2017 (CKKS).
        Li and Micciancio, On the Security of Homomorphic Encryption on Approximate Numbers, 2021.

    >>> RingParameters(bound=2**24, contributors=10).pieces(1_000_000)
    82
    """

    bound: int
    contributors: int
    scheme: str = BFV
    plain_bits: int = field(init=False)
    data_bits: int = field(init=False)
    packing: Packing = field(init=False)

    def __post_init__(self) -> None:
        if self.bound < 1 or self.contributors < 1:
            raise BadInput(
                f"bound and contributors are at least 1, not {self.bound} and {self.contributors}."
            )
        if self.scheme not in SCHEMES:
            raise BadInput(f"unknown scheme {self.scheme!r}: use one of {', '.join(map(repr, SCHEMES))}")
        chosen = (_smallest if self.scheme == BFV else _scaled)(self.bound, self.contributors)
        if chosen is None:
            largest = _largest_bound(self.contributors, self.scheme)
            raise Incompatible(
                f"A homomorphic sum ({self.scheme}) of {self.contributors} uploads within ±{self.bound} fits "
                f"no ring: for {self.contributors} uploads the bound is at most {largest}."
            )
        for name, value in zip(("plain_bits", "data_bits", "packing"), chosen, strict=True):
            object.__setattr__(self, name, value)

    @property
    def ring(self) -> Ring:
        """The ring, as the native library takes it."""
        return Ring(self.scheme, self.plain_bits, self.data_bits)

    @property
    def numbers(self) -> int:
        """Numbers in one ciphertext, its tokens among them."""
        return self.packing.numbers(DEGREE)

    @property
    def values(self) -> int:
        """Values of a vector in one ciphertext."""
        return self.numbers - TOKENS

    def pieces(self, length: int) -> int:
        """How many ciphertexts hold ``length`` values."""
        return -(-length // self.values)

    def divided(self, packed: bytes, length: int, polynomials: tuple[int, ...]) -> list[memoryview]:
        """The pieces of a ciphertext of ``length`` values, each of a length that honest ones have.

        Raises:
            HostileMessage: otherwise.
        """
        ranges = [self._piece_bytes(count) for count in polynomials]
        limit = self.pieces(length) * (4 + max(high for _, high in ranges))
        if len(packed) > limit:
            raise HostileMessage(
                f"A ciphertext of {length} values has at most {limit} bytes, not {len(packed)}."
            )
        try:
            pieces = native.views(packed)
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
        return pieces

    def _piece_bytes(self, polynomials: int) -> tuple[int, int]:
        # Coefficients are uniform modulo q, so no compression gets below their entropy; SEAL holds each
        # in 8 bytes, so none stays above.
        return polynomials * DEGREE * (self.data_bits - 1) // 8, polynomials * DEGREE * 8 + _HEADERS


@functools.cache
def _smallest(bound: int, contributors: int) -> tuple[int, int, Packing] | None:
    """BFV: the ring and the packing with the fewest bytes for a number."""
    best = None
    for data_bits in native.DATA_BITS:
        fitting = [p for p in _PLAIN_BITS if _quiet(contributors, native.plain_modulus(p), data_bits)]
        for packing in packings(bound, contributors, max(fitting, default=0)):
            # the smallest modulus leaves the most room for noise, and costs the same bytes
            require = [p for p in fitting if 2 * packing.reach < native.plain_modulus(p)]
            cost = _WIRE_BYTES[data_bits] * packing.slots_each
            if require and (best is None or cost < best[0]):
                best = cost, (min(require), data_bits, packing)
    return best and best[1]


def _scaled(bound: int, contributors: int) -> tuple[int, int, Packing] | None:
    """CKKS: the smallest scale at which no noise reaches another whole number."""
    scale_bits = (4 * DEGREE * _NOISE_PER_UPLOAD * contributors - 1).bit_length()
    data_bits, total = max(native.DATA_BITS), bound * contributors
    # a slot's two parts within ±total make coefficients within ±sqrt(2) * total * scale
    if 3 * (total << scale_bits) >= native.data_modulus(data_bits) or _TRANSFORMS * total > 2**53 / 8:
        return None
    return scale_bits, data_bits, Packing(bound, contributors, 1)


def _quiet(contributors: int, t: int, data_bits: int) -> bool:
    # Opening rounds correctly while noise < q / 2t; each spare bit halves that.
    noise = _NOISE_PER_UPLOAD * contributors
    return (2 * t * noise) << native.SPARE_BITS < native.data_modulus(data_bits)


def _largest_bound(contributors: int, scheme: str) -> int:
    fits, low, high = (_smallest if scheme == BFV else _scaled), 0, 2**62
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle, contributors) else (low, middle)
    return low
