"""What an audit hands an attacker besides its view, made from what the threat model grants.

An attack names its facts in ``needs``; each has a maker here. A maker may draw on public data and on data
that the audit draws for itself, and never on what only a victim knows: whatever is granted is printed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attacks.attack import Attack, Knowledge
from audits.case import Case

Maker = Callable[[Case], Any]

MAKERS: dict[str, Maker] = {}


def knowledge(attack: Attack, case: Case) -> Knowledge:
    """The facts that an attack needs, with the sentences that say so."""
    return Knowledge(attack.grants, {name: MAKERS[name](case) for name in attack.needs})
