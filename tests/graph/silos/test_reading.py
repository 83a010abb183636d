"""An owner's own files: what they may hold, and a sentence for what they may not."""

from __future__ import annotations

import math
import pickle
import re
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.silos.reading import digest_of_places, read_silo, read_silos

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.filterwarnings("ignore::secure_fedgraph.graph.data.own_graph.DataWarning")

NODES = "id,age,label,balance,split\nn1,30,ok,1.5,train\nn2,40,fraud,2.5,val\nn3,50,,3.5,test\n"
EDGES = "source,target,weight\nn1,n2,0.5\nn2,n1,0.5\nn3,n3,1\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text(EDGES)
    return tmp_path


def check(data: object) -> None:
    assert isinstance(data, Data)
    assert data.feature_names == ["constant", "age", "balance"]
    scaled = [
        [1, *(math.log1p(one) / math.log1p(1e6) for one in row)] for row in ((30, 1.5), (40, 2.5), (50, 3.5))
    ]
    assert torch.allclose(data.x, torch.tensor(scaled))
    assert data.y.tolist() == [1, 0, -1] and data.class_names == ["fraud", "ok"]
    assert (data.task, data.positive) == ("classes", 0)
    assert data.edge_index.tolist() == [[0, 2, 1], [1, 2, 0]]  # one link in both directions, and a loop
    assert data.edge_weight.tolist() == [0.5, 1.0, 0.5]
    assert [data[key].nonzero().flatten().tolist() for key in ("train_mask", "val_mask", "test_mask")] == [
        [0],
        [1],
        [2],
    ]


@pytest.mark.parametrize("form", ["folder", "files", "parquet"])
def test_tables(form: str, folder: Path) -> None:
    if form == "parquet":
        pandas = pytest.importorskip("pandas")
        for kind in ("nodes", "edges"):
            pandas.read_csv(folder / f"{kind}.csv").to_parquet(folder / f"{kind}.parquet")
            (folder / f"{kind}.csv").unlink()
    check(read_silo("bank", f"{folder}/nodes.csv,{folder}/edges.csv" if form == "files" else str(folder)))


def test_nodes_alone_have_no_links(folder: Path) -> None:
    data = read_silo("bank", str(folder / "nodes.csv"))
    assert isinstance(data, Data) and data.edge_index.shape == (2, 0)


def test_rows_are_named_where_they_are_aligned(folder: Path) -> None:
    data = read_silo("bank", str(folder), rows="id")
    assert isinstance(data, Data) and data["id"] == ["n1", "n2", "n3"]


def test_a_pt_file_of_a_graph_and_of_a_dict(tmp_path: Path) -> None:
    graph = Data(x=torch.ones(2, 1), y=torch.tensor([0, 1]), edge_index=torch.tensor([[0], [1]]))
    for saved in (graph, graph.to_dict()):
        torch.save(saved, tmp_path / "graph.pt")
        read = read_silo("bank", str(tmp_path / "graph.pt"))
        assert isinstance(read, Data) and torch.equal(read.x, graph.x)
    torch.save([graph.to_dict(), graph.to_dict()], tmp_path / "set.pt")
    assert len(read_silo("bank", str(tmp_path / "set.pt"))) == 2


class Bomb:
    def __reduce__(self):
        return (Path.touch, (Path("exploded"),))


def test_no_pickle_of_a_file_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"x": Bomb()}, "bomb.pt")
    Path("plain.pt").write_bytes(pickle.dumps(Bomb()))
    for name in ("bomb.pt", "plain.pt"):
        with pytest.raises(BadInput, match="is no file of tensors alone"):
            read_silo("bank", name)
    assert not Path("exploded").exists()


def test_a_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bank_of_mine.py").write_text(
        "import torch\nfrom torch_geometric.data import Data\n"
        "def load():\n    return Data(x=torch.ones(1, 1))\ndef fails():\n    return 1 / 0\n"
        "def leaves():\n    raise SystemExit(0)\ndef speaks():\n    print('loading')\n    return load()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert isinstance(read_silo("bank", "bank_of_mine:load"), Data)
    with pytest.raises(BadInput, match="fails: ZeroDivisionError"):
        read_silo("bank", "bank_of_mine:fails")
    with pytest.raises(BadInput, match="fails: SystemExit"):
        read_silo("bank", "bank_of_mine:leaves")
    read_silo("bank", "bank_of_mine:speaks")
    assert capsys.readouterr() == ("", "loading\n")  # --json prints one object and nothing else


@pytest.mark.parametrize(
    ("nodes", "edges", "words"),
    [
        ("id,label\nn1,1\nn2,0\n", EDGES, "no column of features"),
        (
            "id,age,label\nn1,3,1\nn1,4,1\n",
            EDGES,
            "row 3, column 'id' is 'n1' as in row 2",
        ),
        ("id,age,label\nn1,3,1\n,4,0\n", EDGES, "row 3, column 'id' is empty"),
        ("id,label,age\nn1,0,3,9\nn2,1,4,9\n", EDGES, "row 2 has 4 cells"),  # age was read as the label
        ("id,label,label,age\nn1,0,0,3\n", EDGES, "column 'label' twice"),  # one was a feature
        ("id,age\nn1,3\n", EDGES, "no column 'label'"),
        ("id,age,label\nn1,3,NA\nn2,3,EU\n", EDGES, "label 'NA'"),
    ],
)
def test_tables_with_mistakes(folder: Path, nodes: str, edges: str, words: str) -> None:
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    with pytest.raises(BadInput, match=re.escape(words)) as raised:
        read_silo("bank", str(folder))
    assert "bank" in str(raised.value)


