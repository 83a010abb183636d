"""A federation of small banks on disk, with keys, cards and a file that all of them approved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from click.testing import CliRunner
from torch_geometric.data import Data

from secure_fedgraph.cli.federating import CERTIFICATES, experiment_values, make_federation
from secure_fedgraph.cli.main import main
from secure_fedgraph.cli.siloing import keygen
from secure_fedgraph.deployment.certificates import AUTHORITY, make_certificates
from secure_fedgraph.deployment.federation_file import Approved, read_card
from secure_fedgraph.deployment.letters import ASK, DONE, Letter
from secure_fedgraph.deployment.own_data import own_part
from secure_fedgraph.deployment.resident import Resident
from secure_fedgraph.deployment.silo_folder import CARD, SiloFolder
from secure_fedgraph.deployment.terms import terms_in

NODES = 60


def bank(seed: int) -> Data:
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 2, (NODES,), generator=draw)
    x = torch.randn(NODES, 4, generator=draw) + y[:, None]
    ends = torch.randint(0, NODES, (2, 2 * NODES), generator=draw)
    return Data(x=x, y=y, edge_index=torch.cat([ends, ends.flip(0)], dim=1).unique(dim=1))


@dataclass(frozen=True)
class Banks:
    """Where everything stands."""

    root: Path
    approved: Approved
    names: tuple[str, ...]

    @property
    def file(self) -> Path:
        return self.root / "federation.toml"

    def place(self, name: str) -> str:
        return str(self.root / f"{name}.pt")

    def resident(self, name: str) -> Resident:
        home = SiloFolder(self.root / name)
        terms = terms_in(home.approved())
        return Resident(home, home.keys(), terms, own_part(terms, name, self.place(name), home))


def made(root: Path, count: int = 3, port: int = 9092) -> Banks:
    names = tuple(f"bank-{'abc'[number]}" for number in range(count))
    for number, name in enumerate(names):
        torch.save(bank(number).to_dict(), root / f"{name}.pt")
        keygen(root / name, name, str(root / f"{name}.pt"), None, False)
    make_certificates(root / CERTIFICATES, "127.0.0.1")
    cards = {name: read_card(root / name / CARD) for name in names}
    given = {"algorithm": "fedsage", "policy": "masked", "rounds": 2}
    settings = {"name": "test", "host": "127.0.0.1", "port": port, "cohort": 0, "classes": None, "holders": 1}
    values = experiment_values(given, ("training.hidden=[8,4]",))
    authority = root / CERTIFICATES / AUTHORITY
    approved = make_federation(cards, values, authority, root / "federation.toml", settings)
    for name in names:
        SiloFolder(root / name).approve(approved)
    return Banks(root, approved, names)


class Echo:
    """A silo that answers every letter with its body."""

    name, ended = "echo", False

    def hello(self, letter: Letter, node: int) -> Letter:
        return Letter(DONE, f"hello {node}".encode())

    def answer(self, letter: Letter) -> Letter:
        return Letter(DONE, letter.body)


def asked(body: bytes = b"question") -> Letter:
    return Letter(ASK, body)


def by_name(silos: Banks) -> Mapping[str, Resident]:
    return {name: silos.resident(name) for name in silos.names}


def in_one_process(banks: Banks) -> str:
    """SHA-256 of the weights that the same silos train in this process."""
    out = banks.root / "one-process"
    silos = [word for name in banks.names for word in ("--silo", f"{name}={banks.place(name)}")]
    given = [
        "--algorithm",
        "fedsage",
        "--policy",
        "masked",
        "--rounds",
        "2",
        "--set",
        "training.hidden=[8,4]",
    ]
    done = CliRunner().invoke(main, ["run", *given, *silos, "--out", str(out), "--quiet"])
    assert done.exit_code == 0, done.output
    return str(json.loads((out / "result.json").read_text())["weights"])
