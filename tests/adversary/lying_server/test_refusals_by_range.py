"""A server chooses how large updates become, and bisects: who refuses a value beyond the limit?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from lying_server import LyingServer, citation, lying_server
from parties import session

import secure_fedgraph as sfg
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.protection.fixed_point import FixedPoint
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.privacy.encrypted_values import valuation

P = sfg.policies
SIZES = [
    pytest.param(4, 5, id="4 clients"),
    pytest.param(20, 14, id="20 clients", marks=pytest.mark.slow),
]
RATE, LIMIT = 100.0, 8.0


def made(clients: int, policy: Any = None) -> LyingServer:
    algorithm = sfg.FedAvg(
        hidden=(4, 4), fanout=(2, 2), batch="full", optimizer="sgd", learning_rate=RATE, head="zeros"
    )
    return lying_server(algorithm, citation(clients, 20 * clients, 8), policy or P.masked(limit=LIMIT))


def saying(server: LyingServer, share: float) -> dict[str, torch.Tensor]:
    """A model that says the first class with one probability to everybody.

    Only the bias of the head counts: its update is ``RATE`` times how far a client's share is from it.
    """
    state = server.algorithm.init(server.federation.schema, 0)
    state = {name: torch.zeros_like(value) for name, value in state.items()}
    state["head.bias"] = torch.tensor([math.log(share / (1 - share)), 0.0])
    return state


def first_class(server: LyingServer, name: str) -> float:
    graph = server.federation.owners[name]
    return float((graph.y[graph.train_mask] == 0).float().mean())


def refusing(self: FixedPoint, matrix: np.ndarray, scope: Any) -> np.ndarray:
    """The mend taken out."""
    if np.abs(matrix).max() > self.limit:
        raise HostileMessage("an upload holds a value beyond the fixed-point limit")
    return np.rint(matrix / self.step).astype(np.int32)


def bisected(server: LyingServer, steps: int) -> dict[str, float]:
    """Each client's share of the first class, as far as its refusals tell: it answers within a window."""
    window, number = LIMIT / RATE, 0
    tried: list[tuple[float, dict[str, bool]]] = []

    def answers(share: float) -> dict[str, bool]:
        nonlocal number
        number += 1
        server.asks("update", saying(server, share), number)
        seen = server.noticed()
        return {name: all(outcome == "answered" for _, outcome, _ in seen[name]) for name in seen}

    # first a share that a client answers, then the upper end of the window in which it does
    tried = [(float(share), answers(float(share))) for share in np.linspace(0.05, 0.95, 7)]
    found = {}
    for name in server.doors:
        low = next((share for share, there in tried if there[name]), None)
        if low is None:
            continue
        high = min(low + 2 * window, 0.999)
        for _ in range(steps):
            middle = (low + high) / 2
            low, high = (middle, high) if answers(middle)[name] else (low, middle)
        found[name] = low - window
    return found


@pytest.mark.parametrize(("clients", "exchanges"), SIZES)
@pytest.mark.parametrize("policy", [P.masked, P.homomorphic], ids=["masked", "homomorphic"])
def test_nobody_refuses_whatever_the_scale(policy: Any, clients: int, exchanges: int) -> None:
    server = made(clients, policy(limit=LIMIT))
    kinds = set()
    for number, share in enumerate(np.linspace(0.001, 0.999, exchanges), start=1):
        total = server.asks("update", saying(server, float(share)), number)
        assert not isinstance(total, Exception)
        # the server learns how many uploads were cut, and not whose they were
        beyond = [abs(first_class(server, n) - share) * RATE > LIMIT * (1 + 1e-6) for n in server.doors]
        assert total.cut == sum(beyond)
        kinds |= {tuple(step for step in seen if step[0] == "answer") for seen in server.noticed().values()}
    assert len(kinds) == 1  # of all clients and all scales: 0 bits
    assert {outcome for ((_, outcome, _),) in kinds} == {"answered"}


def test_refusals_would_read_every_clients_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FixedPoint, "apply", refusing)
    server = made(3)
    read = bisected(server, 5)
    assert read
    for name, share in read.items():
        graph = server.federation.owners[name]
        count = int(graph.train_mask.sum())
        assert round(share * count) == round(first_class(server, name) * count)


def test_without_refusals_the_same_search_reads_nothing() -> None:
    read = bisected(made(3), 2)
    assert len({round(share, 6) for share in read.values()}) == 1  # the same for all: where the search ends


@pytest.mark.parametrize("scale", [1e-3, 127.9, 128.1, 3e38])
def test_long_updates_are_valued_like_any_other(scale: float) -> None:
    found = session(P.homomorphic(), channels=(Valuing.VALUED,), algorithm=Valuing()).set_up()
    for client in found.clients.values():
        client.memory["w"] = torch.tensor([1.0, 0.0, 0.0])
    found.clients["owner-1"].memory["w"] = torch.tensor([scale, 0.0, 0.0])
    name = "owner-1"
    reply = found.tell(found.message(name, "valued_update", exchange=50))
    assert set(reply) == {"domain", "layout", "data"}


def test_a_refusal_by_length_would_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    seal = valuation.EncryptedValues.seal

    def refuse(self: Any, matrix: np.ndarray, scope: Any, party: Any) -> bytes:
        if np.linalg.norm(matrix.astype(np.float64)) > valuation.LONGEST:
            raise HostileMessage("an update is longer than 128")
        return seal(self, matrix, scope, party)

    monkeypatch.setattr(valuation.EncryptedValues, "seal", refuse)
    test_long_updates_are_valued_like_any_other(127.9)
    with pytest.raises(HostileMessage):
        test_long_updates_are_valued_like_any_other(128.1)


class Valuing(sfg.Algorithm):
    """Everybody's vector, valued without being read."""

    name = "valuing"
    VALUED = Channel("valued_update", Reveal.VALUES)

    @VALUED.answer
    def valued(self, client: Any, given: Any) -> Upload:
        return Upload({"w": client.memory["w"]})
