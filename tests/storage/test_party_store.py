"""What a party's store keeps, and what it names."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.storage.party_store import PartyStore

LABEL = "00001-abcdef12"


@pytest.mark.parametrize("key", [3, (1, 2), None, "\ud800"])
def test_a_key_of_memory_that_no_file_holds_is_named(key: Any, tmp_path: Path) -> None:
    store = PartyStore(tmp_path / "a", "a")
    with pytest.raises(BadInput, match="a's memory: the key"):
        store.save({"model": torch.ones(2), key: torch.ones(2)}, LABEL)


@pytest.mark.parametrize(
    ("value", "place"), [(threading.Lock(), "l"), ({"in": [threading.Lock()]}, "l/in/0")]
)
def test_an_entry_of_memory_that_no_file_holds_is_named_by_its_own_keys(
    value: Any, place: str, tmp_path: Path
) -> None:
    with pytest.raises(
        BadInput, match=f"^a's memory '{place}' is of type lock, which .*; keep tensors, numbers"
    ):
        PartyStore(tmp_path / "a", "a").save({"l": value}, LABEL)
