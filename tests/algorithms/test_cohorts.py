"""Owners who are trained at once: as one by one, and each from its own data alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.training import cohorts
from secure_fedgraph.models.gnn import ManySages
from secure_fedgraph.protocol import meeting
from secure_fedgraph.protocol.transcript import everything

OWNERS, ROUNDS = 6, 3
pytestmark = pytest.mark.filterwarnings("ignore")


def federation(nodes: int = 240):
    return sfg.federate("synthetic-citation", clients=OWNERS, nodes=nodes, features=12, seed=0)


def trained(algorithm, monkeypatch, *, together: bool, policy: str = "plaintext", of=None):
    """A run, and how many owners were trained at once in each round."""
    sizes = []

    def counted(owners):
        sizes.append(len(owners))
        return train_together(owners)

    train_together = cohorts.train_together
    with monkeypatch.context() as patch:
        patch.setattr("secure_fedgraph.algorithms.training.local_training.train_together", counted)
        patch.setattr(meeting, "LEAST", 2 if together else 10**9)
        run = sfg.train(algorithm, of or federation(), policy, rounds=ROUNDS, seed=0, keep=everything)
    return run, sizes


def first_update(run, name: str):
    """What an owner uploads in the first round."""
    return run.transcript.view(name).own_uploads("update")[0].values


SETTINGS = [
    {},
    {"batch": 16, "epochs": 2},
    {"optimizer": "sgd", "learning_rate": 0.1, "weight_decay": 0.01},
    {"fanout": (0, 0), "weight_decay": 0.01},
    {"fanout": (3, 2, 2), "hidden": (8, 8, 4)},
    {"largest_gradient": 0.01},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_as_one_by_one_up_to_rounding(settings, monkeypatch):
    algorithm = sfg.FedAvg(**settings)
    (one, sizes), (other, none) = (
        trained(algorithm, monkeypatch, together=together, policy="masked") for together in (True, False)
    )
    assert sizes == [OWNERS] * ROUNDS and none == []
    for name, value in one.state.items():
        assert np.allclose(value, other.state[name], atol=2e-4), name
    charges = [[replace(one, run="", data="") for one in run.charges] for run in (one, other)]
    assert charges[0] == charges[1]
    sent = [[(n.channel, n.step, n.recipient, n.bytes) for n in run.transcript.sent] for run in (one, other)]
    assert sent[0] == sent[1]


def test_an_owners_upload_depends_on_no_other_owners_data(monkeypatch):
    """Where others' rows are huge, not finite, or of another size, an owner's is the same in every bit."""
    before, _ = trained(sfg.FedSage(), monkeypatch, together=True, policy="masked")
    changed = federation()
    first, second, third, *_ = list(changed.owners.values())[1:]
    first.x = first.x * 1e30
    second.x[:] = float("nan")
    third.train_mask[third.train_mask.nonzero()[3:]] = False
    after, sizes = trained(sfg.FedSage(), monkeypatch, together=True, policy="masked", of=changed)
    assert sizes[0] == OWNERS
    name = next(iter(changed.owners))
    mine, others = (first_update(run, name) for run in (before, after))
    assert mine and all(np.array_equal(value, others[key]) for key, value in mine.items())


def test_a_network_that_mixed_owners_would_be_seen(monkeypatch):
    """The control of the test above: with a sum over rows, another owner's data do show."""
    honest = ManySages.scores

    def mixing(self, weights, trees):
        given = honest(self, weights, trees)
        return given + 0.1 * given.mean(0, keepdim=True)

    monkeypatch.setattr(ManySages, "scores", mixing)
    with pytest.raises(AssertionError):
        test_an_owners_upload_depends_on_no_other_owners_data(monkeypatch)


def test_large_owners_and_models_of_ones_own_are_trained_alone(monkeypatch):
    monkeypatch.setattr("secure_fedgraph.algorithms.training.local_training.LARGEST", 30)
    assert trained(sfg.FedSage(), monkeypatch, together=True)[1] == []
    assert trained(sfg.FedProx(), monkeypatch, together=True)[1] == []
