"""A graph of one's own in place of a data set's name: what is taken, what is read, what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from small_graphs import triangles
from torch_geometric.data import Data

from secure_fedgraph.cli.main import main
from secure_fedgraph.graph.data.own_graph import DataWarning
from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.silos.reading import read_one

SMALL = ["--set=training.hidden=[8,4]", "--rounds", "1", "--quiet", "--policy", "plaintext", "--clients", "2"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def graph() -> Data:
    return citation(nodes=60, features=6, classes=2, seed=1)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def run(*arguments: str) -> Result:
    return call("run", *SMALL, *arguments)


def result() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(Path("out/result.json").read_text())
    return read


@pytest.mark.parametrize("saved", [lambda data: data, lambda data: data.to_dict()])
def test_a_saved_graph_is_handed_out(saved: Any) -> None:
    torch.save(saved(graph()), "mine.pt")
    done = run("--data", "mine.pt", "--out", "out")
    assert done.exit_code == 0, done.output
    assert result()["config"]["data"] == "mine.pt" and result()["data"]["nodes"] == 60
    assert result()["data"]["clients"] == 2


def test_a_folder_of_tables_is_handed_out() -> None:
    pytest.importorskip("pyarrow")
    data = graph()
    Path("bank").mkdir()
    rows = [
        f"n{i},{int(y)},{','.join(map(str, x.tolist()))}"
        for i, (x, y) in enumerate(zip(data.x, data.y, strict=True))
    ]
    names = ",".join(f"f{i}" for i in range(6))
    Path("bank/nodes.csv").write_text(f"id,label,{names}\n" + "\n".join(rows) + "\n")
    links = [f"n{a},n{b}" for a, b in data.edge_index.t().tolist() if a < b]
    Path("bank/edges.csv").write_text("source,target\n" + "\n".join(links) + "\n")
    assert run("--data", "bank/", "--out", "out").exit_code == 0
    with pytest.warns(DataWarning, match="no schema was given"):
        read = read_one("bank/")
    assert torch.equal(read.y, data.y) and torch.equal(read.x[:, 1:], 2 * data.x - 1)  # yes and no, each
    assert read.edge_index.shape == data.edge_index.shape


def test_a_function_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("my_graphs.py").write_text(
        "from secure_fedgraph.graph.data.synthetic import citation\n"
        "def load():\n    return citation(nodes=60, features=6, classes=2, seed=1)\n"
    )
    monkeypatch.syspath_prepend(".")
    assert run("--data", "my_graphs:load", "--out", "out").exit_code == 0
    assert result()["data"]["nodes"] == 60


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("edge_index", torch.tensor([[0], [60]]), "names node 60"),
        ("x", torch.full((60, 6), torch.nan), "not finite"),
        ("x", torch.zeros(1, 1).expand(2**20, 2**14), "contiguous"),
        ("y", torch.zeros(60), "every label is class 0"),
        ("y", torch.zeros(59, dtype=torch.long), "shape"),
        ("train_mask", torch.ones(60), "bool"),
    ],
)
def test_a_hostile_graph_is_refused(field: str, value: torch.Tensor, words: str) -> None:
    torch.save({**graph().to_dict(), field: value}, "mine.pt")
    done = run("--data", "mine.pt", "--out", "out")
    assert done.exit_code == 2 and words in done.stderr, done.output
    assert not Path("out").exists() or not any(Path("out").iterdir())


def test_a_list_of_graphs_is_handed_out() -> None:
    torch.save([one.to_dict() for one in triangles(30).graphs], "mine.pt")
    assert len(read_one("mine.pt")) == 30
    small = ["--set=training.hidden=8", "--rounds", "1", "--quiet", "--policy", "plaintext", "--clients", "2"]
    done = call("run", *small, "--data", "mine.pt", "--algorithm", "gin-fedavg", "--out", "out")
    assert done.exit_code == 0, done.output
    assert result()["data"]["partition"]["name"] == "random" and result()["data"]["clients"] == 2


@pytest.mark.parametrize("place", ["gone.pt", "gone/", "gone.csv,gone2.csv"])
def test_what_is_not_there_is_said(place: str) -> None:
    done = run("--data", place, "--out", "out")
    assert done.exit_code == 2 and "--data" in done.stderr and not Path("out").exists()


def test_settings_of_a_data_set_are_refused() -> None:
    torch.save(graph(), "mine.pt")
    assert run("--data", "mine.pt", "--set", "dataset.nodes=3").exit_code == 2


def test_a_folder_without_a_slash_is_no_data_set() -> None:
    Path("bank").mkdir()
    done = run("--data", "bank")
    assert done.exit_code == 2 and "./bank" in done.stderr


def test_a_folder_of_results_opens_no_file_unless_it_is_typed() -> None:
    torch.save(graph(), "mine.pt")
    assert run("--data", "mine.pt", "--set", "transcript=full", "--out", "out").exit_code == 0
    done = call("audit", "out", "--attack", "a1")
    assert done.exit_code == 2 and "add --data mine.pt" in done.stderr
    assert call("audit", "out", "--attack", "a4", "--data", "mine.pt", "--quiet").exit_code in (0, 4)
    Path("out/result.json").unlink()
    done = call("resume", "out")
    assert done.exit_code == 2 and "add --data mine.pt" in done.stderr


def test_a_run_by_name_takes_no_other_data() -> None:
    arguments = ["--data", "synthetic-citation", "--set=dataset.nodes=60", "--set=dataset.features=6"]
    assert run(*arguments, "--out", "out").exit_code == 0
    Path("out/result.json").unlink()
    assert call("resume", "out", "--data", "mine.pt").exit_code == 2


def test_the_rule_is_light() -> None:
    code = "import sys; from secure_fedgraph.graph.silos import places; sys.exit('torch' in sys.modules)"
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
