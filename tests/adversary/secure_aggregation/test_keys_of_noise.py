"""Keys of noise that a sum does not need: a server that lies to get more of them than the one list allows.

What it wants is a sum with less noise than its ledger says: it has clients hand out keys for a long list and
opens the sum of a short one, asks twice, or opens a part.
"""

from __future__ import annotations

import math
import os
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from parties import introduced
from test_secure_aggregation import CHANNEL, LAYOUT, Server

from secure_fedgraph.core.carriers.secagg import client
from secure_fedgraph.core.carriers.secagg.neighbours import (
    around,
    colluders_among,
    opens_whole,
    thresholds,
)
from secure_fedgraph.core.carriers.secagg.ring_words import accumulate, centred
from secure_fedgraph.core.carriers.secagg.server import Masked
from secure_fedgraph.core.errors import HostileMessage, Refused
from secure_fedgraph.core.protection.contracts import BindContext
from secure_fedgraph.core.protection.noise_components import split_share

TEN = tuple(f"c{i}" for i in range(10))
NINE, EIGHT = TEN[:9], TEN[:8]
FORTY = tuple(f"n{i:02d}" for i in range(40))
Keys = dict[str, int]


def carrier(names: tuple[str, ...], quorum: int, colluders: float = 0.1) -> Masked:
    """As the policy binds it: one in ten may collude."""
    counted_off = max(1, math.ceil(colluders * len(names) - 1e-9))
    parts = split_share(4096, len(names), quorum, counted_off)
    context = BindContext(CHANNEL, names, "zero-out", 2**32, quorum, noise_components=parts)
    return Masked(colluders=colluders).bind(context)


class Greedy(Server):
    """A masked sum whose clients keep keys of their noise, up to the uploads."""

    def __init__(self, names: tuple[str, ...] = TEN, quorum: int = 8, **other: Any) -> None:
        super().__init__(names=names, carrier=carrier(names, quorum), **other)
        self.take_uploads()
        self.parts = self.carrier.noise_components
        self.keys = {name: tuple(os.urandom(32) for _ in self.parts.removable) for name in names}
        for name in names:
            self.carrier.keep_noise_keys(self.keys[name], self.parties[name])

    def handed_out(self, replies: dict[str, Any]) -> Keys:
        """How many keys each gave, which are its own last ones."""
        found = {}
        for name, tree in replies.items():
            rows = [row.tobytes() for row in tree.get("noise", ())]
            found[name] = len(rows)
            assert rows == list(self.keys[name][len(self.keys[name]) - len(rows) :])
        return found


@pytest.mark.parametrize(("survivors", "each"), [(TEN, 2), (NINE, 1), (EIGHT, 0)])
def test_a_list_gives_the_keys_that_it_does_not_need(survivors, each):
    server = Greedy()
    replies = server.unmask(server.sign(survivors))
    assert server.handed_out(replies) == dict.fromkeys(survivors, each)
    assert all(set(tree) == ({"shares", "noise"} if each else {"shares"}) for tree in replies.values())


class TestTwoLists:
    """Keys for a list of ten and masks of one of eight would open a sum of eight with too little noise."""

    def test_each_client_signs_one(self):
        server = Greedy()
        server.sign(TEN)
        with pytest.raises(HostileMessage, match="agree out of order, or a second time"):
            server.sign(EIGHT)

    def test_half_of_them_are_not_enough_for_either(self):
        server = Greedy()
        long, short = server.sign(TEN, TEN[:5]), server.sign(EIGHT, TEN[5:8])
        for signed in (long, short):
            with pytest.raises(HostileMessage, match="so that no two lists are answered"):
                server.unmask(signed)

    def test_signatures_of_one_list_give_nothing_on_another(self):
        server = Greedy()
        long = server.sign(TEN, TEN[:6])
        server.sign(EIGHT, TEN[6:8])
        with pytest.raises(HostileMessage, match="signed another list of survivors"):
            server.unmask(long, TEN[6:8])

    def test_a_client_that_is_listed_and_never_uploaded_keeps_the_sum_shut(self):
        """All hand out the keys of a sum of ten, and the server holds nine uploads."""
        server = Greedy()
        revealed = server.unmask(server.sign(TEN))
        assert set(server.handed_out(revealed).values()) == {2}
        plus, minus = server.session.keys(TEN, revealed, server.bound_to, "update", server.ask)

        def opens(names: tuple[str, ...]) -> bool:
            total = np.zeros(LAYOUT.width, dtype="<u4")
            accumulate(total, [server.words[name] for name in names], plus, minus)
            truth = sum(server.uploads[name] for name in names).reshape(-1)
            return bool(np.mean(centred(total, 32) == truth) > 0.1)

        assert opens(TEN)
        assert not opens(NINE)


