"""The models of result files: what writers are held to, what readers are spared, and how they are printed."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from secure_fedgraph.cli.commands.results import schema as command
from secure_fedgraph.core.accounting.events import GaussianRelease
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Reader, Relation, Unit
from secure_fedgraph.core.spending.ledger import Charge
from secure_fedgraph.experiment import schema
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import read_json
from secure_fedgraph.report.page import KINDS, write_report

ROOT = Path(__file__).resolve().parents[2]
CLAIM = {"epsilon": 1.0, "delta": 1e-5, "against": "server", "relation": "zero-out", "accountant": "rdp"}
ESSENTIAL = {
    "run": {"config": {}, "accuracy": {"global": 0.8}},
    "audit": {"config": {}, "cells": []},
    "compare": {"config": {}, "points": []},
}


def whole(kind: str) -> dict[str, Any]:
    """A file of a kind with every key at its default."""
    value = {"schema": f"secure-fedgraph/{kind}/1", **ESSENTIAL[kind]}
    return schema.RESULTS[kind].model_validate(value).model_dump(mode="json", by_alias=True)


@pytest.mark.parametrize("kind", ESSENTIAL)
def test_a_reader_takes_keys_it_does_not_know_and_needs_few(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    value = {"schema": f"secure-fedgraph/{kind}/1", **ESSENTIAL[kind], "of another version": [1]}
    path.write_text(json.dumps(value))
    assert read_json(path, kind) == value
    last = list(ESSENTIAL[kind])[-1]
    del value[last]
    path.write_text(json.dumps(value))
    with pytest.raises(BadInput, match=f"holds no {last}: .*'secure-fedgraph {kind}'"):
        read_json(path, kind)


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("seconds", "1.0", "seconds"),
        ("bytes", {"up": 1.5}, "bytes.up"),
        ("channels", [{"name": 3, "reveal": "sum", "unit": "node"}], "channels.0.name"),
        ("channels", [{"name": "a", "reveal": "sum", "unit": "nodes"}], "channels.0.unit"),
        ("accuracy", {"global": "high"}, "accuracy.global"),
        ("accuracy", {"\x1b[31m\x07": "high"}, "accuracy.?[31m?"),
        ("privacy", {"client": {**CLAIM, "epsilon": -3.0}}, "privacy.client.epsilon"),
        ("privacy", {"client": {**CLAIM, "epsilon": math.nan}}, "privacy.client.epsilon"),
        ("privacy", {"client": {**CLAIM, "readers": {"server": -3}}}, "privacy.client.readers.server"),
        ("privacy", {"client": {**CLAIM, "delta": 2}}, "privacy.client.delta"),
        ("accuracy", {"global": math.nan}, "accuracy.global"),
        ("accuracy", {"global": 0.5, "best_on_test": {"global": math.inf}}, "accuracy.best_on_test.global"),
        ("rounds", [{"round": 1, "owners": {"a": math.nan}}], "rounds.0.owners.a"),
        ("bytes", {"up": -1}, "bytes.up"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(key: str, value: object, place: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**whole("run"), key: value}))
    with pytest.raises(BadInput) as refused:
        read_json(path, "run")
    assert f"{path}: {place} is " in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rounds", "many"),
        ("training", []),
        ("clients", None),
        ("algorithm", {"name": "fedsage"}),
        ("unit", "galaxy"),
        ("delta", "small"),
        ("silos", {"a": 1}),
    ],
)
def test_a_setting_of_another_type_is_named_in_every_file_and_no_page_is_written(
    key: str, value: object, tmp_path: Path
) -> None:
    for kind in ESSENTIAL:
        folder = tmp_path / kind
        folder.mkdir()
        path = folder / KINDS[kind][0]
        path.write_text(json.dumps({**whole(kind), "config": {"new": [1], key: value}}))
        for reads, arguments in ((read_json, (path, kind)), (write_report, (folder,))):
            with pytest.raises(BadInput, match=rf" config\.{key}") as refused:
                reads(*arguments)
            assert str(path) in str(refused.value)
        assert not (folder / "report.html").exists()


def test_the_settings_of_a_file_are_those_of_an_experiment_as_it_is_written() -> None:
    silo = {"silos": {"a": "a.csv"}, "rows": "id", "classes": 2, "budget": {"update": 1}, "ledger": "x"}
    for more in ({}, silo, {"rounds": 3, "epsilon": 1, "links": 2.0, "evaluate_sample": 5}):
        written = json.loads(json.dumps(Experiment(**more).model_dump(mode="json")))
        read = schema.RunResult.model_validate({**whole("run"), "config": written}).config
        assert list(read.items()) == list(written.items())


@pytest.mark.parametrize("epsilon", [0, 0.0, 7.5, "inf"])
def test_a_reader_takes_every_epsilon_that_a_run_can_have(epsilon: object, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**whole("run"), "privacy": {"client": {**CLAIM, "epsilon": epsilon}}}))
    assert read_json(path, "run")["privacy"]["client"]["epsilon"] == epsilon


def test_a_ledger_line_is_a_charge() -> None:
    assert list(schema.LedgerLine.model_fields) == [field.name for field in fields(Charge)]
    noise = {Reader.SERVER: (GaussianRelease(2.0),)}
    charge = Charge("a", "run", 1, 2, "update", Unit.CLIENT, Relation.ZERO_OUT, noise, computational=True)
    line = charge.to_line()
    assert Charge.from_line(line) == charge
    assert schema.LedgerLine.model_validate_json(line).model_dump(mode="json") == json.loads(line)


@pytest.mark.parametrize("file", ["result", "audit", "compare", "ledger"])
def test_the_command_prints_a_schema(file: str) -> None:
    printed = CliRunner().invoke(command, [file], catch_exceptions=False)
    found = json.loads(printed.output)
    assert printed.exit_code == 0 and found == schema.json_schema(schema.FILES[file])
    key = {"result": "privacy", "audit": "verdict", "compare": "pareto", "ledger": "releases"}[file]
    assert key in found["properties"]


def test_the_command_needs_no_torch() -> None:
    # the package's own __init__ is left out: it is about the public names, not about this command
    code = (
        "import sys, types; package = types.ModuleType('secure_fedgraph')\n"
        f"package.__path__ = [{str(ROOT / 'secure_fedgraph')!r}]\n"
        "sys.modules['secure_fedgraph'] = package\n"
        "import secure_fedgraph.cli.commands.results\n"
        "print([name for name in ('torch', 'numpy', 'scipy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
