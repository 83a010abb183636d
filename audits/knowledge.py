"""What an audit hands an attacker besides its view, made from what the threat model grants.

An attack names its facts in ``needs``; each has a maker here. A maker may draw on public data and on data
that the audit draws for itself, and never on what only a victim knows: whatever is granted is printed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attacks.attack import Attack, Knowledge
from audits.case import Case
from audits.knowledge_mashes import MAKERS_OF_MASHES
from audits.knowledge_prototypes import MAKERS_OF_PROTOTYPES
from audits.knowledge_released import MAKERS_OF_RELEASED
from audits.knowledge_rounds import MAKERS_OF_ROUNDS
from audits.knowledge_vertical import MAKERS_VERTICAL

Maker = Callable[[Case], Any]

MAKERS: dict[str, Maker] = {
    **MAKERS_OF_RELEASED,
    **MAKERS_OF_ROUNDS,
    **MAKERS_OF_MASHES,
    **MAKERS_OF_PROTOTYPES,
    **MAKERS_VERTICAL,
}


def knowledge(attack: Attack, case: Case) -> Knowledge:
    """The facts that an attack needs, with the sentences that say so."""
    return Knowledge(attack.grants, {name: MAKERS[name](case) for name in attack.needs})
