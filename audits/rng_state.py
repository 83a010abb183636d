"""Sets every global generator to the same state again: noise that comes from one of them then repeats."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch


def frozen_state() -> Callable[[], AbstractContextManager[None]]:
    """A context that always starts from the generators' present state, and restores them when it ends."""
    start = _state()

    @contextmanager
    def same() -> Iterator[None]:
        before = _state()
        try:
            _put(start)
            yield
        finally:
            _put(before)

    return same


def _state() -> tuple[Any, ...]:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002


def _put(state: tuple[Any, ...]) -> None:
    torch.set_rng_state(state[0])
    np.random.set_state(state[1])  # noqa: NPY002
    random.setstate(state[2])
