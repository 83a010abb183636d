"""A server asks for an earlier round again: its samples would be drawn again exactly."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from lying_server import LyingServer, citation, lying_server

import secure_fedgraph as sfg
from secure_fedgraph.client import Client
from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.message import CARRIER, Message
from secure_fedgraph.policies import plaintext

VICTIM = "owner-1"
LABEL = "00003-00000000"


def made(store_folder: Path | None = None) -> LyingServer:
    algorithm = sfg.FedAvg(hidden=(4, 4), fanout=(2, 2), batch=4, optimizer="sgd", learning_rate=0.1)
    return lying_server(algorithm, citation(3, 60, 8), plaintext(), store_folder=store_folder)


def ask(server: LyingServer, number: int) -> object:
    return server.asks("update", server.algorithm.init(server.federation.schema, 0), number)


def outcome(server: LyingServer) -> str:
    return server.noticed()[VICTIM][-1][1]


def test_an_earlier_round_is_refused_and_the_same_or_a_later_one_is_not() -> None:
    server = made()
    for number in (1, 3, 3, 4):
        ask(server, number)
        assert outcome(server) == "answered"
    client = server.clients[VICTIM]
    with pytest.raises(HostileMessage, match="rounds never go back"):
        client.handle(request(server, 3))
    ask(server, 4)
    assert outcome(server) == "answered"


def request(server: LyingServer, number: int, channel: str = "update", step: str = "answer") -> bytes:
    server.courier._exchange += 1
    return Message(
        run=server.courier.run,
        round=number,
        exchange=server.courier._exchange,
        channel=channel,
        step=step,
        sender="server",
        recipient=VICTIM,
        cohort=server.federation.names,
        body=wire.encode(server.algorithm.init(server.federation.schema, 0)),
    ).to_bytes()


def test_set_up_is_round_0_and_does_not_come_again() -> None:
    server = made()
    ask(server, 1)
    with pytest.raises(HostileMessage, match="rounds never go back"):
        server.clients[VICTIM].handle(request(server, 0, CARRIER + "keys", "advertise"))


def test_a_refused_request_moves_no_round() -> None:
    server = made()
    ask(server, 2)
    with pytest.raises(HostileMessage):
        server.clients[VICTIM].handle(request(server, 99, step="no such step"))
    server.clients[VICTIM].handle(request(server, 2))


def test_nor_after_a_resume(tmp_path: Path) -> None:
    server = made(tmp_path)
    ask(server, 3)
    server.clients[VICTIM].save(LABEL)
    again = made(tmp_path)
    again.clients[VICTIM].load(LABEL)
    with pytest.raises(HostileMessage, match="rounds never go back"):
        again.clients[VICTIM].handle(request(again, 2))
    again.clients[VICTIM].handle(request(again, 3))
    with pytest.raises(HostileMessage, match="rounds never go back"):
        again.clients[VICTIM].handle(request(again, 0, CARRIER + "keys", "advertise"))


def test_a_resumed_run_agrees_on_fresh_keys(tmp_path: Path) -> None:
    """Set-up is round 0 and comes after the memory of round 3: once, before any round is asked for."""
    algorithm, federation = sfg.FedAvg(hidden=(4, 4), fanout=(2, 2)), citation(3, 30, 8)
    how = {"policy": sfg.policies.masked(), "out": tmp_path, "seed": 1}
    sfg.train(algorithm, federation, rounds=1, **how)
    again = sfg.train(algorithm, federation, rounds=1, resume=True, **how)
    assert len(again.history) == 1


def test_the_referee_examines_in_the_round_that_was_trained() -> None:
    run = sfg.train(
        sfg.Local(hidden=(4, 4), fanout=(2, 2)), citation(3, 60, 8), sfg.policies.plaintext(), rounds=2
    )
    assert len(run.history) == 2


def test_an_earlier_round_would_draw_the_same_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mend taken out: two sums of one round differ in what the server changed alone."""
    real = Client._refuse_replays

    def careless(self: Client, asked: Message) -> None:
        self._last_round = 0
        real(self, asked)

    monkeypatch.setattr(Client, "_refuse_replays", careless)
    server = made()
    first, _, again, other = (ask(server, number) for number in (1, 2, 1, 3))
    same = [torch.equal(first.total[k], again.total[k]) for k in first.total]  # type: ignore[attr-defined]
    assert all(same)
    differ = [not torch.equal(first.total[k], other.total[k]) for k in first.total]  # type: ignore[attr-defined]
    assert any(differ)
