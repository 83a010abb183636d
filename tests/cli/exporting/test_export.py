"""``export``: files that answer as the model does, refusals with a reason, and the card."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from click.testing import CliRunner, Result
from command_line import held

from secure_fedgraph.cli.exporting.exporting import rebuilt
from secure_fedgraph.cli.main import main
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment import released
from secure_fedgraph.models.gnn import GraphSage
from secure_fedgraph.protocol import nested

RUN = ["run", "--data", "synthetic-citation", "--set=dataset.nodes=90", "--set=dataset.features=20"]
RUN += ["--set=training.hidden=[8,4]", "--rounds", "1", "--quiet"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    done = CliRunner().invoke(main, [*RUN, "--policy", "masked", "--out", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


def export(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["export", str(folder), *arguments])


def a_graph(nodes: int = 11) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    return torch.randn(nodes, 20, generator=draw), torch.randint(0, nodes, (2, 30), generator=draw)


def the_model(folder: Path) -> torch.nn.Module:
    return rebuilt("fedsage", released.read(folder, "fedsage"))


def test_a_state_dict_is_the_models(finished: Path) -> None:
    done = export(finished, "--out", "model.pt", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    state = torch.load("model.pt", weights_only=True)
    kept = released.read(finished, "fedsage")
    model = GraphSage(kept.schema.features, kept.schema.classes, (8, 4))
    model.load_state_dict(state)
    assert said["parameters"] == sum(value.numel() for value in state.values())
    assert torch.equal(model.eval()(*a_graph()), the_model(finished)(*a_graph()))


def test_it_is_the_model_that_the_result_has_the_digest_of(finished: Path) -> None:
    state = dict(sorted(released.read(finished, "fedsage").state.items()))
    result = held(finished / "result.json")
    assert hashlib.sha256(bytes(nested.pack(state))).hexdigest() == result["weights"]


def test_the_card_names_features_and_classes_in_their_order(finished: Path) -> None:
    result = held(finished / "result.json")
    assert export(finished, "--out", "model.pt").exit_code == 0
    assert f"Outputs, in order: {result['data']['classes']}, without names." in card_of("model.pt")
    folder = another_persons(finished)
    result["data"] |= {"features": 2, "feature_names": ["age", "stay"]}
    result["data"] |= {"classes": 2, "class_names": ["home", "ward, 1 dog"]}
    (folder / "result.json").write_text(json.dumps(result))
    assert export(folder, "--out", "named.pt").exit_code == 0
    card = card_of("named.pt")
    assert "Features, in order: 0 `age`, 1 `stay`." in card
    assert "Outputs, in order: 0 `home`, 1 `ward, 1 dog`." in card
    result["data"]["class_names"] = ["home"]  # fewer names than outputs name none
    (folder / "result.json").write_text(json.dumps(result))
    assert export(folder, "--out", "fewer.pt").exit_code == 0
    assert "Outputs, in order: 2, without names." in card_of("fewer.pt")


def card_of(file: str) -> str:
    return Path(f"{file}.card.md").read_text()


def test_the_card_has_what_the_result_has(finished: Path) -> None:
    assert export(finished, "--out", "model.pt").exit_code == 0
    card, result = Path("model.pt.card.md").read_text(), held(finished / "result.json")
    assert result["data"]["digest"] in card and result["weights"] in card
    (model,) = yaml.safe_load(card.split("---")[1])["model-index"]  # as model hubs read it
    assert model["results"][0]["metrics"][0]["value"] == pytest.approx(result["accuracy"]["global"], abs=1e-4)
    for unit, claim in result["privacy"].items():
        assert f"| {unit} | {claim['epsilon']} | {claim['delta']} |" in card
    for channel in result["channels"]:
        assert f"| {channel['name']} | {channel['reveal']} | {channel['policy']} |" in card
    assert "No audit of this run lies beside it" in card


def test_nothing_is_replaced_unless_it_is_asked_for(finished: Path) -> None:
    Path("model.pt.card.md").write_text("mine")
    assert export(finished, "--out", "model.pt").exit_code == 2
    assert Path("model.pt.card.md").read_text() == "mine" and not Path("model.pt").exists()
    assert export(finished, "--out", "model.pt", "--overwrite").exit_code == 0


@pytest.mark.parametrize(
    ("name", "seeds", "reason"),
    [("fedridge", 1, "the file is gone"), ("apflgate", 1, "its own"), ("fedsage", 2, "seed-0")],
)
def test_a_folder_without_a_model_says_why(finished: Path, name: str, seeds: int, reason: str) -> None:
    other = another_persons(finished, config={"algorithm": name})
    (other / released.NAME).unlink()
    for seed in range(seeds if seeds > 1 else 0):
        (other / f"seed-{seed}").mkdir()
    done = export(other, "--out", "model.pt")
    assert done.exit_code == 2 and released.NAME in done.stderr and reason in done.stderr.replace("\n", " ")


def test_the_file_is_for_its_user_alone_and_goes_with_the_result(finished: Path) -> None:
    assert (finished / released.NAME).stat().st_mode & 0o077 == 0
    from secure_fedgraph.experiment.results import BESIDE

    assert released.NAME in BESIDE


@pytest.mark.parametrize(
    "parts",
    [
        {"schema": json.dumps({"features": 2**40, "classes": 3})},
        {"schema": json.dumps({"features": -1, "classes": 3})},
        {"schema": "[]"},
        {"settings": json.dumps({"hidden": [2**33, 2**33]})},
        {"state": {"head.weight": torch.zeros(2)}},
        {"state": {}},
        {"state": 3},
        {"state": {"head.weight": "text"}},
    ],
)
def test_a_changed_file_allocates_nothing_and_is_refused(finished: Path, parts: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        the_model(with_model(another_persons(finished), **parts))


def another_persons(finished: Path, **keys: Any) -> Path:
    """A copy of the run whose result's file says something else."""
    folder = Path("theirs")
    shutil.copytree(finished, folder)
    (folder / "manifest.json").unlink()  # whoever made the folder up has sent none
    result = held(folder / "result.json")
    for key, value in keys.items():
        result[key] = {**result[key], **value} if isinstance(value, dict) else value
    (folder / "result.json").write_text(json.dumps(result))
    return folder


