"""A run once more over other data: for adversaries who saw two runs, and for models with nodes left out."""

from __future__ import annotations

import warnings

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.protect import protect
from secure_fedgraph.federation import Federation
from secure_fedgraph.policies import plaintext
from secure_fedgraph.privacy.policy import PlaintextWarning
from secure_fedgraph.protocol.transcript import Keep, nothing
from secure_fedgraph.running.loop import train
from secure_fedgraph.running.run import Run


def train_again(
    finished: FinishedRun, federation: Federation, rounds: int | None = None, keep: Keep = nothing
) -> Run:
    """The audited run once more, over another federation: same algorithm, policy and seed.

    With the noise that it was planned with, where it is known; else as much as a plan makes of its budget.

    It is the audit's own, so it is charged to no ledger that runs share.

    Args:
        rounds: as many as the audited run by default.
        keep: which messages are kept in full.
    """
    experiment = Experiment(**finished.result["config"]).model_copy(update={"ledger": None})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlaintextWarning)
        return train(
            finished.algorithm,
            federation,
            finished.policy.policy
            if finished.policy is not None
            else protect(experiment, finished.algorithm, federation).policy,
            rounds=experiment.rounds if rounds is None else rounds,
            seed=finished.seed,
            keep=keep,
            allow_plaintext=True,  # as the audited run was, where it needed to
        )


def in_the_open(
    algorithm: Algorithm,
    federation: Federation,
    seed: int,
    rounds: int | None,
    keep: Keep = nothing,
    evaluation: str | None = None,
) -> Run:
    """A run without protection, of what an attacker makes up."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlaintextWarning)
        return train(
            algorithm,
            federation,
            plaintext(),
            rounds=rounds,
            seed=seed,
            keep=keep,
            evaluation=evaluation,
            allow_plaintext=True,
        )
