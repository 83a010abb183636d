"""Properties of the wire, the layouts, the stages and the masks, for any input that hypothesis finds."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from parties import NAMES, Toy, introduced, scope, session

from secure_fedgraph.core import wire
from secure_fedgraph.core.carriers.secagg.pairwise import Pairwise
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.message import Message
from secure_fedgraph.core.protection.contracts import BindContext, Sensitivity
from secure_fedgraph.core.protection.fixed_point import FixedPoint
from secure_fedgraph.core.protection.gaussian import Clip, Gaussian
from secure_fedgraph.core.upload import Layout
from secure_fedgraph.policies import local_dp, masked

NAME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
ARRAYS = hnp.arrays(
    st.sampled_from([np.dtype(d) for d in ("<f4", "<f8", "<i8", "<u4", "<u8", "<u1", "?", "<i4")]),
    hnp.array_shapes(min_dims=1, max_dims=8, min_side=0, max_side=3),
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
VALUES = st.one_of(
    ARRAYS,
    st.binary(max_size=60),
    TEXT,
    st.lists(TEXT, max_size=5).map(tuple),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
)
TREES = st.dictionaries(NAME, VALUES, max_size=6)
MESSAGES = st.builds(
    Message,
    run=st.text("abc", max_size=5),
    round=st.integers(0, 10**9),
    exchange=st.integers(0, 2**40),
    channel=NAME,
    step=NAME,
    sender=NAME,
    recipient=NAME,
    cohort=st.lists(st.text("abc-0", min_size=1, max_size=8), max_size=4).map(tuple),
    body=TREES.map(wire.encode),
)
FLOATS = st.floats(-(2.0**99), 2.0**99, width=32)
ROWS = hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=12), elements=FLOATS)


def same(a, b) -> bool:
    if isinstance(a, np.ndarray):
        return (
            a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        )
    return type(a) is type(b) and a == b


class TestWire:
    @given(TREES)
    def test_decoding_is_the_inverse_of_encoding(self, tree):
        raw = wire.encode(tree)
        back = wire.decode(raw)
        assert list(back) == list(tree)
        assert all(same(back[name], tree[name]) for name in tree)
        assert wire.encode(back) == raw

    @given(MESSAGES)
    def test_messages_too(self, message):
        assert Message.from_bytes(message.to_bytes()) == message

    @given(MESSAGES, st.data())
    @settings(max_examples=300)
    def test_damaged_bytes_are_refused_or_read_and_nothing_else(self, message, data):
        raw = bytearray(message.to_bytes())
        damage = data.draw(st.sampled_from(["cut", "flip", "append", "replace"]))
        if damage == "cut":
            raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
        elif damage == "flip":
            for _ in range(data.draw(st.integers(1, 4))):
                bit = data.draw(st.integers(0, 8 * len(raw) - 1))
                raw[bit // 8] ^= 1 << bit % 8
        elif damage == "append":
            raw += data.draw(st.binary(min_size=1, max_size=20))
        else:
            start = data.draw(st.integers(0, len(raw) - 1))
            raw[start : start + 9] = data.draw(st.binary(max_size=12))
        tracemalloc.start()
        try:
            read = Message.from_bytes(bytes(raw))
            wire.decode(read.body)
        except HostileMessage:
            pass
        else:
            assert damage not in ("cut", "append")  # lengths must add up
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 1_000_000


LAYOUTS = st.builds(
    Layout,
    st.lists(
        st.tuples(
            st.text(
                st.characters(exclude_categories=["Cs"], exclude_characters=":\n"), min_size=1, max_size=20
            ),
            st.lists(st.integers(0, 99), max_size=4).map(tuple),
        ),
        max_size=5,
        unique_by=lambda f: f[0],
    ).map(tuple),
    st.integers(0, 1000),
)


class TestLayouts:
    @given(LAYOUTS)
    def test_text_and_back(self, layout):
        assert Layout.from_text(layout.to_text()) == layout

    @given(st.text("0123456789:,\na٣ ", max_size=30))
    def test_whatever_is_read_is_written_the_same(self, text):
        try:
            layout = Layout.from_text(text)
        except HostileMessage:
            return
        assert layout.to_text() == text


class TestClip:
    @given(ROWS, st.floats(1e-6, 1e6))
    def test_bounded_idempotent_and_identity_inside(self, rows, norm):
        clip = Clip(norm)
        out = clip.apply(rows, scope())
        assert np.linalg.norm(out.astype(np.float64), axis=1).max() <= norm
        assert np.array_equal(clip.apply(out, scope()), out)
        inside = np.linalg.norm(rows.astype(np.float64), axis=1) <= norm
        assert np.array_equal(out[inside], rows[inside])

    @given(ROWS, st.floats(1e-3, 1e3))
    def test_directions_are_kept(self, rows, norm):
        out = Clip(norm).apply(rows, scope()).astype(np.float64)
        tiny = norm * 1e-6
        assert np.all((np.sign(out) == np.sign(rows)) | (np.abs(out) <= tiny))


def fixed(limit: float, clients: int) -> FixedPoint:
    names = tuple(map(str, range(clients)))
    stage, _ = FixedPoint(limit).bind(
        Sensitivity(), BindContext(Channel("update", Reveal.SUM), names, "zero-out", Pairwise.ring)
    )
    assert isinstance(stage, FixedPoint)
    return stage


class TestFixedPoint:
    @given(st.floats(1e-3, 1e3), st.integers(2, 1000), st.data())
    def test_within_half_a_step_and_never_wrapping(self, limit, clients, data):
        stage = fixed(limit, clients)
        shape = hnp.array_shapes(min_dims=2, max_dims=2, max_side=6)
        values = data.draw(hnp.arrays(np.float64, shape, elements=st.floats(-limit, limit)))
        grid = stage.apply(values, scope())
        real = stage.undo(grid, scope())
        assert np.abs(real - values).max() <= stage.step / 2
        if np.abs(real).max() <= limit:  # a value at the limit may round to a grid point just beyond it
            assert np.array_equal(stage.apply(real, scope()), grid)
        assert clients * int(np.abs(grid).max()) < Pairwise.ring // 2


def no_ask(step, given):
    raise AssertionError("nothing is asked")


PARTIES = introduced(tuple("abcdef"))
WORDS = st.integers(-(2**31), 2**31 - 1)


class TestMasks:
    @given(
        st.lists(st.sampled_from("abcdef"), min_size=2, unique=True).map(tuple),
        st.integers(0, 2**40),
        st.integers(0, 30),
        st.data(),
    )
    def test_the_masked_sum_is_the_sum_in_the_ring(self, cohort, exchange, width, data):
        place = scope(exchange, cohort=cohort)
        uploads = {n: data.draw(hnp.arrays(np.int64, (1, width), elements=WORDS)) for n in cohort}
        sealed = {n: Pairwise().seal(m, place, PARTIES[n]) for n, m in uploads.items()}
        layout = Layout((("w", (width,)),))
        opened = Pairwise().open_sum(sealed, layout, place, no_ask)
        plain = sum(uploads.values())
        assert np.array_equal(opened, (plain + 2**31) % 2**32 - 2**31)

    @given(st.integers(0, 2**40), st.integers(1, 2**20), st.sampled_from(["exchange", "channel", "cohort"]))
    @settings(max_examples=25)
    def test_masks_are_fresh(self, exchange, apart, what):
        values = np.zeros((1, 4000), dtype=np.int64)
        first = scope(exchange, cohort=tuple("abc"))
        other = {
            "exchange": scope(exchange + apart, cohort=tuple("abc")),
            "channel": scope(exchange, "metrics", cohort=tuple("abc")),
            "cohort": scope(exchange, cohort=tuple("acb")),
        }[what]
        one, two = (Pairwise().seal(values, place, PARTIES["a"]) for place in (first, other))
        # equal words at 2**-32 each: three of 4000 have a chance below 1e-18
        assert np.count_nonzero(one == two) < 3
        assert np.unique(one - two).size > 3990  # nor apart by a constant
        assert np.count_nonzero(one == 0) < 3


class TestNoise:
    @given(
        st.floats(0.01, 1000),
        st.floats(1e-6, 1e6),
        st.sampled_from(["client", "server"]),
        hnp.arrays(np.float32, (3, 4), elements=st.floats(-(2.0**60), 2.0**60, width=32)),
    )
    @settings(max_examples=15)
    def test_rows_on_the_grid_are_never_longer_and_the_noise_never_less(self, multiplier, norm, by, rows):
        context = BindContext(Channel("update", Reveal.SUM), NAMES, "zero-out")
        clip, sensitivity = Clip(norm).bind(Sensitivity(), context)
        stage, _ = Gaussian(multiplier, by).bind(sensitivity, context)
        assert stage.sigma * stage.step >= multiplier * norm * (1 - 2**-40)  # as is the longest row, at least
        assert stage.release(12)[0].noise_multiplier == multiplier
        silent = replace(stage, by="server")  # what the client's half does without its noise
        out = silent.apply(clip.apply(rows, scope()), scope())
        assert np.linalg.norm(out, axis=1).max() <= norm * (1 - 2**-41)
        steps = out / stage.step
        assert np.all(np.abs(steps - np.rint(steps)) <= 1e-12 * np.maximum(np.abs(steps), 1))

    @pytest.mark.parametrize("policy", [local_dp(1.0, 1.0), masked()], ids=lambda policy: policy.name)
    def test_no_seed_repeats_what_leaves_a_client(self, policy):
        sent = []
        for _ in range(2):
            torch.manual_seed(1)
            np.random.seed(1)  # noqa: NPY002
            random.seed(1)
            made = session(policy, width=1000).set_up()
            sent.append(made.tell(made.upload(made.prepared(), "owner-0"))["data"])
        assert np.count_nonzero(sent[0] == sent[1]) < 3


@given(st.integers(2, 6), st.integers(1, 4), st.data())
@settings(max_examples=20)
def test_a_round_under_masks_opens_what_it_opens_in_plaintext(count, asks, data):
    names = tuple(f"c{i}" for i in range(count))
    made = session(masked(), names=names, width=7).set_up()
    least = max(2, count // 2 + 1)  # the quorum: a majority of all
    cohort = tuple(data.draw(st.permutations(names)))[: data.draw(st.integers(least, count))]
    step = made.policy["update"].stages[0].public()["grid"]
    round = made.round(1, cohort)
    for _ in range(asks):
        times = data.draw(st.floats(-8, 8, width=32))
        plain = sum((made.clients[n].memory["w"] * times).double() for n in cohort)
        opened = round.reduce(Toy.UPDATE, {"times": float(times)}).total["w"]
        assert (opened - plain).abs().max() <= len(cohort) * step / 2