def with_model(folder: Path, **values: Any) -> Path:
    kept = nested.unpack((folder / released.NAME).read_bytes())
    (folder / released.NAME).write_bytes(bytes(nested.pack({**kept, **values})))
    return folder


@pytest.mark.parametrize("name", [["evil:Evil"], {"evil:Evil": 1}, 7])
def test_no_code_is_run_because_a_file_names_it_in_another_way(finished: Path, name: object) -> None:
    folder = another_persons(finished, config={"algorithm": name})
    for place in (folder, Path()):
        for module in ("evil.py", "['evil.py", "{'evil.py"):
            (place / module).write_text("open('PWNED', 'w').write('1')")
    done = export(folder, "--out", "model.pt")
    assert done.exit_code == 2
    assert "config.algorithm" in done.stderr
    assert not list(Path().rglob("PWNED"))


def test_settings_that_ask_for_more_layers_than_there_are_weights(finished: Path) -> None:
    folder = another_persons(finished, config={"algorithm": "gcfl"})
    done = export(with_model(folder, settings=json.dumps({"layers": 10**7})), "--out", "model.pt")
    assert done.exit_code == 2
    assert "10000000 layers" in done.stderr


def test_weights_that_become_infinite_are_refused(finished: Path) -> None:
    folder = another_persons(finished)
    state = {name: value.double() * 1e300 for name, value in released.read(folder, "fedsage").state.items()}
    done = export(with_model(folder, state=state), "--out", "model.pt")
    assert done.exit_code == 2
    assert not Path("model.pt").exists()


def test_nothing_is_left_where_the_card_cannot_be_written(finished: Path) -> None:
    Path("model.pt.card.md").mkdir()
    done = export(finished, "--out", "model.pt", "--overwrite")
    assert done.exit_code == 2
    assert not Path("model.pt").exists()


def test_a_card_holds_no_markup_of_others(finished: Path) -> None:
    hostile = "\n# Certified [x](javascript:alert) ![](http://evil/p.png) `\x1b[31m\u202e<b> \ud800"
    folder = another_persons(finished, data={"source": hostile}, form_why=hostile)
    done = export(folder, "--out", "model.pt")
    assert done.exit_code == 0, done.output
    card = Path("model.pt.card.md").read_text()
    for sign in ("\n# Certified", "http://", "<b>", "\x1b", "\u202e"):
        assert sign not in card
    assert not re.search(r"(?<!\\)[\[\]]\S*\(", card)


def test_the_verdict_of_another_runs_audit_is_not_lent(finished: Path) -> None:
    folder = another_persons(finished)
    config = held(folder / "result.json")["config"]
    audit = {"schema": "secure-fedgraph/audit/1", "config": config, "cells": [], "verdict": "nothing leaks"}
    (folder / "audit.json").write_text(json.dumps(audit))
    assert export(folder, "--out", "model.pt").exit_code == 0
    assert "nothing leaks" in Path("model.pt.card.md").read_text()
    (folder / "audit.json").write_text(json.dumps({**audit, "config": {**config, "seed": 99}}))
    assert export(folder, "--out", "model.pt", "--overwrite").exit_code == 0
    assert "nothing leaks" not in Path("model.pt.card.md").read_text()
