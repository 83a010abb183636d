"""Silos settle a dispute by the files that they hand to each other: one lied in round 4."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from banks import banks, federation_of
from click.testing import CliRunner
from scripts import script

from secure_fedgraph.algorithms.fedavg import FedAvg
from secure_fedgraph.cli.main import main
from secure_fedgraph.core.spending.ledger import read_ledger
from secure_fedgraph.deployment.silo_folder import SiloFolder

pytestmark = pytest.mark.filterwarnings("ignore")
LIE = """
from secure_fedgraph.algorithms.fedavg import FedAvg
from secure_fedgraph.core.upload import Upload

honest = FedAvg.update

def update(self, client, given):
    made = honest(self, client, given)
    lies = client.round == 4 and client.name.endswith(("-a", "-1"))
    return Upload({key: -10 * one for key, one in made.values.items()}) if lies else made

FedAvg.update = update
"""


def typed(*words: Any) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["dispute", *map(str, words)])
    return done.exit_code, done.stdout + done.stderr


def settled(root: Path, names: tuple[str, ...], case: Path) -> Mapping[str, Any]:
    """All steps over a finished run of silos, with the refusals on the way."""
    liar, *honest = names
    key, pub = root / "auditor.key", root / "auditor.key.pub"
    assert typed("--keygen", key)[0] == 0
    assert typed(root / "out", 4, "--auditor", pub)[0] == 0
    before = charges(root, liar)
    assert typed(case, 4, "--sign", root / honest[0])[0] == 0
    status, said = typed(case, 4, "--open", root / honest[0])
    assert (status, "1 of 3 owners signed" in said) == (3, True)
    assert typed(case, 4, "--sign", root / honest[1])[0] == 0
    for name in names:
        status, said = typed(case, 4, "--open", root / name)
        assert status == 0, said
    assert charges(root, liar)[len(before) :] == ["update, opened to an auditor"]
    other = root / "other.toml"
    other.write_text((root / "federation.toml").read_text() + "# another digest\n")
    assert typed("--keygen", root / "stranger.key")[0] == 0
    for keyfile, options, why in (
        (key, ("--federation", other), "give the very file"),
        (root / "stranger.key", ("--federation", root / "federation.toml"), "not the key of the auditor"),
        (key, (), "give --federation FILE"),
    ):
        status, said = typed(case, 4, "--judge", keyfile, *options)
        assert (status, why in said, (case / "judgement.json").exists()) == (2, True, False), said
    status, said = typed(case, 4, "--judge", key, "--federation", root / "federation.toml", "--json")
    assert status == 0, said
    found: Mapping[str, Any] = json.loads(said)
    assert json.loads((case / "judgement.json").read_text()) == found
    return found


def charges(root: Path, name: str) -> list[str]:
    (ledger,) = SiloFolder(root / name).ledgers().values()
    return [one.channel for one in read_ledger(ledger)]


def check(found: Mapping[str, Any], names: tuple[str, ...]) -> None:
    assert found["named"] == {"stands apart": [names[0]]}
    assert found["adds_up"] is True
    assert [one["verdict"] for one in found["owners"]] == ["stands apart", "cleared", "cleared"]


def test_silos_by_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FedAvg, "update", FedAvg.update)  # put back afterwards
    exec(LIE, {})
    data = banks()
    names, options = tuple(data), {"training": {"hidden": [8, 4]}, "protection": {"disputes": 3}}
    made = federation_of(tmp_path, data, algorithm="fedavg", policy="masked", rounds=5, **options)
    made.serve(made.start_all())
    case = tmp_path / "out" / "disputes" / "00004-update"
    check(settled(tmp_path, names, case), names)
    (tmp_path / names[1] / "stranger").mkdir()
    status, said = typed(case, 4, "--sign", tmp_path / names[1] / "stranger")
    assert (status, "identity.key" in said) == (2, True)
    assert typed(case, 3, "--sign", tmp_path / names[1])[0] == 2
    assert typed(tmp_path / "out", 1, "--auditor", tmp_path / "auditor.key.pub")[0] == 2  # long over
    opened = case / "opened" / f"{names[2]}.json"
    opened.write_text(json.dumps({**json.loads(opened.read_text()), "content": "00"}))
    status, said = typed(
        case, 4, "--judge", tmp_path / "auditor.key", "--federation", tmp_path / "federation.toml"
    )
    assert (status, "not opened" in said) == (0, True)


def test_real_silos_over_flower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flwr")
    silos = script("silos")
    (tmp_path / "lying").mkdir()
    (tmp_path / "lying" / "sitecustomize.py").write_text(LIE)
    data = silos.small_silos()
    names, honest = tuple(data), silos.environment
    made = silos.Deployment(tmp_path / "federation", data)
    try:
        asked = ["--algorithm", "fedavg", "--policy", "masked", "--rounds", "5"]
        made.make(*asked, "--set", "protection.disputes=3", "--set", "training.hidden=[4,4]")
        for name in names:
            if name == names[0]:
                path = f"{tmp_path / 'lying'}:{honest().get('PYTHONPATH', '')}"
                monkeypatch.setattr(silos, "environment", lambda path=path: {**honest(), "PYTHONPATH": path})
            made.start(name)
            monkeypatch.setattr(silos, "environment", honest)
        assert made.serve().wait(300) == 0
    finally:
        made.close()
    case = made.root / "out" / "disputes" / "00004-update"
    check(settled(made.root, names, case), names)
