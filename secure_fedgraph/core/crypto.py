"""Keys, signatures, key streams and sealed bytes: thin names over the ``cryptography`` library.

Only bytes and integers come in and go out. Everything random is the operating system's, so nothing
here takes a seed: a run that is repeated gets other keys and opens the same values.
"""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from typing import NoReturn

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secure_fedgraph.core.errors import BadInput, HostileMessage

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
SEAL_BYTES = NONCE_BYTES + TAG_BYTES
"""What :func:`seal` adds to the length of a plaintext."""
REMEMBERED = 2**13
"""Valid signatures that a process remembers: a few megabytes."""

_ZEROS = bytes(128 * 1024)  # what is encrypted: it stays in the second-level cache
_LONGEST_DERIVED = 255 * 32  # RFC 5869 section 2.3


class Secret:
    """What holds a secret that stays in this process: no pickle, no copy, a repr of what is public alone.

    A party that has to hand a secret on calls ``to_bytes`` and seals the bytes.
    """

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds a secret key and does not leave its process.")

    def __repr__(self) -> str:
        public: bytes | None = getattr(self, "public", None)
        return f"{type(self).__name__}({'…' if public is None else f'public={public.hex()[:16]}…'})"


class Identity(Secret):
    """A party's long-lived Ed25519 signing key (RFC 8032).

    Guarantees:
        - the key comes from the operating system and never appears in a repr, a pickle or a copy.

    Needs:
        - messages that name their purpose and exchange: a signature is bound to no context by itself.

    >>> me = Identity.generate()
    >>> verify(me.public, me.sign(b"advertise, exchange 7"), b"advertise, exchange 7")
    """

    __slots__ = ("_key", "public")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public: bytes = key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> Identity:
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_bytes(cls, secret: bytes) -> Identity:
        """The key of 32 secret bytes, as :meth:`to_bytes` gave them.

        Raises:
            BadInput: for another number of bytes.
        """
        if len(secret) != KEY_BYTES:
            raise BadInput(f"An identity key has {KEY_BYTES} bytes; {len(secret)} were given.")
        return cls(Ed25519PrivateKey.from_private_bytes(secret))

    def to_bytes(self) -> bytes:
        """The secret key, for its owner's own file."""
        return self._key.private_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """The 64-byte signature of ``message``."""
        return self._key.sign(message)


def verify(public: bytes, signature: bytes, message: bytes) -> None:
    """Returns if ``signature`` is the one that the owner of ``public`` made for ``message``.

    Raises:
        HostileMessage: the signature is another's or for other bytes, or the key is no key.
    """
    try:
        _verified(bytes(public), bytes(signature), bytes(message))
    except (InvalidSignature, ValueError, TypeError):
        raise HostileMessage(f"A signature does not belong to identity {_short(public)}.") from None


@lru_cache(maxsize=REMEMBERED)
def _verified(public: bytes, signature: bytes, message: bytes) -> None:
    """A valid signature is not checked again. The server and all clients of one process ask for the same."""
    Ed25519PublicKey.from_public_bytes(public).verify(signature, message)


class AgreementKey(Secret):
    """One end of an X25519 key agreement (RFC 7748), for one exchange.

    Guarantees:
        - both ends get the same 32 bytes, and nobody who saw only the public keys gets them;
        - the result is bound to both public keys and to ``info``;
        - a public key that would force a known secret (low order) is refused.

    Needs:
        - public keys that were signed: otherwise who carries them can replace them by its own.

    >>> a, b = AgreementKey.generate(), AgreementKey.generate()
    >>> a.shared_with(b.public, b"mask, exchange 7") == b.shared_with(a.public, b"mask, exchange 7")
    True
    """

    __slots__ = ("_key", "public")

    def __init__(self, key: X25519PrivateKey) -> None:
        self._key = key
        self.public: bytes = key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> AgreementKey:
        return cls(X25519PrivateKey.generate())

    @classmethod
    def from_seed(cls, seed: bytes) -> AgreementKey:
        """The key of a secret seed: who rebuilds the seed from shares has the key."""
        return cls(X25519PrivateKey.from_private_bytes(derive(seed, b"agreement key")))

    def shared_with(self, peer_public: bytes, info: bytes) -> bytes:
        """The 32-byte key this end shares with the owner of ``peer_public`` for the purpose ``info``.

        Args:
            peer_public: the other end's 32 bytes.
            info: purpose and exchange, the same bytes at both ends (so name a pair in a fixed order).

        Raises:
            HostileMessage: ``peer_public`` is no point, a point of low order, or this end's own key.
            BadInput: ``info`` is empty.
        """
        if not info:
            raise BadInput("A shared key needs an info that names its purpose and exchange; it is empty.")
        if peer_public == self.public:
            raise HostileMessage(f"The peer's key {_short(peer_public)} is this client's own, reflected.")
        try:
            secret = self._key.exchange(_public_key(bytes(memoryview(peer_public))))
        except (ValueError, TypeError):
            raise HostileMessage(f"{_short(peer_public)} is not a usable X25519 public key.") from None
        ends = b"".join(sorted((self.public, peer_public)))
        return derive(secret, ends + info)


