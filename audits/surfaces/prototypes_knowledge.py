"""What attacks on prototypes are granted: which graph holds which motif, and a run with one graph less."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from secure_fedgraph.attacks.prototypes import EARLIER, INCIDENCE
from secure_fedgraph.audits.finished_run import Case
from secure_fedgraph.audits.rerun import again
from secure_fedgraph.federation import Federation
from secure_fedgraph.graph.motifs import motifs_of
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import SERVER


def incidence(case: Case) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Owner -> the codes of all motifs of its training graphs, and ``[graphs, motifs]`` which holds which.

    Empty where the algorithm has no motifs, or numbers them by a public list.
    """
    s = case.algorithm.settings
    if getattr(s, "vocabulary", "") != "exchanged":
        return {}
    schema, found = case.federation.schema, {}
    for owner, graph in case.federation.owners.items():
        training = graph.train_mask.nonzero().flatten()
        motifs = motifs_of(graph, training, s.rings, bool(schema.atoms))  # type: ignore[attr-defined]
        holds = np.zeros((motifs.graphs, len(motifs.codes)), dtype=bool)
        holds[motifs.graph, motifs.motif] = True
        found[owner] = (motifs.codes.numpy(), holds)
    return found


def removed(case: Case) -> tuple[str, int]:
    """Whose training graph is left out of the earlier run, and which: the first owner's middle one."""
    owner = min(case.federation.names)
    training = case.federation.owners[owner].train_mask.nonzero().flatten()
    return owner, int(training[len(training) // 2])


def earlier(case: Case) -> View | None:
    """The server's view of one round over the same data with one training graph less, under the same policy.

    None where the algorithm sends no sums over graphs, or the run's configuration is not known.
    """
    if "motif_sums" not in case.transcript.public.get("channels", {}) or "config" not in case.result:
        return None
    owner, graph = removed(case)
    less = _without(case.federation, owner, graph)
    run = again(case, less, rounds=1, keep=lambda channel, round: channel == "motif_sums")
    return run.transcript.view(SERVER)


def _without(federation: Federation, owner: str, graph: int) -> Federation:
    mine = federation.owners[owner].clone()
    mine.train_mask = mine.train_mask & (torch.arange(len(mine.train_mask)) != graph)
    return replace(federation, owners={**federation.owners, owner: mine})


MAKERS_OF_PROTOTYPES: Mapping[str, Callable[[Case], Any]] = {INCIDENCE: incidence, EARLIER: earlier}
