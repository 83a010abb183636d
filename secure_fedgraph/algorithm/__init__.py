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
from secure_fedgraph.algorithm.settings import Form, Settings, check_switches

__all__ = [
    "ITEMS",
    "TESTED",
    "Algorithm",
    "Form",
    "Settings",
    "State",
    "adds_up",
    "check_switches",
    "in_band_score",
    "noise_on_uploads",
]
