"""Which algorithms ``compare`` takes where none is named."""

from __future__ import annotations

from typing import Any

import pytest

from secure_fedgraph.cli.comparing import _by_default

FLAGS: dict[str, Any] = {"assignments": (), "norm": None, "multiplier": None}


@pytest.mark.parametrize(
    ("flags", "policy", "budgeted", "algorithms"),
    [
        ({"unit": "node"}, None, True, "fedsage,fedridge,fedsgd"),
        ({"assignments": ("unit=node",)}, "local_dp,distributed_dp", True, "fedsage,fedridge,fedsgd"),
        ({"unit": "node"}, None, False, "fedsage"),
        ({"unit": "client"}, None, True, "fedsage"),
        ({"unit": "node"}, "masked", True, "fedsage"),  # noisy steps, which only some algorithms take
        ({"unit": "node", "assignments": ("training.fanout=[2,2]",)}, None, True, "fedsage"),
    ],
)
def test_a_nodes_budget_has_old_and_new_ones(
    flags: dict[str, Any], policy: str | None, budgeted: bool, algorithms: str
) -> None:
    assert _by_default({**FLAGS, **flags}, policy, budgeted) == algorithms
