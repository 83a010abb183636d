"""A schema of what owners declare, where one process sees their tables and none was given."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.own_graph import DataWarning
from secure_fedgraph.graph.silos.given import silos_of
from secure_fedgraph.graph.silos.reading import read_places, read_silo, read_silos

pytest.importorskip("pyarrow")

A = "id,age,use,owns,label\na1,20,car,yes,1\na2,40,home,no,-1\n"
B = "label,owns,use,age,id\n-1,1,boat,30,b1\n1,0,car,31,b2\n,0,,31,b3\n"


def silos(folder: Path, **tables: str) -> dict[str, str]:
    places = {}
    for name, text in tables.items():
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "nodes.csv").write_text(text)
        places[name] = str(folder / name)
    return places


def test_words_of_all_owners_and_columns_in_any_order(tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match="no schema was given") as said:
        read = read_silos(silos(tmp_path, a=A, b=B))
    assert len(said) == 1 and "log1p" in str(said[0].message)
    a, b = read["a"], read["b"]
    assert a.feature_names == b.feature_names == [  # type: ignore[union-attr]
        "constant", "age", "use=boat", "use=car", "use=home", "use=other", "use is empty", "owns=yes",
    ]  # fmt: skip
    assert a.class_names == ["-1", "1"] and a.y.tolist() == [1, 0] and b.y.tolist() == [0, 1, -1]  # type: ignore[union-attr]
    assert b.x[:, -1].tolist() == [1, -1, -1] and b.x[:, 2:7].tolist()[2] == [0, 0, 0, 0, 1]  # type: ignore[union-attr]


def test_owners_who_write_a_class_otherwise_are_told(tmp_path: Path) -> None:
    places = silos(tmp_path, a=A.replace(",1\n", ",ok\n"), b=B.replace("\n1,", "\nOK,"))
    with pytest.warns(DataWarning, match="label: 'OK' and 'ok' differ in case"):
        read_silos(places)


def test_labels_of_minus_one_are_a_class_and_those_of_zero_give_the_same(tmp_path: Path) -> None:
    places = silos(tmp_path, a=A, b=B)
    one = read_places(places).data
    zero = read_places(silos(tmp_path, a=A.replace("-1", "0"), b=B.replace("-1", "0"))).data
    for name in places:
        assert torch.equal(one[name].y, zero[name].y) and torch.equal(one[name].x, zero[name].x)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        (["0", "1"], ["0", "3"], "number"),
        (["0", "1"], ["1", "0"], "yes-no"),
        (["yes", "no"], ["1", "0"], "yes-no"),
        (["yes", "no"], ["yes", "perhaps"], "category"),
        (["a", "b"], ["c", ""], "category"),
        (["1", "2"], ["", ""], "number"),
        (["", ""], ["", ""], "ignored"),
        (["4000000000000001", ""], ["4000000000000002", "4000000000000003"], "ignored"),
        (["2020-01-01", ""], ["01.02.2020", "2020-01-01"], "date"),
    ],
)
def test_kinds(one: list[str], other: list[str], kind: str, tmp_path: Path) -> None:
    def text(cells: list[str]) -> str:
        return "id,x,n,label\n" + "".join(f"{row},{cell},{row}.5,{row}\n" for row, cell in enumerate(cells))

    schema = read_places(silos(tmp_path, a=text(one), b=text(other))).schema
    assert schema is not None and schema.columns[0].kind == kind


@pytest.mark.parametrize(
    ("a", "b", "named"),
    [
        (A, B.replace("use", "purpose"), "'purpose'"),
        (A, "id,age,use,owns,more,label\nb1,1,car,no,2,1\n", "'more'"),
        (A, B.replace("30", "old"), "column 'age' holds"),
        (A, B.replace("label", "answer"), "'label'"),
        (A.replace("-1", "1"), B.replace("-1", "1"), "one class only"),
        (A.replace("-1", "").replace(",1\n", ",\n"), "id,age,use,owns,label\nb,1,car,no,\n", "no label"),
        (A, B.replace("\n1,", "\nNA,"), "label 'NA'"),
        (A.replace(",1\n", ",1.5\n"), B.replace("-1", "bad"), "'label' holds words"),
        (A.replace("age", "constant"), B.replace("age", "constant"), "'constant'"),
    ],
)
def test_owners_who_do_not_fit_each_other(a: str, b: str, named: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as raised:
        read_silos(silos(tmp_path, a=a, b=b))
    assert named in str(raised.value) and "nodes.csv" in str(raised.value)


def test_an_owner_alone_may_lack_classes(tmp_path: Path) -> None:
    places = silos(tmp_path, a="id,age,label\n1,2,good\n2,3,\n")
    with pytest.warns(DataWarning):
        data = read_silo("a", places["a"])
    assert data.class_names == ["good"] and data.y.tolist() == [0, -1]  # type: ignore[union-attr]


def test_numbers_are_learned_where_labels_are(tmp_path: Path) -> None:
    read = read_places(silos(tmp_path, a="id,age,label\n1,2,1.5\n2,3,\n", b="id,age,label\n1,2,2\n2,3,3\n"))
    assert read.schema is not None and read.schema.task == "number"
    assert read.data["b"].y.tolist() == [2, 3] and read.data["a"].task == "number"  # type: ignore[union-attr]


def test_ids_that_two_owners_share_are_named(tmp_path: Path) -> None:
    places = silos(tmp_path, a=A, b=B.replace("b1", "a1"))
    with pytest.warns(DataWarning, match=r"'a1'.*holders=2"):
        read_silos(places)
    with pytest.warns(DataWarning) as said:
        read_silos(places, holders=2)
    assert "holders" not in str(said[0].message)


@pytest.mark.filterwarnings("ignore::secure_fedgraph.graph.data.own_graph.DataWarning")
def test_what_owners_declare_is_taken_by_a_federation(tmp_path: Path) -> None:
    a, b = (A + "".join(f"z{n},{n},car,no,{2 * (n % 2) - 1}\n" for n in range(20)) for _ in "ab")
    made = silos_of(read_silos(silos(tmp_path, a=a, b=b)), 0)
    assert made.schema.classes == 2 and made.schema.features == 6
    assert made.names["class_names"] == ("-1", "1")


@pytest.mark.filterwarnings("ignore::secure_fedgraph.graph.data.own_graph.DataWarning")
def test_the_order_of_classes_is_the_schema_s(tmp_path: Path) -> None:
    tables = {name: "id,age,label\n" + "".join(f"{n},{n},{9 + n % 2}\n" for n in range(20)) for name in "ab"}
    made = silos_of(read_silos(silos(tmp_path, **tables)), 0)
    assert made.names["class_names"] == ("9", "10") and made.owners["a"].y.tolist()[:2] == [0, 1]
