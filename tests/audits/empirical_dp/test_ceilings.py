"""Ceilings: what a claimed epsilon leaves to any attack, and that noise that is missing is found by them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from result_parts import cells
from scipy.stats import norm

from secure_fedgraph.attacks.attack import Guess
from secure_fedgraph.attacks.mashes.pool import IDENTITIES
from secure_fedgraph.attacks.neighgen import FEATURES
from secure_fedgraph.attacks.prototypes import CHANGE
from secure_fedgraph.attacks.released import LINKS, MEMBERS, WORDS
from secure_fedgraph.attacks.rounds import FIRST_UPDATE
from secure_fedgraph.audits.dp_bounds import DELTAS, FEWEST, Claims, most
from secure_fedgraph.audits.grid import report
from secure_fedgraph.audits.grid.cells import Audit
from secure_fedgraph.audits.scoring import Score, ScoreKind, match_rows, recovered_rows
from secure_fedgraph.cli.main import main
from secure_fedgraph.core.accounting.epsilon import exact_gaussian
from secure_fedgraph.core.errors import BrokenClaim
from secure_fedgraph.core.protection.gaussian import Gaussian
from secure_fedgraph.report import grouping


def pairs(mu: float) -> tuple[tuple[float, float], ...]:
    return tuple((exact_gaussian(mu, delta), delta) for delta in DELTAS)


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("kappa", [0.01, 0.2, 0.5, 0.9])
def test_the_ceiling_is_above_the_gaussian_one_and_near_it(mu: float, kappa: float):
    exact = norm.cdf(norm.ppf(kappa) + mu)
    found = most(kappa, pairs(mu))
    assert exact - 1e-6 <= found <= exact + 0.08


def test_a_group_is_bounded_by_the_group():
    exact = norm.cdf(norm.ppf(0.05) + 3 * 0.7)
    assert exact - 1e-6 <= most(0.05, pairs(0.7), 3) <= min(1.0, exact + 0.2)


def test_pure_and_none():
    assert most(0.25, ((math.log(3), 0.0),)) == pytest.approx(0.75)
    assert most(0.5, ((math.log(3), 0.0),)) == pytest.approx(5 / 6)
    assert most(0.4, ()) == 1.0
    assert most(0.4, ((1e4, 1e-5),)) == 1.0


def score(kind: ScoreKind, baseline: float = 0.1, nodes: float | None = None) -> Score:
    details = {} if nodes is None else {"nodes": nodes}
    return Score("a name for people", 0.5, 0.4, 0.6, {"trivial": baseline}, details, kind=kind)


def guess(about: str, owners: int = 2, together: bool = False) -> Guess:
    names = tuple(f"owner-{i}" for i in range(owners))
    targets = {"all": names} if together else {name: (name,) for name in names}
    return Guess(about, {t: np.zeros(1) for t in targets}, targets, 1)


class TestWhichClaimsSpeak:
    claims = Claims({"client": {"server": ((1.0, 1e-5),)}, "node": {"server": ((0.5, 1e-5),)}})
    honest = "honest-but-curious"

    def test_a_smaller_unit_speaks_for_its_own_parts_alone(self):
        who = self.claims.over(guess(IDENTITIES), score(ScoreKind.MEAN), "server", self.honest)
        assert who.claim is not None and who.claim["unit"] == "node"
        assert who.value == most(0.1, ((0.5, 1e-5),))
        labels = self.claims.over(guess("label shares"), score(ScoreKind.MEAN), "server", self.honest)
        assert labels.claim is not None and labels.claim["unit"] == "client"
        assert labels.value == most(0.1, ((1.0, 1e-5),))

    def test_a_row_that_may_be_any_nodes_is_bounded_by_their_sum(self):
        rows = self.claims.over(guess(FEATURES), score(ScoreKind.ROWS, nodes=20), "server", self.honest)
        assert rows.claim is not None and rows.claim["unit"] == "node"
        assert rows.value == pytest.approx(20 * most(0.1 / 20, ((0.5, 1e-5),)))
        many = self.claims.over(guess(FEATURES), score(ScoreKind.ROWS, nodes=1e6), "server", self.honest)
        assert many.claim is not None and many.claim["unit"] == "client"  # 1e6 nodes are bounded by nothing
        unknown = self.claims.over(guess(FEATURES), score(ScoreKind.ROWS), "server", self.honest)
        assert unknown.claim is not None and unknown.claim["unit"] == "client"

    def test_a_cosine_is_bounded_on_its_own_scale(self):
        found = self.claims.over(guess(FIRST_UPDATE), score(ScoreKind.COSINE, -0.2), "server", self.honest)
        assert found.value == pytest.approx(2 * most(0.4, ((1.0, 1e-5),)) - 1)

    def test_ranks_over_all_owners_are_of_two_of_them(self):
        claims = Claims({unit: {"outsider": ((0.5, 1e-5),)} for unit in ("client", "node")})
        of = score(ScoreKind.RANK, 0.5)
        members = claims.over(guess(MEMBERS), of, "outsider", self.honest)
        assert members.value == most(0.5, ((0.5, 1e-5),), 2)
        assert members.claim is not None and members.claim["unit"] == "client"
        # one owner's candidates against others: B5
        mash = claims.over(guess("membership in mashes"), of, "outsider", self.honest)
        assert mash.value == most(0.5, ((0.5, 1e-5),), 1)

    @pytest.mark.parametrize(
        ("about", "kind", "unit"),
        [
            (LINKS, ScoreKind.RANK, None),
            (WORDS, ScoreKind.COSINE, None),
            (CHANGE, ScoreKind.MEAN, "graph"),
        ],
    )
    def test_a_guess_that_reads_more_than_the_release_has_no_ceiling_by_it(self, about, kind, unit):
        units = ("client", "node", "edge", "graph")
        claims = Claims({one: {"outsider": ((0.1, 1e-5),)} for one in units})
        found = claims.over(guess(about), score(kind), "outsider", self.honest)
        assert (found.claim and found.claim["unit"]) == unit
        assert (found.value is None) == (unit is None)

    def test_of_several_owners_their_number_counts(self):
        joint = self.claims.over(guess("vocabulary", 3), score(ScoreKind.JOINT), "server", self.honest)
        assert joint.value == most(0.1, ((1.0, 1e-5),), 3)
        union = self.claims.over(guess("label shares", 3, True), score(ScoreKind.MEAN), "server", self.honest)
        assert union.value == most(0.1, ((1.0, 1e-5),), 3)

    def test_a_trivial_guess_that_never_hit_may_still(self):
        never = self.claims.over(guess("other"), score(ScoreKind.ROWS, 0.0), "server", self.honest)
        assert never.value == most(FEWEST, ((1.0, 1e-5),)) > 0.003

    @pytest.mark.parametrize(
        ("kind", "adversary", "behaviour"),
        [
            (ScoreKind.ROWS, "coalition", honest),
            (ScoreKind.ROWS, "client", honest),
            (ScoreKind.ROWS, "server", "malicious"),
            (ScoreKind.UNBOUNDED, "server", honest),
        ],
    )
    def test_where_none_speaks_there_is_none(self, kind: ScoreKind, adversary: str, behaviour: str):
        assert self.claims.over(guess(FEATURES), score(kind), adversary, behaviour).value is None

    def test_a_renamed_metric_keeps_its_ceiling(self):
        public = np.eye(4)
        rows = recovered_rows({"owner-0": match_rows(public, public)}, {"owner-0": 4}, public)
        renamed = replace(rows, metric="rows that we read")
        before, after = (self.claims.over(guess(FEATURES), s, "server", self.honest) for s in (rows, renamed))
        assert before.value is not None and before == after

    def test_a_score_without_a_kind_is_no_score(self):
        with pytest.raises(TypeError, match="kind"):
            Score("f1", 0.5, 0.4, 0.6, {"trivial": 0.1})  # type: ignore[call-arg]

    def test_a_result_tells_its_finite_epsilons(self):
        readers = {"server": "inf", "peers": 2.0}
        told = Claims.from_result({"privacy": {"client": {"delta": 1e-5, "readers": readers}}})
        assert told.by_unit == {"client": {"peers": ((2.0, 1e-5),)}}


def test_a_claim_is_broken_by_what_is_sure_and_not_by_the_interval():
    cell: dict[str, Any] = {
        "attack": "a4-label-counts", "adversary": "server", "policy": "local_dp", "score": 0.9, "low": 0.8,
        "ceiling": 0.7, "claim": {"epsilon": 0.5, "unit": "client"}, "leaks": False,
    }  # fmt: skip
    older = Audit(cells=[cell])
    unsure, sure = (Audit(cells=[{**cell, "surely_at_least": least}]) for least in (0.6, 0.75))
    assert [len(report.broken(one)) for one in (older, unsure, sure)] == [1, 0, 1]
    assert "(surely at least 0.750)" in report.broken(sure)[0]
    told = cells(one.cells[0] | {"outcome": "score"} for one in (older, unsure, sure))
    assert [grouping.above(one) for one in told] == [True, False, True]


FLAGS = [
    "audit", "--data", "synthetic-citation", "--set=dataset.nodes=240", "--set=dataset.features=24",
    "--policy", "local_dp", "--epsilon", "0.5", "--unit", "client", "--attack", "a4",
    "--control", "one full step", "--json",
]  # fmt: skip


def audit(out: Any) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(main, [*FLAGS, "--out", str(out)])
    return done.exit_code, json.loads((out / "audit.json").read_text())


def test_noise_that_is_missing_is_above_the_ceiling(tmp_path, monkeypatch: pytest.MonkeyPatch):
    status, honest = audit(tmp_path / "honest")
    cells = [c for c in honest["cells"] if c["outcome"] == "score"]
    assert status == 0 and honest["broken"] == []
    assert all(c["claim"]["epsilon"] <= 0.5 and c["low"] <= c["ceiling"] for c in cells)
    assert all(c["surely_at_least"] <= c["low"] for c in cells)

    monkeypatch.setattr(Gaussian, "apply", lambda self, matrix, scope: matrix)
    status, broken = audit(tmp_path / "broken")
    assert status == BrokenClaim.exit_status
    above = [text for text in broken["broken"] if "allows any attack" in text]
    assert above and "a4-label-counts by the server" in above[0] and "for one client" in above[0]
    page = (tmp_path / "broken" / "report.html").read_text()
    assert "claims are broken" in page and "a4-label-counts by the server scored" in page
