"""What is asked of a comparison in Python is refused before any run, as on the command line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from in_this_process import InThisProcess

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.compare import runner

SMALL = sfg.Experiment(data="synthetic-citation", rounds=1, dataset={"nodes": 60, "features": 16})


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secure_fedgraph.comparison.Pool", InThisProcess)
    monkeypatch.setattr(runner, "run_point", lambda *_: pytest.fail("work began"))


WRONG: dict[str, list[Any]] = {
    "experiment": [{}],
    "out": [5, Path(__file__)],
    "algorithms": ["fedavg", ["fedav"], [sfg.FedAvg]],
    "policies": ["masked", ["maskd"]],
    "epsilons": ["8", ["8"], [-1], [0.0], [math.nan]],
    "seeds": [3, "0", (), [-1]],
    "workers": [0, None],
    "without_graph": ["no"],
}


@pytest.mark.parametrize(("key", "value"), [(key, one) for key, ones in WRONG.items() for one in ones])
def test_an_option_that_cannot_be_is_refused_by_name(tmp_path: Path, key: str, value: Any) -> None:
    asked = {"experiment": SMALL, "out": tmp_path / "out", "policies": ["local_dp"], "epsilons": [8]}
    with pytest.raises(BadInput) as refusal:
        sfg.compare(**{**asked, key: value})
    named = {"experiment": "log", "algorithms": "fedav", "policies": "maskd", "epsilons": "epsilon"}
    assert key in str(refusal.value) or named[key] in str(refusal.value)
    assert not (tmp_path / "out").exists()


def test_data_that_a_point_cannot_use_are_seen_before_any_run(tmp_path: Path) -> None:
    too_small = SMALL.model_copy(update={"algorithm": "fedego", "partition": "label_skew"})
    with pytest.raises(BadInput, match="fedego-"):
        sfg.compare(too_small, tmp_path / "out", policies=["masked"])
    assert not (tmp_path / "out").exists()
