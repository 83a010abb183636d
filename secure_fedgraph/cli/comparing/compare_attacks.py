"""The attacks on the points of a comparison: each one's strongest result on single owners."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from secure_fedgraph.core.errors import BadInput, Refused, SecureFedGraphError
from secure_fedgraph.experiment.code_digest import of_code, of_rooms
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import expected

BLIND = "blind"


def attacks_on(chosen: Sequence[Any], asked: Sequence[str]) -> Attacks:
    """The attacks by name; of a family, or of ``all``, those that read a channel of these algorithms.

    Raises:
        BadInput: for a name of which nothing reads a channel of these algorithms.
    """
    from secure_fedgraph.audits.grid.choices import choose
    from secure_fedgraph.audits.grid.planned_runs import ROOMS

    code = of_rooms(*ROOMS)
    sent: dict[str, set[str]] = {}
    for point in chosen:
        with suppress(Refused):
            channels = {channel.name for channel in expected(point.experiment(0)).in_use}
            sent.setdefault(point.algorithm, set()).update(channels)
    used = set[str]().union(*sent.values())
    chosen_ids: dict[str, None] = {}
    for name in asked:
        kinds = [kind for kind in choose([name]) if used & set(kind.reads())]
        fitting = [name if ":" in name else kind.id for kind in kinds]
        code += "".join(of_code(kind) for kind in kinds if ":" in name)
        if not fitting:
            raise BadInput(
                f"--attack {name} reads nothing that {' or '.join(sent)} sends as configured: leave it out, "
                "or compare an algorithm that it reads"
            )
        chosen_ids.update(dict.fromkeys(fitting))
    return Attacks(tuple(chosen_ids), code)


@dataclass(frozen=True)
class Attacks:
    """Attacks on one point's run as configured.

    Args:
        attacks: their ids; a user's own as ``module:Class``.
        code: a digest of theirs and of the audits' code.
    """

    attacks: tuple[str, ...]
    code: str = ""

    def __call__(self, config: dict[str, Any]) -> dict[str, Any]:
        """Each attack's strongest result on single owners: a score or an outcome, and the best guess."""
        from secure_fedgraph.audits.grid import grid
        from secure_fedgraph.audits.grid.cells import Audit
        from secure_fedgraph.audits.grid.choices import choose
        from secure_fedgraph.experiment.schema.score_verdict import SINGLE_OWNERS, whom

        experiment, audited = Experiment(**config), Audit()
        kinds = self.fitting(experiment)
        if kinds:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                audited = grid.audit(experiment, [experiment.policy], kinds, [experiment.seed], controls=())
        if failed := [cell["reason"] for cell in audited.not_run]:
            raise SecureFedGraphError(failed[0])
        best: dict[str, dict[str, Any]] = {}
        for cell in audited.cells:
            # a sum over all owners shows no single owner, but what a defence leaves may
            if whom(cell["settings"]["aim"], cell.get("owners")) == SINGLE_OWNERS:
                found = best.setdefault(cell["attack"], cell)
                best[cell["attack"]] = max(
                    found, cell, key=lambda one: (bool(one.get("leaks")), one.get("score") or 0)
                )
        keys = ("score", "baseline", "low", "leaks", "adversary")
        told: dict[str, Any] = {"leak": {}, "leaks": {}}
        for attack in [kind.id for kind in choose(self.attacks)]:
            cell = best.get(attack, {"outcome": BLIND})
            scored = cell.get("score") is not None
            told["leak"][attack] = float(cell["score"]) if scored else cell["outcome"]
            if scored:
                told["leaks"][attack] = {**{key: cell[key] for key in keys}, "aim": cell["settings"]["aim"]}
        return told

    def fitting(self, experiment: Experiment) -> list[Any]:
        """The attacks that read what an experiment sends: all others are blind, without a run."""
        from secure_fedgraph.audits.grid.choices import choose

        try:
            sent = {channel.name for channel in expected(experiment).in_use}
        except Refused:  # its row says so
            return []
        return [kind for kind in choose(self.attacks) if sent & set(kind.reads())]
