"""Wrong types on the public Python surface: one line that names the argument, the type and the mend."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_geometric.data import Data, HeteroData

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.synthetic import citation

DATA = citation(60, 16, 3, 0)


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate(DATA, clients=2, partition="random", seed=0)


def train(federation: Any, algorithm: Any = None, policy: Any = "masked", **options: Any) -> sfg.Run:
    return sfg.train(algorithm or sfg.FedSage(hidden=(8, 4)), federation, policy, **{"rounds": 1, **options})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("policy", 3),
        ("policy", sfg.policies.masked),
        ("policy", sfg.policies),
        ("rounds", "5"),
        ("rounds", 2.0),
        ("rounds", True),
        ("seed", "0"),
        ("seed", -1),
        ("sampler", "everyone"),
        ("evaluation", 3),
        ("evaluation", ["referee"]),
        ("out", 5),
        ("ledger", 5),
        ("keep", "all"),
        ("keep", None),
        ("on_round", "print"),
        ("on_start", 1),
        ("resume", 1),
        ("checkpoint_every", "1"),
        ("dropouts", 0.2),
        ("budget", 8.0),
        ("budget", "8"),
    ],
)
def test_training_arguments_of_another_type(key: str, value: Any, federation: sfg.Federation) -> None:
    with pytest.raises(BadInput, match=rf"^{key}\b") as refusal:
        train(federation, **{key: value})
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("algorithm", [sfg.FedSage, "fedsage", 3, sfg.policies.masked()])
def test_what_is_no_algorithm(algorithm: Any, federation: sfg.Federation) -> None:
    with pytest.raises(BadInput, match=r"^algorithm is"):
        train(federation, algorithm)


@pytest.mark.parametrize("data", [DATA, "cora", None, [DATA]])
def test_what_is_no_federation(data: Any) -> None:
    with pytest.raises(BadInput, match=r"^federation is .*federate\(data"):
        train(data)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("data", 3),
        ("data", None),
        ("data", HeteroData()),
        ("data", {"a": 3}),
        ("clients", "3"),
        ("clients", 2.5),
        ("clients", True),
        ("partition", 3),
        ("partition", ["random"]),
        ("seed", "0"),
        ("seed", 1.5),
        ("split", "half"),
    ],
)
def test_arguments_of_federate(key: str, value: Any) -> None:
    with pytest.raises(BadInput, match=rf"^{key}\b") as refusal:
        sfg.federate(**{"data": DATA, key: value})
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("data", [DATA, "synthetic-citation"])
def test_a_setting_that_federate_does_not_know(data: Any) -> None:
    with pytest.raises(BadInput, match="client_count"):
        sfg.federate(data, client_count=5)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (
            lambda: sfg.Experiment(data=DATA),
            r"^data is of type Data, .*secure_fedgraph\.datasets entry point",
        ),
        (lambda: sfg.Experiment(data="cora", clients="three"), "clients = 'three'"),
        (lambda: sfg.Experiment(dta="cora"), "unknown key 'dta': did you mean 'data'"),
        (lambda: sfg.audit(sfg.Experiment()), "policies"),
        (lambda: sfg.policies.masked(limit="8"), "limit"),
        (lambda: sfg.policies.masked(quorum=2.5), "quorum"),
        (lambda: sfg.policies.masked(nonsense=1), "nonsense"),
        (lambda: sfg.policies.local_dp(), "norm"),
        (lambda: sfg.policies.local_dp("1", 1.0), "norm"),
        (lambda: sfg.policies.local_dp({"update": "1"}, 1.0), "update"),
        (lambda: sfg.policies.local_dp(1.0, 1.0, rows="no"), "rows"),
        (lambda: sfg.policies.local_dp(1.0, 1.0, relation=3), "relation"),
        (lambda: sfg.policies.homomorphic(scheme=3), "scheme"),
        (lambda: sfg.policies.strictest("masked"), "policies"),
        (lambda: sfg.Budget("8"), "epsilon"),
        (lambda: sfg.Budget(8.0, unit="house"), "unit"),
        (lambda: sfg.Budget(8.0, against=3), "against"),
        (lambda: sfg.Budget(8.0, delta="small"), "delta"),
        (lambda: sfg.Budget(8.0, holders=1.5), "holders"),
        (lambda: sfg.Budget(8.0, adaptive=1), "adaptive"),
        (lambda: sfg.Dropouts("half"), "share"),
        (lambda: sfg.Dropouts(0.5, seed="a"), "seed"),
        (lambda: sfg.Dropouts(at=[(1, "a")]), "at"),
        (lambda: sfg.Channel(3, sfg.Reveal.SUM), "name"),
        (lambda: sfg.Channel("update", "sum"), "reveal"),
        (lambda: sfg.Channel("update", sfg.Reveal.SUM, "node"), "unit"),
        (lambda: sfg.FedSage(batch="many"), "batch"),
        (lambda: sfg.FedSage(learning_rate="fast"), "learning_rate"),
        (lambda: sfg.FedSage("graphsage"), "model"),
    ],
)
def test_policies_budgets_channels_and_settings(make: Callable[[], Any], named: str) -> None:
    with pytest.raises(BadInput, match=named) as refusal:
        make()
    assert "\n" not in str(refusal.value)


def test_an_audit_of_a_run_names_what_to_give(federation: sfg.Federation) -> None:
    run = train(federation)
    with pytest.raises(BadInput, match=r"^experiment is a Run: give an Experiment"):
        sfg.audit(run)


def test_policies_by_name_are_the_command_lines(federation: sfg.Federation) -> None:
    from secure_fedgraph.experiment.config import make_policy
    from secure_fedgraph.privacy.policies import RECIPES, policy_named

    for name in RECIPES.own:
        try:
            there = make_policy(name, {})
        except BadInput:
            with pytest.raises(BadInput, match="norm and multiplier"):
                policy_named(name)
            continue
        assert policy_named(name).name == there.name
        if name not in ("strictest",):
            channel = sfg.FedSage.UPDATE if name != "sealed" else sfg.Channel("x", sfg.Reveal.EACH, to="peer")
            one, other = (p.bind([channel], ("a", "b")).describe() for p in (policy_named(name), there))
            assert one == other
    with pytest.raises(BadInput, match=r"'maskd'.*'masked'"):
        train(federation, policy="maskd")


def test_a_policy_by_name_protects(federation: sfg.Federation) -> None:
    run = train(federation, policy="masked")
    assert run.policy.policy.name == "masked" and not run.transcript.view("server").uploads("update")


def test_a_run_in_one_line_and_its_model(federation: sfg.Federation) -> None:
    run = train(federation)
    assert repr(run).startswith("Run(fedsage on your graph, 2 clients, policy masked, round 1: global ")
    assert "\n" not in repr(run) and len(repr(run)) < 160
    assert not run.model.training
    scores = run.model(DATA.x, DATA.edge_index)
    assert torch.equal(scores, run.algorithm.predict(run.state, DATA, federation.schema))


def test_personal_models_are_no_one_model(federation: sfg.Federation) -> None:
    with pytest.raises(BadInput, match="local releases no single model"):
        _ = train(federation, sfg.Local(hidden=(8, 4)), "plaintext").model


@pytest.mark.parametrize(("key", "value"), [("unit", 3), ("unit", ["client"]), ("delta", "x"), ("delta", 1)])
def test_arguments_of_privacy(key: str, value: Any, federation: sfg.Federation) -> None:
    with pytest.raises(BadInput, match=str(key)):
        train(federation).privacy(**{key: value})


def test_every_public_name_is_there() -> None:
    assert sorted(sfg.__all__) == sfg.__all__
    assert all(hasattr(sfg, name) for name in sfg.__all__) and {"Budget", "FairGraphFL"} <= set(sfg.__all__)


def test_out_may_be_text(tmp_path: Any, federation: sfg.Federation) -> None:
    train(federation, out=str(tmp_path / "run"), ledger=str(tmp_path / "shared.jsonl"))
    assert (tmp_path / "shared.jsonl").is_file()


def test_a_graph_is_never_changed_by_any_of_it() -> None:
    data = Data(x=DATA.x.clone(), y=DATA.y.clone(), edge_index=DATA.edge_index.clone(), note="mine")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sfg.DataWarning)
        train(sfg.federate(data, 2, "random"))
    assert set(data.keys()) == {"x", "y", "edge_index", "note"} and torch.equal(data.y, DATA.y)
