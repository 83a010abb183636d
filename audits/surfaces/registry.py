"""The makers of facts that attackers are granted, and the judges of guesses, from the modules of this folder.

A module of a leak surface has ``JUDGES``, what a guess is about -> its judge, and ``MAKERS``, a fact's name
-> its maker. Every module in this folder is registered. A maker may use public data and data that the audit
draws for itself, never what only a victim knows: whatever is granted is printed.
"""

from __future__ import annotations

from secure_fedgraph.attacks.attack import Attack, Guess, Knowledge
from secure_fedgraph.audits import surfaces
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.judgement import Judge, Maker
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.registry import modules_below

JUDGES: dict[str, Judge] = {}
"""What a guess is about -> the judge that scores it."""
MAKERS: dict[str, Maker] = {}
"""A fact's name -> its maker."""


for _module in modules_below(surfaces):
    if _module.__name__ != __name__:
        JUDGES.update(vars(_module).get("JUDGES", {}))
        MAKERS.update(vars(_module).get("MAKERS", {}))


def judge_of(attack: type[Attack], guess: Guess) -> Judge:
    """The attack's own judge, or the one of this folder that the guess names.

    Raises:
        BadInput: where there is none.
    """
    own: Judge | None = attack.judge()
    if own is None and guess.about not in JUDGES:
        raise BadInput(
            f"attack {attack.id}: no judge for guesses about {guess.about!r}: define "
            f"{attack.__name__}.judge, or name one of {', '.join(sorted(JUDGES))}"
        )
    return JUDGES[guess.about] if own is None else own


def knowledge(attack: Attack, finished: FinishedRun) -> Knowledge:
    """The facts that an attack needs, with the sentences that say so.

    Raises:
        BadInput: for a fact without a maker.
    """
    makers = {**MAKERS, **attack.makers()}
    for name in attack.needs:
        if name not in makers:
            raise BadInput(f"attack {attack.id} needs {name!r}, which has no maker: add it to its makers")
    return Knowledge(attack.grants, {name: makers[name](finished) for name in attack.needs})
