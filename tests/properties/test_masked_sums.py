"""Masked sums: for any cohort, any drop-outs, any vector, the exact sum in the ring, or nothing at all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from parties import introduced, masked_sum

from secure_fedgraph.core.carriers.secagg import neighbours
from secure_fedgraph.core.carriers.secagg.server import Masked, SumSession
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import HostileMessage, Refused
from secure_fedgraph.core.message import ANSWER
from secure_fedgraph.core.protection.contracts import BindContext
from secure_fedgraph.protocol.dropouts import STEPS

NAMES = tuple(f"c{i}" for i in range(9))
PARTIES = introduced(NAMES)
MANY = introduced(tuple(f"n{i:02d}" for i in range(40)))
CHANNEL = Channel("update", Reveal.SUM)
PATIENT = {"abandoned": 10**9}
"""Parties are made once for all examples, which end some hundred sums early."""


@st.composite
def rooms(draw):
    """A cohort, a carrier, uploads anywhere in the ring, and who leaves when."""
    cohort = tuple(draw(st.permutations(NAMES)))[: draw(st.integers(2, len(NAMES)))]
    bits = draw(st.sampled_from([16, 20, 32]))
    colluders = draw(st.sampled_from([0.0, 0.1, 0.25, 0.4]))
    shape = (draw(st.integers(1, 3)), draw(st.integers(0, 12)))
    values = st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    uploads = {name: draw(hnp.arrays(np.int64, shape, elements=values)) for name in cohort}
    left = draw(st.dictionaries(st.sampled_from(cohort), st.sampled_from(STEPS), max_size=len(cohort)))
    return (
        Masked(bits=bits, colluders=colluders, **PATIENT).bind(BindContext(CHANNEL, NAMES, "zero-out")),
        uploads,
        left,
    )


def plain(carrier: Masked, uploads, left):
    there = [n for n in uploads if n not in left or STEPS.index(left[n]) > STEPS.index(ANSWER)]
    ring = carrier.ring
    return (sum(uploads[n] for n in there) + ring // 2) % ring - ring // 2


@given(rooms())
@settings(max_examples=150)
def test_the_sum_of_the_survivors_or_nothing(room):
    carrier, uploads, left = room
    numbers = neighbours.thresholds(len(uploads), len(uploads), carrier.colluders, 0.2, len(NAMES))
    needed = max(numbers.signatures, carrier.quorum)  # colluders are a share of all, whoever is asked
    if len(uploads) - len(left) >= needed:  # a complete graph: as many to the end as a list needs signatures
        assert np.array_equal(masked_sum(PARTIES, carrier, uploads, left), plain(carrier, uploads, left))
    else:
        with pytest.raises(Refused, match=r"nothing was opened|answers cohorts of at least"):
            masked_sum(PARTIES, carrier, uploads, left)


@given(rooms())
@settings(max_examples=40)
def test_below_the_threshold_the_server_holds_too_few_shares_of_every_secret(room):
    """Not only an error: what was revealed until then gives no key of anybody back."""
    carrier, uploads, left = room
    shown: dict[str, set[int]] = {}
    numbers = neighbours.thresholds(len(uploads), len(uploads), carrier.colluders, 0.2, len(NAMES))
    real = SumSession._by_owner

    def watch(self, revealed):
        found = real(self, revealed)
        shown.update({owner: set(shares) for owner, shares in found.items()})
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SumSession, "_by_owner", watch)
        try:
            masked_sum(PARTIES, carrier, uploads, left)
        except Refused:
            assert all(len(holders) < numbers.shares for holders in shown.values())


@given(st.integers(33, 40), st.integers(0, 2**16), st.data())
@settings(max_examples=12)
def test_with_neighbours_the_sum_is_as_exact(count, seed, data):
    names = tuple(f"n{i:02d}" for i in range(count))
    parties = {name: MANY[name] for name in names}
    carrier = Masked(**PATIENT).bind(BindContext(CHANNEL, names, "zero-out"))
    generator = np.random.default_rng(seed)
    uploads = {name: generator.integers(-(2**31), 2**31, (1, 5)) for name in names}
    gone = data.draw(st.lists(st.sampled_from(names), max_size=6, unique=True))
    left = {name: data.draw(st.sampled_from(STEPS)) for name in gone}
    assert neighbours.thresholds(count, count, 0.1, 0.2).degree < count - 1
    assert np.array_equal(masked_sum(parties, carrier, uploads, left), plain(carrier, uploads, left))


KEYS = (
    "names",
    "public",
    "commitment",
    "signature",
    "survivors",
    "signatures",
    "carrier/shares",
    "carrier/senders",
)
TREES = st.dictionaries(
    st.sampled_from(KEYS),
    st.one_of(
        st.text(max_size=20),
        st.integers(-5, 5),
        st.binary(max_size=40),
        st.sampled_from(["\n".join(NAMES[:2]), "\n".join(NAMES[1:3]), NAMES[0], "", "eve"]),
        hnp.arrays(np.uint8, hnp.array_shapes(min_dims=1, max_dims=2, max_side=64)),
        st.sampled_from([np.zeros((3, 32), "u1"), np.zeros((3, 64), "u1"), np.zeros((2, 92), "u1")]),
    ),
)


@given(st.sampled_from(["share", "accept", "agree", "unmask"]), TREES)
@settings(max_examples=200)
def test_a_client_answers_nonsense_with_a_named_refusal(step, tree):
    """Every step, brought to the point where it is expected, then given something that no server sends."""
    cohort, carrier = NAMES[:3], Masked(**PATIENT).bind(BindContext(CHANNEL, NAMES[:3], "zero-out"))
    uploads = {name: np.zeros((1, 2), dtype=np.int64) for name in cohort}
    seen: list[str] = []

    class Spoiled(Masked):
        def answer(self, asked, given, place, party):
            if asked == step and party.name == cohort[0]:
                seen.append(asked)
                given = tree
            return super().answer(asked, given, place, party)

        def accept(self, part, place, party):
            if step == "accept" and party.name == cohort[0]:
                seen.append(step)
                part = tree
            super().accept(part, place, party)

    spoiled = Spoiled(**{f: getattr(carrier, f) for f in ("bits", "colluders", "quorum", "abandoned")})
    with pytest.raises(HostileMessage) as error:
        masked_sum(PARTIES, spoiled, uploads)
    assert seen == [step]
    assert len(str(error.value)) < 400


@given(st.sampled_from(["advertise", "share", "agree", "unmask"]), TREES, st.integers(0, 10**6))
@settings(max_examples=150)
def test_a_server_answers_nonsense_with_a_named_refusal(step, tree, seed):
    cohort = NAMES[:3]
    uploads = {name: np.zeros((1, 2), dtype=np.int64) for name in cohort}
    fields = {"advertise": "public", "share": "shares", "agree": "signature", "unmask": "shares"}

    class Lying(Masked):
        def answer(self, asked, given, place, party):
            reply = super().answer(asked, given, place, party)
            if asked == step and party.name == cohort[seed % 3]:
                flipped = reply[fields[step]].copy().reshape(-1)
                flipped[seed % flipped.size] ^= 1 + seed % 255
                return (
                    tree if seed % 2 else {**reply, fields[step]: flipped.reshape(reply[fields[step]].shape)}
                )
            return reply

    carrier = Lying(**PATIENT).bind(BindContext(CHANNEL, cohort, "zero-out"))
    said = ""
    try:
        # three signatures and shares, two of which are enough: at these steps the third may say what it likes
        assert not masked_sum(PARTIES, carrier, uploads).any()
    except HostileMessage as error:
        said = str(error)
    assert said or step in ("agree", "unmask")
    assert len(said) < 400


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_no_two_sums_share_a_mask(first, second):
    parties, cohort = PARTIES, NAMES[:3]
    carrier = Masked(**PATIENT).bind(BindContext(CHANNEL, cohort, "zero-out"))
    taken = []

    class Watched(Masked):
        def seal(self, matrix, place, party):
            words = super().seal(matrix, place, party)
            taken.append(words.copy())
            return words

    watched = Watched(quorum=carrier.quorum, **PATIENT)
    uploads = {name: np.zeros((1, 1000), dtype=np.int64) for name in cohort}
    masked_sum(parties, watched, uploads, exchange=first)
    masked_sum(parties, watched, uploads, exchange=second)
    for i, one in enumerate(taken):
        assert all(np.count_nonzero(one == two) < 3 for two in taken[i + 1 :])
        assert np.count_nonzero(one == 0) < 3
