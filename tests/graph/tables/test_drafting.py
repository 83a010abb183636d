"""A schema drafted from one owner's tables: kinds by what cells hold, and nothing exact given away."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.tables.drafting import described, doubts, draft, look_alike, rounded
from secure_fedgraph.graph.tables.encoding import REACH
from secure_fedgraph.graph.tables.owned import graph_of, read_tables
from secure_fedgraph.graph.tables.reading import read_table
from secure_fedgraph.graph.tables.schema import parsed, schema_text
from secure_fedgraph.graph.tables.table import Table

pytest.importorskip("pyarrow")


def nodes(folder: Path, *columns: tuple[str, Any], rows: int = 60) -> Table:
    labels = ("label", ["yes", "no"])
    given = [(name, [cells[row % len(cells)] for row in range(rows)]) for name, cells in (*columns, labels)]
    lines = [",".join(name for name, _ in given)]
    lines += [",".join(str(cells[row]) for _, cells in given) for row in range(rows)]
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
    return read_table(folder / "nodes.csv", "nodes.csv")


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([1.5, 2, 3], "number"),
        ([1, 2, 3], "number"),
        ([1, 2], "number"),
        ([7], "number"),
        ([0, 1], "yes-no"),
        ([0], "yes-no"),
        (["0.0", "1.0", ""], "yes-no"),
        (["yes", "no"], "yes-no"),
        (["TRUE", "f"], "yes-no"),
        (["a", "b"], "category"),
        (["1", "2", "three"], "category"),
        (["01067", "80331"], "category"),
        (["NA", "3", "4"], "number"),
        (["2024-01-01", "2023-05-06"], "date"),
        (["01.02.2024", "3.4.2023"], "date"),
        (["2024-02-31", "2024-01-01"], "category"),
        (["01/02/2024", "13/1/2024"], "date"),
        (["01/02/2024", "1/13/2024"], "date"),
        (["01/02/2024", "3/4/2024"], "category"),
        (["13/02/2024", "02/13/2024"], "category"),
        ([""], "ignored"),
        ([4000000000000001, 4000000000000002], "ignored"),
        ([f"person {number}" for number in range(60)], "ignored"),
        ([f"place {number}" for number in range(55)], "ignored"),
    ],
)
def test_a_kind_by_what_cells_hold(cells: list[Any], kind: str, tmp_path: Path) -> None:
    (column,) = draft(nodes(tmp_path, ("x", cells))).columns
    assert column.kind == kind and column.name == "x"


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([*range(2, 61), "6.5kg"], "59 of 60 cells look like numbers; row 61 is '6.5kg'"),
        (["1%", "2 %"], "60 of 60 cells look like numbers; row 2 is '1%'"),
        (["", "€ 1.50", "2.50€"], "40 of 40 cells look like numbers; row 3 is '€ 1.50'"),
        (["2024-02-03"] * 59 + ["today"], "59 of 60 cells look like dates; row 61 is 'today'"),
        (["01/02/2024", "3/4/2024"], "60 of 60 cells look like dates; row 2 is '01/02/2024'"),
        ([4000000000000001, 4000000000000002], ""),
        (["01067", "80331"], ""),
        (["1", "2", "three"], ""),
        ([1, 2, 3], ""),
        ([f"person {number}" for number in range(60)], ""),
    ],
)
def test_a_column_that_was_perhaps_meant_otherwise_is_named(
    cells: list[Any], said: str, tmp_path: Path
) -> None:
    table = nodes(tmp_path, ("x", cells))
    found = doubts(table, draft(table).columns)
    assert len(found) == bool(said) and all(said in line and "column 'x'" in line for line in found)


def test_words_that_differ_in_case_or_spaces_are_named(tmp_path: Path) -> None:
    made = draft(nodes(tmp_path, ("town", ["New York", "new  york", "Rome"]), ("kind", ["a", "b", "A"])))
    assert [line.partition(" differ")[0] for line in look_alike(made)] == [
        "town: 'New York' and 'new  york'", "kind: 'A' and 'a'",
    ]  # fmt: skip


def test_a_draft_fits_its_own_table(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    amounts = np.round(rng.lognormal(8, 1, 60), 2).tolist()
    columns: list[tuple[str, Any]] = [
        ("id", [f"c{n}" for n in range(60)]), ("age", list(range(19, 79))), ("amount", amounts),
        ("debt", [-3, 5, ""]), ("paid", ["yes", "no"]),
        ("use", ["car", "home", ""]), ("since", ["2020-02-03", "2021-01-01"]), ("split", ["train", "test"]),
    ]  # fmt: skip
    table = nodes(tmp_path, *columns)
    (tmp_path / "edges.csv").write_text("source,target,weight,kind\nc1,c2,1.5,a\nc2,c3,2,b\n")
    tables = read_tables("", [tmp_path / "nodes.csv", tmp_path / "edges.csv"])
    schema = draft(table, tables.links)
    assert schema.incomplete == () and parsed(schema_text(schema), "again") == schema
    made = graph_of(tables, schema)
    assert all(one.clipped == one.unknown == 0 for one in made.fits) and made.notes == ()
    assert np.abs(made.data.x.numpy()).max() <= REACH and made.data.edge_attr.shape == (4, 3)
    by_name = {one.name: one for one in schema.columns}
    assert by_name["amount"].scale == "log" and by_name["age"].scale == "linear"  # type: ignore[union-attr]
    assert (by_name["debt"].empty, by_name["age"].empty) == ("indicator", "zeros")  # type: ignore[union-attr]
    assert schema.label is not None and schema.label.positive == "yes"
    lines = "\n".join(described(schema))
    exact = [str(one) for one in (min(amounts), max(amounts))]
    assert not any(one in lines for one in exact) and "19" not in lines and "78" not in lines
    assert "paid: yes or no, about 50% are yes" in lines  # a half says as much as another share
    assert "use: category of 2 words: 'car', 'home', and about how often" in lines
    assert "it has empty cells" in lines


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=9))
def test_no_end_of_a_range_is_a_value(values: list[float]) -> None:
    given_values = np.array(values)
    low, high = rounded(given_values)
    assert low < high and low <= given_values.min() and given_values.max() < high
    assert low < given_values.min() or low == 0


@pytest.mark.parametrize(
    ("cells", "task", "classes"),
    [
        (["1", "-1"], "classes", ("-1", "1")),
        (["good", "bad", ""], "classes", ("bad", "good")),
        (["1.0", "0.0", ""], "classes", ("0", "1")),
        (["10", "9", "2"], "classes", ("2", "9", "10")),
        (["1.5", "2.5"], "number", ()),
        ([str(number) for number in range(30)], "number", ()),
    ],
)
def test_labels(cells: list[str], task: str, classes: tuple[str, ...], tmp_path: Path) -> None:
    schema = draft(nodes(tmp_path, ("age", [1, 2, 3]), ("target", cells)), label="target")
    assert schema.task == task and schema.label is not None and schema.label.classes == classes
    if task == "number":
        assert schema.label.low is not None and schema.label.high is not None


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"label": "gone"}, "'gone'"),
        ({"label": "age", "task": "classes"}, "--task number"),
        ({"label": "word", "task": "number"}, "'word'"),
        ({"label": "one"}, "'one'"),
        ({"positive": "maybe"}, "positive"),
        ({"task": "guess"}, "task"),
        ({"task": "links"}, "links"),
        ({"ident": "gone"}, "'gone'"),
    ],
)
def test_a_draft_that_is_refused(more: dict[str, str], named: str, tmp_path: Path) -> None:
    table = nodes(tmp_path, ("age", np.linspace(0, 1, 60).tolist()), ("word", ["a", "b"]), ("one", ["x"]))
    with pytest.raises(BadInput, match=r"nodes\.csv|=") as raised:
        draft(table, **more)
    assert named in str(raised.value)


def test_columns_that_look_like_a_label_are_named(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("name,good,age\na,1,1.5\nb,-1,2.5\nc,1,3.5\n")
    with pytest.raises(BadInput, match=r"--label.*good"):
        draft(read_table(tmp_path / "nodes.csv", "nodes.csv"))


def test_classes_of_links(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,age\na,1\nb,2\nc,3\n")
    (tmp_path / "edges.csv").write_text("source,target,amount,fraud\na,b,10,no\nb,c,20,yes\nc,a,30,\n")
    tables = read_tables("", [tmp_path / "nodes.csv", tmp_path / "edges.csv"])
    schema = draft(tables.nodes, tables.links, label="fraud", task="link-classes")
    data = graph_of(tables, schema).data
    assert data.edge_label.tolist() == [0, 1, -1] and data.edge_label_index.tolist() == [[0, 1, 2], [1, 2, 0]]
    assert data.task == "link-classes" and data.class_names == ["no", "yes"] and data.positive == 1
    assert data.edge_index.shape == (2, 6) and data.edge_attr.shape == (6, 1) and "y" not in data


@pytest.mark.needs_data("tables")
@pytest.mark.parametrize(
    ("file", "label"),
    [("german/german.csv", "GoodCustomer"), ("credit_default/credit.csv", "NoDefaultNextMonth")],
)
def test_tables_that_nobody_here_wrote(file: str, label: str) -> None:
    path = Path(os.environ["SECURE_FEDGRAPH_DATA"]) / "tables" / file
    tables = read_tables("", [path])
    with pytest.raises(BadInput, match=label):
        draft(tables.nodes)
    schema = draft(tables.nodes, label=label)
    made = graph_of(tables, schema)
    assert made.notes == () and all(one.fits == len(tables.nodes) for one in made.fits)
    assert sorted(set(made.data.y.tolist())) == [0, 1]
