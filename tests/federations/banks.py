"""Small federations of silos in one process: real residents and a real server, with a way made of calls."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from secure_fedgraph.deployment.certificates import AUTHORITY, make_certificates
from secure_fedgraph.deployment.federation_file import (
    CARD_SCHEMA,
    SCHEMA,
    Approved,
    Card,
    Member,
    checked_federation,
    fresh_nonce,
    held_by,
    write_federation,
)
from secure_fedgraph.deployment.own_data import own_part
from secure_fedgraph.deployment.resident import Resident
from secure_fedgraph.deployment.serving import Serving, serve
from secure_fedgraph.deployment.silo_folder import SiloFolder
from secure_fedgraph.deployment.silo_messages import HELLO, Letter
from secure_fedgraph.deployment.terms import terms_in
from secure_fedgraph.graph.data.own_graph import words_of
from secure_fedgraph.graph.silos.alone import declared_by
from secure_fedgraph.graph.silos.given import OwnData

_AUTHORITY: list[str] = []
Watch = Callable[[str, Letter], None]
"""(silo, letter): called before a silo gets a letter that is no greeting; it may end the silo by raising."""


class Killed(Exception):
    """What a test raises where a process is to end without a word."""


def bank(seed: int, nodes: int = 60, features: int = 4, classes: int = 2) -> Data:
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (nodes,), generator=draw)
    x = torch.randn(nodes, features, generator=draw) + y[:, None]
    ends = torch.randint(0, nodes, (2, 2 * nodes), generator=draw)
    links = torch.cat([ends, ends.flip(0)], dim=1).unique(dim=1)
    return Data(x=x, y=y, edge_index=links)


def banks(count: int = 3) -> dict[str, OwnData]:
    return {f"bank-{'abcdefgh'[number]}": bank(number) for number in range(count)}


def clubs(count: int = 3, graphs: int = 20) -> dict[str, OwnData]:
    """Sets of graphs, of two classes."""
    made: dict[str, OwnData] = {}
    for number in range(count):
        one = [bank(100 * number + graph, nodes=6, features=3) for graph in range(graphs)]
        for place, graph in enumerate(one):
            graph.y = torch.tensor([place % 2])
        made[f"club-{number}"] = one
    return made


@dataclass
class Silos:
    """A federation on disk: its file, and each silo's folder with keys and data."""

    root: Path
    approved: Approved
    data: Mapping[str, OwnData]
    residents: dict[str, Resident] = field(default_factory=dict)

    def folder(self, name: str) -> SiloFolder:
        return SiloFolder(self.root / name)

    def place(self, name: str) -> str:
        return str(self.root / f"{name}.pt")

    def start(self, name: str) -> Resident:
        """What a fresh process of a silo is made of."""
        folder = self.folder(name)
        terms = terms_in(folder.approved())
        self.residents[name] = Resident(
            folder, folder.keys(), terms, own_part(terms, name, self.place(name), folder)
        )
        return self.residents[name]

    def start_all(self) -> Calls:
        for name in self.data:
            self.start(name)
        return Calls(self)

    def serve(self, post: Calls, out: str = "out", **how: Any) -> dict[str, Any]:
        settings = {"wait": 5.0, "grace": 0.0, "patience": 30.0, **how}
        events: list[str] = settings.pop("events", [])
        on_round = settings.pop("on_round", lambda row: None)
        return serve(
            self.approved, post, self.root / out, "typed", Serving(**settings), on_round, events.append
        )


class Calls:
    """A post whose letters are answered at once, by residents in this process.

    Args:
        silos: whose residents answer. One that is missing is not signed in.
        watch: sees every letter but greetings before its silo does. Where it raises :class:`Killed`, the
            silo's process ended: nothing is answered, and the silo is gone until it is started again.
    """

    def __init__(self, silos: Silos, watch: Watch = lambda silo, letter: None) -> None:
        self.silos, self.watch = silos, watch
        self.letters: list[tuple[str, Letter]] = []
        self._answers: dict[str, Letter | None] = {}

    def node_of(self, silo: str) -> int:
        return sorted(self.silos.data).index(silo) + 7

    def send(self, letters: Mapping[str, Letter]) -> dict[str, str]:
        tickets = {}
        for name, letter in letters.items():
            tickets[name] = ticket = secrets.token_hex(4)
            resident = self.silos.residents.get(name)
            if resident is None:
                tickets[name] = ""
            elif letter.kind == HELLO:
                self._answers[ticket] = resident.hello(letter, self.node_of(name))
            else:
                self.letters.append((name, letter))
                try:
                    self.watch(name, letter)
                    answer = resident.answer(letter)
                    self.after(name, letter)
                except Killed:
                    self.silos.residents.pop(name, None)
                    self._answers[ticket] = None
                else:
                    self._answers[ticket] = answer
        return tickets

    def after(self, silo: str, letter: Letter) -> None:
        """Called when a silo has computed its answer, before it leaves."""

    def collect(self, tickets: Iterable[str]) -> dict[str, Letter | None]:
        here = [one for one in tickets if one in self._answers]
        return {one: self._answers.pop(one) for one in here[::-1][:1]}  # one at a time, and the last first

    def close(self) -> None:
        pass


def federation_of(root: Path, data: Mapping[str, OwnData], rows: str = "", **experiment: Any) -> Silos:
    """Keys, cards, a file that everybody approved, and data in files."""
    cards = {}
    for name, one in data.items():
        keys = SiloFolder(root / name).make_keys()
        held = one.to_dict() if isinstance(one, Data) else [graph.to_dict() for graph in one]
        torch.save(one if isinstance(held, list) else held, root / f"{name}.pt")
        if rows:
            assert isinstance(one, Data)
            described: dict[str, Any] = {
                "kind": "node",
                "features": one.x.shape[1],
                "classes": int(one.y.max()) + 1 if "y" in one else 0,
                "class_names": words_of(one, "class_names", name),
                "labels": "y" in one,
                "rows": rows,
            }
        else:
            kind, declared = declared_by(name, one)
            described = {"kind": kind, **vars(declared)}
        public = {"identity": keys.identity.public.hex(), "node": keys.public_node}
        cards[name] = Card.model_validate({"schema": CARD_SCHEMA, "name": name, **public, **described})
    approved = write_federation(
        checked_federation(values_of(cards, **experiment), "the federation"), root / "federation.toml"
    )
    for name in data:
        SiloFolder(root / name).approve(approved)
    return Silos(root, approved, data)


def values_of(cards: Mapping[str, Card], **experiment: Any) -> dict[str, Any]:
    extra = {key: experiment.pop(key) for key in ("cohort", "resumptions") if key in experiment}
    members = [
        Member(name=name, identity=card.identity, node=card.node, columns=card.features if card.rows else 0)
        for name, card in cards.items()
    ]
    return {
        "schema": SCHEMA,
        "name": "test",
        "nonce": fresh_nonce(),
        "experiment": experiment,
        "data": held_by(cards, None, 1).model_dump(mode="json"),
        "server": {"host": "127.0.0.1", "port": 9092, "authority": authority()},
        "silos": [one.model_dump() for one in members],
        **extra,
    }


def authority() -> str:
    """A certificate, made once."""
    if not _AUTHORITY:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            make_certificates(Path(folder), "127.0.0.1")
            _AUTHORITY.append((Path(folder) / AUTHORITY).read_text())
    return _AUTHORITY[0]
