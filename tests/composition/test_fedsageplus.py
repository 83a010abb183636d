"""FedSage+ under every recipe: the owners' exchange binds or is refused, and the server only carries it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import small
import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import LocSagePlus
from secure_fedgraph.core.errors import BadInput, HostileMessage, Refused
from secure_fedgraph.protocol.transcript import everything

SMALL = small.GENERATORS
POLICIES = {
    "plaintext": sfg.policies.plaintext(),
    "masked": sfg.policies.masked(),
    "homomorphic": sfg.policies.homomorphic(),
    "strictest": sfg.policies.strictest(),
    "local_dp": sfg.policies.local_dp(1.0, 0.5),
}


@pytest.fixture(scope="module")
def federation():
    return sfg.federate("synthetic-citation", clients=3, nodes=120, features=20, mean_degree=8.0, seed=0)


def run(federation, policy, keep=None, **settings):
    algorithm = sfg.FedSagePlus(**{**SMALL, **settings})
    extra = {} if keep is None else {"keep": keep}
    return sfg.train(algorithm, federation, policy, rounds=2, seed=0, **extra)


@pytest.fixture(scope="module")
def plain(federation):
    return run(federation, sfg.policies.plaintext(), keep=everything)


def apart(one, other):
    return max(float((one.state[name] - other.state[name]).abs().max()) for name in other.state)


@pytest.mark.parametrize("name", POLICIES)
def test_it_trains_under_each_recipe_that_binds(federation, name):
    found = run(federation, POLICIES[name])
    assert len(found.history) == 2
    assert found.accuracy["global"] > 0


@pytest.mark.parametrize("policy", [sfg.policies.central_dp(1.0, 1.0), sfg.policies.sealed()])
def test_recipes_that_cannot_serve_both_readers_are_refused_before_anything_is_sent(federation, policy):
    with pytest.raises(Refused, match=r"read by (a peer|the server)"):
        run(federation, policy, generator="own")  # by hand, so no other form is taken


def test_two_owners_cannot_mask_one_answer():
    two = sfg.federate("synthetic-citation", clients=2, nodes=80, features=20, seed=0)
    with pytest.raises(Refused, match=r"feedback.*at least 2 contributors and there is 1"):
        run(two, sfg.policies.masked(), generator="own")


def test_the_others_feedback_matters(federation, plain):
    assert apart(run(federation, sfg.policies.plaintext(), alpha=0.0), plain) > 1e-6


@pytest.mark.parametrize("change", [{"generator": "shared"}, {"federated_epochs": 0}])
def test_the_options_train(federation, plain, change):
    assert apart(run(federation, sfg.policies.masked(), **change), plain) > 0


def test_the_server_reads_no_parcel_under_seal(federation, plain):
    """In plaintext it reads every feedback; sealed, the same channels hold nothing it could read."""
    assert len(plain.transcript.view("server").uploads("feedback")) == 2 * 3 * 2
    sealed = run(federation, sfg.policies.masked(), keep=everything)
    view = sealed.transcript.view("server")
    for channel in ("generator", "feedback"):
        assert view.uploads(channel) == []
        assert "sealed" in view.why_unreadable(channel)
    # the asking owner reads the sum of the two others, and nothing of one of them
    asked = sealed.transcript.view("owner-0").sums("feedback")
    assert [seen.clients for seen in asked] == [("owner-1", "owner-2")] * 2


def test_what_the_others_answered_stays_as_it_was_read(federation, monkeypatch):
    """A step is taken from a copy of the sum, also where the sum is of the model's own type."""
    inner, kept = sfg.FedSagePlus.learn, []

    def learn(self, client, answered):
        total = {name: value.float() for name, value in answered.total.items()}
        kept.append((total, {name: value.clone() for name, value in total.items()}))
        inner(self, client, replace(answered, total=total))

    monkeypatch.setattr(sfg.FedSagePlus, "learn", learn)
    run(federation, sfg.policies.plaintext())
    assert len(kept) == 2 * 3
    assert all(torch.equal(value, before[name]) for total, before in kept for name, value in total.items())


def test_an_owner_refuses_an_offer_about_few_nodes(federation):
    """The asking owner's own settings do not bind the others: each insists on its own minimum."""
    greedy = sfg.FedSagePlus(**{**SMALL, "exchange_batch": 2, "minimum_batch": 1})
    strict = sfg.FedSagePlus(**SMALL)
    greedy.feedback = strict.feedback
    with pytest.raises(HostileMessage, match="asked about 2 nodes at once and answers for no fewer than 4"):
        sfg.train(greedy, federation, sfg.policies.plaintext(), rounds=1)


@pytest.mark.parametrize("share", [0, 1, -0.1, float("nan")])
def test_a_share_that_hides_nothing_or_everything_is_refused(share):
    with pytest.raises(BadInput, match="hidden_share"):
        sfg.FedSagePlus(hidden_share=share)


def test_a_batch_below_the_minimum_is_refused():
    with pytest.raises(BadInput, match=r"exchange_batch.*minimum_batch"):
        sfg.FedSagePlus(exchange_batch=8)


def test_locsageplus_sends_nothing_to_the_server(federation):
    found = sfg.train(LocSagePlus(**SMALL), federation, rounds=2, seed=0)
    assert found.charges == ()
    assert found.privacy("client")["epsilon"] == 0


def test_a_generated_feature_changes_its_anchors_prediction(federation):
    """S6: three public re-implementations link generated nodes in the wrong direction only."""
    graph = next(iter(federation.owners.values()))
    from secure_fedgraph.graph.mending import mend
    from secure_fedgraph.models.parameters import glorot

    model = sfg.FedSagePlus(**SMALL).model(federation.schema)
    glorot(model, 1)
    counts = torch.ones(graph.num_nodes, dtype=torch.long)
    generated = torch.zeros(graph.num_nodes, 1, graph.num_features)
    before = model(*(lambda g: (g.x, g.edge_index))(mend(graph, counts, generated)))
    generated[0] = 1.0
    after = model(*(lambda g: (g.x, g.edge_index))(mend(graph, counts, generated)))
    assert not torch.allclose(before[0], after[0])