@pytest.mark.parametrize(
    "place", ["", "nowhere.csv", "a.csv,b.csv,c.csv", "/dev/null", "nodes.txt", "x" * 5000]
)
def test_places_that_are_none(folder: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "nodes.txt").write_text(NODES)
    with pytest.raises(BadInput, match="--silo bank"):
        read_silo("bank", place)
    with pytest.raises(BadInput, match="--silo bank"):
        read_silos({"bank": place})


def test_a_file_that_changes_is_read_again(folder: Path) -> None:
    places = {"bank": str(folder)}
    before, digest = read_silos(places)["bank"], digest_of_places(places)
    assert read_silos(places)["bank"] is before
    (folder / "nodes.csv").write_text(NODES.replace("n1,30", "n1,3100"))
    assert read_silos(places)["bank"] is not before and digest_of_places(places) != digest


def test_ids_are_words_as_they_stand(folder: Path) -> None:
    (folder / "nodes.csv").write_text("id,age,label\n7,3,0\n007,4,1\nNA,5,1\n")
    (folder / "edges.csv").write_text("source,target\n007,NA\n")  # all numbers, or read as missing
    data = read_silo("bank", str(folder), rows="id")
    assert isinstance(data, Data) and data["id"] == ["7", "007", "NA"]
    assert data.edge_index.tolist() == [[1, 2], [2, 1]]


@pytest.mark.parametrize("name", ["id", None])
def test_numbers_of_parquet_name_the_nodes_of_a_csv(folder: Path, name: str | None) -> None:
    pandas = pytest.importorskip("pandas")
    (folder / "nodes.csv").unlink()
    nodes = pandas.DataFrame(
        {"age": [3, 4], "label": pandas.array([1, None], dtype="Int64")}, index=[8.0, 7.0]
    )
    (folder / "edges.csv").write_text("source,target\n7,7\n")
    nodes.rename_axis(name).to_parquet(
        folder / "nodes.parquet"
    )  # an index names rows, with a name or without
    data = read_silo("bank", str(folder))
    assert isinstance(data, Data) and data.edge_index.tolist() == [[1], [1]]
    assert data.y.tolist() == [0, -1] and data.class_names == ["1"]


@pytest.mark.parametrize(
    "other", ["Edges.csv", "edges.txt", "edges.csv.zip", "links.csv", "links.tsv.gz", "LINKS.CSV"]
)
def test_a_table_of_links_under_another_name_is_not_left_out(folder: Path, other: str) -> None:
    (folder / "edges.csv").rename(folder / other)
    with pytest.raises(BadInput, match=re.escape(other)):
        read_silo("bank", str(folder))


def test_what_other_programs_leave_beside_a_table_is_no_table(folder: Path) -> None:
    for name in ("._nodes.csv", "~$nodes.csv"):
        (folder / name).write_text("")
    (folder / "older.csv").mkdir()
    assert read_silo("bank", str(folder))


def test_a_link_to_nowhere_is_no_table_of_links(folder: Path) -> None:
    (folder / "edges.csv").unlink()
    (folder / "edges.csv").symlink_to(folder / "nowhere")
    with pytest.raises(BadInput, match=r"edges\.csv"):
        read_silo("bank", str(folder))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"x": torch.ones(1, 1).expand(10**6, 10**6)},
            "bank: 'graph.pt' is no graph",
        ),  # four bytes in the file
        ({"x": torch.ones(2, 2, device="meta")}, "bank: 'graph.pt' is no graph"),
        ({"_mapping": 5}, "bank: 'graph.pt' is no graph"),
        ({"x": torch.ones(1, 1), "more": {"of": "it"}}, "field 'more' is of type dict"),
        (
            {"x": torch.ones(3, 1), "edge_index": torch.zeros(2, 1, dtype=torch.long).expand(2, 1000)},
            "'edge_index' holds more numbers than its file",
        ),
    ],
    ids=["expanded", "meta", "a private name", "a dict", "expanded links"],
)
def test_fields_that_are_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, object], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(fields, "graph.pt")
    with pytest.raises(BadInput, match=words):
        read_silo("bank", "graph.pt")


def test_a_number_of_nodes_is_not_believed(tmp_path: Path) -> None:
    torch.save({"x": torch.ones(2, 1), "num_nodes": 10**13}, tmp_path / "graph.pt")
    data = read_silo("bank", str(tmp_path / "graph.pt"))
    assert isinstance(data, Data) and data.num_nodes == 2


def test_a_table_of_a_million_columns_is_refused_before_it_is_read(tmp_path: Path) -> None:
    head = ",".join(f"x{number}" for number in range(10**6))
    (tmp_path / "nodes.csv").write_text(head + "\n" + ",".join("1" * 10**6) + "\n")
    (tmp_path / "edges.csv").write_text("source,target\n")
    with pytest.raises(BadInput, match=r"nodes\.csv cannot be read.* columns or more"):
        read_silo("bank", str(tmp_path))
