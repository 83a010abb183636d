"""A server broadcasts weights that overflow where one word is in a client's data: does the client refuse?"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lying_server import LyingServer, bits_read, citation, guessing, huge_at, lying_server, with_secret

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.training import local_training, optimizers
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.privacy.policy import Policy

P = sfg.policies
VICTIM = "owner-0"
"""Whoever is asked first: where nobody recovers, a refusal ends the exchange."""
POLICIES: dict[str, Any] = {
    "local_dp": lambda: P.local_dp(1.0, 200.0),
    "distributed_dp": lambda: P.distributed_dp(1.0, 200.0),
    "masked": P.masked,
    "homomorphic": P.homomorphic,
    "central_dp": lambda: P.central_dp(1.0, 200.0),
}
WORDS = [pytest.param(6, id="6 words"), pytest.param(40, id="40 words", marks=pytest.mark.slow)]


def secret_of(words: int) -> torch.Tensor:
    """Half of the words, drawn."""
    order = torch.randperm(words, generator=torch.Generator().manual_seed(7))
    return torch.isin(torch.arange(words), order[: words // 2])


def played(policy: Policy, optimizer: str, words: int) -> tuple[LyingServer, list[Any], torch.Tensor]:
    """One broadcast a word, and how the victim behaved on each."""
    secret = secret_of(words)
    federation = with_secret(citation(3, 30, words), VICTIM, secret)
    algorithm = sfg.FedAvg(hidden=(4, 4), fanout=(2, 2), batch="full", optimizer=optimizer)
    server = lying_server(algorithm, federation, policy)
    state, behaved = algorithm.init(federation.schema, 0), []
    for word in range(words):
        server.asks("update", huge_at(state, word), word + 1)
        behaved.append(server.noticed()[VICTIM])
    return server, behaved, secret


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize(
    ("policy", "optimizer"), [*((policy, "adam") for policy in POLICIES), ("masked", "sgd")]
)
def test_the_oracle_reads_no_bit(policy: str, optimizer: str, words: int) -> None:
    server, behaved, secret = played(POLICIES[policy](), optimizer, words)
    assert len(set(behaved)) == 1  # answer or refusal, step by step, and every length
    assert {outcome for _, outcome, _ in behaved[0]} == {"answered"}
    assert bits_read(behaved, secret) == guessing(secret)
    charges = [charge for charge in server.ledger.charges if charge.client == VICTIM]
    assert len(charges) == words  # each charged like any other


def refusing(patch: pytest.MonkeyPatch) -> None:
    """The mend taken out: a diverged model is not sent, and steps are taken as they come."""
    packed = Upload.packed

    def finite_only(self: Upload, unit: Any) -> Any:
        if not all(bool(torch.isfinite(value).all()) for value in self.values.values()):
            raise HostileMessage("an upload value is not finite: training diverged")
        return packed(self, unit)

    def step(optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()

    patch.setattr(Upload, "packed", finite_only)
    patch.setattr(local_training, "bound_gradients", lambda parameters, largest: True)
    patch.setattr(local_training, "take_step", step)
    patch.setattr(optimizers, "finite_moments", dict)


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("policy", ["local_dp", "masked"])
def test_clients_that_refuse_what_diverged_give_every_word_away(
    policy: str, words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch)
    _, behaved, secret = played(POLICIES[policy](), "sgd", words)
    assert bits_read(behaved, secret) >= words - 1


def updates(optimizer: str) -> list[dict[str, torch.Tensor]]:
    """The victim's honest updates before and after hostile broadcasts, read in plaintext."""
    words = 6
    federation = with_secret(citation(3, 30, words), VICTIM, secret_of(words))
    algorithm = sfg.FedAvg(hidden=(4, 4), fanout=(2, 2), batch="full", optimizer=optimizer)
    server = lying_server(algorithm, federation, P.plaintext(), keep=lambda *_: True)
    state, found = algorithm.init(federation.schema, 0), []
    client = server.clients[VICTIM]
    for number, given in enumerate((state, *(huge_at(state, w) for w in range(words)), state), start=1):
        client.round = number
        found.append(dict(algorithm.update(client, given).values))
    return [found[0], found[-1]]


def length(update: dict[str, torch.Tensor]) -> float:
    return float(torch.cat([value.flatten() for value in update.values()]).norm())


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_later_honest_rounds_still_learn(optimizer: str) -> None:
    before, after = updates(optimizer)
    assert length(after) > 0.05 * length(before) > 0


def test_moments_that_were_kept_as_they_came_would_spoil_them(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch)
    _, after = updates("adam")
    assert not all(bool(torch.isfinite(value).all()) for value in after.values())


def test_an_owners_own_huge_feature_is_refused_before_the_run() -> None:
    federation = citation(3, 30, 6)
    graph = federation.owners["owner-0"].clone()
    graph.x[2, 1] = 3e38
    with pytest.raises(sfg.errors.BadInput, match=r"x\[2, 1\]"):
        sfg.federate(graph, clients=2, partition="random")
