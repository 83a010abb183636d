"""Recipes of other packages: they leave ours alone, and run, are audited and compared under a budget."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import in_this_process
import numpy as np
import pytest
from click.testing import CliRunner, Result

from secure_fedgraph.algorithms.training.weighting import AveragingSettings
from secure_fedgraph.cli.main import main
from secure_fedgraph.core.carriers.plain import Plain
from secure_fedgraph.core.channel import Channel, Domain, Reveal
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.binding import Protection
from secure_fedgraph.core.protection.contracts import BindContext, Scope, Sensitivity, Stage
from secure_fedgraph.core.protection.gaussian import Clip, Gaussian
from secure_fedgraph.experiment.config import Experiment, make_policy
from secure_fedgraph.privacy.policies import RECIPES, _checked, is_noised, takes_by_channel
from secure_fedgraph.privacy.policies.recipe import Amount, amount_of
from secure_fedgraph.privacy.policy import Policy

SMALL = ["--algorithm", "fedavg", "--data", "synthetic-citation", "--clients", "3", "--rounds", "1"]
SMALL += ["--set", "dataset.nodes=90", "--set", "dataset.features=16", "--set", "training.hidden=[8,4]"]
TWO = [Channel("update", Reveal.SUM), Channel("metrics", Reveal.SUM)]


def ball(norm=1.0, multiplier=2.0):
    stages = (Clip(norm, whole=True), Gaussian(multiplier))
    return Policy("ball", lambda channel: Protection(Plain(), stages, name="ball"))


# as an interpreter reads them in a module without `from __future__ import annotations`
ball.__annotations__ = {"norm": float, "multiplier": float, "return": Policy}


def sign_dp(norm: Amount, multiplier: Amount) -> Policy:
    def recipe(channel: Channel) -> Protection:
        clip = Clip(amount_of("norm", norm, channel), whole=True)
        noise = Gaussian(amount_of("multiplier", multiplier, channel))
        return Protection(Plain(), (clip, noise), name="sign_dp")

    return Policy("sign_dp", recipe)


@dataclass(frozen=True)
class Signs(Stage):
    """Signs, at a length of the norm: no scaling."""

    norm: float
    takes = gives = Domain.REAL

    def bind(self, sensitivity: Sensitivity, context: BindContext) -> tuple[Stage, Sensitivity]:
        return self, Sensitivity(l2=self.norm, unit=Unit.CLIENT)

    def apply(self, matrix: np.ndarray, scope: Scope) -> np.ndarray:
        signed: np.ndarray = np.sign(matrix) * self.norm / math.sqrt(matrix.size)
        return signed


def signs(norm: Amount, multiplier: Amount) -> Policy:
    def recipe(channel: Channel) -> Protection:
        noise = Gaussian(amount_of("multiplier", multiplier, channel))
        return Protection(Plain(), (Signs(amount_of("norm", norm, channel)), noise), name="signs")

    return Policy("signs", recipe)


def fixed() -> Policy:
    stages = (Clip(1.0, whole=True), Gaussian(30.0))
    return Policy("fixed", lambda channel: Protection(Plain(), stages, name="fixed"))


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Four recipes of an installed package."""
    made = {one.__name__: (_checked(one.__name__, one), "somebody") for one in (ball, fixed, sign_dp, signs)}
    monkeypatch.setattr(RECIPES, "_loaded", made)
    monkeypatch.chdir(tmp_path)


def call(*words: str) -> Result:
    return CliRunner().invoke(main, [*words, *SMALL, "--json"])


def multipliers(policy: Policy) -> list[float]:
    bound = policy.bind(TWO, ("a", "b", "c"))
    return [bound[one.name].stages[-1].multiplier for one in TWO]


@pytest.mark.parametrize("name", ["local_dp", "masked", "strictest"])
def test_what_another_recipe_takes_is_not_asked_of_ours(name: str) -> None:
    by_channel = {"norm": {"update": 1.0, "metrics": 1.0}, "multiplier": {"update": 1.41, "metrics": 2.0}}
    assert make_policy(name, by_channel).name == name


