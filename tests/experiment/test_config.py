"""An experiment from a file, flags and assignments: what wins, and what each mistake is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.config import Experiment, load, make_policy
from secure_fedgraph.privacy.policies import RECIPES

TOML = """
algorithm = "fedprox"
clients = 5
rounds = 7
seed = 1

[training]
batch = 16
mu = 0.5
hidden = [8, 4]

[dataset]
nodes = 90
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "experiment.toml"
    file.write_text(TOML)
    return file


def test_the_defaults_are_the_papers_setting() -> None:
    experiment = load(None, {}, [])
    assert experiment == Experiment()
    assert (experiment.algorithm, experiment.data, experiment.clients) == ("fedsage", "cora", 3)
    assert (experiment.partition, experiment.policy, experiment.rounds) == ("louvain", "strictest", None)
    assert (experiment.seed, experiment.delta, experiment.relation) == (0, 1e-5, "zero-out")
    assert experiment.make_algorithm().settings.batch == 64


def test_a_file_is_read(path: Path) -> None:
    experiment = load(path, {}, [])
    assert (experiment.algorithm, experiment.clients, experiment.rounds) == ("fedprox", 5, 7)
    assert experiment.dataset == {"nodes": 90}
    settings = experiment.make_algorithm().settings
    assert (settings.batch, settings.hidden, settings.mu) == (16, (8, 4), 0.5)


def test_flags_win_over_the_file_and_set_over_flags(path: Path) -> None:
    flags = {"rounds": 3, "clients": None, "seed": 2}
    experiment = load(path, flags, ["seed=9", "training.batch=full"])
    assert (experiment.rounds, experiment.clients, experiment.seed) == (3, 5, 9)
    # a dotted key changes its own entry and leaves the table's others
    assert experiment.training == {"batch": "full", "mu": 0.5, "hidden": [8, 4]}


def test_assignments_do_not_write_into_what_they_were_given() -> None:
    given: dict[str, Any] = {"training": {"batch": 8}}
    assert load(None, given, ["training.batch=16"]).training == {"batch": 16}
    assert given == {"training": {"batch": 8}}


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("training.batch=16", 16),
        ("training.batch=full", "full"),
        ("training.batch=1e-3", 1e-3),
        ("training.batch=[8, 4]", [8, 4]),
        ("training.batch=true", True),
        ("training.batch=a=b", "a=b"),
    ],
)
def test_values_of_assignments_are_numbers_lists_or_text(assignment: str, value: object) -> None:
    assert load(None, {}, [assignment]).training == {"batch": value}


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("rounds", "--set rounds: write KEY=VALUE"),
        ("=5", "--set =5: write KEY=VALUE"),
        ("round=5", "unknown key 'round': did you mean 'rounds'?"),
        ("rounds=many", "rounds = 'many'"),
        ("rounds=0", "rounds = 0: .*greater than or equal to 1"),
        ("rounds=2.5", "rounds = 2.5"),
        ("clients=0", "clients = 0"),
        ("seed=-1", "seed = -1"),
        ("delta=1", r"delta = 1"),
        ("delta=nan", "delta = nan"),
        ("relation=add", "relation = 'add'"),
        ("evaluation=both", "evaluation = 'both'"),
        ("transcript=some", "transcript = 'some'"),
        ("training=5", "training = 5"),
        ("rounds.deep=5", "rounds"),
        ("dataset.nodes=many", "dataset.nodes = 'many': give a whole number"),
        ("dataset.nodes=60.5", "dataset.nodes = 60.5: give a whole number"),
        ("dataset.homophily=high", "dataset.homophily = 'high': give a number"),
    ],
)
def test_a_mistake_names_key_and_value(assignment: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        load(None, {}, [assignment])


def test_a_value_cannot_become_a_table() -> None:
    with pytest.raises(BadInput, match="'rounds'"):
        load(None, {"rounds": 5}, ["rounds.deep=5"])


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.toml", "rounds = ", "cannot be read"),
        ("a.yaml", "rounds: 1", "cannot be read as TOML"),
        ("a.toml", "algoritm = 'fedsage'", "unknown key 'algoritm': did you mean 'algorithm'?"),
        ("a.toml", "seed = 'one'", "seed = 'one'"),
    ],
)
def test_a_file_that_cannot_be_used(name: str, text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=words):
        load(tmp_path / name, {}, [])


