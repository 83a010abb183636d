"""What an audit hands an attacker besides its view, made from what the threat model grants.

An attack names its facts in ``needs``; each has a maker here. A maker may draw on public data and on data
that the audit draws for itself, and never on what only a victim knows: whatever is granted is printed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from secure_fedgraph.attacks.attack import Attack, Knowledge
from secure_fedgraph.audits.finished_run import Case
from secure_fedgraph.audits.surfaces.mashes_knowledge import MAKERS_OF_MASHES
from secure_fedgraph.audits.surfaces.prototypes_knowledge import MAKERS_OF_PROTOTYPES
from secure_fedgraph.audits.surfaces.released_knowledge import MAKERS_OF_RELEASED
from secure_fedgraph.audits.surfaces.rounds_knowledge import MAKERS_OF_ROUNDS
from secure_fedgraph.audits.surfaces.vertical_knowledge import MAKERS_VERTICAL

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
