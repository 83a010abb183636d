"""What a defence leaves may be about single owners still: verdicts follow whom a guess is about."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from result_parts import cells

from secure_fedgraph.attacks import ATTACKS, Guess
from secure_fedgraph.audits.grid.cells import describe_owners, owners_of
from secure_fedgraph.audits.grid.report import verdict
from secure_fedgraph.experiment.schema.score_verdict import HARM, RESIDUAL, SINGLE_OWNERS
from secure_fedgraph.report import text
from secure_fedgraph.report.first_screens.readers import read_under
from secure_fedgraph.report.outcomes import leak_table

NAMES = ("a", "b", "c")


def guess(**targets: tuple[str, ...]) -> Guess:
    return Guess("anything", {t: np.zeros(1) for t in targets}, targets, 1)


@pytest.mark.parametrize(
    ("targets", "owners", "sentence"),
    [
        ({"a": ("a",), "b": ("b",)}, 1, "about single owners"),
        ({"a + b": ("a", "b"), "c": ("c",)}, 2, "about several owners together"),
        ({"all": NAMES}, 3, "about all owners together"),
    ],
)
def test_a_guess_says_whom_it_is_about(targets: Any, owners: int, sentence: str) -> None:
    assert owners_of(guess(**targets)) == owners
    assert describe_owners(guess(**targets), NAMES) == sentence


def left(owners: int | None) -> dict[str, Any]:
    """A leak in what a defence leaves, about so many owners."""
    return {
        "algorithm": "fairgraphfl", "policy": "strictest", "attack": "e1-singleton-motif",
        "subject": "graph embeddings from motifs of one graph",
        "adversary": "server", "outcome": "score", "score": 1.0, "baseline": 0.0, "leaks": True,
        "verdict": "exact", "owners": owners, "settings": {"aim": RESIDUAL, "variant": "as configured"},
    }  # fmt: skip


def test_what_a_lie_costs_is_no_reading() -> None:
    lie = left(3) | {"attack": "j1-reversed-update", "score": 0.4, "metric": "accuracy lost"}
    lie |= {"details": {"honest": 0.9}, "settings": {"aim": HARM, "variant": "as configured"}}
    (row,) = read_under(cells([lie]), ["strictest"])
    assert (row.state, row.tried, row.together) == ("harmed", 0, 0) and "steered" in row.outcome()
    assert verdict([lie]) == "strictest: j1-reversed-update: 0.400 accuracy lost, of 0.900."
    assert verdict([lie | {"leaks": False}]) == "strictest: no lie that was tried did harm."
    assert read_under(cells([lie | {"leaks": False}]), ["strictest"])[0].state == "harmless"


def test_what_is_left_about_single_owners_is_no_union() -> None:
    assert "single owners are exposed to e1-singleton-motif" in verdict([left(1)])
    (row,) = read_under(cells([left(1)]), ["strictest"])
    assert row.state == "leaks" and "read single owners’ graph embeddings" in row.outcome()


def test_the_table_says_so_too() -> None:
    for owners, told in ((1, "each, from what is left"), (3, "all together")):
        table: Any = leak_table(cells([left(owners)]), [], ["strictest"])
        (attack,) = table["groups"][0]["attacks"]
        assert [row["aim"] for row in attack["rows"]] == [told]
        assert [row[1] for row in attack["numbers"]] == [told]


@pytest.mark.parametrize("owners", [3, None])  # of older files, which do not say, the aim counts
def test_a_union_stays_one(owners: int | None) -> None:
    assert "all owners together are exposed to e1-singleton-motif" in verdict([left(owners)])
    (row,) = read_under(cells([left(owners)]), ["strictest"])
    assert row.state == "together"
    (row,) = read_under(cells([left(owners) | {"settings": {"aim": SINGLE_OWNERS}}]), ["strictest"])
    assert row.state == "leaks"


def test_every_attack_and_adversary_has_its_words() -> None:
    assert all(kind.summary and kind.subject for kind in ATTACKS.own.values())
    for key in ("title", "subject"):
        assert len({kind.in_words()[key] for kind in ATTACKS.values()}) == len(ATTACKS)
    assert {who for kind in ATTACKS.values() for who in kind.adversaries} == set(text.ADVERSARIES)


def test_what_is_exact_of_too_few_is_said_to_be() -> None:
    """One owner's labels, all right: no interval tells that from luck, and "nothing was read" is wrong."""
    few = left(1) | {"leaks": False, "baseline": 0.6, "settings": {"aim": SINGLE_OWNERS}}
    told = verdict([few])
    assert "exact about single owners, of too few to tell from a guess: e1-singleton-motif" in told
    assert "exact" not in verdict([few | {"score": 0.9}])
    assert "exact" not in verdict([few | {"baseline": 1.0}])  # whoever guesses trivially is right, too
    assert "exact" not in verdict([few, left(1)])  # another cell shows the leak
    (row,) = read_under(cells([few]), ["strictest"])
    assert row.state == "scored" and "nothing for certain" in row.outcome()
    (row,) = read_under(cells([few | {"score": 0.9}]), ["strictest"])
    assert row.state == "nothing"