class TestAskedAgain:
    def test_unmask_is_answered_once(self):
        server = Greedy()
        signed = server.sign(NINE)
        assert set(server.handed_out(server.unmask(signed)).values()) == {1}
        with pytest.raises(HostileMessage, match="unmask out of order, or a second time"):
            server.unmask(signed)

    def test_a_refusal_hands_out_nothing_and_the_next_no_more(self):
        server = Greedy()
        signed = server.sign(NINE)
        few = dict(list(signed.items())[:3])
        with pytest.raises(HostileMessage, match="so that no two lists are answered"):
            server.unmask(few, ("c0",))
        assert server.handed_out(server.unmask(signed, ("c0",))) == {"c0": 1}

    def test_keys_of_an_earlier_sum_are_forgotten(self):
        parties = introduced(TEN)
        first = Greedy(parties=parties)
        first.sign(TEN)
        second = Greedy(parties=parties, exchange=200)
        replies = second.unmask(second.sign(TEN))
        assert set(second.handed_out(replies).values()) == {2}
        with pytest.raises(HostileMessage, match="out of order"):
            first.unmask(first.sign(TEN))

    def test_what_else_the_server_says_counts_for_nothing(self):
        server = Greedy()
        signed = server.sign(EIGHT)
        names, rows = list(signed), [tree["signature"] for tree in signed.values()]
        given = {
            "names": "\n".join(names),
            "signatures": np.stack(rows),
            "survivors": "\n".join(TEN),
            "uploads": 10,
            "noise": 2,
            "level": 0,
        }
        assert set(server.handed_out(server.ask("unmask", dict.fromkeys(names, given))).values()) == {0}

    def test_a_shorter_list_of_names_is_no_longer_list_of_survivors(self):
        server = Greedy()
        signed = server.sign(NINE)
        with pytest.raises(HostileMessage, match="signatures that are not the survivors'"):
            server.unmask({**signed, "c9": signed["c0"]}, ("c0",))


class TestParts:
    """With neighbours only, a sum may be opened in parts: keys are handed out where it surely is not."""

    def replies(self, count: int) -> Keys:
        server = Greedy(FORTY, 32)
        signed = server.sign(FORTY)
        shown = dict(list(signed.items())[:count])
        return server.handed_out(server.unmask(shown, FORTY[:3]))

    def test_where_all_signed(self):
        assert set(self.replies(40).values()) == {3}

    def test_just_enough(self):
        numbers, bad = thresholds(40, 40, 0.1, 0.2, 40), colluders_among(40, 0.1, 40)
        fewest = next(n for n in range(41) if opens_whole(numbers, 40, n, bad))
        assert numbers.signatures < fewest < 40
        assert set(self.replies(fewest).values()) == {3}
        assert set(self.replies(fewest - 1).values()) == {0}

    def test_a_majority_that_signed_is_not_enough(self, monkeypatch):
        assert set(self.replies(23).values()) == {0}
        monkeypatch.setattr(client, "opens_whole", lambda *_: True)
        assert set(self.replies(23).values()) == {3}  # the control: keys for a sum that could open in parts


def pieces(edges: dict[str, set[str]]) -> list[set[str]]:
    """Groups of clients whose masks hang together: what opens, opens by such a group."""
    left, found = set(edges), []
    while left:
        piece, rim = set(), {left.pop()}
        while rim:
            name = rim.pop()
            piece.add(name)
            rim |= edges[name] - piece
        left -= piece
        found.append(piece)
    return found


