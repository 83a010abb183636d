"""Published vectors through the public functions, and what an attacker must not be able to do."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from secure_fedgraph.core.crypto import (
    AgreementKey,
    Identity,
    KeyStream,
    derive,
    key_stream,
    seal,
    unseal,
    verify,
)
from secure_fedgraph.core.errors import BadInput, HostileMessage

ORDER_ONE_TO_EIGHT = [  # the points of small order on Curve25519, as little-endian u-coordinates
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]


def stream(key: bytes, length: int) -> bytes:
    out = bytearray(length)
    key_stream(key, out)
    return bytes(out)


class TestIdentity:
    def test_signs_as_rfc_8032_section_7_1_test_2(self):
        seed = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
        me = Identity(Ed25519PrivateKey.from_private_bytes(seed))
        assert me.public.hex() == "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
        assert me.sign(b"\x72").hex() == (
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
        )
        verify(me.public, me.sign(b"\x72"), b"\x72")

    def test_another_message_signer_or_signature_is_refused(self):
        me, other = Identity.generate(), Identity.generate()
        signature = me.sign(b"quorum 3")
        for public, signed, message in [
            (me.public, signature, b"quorum 1"),
            (other.public, signature, b"quorum 3"),
            (me.public, other.sign(b"quorum 3"), b"quorum 3"),
            (me.public, signature[:-1], b"quorum 3"),
            (me.public, b"", b"quorum 3"),
            (me.public[:31], signature, b"quorum 3"),
            (b"", signature, b"quorum 3"),
        ]:
            with pytest.raises(HostileMessage):
                verify(public, signed, message)


class TestAgreementKey:
    def test_agrees_as_rfc_7748_section_6_1(self):
        alice = AgreementKey(
            X25519PrivateKey.from_private_bytes(
                bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
            )
        )
        bob = AgreementKey(
            X25519PrivateKey.from_private_bytes(
                bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
            )
        )
        assert alice.public.hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
        assert bob.public.hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
        secret = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
        expected = derive(secret, alice.public + bob.public + b"mask")  # 85… sorts before de…
        assert alice.shared_with(bob.public, b"mask") == expected
        assert bob.shared_with(alice.public, b"mask") == expected

    def test_another_purpose_or_pair_has_another_key(self):
        a, b, c = (AgreementKey.generate() for _ in range(3))
        keys = {
            a.shared_with(b.public, b"exchange 1"),
            a.shared_with(b.public, b"exchange 2"),
            a.shared_with(c.public, b"exchange 1"),
        }
        assert len(keys) == 3
        assert all(len(key) == 32 for key in keys)

    @pytest.mark.parametrize("point", ORDER_ONE_TO_EIGHT)
    def test_a_point_of_low_order_is_refused(self, point):
        with pytest.raises(HostileMessage):
            AgreementKey.generate().shared_with(bytes.fromhex(point), b"mask")

    def test_an_empty_purpose_is_refused(self):
        with pytest.raises(BadInput):
            AgreementKey.generate().shared_with(AgreementKey.generate().public, b"")


class TestSecretsStayHome:
    @pytest.mark.parametrize("kind", [Identity, AgreementKey])
    def test_no_pickle_no_copy(self, kind):
        key = kind.generate()
        for leak in (
            *(lambda p=p: pickle.dumps(key, p) for p in range(pickle.HIGHEST_PROTOCOL + 1)),
            lambda: pickle.dumps({"memory": [key]}),
            lambda: copy.copy(key),
            lambda: copy.deepcopy(key),
        ):
            with pytest.raises(TypeError, match="secret key"):
                leak()

    @pytest.mark.parametrize("kind", [Identity, AgreementKey])
    def test_the_repr_shows_the_public_half_only(self, kind):
        key = kind.generate()
        secret = key._key.private_bytes_raw()
        for text in (repr(key), str(key), f"{key}", repr([key])):
            assert key.public.hex()[:16] in text
            assert secret.hex()[:8] not in text
            assert repr(secret) not in text

    @pytest.mark.parametrize("kind", [Identity, AgreementKey])
    def test_each_key_is_new(self, kind):
        assert len({kind.generate().public for _ in range(20)}) == 20


class TestDerive:
    def test_rfc_5869_test_case_3(self):
        assert derive(b"\x0b" * 22, b"", 42).hex() == (
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"
        )

    def test_another_info_or_secret_gives_other_bytes(self):
        assert len({derive(s, i) for s in (b"s", b"t") for i in (b"", b"a", b"b", b"ab")}) == 8

    @pytest.mark.parametrize("length", [0, -1, 8161])
    def test_a_length_out_of_range_is_refused(self, length):
        with pytest.raises(BadInput):
            derive(b"secret", b"info", length)


class TestKeyFromASeed:
    def test_it_is_the_seeds_and_nobody_elses(self):
        one, again, other = (AgreementKey.from_seed(bytes([n]) * 32) for n in (1, 1, 2))
        assert one.public == again.public != other.public
        assert one.shared_with(other.public, b"x") == other.shared_with(again.public, b"x")


class TestKeyStream:
    def test_zero_key_counts_from_zero(self):
        # Blocks 0, 1, 2 are AES-128(0), (1), (2) under the zero key: the hash key, the tag of test case 1 and
        # the ciphertext of test case 2 of the GCM specification.
        assert stream(bytes(32), 48).hex() == (
            "66e94bd4ef8a2c3b884cfa59ca342b2e58e2fccefa7e3061367f1d57a4e7455a0388dace60b6a392f328c2b971b2fe78"
        )

    @pytest.mark.parametrize(
        ("key", "block"),
        [  # NIST AESAVS: KeySbox128 count 0, VarKey128 count 0; SP 800-38A F.5.1, whose counter is not zero
            ("10a58869d74be5a374cf867cfb473859" + "00" * 16, "6d251e6944b051e04eaa6fb4dbf78465"),
            ("80" + "00" * 31, "0edd33d3c621e546455bd8ba1418bec8"),
            (
                "2b7e151628aed2a6abf7158809cf4f3cf0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
                "ec8cdf7398607cb0f2d21675ea9ea1e4",
            ),
        ],
    )
    def test_first_block_as_nist_says(self, key, block):
        assert stream(bytes.fromhex(key), 16).hex() == block

    @pytest.mark.parametrize("length", [0, 1, 15, 17, 131_071, 131_072, 131_073, 400_000])
    def test_every_length_is_a_prefix_of_the_same_stream(self, length):
        key = derive(b"one", b"stream")
        assert stream(key, length) == stream(key, 400_001)[:length]

    @given(st.lists(st.integers(0, 200), max_size=6))
    def test_pieces_are_one_stream(self, lengths):
        key, pieces = derive(b"one", b"stream"), [bytearray(length) for length in lengths]
        taken = KeyStream(key)
        for piece in pieces:
            taken.into(piece)
        assert b"".join(pieces) == stream(key, sum(lengths))

    def test_it_overwrites_numpy_arrays_of_any_shape(self):
        key = derive(b"one", b"stream")
        words = np.full((100, 7), 99, dtype=np.uint32)
        key_stream(key, words)
        assert words.tobytes() == stream(key, words.nbytes)

    def test_its_bytes_are_uniform(self):
        counts = np.bincount(np.frombuffer(stream(derive(b"u", b"v"), 1 << 20), np.uint8), minlength=256)
        chi_squared = ((counts - 4096.0) ** 2 / 4096).sum()
        assert chi_squared < 330  # 255 degrees of freedom; the key is fixed, so this never flickers

    def test_a_buffer_it_cannot_fill_is_refused(self):
        for buffer in (bytes(16), np.zeros((4, 4), dtype=np.uint8)[:, ::2]):
            with pytest.raises(BadInput):
                key_stream(bytes(32), buffer)

    @pytest.mark.parametrize("length", [0, 16, 31, 33])
    def test_a_key_of_another_length_is_refused(self, length):
        with pytest.raises(BadInput):
            key_stream(bytes(length), bytearray(16))


class TestSeal:
    def test_opens_test_case_14_of_the_gcm_specification(self):
        ciphertext = bytes.fromhex("cea7403d4d606b6e074ec5d3baf39d18")
        tag = bytes.fromhex("d0d1c8a799996bf0265b98b5d48ab919")
        assert unseal(bytes(32), bytes(12) + ciphertext + tag, b"") == bytes(16)

    def test_the_same_plaintext_never_looks_the_same(self):
        assert len({seal(bytes(32), b"same", b"") for _ in range(50)}) == 50

    def test_every_changed_bit_is_noticed(self):
        sealed = seal(bytes(32), b"abc", b"context")
        for bit in range(8 * len(sealed)):
            changed = bytearray(sealed)
            changed[bit // 8] ^= 1 << bit % 8
            with pytest.raises(HostileMessage):
                unseal(bytes(32), bytes(changed), b"context")

    def test_every_cut_is_noticed(self):
        sealed = seal(bytes(32), b"abc", b"context")
        for length in range(len(sealed)):
            with pytest.raises(HostileMessage):
                unseal(bytes(32), sealed[:length], b"context")

    def test_a_key_of_another_length_is_refused(self):
        with pytest.raises(BadInput):
            seal(bytes(16), b"", b"")
        with pytest.raises(BadInput):
            unseal(bytes(16), bytes(40), b"")