@lru_cache(maxsize=4096)
def _public_key(raw: bytes) -> X25519PublicKey:
    """Clients of one process have the same peers: each key is read once. Nothing in it is secret."""
    return X25519PublicKey.from_public_bytes(raw)


def derive(secret: bytes, info: bytes, length: int = KEY_BYTES) -> bytes:
    """HKDF-SHA256 without salt (RFC 5869): ``length`` bytes from a secret that is hard to guess.

    Different ``info`` gives unrelated bytes. Not for passwords: it is fast.

    Raises:
        BadInput: ``length`` is not in 1..8160.
    """
    if not 1 <= length <= _LONGEST_DERIVED:
        raise BadInput(f"HKDF gives 1 to {_LONGEST_DERIVED} bytes; {length} were asked for.")
    return HKDF(SHA256(), length, salt=None, info=info).derive(secret)


def key_stream(key: bytes, out: bytearray | memoryview) -> None:
    """Overwrites ``out`` with an AES-128-CTR key stream: half of ``key`` is the key, half the first counter.

    The stream is a function of ``key`` alone and starts the same for every length. 128 bits are what X25519,
    from which these keys come, gives (RFC 7748 section 7); with the derived counter an attacker cannot search
    for many keys at once.

    Needs:
        - a key that serves this one stream: two uploads under one stream subtract to plaintext.

    Args:
        key: 32 bytes, usually from :func:`derive`.
        out: any writable contiguous buffer (a bytearray, a numpy array of any integer type).
            It is filled byte by byte: words in it have the machine's byte order.

    Raises:
        BadInput: the key is not 32 bytes, or the buffer is read-only or not contiguous.

    >>> mask = bytearray(4)
    >>> key_stream(bytes(32), mask)
    >>> mask.hex()
    '66e94bd4'
    """
    KeyStream(key).into(out)


class KeyStream(Secret):
    """The stream of :func:`key_stream`, taken piece by piece: each piece starts where the last one ended.

    Args:
        key: 32 bytes that serve this one stream.

    Raises:
        BadInput: as :func:`key_stream`.

    >>> stream, piece = KeyStream(bytes(32)), bytearray(2)
    >>> stream.into(piece)
    >>> stream.into(piece)
    >>> piece.hex()
    '4bd4'
    """

    __slots__ = ("_update",)

    def __init__(self, key: bytes) -> None:
        _check_key(key)
        self._update = Cipher(algorithms.AES128(key[:16]), modes.CTR(key[16:])).encryptor().update_into

    def into(self, out: bytearray | memoryview) -> None:
        """Overwrites ``out`` with the next piece."""
        view = memoryview(out)
        if view.readonly or not view.c_contiguous:
            raise BadInput("A key stream needs a writable, contiguous buffer.")
        if view.nbytes == 0:
            return
        view = view.cast("B")
        whole = len(view) - len(view) % len(_ZEROS)
        for start in range(0, whole, len(_ZEROS)):
            self._update(_ZEROS, view[start : start + len(_ZEROS)])
        if whole < len(view):
            self._update(memoryview(_ZEROS)[: len(view) - whole], view[whole:])


def seal(key: bytes, plaintext: bytes, associated_data: bytes) -> bytes:
    """AES-256-GCM: nonce, ciphertext and tag in one piece, ``SEAL_BYTES`` longer than the plaintext.

    Guarantees:
        - without the key one learns the length only, and any change of a byte or of ``associated_data`` is
          noticed.

    Needs:
        - at most 2**32 pieces under one key (NIST SP 800-38D section 8.3: nonces are random).
    """
    _check_key(key)
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plaintext, associated_data)


def unseal(key: bytes, sealed: bytes | memoryview, associated_data: bytes) -> bytes:
    """The plaintext that :func:`seal` was given.

    Raises:
        HostileMessage: another key, other associated data, or bytes that were changed or cut.
    """
    _check_key(key)
    if len(sealed) < SEAL_BYTES:
        raise HostileMessage(f"A sealed message has at least {SEAL_BYTES} bytes; this one has {len(sealed)}.")
    try:
        view = memoryview(sealed)
        return AESGCM(key).decrypt(bytes(view[:NONCE_BYTES]), view[NONCE_BYTES:], associated_data)
    except InvalidTag:
        raise HostileMessage(
            "A sealed message does not open: it was changed, or sealed under another key or context."
        ) from None


def _check_key(key: bytes) -> None:
    if len(key) != KEY_BYTES:
        raise BadInput(f"A key has {KEY_BYTES} bytes; this one has {len(key)}.")


def _short(public: bytes) -> str:
    # Bytes from the network may have any length; a digest of them is safe to print.
    return f"#{hashlib.sha256(public).hexdigest()[:12]}"


def scattered(key: bytes, blocks: bytes) -> bytes:
    """Each block of 16 bytes as 16 others, random-looking without the key; equal blocks stay equal.

    A pseudo-random permutation of blocks (AES-256, each block by itself), for ranking public names under a
    secret key. It does not hide repetition: never encrypt with it.
    """
    if len(key) != KEY_BYTES or len(blocks) % 16:
        raise BadInput(
            f"a key of {len(key)} bytes and {len(blocks)} bytes: give {KEY_BYTES}, and whole blocks of 16"
        )
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return encryptor.update(blocks) + encryptor.finalize()