@st.composite
def lied_to(draw: st.DrawFn) -> tuple[int, int, set[str], set[str], set[str]]:
    """Clients on a circle in the order of their names: how many, the quorum, who is listed, signed, in pay.

    Those who are gone, colluding or lied to stand where a cut is easiest: in two gaps, each before half of
    the others.
    """
    count = draw(st.sampled_from([33, 40, 50, 70]))
    quorum, bad = math.ceil(0.6 * count), colluders_among(count, 0.1, count)
    apart = draw(st.integers(count // 4, count // 2))
    spread = [(i // 2 + apart * (i % 2)) % count for i in range(2 * count)]
    gaps = [f"n{i:02d}" for i in dict.fromkeys(spread)]
    gone, silent = draw(st.integers(0, count - quorum)), draw(st.integers(0, count // 3))
    roles = draw(st.permutations(["gone"] * gone + ["paid"] * bad + ["silent"] * silent))[:count]
    role = dict(zip(gaps, roles, strict=False))
    listed = {name for name in gaps if role.get(name) != "gone"}
    signed = {name for name in listed if role.get(name) != "silent"}
    return count, quorum, listed, signed, {name for name in listed if role.get(name) == "paid"}


@given(lied_to())
@settings(max_examples=300, deadline=None)
def test_at_every_list_that_gives_keys_the_noise_of_honest_survivors_is_the_whole(case):
    """The worst server that the settings allow: it chooses who is listed, colludes, signs and masks."""
    count, quorum, listed, signed, paid = case
    bad, names = colluders_among(count, 0.1, count), tuple(f"n{i:02d}" for i in range(count))
    numbers, parts = thresholds(count, count, 0.1, 0.2, count), split_share(4096, count, quorum, bad + 1)
    assume(len(listed) >= quorum and len(signed) >= numbers.signatures)
    assume(opens_whole(numbers, count, len(signed), bad))
    graph, honest = around(names, numbers.degree), listed - paid
    edges: dict[str, set[str]] = {}
    for name in honest:
        # whoever signed masked with all of its neighbours that are listed; the others were told that as many
        # as possible of those that signed never shared
        order = sorted(graph[name], key=lambda n: (n in signed - paid, n in honest))
        edges[name] = (set(graph[name]) if name in signed else set(order[: numbers.shares - 1])) & honest
    for name, others in list(edges.items()):
        for other in others:
            edges[other].add(name)  # a mask that one of two added does not cancel without the other
    assert pieces(edges) == [honest]
    kept = Fraction(parts.variance(len(listed)))
    assert (len(listed) - bad - 1) * kept >= (quorum - bad - 1) * 4096**2 * (1 - Fraction(1, 10**12))


def test_without_the_condition_there_are_parts():
    """The control of the test above: two gaps of half a client's neighbours each."""
    numbers = thresholds(100, 100, 0.1, 0.2, 100)
    names, half = tuple(f"n{i:02d}" for i in range(100)), numbers.degree // 2
    graph = around(names, numbers.degree)
    gap = {*names[:half], *names[50 : 50 + half]}
    edges = {name: set(graph[name]) - gap for name in names if name not in gap}
    assert len(pieces(edges)) == 2
    assert not opens_whole(numbers, 100, 100 - len(gap) + 10, 10)


@pytest.mark.parametrize("count", [3, 10, 32])
@pytest.mark.parametrize("colluders", [0.0, 0.1, 0.3, 0.6])
def test_where_everybody_masks_with_everybody_a_list_that_is_answered_opens_whole(count, colluders):
    bad = colluders_among(count, colluders)
    if count < bad + 2:
        with pytest.raises(Refused):
            Masked(colluders=colluders).bind(BindContext(CHANNEL, TEN[:count], "zero-out", 2**32, 2))
        return
    numbers = thresholds(count, count, colluders, 0.2)
    assert numbers.degree == count - 1
    assert all(opens_whole(numbers, count, signed, bad) for signed in range(numbers.signatures, count + 1))
