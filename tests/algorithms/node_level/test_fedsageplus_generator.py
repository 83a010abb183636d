"""An owner's generator is read where its memory holds it, and trained on copies."""

from __future__ import annotations

import torch

import secure_fedgraph as sfg
from secure_fedgraph.core.protection.bound import Sum
from secure_fedgraph.core.spending.ledger import Ledger

SMALL = {"hidden": (8, 8), "encoder": (8, 8), "generator_hidden": (8, 16), "generator_epochs": 1}


def test_an_epoch_replaces_what_the_memory_held_and_changes_none_of_it() -> None:
    federation = sfg.federate("synthetic-citation", clients=2, nodes=60, features=16)
    algorithm = sfg.FedSagePlus(**SMALL)
    bound = sfg.policies.plaintext().bind(algorithm.in_use, federation.names)
    client, *_ = federation.make_clients(algorithm, bound, "run-1", Ledger(), seed=0)
    client.round = 2
    offer = algorithm.offer(client, {}).values
    kept = client.memory["neighgen"]
    before = {name: value.clone() for name, value in kept.items()}
    assert offer["fgen.outer.weight"].data_ptr() == kept["fgen.outer.weight"].data_ptr()
    answer = {name: torch.ones_like(value).double() for name, value in before.items()}
    answer = {name.removeprefix("fgen."): v for name, v in answer.items() if name.startswith("fgen.")}
    algorithm.learn(client, Sum(answer, ("owner-1",)))
    assert all(torch.equal(value, before[name]) for name, value in kept.items())
    learned = client.memory["neighgen"]
    assert not torch.equal(learned["fgen.outer.weight"], before["fgen.outer.weight"])
    assert not any(value.requires_grad for value in learned.values())
