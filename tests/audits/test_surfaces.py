"""Who judges a guess and who makes what an attack is granted: of the surfaces, or the attack's own."""

from __future__ import annotations

from typing import Any, cast

import pytest

from secure_fedgraph.attacks import ATTACKS, Attack, Guess, Judge
from secure_fedgraph.attacks.attack import Maker
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.surfaces.registry import JUDGES, MAKERS, judge_of, knowledge
from secure_fedgraph.core.errors import BadInput

CASE = cast(FinishedRun, None)


class Nosy(ATTACKS["a4-label-counts"]):  # type: ignore[misc]
    id = "z1-nosy"
    needs = ("the weather",)


class WithItsOwn(Nosy):
    @classmethod
    def judge(cls) -> Judge:
        return lambda guess, case: "judged"

    @classmethod
    def makers(cls) -> dict[str, Maker]:
        return {"the weather": lambda case: "rain"}


def about(what: str) -> Guess:
    return Guess(what, {}, {}, 0)


def test_every_fact_that_an_attack_needs_is_made() -> None:
    assert {name for kind in ATTACKS.own.values() for name in kind.needs} == set(MAKERS)


def test_a_guess_names_its_judge_unless_the_attack_has_one() -> None:
    assert judge_of(Nosy, about("vocabulary")) is JUDGES["vocabulary"]
    judge: Any = judge_of(WithItsOwn, about("vocabulary"))
    assert judge(about("vocabulary"), CASE) == "judged"
    with pytest.raises(BadInput, match="'the weather'"):
        judge_of(Nosy, about("the weather"))


def test_a_fact_is_made_by_the_attack_or_refused() -> None:
    granted = knowledge(WithItsOwn(), CASE)
    assert dict(granted.facts) == {"the weather": "rain"}
    with pytest.raises(BadInput, match="'the weather'"):
        knowledge(Nosy(), CASE)


def test_an_attack_without_words_for_a_page_has_those_of_its_id() -> None:
    class Plain(Attack):
        id = "z2-words-of-others"
        summary = "which words others hold"

    assert Plain.in_words() == {"title": "which words others hold", "subject": "words of others"}
