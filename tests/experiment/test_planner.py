"""The planner: what it chooses for a budget, by public facts alone."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.planner import (
    FAINT,
    Candidate,
    Choice,
    asked_experiment,
    choose,
)
from secure_fedgraph.experiment.results import execute, make_federation, run_result
from secure_fedgraph.experiment.schema.run import NO_LEARNING
from secure_fedgraph.federation import Federation, federate
from secure_fedgraph.forms import FormWarning
from secure_fedgraph.graph.data.synthetic import citation

SMALL = {"nodes": 120, "features": 160, "classes": 3}


def planned(policy: str | None = "distributed_dp", **values: Any) -> Choice:
    asked = asked_experiment({"data": "synthetic-citation", "dataset": SMALL, **values})
    return choose(asked, make_federation(asked), policy)


def of(choice: Choice, name: str) -> Candidate:
    return next(one for one in choice.candidates if one.algorithm == name)


def test_class_sums_of_nodes_leave_most_of_a_nodes_budget() -> None:
    choice = planned(epsilon=4, unit="node")
    assert choice.learns and choice.chosen.algorithm == "fedridge"
    assert choice.chosen.form == "training.second_moments=own"
    assert choice.chosen.why == "the least noise for its signal of all that are made for budgets"
    known = [one.noise_to_signal for one in choice.candidates if one.noise_to_signal is not None]
    assert choice.chosen.noise_to_signal == min(known) and len(known) > 3
    assert all(one.why for one in choice.candidates)


def test_where_noise_is_faint_the_most_weights_are_taken() -> None:
    """By the sizes alone: of many nodes a network is trained, of few a regression."""
    large = {**SMALL, "nodes": 20_000}
    asked = asked_experiment({"data": "synthetic-citation", "dataset": large, "epsilon": 8, "unit": "node"})
    choice = choose(asked, make_federation(asked), "distributed_dp")
    ridge = of(choice, "fedridge")
    assert choice.chosen.algorithm == "fedsgd" and choice.chosen.weights > ridge.weights > 0
    assert choice.chosen.noise_to_signal is not None and ridge.noise_to_signal is not None
    assert ridge.noise_to_signal < choice.chosen.noise_to_signal < FAINT
    few = of(planned(epsilon=1, unit="node"), "fedsgd")
    assert few.noise_to_signal is not None and few.noise_to_signal > FAINT


def test_the_figure_of_class_sums() -> None:
    """Noise of sqrt(features) deviations over t n / C, with 0.6 of all nodes, targets of norm 0.5 and one
    round; the largest part of a sum's deviation is the multiplier times what a node moves."""
    ridge = of(planned("central_dp", epsilon=4, unit="node", against="peers"), "fedridge")
    assert ridge.noise_multiplier is not None and ridge.noise_to_signal is not None
    noise = math.sqrt(SMALL["features"]) * ridge.noise_multiplier * 0.5
    signal = 0.5 * (0.6 * SMALL["nodes"]) / SMALL["classes"]
    assert ridge.noise_to_signal == pytest.approx(noise / signal, rel=0.01)


def test_the_figure_of_clipped_updates_does_not_depend_on_how_the_budget_is_cut() -> None:
    """Of r rounds each has a noise that is root r larger, which their sum takes off again."""
    short, long = (of(planned(epsilon=8, unit="client", rounds=r), "fedavg") for r in (4, 64))
    assert short.noise_multiplier is not None and long.noise_multiplier is not None
    assert long.noise_multiplier == pytest.approx(4 * short.noise_multiplier, rel=0.02)
    assert long.noise_to_signal == pytest.approx(short.noise_to_signal, rel=0.02)


def test_more_owners_bear_more_noise() -> None:
    few, many = (of(planned(epsilon=8, unit="client", clients=c), "fedavg") for c in (3, 12))
    assert few.noise_to_signal is not None and many.noise_to_signal is not None
    assert many.noise_to_signal < few.noise_to_signal / 3


