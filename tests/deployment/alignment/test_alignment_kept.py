"""What an owner keeps: a private file, whole or not at all, that puts its table into the common order."""

from __future__ import annotations

import copy
import json
import os
import pickle
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aligning import IDENTITIES, aligned, sides, terms

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.deployment.alignment import Alignment, Terms, new_alignment


@pytest.fixture(scope="module")
def found() -> dict[str, Alignment]:
    return aligned()[0]


def test_it_comes_back_from_a_private_file(found: dict[str, Alignment], tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        found["shop"].save(tmp_path / "alignment.json")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "alignment.json").stat().st_mode) == 0o600
    assert Alignment.load(tmp_path / "alignment.json") == found["shop"]


def test_a_crash_while_it_is_written_leaves_nothing(
    found: dict[str, Alignment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object, **more: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="disk is full"):
        found["shop"].save(tmp_path / "alignment.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-9],
        lambda text: "[]",
        lambda text: json.dumps({**json.loads(text), "rows": [1]}),
        lambda text: json.dumps({**json.loads(text), "salt": None}),
    ],
)
def test_a_damaged_file_is_refused(found: dict[str, Alignment], tmp_path: Path, change: Any) -> None:
    path = tmp_path / "alignment.json"
    found["shop"].save(path)
    path.write_text(change(path.read_text()))
    with pytest.raises(BadInput, match="is damaged"):
        Alignment.load(path)


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="align the rows first"):
        Alignment.load(tmp_path / "alignment.json")


def test_the_repr_holds_no_name_and_no_salt(found: dict[str, Alignment]) -> None:
    assert "customer" not in repr(found["shop"]) and found["shop"].salt not in repr(found["shop"])


def test_sides_are_not_copied_or_stored() -> None:
    for owner in sides().values():
        for leave in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="does not leave its process"):
                leave(owner)
        assert repr(owner) in ("Hub(…)", "Member(…)")


def test_the_extra_is_named_where_the_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "private_set_intersection.python", None)
    with pytest.raises(BadInput, match=r"pip install 'secure-fedgraph\[align\]'"):
        sides()


def test_two_alignments_have_two_names() -> None:
    assert new_alignment() != new_alignment() and len(new_alignment()) == 32


def test_terms_that_differ_have_another_digest() -> None:
    reference = terms()
    names = list(reference.parties)
    others = [
        terms(federation=bytes(32)),
        terms(alignment="alignment-2"),
        terms(rows_at_most=127),
        terms(names[:2]),
        terms([names[1], names[0], names[2]]),
        terms(parties={**reference.parties, "phone": bytes(32)}),
    ]
    assert len({one.digest for one in [reference, *others]}) == 7
    assert terms().digest == reference.digest


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"alignment": ""}, "alignment is ''"),
        ({"alignment": "a\nb"}, "alignment is 'a"),
        ({"parties": {"bank": IDENTITIES["bank"].public}}, "parties names 1: rows are aligned between 2"),
        ({"parties": {str(n): n.to_bytes(32, "little") for n in range(257)}}, "parties names 257"),
    ],
)
def test_terms_that_cannot_be_used(other: dict[str, object], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        terms(**other)


def test_terms_do_not_change_with_the_roster_they_were_made_from() -> None:
    roster = {name: identity.public for name, identity in IDENTITIES.items()}
    made = terms(parties=roster)
    roster.clear()
    assert made.names == ("bank", "phone", "shop") and isinstance(replace(made, alignment="b"), Terms)
