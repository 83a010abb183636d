"""Every owner ends with exactly the rows that all have, in one order that nobody could foresee."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch
from aligning import COMMON, NAMES, TABLES, aligned, numbered, sides, terms
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.deployment.alignment import align_together
from secure_fedgraph.deployment.alignment.points import Blinding

WORDS = st.lists(
    st.sampled_from(["a", "b", "ab", "B", "0", "00", "ü", "𝄞", "a b", "-", "7", "x" * 256]), unique=True
)


@settings(max_examples=30)
@given(tables=st.lists(WORDS.filter(bool), min_size=2, max_size=3))
def test_it_is_the_intersection_of_the_sets(tables: list[list[str]]) -> None:
    given_rows = dict(zip(NAMES, tables, strict=False))
    common = set.intersection(*map(set, tables))
    owners = sides(given_rows, terms(tuple(given_rows), rows_at_most=12))
    if not common:
        with pytest.raises(BadInput, match="no row is at every owner"):
            align_together(owners)
        return
    found = align_together(owners)
    rows = found["bank"].rows
    assert set(rows) == common and len(rows) == len(common)
    assert {one.rows for one in found.values()} == {rows}
    assert len({one.digest for one in found.values()}) == 1


def test_three_owners_keep_what_all_have() -> None:
    found, _ = aligned()
    assert {name: set(one.rows) for name, one in found.items()} == dict.fromkeys(NAMES, COMMON)


def test_the_library_that_compares_for_itself_finds_the_same() -> None:
    psi = importlib.import_module("private_set_intersection.python")
    client, server = psi.client.CreateWithNewKey(True), psi.server.CreateWithNewKey(True)
    request = client.CreateRequest(TABLES["bank"])
    setup = server.CreateSetupMessage(1e-9, len(TABLES["bank"]), TABLES["shop"], psi.DataStructure.RAW)
    theirs = {TABLES["bank"][i] for i in client.GetIntersection(setup, server.ProcessRequest(request))}
    found, _ = aligned({name: TABLES[name] for name in ("bank", "shop")})
    assert set(found["shop"].rows) == theirs


def test_the_order_is_nobodys_and_another_each_time() -> None:
    rows = numbered(*range(60))
    orders = {aligned({"bank": rows, "shop": rows[::-1]})[0]["shop"].rows for _ in range(3)}
    assert len(orders) == 3
    assert not orders & {tuple(rows), tuple(rows[::-1])}


def test_the_order_follows_from_no_seed() -> None:
    rows = numbered(*range(60))
    orders = set()
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002
        torch.manual_seed(0)
        orders.add(aligned({"bank": rows, "shop": rows})[0]["bank"].rows)
    assert len(orders) == 2


def test_all_rows_of_a_full_class() -> None:
    rows = numbered(*range(64))
    found, _ = aligned({"bank": rows, "shop": rows}, rows_at_most=64)
    assert set(found["bank"].rows) == set(rows)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([], "shop: 0 rows have 0 names"),
        (["a", "b", "a"], "shop: 3 rows have 2 names: give each one of its own"),
        (numbered(*range(129)), "a table of 129 rows, and the federation's rows_at_most is 128"),
    ],
)
def test_rows_that_cannot_be_used_are_refused_before_anything_is_sent(rows: list[str], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        sides({"bank": ["a"], "shop": rows})


def test_owners_that_do_not_all_come_have_no_alignment() -> None:
    owners = sides()
    del owners["shop"]
    with pytest.raises(HostileMessage, match="bank wrote a letter that is not from it to another owner"):
        align_together(owners)


def test_exponents_commute_and_other_names_have_other_points() -> None:
    hub, member = Blinding(), Blinding()
    one, other = hub.of_texts(["ann", "bob"]), member.of_texts(["ann", "carl"])
    assert (member.of_points(one) == hub.of_points(other)).all(axis=1).tolist() == [True, False]
    assert not (one == other).all(axis=1).any()
