"""A shelf: whole or not at all, only what changed, and damage is named and left as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from secure_fedgraph.errors import BadInput, HostileMessage
from secure_fedgraph.storage.party_store import Shelf

FIRST, SECOND, THIRD = "00001-0123abcd", "00002-0123abcd", "00003-0123abcd"


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "owner-0", "owner-0")


def stamps(shelf: Shelf) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in shelf.folder.glob("*.part")}


def test_two_rounds_stand_side_by_side_until_the_second_is_committed(shelf: Shelf) -> None:
    shelf.save({"w": torch.ones(2)}, FIRST)
    shelf.save({"w": torch.zeros(2)}, SECOND, FIRST)
    assert torch.equal(shelf.load(FIRST)["w"], torch.ones(2))  # a kill before the commit finds it
    assert torch.equal(shelf.load(SECOND)["w"], torch.zeros(2))
    shelf.save({"w": torch.zeros(2)}, THIRD, SECOND)
    with pytest.raises(BadInput, match="it is missing"):
        shelf.load(FIRST)
    assert len(stamps(shelf)) == 1


def test_only_what_changed_is_written(shelf: Shelf) -> None:
    shelf.save({"large": torch.ones(1000), "small": 1}, FIRST)
    before = stamps(shelf)
    shelf.save({"large": torch.ones(1000), "small": 2}, SECOND, FIRST)
    after = stamps(shelf)
    assert before.items() <= after.items()
    assert len(after) == 3
    assert shelf.load(SECOND)["small"] == 2


def test_a_change_in_place_is_a_change(shelf: Shelf) -> None:
    memory = {"w": torch.zeros(1000)}
    shelf.save(memory, FIRST)
    memory["w"].data[500] = 1e-7
    shelf.save(memory, SECOND, FIRST)
    assert shelf.load(SECOND)["w"][500] == 1e-7


def test_an_empty_memory(shelf: Shelf) -> None:
    shelf.save({}, FIRST)
    assert shelf.load(FIRST) == {}


@pytest.mark.parametrize("label", ["../../etc", "1", "00001-XYZ", ""])
def test_a_label_is_no_path(shelf: Shelf, label: str) -> None:
    with pytest.raises(HostileMessage, match="is no label"):
        shelf.save({}, label)
    assert not shelf.folder.exists()


def test_what_the_format_does_not_carry_names_the_memory(shelf: Shelf) -> None:
    with pytest.raises(BadInput, match="owner-0's memory 'odd': 'deep' cannot be kept"):
        shelf.save({"odd": {"deep": object()}}, FIRST)


@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
@pytest.mark.parametrize("which", ["*.part", "*.json"])
def test_damage_is_named_and_left(shelf: Shelf, damage: str, which: str) -> None:
    shelf.save({"w": torch.ones(9)}, FIRST)
    (path,) = shelf.folder.glob(which)
    raw = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(raw[:-7] if damage == "cut" else raw[:-1] + bytes([raw[-1] ^ 1]))
    there = sorted(shelf.folder.iterdir())
    with pytest.raises(BadInput, match=f"{path.name} is damaged .*put a copy back"):
        shelf.load(FIRST)
    assert sorted(shelf.folder.iterdir()) == there
    path.write_bytes(raw)
    assert torch.equal(shelf.load(FIRST)["w"], torch.ones(9))


def test_somebody_elses_shelf(shelf: Shelf) -> None:
    shelf.save({}, FIRST)
    with pytest.raises(BadInput, match="belongs to 'owner-0': put owner-1's back"):
        Shelf(shelf.folder, "owner-1").load(FIRST)
