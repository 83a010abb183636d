"""An algorithm takes the form that a policy binds to, leaves alone what was set by hand, and says so."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result

import secure_fedgraph as sfg
from secure_fedgraph.algorithm import Algorithm, Form, Settings
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.audits.grid import choices, grid
from secure_fedgraph.cli import main, running
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, LeftInPlaintext, Refused
from secure_fedgraph.experiment.compare import Point
from secure_fedgraph.experiment.compare.runs import run_point
from secure_fedgraph.experiment.compare.summary import row_of
from secure_fedgraph.experiment.config import Experiment, make_policy
from secure_fedgraph.forms import FormWarning, fit
from secure_fedgraph.privacy.policy import PlaintextWarning, Policy

THREE = ("a", "b", "c")
NOISE = {"norm": 1.0, "multiplier": 1.0}
SMALL = ["--data", "synthetic-citation", "--rounds", "1", "--set", "dataset.nodes=120"]
SMALL += ["--set", "dataset.features=24"]
GLASU = [*SMALL, "--algorithm", "glasu", "--set", "training.steps=1", "--set", "training.hidden=8"]
GLASU += ["--set", "training.public_nodes=32"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main.main, list(arguments))


def policy(name: str) -> Policy:
    return make_policy(name, NOISE if name.endswith("_dp") else {})


class Listing(Algorithm):
    """One file: its channels, and the forms that need fewer of them."""

    name = "listing"

    class Settings(Settings):
        lists: bool = True
        sums: bool = True

    settings: Settings
    forms: ClassVar[tuple[Form, ...]] = (
        Form({"lists": False}, "nothing is listed"),
        Form({"lists": False, "sums": False}, "nothing is sent"),
    )
    LIST = Channel("list", Reveal.EACH, exact=True)
    SUM = Channel("total", Reveal.SUM)

    @property
    def in_use(self) -> tuple[Channel, ...]:
        s = self.settings
        return tuple(c for c, used in ((self.LIST, s.lists), (self.SUM, s.sums)) if used)


# Which form


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("plaintext", None),
        ("masked", {"lists": False}),
        ("homomorphic", {"lists": False}),
        ("strictest", {"lists": False}),
        ("local_dp", {"lists": False}),
        ("sealed", {"lists": False, "sums": False}),
    ],
)
def test_the_first_form_that_binds_is_taken(name: str, form: dict[str, bool] | None) -> None:
    made = fit(Listing(), policy(name), THREE)
    assert (made.form and made.form.settings) == form
    assert made.settings.model_dump() == {"lists": True, "sums": True} | (form or {})


def test_what_was_set_by_hand_stays() -> None:
    with pytest.raises(Refused, match="'list' needs each upload"):
        fit(Listing(lists=True), policy("masked"), THREE)
    with pytest.raises(LeftInPlaintext, match=r"'list'.*--allow-plaintext"):
        fit(Listing(lists=True), policy("strictest"), THREE)
    assert fit(Listing(lists=False), policy("masked"), THREE).form is None
    assert fit(Listing(sums=True), policy("masked"), THREE).form is not None


def test_plaintext_that_is_allowed_needs_no_form() -> None:
    assert fit(Listing(), policy("strictest"), THREE, allow_plaintext=True).form is None
    with pytest.raises(Refused):  # an allowance binds nothing
        fit(Listing(lists=True), policy("masked"), THREE, allow_plaintext=True)


def test_a_form_that_the_data_are_not_fit_for_is_passed_over() -> None:
    def check(one: Algorithm) -> None:
        if one.settings.sums:
            raise BadInput("too many sums")

    made = fit(Listing(), policy("masked"), THREE, check=check)
    assert made.form is not None and not made.settings.sums


FEWER = {"sampler": "public", "backward": "server", "steps": 8, "learning_rate": 0.1}
FORMS: dict[tuple[str, str], Any] = {
    **{
        ("glasu", name): FEWER
        for name in ("homomorphic", "masked", "local_dp", "distributed_dp", "strictest")
    },
    ("fedego", "homomorphic"): {"mash": "across"},
    ("fedego", "masked"): {"mash": "across"},
    ("fedego", "distributed_dp"): {"mash": "across"},
    ("fedego", "strictest"): {"mash": "across"},
    ("fedsage+", "distributed_dp"): {"generator": "shared"},
    ("fedsage+", "strictest"): {"feedback": "prototypes"},
    ("fairgraphfl", "homomorphic"): {"valuation": "encrypted", "vocabulary": "public", "lists": "valued"},
    ("fairgraphfl", "strictest"): {"valuation": "encrypted", "vocabulary": "public", "lists": "valued"},
    ("fairgraphfl", "local_dp"): {"vocabulary": "public"},
    ("fairgraphfl", "masked"): Refused,
    ("fairgraphfl", "distributed_dp"): Refused,
}


@pytest.mark.parametrize(
    "name", ["plaintext", "masked", "homomorphic", "local_dp", "distributed_dp", "strictest"]
)
@pytest.mark.parametrize("algorithm", ["fedsage", "fedsage+", "fedego", "glasu", "apflgate", "fairgraphfl"])
def test_every_family_under_every_policy(algorithm: str, name: str) -> None:
    kind = ALGORITHMS[algorithm]
    clients = tuple(f"owner-{i}" for i in range(kind.clients.get(kind.data, 3)))
    expected = FORMS.get((algorithm, name), {})
    if expected is Refused:
        with pytest.raises(Refused, match="--policy homomorphic works for fairgraphfl"):
            fit(kind(), policy(name), clients)
        return
    made = fit(kind(), policy(name), clients)
    assert dict(made.form.settings if made.form else {}) == expected
    with warnings.catch_warnings():
        warnings.simplefilter("error", PlaintextWarning)
        bound = policy(name).bind(made.in_use, clients)
    assert bool(bound.unprotected) == (name == "plaintext")


@pytest.mark.parametrize("given", [{"steps": 32}, {"learning_rate": 0.01}, {"local_steps": 2}], ids=str)
@pytest.mark.parametrize("name", ["glasu", "glasu-simulated", "glasu-one-label-holder"])
def test_glasu_keeps_a_training_set_by_hand_and_takes_public_sets_alone(name: str, given: Any) -> None:
    usual, made = ALGORITHMS[name](**given), fit(ALGORITHMS[name](**given), policy("masked"), THREE)
    assert made.settings == usual.settings.model_copy(update={"sampler": "public"})
    short, paper = fit(ALGORITHMS[name](), policy("masked"), THREE).settings, ALGORITHMS[name]().settings
    assert (short.steps, short.backward) == (8, paper.backward)


def test_every_declared_form_is_one_that_its_algorithm_takes() -> None:
    for name, kind in ALGORITHMS.items():
        for form in kind.forms:
            assert kind().in_form(form).form == form, name
            assert form.why and not form.why.endswith(".")


# Where it is said


def test_a_run_says_its_form_in_the_first_line_and_in_its_result() -> None:
    done = call("run", *GLASU, "--policy", "masked", "--out", "out")
    assert done.exit_code == 0, done.output
    first = done.stdout.splitlines()[0]
    assert "glasu" in first and "masked" in first and "training.sampler=public" in first
    result = json.loads(Path("out/result.json").read_text())
    assert result["form"] == {"sampler": "public"} and result["form_why"]
    assert result["config"]["training"]["sampler"] == "public"
    assert "sample" not in {row["name"] for row in result["channels"]}


def test_a_form_set_by_hand_is_the_users_own() -> None:
    done = call(
        "run", *GLASU, "--policy", "masked", "--set", "training.sampler=public", "--json", "--out", "a"
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["form"] == {}
    done = call("run", *GLASU, "--policy", "masked", "--set", "training.sampler=paper", "--out", "b")
    assert (done.exit_code, done.stdout) == (3, "")
    assert "training.sampler=public" in done.stderr and not Path("b").exists()


def test_strictest_leaves_nothing_in_plaintext_unless_that_is_allowed() -> None:
    by_hand = [*GLASU, "--set", "training.sampler=paper"]
    done = call("run", *by_hand, "--out", "out")
    assert (done.exit_code, done.stdout) == (3, "")
    assert "'sample'" in done.stderr and "--allow-plaintext" in done.stderr
    for number, allowed in enumerate((["--allow-plaintext"], ["--set", "allow_plaintext=true"])):
        done = call("run", *by_hand, *allowed, "--out", f"out-{number}")
        assert done.exit_code == 0, done.output
        assert "'sample' left in plaintext" in done.stdout.splitlines()[0]
    assert call("run", *by_hand, "--policy", "plaintext", "--quiet", "--out", "plain").exit_code == 0


def test_a_run_that_goes_on_keeps_its_form(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(running, "run_result", stop)
        assert call("run", *GLASU, "--policy", "masked", "--out", "out").exit_code == 130
    done = call("resume", "out", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["form"] == {"sampler": "public"}


def test_noise_by_name_for_whole_owners_of_columns_is_refused_with_units_that_work() -> None:
    done = call("run", *GLASU, "--policy", "local_dp", "--out", "out")
    assert done.exit_code == 3
    assert "--policy masked and --unit feature or label or edge" in done.stderr
    assert not Path("out").exists()
    larger = ["--unit", "client", "--epsilon", "9"]  # nobody measured that this learns nothing
    assert call("run", *GLASU, "--policy", "local_dp", *larger, "--out", "out").exit_code == 0


def test_a_policy_of_noise_by_name_alone_has_a_budget_that_is_said() -> None:
    small = [*SMALL, "--set", "training.hidden=[8,4]"]
    done = call("run", *small, "--policy", "local_dp", "--out", "out")
    assert done.exit_code == 0, done.output
    assert "epsilon 8 at delta 1e-05" in done.stdout.splitlines()[0]
    assert "default" in done.stdout.splitlines()[0]
    result = json.loads(Path("out/result.json").read_text())
    assert result["budget"]["epsilon"] == result["config"]["epsilon"] == 8.0
    assert 7.9 < result["privacy"]["node"]["epsilon"] <= 8.0  # the default with few owners
    asked = ["--epsilon", "4", "--unit", "node"]
    done = call("run", *small, "--policy", "local_dp", *asked, "--out", "other")
    assert "default" not in done.stdout.splitlines()[0]


@pytest.mark.parametrize(
    "given",
    [
        {"protection": {"multiplier": 1.0}},
        {"epsilon": 2.0},
        {"steps": {"noise": 1.0}},
        {"links": 4.0},
        {"policy": "masked"},
        {"policy": "strictest"},
    ],
    ids=str,
)
def test_the_default_budget_is_for_nothing_else(given: dict[str, Any]) -> None:
    experiment = Experiment(**{"policy": "local_dp", **given})
    assert experiment.with_default_budget() is experiment


# From Python, in an audit, in a comparison


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, partition="vertical", nodes=120, features=24)


def test_training_from_python_takes_the_form_and_warns(federation: sfg.Federation) -> None:
    small = sfg.Glasu(steps=1, hidden=8, public_nodes=32)
    with pytest.warns(FormWarning, match=r"training\.sampler=public"):
        run = sfg.train(small, federation, sfg.policies.masked(), rounds=1)
    assert run.form == {"sampler": "public"}
    assert small.form is None and small.settings.sampler == "paper"
    by_hand = sfg.Glasu(steps=1, hidden=8, sampler="paper")
    with pytest.raises(LeftInPlaintext, match="'sample'"):
        sfg.train(by_hand, federation, rounds=1)
    with pytest.warns(PlaintextWarning, match="'sample'"):
        assert sfg.train(by_hand, federation, rounds=1, allow_plaintext=True).form == {}


GLASU_SMALL = Experiment(
    algorithm="glasu",
    data="synthetic-citation",
    rounds=1,
    dataset={"nodes": 120, "features": 24},
    training={"steps": 1, "hidden": 8, "public_nodes": 32},
)


def test_an_audit_takes_it_too() -> None:
    found = grid.audit(GLASU_SMALL, ["plaintext", "masked"], choices.choose(["d1"]), [0], controls=())
    forms = {cell["policy"]: cell["form"] for cell in found.cells}
    assert forms == {"plaintext": {}, "masked": {"sampler": "public"}}
    assert {cell["outcome"] for cell in found.cells if cell["policy"] == "masked"} == {"blind"}


def test_a_comparison_takes_it_too(tmp_path: Path) -> None:
    rows = {}
    for name in ("plaintext", "masked"):
        config = GLASU_SMALL.with_policy(name).model_dump(mode="json")
        run_point(config, tmp_path / name)
        result = json.loads((tmp_path / name / "result.json").read_text())
        rows[name] = row_of(Point("as configured", "glasu", name, None, config), {0: result}, {})
    assert {name: row["form"] for name, row in rows.items()} == {
        "plaintext": {},
        "masked": {"sampler": "public"},
    }