def test_ours_is_planned_beside_another_recipe_that_takes_numbers() -> None:
    ended = call("run", "--policy", "local_dp", "--epsilon", "8", "--unit", "client")
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout)["plan"][0]["multiplier"] > 0.5


@pytest.mark.parametrize(("name", "planned"), [("ball", [3.0, 3.0]), ("sign_dp", [1.5, 3.0])])
def test_a_plan_is_one_number_where_a_recipe_takes_one(name: str, planned: list[float]) -> None:
    """The most that any channel needs: every channel then keeps to its part."""
    experiment = Experiment(algorithm="fedavg", policy=name, epsilon=8.0, evaluation="in_band")
    assert multipliers(experiment.make_policy({"update": 1.5, "metrics": 3.0})) == planned


def test_a_number_by_channel_by_hand_is_refused_where_a_recipe_takes_one() -> None:
    with pytest.raises(BadInput, match=r"multiplier is a dict: give a number"):
        make_policy("ball", {"multiplier": {"update": 1.0}})


@pytest.mark.parametrize("annotation", [Amount, "Amount", "recipe.Amount", "sfg.policies.Amount"])
def test_an_amount_is_one_however_it_is_spelled(monkeypatch: pytest.MonkeyPatch, annotation: object) -> None:
    monkeypatch.setitem(sign_dp.__annotations__, "multiplier", annotation)
    monkeypatch.setattr(RECIPES, "_loaded", {"sign_dp": (_checked("sign_dp", sign_dp), "somebody")})
    assert takes_by_channel("sign_dp")


def test_who_adds_noise_is_asked_of_the_recipe() -> None:
    noised = {"ball", "central_dp", "distributed_dp", "fixed", "local_dp", "sign_dp"}
    assert {name for name in (*RECIPES.own, "ball", "fixed", "sign_dp") if is_noised(name)} == noised


@pytest.mark.parametrize(("given", "epsilon"), [({}, 8.0), ({"norm": 1.0, "multiplier": 1.0}, None)])
def test_one_that_needs_noise_has_the_default_budget_unless_noise_is_given(
    given: Mapping[str, float], epsilon: float | None
) -> None:
    experiment = Experiment(algorithm="fedavg", policy="sign_dp", protection=dict(given))
    assert experiment.with_default_budget().epsilon == epsilon


@pytest.mark.parametrize(
    ("policy", "clip"),
    [("sign_dp", "adaptive"), ("local_dp", "adaptive"), ("strictest", "adaptive"), ("signs", "policy")],
)
def test_a_clip_follows_the_clients_only_where_all_stages_scale(policy: str, clip: str) -> None:
    asked = Experiment(algorithm="fedavg", policy=policy, epsilon=8.0, unit="client")
    settings = asked.make_algorithm().settings
    assert isinstance(settings, AveragingSettings) and settings.clip == clip
    assert asked.make_policy({"update": 1.0}).name == policy


@pytest.mark.parametrize(
    ("policy", "given"),
    [("ball", []), ("sign_dp", ["--norm", "1"]), ("fixed", [])],
)
def test_it_is_run_under_a_budget(policy: str, given: list[str]) -> None:
    ended = call("run", "--policy", policy, "--epsilon", "8", *given)
    assert ended.exit_code == 0, ended.output
    assert 0 < json.loads(ended.stdout)["privacy"]["client"]["epsilon"] <= 8


def test_it_is_audited_under_a_budget() -> None:
    ended = call("audit", "--policy", "sign_dp", "--epsilon", "4", "--norm", "1", "--attack", "a4")
    assert ended.exit_code == 0, ended.output
    assert {cell["policy"] for cell in json.loads(ended.stdout)["cells"]} == {"sign_dp"}


def test_it_is_compared_under_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    in_this_process.at_once(monkeypatch)
    ended = call("compare", "--policy", "sign_dp", "--epsilon", "4", "--seeds", "1")
    assert ended.exit_code == 0, ended.output
    points: list[dict[str, Any]] = json.loads(ended.stdout)["points"]
    assert [one["epsilon"] for one in points if one["policy"] == "sign_dp"] == [4.0]
