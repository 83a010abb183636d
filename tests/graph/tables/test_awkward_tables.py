"""Tables as they come: a case a line, taken as meant or refused, by class and key."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.tables.owned import OwnGraph, graph_of, read_tables
from secure_fedgraph.graph.tables.schema import (
    CategoryColumn,
    Column,
    DateColumn,
    IgnoredColumn,
    Label,
    Links,
    NumberColumn,
    TableSchema,
    YesNoColumn,
)

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")

AGE: Column = NumberColumn(name="age", low=0, high=100, empty="indicator")
USE: Column = CategoryColumn(name="use", values=("car", "home"), empty="indicator")
OWNS: Column = YesNoColumn(name="owns", empty="indicator")
SINCE: Column = DateColumn(name="since", day=date(2024, 1, 1), low=0, high=1000)


def schema(*columns: Column, **more: Any) -> TableSchema:
    given: dict[str, Any] = {"label": Label(columns=("ok",), classes=("no", "yes")), "links": Links()}
    return TableSchema(columns=columns or (AGE,), **(given | more))


def read(folder: Path, nodes: bytes, edges: bytes | None, asked: TableSchema, name: str) -> OwnGraph:
    paths = [folder / name]
    paths[0].write_bytes(nodes)
    if edges is not None:
        paths.append(folder / "edges.csv")
        paths[1].write_bytes(edges)
    return graph_of(read_tables("--silo bank: ", paths), asked)


PLAIN = "id,age,ok\n1,20,yes\n2,40,no\n"
WITH_USE = "id,age,use,owns,ok\n1,20,{},{},yes\n2,40,home,no,no\n"
IS = {20: -0.6, 40: -0.2, 0: 0.0, 1.5: -0.97, 1234: 1.0}
"""A number -> itself on the scale of 0 to 100; an empty cell is in the middle."""

# name of the case -> the file, and the first row's age (0: empty)
NUMBERS: dict[str, tuple[bytes, float]] = {
    "as it should be": (PLAIN.encode(), 20),
    "a byte order mark": (b"\xef\xbb\xbf" + PLAIN.encode(), 20),
    "UTF-16": (PLAIN.encode("utf-16"), 20),
    "lines of Windows": (PLAIN.replace("\n", "\r\n").encode(), 20),
    "lines of old Macs": (PLAIN.replace("\n", "\r").encode(), 20),
    "no line at the end": (PLAIN.rstrip().encode(), 20),
    "empty lines": (PLAIN.replace("\n", "\n\n").encode(), 20),
    "semicolons": (PLAIN.replace(",", ";").encode(), 20),
    "tabs": (PLAIN.replace(",", "\t").encode(), 20),
    "bars": (PLAIN.replace(",", "|").encode(), 20),
    "a separator that is named": (b"sep=;\r\n" + PLAIN.replace(",", ";").encode(), 20),
    "decimal commas": (b"id;age;ok\n1;1,5;yes\n2;40,25;no\n", 1.5),
    "decimal commas in quotes": (b'id,age,ok\n1,"1,5",yes\n2,"40,25",no\n', 1.5),
    "thousands with points": (b"id;age;ok\n1;1.234,5;yes\n2;40;no\n", 1234),
    "thousands with commas": (b'id,age,ok\n1,"1,234.5",yes\n2,40,no\n', 1234),
    "spaces after commas": (PLAIN.replace(",", ", ").encode(), 20),
    "spaces around names": (PLAIN.replace("age", " age ").encode(), 20),
    "spaces before quotes": (b'id, age, ok\n1, "20", "yes"\n2, "40", "no"\n', 20),
    "another order of columns": (b"ok,age,id\nyes,20,1\nno,40,2\n", 20),
    "another case of names": (b"ID,Age,OK\n1,20,yes\n2,40,no\n", 20),
    "columns that nobody agreed on": (b"id,age,more,ok\n1,20,x,yes\n2,40,y,no\n", 20),
    "an index of pandas": (b",id,age,ok\n0,1,20,yes\n1,2,40,no\n", 20),
    "an index that pandas read": (b"Unnamed: 0,id,age,ok\n0,1,20,yes\n1,2,40,no\n", 20),
    "an index in the place of ids": (b",age,ok\n0,20,yes\n1,40,no\n", 20),
    "a column of nothing at the end": (b"id,age,ok,\n1,20,yes,\n2,40,no,\n", 20),
    "rows of nothing": (b"id,age,ok\n1,20,yes\n,,\n2,40,no\n,,\n", 20),
    "a row twice": (b"id,age,ok\n1,20,yes\n1,20,yes\n2,40,no\n", 20),
    "an empty cell": (b"id,age,ok\n1,,yes\n2,40,no\n", 0),
    "a word for nothing": (b"id,age,ok\n1,NA,yes\n2,40,no\n", 0),
    "a number in scientific writing": (b"id,age,ok\n1,2.0e1,yes\n2,40,no\n", 20),
    "a plus": (b"id,age,ok\n1,+20,yes\n2,40,no\n", 20),
    "whole labels": (b"id,age,ok\n1,20,YES\n2,40,No\n", 20),
    "no label in a row": (b"id,age,ok\n1,20,yes\n2,40,\n", 20),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_a_table_that_is_taken(case: str, tmp_path: Path) -> None:
    nodes, age = NUMBERS[case]
    made = read(tmp_path, nodes, None, schema(), "nodes.csv")
    assert made.data.feature_names == ["constant", "age", "age is empty"]
    assert made.data.x[0].tolist() == pytest.approx([1.0, IS[age], float(age == 0)], abs=1e-6)
    assert made.data.x[1, 1].item() == pytest.approx(-0.2, abs=0.01)
    assert made.data.y.tolist() == [1, -1 if case == "no label in a row" else 0]
    assert len(made.data.x) == 2 and made.data.task == "classes" and made.data.positive == 1


@pytest.mark.parametrize("name", ["nodes.csv.gz", "nodes.tsv", "nodes.tsv.gz", "NODES.CSV"])
def test_names_of_files(name: str, tmp_path: Path) -> None:
    content = PLAIN.replace(",", "\t" if "tsv" in name else ",").encode()
    made = read(tmp_path, gzip.compress(content) if name.endswith("gz") else content, None, schema(), name)
    assert made.data.x[0].tolist() == pytest.approx([1, -0.6, 0])


# the cell, and what becomes of it: columns car, home, other, empty, or that of yes and no
CELLS: dict[str, tuple[str, str, list[float], list[float]]] = {
    "listed words": ("car", "yes", [1, 0, 0, 0], [1, 0]),
    "quotes": ('"car"', '"yes"', [1, 0, 0, 0], [1, 0]),
    "another case": ("Car", "YES", [1, 0, 0, 0], [1, 0]),
    "spaces": (" car ", " no ", [1, 0, 0, 0], [-1, 0]),
    "an unknown word": ("boat", "true", [0, 0, 1, 0], [1, 0]),
    "empty cells": ("", "", [0, 0, 0, 1], [0, 1]),
    "a separator in quotes": ('"car, home"', "f", [0, 0, 1, 0], [-1, 0]),
    "a line in quotes": ('"car\nhome"', "ja", [0, 0, 1, 0], [1, 0]),
    "quotes in quotes": ('"""car"""', "nein", [0, 0, 1, 0], [-1, 0]),
    "0 and 1": ("car", "1", [1, 0, 0, 0], [1, 0]),
    "0 and 1 as decimals": ("car", "0.0", [1, 0, 0, 0], [-1, 0]),
}


@pytest.mark.parametrize("case", CELLS)
def test_words(case: str, tmp_path: Path) -> None:
    use, owns, of_use, of_owns = CELLS[case]
    nodes = WITH_USE.format(use, owns).encode()
    made = read(tmp_path, nodes, None, schema(USE, OWNS), "nodes.csv")
    assert made.data.feature_names[1:5] == ["use=car", "use=home", "use=other", "use is empty"]
    assert made.data.x[0].tolist() == [1.0, *of_use, *of_owns]
    assert made.data.x[1].tolist() == [1.0, 0, 1, 0, 0, -1, 0]


@pytest.mark.parametrize(
    ("letters", "word"),
    [("latin-1", "café"), ("cp1252", "café €"), ("utf-16", "café ☕"), ("utf-8", "café ☕")],
)
def test_letters(letters: str, word: str, tmp_path: Path) -> None:
    column = CategoryColumn(name="use", values=(word, "home"))
    nodes = f"id,use,ok\n1,{word},yes\n2,home,no\n".encode(letters)
    made = read(tmp_path, nodes, None, schema(column), "nodes.csv")
    assert made.data.x[0].tolist() == [1, 1, 0, 0]
    assert any("letters" in note for note in made.notes) == (letters != "utf-8")


@pytest.mark.parametrize(
    "written",
    ["2023-12-31", "2023-12-31T11:59:00Z", "2023-12-31 11:59", "31.12.2023", "31/12/2023", "12/31/2023"],
)
def test_dates(written: str, tmp_path: Path) -> None:
    nodes = f"id,since,ok\n1,{written},yes\n2,,no\n".encode()
    made = read(tmp_path, nodes, None, schema(SINCE), "nodes.csv")
    assert made.data.x.tolist() == [[1, pytest.approx(-0.998)], [1, 0]]


def types_of_arrow() -> dict[str, Any]:
    return {
        "whole numbers with nothing": pa.array([20, None], pa.int32()),
        "small whole numbers": pa.array([20, 40], pa.uint8()),
        "decimals": pa.array([Decimal("20.00"), Decimal("40.00")]),
        "halves": pa.array(np.array([20, 40], np.float16)),
        "not a number": pa.array([20.0, math.nan]),
        "words that are numbers": pa.array(["20", "40"], pa.large_string()),
        "a dictionary": pa.array(["20", "40"]).dictionary_encode(),
    }


@pytest.mark.parametrize("case", types_of_arrow())
@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow"])
def test_types_of_arrow(case: str, suffix: str, tmp_path: Path) -> None:
    age = types_of_arrow()[case]
    table = pa.table({"id": [1, 2], "age": age, "ok": [True, False], "list": [[1], [2]]})
    path = tmp_path / f"nodes{suffix}"
    if suffix == ".parquet":
        pq.write_table(table, path)
    elif suffix == ".feather":
        feather.write_feather(table, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    label = Label(columns=("ok",), classes=("False", "True"))
    also: tuple[Column, ...] = (AGE, IgnoredColumn(name="list"))
    ignoring = graph_of(read_tables("--silo bank: ", [path]), schema(*also, label=label))
    assert ignoring.notes == () and ignoring.data.x.shape == (2, 3)
    with pytest.raises(BadInput, match="'list' is of type list"):
        graph_of(read_tables("--silo bank: ", [path]), schema(NumberColumn(name="list"), label=label))
    made = graph_of(read_tables("--silo bank: ", [path]), schema(label=label))
    assert made.data.x[0].tolist() == pytest.approx([1, -0.6, 0]) and made.data.y.tolist() == [1, 0]
    assert made.ids == ("1", "2") and any("'list' is not in the schema" in note for note in made.notes)


def test_line_breaks_in_cells_are_counted(tmp_path: Path) -> None:
    made = read(tmp_path, b'id,age,note,ok\n1,20,"a\n2,40,b",yes\n3,40,c,no\n', None, schema(), "nodes.csv")
    assert any("1 value with line breaks" in note for note in made.notes)


def test_dates_and_words_of_arrow(tmp_path: Path) -> None:
    day = date(2023, 12, 31)
    table = pa.table(
        {
            "id": ["a", "b"],
            "since": pa.array([datetime(2023, 12, 31, 5, tzinfo=UTC), None]),
            "since_day": pa.array([day, day]),
            "use": pa.array(["car", None]).dictionary_encode(),
            "owns": pa.array([True, None]),
            "ok": ["yes", "no"],
        }
    )
    pq.write_table(table, tmp_path / "nodes.parquet")
    also = SINCE.model_copy(update={"name": "since_day"})
    made = graph_of(read_tables("", [tmp_path / "nodes.parquet"]), schema(SINCE, also, USE, OWNS))
    near = pytest.approx(-0.998)
    assert made.data.x.tolist() == [[1, near, near, 1, 0, 0, 0, 1, 0], [1, 0, near, 0, 0, 0, 1, 0, 1]]


REFUSED: dict[str, tuple[bytes, str]] = {
    "an empty file": (b"", "empty"),
    "names alone": (b"id,age,ok\n", "no rows"),
    "a name without an end": (b"id,age,ok," + b"x" * 301 + b"\n1,2,yes,3\n", "301 characters"),
    "no column that was agreed on": (b"id,ok\n1,yes\n", "'age'"),
    "no label": (b"id,age\n1,20\n", "'ok'"),
    "no ids": (b"age,ok\n1,yes\n", "'id'"),
    "a word in the place of a number": (b"id,age,ok\n1,20,yes\n2,old,no\n", "row 3, column 'age' is 'old'"),
    "a class that nobody agreed on": (b"id,age,ok\n1,20,yes\n2,40,maybe\n", "row 3, column 'ok' is 'maybe'"),
    "a word that may be no label": (b"id,age,ok\n1,20,NA\n2,40,no\n", "row 2, column 'ok' is 'NA'"),
    "commas and points": (b"id;age;ok\n1;1,5;yes\n2;2.5;no\n", "row 3, column 'age' is '2.5'"),
    "a comma that may be either": (b'id,age,ok\n1,"1,234",yes\n2,5,no\n', "row 2, column 'age' is '1,234'"),
    "a point that may be either": (
        b"id;age;more;ok\n1;1.234;1,5;yes\n2;5.678;2,5;no\n",
        "row 2, column 'age' is '1.234'",
    ),
    "infinite": (b"id,age,ok\n1,1e999,yes\n2,5,no\n", "row 2, column 'age'"),
    "two rows of an id": (b"id,age,ok\n1,20,yes\n2,40,no\n\n1,21,yes\n", "row 5, column 'id' is '1'"),
    "a row without an id": (b"id,age,ok\n1,20,yes\n,40,no\n", "row 3, column 'id'"),
    "a row that is too long": (b"id,age,ok\n1,20,yes\n2,40,no,1\n", "row 3 has 4 cells"),
    "a row that is too short": (b"id,age,ok\n1,20,yes\n2,40\n", "row 3 has 2 cells"),
    "a quote that does not end": (b'id,age,ok\n1,20,no\n2,"20,yes\n3,40,no\n', "row 3: a quote is opened"),
    "a quote in the last column": (b'id,age,ok\n1,20,no\n2,20,"yes\n3,40,no\n', "row 3: a quote is opened"),
    "a quote after a space": (b'id, age, ok\n1, 20, no\n2, 20, "yes\n3, 40, no', "row 3: a quote is opened"),
    "a row that is too long after a line": (b'id,age,ok\n"1\n",20,no,1\n', "row 2 has 4 cells over 2 lines"),
    "a cell as long as a file": (b"id,age,ok\n1,20," + b"x" * 2**24 + b"\n", "a row is longer than 8 MiB"),
    "a column twice": (b"id,age,age,ok\n1,20,20,yes\n", "'age' twice"),
    "two columns that differ in case": (b"id,Age,AGE,ok\n1,20,20,yes\n", "'Age' and 'AGE'"),
    "a column without a name": (b"id,,age,ok\n1,x,20,yes\n", "column 2"),
    "two separators": (b"id;age,ok\n1;20,yes\n2;30,no\n", "separated by"),
    "no text": (b"PAR1\0\0\0\1", "zero bytes"),
    "a split of another name": (b"id,age,ok,split\n1,20,yes,train\n2,30,no,tests\n", "row 3, column 'split'"),
    "a list": (b"[1, 2, 3]", "nodes.csv"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_table_that_is_refused(case: str, tmp_path: Path) -> None:
    nodes, named = REFUSED[case]
    with pytest.raises(BadInput) as raised:
        read(tmp_path, nodes, None, schema(), "nodes.csv")
    assert named in str(raised.value) and "--silo bank: nodes.csv" in str(raised.value)


@pytest.mark.parametrize(
    ("column", "cell", "named"),
    [
        (NumberColumn(name="x", low=0, high=1, empty="refuse"), "", "is empty"),
        (YesNoColumn(name="x", empty="refuse"), "", "is empty"),
        (YesNoColumn(name="x"), "perhaps", "yes or no"),
        (YesNoColumn(name="x"), "2", "yes or no"),
        (CategoryColumn(name="x", values=("a",), empty="refuse"), "", "is empty"),
        (CategoryColumn(name="x", values=("a",), unknown="refuse"), "b", "does not list"),
        (SINCE.model_copy(update={"name": "x"}), "2024-02-31", "a date"),
        (SINCE.model_copy(update={"name": "x"}), "01/02/2024", "a date"),
        (SINCE.model_copy(update={"name": "x"}), "20", "a date"),
    ],
)
def test_a_cell_that_is_refused(column: Column, cell: str, named: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=named) as raised:
        read(tmp_path, f"id,x,ok\n1,{cell},yes\n2,,no\n".encode(), None, schema(column), "nodes.csv")
    assert "row 2, column 'x'" in str(raised.value)


def test_of_dates_with_slashes_the_cell_that_is_none_is_named(tmp_path: Path) -> None:
    nodes = b"id,since,ok\n1,01/02/2024,yes\n2,13/02/2024,no\n3,today,no\n"
    with pytest.raises(BadInput, match="row 4, column 'since' is 'today'"):
        read(tmp_path, nodes, None, schema(SINCE), "nodes.csv")


@pytest.mark.parametrize(
    "content",
    [b"PAR1", b"", b"ARROW1\0\0", b"FEA1" + b"\0" * 40, b"\x1f\x8b\x08", b"\xff\xff\xff\xff\x10\0\0\0"],
)
@pytest.mark.parametrize("name", ["nodes.parquet", "nodes.feather", "nodes.arrow", "nodes.csv.gz"])
def test_a_file_that_is_none_of_its_kind(content: bytes, name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=name):
        read(tmp_path, content, None, schema(), name)


NODES = b"id,age,ok\n007,20,yes\n7,40,no\nx,60,no\n"
LINKS: dict[str, tuple[bytes, list[tuple[int, int]], str]] = {
    "leading zeros": (b"source,target\n007,x\n", [(0, 2), (2, 0)], ""),
    "both directions": (b"source,target\n007,x\nx,007\n", [(0, 2), (2, 0)], ""),
    "a link twice": (b"source,target\n007,x\n007,x\n", [(0, 2), (2, 0)], "1 link that stood before"),
    "unknown ids": (b"source,target\n007,x\n8,x\nx,9\n", [(0, 2), (2, 0)], "2 links to unknown ids"),
    "no end": (b"source,target\n007,x\n,x\n", [(0, 2), (2, 0)], "1 link without an end"),
    "a loop": (b"source,target\nx,x\n", [(2, 2)], ""),
    "semicolons and another case": (b"Target;Source\nx;007\n", [(0, 2), (2, 0)], "'Source' is taken for"),
    "other columns": (b"source,target,note\n007,x,hi\n", [(0, 2), (2, 0)], "'note' is not in the schema"),
}


@pytest.mark.parametrize("case", LINKS)
def test_links(case: str, tmp_path: Path) -> None:
    edges, ends, said = LINKS[case]
    made = read(tmp_path, NODES, edges, schema(), "nodes.csv")
    assert [tuple(one) for one in made.data.edge_index.t().tolist()] == ends
    assert said in "; ".join(made.notes) and bool(made.notes) == bool(said)


def test_ends_that_pandas_wrote_as_decimals_are_ids(tmp_path: Path) -> None:
    edges = b"source,target\n1.0,2.0\n2.00e+00,3\n"
    nodes = b"id,age,ok\n1,20,yes\n2,40,no\n3,60,no\n"
    made = read(tmp_path, nodes, edges, schema(), "nodes.csv")
    assert made.data.edge_index.tolist() == [[0, 1, 1, 2], [1, 2, 0, 1]]


@pytest.mark.parametrize(
    ("edges", "named"),
    [
        (b"source,target,weight\n1,2,1\n", "no link of the table has two ids"),
        (b"source,weight\n007,1\n", "'target'"),
        (b"source,target,weight\n007,x,1\nx,007,2\n", "row 3, column 'source': the link 'x' to '007'"),
        (b"source,target,weight\n007,x,\n", "row 2, column 'weight' is empty"),
        (b"source,target,weight\n007,x,much\n", "row 2, column 'weight' is 'much'"),
        (b"", "edges.csv"),
    ],
)
def test_links_that_are_refused(edges: bytes, named: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as raised:
        read(tmp_path, NODES, edges, schema(links=Links(weight="weight")), "nodes.csv")
    assert named in str(raised.value) and "edges.csv" in str(raised.value)


def test_a_table_is_never_larger_than_a_file_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secure_fedgraph.graph.tables.reading.MOST", 10_000)
    words = pa.table({"a": ["word" * 500] * 1000})
    coded = pa.table({"a": words["a"].dictionary_encode()})
    write: dict[str, Callable[[Path], object]] = {
        "nodes.csv": lambda path: path.write_bytes(b"a,b\n" + b"1,2\n" * 5000),
        "nodes.csv.gz": lambda path: path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 50_000)),
        "nodes.parquet": lambda path: pq.write_table(pa.table({"a": [0] * 5000}), path),
        "nodes.feather": lambda path: feather.write_feather(pa.table({"a": [0] * 5000}), path),
        "words.parquet": lambda path: pq.write_table(words, path),
        "coded.parquet": lambda path: pq.write_table(coded, path),
        "coded.feather": lambda path: feather.write_feather(coded, path),
        "many.parquet": lambda path: pq.write_table(pa.table({"a": [f"{n:050}" for n in range(500)]}), path),
    }
    for name, make in write.items():
        make(tmp_path / name)
        assert ("nodes" in name) or (tmp_path / name).stat().st_size < 10_000
        with pytest.raises(BadInput, match="GiB"):
            read_tables("", [tmp_path / name])
