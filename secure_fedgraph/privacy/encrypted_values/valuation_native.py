"""CKKS through SEAL for values of updates that nobody reads; also the process that may crash in it.

Run as a script this file is the worker of the module ``valuation`` beside it: it imports
``native`` from its own folder, and nothing else of the package.

A sum over all slots is N/2 times a plaintext's constant coefficient, so an inner product needs no rotations
and no rescaling: products of chunks are added up, relinearised once, and one coefficient is opened.

Two things protect what is opened. From the key holder: a fresh encryption of zero, so that what it is handed
does not depend on how uploads were encrypted, and a plaintext that is uniform in the whole ring, so that what
opens is uniform too. From the server: the exact plaintext of a CKKS ciphertext is a linear equation of the
secret key (Li and Micciancio 2021), so the holder adds noise of its own to everything that it hands back, at
least 2^39 times the encryption's.

References: Cheon et al., Homomorphic Encryption for Arithmetic of Approximate Numbers, 2017; Li and
Micciancio, On the Security of Homomorphic Encryption on Approximate Numbers, 2021.
"""

from __future__ import annotations

import functools
import math
import os
import secrets
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tenseal.sealapi as seal

if __name__ == "__main__":  # at the end of the path, so that no file of that folder shadows a library
    sys.path.append(str(Path(__file__).resolve().parents[2] / "core/carriers/homomorphic"))
    import native  # type: ignore[import-not-found]
else:
    from secure_fedgraph.core.carriers.homomorphic import native

DEGREE = 16384
SLOTS = DEGREE // 2
"""Values in one ciphertext."""
CHAIN = (60,) * 5
"""Bits of the primes: all but the last carry data, that one switches keys. 300 of the 438 bits that 128-bit
security allows at N = 16384 (HomomorphicEncryption.org standard, 2018, table 1)."""
SCALE, WEIGHT_SCALE = 2.0**80, 2.0**20
PRIMES = tuple(int(prime.value()) for prime in seal.CoeffModulus.Create(DEGREE, list(CHAIN)))[:-1]
FLOOD = 2.0**-10
"""Largest real and imaginary part of the noise on a slot of the aggregate, in the scaled updates' unit."""
PRODUCT_FLOOD, SQUARE_FLOOD = 2**164, 2**144
"""Largest noise on the constant coefficient of a product with the aggregate, at scale 2^180, and of a product
of an update with itself, at 2^160."""
_WORDS = len(PRIMES) * DEGREE
_HEADER = struct.Struct("<HBBBBHQ")  # magic, size of this header, version, compression, nothing, bytes
_FIELDS = struct.Struct("<QQQQQd")  # parameters, number of words, scale
_WORD = np.dtype("<u8")


def _context(seed: bytes | None = None) -> seal.SEALContext:
    parameters = seal.EncryptionParameters(seal.SCHEME_TYPE.CKKS)
    parameters.set_poly_modulus_degree(DEGREE)
    parameters.set_coeff_modulus(seal.CoeffModulus.Create(DEGREE, list(CHAIN)))
    if seed is not None:
        words = np.frombuffer(seed, dtype=_WORD).tolist()
        parameters.set_random_generator(seal.Blake2xbPRNGFactory(words))
    return seal.SEALContext(parameters, True, seal.SEC_LEVEL_TYPE.TC128)


@functools.cache
def context() -> seal.SEALContext:
    return _context()


def secret_key(seed: bytes) -> seal.SecretKey:
    """The key of a seed. The seeded context ends here."""
    return seal.KeyGenerator(_context(seed)).secret_key()


def public_keys(seed: bytes) -> tuple[bytes, bytes]:
    """The public key, which encrypts, and the relinearisation key, which the server multiplies with."""
    maker = seal.KeyGenerator(context(), secret_key(seed))
    public, relinearisation = seal.PublicKey(), seal.RelinKeys()
    maker.create_public_key(public)
    maker.create_relin_keys(relinearisation)
    with native.Scratch() as file:
        return _saved(public, file), _saved(relinearisation, file)


