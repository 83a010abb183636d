"""A client's memory goes back to what it was before an answer that failed."""

from __future__ import annotations

from typing import Any

from secure_fedgraph.core.answer_state import Before


def test_keys_that_are_no_text_go_back_too() -> None:
    memory: dict[Any, Any] = {"model": 1, 3: 2}
    before = Before(memory, {})
    memory[3], memory[None] = 5, 6
    before.restore(memory, {})
    assert memory == {"model": 1, 3: 2}
