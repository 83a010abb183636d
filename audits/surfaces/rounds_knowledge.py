"""What attacks across rounds are granted: the noise stage's own code, run again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from secure_fedgraph.attacks.rounds import NOISE, vector
from secure_fedgraph.audits.finished_run import Case
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.protect import protect
from secure_fedgraph.privacy.protection import Bound, Scope
from secure_fedgraph.privacy.stages.gaussian import Gaussian
from secure_fedgraph.protocol.wire import decode

CHANNEL = "update"


def noise(case: Case) -> dict[tuple[int, str], np.ndarray]:
    """(round, client) -> what the noise stage of the clients gives when it is run again, on zeros.

    Whatever the stage draws from is what it was in the run: the operating system, or a seed. Empty where no
    client adds noise.
    """
    bound = _bound(case)
    stage = next((s for s in bound.stages if isinstance(s, Gaussian)), None) if bound else None
    if stage is None or stage.by == "server":
        return {}
    found = {}
    for note in case.transcript.made:
        if note.channel == CHANNEL:
            width = len(vector(decode(case.transcript.body(note.number))))
            scope = Scope("", note.round, note.exchange, note.channel, case.federation.names)
            drawn = np.asarray(stage.apply(np.zeros((1, width)), scope), dtype=np.float64).reshape(-1)
            found[note.round, note.reader] = drawn * stage.step if stage.by == "shares" else drawn
    return found


def _bound(case: Case) -> Bound | None:
    """What protects the channel: as it ran, or made again from the run's configuration."""
    if CHANNEL not in case.transcript.public.get("channels", {}):
        return None
    if case.policy is not None:
        return case.policy[CHANNEL]
    if "config" not in case.result:
        return None
    experiment = Experiment(**case.result["config"]).model_copy(update={"ledger": None})
    policy = protect(experiment, case.algorithm, case.federation).policy
    return policy.bind(case.algorithm.in_use, case.federation.names)[CHANNEL]


MAKERS_OF_ROUNDS: Mapping[str, Callable[[Case], Any]] = {NOISE: noise}