def encrypt(public: bytes, values: bytes) -> bytes:
    """Ciphertexts of float64 values, SLOTS each."""
    vector = np.frombuffer(values, dtype="<f8")
    encoder, pieces = seal.CKKSEncoder(context()), []
    with native.Scratch() as file:
        encryptor = seal.Encryptor(context(), _loaded(seal.PublicKey(), file, public))
        for start in range(0, len(vector), SLOTS):
            plain, piece = seal.Plaintext(), seal.Ciphertext()
            encoder.encode(vector[start : start + SLOTS].tolist(), SCALE, plain)
            encryptor.encrypt(plain, piece)
            pieces.append(_saved(piece, file))
    return bytes(native.join(pieces))


def value(public: bytes, relinearisation: bytes, weights: bytes, *uploads: bytes) -> bytes:
    """What the key holder is asked to open, and the blinds to subtract from what it opens.

    Returns:
        ``join([aggregate, its blinds, products, their blinds])``: the weighted sum, piece by piece; each
        upload's product with it, then each upload's with itself; blinds of single numbers as one word a
        prime.
    """
    evaluator, encoder = seal.Evaluator(context()), seal.CKKSEncoder(context())
    with native.Scratch() as file:
        encryptor = seal.Encryptor(context(), _loaded(seal.PublicKey(), file, public))
        keys = _loaded(seal.RelinKeys(), file, relinearisation)
        piled = [[_fresh(file, piece) for piece in native.split(upload)] for upload in uploads]
        if len({len(pieces) for pieces in piled}) != 1:
            raise ValueError("uploads have different numbers of pieces")
        weight_plains = []
        for weight in np.frombuffer(weights, dtype="<f8"):
            plain = seal.Plaintext()
            encoder.encode(float(weight), WEIGHT_SCALE, plain)
            weight_plains.append(None if round(weight * WEIGHT_SCALE) == 0 else plain)
        aggregate = [_weighted(evaluator, pieces, weight_plains) for pieces in zip(*piled, strict=True)]
        products = [_product(evaluator, keys, upload, aggregate) for upload in piled]
        products += [_product(evaluator, keys, upload, upload) for upload in piled]
        shown, blinds = zip(
            *(_blinded(evaluator, encryptor, piece, file) for piece in aggregate), strict=True
        )
        numbers, covers = zip(*(_blinded(evaluator, encryptor, one, file) for one in products), strict=True)
        sums = np.array([_total(cover) for cover in covers], dtype=_WORD)
        return bytes(
            native.join([native.join(shown), b"".join(blinds), native.join(numbers), sums.tobytes()])
        )


