"""``--silo``: owners' own files, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import call, held

import secure_fedgraph as sfg
from secure_fedgraph.cli import running
from secure_fedgraph.storage import manifest

pandas = pytest.importorskip("pandas")
SMALL = ["--algorithm", "fedsage", "--set", "training.hidden=[8,4]", "--rounds", "2"]


@pytest.fixture(autouse=True)
def banks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three folders of tables in the working folder."""
    monkeypatch.chdir(tmp_path)
    whole = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=90, features=6)
    for name, graph in zip("abc", whole.owners.values(), strict=True):
        Path(name).mkdir()
        nodes = pandas.DataFrame(graph.x.numpy(), columns=[f"f{column}" for column in range(6)])
        nodes["label"] = [f"class {label}" for label in graph.y.tolist()]
        nodes.to_csv(f"{name}/nodes.csv", index=False)
        ends = dict(zip(("source", "target"), graph.edge_index.tolist(), strict=True))
        pandas.DataFrame(ends).to_csv(f"{name}/edges.csv", index=False)


SILOS = [word for name in "abc" for word in ("--silo", f"bank-{name}={name}")]


def test_a_run_of_files_leaves_a_result() -> None:
    done = call("run", *SMALL, *SILOS, "--policy", "masked", "--out", "out")
    assert done.exit_code == 0, done.output
    result = held("out/result.json")
    assert result["config"]["silos"] == {f"bank-{name}": name for name in "abc"}
    assert result["data"]["silos"] == ["bank-a", "bank-b", "bank-c"]
    assert result["evaluation"]["mode"] == "in_band"
    assert {row["name"] for row in result["channels"]} == {"update", "metrics", "scores"}
    assert Path("out/report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--silo", "a"], "write NAME=FILE"),
        (["--silo", "a=a", "--silo", "a=b"], "once for each owner"),
        (["--silo", "../x=a"], "owner '../x'"),
        (["--silo", "a=nowhere"], "'nowhere' is no file"),
        ([*SILOS, "--data", "cora"], "leave data out"),
        ([*SILOS, "--clients", "5"], "leave clients out"),
        ([*SILOS, "--partition", "random"], "leave partition out"),
        ([*SILOS, "--set", "dataset.nodes=5"], "leave dataset out"),
        (["--rows", "id"], "rows = 'id' is for owners with data of their own"),
        ([*SILOS, "--algorithm", "glasu", "--set", "training={}"], "name the rows"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_line(arguments: list[str], words: str) -> None:
    done = call("run", *SMALL, "--policy", "masked", "--out", "out", *arguments)
    assert done.exit_code == 2 and words in done.stderr, done.output
    assert done.stderr.count("\n") == 1 and not Path("out").exists()


def test_a_budget_for_nodes_counts_scores_under_noise(tmp_path: Path) -> None:
    budget = ["--epsilon", "8", "--unit", "node"]
    done = call("run", *SMALL, *SILOS, *budget, "--policy", "masked", "--out", "out")
    assert done.exit_code == 0, done.output
    result = held(tmp_path / "out/result.json")
    scores = next(row for row in result["channels"] if row["name"] == "scores")
    assert scores["unit"] == "node" and 0 < scores["epsilon"] < 8
    assert result["privacy"]["node"]["epsilon"] <= 8
    for one in result["metrics"].values():
        assert one["low"] <= one["global"] <= one["high"]
    assert 0 <= result["accuracy"]["global"] <= 1


def test_a_function_that_prints_and_leaves_the_folder(tmp_path: Path) -> None:
    Path("loaders_of_mine.py").write_text(
        "import os\n"
        "from secure_fedgraph.graph.data.synthetic import citation\n"
        "def load(seed=0):\n"
        "    print('loading')\n"
        "    os.chdir('/')\n"
        "    return citation(nodes=40, features=6, classes=3, seed=seed)\n"
        "def more():\n"
        "    return load(1)\n"
    )
    silos = [word for name in ("load", "more") for word in ("--silo", f"{name}=loaders_of_mine:{name}")]
    done = call("run", *SMALL, *silos, "--policy", "masked", "--out", "out", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["config"]["silos"] and (tmp_path / "out/result.json").is_file()


@pytest.mark.parametrize("name", ["a" * 100_000, "../x", "a\nb"])
def test_words_of_a_folder_are_no_silos(name: str) -> None:
    kept = ["--policy", "plaintext", "--set", "transcript=full", "--out", "out"]
    assert call("run", *SMALL, *SILOS, *kept).exit_code == 0
    result = held("out/result.json")
    result["config"]["silos"] = {name: "a"}
    Path("out/result.json").write_text(json.dumps(result))
    manifest.write(Path("out"))
    for typed in ([], SILOS):
        done = call("audit", "out", "--attack", "a4", *typed)
        assert done.exit_code == 2 and "--silo names" in done.stderr
        assert len(done.stderr) < 400 and done.stderr.count("\n") == 1


def test_a_stopped_run_goes_on_with_files_that_are_named_again(monkeypatch: pytest.MonkeyPatch) -> None:
    real = running.execute

    def stopped(experiment, folder, on_round, **more):
        def stop(row) -> None:
            raise KeyboardInterrupt

        return real(experiment, folder, stop, **more)

    with monkeypatch.context() as patched:
        patched.setattr(running, "execute", stopped)
        done = call("run", *SMALL, *SILOS, "--policy", "masked", "--out", "out")
    assert done.exit_code == 130 and "resume out --silo bank-a=a --silo bank-b=b" in done.stderr
    for typed in ([], ["--silo", "bank-a=a"]):
        done = call("resume", "out", *typed)
        assert done.exit_code == 2 and "add --silo bank-a=a" in done.stderr
    changed = ["--silo", "bank-a=b", "--silo", "bank-b=a", *SILOS[4:]]
    assert call("resume", "out", *changed).exit_code == 2
    done = call("resume", "out", *SILOS)
    assert done.exit_code == 0, done.output
    whole = call("run", *SMALL, *SILOS, "--policy", "masked", "--out", "whole")
    assert whole.exit_code == 0
    read = [json.loads(Path(folder, "result.json").read_text())["weights"] for folder in ("out", "whole")]
    assert read[0] == read[1]


@pytest.mark.slow
def test_a_comparison_runs_again_where_a_file_changed() -> None:
    compared = ["compare", *SMALL, *SILOS, "--policy", "masked", "--workers", "1", "--out", "out"]
    assert call(*compared).exit_code == 0
    first = {path: path.stat().st_mtime_ns for path in Path("out").rglob("result.json")}
    nodes = Path("a/nodes.csv").read_text().splitlines()
    Path("a/nodes.csv").write_text("\n".join([nodes[0], *nodes[:0:-1]]) + "\n")
    assert call(*compared).exit_code == 0
    assert first and all(path.stat().st_mtime_ns > stamp for path, stamp in first.items())


def test_a_file_whose_silos_are_empty_runs_on_no_other_data(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text('algorithm = "fedavg"\npolicy = "plaintext"\n[silos]\n')
    done = call("run", str(file), "--out", str(tmp_path / "out"))
    assert done.exit_code == 2 and "silos is empty" in done.stderr and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("dataset.nodes=90", "each silo brings its own data"),
        ("device=cuda", "silos train on the CPU"),
        ("ledger=spent.jsonl", "a ledger of its own"),
    ],
)
@pytest.mark.parametrize("command", ["dev", "init"])
def test_a_federation_with_a_setting_that_no_silo_takes_leaves_nothing_behind(
    command: str, setting: str, why: str
) -> None:
    pytest.importorskip("flwr")
    Path("made").mkdir()
    words = ["server", "dev", "--silos", "3", "--out", "made/dev"]
    if command == "init":
        assert call("silo", "keygen", "silo-a", "--name", "bank-a", "--data", "a").exit_code == 0
        words = [
            "federation",
            "init",
            "silo-a/card.toml",
            "--host",
            "localhost",
            "--out",
            "made/federation.toml",
        ]
    done = call(*words, "--set", setting)
    assert done.exit_code == 2 and f"{setting.partition('=')[0].partition('.')[0]} = " in done.stderr
    assert why in done.stderr and done.stderr.count("\n") == 1
    assert not list(Path("made").iterdir())
