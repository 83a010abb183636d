"""Owners' tables from the command line: a schema is drafted, checked at home, agreed on, and used."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import call
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.deployment.federation_file import read_federation
from secure_fedgraph.deployment.own_data import own_part
from secure_fedgraph.deployment.terms import terms_in
from secure_fedgraph.graph.silos.reading import read_silos
from secure_fedgraph.graph.tables.schema import read_schema

pytest.importorskip("pyarrow")
RUN = ["--algorithm", "fedsage", "--set", "training.hidden=[8,4]", "--policy", "masked", "--rounds", "1"]
BANKS = ("bank-a", "bank-b")
SILOS = [word for name in BANKS for word in ("--silo", f"{name}={name}/")]


@pytest.fixture(autouse=True)
def banks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two banks' tables with words; the second writes semicolons and decimal commas, in another order."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for number, name in enumerate(BANKS):
        Path(name).mkdir()
        rows, links = ["id,age,income,use,good"], ["source,target"]
        for row in range(40):
            good = int(rng.integers(2))
            cells = (
                f"{rng.integers(18, 80)},{rng.normal(50 + 30 * good, 5):.2f},{rng.choice(['car', 'home'])}"
            )
            rows.append(f"{name}-{row:02d},{cells},{2 * good - 1}")
            links.append(f"{name}-{row:02d},{name}-{rng.integers(40):02d}")
        if number:
            order = [4, 2, 0, 1, 3]
            split = [line.split(",") for line in rows]
            rows = [";".join(line[at].replace(".", ",") for at in order) for line in split]
        (Path(name) / "nodes.csv").write_text("\n".join(rows) + "\n")
        (Path(name) / "edges.csv").write_text("\n".join(links) + "\n")


@pytest.fixture
def schema() -> Path:
    done = call("silo", "describe", "bank-a/", "--label", "good", "--out", "schema.toml")
    assert done.exit_code == 0, done.output
    assert "age: number" in done.output and "category of 2 words: 'car', 'home'" in done.output
    return Path("schema.toml")


def test_a_draft_needs_a_label_and_keeps_what_was_written(schema: Path) -> None:
    assert read_schema(schema).positive == 1
    again = call("silo", "describe", "bank-a/", "--label", "good", "--out", "schema.toml")
    assert again.exit_code == 2 and "schema.toml is there already" in again.stderr
    done = call("silo", "describe", "bank-b/nodes.csv", "--out", "other.toml")
    assert done.exit_code == 2 and "--label" in done.stderr and "good" in done.stderr
    assert "--silo" not in done.stderr and "--data" not in done.stderr and not Path("other.toml").exists()
    turned = call("silo", "describe", "bank-b", "--label", "good", "--positive", "-1", "--out", "other.toml")
    assert turned.exit_code == 0 and read_schema(Path("other.toml")).positive == 0


def test_tables_are_held_to_a_schema_at_home(schema: Path) -> None:
    done = call("silo", "check", "bank-b/", "--schema", "schema.toml")
    assert done.exit_code == 0 and "use (category): fits 40" in done.stdout
    rows = json.loads(call("silo", "check", "bank-b/", "--schema", "schema.toml", "--json").stdout)["columns"]
    assert {row["column"] for row in rows} == {"age", "income", "use", "good"}
    nodes = Path("bank-b/nodes.csv")
    nodes.write_text(nodes.read_text().replace("car", "boat").replace("\n1;", "\nperhaps;"))
    done = call("silo", "check", "bank-b/", "--schema", "schema.toml")
    assert done.exit_code == 2 and ": nodes.csv, row" in done.stderr and "'perhaps'" in done.stderr
    assert "--data" not in done.stderr and "--silo" not in done.stderr
    assert call("silo", "check", "bank-b/").exit_code == 2


def result(folder: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((Path(folder) / "result.json").read_text())
    return read


def test_a_run_uses_it_and_leaves_it_with_the_result(schema: Path) -> None:
    done = call("run", *RUN, *SILOS, "--schema", "schema.toml", "--out", "out", "--set", "transcript=full")
    assert done.exit_code == 0, done.output
    used = read_schema(Path("out/schema.toml"))
    assert used == read_schema(schema) and result("out")["data"]["tables"] == used.digest
    assert result("out")["data"]["class_names"] == ["-1", "1"]
    schema.unlink()  # whoever looks at the run reads the folder's own
    audited = call("audit", "out", "--attack", "a4", *SILOS)
    assert audited.exit_code == 0, audited.output


def test_a_run_that_goes_on_reads_the_schema_of_its_folder(
    schema: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("secure_fedgraph.experiment.released.keep", leave)
        assert call("run", *RUN, *SILOS, "--schema", "schema.toml", "--out", "out").exit_code != 0
    kept = read_schema(schema)
    schema.write_text("schema = 'of somebody else'")
    done = call("resume", "out", *SILOS)
    assert done.exit_code == 0 and result("out")["data"]["tables"] == kept.digest, done.output


def test_without_one_it_is_made_and_said() -> None:
    for name in BANKS:
        path = Path(name) / "nodes.csv"
        path.write_text(path.read_text().replace("good", "label"))
    done = call("run", *RUN, *SILOS, "--out", "out")
    assert done.exit_code == 0 and "no schema was given" in done.stderr
    assert read_schema(Path("out/schema.toml")).incomplete == ("age", "income")
    one = call("run", *RUN, "--data", "bank-a/", "--clients", "2", "--out", "one")
    assert one.exit_code == 0 and Path("one/schema.toml").is_file()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--data", "cora", "--schema", "schema.toml"], "tables"),
        ([*SILOS, "--schema", "gone.toml"], "gone.toml"),
        ([*SILOS, "--schema", "bank-a/nodes.csv"], "nodes.csv is no TOML"),
        ([*SILOS], "'label'"),
    ],
)
def test_what_does_not_go_together(arguments: list[str], named: str, schema: Path) -> None:
    done = call("run", *RUN, *arguments, "--out", "out")
    assert done.exit_code == 2 and named in done.stderr and not Path("out").exists()


@pytest.mark.filterwarnings("ignore::secure_fedgraph.graph.data.own_graph.DataWarning")
def test_silos_approve_it_with_the_file_of_their_federation(schema: Path) -> None:
    pytest.importorskip("tomlkit")
    for name in BANKS:
        made = ("silo", "keygen", f"at-{name}", "--name", name, "--data", name)
        assert call(*made, "--schema", "schema.toml").exit_code == 0
    cards = [f"at-{name}/card.toml" for name in BANKS]
    init = ("federation", "init", *cards, *RUN, "--host", "127.0.0.1")
    done = call(*init, "--schema", "schema.toml", "--out", "federation.toml")
    assert done.exit_code == 0, done.output
    file = read_federation(Path("federation.toml"))
    assert file.federation.tables == read_schema(schema)
    assert file.federation.data.feature_names == read_schema(schema).feature_names
    done = call("silo", "check", "at-bank-b", "federation.toml", "--data", "bank-b/")
    assert done.exit_code == 0 and "use (category): fits 40" in done.stdout, done.output
    notes = [line.removeprefix("secure-fedgraph: warning: bank-b: ") for line in done.stderr.splitlines()]
    assert notes and not any(one in other for one in notes for other in notes if one is not other), notes
    both = call(
        "silo", "check", "at-bank-b", "federation.toml", "--data", "bank-b/", "--schema", "schema.toml"
    )
    assert both.exit_code == 2 and "--schema" in both.stderr
    assert call("silo", "approve", "at-bank-b", "federation.toml", "--digest", file.digest).exit_code == 0
    # at home a silo's data become what one process makes of them
    together = sfg.federate(read_silos({name: name for name in BANKS}, schema=read_schema(schema)))
    alone = own_part(terms_in(file), "bank-b", "bank-b/")
    assert isinstance(alone, Data)
    for key in ("x", "y", "edge_index", "train_mask", "test_mask"):
        assert torch.equal(alone[key], together.owners["bank-b"][key])
    # another schema is another file, and one that its data do not follow from is none
    text = Path("federation.toml").read_text()
    assert tomllib.loads(text)["tables"]["schema"] == "secure-fedgraph/tables/1"
    Path("other.toml").write_text(text.replace('"home"', '"house"'))
    done = call("silo", "check", "at-bank-b", "other.toml", "--data", "bank-b/")
    assert done.exit_code == 2 and "feature_names" in done.stderr