def open_blinded(seed: bytes, aggregate: bytes, products: bytes) -> bytes:
    """The holder's half: all words of each piece of the aggregate, and for each product one word a prime.

    Each under noise of its own.
    """
    decryptor = seal.Decryptor(context(), secret_key(seed))
    with native.Scratch() as file:
        words = [_flooded(_words(decryptor, piece, file)) for piece in native.split(aggregate)]
        pieces = native.split(products)
        limits = [PRODUCT_FLOOD] * (len(pieces) // 2) + [SQUARE_FLOOD] * (len(pieces) - len(pieces) // 2)
        sums = []
        for piece, limit in zip(pieces, limits, strict=True):
            noise = secrets.randbelow(2 * limit + 1) - limit
            totals = _total(_words(decryptor, piece, file))
            sums.append([(one + DEGREE * noise) % prime for one, prime in zip(totals, PRIMES, strict=True)])
    return bytes(native.join([b"".join(words), np.array(sums, dtype=_WORD).tobytes()]))


def _flooded(words: bytes) -> bytes:
    """The words of a plaintext plus those of noise that is uniform on every slot.

    Doubles have 53 bits and the noise has more, so a second, finer layer fills up what the first leaves zero.
    """
    encoder, shape = seal.CKKSEncoder(context()), (len(PRIMES), DEGREE)
    noisy = np.frombuffer(words, dtype=_WORD).reshape(shape)
    for limit in (FLOOD, FLOOD * 2.0**-40):
        uniform = np.frombuffer(os.urandom(8 * DEGREE), dtype=_WORD) >> 11  # 53 bits
        parts = (uniform.astype(np.float64) * 2.0**-52 - 1) * limit
        plain = seal.Plaintext()
        encoder.encode((parts[:SLOTS] + 1j * parts[SLOTS:]).tolist(), SCALE * WEIGHT_SCALE, plain)
        noisy = (noisy + _read(plain).reshape(shape)) % np.array(PRIMES, dtype=_WORD)[:, None]
    return noisy.tobytes()


def unblind(opened: bytes, blinds: bytes) -> bytes:
    """The aggregate as float64: SLOTS values of each piece."""
    shape = (-1, len(PRIMES), DEGREE)
    unblinded = _less(
        np.frombuffer(opened, dtype=_WORD).reshape(shape), np.frombuffer(blinds, dtype=_WORD).reshape(shape)
    )
    encoder, values = seal.CKKSEncoder(context()), []
    with native.Scratch() as file:
        for piece in unblinded:
            plain = _plaintext(piece.tobytes(), SCALE * WEIGHT_SCALE, file)
            values.append(np.array(encoder.decode_double(plain), dtype="<f8").tobytes())
    return b"".join(values)


def numbers(opened: bytes, blinds: bytes) -> list[int]:
    """The constant coefficients of what was opened, centred on zero.

    Args:
        opened, blinds: for each number one word a prime, the sums of a plaintext's transformed words.
    """
    modulus, width = math.prod(PRIMES), len(PRIMES)
    first, second = (np.frombuffer(raw, dtype=_WORD).reshape(-1, width).tolist() for raw in (opened, blinds))
    centred = []
    for shown, cover in zip(first, second, strict=True):
        coefficient = 0
        for prime, a, b in zip(PRIMES, shown, cover, strict=True):
            residue = (a - b) * pow(DEGREE, -1, prime) % prime
            other = modulus // prime
            coefficient += residue * other * pow(other, -1, prime)
        coefficient %= modulus
        centred.append(coefficient - modulus if coefficient > modulus // 2 else coefficient)
    return centred


def _weighted(
    evaluator: seal.Evaluator, pieces: Sequence[seal.Ciphertext], weights: Sequence[seal.Plaintext | None]
) -> seal.Ciphertext:
    total: seal.Ciphertext | None = None
    for piece, weight in zip(pieces, weights, strict=True):
        if weight is None:
            continue
        weighted = seal.Ciphertext()
        evaluator.multiply_plain(piece, weight, weighted)
        if total is None:
            total = weighted
        else:
            evaluator.add_inplace(total, weighted)
    if total is None:
        raise ValueError("no weight is above zero")
    return total


def _product(
    evaluator: seal.Evaluator, keys: seal.RelinKeys, one: list[seal.Ciphertext], other: list[seal.Ciphertext]
) -> seal.Ciphertext:
    total: seal.Ciphertext | None = None
    for a, b in zip(one, other, strict=True):
        product = seal.Ciphertext()
        evaluator.multiply(a, b, product)
        if total is None:
            total = product
        else:
            evaluator.add_inplace(total, product)
    assert total is not None
    evaluator.relinearize_inplace(total, keys)
    return total


def _blinded(
    evaluator: seal.Evaluator, encryptor: seal.Encryptor, piece: seal.Ciphertext, file: native.Scratch
) -> tuple[bytes, bytes]:
    zero = seal.Ciphertext()
    encryptor.encrypt_zero(list(piece.parms_id()), zero)
    zero.scale = piece.scale
    evaluator.add_inplace(piece, zero)
    blind = b"".join(_uniform(prime).tobytes() for prime in PRIMES)
    evaluator.add_plain_inplace(piece, _plaintext(blind, piece.scale, file))
    return _saved(piece, file), blind


def _uniform(prime: int) -> np.ndarray:
    """DEGREE words below a prime of 60 bits, from the operating system, by rejection."""
    words = np.empty(0, dtype=_WORD)
    while len(words) < DEGREE:
        candidates = np.frombuffer(os.urandom(9 * DEGREE), dtype=_WORD) & _WORD.type(2**60 - 1)
        words = np.concatenate([words, candidates[candidates < prime]])
    return words[:DEGREE]


def _plaintext(words: bytes, scale: float, file: native.Scratch) -> seal.Plaintext:
    """A plaintext of given transformed words, through SEAL's own format and its checks."""
    head, parameters = _form()

    def framed(body: bytes) -> bytes:
        return _HEADER.pack(*head, 0, 0, _HEADER.size + len(body)) + body

    array = framed(struct.pack("<Q", _WORDS) + words)
    return _loaded(seal.Plaintext(), file, framed(_FIELDS.pack(*parameters, _WORDS, scale) + array))


@functools.cache
def _form() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How this SEAL's own files begin, and the name of the first level's parameters."""
    probe = seal.Plaintext()
    seal.CKKSEncoder(context()).encode(0.0, SCALE, probe)
    with native.Scratch() as file:
        return _HEADER.unpack(_saved(probe, file)[: _HEADER.size])[:4], tuple(probe.parms_id())


def _words(decryptor: seal.Decryptor, piece: bytes, file: native.Scratch) -> bytes:
    plain = seal.Plaintext()
    decryptor.decrypt(_sound(_loaded(seal.Ciphertext(), file, piece)), plain)
    return _read(plain).tobytes()


def _read(plain: seal.Plaintext) -> np.ndarray:
    return np.fromiter((plain.data(i) for i in range(_WORDS)), dtype=_WORD, count=_WORDS)


def _total(words: bytes) -> list[int]:
    """The sum of a plaintext's transformed words, one a prime: DEGREE times its constant coefficient."""
    rows = np.frombuffer(words, dtype=_WORD).reshape(len(PRIMES), DEGREE)
    halves = [(int((row >> 32).sum()) << 32) + int((row & 0xFFFFFFFF).sum()) for row in rows]
    return [half % prime for half, prime in zip(halves, PRIMES, strict=True)]


def _less(words: np.ndarray, blinds: np.ndarray) -> np.ndarray:
    primes = np.array(PRIMES, dtype=_WORD)[:, None]
    if words.shape != blinds.shape or (words >= primes).any():
        raise ValueError("what was opened is not of this ring")
    return np.array((words + (primes - blinds)) % primes)


def _fresh(file: native.Scratch, piece: bytes) -> seal.Ciphertext:
    ciphertext = _sound(_loaded(seal.Ciphertext(), file, piece))
    if ciphertext.scale != SCALE:
        raise ValueError("not a fresh ciphertext")
    return ciphertext


def _sound(ciphertext: seal.Ciphertext) -> seal.Ciphertext:
    if (
        ciphertext.size() != 2
        or not ciphertext.is_ntt_form()
        or ciphertext.is_transparent()
        or ciphertext.coeff_modulus_size() != len(PRIMES)
    ):
        raise ValueError("not a CKKS ciphertext of two polynomials at the first level")
    return ciphertext


def _saved(thing: object, file: native.Scratch) -> bytes:
    thing.save(file.path)  # type: ignore[attr-defined]
    return bytes(file.read())


def _loaded(thing: object, file: native.Scratch, data: bytes) -> object:
    file.write(data)
    thing.load(context(), file.path)  # type: ignore[attr-defined]
    return thing


TASKS = {
    b"C": lambda _, __, parts: encrypt(*parts),
    b"V": lambda _, __, parts: value(*parts),
    b"W": lambda _, __, parts: open_blinded(*parts),
    b"D": lambda _, __, parts: unblind(*parts),
}

if __name__ == "__main__":
    native.work(TASKS)
