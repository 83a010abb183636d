"""The form that a family takes under a budget, the settings that keep it as it is, what a command says."""

from __future__ import annotations

from typing import Any

import pytest

import secure_fedgraph as sfg
from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms.fairgraphfl.bounded import FairGraphFLBounded
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import in_form, lead, make_federation
from secure_fedgraph.privacy.input_dp.labels import DividedLabels

CITATION = {"data": "synthetic-citation", "dataset": {"nodes": 300, "features": 24, "classes": 3}}
SKEWED = {
    "data": "synthetic-citation",
    "dataset": {"nodes": 300, "features": 150},
    "partition": "label_skew",
    "split": {"local_tests": 20},
}
COLUMNS = {"data": "synthetic-citation", "dataset": {"nodes": 40, "features": 12}}
MOLECULES = {"data": "synthetic-molecules", "dataset": {"graphs": 90}}
CIAO = {"data": "ciao", "clients": 28, "partition": "by_category"}
SENDS = {"edge": "columns", "label": "columns", "feature": "labels", "node": "nothing"}
MOMENTS = ("training.second_moments=sent", "no network is trained")
NOISED = ("masked", "distributed_dp", "strictest")
# algorithm, data, policies, unit, words of the line
SAID: list[tuple[str, dict[str, Any], tuple[str, ...], str, tuple[str, ...]]] = [
    ("fedsage", CITATION, NOISED, "node", ("training.sums=sent", "one sum over all owners")),
    ("fedego", SKEWED, ("masked", "strictest"), "node", ("training.mash=class",)),
    ("fedego", SKEWED, ("masked",), "label", ("training.mash=class",)),
    *((name, MOLECULES, NOISED, "graph", MOMENTS) for name in ("fedavg", "apflgate", "fairgraphfl")),
    *(
        (
            "glasu",
            COLUMNS,
            ("masked", "strictest", "homomorphic"),
            unit,
            (f"in the form training.sends={sends}", f"epsilon 4 at delta 1e-05 for one {unit}"),
        )
        for unit, sends in SENDS.items()
    ),
    ("apflgate", CIAO, NOISED, "edge", MOMENTS),
]


@pytest.mark.parametrize(
    ("algorithm", "data", "policy", "unit", "words"),
    [
        pytest.param(
            *(name, data, policy, unit, words),
            id=f"{name}-{unit}-{policy}",
            marks=pytest.mark.needs_data("ciao") if data is CIAO else (),
        )
        for name, data, policies, unit, words in SAID
        for policy in policies
    ],
)
def test_the_command_says_the_form_in_its_first_line(
    algorithm: str, data: dict[str, Any], policy: str, unit: str, words: tuple[str, ...]
) -> None:
    experiment = Experiment(
        **{"clients": 3, **data}, algorithm=algorithm, policy=policy, epsilon=4, unit=unit
    )
    federation = make_federation(experiment)
    line = lead(experiment, in_form(experiment, federation), federation)
    assert all(word in line for word in words)
    made = experiment.make_policy()
    divided = algorithm == "fedego" and unit == "label"
    assert made.steps is None and [type(one) for one in made.randomizers] == [DividedLabels] * divided


@pytest.mark.parametrize(
    ("one", "unit", "name"),
    [
        (sfg.FedSage(learning_rate=0.01), "node", "fedsage"),
        (sfg.FedSage(fanout=(3, 3)), "node", "fedsage"),
        (sfg.FedSage(network="ego", hidden=(64, 64)), "node", "fedsage"),
        (sfg.FedSage(), "edge", "fedsage"),
        (sfg.FedSage(), "client", "fedsage"),
        (sfg.FedSage(hidden=(32, 16)), "node", "fedsage-steps"),
        (sfg.FedEgo(batch=8), "node", "fedego"),
        (sfg.FedEgo(), "edge", "fedego"),
        (sfg.FedEgo(), "client", "fedego"),
        (sfg.FedEgo(), "feature", "fedego"),
        (sfg.FedEgoReleased(), "node", "fedego-released"),
        (sfg.FedAvg(learning_rate=0.01), "graph", "fedavg"),
        (sfg.FedAvg(network="gin", hidden=(8, 8)), "graph", "fedavg"),
        (sfg.ApflGate(alpha=0.5), "graph", "apflgate"),
        (sfg.ApflGate(alpha=0.5), "edge", "apflgate"),
        (sfg.ApflGate(), "node", "apflgate"),
        (sfg.ApflGate(), "edge", "apflgate-ratings"),
        (sfg.FedGate(), "graph", "fedgate"),
        (sfg.FedGate(), "edge", "fedgate"),
        (sfg.FairGraphFL(prototypes="none"), "graph", "fairgraphfl"),
        (sfg.FairGraphFL(budget=7.0), "graph", "fairgraphfl-moments"),
        (FairGraphFLBounded(budget=7.0, batch=4), "graph", "fairgraphfl-bounded"),
        (FairGraphFLBounded(), "graph", "fairgraphfl-moments"),
    ],
    ids=lambda given: f"{given.name} {given.by_hand}" if isinstance(given, Algorithm) else given,
)
def test_a_family_takes_its_form_for_its_unit_and_not_over_settings_of_local_training(
    one: Algorithm, unit: str, name: str
) -> None:
    found = one.on_sums(unit)
    assert found.name == name and (found is one) == (one.name == name)
    if found is not one:
        assert all(getattr(found.settings, key) == value for key, value in one.by_hand.items())
