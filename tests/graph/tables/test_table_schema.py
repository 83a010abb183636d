"""``schema.toml``: what it may say, and that it comes back as it was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.schema import Task
from secure_fedgraph.graph.tables.schema import parsed, read_schema, schema_text, write_schema

WHOLE = """
schema = "secure-fedgraph/tables/1"
task = "classes"
id = "customer"

[label]
columns = ["ok"]
classes = ["-1", "1"]
positive = "-1"

[[columns]]
name = "Age"
kind = "number"
low = 18
high = 80.5
empty = 40

[[columns]]
name = "Income"
kind = "number"
scale = "quantiles"
quantiles = [0, 10, 1e6]
empty = "refuse"

[[columns]]
name = "Debt"
kind = "number"

[[columns]]
name = 'Use "it"'
kind = "category"
values = ["car", "home\\nand garden", "ü"]
unknown = "car"
empty = "indicator"

[[columns]]
name = "Opened"
kind = "date"
day = 2024-01-01

[[columns]]
name = "Owns"
kind = "yes-no"
empty = "no"

[[columns]]
name = "Note"
kind = "ignored"

[links]
source = "from"
target = "to"
weight = "amount"
directed = true

[[links.columns]]
name = "wire"
kind = "yes-no"
"""
SHORT = 'schema = "secure-fedgraph/tables/1"\n[label]\ncolumns = ["ok"]\nclasses = ["a", "b"]\n'


def test_what_a_schema_says(tmp_path: Path) -> None:
    schema = parsed(WHOLE, "here")
    assert schema.task is Task.CLASSES and schema.class_names == ("-1", "1") and schema.positive == 0
    assert schema.incomplete == ("Debt", "Opened")
    assert schema.feature_names == (
        "constant", "Age", "Income", "Debt", 'Use "it"=car', 'Use "it"=home\nand garden', 'Use "it"=ü',
        'Use "it" is empty', "Opened", "Owns=yes",
    )  # fmt: skip
    assert parsed(schema_text(schema), "again") == schema
    write_schema(schema, tmp_path / "schema.toml")
    assert read_schema(tmp_path / "schema.toml").digest == schema.digest
    assert parsed(WHOLE.replace("low = 18\n", "low = 18.0  # of age\n"), "here").digest == schema.digest
    assert parsed(WHOLE.replace("low = 18\n", "low = 19\n"), "here").digest != schema.digest


def column(**more: Any) -> str:
    values = "".join(f"{key} = {value}\n" for key, value in more.items())
    return f'{SHORT}[[columns]]\nname = "x"\n{values}'


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "schema"),
        ("a = [", "no TOML"),
        ("schema = 'secure-fedgraph/tables/2'", "schema"),
        (SHORT + "more = 1", "more"),
        (SHORT.replace('["a", "b"]', '["a"]'), "one class only"),
        (SHORT.replace('["a", "b"]', '["a", "a"]'), "'a' stands twice"),
        (SHORT.replace('["a", "b"]', "[]"), "label.classes"),
        (SHORT + 'positive = "c"', "label.positive"),
        (SHORT.replace('["ok"]', '["ok", "so"]'), "label.columns"),
        (SHORT.replace("[label]", 'task = "number"\n[label]') + "low = 1", "low and high"),
        (SHORT.replace("[label]", 'task = "link-classes"\n[label]'), "links.label"),
        (SHORT.replace("[label]", 'task = "guess"\n[label]'), "task"),
        (column(kind='"number"', low=1), "low and high"),
        (column(kind='"number"', low=1, high=1), "is not below"),
        (column(kind='"number"', low="-inf", high="inf"), "low"),
        (column(kind='"number"', low="nan", high=1), "low"),
        (column(kind='"number"', empty='"middle"'), "empty"),
        (column(kind='"number"', scale='"quantiles"'), "quantiles"),
        (column(kind='"number"', scale='"quantiles"', quantiles="[2, 1]"), "increasing"),
        (column(kind='"category"', values="[]"), "values"),
        (column(kind='"category"', values='["a", "a"]'), "stands twice"),
        (column(kind='"category"', values='["a"]', unknown='"b"'), "unknown"),
        (column(kind='"category"', values='["a"]', empty='"b"'), "empty"),
        (column(kind='"colour"'), "here: columns.0: kind = 'colour': give one of 'number', 'category'"),
        (column(), "here: columns.0: it has no kind"),
        (column(kind='"yes-no"') + '[[columns]]\nname = "x"\nkind = "ignored"', "'x' stands twice"),
        (column(kind='"yes-no"').replace('"x"', '"ok"'), "'ok' stands twice"),
        (column(kind='"number"').replace('"x"', '"constant"'), "'constant' stands twice"),
        (column(kind='"yes-no"') + '[links]\nsource = "a"\ntarget = "a"', "'a' stands twice"),
        ("a = " + "[" * 9000, "too many lists"),
        ("a = " + "9" * 5000, "a number has thousands of digits"),
        (SHORT.partition("[label]")[0] + "label = 3", "here: label: it is no table"),
        (SHORT.replace('["ok"]', str(["ok"] * 1001)), "here: label.columns: it has more than 1,000 parts"),
        (column(kind='"number"', low='"1"', high=2), "low = '1'"),
        (column(kind='"number"', low="true", high=2), "low = True"),
        (column(kind='"number"', middle="true"), "middle = True"),
        (column(kind='"yes-no"', share='"0.1"'), "share = '0.1'"),
        (column(kind='"date"', day='"2024-01-01"'), "day = '2024-01-01'"),
        (column(kind='"date"', day="0"), "day = 0"),
        (SHORT + "[links]\ndirected = 1", "links.directed = 1"),
        ("\ud800", "no TOML"),
    ],
)
def test_a_schema_that_is_refused(text: str, named: str) -> None:
    with pytest.raises(BadInput, match="here") as raised:
        parsed(text, "here")
    assert named in str(raised.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"x" * 2**23])
def test_a_file_that_is_refused(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "schema.toml").write_bytes(content)
    with pytest.raises(BadInput, match=r"schema\.toml"):
        read_schema(tmp_path / "schema.toml")