def test_a_node_may_be_covered_by_a_form_whose_noise_is_on_sums() -> None:
    choice = planned("masked", epsilon=8, unit="node")
    found = of(choice, "fedsage")
    assert found.policy == "masked" and found.runs_as == "fedsage-steps"
    assert found.noise_multiplier is not None and found.noise_to_signal is not None


def test_where_noise_exceeds_any_signal_nothing_is_recommended() -> None:
    choice = planned(epsilon=0.01, unit="client")
    assert not choice.learns and choice.alone == "local"
    assert choice.least.noise_to_signal is not None and choice.least.noise_to_signal > NO_LEARNING
    with pytest.raises(BadInput, match=r"epsilon 0.01: .*no learning; give a larger epsilon or more owners"):
        _ = choice.chosen


def with_other_values(federation: Federation) -> Federation:
    """Owners of graphs of the same sizes, with other features, links, labels and masks."""
    torch_generator = torch.Generator().manual_seed(1)
    owners = {}
    for name, graph in federation.owners.items():
        other = graph.clone()
        other.x = torch.rand(graph.x.shape, generator=torch_generator)
        other.y = other.y.flip(0)
        other.edge_index = other.edge_index[:, :1]
        other.train_mask = ~other.train_mask
        owners[name] = other
    return replace(federation, owners=owners)


def test_the_choice_reads_no_owners_data() -> None:
    asked = asked_experiment(
        {"data": "synthetic-citation", "dataset": SMALL, "epsilon": 4.0, "unit": "node", "clients": 3}
    )
    one = make_federation(asked)
    assert choose(asked, one, "distributed_dp") == choose(asked, with_other_values(one), "distributed_dp")
    other = federate("synthetic-citation", 3, "louvain", 5, nodes=120, features=160, classes=3)
    assert choose(asked, one, "distributed_dp") == choose(asked, other, "distributed_dp")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"unit": "node"}, "no epsilon: .*give --epsilon 4"),
        ({"unit": "node", "epsilon": 0}, "epsilon = 0: input should be greater than 0"),
        ({"unit": "node", "epsilon": math.nan}, "epsilon = nan"),
        (
            {"unit": "edge", "epsilon": 4},
            "unit 'edge': .*plan with --unit node",
        ),
        ({"unit": "label", "epsilon": 4}, "unit 'label': .*plan with --unit node.* or --unit client"),
        ({"unit": "graph", "epsilon": 4}, "unit 'graph': .*plan with --unit node"),
        ({"unit": "node", "epsilon": 4, "data": "pubmd"}, "unknown dataset 'pubmd': did you mean 'pubmed'"),
        ({"unit": "node", "epsilon": 4, "clients": 500}, "owners is 500"),
        ({"unit": "node", "epsilon": 4, "partition": "vertical"}, "no algorithm covers it"),
    ],
)
def test_what_cannot_be_planned(values: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        planned(**values)


def test_own_data_are_planned_for(tmp_path: Path) -> None:
    place = tmp_path / "mine.pt"
    torch.save(citation(nodes=90, features=8, classes=3).to_dict(), place)
    asked = asked_experiment({"data": str(place), "epsilon": 4, "unit": "node"})
    assert (asked.data, asked.partition) == (str(place), "louvain")


def test_a_run_says_what_its_noise_leaves() -> None:
    """The planner's figure; None where there is no noise."""
    choice = planned(epsilon=4, unit="node")
    asked = choice.experiment.model_copy(update={"algorithm": "fedridge", "policy": "distributed_dp"})
    with pytest.warns(FormWarning):
        told = run_result(execute(asked, None), asked)["noise_to_signal"]
    assert told == pytest.approx(of(choice, "fedridge").noise_to_signal, rel=1e-6)
    open_run = asked.model_copy(update={"policy": "masked", "epsilon": None})
    assert run_result(execute(open_run, None), open_run)["noise_to_signal"] is None
