"""Beside every private point stands the same budget where nothing reads a link, or why there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from command_line import held
from in_this_process import at_once
from torch_geometric.data import Data

from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.cli.main import main
from secure_fedgraph.experiment.compare import Point, added, points, references
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.graph.schema import Schema

SMALL = ["--data", "synthetic-citation", "--set", "dataset.nodes=60", "--set", "dataset.features=8"]
SMALL += ["--policy", "distributed_dp", "--unit", "node", "--epsilon", "4", "--quiet"]


def chosen(algorithms: list[str], policy: str = "distributed_dp", **values: Any) -> list[Point]:
    asked = {"data": "synthetic-citation", "unit": "node", "algorithm": algorithms[0], **values}
    return points(Experiment(**asked), algorithms, [policy], [4.0])


def test_what_reads_links_is_measured_against_the_one_that_does_not_and_that_is_run_once() -> None:
    found = chosen(["fedsage", "fedridge", "fedsgd"])
    beside = references(found)
    assert {name: one.name for name, one in beside.items() if isinstance(one, Point)} == {
        "fedsage-distributed_dp-4": "fedridge-distributed_dp-4-without-graph",
        "fedridge-distributed_dp-4": "fedridge-distributed_dp-4-without-graph",
        "fedsgd-distributed_dp-4": "fedsgd-distributed_dp-4-without-graph",
    }
    configs = [point.config for point in added(found, beside)]
    assert len(configs) == 2
    for config in configs:
        assert config["training"] == {"steps": 0}
        assert (config["policy"], config["unit"], config["epsilon"]) == ("distributed_dp", "node", 4.0)


def test_a_point_without_links_is_its_own_reference() -> None:
    found = chosen(["fedridge"], training={"steps": 0})
    beside = references(found)
    assert beside["fedridge-distributed_dp-4"] in found and not added(found, beside)


def test_settings_of_the_point_alone_do_not_reach_its_reference() -> None:
    own = {"training": {"fanout": [2, 2]}, "budget": {"update": 1.0}, "protection": {"norm": {"update": 2.0}}}
    (reference,) = added(found := chosen(["fedsage"], **own), references(found))
    kept = {key: reference.config[key] for key in own}
    assert kept == {"training": {"steps": 0}, "budget": {}, "protection": {}}


@pytest.mark.parametrize(
    ("algorithm", "policy", "values", "word"),
    [
        ("fedsage", "distributed_dp", {"unit": "client"}, "client"),
        ("fedsage", "masked", {"unit": "edge"}, "one edge"),
        ("fedsage", "homomorphic", {}, "distributed_dp"),
        ("glasu", "local_dp", {"partition": "vertical"}, "partition = 'vertical'"),
    ],
)
def test_where_there_is_none_it_is_said_why(
    algorithm: str, policy: str, values: dict[str, Any], word: str
) -> None:
    (reference,) = references(chosen([algorithm], policy, **values)).values()
    assert isinstance(reference, str) and word in reference


def test_whole_graphs_have_none() -> None:
    assert not references(chosen(["fedridge-graphs"], data="synthetic-molecules", unit="graph"))


@pytest.mark.parametrize("name", ["fedridge", "fedsgd"])
def test_nothing_reads_a_link_under_these_settings(name: str) -> None:
    algorithm = ALGORITHMS[name](**(ALGORITHMS[name].without_links or {}))
    graph = Data(x=torch.rand(6, 4), y=torch.arange(6) % 2, edge_index=torch.tensor([[0, 1, 2], [1, 0, 5]]))
    bare = Data(x=graph.x, y=graph.y, edge_index=torch.empty(2, 0, dtype=torch.long))
    schema = Schema(4, 2)
    state = {key: torch.rand_like(value) for key, value in algorithm.init(schema, 0).items()}
    given = [algorithm.predict(algorithm.released(state), one, schema) for one in (graph, bare)]
    assert torch.equal(*given) and not algorithm.hops


def call(out: Path, *more: str) -> Result:
    return CliRunner().invoke(main, ["compare", "--algorithm", "fedridge", *SMALL, "--out", str(out), *more])


def test_it_is_run_kept_told_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once(monkeypatch)
    done = call(tmp_path)
    assert done.exit_code == 0, done.output
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/*/result.json")}
    result = held(tmp_path / "compare.json")
    rows = {row["name"]: row for row in result["points"]}
    assert len(before) == len(rows) + 1
    private = rows["fedridge-distributed_dp-4"]
    assert private["without_graph"]["name"] == "fedridge-distributed_dp-4-without-graph"
    assert private["without_graph"]["spent"] == private["spent"]
    assert private["units"]["client"] == "inf" and private["units"]["edge"] == 0.0
    assert any("client" in why for why in private["larger_units"])
    assert not [name for name, row in rows.items() if "without_graph" in row and name != private["name"]]
    assert "without_graph_accuracy_global" in (tmp_path / "compare.csv").read_text().splitlines()[0]
    assert call(tmp_path, "--skip-without-graph").exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert "without_graph" not in held(tmp_path / "compare.json")["points"][-1]
