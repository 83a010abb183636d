"""The options of a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any

from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.core.errors import BadInput, check_whole, wrong_type
from secure_fedgraph.core.spending.budget import Budget
from secure_fedgraph.evaluation import MODES
from secure_fedgraph.graph.placing import CPU, check_device
from secure_fedgraph.protocol.dropouts import Dropouts
from secure_fedgraph.protocol.transcript import Keep, nothing
from secure_fedgraph.round import Sampler, everyone
from secure_fedgraph.running.remote_clients import Connect

OnRound = Callable[[dict[str, Any]], None]


IN_PYTHON = {
    "transcript": "keep=lambda channel, round: True",
    **dict.fromkeys(("epsilon", "delta", "unit", "against"), "budget=sfg.Budget(8.0, unit='client')"),
    **dict.fromkeys(("norm", "multiplier"), "policy=sfg.policies.distributed_dp(norm=1.0, multiplier=1.0)"),
}
"""Names of the command line -> what to give to ``train`` instead."""


_KINDS: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("resume", "allow_plaintext"), ((bool,), "give True or False")),
    **dict.fromkeys(("sampler", "keep"), ((Callable,), "give a function")),
    **dict.fromkeys(("on_round", "on_start", "connect"), ((Callable, NoneType), "give a function")),
    "dropouts": ((Dropouts, NoneType), "give Dropouts(share=0.2), or leave it out"),
    "budget": ((Budget, NoneType), "say whose data it is about, such as sfg.Budget(8.0, unit='client')"),
    **dict.fromkeys(("out", "ledger"), ((str, Path, NoneType), "give a path")),
}
"""Option -> its types, and what to give in the place of another."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How one run goes.

    Args:
        rounds: by default the algorithm's own number.
        seed: for initialisation and sampling, each with a sub-seed of its own; never for anything that
            protects data.
        sampler: picks the cohort of a round.
        evaluation: ``"referee"`` or ``"in_band"``; by default ``"in_band"`` where owners came with data of
            their own and no referee has any, and otherwise ``"referee"``. With ``"at_home"`` no score
            leaves an owner, so none costs anything, and the run has none.
        evaluate_every: rounds from one score to the next; the last round always has one. Rounds between have
            an entry without scores, and with ``"in_band"`` send none and are charged for none.
        evaluate_sample: how many test nodes the referee scores, drawn once; by default all. Only for models
            whose scores of some nodes do not need the whole graph.
        out: folder for the ledger, the transcript and the checkpoints; in memory without one.
        keep: which messages the transcript keeps in full.
        on_round: called with each round's scores; on resume with those of the earlier rounds first.
        on_start: called after all checks have passed and before the first message is sent.
        device: ``cpu`` or ``cuda``: where clients train and released models are scored. All else stays on the
            CPU: draws, protections, messages, checkpoints. For algorithms that declare it
            (``Algorithm.devices``) and without noisy steps. Scores agree with the CPU's up to rounding.
        resume: go on from the checkpoint in ``out``, with the arguments that the run was started with.
        checkpoint_every: rounds from one checkpoint to the next; 0 for none. If there are any, the last round
            has one.
        dropouts: clients that a simulation keeps from answering, where the carrier survives it (``masked``).
        budget: what no client may exceed. A client sends no message that would: the run stops there, or goes
            on without that client where its sums survive drop-outs.
        ledger: a ledger that other runs over the same data share, so that what they spend adds up; by default
            ``ledger.jsonl`` in ``out``.
        allow_plaintext: accept that ``strictest`` leaves a channel in plaintext where nothing stricter binds
            to it; by default such a run is refused.
        connect: reaches clients that exist already, each on its owner's machine
            (:mod:`~secure_fedgraph.deployment`), in place of making them here. Each charges its own ledger.
        run: the run's public name, where clients know it beforehand; drawn by default.

    Raises:
        BadInput: for an option of another type or out of range.
    """

    rounds: int | None = None
    seed: int = 0
    sampler: Sampler = everyone
    evaluation: str | None = None
    evaluate_every: int = 1
    evaluate_sample: int | None = None
    out: Path | str | None = None
    keep: Keep = nothing
    on_round: OnRound | None = None
    on_start: Callable[[], None] | None = None
    device: str = CPU.type
    resume: bool = False
    checkpoint_every: int = 1
    dropouts: Dropouts | None = None
    budget: Budget | None = None
    ledger: Path | str | None = None
    allow_plaintext: bool = False
    connect: Connect | None = None
    run: str | None = None

    def __post_init__(self) -> None:
        whole = {"rounds": 1, "seed": 0, "checkpoint_every": 0, "evaluate_every": 1, "evaluate_sample": 1}
        for key, least in whole.items():
            if (number := getattr(self, key)) is not None or key not in ("rounds", "evaluate_sample"):
                check_whole(key, number, least)
        if self.evaluation is not None and self.evaluation not in MODES:
            raise BadInput(f"evaluation = {self.evaluation!r}: use one of {', '.join(MODES)}")
        for key, (kinds, mend) in _KINDS.items():
            if not isinstance(getattr(self, key), kinds):
                raise wrong_type(key, getattr(self, key), mend)
        check_device(self.device)
        if self.connect is not None and self.ledger is not None:
            raise BadInput("connect: clients on other machines have ledgers of their own; leave ledger out")
        if self.connect is not None and self.device != CPU.type:
            raise BadInput(
                f"device = {self.device!r}: clients on other machines train on their CPUs; leave it out"
            )
        if self.run is not None and not re.fullmatch("[0-9a-f]{16}", str(self.run)):
            raise BadInput(f"run = {str(self.run)[:40]!r}: give 16 hexadecimal digits, or leave it out")

    def scores(self, number: int, last: int) -> bool:
        """Whether a round is scored.

        Args:
            number: of the round, counted without a warm-up.
            last: of the last round.
        """
        return number == last or not number % self.evaluate_every

    @property
    def folder(self) -> Path | None:
        """``out`` as a path."""
        return None if self.out is None else Path(self.out)

    @property
    def shared_ledger(self) -> Path | None:
        """``ledger`` as a path."""
        return None if self.ledger is None else Path(self.ledger)


def run_options(given: Mapping[str, Any]) -> RunOptions:
    """The options that a caller named.

    Raises:
        BadInput: for one that is unknown, with the nearest known one, and as :class:`RunOptions`.
    """
    known = [one.name for one in fields(RunOptions)]
    for key in given.keys() - known:
        if key in IN_PYTHON:
            raise BadInput(f"{key} is the command line's: train() takes {IN_PYTHON[key]}")
        raise unknown_name("option of train()", key, known)
    return RunOptions(**given)
