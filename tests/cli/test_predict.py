"""``predict``: next week's table is scored as this week's was, wherever the model lies, or refused by key."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import call, held
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.deployment.federation_file import read_federation
from secure_fedgraph.experiment import released
from secure_fedgraph.graph.data.own_graph import DataWarning
from secure_fedgraph.graph.tables.schema import read_schema
from secure_fedgraph.protocol import nested

pytest.importorskip("pyarrow")
SETTINGS = {
    "fedsage": ["--set", "training.hidden=[8,4]", "--rounds", "3"],
    "fedridge": [],
    "sums": ["--algorithm", "fedridge", "--set", "training.second_moments=own"],
    "fedsgd": ["--rounds", "5", "--set", "training.hidden=4"],
}
BANKS = ("bank-a", "bank-b")
SILOS = [word for name in BANKS for word in ("--silo", f"{name}={name}/")]
HEAD = ["id", "age", "income", "use", "good"]


def write_banks(folder: Path, bad: str) -> None:
    """Two banks' tables; the income says who is good (1) or bad."""
    rng = np.random.default_rng(0)
    for name in BANKS:
        (folder / name).mkdir(parents=True)
        good = rng.integers(2, size=60)
        rows = [
            f"{name}-{row:02d},{rng.integers(18, 80)},{rng.normal(50 + 30 * one, 5):.2f},"
            f"{rng.choice(['car', 'home'])},{'1' if one else bad}"
            for row, one in enumerate(good)
        ]
        (folder / name / "nodes.csv").write_text("\n".join([",".join(HEAD), *rows]) + "\n")
        links = [f"{name}-{row:02d},{name}-{rng.integers(60):02d}" for row in range(60)]
        (folder / name / "edges.csv").write_text("\n".join(["source,target", *links]) + "\n")


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This week: the banks, their schema, and a run of each algorithm."""
    folder = tmp_path_factory.mktemp("week")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        write_banks(Path(), "-1")
        assert call("silo", "describe", "bank-a/", "--label", "good", "--out", "schema.toml").exit_code == 0
        for name, settings in SETTINGS.items():
            run = ["run", "--algorithm", name, *settings, *SILOS, "--schema", "schema.toml"]
            done = call(*run, "--policy", "masked", "--seed", "0", "--out", name, "--quiet")
            assert done.exit_code == 0, done.output
    return folder


@pytest.fixture(autouse=True)
def in_a_copy(week: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(week, tmp_path / "week")
    monkeypatch.chdir(tmp_path / "week")


def predict(*arguments: str, out: str = "scores.csv") -> list[dict[str, str]]:
    done = call("predict", *arguments, "--out", out, "--overwrite")
    assert done.exit_code == 0, done.output
    with Path(out).open(newline="") as file:
        return list(csv.DictReader(file))


def scores(rows: list[dict[str, str]], column: str = "score_1") -> dict[str, float]:
    return {row["id"]: float(row[column]) for row in rows}


def table() -> list[dict[str, str]]:
    with Path("bank-a/nodes.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def write(rows: list[dict[str, str]], head: list[str], name: str = "next.csv", separator: str = ",") -> str:
    with Path(name).open("w", newline="") as file:
        written = csv.DictWriter(file, head, delimiter=separator, extrasaction="ignore")
        written.writeheader()
        written.writerows(rows)
    return name


@pytest.mark.parametrize("model", SETTINGS)
def test_the_same_rows_have_the_same_scores_however_the_table_is_written(model: str) -> None:
    first = predict(model, "bank-a/nodes.csv", "bank-a/edges.csv")
    assert list(first[0]) == ["id", "prediction", "score_-1", "score_1"]
    assert [row["id"] for row in first] == [row["id"] for row in table()]
    assert all(float(row["score_1"]) + float(row["score_-1"]) == pytest.approx(1, abs=1e-5) for row in first)
    assert all((row["prediction"] == "1") == (float(row["score_1"]) > 0.5) for row in first)
    right = [row["prediction"] == one["good"] for row, one in zip(first, table(), strict=True)]
    assert model != "fedridge" or np.mean(right) > 0.8
    rows = [{**row, "income": row["income"].replace(".", ",")} for row in reversed(table())]
    write(rows, ["use", "income", "id", "age"], separator=";")  # another order, and no answers
    again = predict(model, "next.csv", "bank-a/edges.csv")
    assert scores(again) == pytest.approx(scores(first), abs=1e-4)
    assert predict(f"{model}/released.model", "bank-a/nodes.csv", "bank-a/edges.csv") == first
    assert scores(predict(model, "bank-a/")) == pytest.approx(scores(first))


def test_an_unknown_word_and_an_empty_cell_change_their_rows_alone() -> None:
    first = scores(predict("fedsage", write(table(), HEAD)))
    rows = table()
    rows[3]["use"], rows[5]["income"] = "boat", ""
    done = call("predict", "fedsage", write(rows, HEAD), "--out", "scores.csv", "--overwrite")
    assert "1 values of use are words that the schema does not list" in done.stderr
    assert "next.csv: empty cells are read as the schema says: 1 of income" in done.stderr
    second = scores(predict("fedsage", "next.csv"))
    changed = {key for key in first if second[key] != pytest.approx(first[key], abs=1e-5)}
    assert changed == {rows[3]["id"], rows[5]["id"]}


def test_two_classes_are_two_classes_whatever_they_are_called() -> None:
    model = "fedridge"
    first = predict(model, "bank-a/nodes.csv", "bank-a/edges.csv")
    write_banks(Path("other"), "0")
    for name in BANKS:
        shutil.copy(f"other/{name}/nodes.csv", f"{name}/nodes.csv")
    assert call("silo", "describe", "bank-a/", "--label", "good", "--out", "other.toml").exit_code == 0
    run = ["run", "--algorithm", model, *SETTINGS[model], *SILOS, "--schema", "other.toml"]
    assert call(*run, "--policy", "masked", "--seed", "0", "--out", "zeros", "--quiet").exit_code == 0
    second = predict("zeros", "bank-a/nodes.csv", "bank-a/edges.csv")
    assert scores(second) == pytest.approx(scores(first), abs=1e-4)
    assert {row["prediction"] for row in second} == {"0", "1"}


def test_what_is_written_is_for_its_user_alone_and_summed_up() -> None:
    done = call("predict", "fedsage", "bank-a/nodes.csv", "--out", "scores.csv", "--json")
    said = json.loads(done.stdout)
    assert said["rows"] == 60 and said["links"] == 0 and sum(said["predicted"].values()) == 60
    assert said["tables"] == read_schema(Path("schema.toml")).digest
    assert any("no table of links" in note for note in said["notes"])
    assert Path("scores.csv").stat().st_mode & 0o777 == 0o600
    again = call("predict", "fedsage", "bank-a/nodes.csv", "--out", "scores.csv")
    assert again.exit_code == 2 and "--overwrite" in again.stderr


def test_nothing_that_steers_a_terminal_is_written() -> None:
    rows = table()
    rows[0]["id"] = "\x1b[31m=1+1"
    assert predict("fedsage", write(rows, HEAD))[0]["id"] == "?[31m=1+1"


def test_rows_without_names_are_called_by_their_places() -> None:
    rows = predict("fedsage", write(table(), HEAD[1:]))
    assert [row["id"] for row in rows] == [str(number) for number in range(60)]


def test_a_threshold_names_the_positive_class_from_there_on() -> None:
    unsigned()
    path = Path("fedsage/result.json")
    result = held(path)
    result["metrics"]["threshold"] = {"global": 0.8, "low": 0.7, "high": 0.9}
    path.write_text(json.dumps(result))
    for given in ("0.8", "best"):
        rows = predict("fedsage", "bank-a/nodes.csv", "bank-a/edges.csv", "--threshold", given)
        assert all((row["prediction"] == "1") == (float(row["score_1"]) >= 0.8) for row in rows)


def test_sums_by_class_want_many_rows() -> None:
    done = call("predict", "sums", "bank-a/nodes.csv", "--out", "scores.csv")
    assert done.exit_code == 0 and "many rows at a time" in done.stderr


def unsigned() -> None:
    """Whoever made the folder up has sent no manifest."""
    Path("fedsage/manifest.json").unlink(missing_ok=True)


def changed(**parts: Any) -> None:
    """The released model of fedsage with other parts."""
    unsigned()
    path = Path("fedsage/released.model")
    path.write_bytes(bytes(nested.pack({**nested.unpack(path.read_bytes()), **parts})))


def edited(path: str, old: str, new: str) -> Callable[[], None]:
    def edit() -> None:
        text = Path(path).read_text()
        assert old in text
        Path(path).write_text(text.replace(old, new))

    return edit


def nothing() -> None:
    """As it is."""


def without_a_column() -> None:
    write(table(), ["id", "age", "use"], "bank-a/nodes.csv")


def of_links() -> None:
    kept = nested.unpack(Path("fedsage/released.model").read_bytes())
    changed(schema=json.dumps({**json.loads(kept["schema"]), "task": "links"}), tables="")
    Path("fedsage/schema.toml").unlink()
    a_graph(6)


def without_schema() -> None:
    changed(tables="")
    Path("fedsage/schema.toml").unlink()


def a_graph(columns: int, name: str = "graph.pt") -> str:
    draw = torch.Generator().manual_seed(1)
    links = torch.randint(0, 9, (2, 20), generator=draw)
    torch.save(Data(x=torch.rand(9, columns, generator=draw), edge_index=links).to_dict(), name)
    return name


MODEL, NODES = "fedsage/released.model", "bank-a/nodes.csv"
REFUSED: dict[str, tuple[Callable[[], object], list[str], str]] = {
    "no such model": (nothing, ["gone", NODES], "gone"),
    "no run": (nothing, ["bank-a", NODES], "bank-a holds no finished run"),
    "no model": (lambda: (unsigned(), Path(MODEL).unlink()), ["fedsage", NODES], "released.model"),
    "no such table": (nothing, ["fedsage", "gone.csv"], "gone.csv"),
    "no such file": (nothing, ["fedsage", "gone.pt"], "gone.pt"),
    "no such links": (nothing, ["fedsage", NODES, "gone.csv"], "gone.csv"),
    "another column": (without_a_column, ["fedsage", NODES], "'income'"),
    "a word for a number": (edited(NODES, "\nbank-a-07,", "\nbank-a-07,old"), ["fedsage", NODES], "'age'"),
    "a folder that was changed": (edited("fedsage/schema.toml", '"home"', '"house"'), ["fedsage", NODES],
                                  "schema.toml is not as its run left it"),
    "another schema named": (lambda: edited("schema.toml", '"home"', '"house"')(),
                             ["fedsage", NODES, "--schema", "schema.toml"], "schema.toml"),
    "no schema": (without_schema, ["fedsage", NODES], "--schema"),
    "a table without its schema": (without_schema, [MODEL, NODES], "--schema"),
    "a model of links": (of_links, [MODEL, "graph.pt"], "do not fit"),
    "a graph of other columns": (lambda: a_graph(3), ["fedsage", "graph.pt"], "x has 3 columns"),
    "links beside a graph": (lambda: a_graph(3), ["fedsage", "graph.pt", "bank-a/edges.csv"], "edges.csv"),
    "a pickle": (lambda: Path("graph.pt").write_bytes(b"cos\nsystem\n(S'touch PWNED'\ntR."),
                 ["fedsage", "graph.pt"], "graph.pt"),
    "a folder for scores": (lambda: Path("scores.csv").mkdir(), ["fedsage", NODES], "scores.csv"),
    "a threshold that is none": (nothing, ["fedsage", NODES, "--threshold", "high"], "--threshold"),
    "a threshold out of range": (nothing, ["fedsage", NODES, "--threshold", "1.5"], "--threshold"),
    "a threshold nobody chose": (nothing, [MODEL, NODES, "--threshold", "best"], "metrics.threshold"),
    "code that a file names": (lambda: changed(algorithm="evil:Evil"), [MODEL, NODES], "--algorithm"),
    "an algorithm that is none": (lambda: changed(algorithm="fedsagge"), [MODEL, NODES], "fedsage"),
    "no algorithm": (lambda: changed(algorithm=""), [MODEL, NODES], "algorithm"),
    "a schema that is none": (lambda: changed(tables="x = ["), [MODEL, NODES], "released.model"),
    "a number for a text": (lambda: changed(tables=3), [MODEL, NODES], "damaged"),
    "settings of any size": (lambda: changed(settings=json.dumps({"hidden": [2**33, 2**33]})),
                             [MODEL, NODES], "model cannot be built"),
    "weights of another shape": (lambda: changed(state={"head.weight": torch.zeros(2)}),
                                 [MODEL, NODES], "weights"),
    "a file that is cut off": (lambda: Path(MODEL).write_bytes(Path(MODEL).read_bytes()[:200]),
                               [MODEL, NODES], "damaged"),
    "another file of the run": (nothing, ["fedsage/result.json", NODES], "damaged"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_scored_is_refused_by_its_key(case: str) -> None:
    prepare, arguments, key = REFUSED[case]
    prepare()
    done = call("predict", *arguments, "--out", "scores.csv")
    assert done.exit_code == 2 and key in done.stderr, done.output
    assert not Path("scores.csv").is_file() and not Path("PWNED").exists()


@pytest.mark.parametrize(("parts", "key"), [
    ({"state": {"weights": torch.full((6, 2), torch.nan)}}, "weights"),
    ({"state": {"weights": torch.zeros(3, 2)}}, "weights"),
    ({"schema": json.dumps({"features": 2**40, "classes": 2})}, "model cannot be built"),
    ({"settings": json.dumps({"steps": "many"})}, "steps"),
])  # fmt: skip
def test_a_changed_model_without_a_module_allocates_nothing(parts: dict[str, Any], key: str) -> None:
    path = Path("fedridge/released.model")
    kept = nested.unpack(path.read_bytes())
    Path("alone.model").write_bytes(bytes(nested.pack({**kept, **parts, "tables": ""})))
    Path("schema.toml").unlink()
    done = call("predict", "alone.model", a_graph(6), "--out", "scores.csv")
    assert done.exit_code == 2 and key in done.stderr, done.output


def test_a_schema_beside_a_model_that_does_not_hold_it_serves_as_well() -> None:
    first = predict("fedsage", NODES)
    changed(tables="")
    assert predict("fedsage", NODES) == first
    shutil.copy(MODEL, "alone.model")
    assert predict("alone.model", NODES, "--schema", "fedsage/schema.toml") == first


def test_the_schema_goes_with_an_export() -> None:
    assert call("export", "fedsage", "--out", "model.pt").exit_code == 0
    card = Path("model.pt.card.md").read_text()
    assert read_schema(Path("schema.toml")).digest in card and '    values = ["car", "home"]' in card


def test_a_graph_without_a_schema_is_scored_too() -> None:
    run = ["run", "--data", "synthetic-citation", "--set=dataset.nodes=90", "--set=dataset.features=20"]
    run += ["--set=training.hidden=[8,4]", "--rounds", "1", "--policy", "masked", "--quiet", "--out", "plain"]
    assert call(*run).exit_code == 0
    rows = predict("plain", a_graph(20))
    assert [row["id"] for row in rows] == [str(number) for number in range(9)]
    assert {"id", "prediction", "score_0"} <= set(rows[0]) and rows == predict(
        "plain/released.model", "graph.pt"
    )
    done = call("predict", "plain", NODES, "--out", "no.csv")
    assert done.exit_code == 2 and "--schema" in done.stderr


@pytest.mark.filterwarnings("ignore::secure_fedgraph.graph.data.own_graph.DataWarning")
def test_a_silo_scores_by_the_model_that_it_was_given() -> None:
    pytest.importorskip("tomlkit")
    for name in BANKS:
        made = ("silo", "keygen", f"at-{name}", "--name", name, "--data", name, "--schema", "schema.toml")
        assert call(*made).exit_code == 0
    cards = [f"at-{name}/card.toml" for name in BANKS]
    settings = ["--algorithm", "fedsage", *SETTINGS["fedsage"], "--policy", "masked"]
    init = ("federation", "init", *cards, *settings, "--host", "127.0.0.1", "--schema", "schema.toml")
    assert call(*init, "--out", "federation.toml").exit_code == 0
    digest = read_federation(Path("federation.toml")).digest
    assert call("silo", "approve", "at-bank-a", "federation.toml", "--digest", digest).exit_code == 0
    folder = Path("at-bank-a/runs") / digest[:16]
    folder.mkdir(parents=True)
    state = dict(released.read(Path("fedsage"), "fedsage").state)
    torch.save(state, folder / "model.pt")
    first = predict("fedsage", NODES, "bank-a/edges.csv")
    assert predict(str(folder), NODES, "bank-a/edges.csv") == first
    assert predict(str(folder / "model.pt"), NODES, "bank-a/edges.csv") == first
    torch.save({**state, "head.weight": torch.zeros(1)}, folder / "model.pt")
    assert call("predict", str(folder), NODES, "--out", "no.csv").exit_code == 2
    folder.rename(folder.with_name("0" * 16))
    done = call("predict", "at-bank-a/runs/" + "0" * 16, NODES, "--out", "no.csv")
    assert done.exit_code == 2 and "approved" in done.stderr


def test_from_python_a_run_predicts() -> None:
    federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=90, features=16)
    run = sfg.train(sfg.FedSage(hidden=[8], fanout=[2]), federation, "masked", rounds=1, seed=0)
    graph = Data(x=torch.rand(9, 16), edge_index=torch.randint(0, 9, (2, 5)).unique(dim=1))
    found = run.predict(graph)
    assert found.shape == (9, federation.schema.classes)
    assert torch.allclose(found, run.model(graph.x, graph.edge_index).softmax(dim=1), atol=1e-6)
    with pytest.warns(DataWarning, match="colour"):
        assert torch.equal(run.predict(Data(**graph.to_dict(), y=torch.ones(9), colour=torch.ones(9))), found)
    for data, key in ((Data(x=torch.rand(9, 3), edge_index=graph.edge_index), "x"), ([graph], "Data")):
        with pytest.raises(sfg.errors.BadInput, match=key):
            run.predict(data)
    alone = sfg.train(sfg.algorithms.ALGORITHMS["local"](), federation, "plaintext", rounds=1, seed=0)
    with pytest.raises(sfg.errors.BadInput, match="no single model"):
        alone.predict(graph)
