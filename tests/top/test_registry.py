"""A class is registered by standing in its folder, one of another package by an entry point."""

from __future__ import annotations

import copy
import sys
import warnings
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.attacks import ATTACKS, Attack
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.code_digest import of_code
from secure_fedgraph.experiment.config import Experiment, experiment_of, make_policy
from secure_fedgraph.graph.data.datasets import DATASETS, load
from secure_fedgraph.privacy.policies import RECIPES, policy_named
from secure_fedgraph.registry import PluginWarning, Registry, check_subclass, classes_below

GROUP = "secure_fedgraph.test_words"
UPPER = "\n[secure_fedgraph.test_words]\n"


def words(kind: str = "word") -> Registry[str]:
    def accept(name: str, found: object) -> str:
        if not isinstance(found, str):
            raise BadInput("give a text")
        return found

    return Registry(kind, GROUP, lambda: {"own": "of this package"}, accept)


def distribution(folder: Path, name: str, entries: str, module: str = "") -> None:
    (folder / f"{name}.py").write_text(module)
    beside = folder / f"{name}-1.0.dist-info"
    beside.mkdir()
    (beside / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (beside / "entry_points.txt").write_text(UPPER + entries)


@pytest.fixture
def others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    return tmp_path


def test_an_own_name_is_given_before_any_plugin_is_loaded(others: Path) -> None:
    distribution(others, "first_words", "hello = first_words:HELLO\n", "HELLO = 'of another'")
    found = words()
    assert found["own"] == "of this package" and "first_words" not in sys.modules
    assert found["hello"] == "of another"
    assert list(found) == ["own", "hello"] and len(found) == 2
    assert (found.package_of("own"), found.package_of("hello")) == ("secure-fedgraph", "first_words")
    assert "nothing" not in found


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ("bad = second_words:NOTHING", "AttributeError"),
        ("bad = nowhere_at_all:HELLO", "ModuleNotFoundError"),
        ("bad = second_words:NUMBER", "give a text"),
        ("bad = second_words_breaks:X", "ZeroDivisionError"),
        ("bad = second_words_exits:X", "SystemExit: 7"),
        ("bad = 123 !!", "names no object: write module:object"),
    ],
)
def test_a_broken_plugin_is_named_and_stops_no_other(others: Path, entries: str, why: str) -> None:
    distribution(others, "second_words", f"{entries}\ngood = second_words:HELLO\n", "HELLO, NUMBER = 'hi', 3")
    (others / "second_words_breaks.py").write_text("1 / 0")
    (others / "second_words_exits.py").write_text("raise SystemExit(7)")
    found = words()
    with pytest.warns(PluginWarning, match="'bad'.*second_words") as said:
        assert list(found) == ["own", "good"]
    assert len(said) == 1 and why in str(said[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        assert found["good"] == "hi"
        for look in (lambda: found["bad"], lambda: "bad" in found, lambda: found.get("bad")):
            with pytest.raises(BadInput, match="second_words"):
                look()


def test_what_a_plugin_says_steers_no_terminal(others: Path) -> None:
    says = r"raise ValueError('boom \x1b[31mRED\nsecond line' + 5000 * '!')"
    distribution(others, "tenth_words", "loud = tenth_words:X\n", says)
    found = words()
    with pytest.raises(BadInput, match=r"tenth_words.*boom \?\[31mRED\?second") as refusal:
        found["loud"]
    assert found.left_out == (str(refusal.value),)
    assert str(refusal.value).isprintable() and len(str(refusal.value)) <= 1000


@pytest.mark.parametrize("group", [GROUP, "anybodys.group"])
def test_a_damaged_list_of_one_package_stops_no_other(others: Path, group: str) -> None:
    distribution(others, "twelfth_words", "hello = twelfth_words:HELLO\n", "HELLO = 'hi'")
    distribution(others, "damaged_words", "")
    (others / "damaged_words-1.0.dist-info" / "entry_points.txt").write_text(f"[{group}]\nhello twelfth\n")
    nameless = others / "nameless-1.0.dist-info"
    nameless.mkdir()
    (nameless / "entry_points.txt").write_text(UPPER + "nameless = twelfth_words:HELLO")
    found = words()
    assert found["hello"] == found["nameless"] == "hi"
    assert [left.split(":")[0] for left in found.left_out] == (
        ["no plugin of damaged_words can be used"] if group == GROUP else []
    )


@pytest.mark.parametrize("name", ["../../evil", "a/b", ".hidden", "a,b", "x[/red]", "a b", "n" * 65, "-out"])
def test_a_name_that_is_none_is_not_registered(others: Path, name: str) -> None:
    distribution(
        others, "odd_words", f"{name} = odd_words:HELLO\nV1.0+a_b-c = odd_words:HELLO\n", "HELLO = 'hi'"
    )
    found = words()
    assert found["V1.0+a_b-c"] == "hi"
    with pytest.raises(BadInput, match=r"of odd_words .*letters, digits"):
        found[name]
    assert "odd_words" in found.left_out[0]


def test_no_plugin_takes_an_own_name(others: Path) -> None:
    distribution(others, "third_words", "own = third_words:HELLO\n", "HELLO = 'another'")
    found = words()
    with pytest.warns(PluginWarning, match="'own'.*third_words"):
        assert dict(found) == {"own": "of this package"}
    assert "third_words" not in sys.modules


def test_of_two_plugins_of_one_name_neither_is_taken(others: Path) -> None:
    for name in ("fourth_words", "fifth_words"):
        distribution(others, name, f"hello = {name}:HELLO\n", f"HELLO = {name!r}")
    found = words()
    with pytest.raises(BadInput, match=r"fourth_words.*fifth_words|fifth_words.*fourth_words"):
        found["hello"]  # who asks for it gets the error, and no warning besides
    with pytest.warns(PluginWarning, match="fourth_words"):
        assert list(found) == ["own"]


def package(folder: Path, monkeypatch: pytest.MonkeyPatch, **modules: str) -> ModuleType:
    """A package of such modules, one of them in a folder of its own."""
    for name, text in modules.items():
        path = folder / "rooms" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        for inner in (path.parent, folder / "rooms"):
            (inner / "__init__.py").touch()
        path.write_text("from secure_fedgraph.algorithm import Algorithm\n" + text)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    return __import__("rooms")


def test_a_class_is_registered_by_standing_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = package(
        tmp_path,
        monkeypatch,
        one="class Base(Algorithm): ...\nclass One(Base):\n    name = 'one'\nclass Heir(One): ...",
        inner__two="from rooms.one import One\nclass Two(One):\n    name = 'two'\n"
        "class _Hidden(One):\n    name = 'hidden'",
    )
    found = classes_below(rooms, Algorithm, "name")
    assert {name: kind.__name__ for name, kind in found.items()} == {"two": "Two", "one": "One"}


def test_two_classes_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same = "class Kind(Algorithm):\n    name = 'same'"
    rooms = package(tmp_path, monkeypatch, one=same, two=same)
    with pytest.raises(BadInput, match=r"rooms\.one\.Kind.*rooms\.two\.Kind"):
        classes_below(rooms, Algorithm, "name")


def test_what_an_entry_point_may_be() -> None:
    fedsage = ALGORITHMS["fedsage"]
    assert check_subclass("fedsage", fedsage, Algorithm, "name") is fedsage
    for name, found, why in (
        ("other", fedsage, "the same name"),
        ("fedsage", fedsage(), "give a subclass"),
        ("fedsage", ATTACKS["b1-mash-single"], "give a subclass"),
    ):
        with pytest.raises(BadInput, match=why):
            check_subclass(name, found, Algorithm, "name")
    with pytest.raises(BadInput, match="does not define run"):
        check_subclass("x", Attack, Attack, "id")  # type: ignore[type-abstract]


@pytest.mark.parametrize("found", [ALGORITHMS, ATTACKS], ids=["algorithms", "attacks"])
def test_public_names_are_importable_from_the_folder(found: Registry[type]) -> None:
    folder = sys.modules[f"secure_fedgraph.{found.kind}s"]
    assert all(getattr(folder, kind.__name__) is kind for kind in found.own.values())
    with pytest.raises(AttributeError, match="Nobody"):
        folder.Nobody  # noqa: B018


def reread(registry: Registry[Any]) -> Registry[Any]:
    """The same registry before any entry point was read."""
    again = copy.copy(registry)
    again._loaded, again._broken, again._left_out, again._said = None, {}, [], 0
    return again


BAD = """
import torch
from torch_geometric.data import Data
from secure_fedgraph.policies import masked

def other_name(limit: float = 2.0):
    return masked(limit=limit)

def unsaid():
    return Data()

NUMBER = 3
"""


@pytest.mark.parametrize(
    ("registry", "entry", "why"),
    [
        (RECIPES, "NUMBER", "give a function that returns a Policy"),
        (DATASETS, "NUMBER", "give a function that returns a PyG Data"),
        (DATASETS, "unsaid", "annotate it with one of Data, GraphDataset"),
        (ATTACKS, "NUMBER", "give a subclass of secure_fedgraph.attacks.attack.Attack"),
    ],
)
def test_each_kind_says_what_it_takes(others: Path, registry: Registry[Any], entry: str, why: str) -> None:
    distribution(others, "sixth_words", "", BAD)
    entries = f"[{registry.group}]\nbad = sixth_words:{entry}\n"
    (others / "sixth_words-1.0.dist-info" / "entry_points.txt").write_text(entries)
    again = reread(registry)
    with pytest.warns(PluginWarning, match=why):
        assert list(again) == list(registry.own)
    with pytest.raises(BadInput, match=why):
        again["bad"]


def test_a_policy_has_the_name_that_it_is_asked_for_by(others: Path) -> None:
    distribution(others, "seventh_words", "", BAD)
    entries = "[secure_fedgraph.policies]\nseventh = seventh_words:other_name\n"
    (others / "seventh_words-1.0.dist-info" / "entry_points.txt").write_text(entries)
    again = reread(RECIPES)
    with pytest.raises(BadInput, match="'masked'"):
        again["seventh"]()
    with pytest.raises(BadInput, match="limit"):  # its annotations are kept to, as those of own recipes
        again["seventh"](limit="wide")


ENDS = """
import sys
from torch_geometric.data import Data

def policy():
    sys.exit(0)

def dataset() -> Data:
    sys.exit(0)

def fails() -> Data:
    return 1 / 0
"""


@pytest.mark.parametrize(
    ("registry", "function", "why"),
    [(RECIPES, "policy", "SystemExit"), (DATASETS, "dataset", "SystemExit"), (DATASETS, "fails", "ZeroDiv")],
)
def test_a_function_that_fails_or_ends_the_process_is_named(
    others: Path, monkeypatch: pytest.MonkeyPatch, registry: Registry[Any], function: str, why: str
) -> None:
    distribution(others, "ninth_words", "", ENDS)
    entries = f"[{registry.group}]\nends = ninth_words:{function}\n"
    (others / "ninth_words-1.0.dist-info" / "entry_points.txt").write_text(entries)
    monkeypatch.setattr("secure_fedgraph.graph.data.datasets.DATASETS", reread(DATASETS))
    make = reread(RECIPES)["ends"] if registry is RECIPES else partial(load, "ends")
    with pytest.raises(BadInput, match=rf"'ends': ninth_words\.{function} raised {why}"):
        make()


NEEDS = """
from torch_geometric.data import Data

def policy(*policies, norm, depth, **more): ...

def dataset(nodes, width: int = 3, *rows, **more) -> Data: ...
"""


@pytest.fixture
def needing(others: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy and a data set with arguments that must be given."""
    distribution(others, "eleventh_words", "", NEEDS)
    entries = "[{}]\nneeds = eleventh_words:policy\n[{}]\nneeds = eleventh_words:dataset\n"
    (others / "eleventh_words-1.0.dist-info" / "entry_points.txt").write_text(
        entries.format(RECIPES.group, DATASETS.group)
    )
    recipes = reread(RECIPES)
    monkeypatch.setattr("secure_fedgraph.experiment.config.RECIPES", recipes)
    monkeypatch.setattr("secure_fedgraph.privacy.policies.RECIPES", recipes)
    monkeypatch.setattr("secure_fedgraph.graph.data.datasets.DATASETS", reread(DATASETS))


def test_what_a_policy_lacks_is_named_with_a_setting_that_there_is(needing: None) -> None:
    with pytest.raises(BadInput) as refusal:
        make_policy("needs", {})
    assert str(refusal.value).endswith("give --norm 1.0 --set protection.depth=1.0")
    with pytest.raises(BadInput) as refusal:
        policy_named("needs")
    assert str(refusal.value).endswith("give policies.needs(norm=1.0, depth=1.0)")
    with pytest.raises(BadInput, match="unknown protection setting 'more'"):
        make_policy("needs", {"more": 1.0})


def test_what_a_data_set_lacks_is_named_with_its_setting(needing: None) -> None:
    with pytest.raises(BadInput, match=r"'needs' of eleventh_words needs nodes: give --set dataset\.nodes="):
        load("needs")
    with pytest.raises(BadInput, match="unknown setting of needs 'more'"):
        load("needs", nodes=1, more=2)


def test_an_experiment_refuses_a_plugin_that_is_broken_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    why = "algorithm 'lost' of Somebody (Nowhere:X) cannot be used: ModuleNotFoundError"
    monkeypatch.setattr(ALGORITHMS, "_loaded", {})
    monkeypatch.setattr(ALGORITHMS, "_broken", {"lost": why})
    with pytest.raises(BadInput) as refusal:
        experiment_of({"algorithm": "lost"})
    assert str(refusal.value) == why


def test_a_plugins_code_decides_whose_results_are_kept(others: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one version of a package's policy made is not taken for another's."""
    keys = set()
    for version in ("one", "two"):
        text = f"from secure_fedgraph.policies import masked\n# {version}\ndef same():\n    return masked()"
        folder = others / version
        folder.mkdir()
        distribution(folder, f"eighth_{version}", "", text)
        entries = f"[secure_fedgraph.policies]\nsame = eighth_{version}:same\n"
        (folder / f"eighth_{version}-1.0.dist-info" / "entry_points.txt").write_text(entries)
        with monkeypatch.context() as patch:
            patch.syspath_prepend(folder)
            again = reread(RECIPES)
            patch.setattr("secure_fedgraph.experiment.config.RECIPES", again)
            (function,) = Experiment.model_construct(policy="same", data="cora").of_others
            keys.add(of_code(function))
    assert len(keys) == 2
    assert experiment_of({"policy": "masked"}).of_others == ()