def test_a_file_that_is_not_text_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe\x00")
    for file in ("a.toml", "b.toml", "."):
        with pytest.raises(BadInput, match=r"cannot be read|is not there"):
            load(tmp_path / file, {}, [])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithm": "fedsag"}, "unknown algorithm 'fedsag': did you mean 'fedsage'?"),
        ({"partition": "louvian"}, "unknown partition 'louvian': did you mean 'louvain'?"),
        ({"training": {"batches": 3}}, "'training.batches': did you mean 'training.batch'?"),
        ({"training": {"mu": 3}}, "unknown setting of fedsage 'training.mu'"),
        ({"training": {"epochs": "two"}}, "'epochs' = 'two'"),
    ],
)
def test_an_algorithm_that_cannot_be_made(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Experiment(**changes).make_algorithm()


@pytest.mark.parametrize(
    ("name", "protection", "words"),
    [
        ("maskd", {}, "unknown policy 'maskd': did you mean 'masked'?"),
        ("local_dp", {}, "protection.norm and protection.multiplier: give --norm 1.0 --multiplier 1.0"),
        ("local_dp", {"norm": 1.0}, "needs protection.multiplier: give --multiplier 1.0"),
        ("central_dp", {"multiplier": 1.0}, "needs protection.norm: give --norm 1.0"),
        ("local_dp", {"norm": "one", "multiplier": 1}, "norm .*give a number"),
        ("local_dp", {"norm": -1.0, "multiplier": 1}, "norm -1.0"),
        ("local_dp", {"norm": 1.0, "multiplier": 0}, "multiplier 0"),
        ("local_dp", {"norm": float("inf"), "multiplier": 1}, "norm inf"),
        ("masked", {"nrm": 1}, "unknown protection setting 'nrm': did you mean 'norm'?"),
        ("masked", {"quorum": 1}, "quorum 1"),
        ("masked", {"quorum": 2.5}, "quorum 2.5"),
        ("masked", {"limit": "high"}, "limit .*give a number"),
        ("masked", {"relation": "zero-out"}, "unknown protection setting 'relation'"),
    ],
)
def test_a_policy_that_cannot_be_made(name: str, protection: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        make_policy(name, protection)


def test_one_set_of_flags_serves_every_recipe() -> None:
    flags = {"norm": 1.0, "multiplier": 1.0, "quorum": 2, "limit": 4.0}
    assert [make_policy(name, flags).name for name in RECIPES.own] == list(RECIPES.own)


def test_strictest_tries_noise_where_it_was_given() -> None:
    """Noise under masks before all; noise on single uploads only where no sum would do."""
    names = [c.name for c in make_policy("strictest", {"norm": 1.0, "multiplier": 1.0}).candidates]
    assert names == ["distributed_dp", "masked", "homomorphic", "local_dp", "sealed", "plaintext"]
    noiseless = ["masked", "homomorphic", "sealed", "plaintext"]
    assert [c.name for c in make_policy("strictest", {}).candidates] == noiseless
    assert [c.name for c in make_policy("strictest", {"norm": 1.0}).candidates] == noiseless


def test_one_number_or_one_by_channel() -> None:
    policy = make_policy("local_dp", {"norm": {"update": 0.5, "feedback": 2}, "multiplier": 1.0})
    bound = policy.bind([Channel("update", Reveal.SUM), Channel("feedback", Reveal.SUM)], ("a", "b"))
    assert [bound[name].stages[0].norm for name in ("update", "feedback")] == [0.5, 2]
    with pytest.raises(BadInput, match="'hidden'"):
        policy.bind([Channel("hidden", Reveal.SUM)], ("a", "b"))
    for given in ({"update": "one"}, {"update": True}, [1.0]):
        with pytest.raises(BadInput, match=r"norm.*give a number"):
            make_policy("local_dp", {"norm": given, "multiplier": 1.0})
    with pytest.raises(BadInput, match="multiplier 0"):
        make_policy("local_dp", {"norm": 1.0, "multiplier": {"update": 0}})


@pytest.mark.parametrize("key", ["norm", "multiplier"])
@pytest.mark.parametrize("policy", ["local_dp", "strictest"])
def test_an_amount_for_a_channel_that_is_none_is_refused(key: str, policy: str) -> None:
    amounts = {
        "protection.norm.update": 1,
        "protection.multiplier.update": 1,
        f"protection.{key}.feedback": 9,
    }
    changes = [f"{name}={value}" for name, value in amounts.items()]
    with pytest.raises(BadInput, match=f"{key} .*'feedback'"):
        load(None, {"algorithm": "fedsage", "policy": policy}, changes).make_policy()
    other = [*changes, "protection.norm.generator=1", "protection.multiplier.generator=1"]
    load(None, {"algorithm": "fedsage+", "policy": policy}, other).make_policy()


@pytest.mark.parametrize("name", ["local_dp", "central_dp"])
def test_the_relation_reaches_the_policy(name: str) -> None:
    policy = make_policy(name, {"norm": 1.0, "multiplier": 1.0}, "replace")
    assert policy.relation == "replace"


def test_an_experiment_survives_its_own_json() -> None:
    experiment = load(None, {"policy": "masked"}, ["training.hidden=[8, 4]", "dataset.nodes=90"])
    assert Experiment(**experiment.model_dump(mode="json")) == experiment


@pytest.mark.parametrize("unit", ["client", "node", "label", "feature"])
def test_add_remove_is_refused_where_presence_is_public(unit):
    with pytest.raises(BadInput, match="add-remove"):
        Experiment(relation="add-remove", unit=unit, epsilon=1.0, policy="distributed_dp").make_policy({})
    policy = Experiment(relation="add-remove", unit="edge", epsilon=1.0, policy="masked").make_policy({})
    assert policy.randomizers


def test_a_ledger_that_no_file_can_be_is_refused_by_its_key() -> None:
    with pytest.raises(BadInput, match=r"^ledger = "):
        Experiment(ledger="/tmp/a\0b")


@pytest.mark.parametrize("value", [True, float("nan"), -1])
def test_an_unknown_setting_of_noisy_steps_is_named_before_one_that_is_missing(value: object) -> None:
    with pytest.raises(BadInput, match=r"unknown setting of steps 'steps\.multiplier'"):
        Experiment(steps={"multiplier": value}).make_policy()


@pytest.mark.parametrize(
    ("given", "unit"),
    [
        ({"algorithm": "fedsage"}, "node"),
        ({"algorithm": "fedsage", "clients": 49}, "node"),
        ({"algorithm": "fedsage", "clients": 50}, "client"),
        ({"algorithm": "fedavg", "data": "proteins"}, "graph"),
        ({"algorithm": "fedsage", "unit": "client"}, "client"),
        ({"algorithm": "glasu", "policy": "masked"}, "node"),
        ({"algorithm": "glasu", "policy": "distributed_dp"}, "client"),
    ],
)
def test_a_budget_of_few_owners_is_for_one_record_unless_a_unit_is_named(
    given: dict[str, Any], unit: str
) -> None:
    experiment = Experiment(epsilon=4.0, **given)
    assert (experiment.unit, experiment.unit_by_default) == (unit, unit != "client")
    assert Experiment(**experiment.model_dump()).unit == unit


FORMS = [
    *("fedsage cora node", "fedgcn cora node", "fedego cora label", "glasu cora edge"),
    *("fairgraphfl proteins graph", "apflgate ciao edge"),
]


@pytest.mark.parametrize(("algorithm", "data", "unit"), [row.split() for row in FORMS])
def test_all_settings_of_a_form_make_it_again(algorithm: str, data: str, unit: str) -> None:
    asked = Experiment(algorithm=algorithm, data=data, policy="masked", epsilon=8.0, unit=unit)
    form = asked.make_algorithm()
    result = asked.model_copy(update={"training": form.settings.model_dump(mode="json")})
    assert type(result.make_algorithm()) is type(form)
    assert result.make_policy().name == asked.make_policy().name
    with pytest.raises(BadInput, match=r"training\."):
        result.model_copy(update={"unit": "client"}).make_algorithm()
