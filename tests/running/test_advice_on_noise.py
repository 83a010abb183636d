"""What a refused budget recommends is an option that runs, and does not lead back to where it came from."""

from __future__ import annotations

import re
from typing import Any

import pytest

from secure_fedgraph.core.errors import BadInput, BudgetExhausted
from secure_fedgraph.experiment.config import load
from secure_fedgraph.experiment.results import execute
from secure_fedgraph.running.run import Run

SMALL: dict[str, Any] = {"clients": 4, "rounds": 1, "epsilon": 8.0, "delta": 1e-3, "policy": "masked"}
NODES, GRAPHS = {"data": "synthetic-citation"}, {"data": "synthetic-molecules"}


def go(**values: Any) -> Run:
    return execute(load(None, {**SMALL, **values}, ()), None)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of the forms that algorithms take
@pytest.mark.parametrize(
    ("algorithm", "data", "unit", "error"),
    [
        ("fedsgd", NODES, "client", BudgetExhausted),
        ("fedsgc", NODES, "node", BadInput),
        ("fedbcd-one-label-holder", NODES, "node", BadInput),
        ("fedbcd-one-label-holder", NODES, "client", BudgetExhausted),
        ("fedego-released", {**NODES, "split": {"local_tests": 5}}, "node", BudgetExhausted),
        ("fedridge-graphs", GRAPHS, "client", BudgetExhausted),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_recommended_runs(
    algorithm: str, data: dict[str, Any], unit: str, error: type[Exception]
) -> None:
    with pytest.raises(error) as refused:
        go(algorithm=algorithm, unit=unit, **data)
    advice = re.search(r"--policy (\w+)(?: --unit (\w+))?", str(refused.value))
    assert advice is not None
    policy, protected = advice[1], advice[2] or unit
    made = go(algorithm=algorithm, policy=policy, unit=protected, **data)
    assert 0 < float(made.privacy(protected, SMALL["delta"])["readers"]["server"]) <= 8.0
