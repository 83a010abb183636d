"""What ``import secure_fedgraph`` gives: the public names, none by accident, no torch before its use."""

from __future__ import annotations

import subprocess
import sys

import pytest

import secure_fedgraph as sfg
from secure_fedgraph.graph.data.synthetic import citation

LIGHT = """
import runpy, sys
import secure_fedgraph
from secure_fedgraph.cli.main import main
sys.argv[1:] = ["--version"]
try:
    runpy.run_module("secure_fedgraph", run_name="__main__")
except SystemExit as ended:
    assert not ended.code
else:
    raise AssertionError("no command was run")
heavy = {"torch", "torch_geometric", "scipy", "opacus", "tenseal", "matplotlib"} & set(sys.modules)
assert not heavy, heavy
"""


def test_what_users_need_is_there_and_no_module_by_accident() -> None:
    needed = "federate train audit compare Budget policies algorithms attacks datasets Run"
    assert set(needed.split()) <= set(dir(sfg))
    modules = {name for name in dir(sfg) if type(getattr(sfg, name)).__name__ == "module"}
    assert modules == {"algorithms", "attacks", "datasets", "errors", "policies"}


@pytest.mark.parametrize("name", [name for name in dir(sfg) if not name.startswith("__")])
def test_each_name_is_what_it_is_called(name: str) -> None:
    found = getattr(sfg, name)
    assert getattr(found, "__name__", name).rpartition(".")[2] == name


def test_train_stays_the_function_whatever_is_imported() -> None:
    import secure_fedgraph.running.loop as loop

    assert sfg.train is loop.train


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'trian'"):
        sfg.trian  # noqa: B018


def test_the_command_line_loads_nothing_heavy_by_either_name() -> None:
    words = [sys.executable, "-c", LIGHT]
    ended = subprocess.run(words, check=True, timeout=600, capture_output=True, text=True)
    assert ended.stdout == f"secure-fedgraph, version {sfg.__version__}\n"


def test_a_runs_report_names_scores_epsilons_and_channels() -> None:
    federation = sfg.federate(citation(60, 16, 3, 0), clients=2, partition="random", seed=0)
    run = sfg.train(sfg.FedSage(hidden=(8, 4)), federation, "masked", rounds=1)
    text = run.report()
    assert "fedsage on" in text and "under policy masked" in text
    assert f"global {run.history[-1]['accuracy']['global']:.3f}" in text
    assert all(f"one {unit}: epsilon inf" in text for unit in run.privacy())
    assert "channel update: the server learns sum" in text
