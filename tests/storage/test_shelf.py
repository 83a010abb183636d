"""A shelf: whole or not at all, only what changed, and damage is named and left as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.storage.party_store import PartyStore

FIRST, SECOND, THIRD = "00001-0123abcd", "00002-0123abcd", "00003-0123abcd"


@pytest.fixture
def store(tmp_path: Path) -> PartyStore:
    return PartyStore(tmp_path / "owner-0", "owner-0")


def stamps(store: PartyStore) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in store.folder.glob("*.part")}


def test_two_rounds_stand_side_by_side_until_the_second_is_committed(store: PartyStore) -> None:
    store.save({"w": torch.ones(2)}, FIRST)
    store.save({"w": torch.zeros(2)}, SECOND, FIRST)
    assert torch.equal(store.load(FIRST)["w"], torch.ones(2))  # a kill before the commit finds it
    assert torch.equal(store.load(SECOND)["w"], torch.zeros(2))
    store.save({"w": torch.zeros(2)}, THIRD, SECOND)
    with pytest.raises(BadInput, match="it is missing"):
        store.load(FIRST)
    assert len(stamps(store)) == 1


def test_only_what_changed_is_written(store: PartyStore) -> None:
    store.save({"large": torch.ones(1000), "small": 1}, FIRST)
    before = stamps(store)
    store.save({"large": torch.ones(1000), "small": 2}, SECOND, FIRST)
    after = stamps(store)
    assert before.items() <= after.items()
    assert len(after) == 3
    assert store.load(SECOND)["small"] == 2


def test_a_change_in_place_is_a_change(store: PartyStore) -> None:
    memory = {"w": torch.zeros(1000)}
    store.save(memory, FIRST)
    memory["w"].data[500] = 1e-7
    store.save(memory, SECOND, FIRST)
    assert store.load(SECOND)["w"][500] == 1e-7


def test_an_empty_memory(store: PartyStore) -> None:
    store.save({}, FIRST)
    assert store.load(FIRST) == {}


@pytest.mark.parametrize("label", ["../../etc", "1", "00001-XYZ", ""])
def test_a_label_is_no_path(store: PartyStore, label: str) -> None:
    with pytest.raises(HostileMessage, match="is no label"):
        store.save({}, label)
    assert not store.folder.exists()


def test_what_the_format_does_not_carry_names_the_memory(store: PartyStore) -> None:
    with pytest.raises(BadInput, match=r"'odd/deep' is of type object"):
        store.save({"odd": {"deep": object()}}, FIRST)


@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
@pytest.mark.parametrize("which", ["*.part", "*.json"])
def test_damage_is_named_and_left(store: PartyStore, damage: str, which: str) -> None:
    store.save({"w": torch.ones(9)}, FIRST)
    (path,) = store.folder.glob(which)
    raw = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(raw[:-7] if damage == "cut" else raw[:-1] + bytes([raw[-1] ^ 1]))
    there = sorted(store.folder.iterdir())
    with pytest.raises(BadInput, match=f"{path.name} is damaged .*put a copy back"):
        store.load(FIRST)
    assert sorted(store.folder.iterdir()) == there
    path.write_bytes(raw)
    assert torch.equal(store.load(FIRST)["w"], torch.ones(9))


def test_somebody_elses_shelf(store: PartyStore) -> None:
    store.save({}, FIRST)
    with pytest.raises(BadInput, match="belongs to 'owner-0': put owner-1's back"):
        PartyStore(store.folder, "owner-1").load(FIRST)
