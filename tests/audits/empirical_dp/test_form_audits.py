"""Forms that families take under a budget: each claim against trials, real removals and mistakes."""

from __future__ import annotations

import json
from functools import cache
from unittest.mock import patch

import pytest
from scripts import script

from secure_fedgraph.core.spending.ledger import Cost

AUDITS = script("form_audits")
Removed = AUDITS.Removed
QUICK = ("FedEgo, node", "FedEgo, label", "GLASU, feature")
"""One form with sums of what several owners hold, and one without any noise: seconds, not minutes."""
prepared = cache(lambda name: AUDITS.FORMS[name].prepared())


@pytest.mark.parametrize("name", AUDITS.FORMS)
def test_the_kept_row_of_a_form_is_between_seven_tenths_of_its_claim_and_the_claim(name):
    row = json.loads(AUDITS.KEPT.read_text())[name]
    assert row["mistakes"].keys() == set(AUDITS.FORMS[name].mistakes) and all(row["mistakes"].values())
    assert row["removed"] == [20, 5] and max(row["random"], row["hubs"]) <= 1 and row["links"] == 0
    if name.startswith("GLASU"):
        assert row["claim"] == row["random"] == row["hubs"] == 0
    else:
        assert row["trials"] == 20_000 and not row["refuted"]
        assert 0.7 * row["claim"] <= row["lower"] <= row["claim"] <= AUDITS.EPSILON


@pytest.mark.needs_data("planetoid/Cora")
@pytest.mark.parametrize("name", QUICK[:2])
def test_a_whole_runs_claim_holds_and_is_half_reached(name):
    found = AUDITS.FORMS[name].audited(prepared(name), 2_000)
    assert not found.broken and 0.5 * found.claim < found.lower.epsilon < found.claim < found.lower.ceiling


@pytest.mark.needs_data("planetoid/Cora")
@pytest.mark.parametrize("name", QUICK)
def test_real_removals_move_no_more_than_is_counted(name):
    form = AUDITS.FORMS[name]
    removed = Removed(prepared(name), form.unit)
    random, hubs = removed.chosen(1, 2)
    moved = [removed.moved(one) for one in (*random, *hubs)]
    assert max(moved) == 0 if name.startswith("GLASU") else 0.7 < max(moved) <= 1
    if form.unit == "node":
        assert Removed(prepared(name), "edge").moved(hubs[0]) == 0


@pytest.mark.needs_data("planetoid/Cora")
@pytest.mark.parametrize(
    ("name", "mistake"), [(name, one) for name in QUICK for one in AUDITS.FORMS[name].mistakes]
)
def test_a_planted_mistake_is_caught(name, mistake):
    assert AUDITS.caught(AUDITS.FORMS[name], mistake, 2_000)


@pytest.mark.needs_data("planetoid/Cora")
def test_noise_for_a_label_that_only_goes_is_refuted():
    """A label turns into another: its part moves twice as far as one that is left out."""
    at = Cost.at
    with patch.object(
        Cost, "at", lambda cost, unit, *rest: at(cost, "node" if unit == "label" else unit, *rest)
    ):
        form = AUDITS.FORMS["FedEgo, label"]
        assert form.audited(form.prepared(), 2_000).broken
