"""What a run spent, in Flower's words."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from banks import banks, federation_of

from secure_fedgraph.deployment.charge_report import report_in
from secure_fedgraph.deployment.flower.privacy import privacy_spent

pytest.importorskip("flwr")


@pytest.mark.parametrize(
    ("policy", "budget", "releases"),
    [
        ("distributed_dp", {"epsilon": 8.0, "unit": "client"}, 4),
        ("masked", {}, 5),  # scores counted by class once more, after the last round
    ],
)
def test_privacy_spent_is_the_ledgers_figure_for_one_client(
    tmp_path: Path, policy: str, budget: dict[str, Any], releases: int
) -> None:
    silos = federation_of(
        tmp_path, banks(3), algorithm="fedavg", policy=policy, rounds=2, training={"hidden": [4, 4]}, **budget
    )
    result = silos.serve(silos.start_all())
    import json

    charges = []
    for name in silos.data:
        kept = json.loads((tmp_path / "out" / "charges" / f"{name}.json").read_text())
        body = bytes.fromhex(kept["signature"]) + kept["report"].encode()
        approved = silos.approved
        key = approved.federation.roster[name]
        charges += report_in(body, key, approved.digest, approved.run, name).charges
    made = privacy_spent(charges, 1e-5)
    figure = result["privacy"]["client"]["readers"]["server"]
    assert math.isinf(made.epsilon) if figure == "inf" else abs(made.epsilon - figure) < 1e-3
    assert (made.num_releases, made.delta) == (releases, 1e-5)
