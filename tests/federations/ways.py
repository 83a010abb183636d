"""How the server of a test reaches its clients: in this process, or as silos, by letters."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path

from banks import Calls, Silos, bank, federation_of
from torch_geometric.data import Data

from secure_fedgraph.client import Client
from secure_fedgraph.deployment import silos
from secure_fedgraph.deployment.resident import Resident
from secure_fedgraph.deployment.terms import terms_in

Ask = Callable[[bytes], bytes]
"""What hands a request to one client and gives its reply, or raises what the client refuses with."""
Way = Callable[[Mapping[str, Client]], dict[str, Ask]]


def directly(clients: Mapping[str, Client]) -> dict[str, Ask]:
    return {name: client.handle for name, client in clients.items()}


class Silo(Resident):
    """A resident whose client a test has made."""

    ready: Client

    def _made(self, run: str, after: int, graph: Data, common: str) -> Client:
        return self.ready

    def _check_goes_on(self, made: Client) -> None:
        """Nothing: these clients keep no memory, and what they do after a restart is the test's."""


def by_letters(root: Path, clients: Mapping[str, Client]) -> dict[str, Ask]:
    """The clients as silos, at which one run was begun; each request is a letter to one of them."""
    small = {name: bank(number, nodes=4) for number, name in enumerate(clients)}
    made: Silos = federation_of(root, small, algorithm="fedavg", policy="plaintext", rounds=1)
    for name, client in clients.items():
        folder = made.folder(name)
        made.residents[name] = silo = Silo(folder, folder.keys(), terms_in(folder.approved()), small[name])
        silo.ready = client
    transport = silos.Silos(Calls(made), made.approved, tolerant=True)
    transport.gather(len(clients), grace=0, until=5)
    after = max(client.answered for client in clients.values())
    transport.connect(made.approved.run, after=after, label="")

    def ask(name: str, raw: bytes) -> bytes:
        answer = transport.reach({name: raw})[name]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return {name: partial(ask, name) for name in clients}


way: ContextVar[Way] = ContextVar("way", default=directly)


@contextmanager
def as_silos() -> Iterator[None]:
    """Has every server that a test makes reach its clients by letters."""
    with ExitStack() as folders:
        token = way.set(
            lambda clients: by_letters(Path(folders.enter_context(tempfile.TemporaryDirectory())), clients)
        )
        try:
            yield
        finally:
            way.reset(token)
