"""What an algorithm of a user's own declares by mistake is refused by class, declaration and what is due."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.algorithms.plugins import algorithm_named
from secure_fedgraph.core.errors import WrongType
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.running.declared import check_declared, check_made

ATTRIBUTES: dict[str, tuple[str, object, str]] = {
    "one word": ("partitions", "louvain", r"valid tuple; write \('louvain',\)"),
    "a word in a list that is none": ("kinds", ["node", 3], r"kinds\[1\] should be a valid string"),
    "no word": ("data", 3, "data should be a valid string"),
    "a list for names": ("clients", [3], "clients should be a valid dictionary"),
    "a number as text": ("rounds", "5", "rounds should be a valid integer"),
    "a word for a switch": ("pools", "yes", "pools should be a valid boolean"),
    "no forms": ("forms", 5, "forms should be a valid tuple"),
    "no round": ("rounds", 0, "rounds should be greater than 0"),
    "rounds below 0": ("rounds", -1, "rounds should be greater than 0"),
    "no words": ("devices", None, "devices should be a valid tuple"),
    "numbers for words": ("kinds", [1, 2], r"kinds\[0\] should be a valid string"),
    "no class of settings": ("Settings", 3, "Settings should be a subclass of Settings"),
    "a class of no settings": ("Settings", dict, "Settings should be a subclass of Settings"),
}
SIGNATURES: dict[str, tuple[str, str]] = {
    "round": ("round", "self, round, state"),
    "a method of the base": ("init", "self, schema, seed"),
    "an answer": ("update", "self, client, given"),
}
METHODS: dict[str, tuple[str, object, str]] = {
    "released": ("released", 5, "released returns a dict from names"),
    "takes": ("takes", {"a": 1}, r"takes\('update'\) is .*None is due, or a tuple of dicts"),
    "takes: no form": ("takes", ({"a": 3},), r"takes\('update'\)"),
    "shows": ("shows", "x", r"shows\('update'\)"),
    "reads": ("reads", "weight", r"reads should be a valid tuple; write \('weight',\)"),
    "measure": ("measure", "f1", "measure is 'f1', and accuracy or auc or mae is due"),
    "made_with": ("made_with", None, "made_with should be a valid dictionary"),
    "personal": ("personal", "update", "personal should be an instance of Channel"),
    "reach": ("reach", "far", "reach should be a valid integer"),
    "uses": ("uses", 1.5, "uses should be a valid integer"),
    "first_round": ("first_round", 0, "first_round should be greater than 0"),
}
PROPERTIES: dict[str, tuple[object, str]] = {
    "warm_up": (-1, "warm_up should be greater than or equal to 0"),
    "in_use": (["update"], r"in_use\[0\] should be an instance of Channel"),
}


def trained(**declared: object) -> None:
    federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=60, features=8)
    own = type("Own", (sfg.FedAvg,), {"name": "own", **declared})
    sfg.train(own(), federation, "plaintext", rounds=1)


@pytest.mark.parametrize("mistake", ATTRIBUTES)
def test_an_attribute_of_another_type(mistake: str) -> None:
    name, value, words = ATTRIBUTES[mistake]
    with pytest.raises(WrongType, match=f"^Own: {name} is {re.escape(repr(value))}, and .*{words}"):
        trained(**{name: value})


@pytest.mark.parametrize("mistake", METHODS)
def test_a_method_that_declares_something_of_another_type(mistake: str) -> None:
    name, value, words = METHODS[mistake]
    with pytest.raises(WrongType, match=f"^[Oo]wn: .*{words}"):
        trained(**{name: lambda *_: value})


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_property_of_another_type(name: str) -> None:
    value, words = PROPERTIES[name]
    with pytest.raises(WrongType, match=f"^Own: {name} .*{words}"):
        trained(**{name: property(lambda _: value)})


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_this_packages_own_declare_what_the_base_has(name: str) -> None:
    algorithm = algorithm_named(name)()
    schema = Schema(kind=algorithm.kinds[0], features=8, classes=2)
    check_made(algorithm)
    check_declared(algorithm, schema, 0)


@pytest.mark.parametrize("case", SIGNATURES)
def test_a_method_that_takes_other_arguments(case: str) -> None:
    name, arguments = SIGNATURES[case]
    with pytest.raises(WrongType, match=rf"^Own: {name} is called with \({arguments}\)"):
        trained(**{name: lambda self: None})


def test_an_init_that_does_not_call_the_bases() -> None:
    with pytest.raises(WrongType, match=r"^Own: __init__ does not call super\(\)"):
        trained(__init__=lambda self: None)


@pytest.mark.parametrize("name", ["init", "round"])
def test_a_class_without_a_method_that_every_run_needs(name: str) -> None:
    federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=60, features=8)
    has = {"init": lambda *_: {}, "round": lambda *_: {}}
    own = type("Own", (sfg.Algorithm,), {"name": "own", **has, name: getattr(sfg.Algorithm, name)})
    with pytest.raises(WrongType, match=f"^Own has no method {name}"):
        sfg.train(own(), federation, "plaintext", rounds=1)


def test_settings_whose_annotation_names_nothing() -> None:
    class Unfit(sfg.Settings):
        factor: "Nowhere" = 1  # type: ignore[name-defined]  # noqa: F821, UP037

    with pytest.raises(WrongType, match=r"^Own: Settings cannot be used, .*Nowhere"):
        trained(Settings=Unfit)


def test_the_command_line_checks_attributes_before_it_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_declared.py").write_text(
        "import secure_fedgraph as sfg\nclass Own(sfg.FedAvg):\n    partitions = 'louvain'\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WrongType, match="partitions should be a valid tuple"):
        algorithm_named("mine_declared:Own")
