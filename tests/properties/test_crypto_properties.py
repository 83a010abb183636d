"""What holds for all keys, messages and vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedgraph.core.carriers.homomorphic.scheme import Adder, RingParameters, SecretKey
from secure_fedgraph.core.crypto import SEAL_BYTES, AgreementKey, derive, key_stream, seal, unseal
from secure_fedgraph.core.errors import HostileMessage

keys = st.binary(min_size=32, max_size=32)
quick = settings(deadline=None)
few = settings(deadline=None, max_examples=15)  # each encrypts several times


def stream(key: bytes, length: int) -> np.ndarray:
    out = np.empty(length, dtype=np.uint8)
    key_stream(key, out)
    return out


@quick
@given(keys, st.binary(max_size=300), st.binary(max_size=50))
def test_unseal_undoes_seal(key, plaintext, context):
    sealed = seal(key, plaintext, context)
    assert len(sealed) == len(plaintext) + SEAL_BYTES
    assert unseal(key, sealed, context) == plaintext


@quick
@given(keys, keys, st.binary(max_size=20), st.binary(max_size=20))
def test_a_seal_opens_under_its_own_key_and_context_only(key, other, context, elsewhere):
    sealed = seal(key, b"message", context)
    if (key, context) == (other, elsewhere):
        assert unseal(other, sealed, elsewhere) == b"message"
    else:
        with pytest.raises(HostileMessage):
            unseal(other, sealed, elsewhere)


@quick
@given(keys, keys)
def test_streams_of_different_keys_differ(one, other):
    same = (stream(one, 4096) == stream(other, 4096)).mean()
    assert same == 1 if one == other else same < 0.03  # 1/256 by chance, with deviation 0.001


@quick
@given(st.binary(min_size=1, max_size=40), st.binary(min_size=1, max_size=40))
def test_both_ends_agree_on_a_key_for_one_purpose(info, other):
    a, b = AgreementKey.generate(), AgreementKey.generate()
    assert a.shared_with(b.public, info) == b.shared_with(a.public, info)
    assert (a.shared_with(b.public, info) == b.shared_with(a.public, other)) == (info == other)


@quick
@given(keys, st.binary(max_size=40), st.integers(1, 200), st.integers(1, 200))
def test_a_shorter_derived_key_is_a_prefix(secret, info, one, other):
    short, long = sorted((one, other))
    assert derive(secret, info, long)[:short] == derive(secret, info, short)


@few
@given(st.data())
def test_homomorphic_sums_are_sums(data):
    bound = data.draw(st.integers(1, 2**31))
    contributors = data.draw(st.integers(1, 6))
    length = data.draw(st.integers(0, 40))
    parameters = RingParameters(bound, contributors)
    key = SecretKey.generate(parameters)
    coordinate = st.integers(-bound, bound)
    cohort = data.draw(st.integers(1, contributors))
    rows = [data.draw(st.lists(coordinate, min_size=length, max_size=length)) for _ in range(cohort)]
    uploads = [key.encrypt(np.array(row, dtype=np.int64)) for row in rows]
    opened = key.decrypt(Adder(parameters).add(uploads, length), length)
    assert opened.tolist() == np.sum(rows, axis=0, dtype=np.int64).tolist()
