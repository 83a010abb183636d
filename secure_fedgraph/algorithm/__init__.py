"""What an algorithm is: channels, the clients' answers on them, and a round from state to state."""

from __future__ import annotations

from secure_fedgraph.algorithm.base import (
    ITEMS,
    TESTED,
    Algorithm,
    State,
    adds_up,
    in_band_score,
    noise_on_uploads,
)
from secure_fedgraph.algorithm.settings import BatchSize, Form, Settings, Widths, check_switches, number_or

__all__ = [
    "ITEMS",
    "TESTED",
    "Algorithm",
    "BatchSize",
    "Form",
    "Settings",
    "State",
    "Widths",
    "adds_up",
    "check_switches",
    "in_band_score",
    "noise_on_uploads",
    "number_or",
]
