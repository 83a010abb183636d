"""Settings that cannot work together are refused before anything is sent: key, value and mend."""

from __future__ import annotations

from typing import Any

import pytest
import small
from small_graphs import triangles

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.core.errors import BadInput, Refused
from secure_fedgraph.policies import homomorphic, local_dp, masked, plaintext, strictest


def vertical(clients: int = 3, **split: Any) -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients, "vertical", seed=0, nodes=60, features=18, split=split)


def agents(clients: int = 3) -> sfg.Federation:
    return sfg.federate(triangles(), clients=clients, partition="random", seed=0)


def refused(algorithm: Any, federation: Any, policy: Any, words: str, tmp_path: Any, **more: Any) -> None:
    with pytest.raises((BadInput, Refused), match=words):
        sfg.train(algorithm, federation, policy, rounds=2, out=tmp_path / "run", **more)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "mend"),
    [
        ("glasu", ", or run glasu-one-label-holder"),
        ("glasu-simulated", ", or run glasu-one-label-holder"),
        ("fedbcd", ", or run fedbcd-one-label-holder"),
        ("glasu-standalone", ""),
    ],
)
def test_labels_at_one_client_that_everybody_trains_on(name, mend, tmp_path):
    mend = f"set split.labels=all{mend}$"
    words = f"split.labels = 'one' .*{mend}"
    refused(small.algorithm(name), vertical(labels="one"), plaintext(), words, tmp_path)


def test_labels_at_one_client_that_the_algorithm_knows_of_or_that_a_pool_holds():
    for name in (
        "glasu-one-label-holder",
        "fedbcd-one-label-holder",
        "glasu-centralized",
    ):
        made = sfg.train(small.algorithm(name), vertical(labels="one"), plaintext(), rounds=1)
        assert 0 <= made.accuracy["global"] <= 1


@pytest.mark.parametrize("name", ["glasu", "glasu-standalone", "glasu-centralized"])
def test_a_vertical_method_is_not_scored_in_band(name, tmp_path):
    words = "evaluation = 'in_band': .* set evaluation=referee"
    refused(small.algorithm(name), vertical(), plaintext(), words, tmp_path, evaluation="in_band")


@pytest.mark.parametrize("policy", [masked(limit=4.0), homomorphic(limit=4.0), strictest(masked(limit=4.0))],
                         ids=lambda p: p.name)  # fmt: skip
def test_rows_beyond_the_limit_of_fixed_point(policy, tmp_path):
    words = r"'hidden' holds values up to training.bound = 8, and protection.limit = 4 is less: " \
        r"set protection.limit=8, or training.bound=4"  # fmt: skip
    refused(small.algorithm("glasu"), vertical(), policy, words, tmp_path)


def test_rows_within_the_limit():
    for bound, limit in ((4.0, 4.0), (16.0, 16.0)):
        made = small.algorithm("glasu", bound=bound)
        assert sfg.train(made, vertical(), masked(limit=limit), rounds=1).history


@pytest.mark.parametrize("name", ["glasu", "glasu-simulated", "fedbcd"])
@pytest.mark.parametrize("policy", [plaintext(), masked(), strictest()], ids=lambda p: p.name)
def test_nobody_to_aggregate_with(name, policy, tmp_path):
    words = "clients = 1: .*give 3 or more, or run glasu-centralized"
    refused(small.algorithm(name), vertical(1), policy, words, tmp_path)
    assert ALGORITHMS["glasu-centralized"].pools


def test_prototypes_of_each_agent_need_what_it_said_it_has_as_it_said_it(tmp_path):
    settings = {"prototypes": "each", "vocabulary": "public"}
    words = r"'motif_presence' .*with training.prototypes=each .*use training.prototypes=sum or none"
    refused(small.algorithm("fairgraphfl", **settings), agents(), local_dp(1.0, 1.0), words, tmp_path)
    for fine in ({"prototypes": "sum"}, {"prototypes": "none"}):
        made = small.algorithm("fairgraphfl", **{**settings, **fine})
        assert sfg.train(made, agents(), local_dp(1.0, 1.0), rounds=2).history
    assert sfg.train(small.algorithm("fairgraphfl", **settings), agents(), plaintext(), rounds=2).history


def test_encrypted_values_of_two_clients(tmp_path):
    algorithm = small.algorithm("fairgraphfl", valuation="encrypted", prototypes="none", use_diversity=False)
    words = r"'valued_update': 2 clients .*give 3 clients or more, or set training.valuation=plain"
    refused(algorithm, agents(2), homomorphic(), words, tmp_path)
