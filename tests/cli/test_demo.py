"""The demo on made data: attacks that read everything, the same ones under noise, and a page of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from command_line import held

from secure_fedgraph.cli import demonstrating as scenes
from secure_fedgraph.cli.main import main
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.schema import DemoResult, as_read
from secure_fedgraph.report.page import render_page, write_report
from secure_fedgraph.report.sections.demo_page import sentence


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["demo", "--data", "synthetic-citation", *arguments])


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    out = tmp_path_factory.mktemp("demo") / "out"
    done = call("--out", str(out), "--debug")
    assert done.exit_code == 0, done.output
    return out, done


def result_of(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = held(out / "demo.json")
    return found


def test_without_protection_label_counts_and_nodes_are_read_exactly(shown: tuple[Path, Result]) -> None:
    scene = result_of(shown[0])["open"]
    assert [one["read"] for one in scene["labels"]] == [one["true"] for one in scene["labels"]]
    assert scene["named"] > 0
    assert scene["right"] >= 0.9 * scene["named"]
    assert scene["node"]["read"] == scene["node"]["true"]
    assert scene["readable"] == scene["uploads"] == 3 * (1 + scenes.ROUNDS)


def test_masks_hide_label_counts_and_not_nodes(shown: tuple[Path, Result]) -> None:
    scene = result_of(shown[0])["masked"]
    assert all(one["read"] is None for one in scene["labels"])
    assert scene["readable"] == 0
    assert scene["right"] > 0


def test_noise_leaves_nothing_and_keeps_the_budget(shown: tuple[Path, Result]) -> None:
    scene = result_of(shown[0])["protected"]
    assert all(one["read"] is None for one in scene["labels"])
    assert (scene["named"], scene["node"], scene["readable"]) == (0, None, 0)
    assert 0 < scene["epsilon"] <= scenes.BUDGET["epsilon"]
    alone, private, free = result_of(shown[0])["prices"]
    assert 0 < private["epsilon"] <= scenes.BUDGET["epsilon"]
    assert (alone["epsilon"], free["epsilon"]) == (0, "inf")


def test_it_ends_with_one_sentence_and_the_page(shown: tuple[Path, Result]) -> None:
    out, done = shown
    assert done.exit_code == 0
    said, page = done.stdout.strip().splitlines()
    assert said == sentence(as_read(DemoResult, result_of(out)))
    assert "the same server read nothing" in said
    assert page == f"Report: {out / 'report.html'}"
    assert {one.name for one in (out / "plots").iterdir()} == {"demo-open.png", "demo-budget.png"}


def test_the_page_is_made_again_from_the_file(shown: tuple[Path, Result]) -> None:
    before = (shown[0] / "report.html").read_text()
    write_report(shown[0])
    assert (shown[0] / "report.html").read_text() == before


def test_a_page_of_a_server_that_still_reads_says_so(shown: tuple[Path, Result]) -> None:
    value = result_of(shown[0])
    value["protected"] |= {"named": 4, "right": 3, "node": value["open"]["node"]}
    page, _ = render_page(as_read(DemoResult, value), shown[0])
    assert "the same server read 4 nodes" in page
    assert "the server still reads something" in page
    assert "the server reads nothing" not in page


def test_an_earlier_demo_is_kept(shown: tuple[Path, Result]) -> None:
    again = call("--out", str(shown[0]))
    assert again.exit_code == BadInput.exit_status
    assert "demo.json" in again.output


@pytest.mark.parametrize(
    "changed", [{"labels": []}, {"labels": [{"owner": "a", "true": [1] * 300_000, "read": None}]}]
)
def test_a_file_that_no_demo_writes_is_refused_by_key(
    shown: tuple[Path, Result], tmp_path: Path, changed: dict[str, Any]
) -> None:
    value = result_of(shown[0])
    value["open"] |= changed
    (tmp_path / "demo.json").write_text(json.dumps(value))
    with pytest.raises(BadInput, match=r"open\.labels"):
        write_report(tmp_path)
