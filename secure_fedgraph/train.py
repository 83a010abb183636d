"""train(): the one loop."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.errors import BadInput
from secure_fedgraph.evaluation import MODES, in_band
from secure_fedgraph.federation import Federation, sub_seed
from secure_fedgraph.privacy.ledger import Charge, Ledger, report
from secure_fedgraph.privacy.policy import BoundPolicy, Policy, strictest
from secure_fedgraph.protocol import InProcess, Transcript
from secure_fedgraph.protocol.transcript import REFEREE, Keep, nothing
from secure_fedgraph.round import Courier, Round, Sampler, everyone, set_up

OnRound = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Run:
    """What a training run leaves: the state, the scores, the record of what was sent, the charges."""

    algorithm: Algorithm
    federation: Federation
    policy: BoundPolicy
    state: State = field(repr=False)
    history: Sequence[dict[str, Any]] = field(repr=False)
    transcript: Transcript = field(repr=False)
    charges: Sequence[Charge] = field(repr=False)
    seconds: float
    evaluation: str

    @property
    def accuracy(self) -> dict[str, Any]:
        """The last round's scores; beside them the best round by validation and the best test score."""
        last = self.history[-1]["accuracy"]
        scored = [r for r in self.history if "validation" in r["accuracy"]]
        if not scored:
            return dict(last)
        chosen = max(scored, key=lambda r: r["accuracy"]["validation"])
        return {
            **{key: last[key] for key in ("global", "local")},
            "best_by_validation": {"round": chosen["round"], "global": chosen["accuracy"]["global"]},
            "best_on_test": {"global": max(r["accuracy"]["global"] for r in scored)},
        }

    def privacy(self, unit: str | None = None, delta: float = 1e-5) -> dict[str, Any]:
        """What was spent, by unit; with ``unit`` that entry alone.

        Raises:
            BadInput: for a unit that nothing in the run speaks for.
        """
        entries = report(self.charges, delta)
        if unit is None:
            return entries
        if unit not in entries:
            raise BadInput(
                f"nothing in this run was charged to unit {unit!r}: units here are {sorted(entries)}"
            )
        found: dict[str, Any] = entries[unit]
        return found


def train(
    algorithm: Algorithm,
    federation: Federation,
    policy: Policy | None = None,
    *,
    rounds: int | None = None,
    seed: int = 0,
    sampler: Sampler = everyone,
    evaluation: str = "referee",
    out: Path | None = None,
    keep: Keep = nothing,
    on_round: OnRound | None = None,
) -> Run:
    """Runs an algorithm over a federation under a policy.

    Guarantees:
        - every channel is bound before round 1, or nothing is sent at all;
        - clients are reached as message bytes through their one door.

    Args:
        policy: by default the strictest recipe that binds, channel by channel.
        rounds: by default the algorithm's own number.
        seed: for initialisation and sampling, each from a sub-seed; nothing that protects somebody.
        sampler: picks the cohort of a round.
        evaluation: ``"referee"`` or ``"in_band"``.
        out: folder for the ledger and the transcript; in memory without one.
        keep: which messages the transcript keeps in full.
        on_round: called with each round's scores.

    Raises:
        Refused: where a protection cannot give a channel what it declares.
        BadInput: for arguments out of range.
    """
    rounds = algorithm.rounds if rounds is None else rounds
    if rounds < 1:
        raise BadInput(f"rounds = {rounds}: train for at least one round")
    if evaluation not in MODES:
        raise BadInput(f"evaluation = {evaluation!r}: use one of {', '.join(MODES)}")
    if algorithm.pools:
        federation = federation.pooled()
    channels = algorithm.channels
    if evaluation == "in_band":  # no referee, so nobody who calls himself one is answered
        channels = (*(c for c in channels if c.to != REFEREE), algorithm.METRICS)
    bound = (policy or strictest()).bind(channels, federation.names)
    started, name = time.perf_counter(), secrets.token_hex(8)
    transcript = Transcript(out and out / "transcript", keep, _public(algorithm, federation, bound))
    ledger = Ledger(out and out / "ledger.jsonl")
    clients = federation.enlist(
        algorithm, bound, name, ledger, sub_seed(seed, "clients"), transcript.record_opened
    )
    courier = Courier(name, InProcess({client.name: client.handle for client in clients}), transcript)

    set_up(bound, courier, federation.names)
    state = algorithm.init(federation.schema, sub_seed(seed, "initialisation"))
    history: list[dict[str, Any]] = []
    for number in range(1, algorithm.warm_up + rounds + 1):
        fed = Round(number, sampler(number, federation.names, sub_seed(seed, "cohort")), bound, courier)
        state = algorithm.round(fed, state)
        if number <= algorithm.warm_up:
            continue
        scores = _evaluate(evaluation, algorithm, federation, state, fed, bound, courier)
        scored = number - algorithm.warm_up
        history.append({"round": scored, "loss": scores.pop("loss", None), "accuracy": scores})
        if on_round is not None:
            on_round(history[-1])
    transcript.close()
    seconds = time.perf_counter() - started
    return Run(algorithm, federation, bound, state, history, transcript, ledger.charges, seconds, evaluation)


def _evaluate(
    mode: str,
    algorithm: Algorithm,
    federation: Federation,
    state: State,
    fed: Round,
    bound: BoundPolicy,
    courier: Courier,
) -> dict[str, Any]:
    if mode == "in_band":
        return in_band(algorithm, state, fed)
    examination = Round(fed.number, federation.names, bound, courier, reader=REFEREE)
    return federation.referee.examine(algorithm, state, examination, federation.schema)


def _public(algorithm: Algorithm, federation: Federation, bound: BoundPolicy) -> dict[str, Any]:
    """What everybody knows before round 1, and so every view holds."""
    return {
        **algorithm.public(),
        "policy": bound.policy.name,
        "clients": list(federation.names),
        "schema": {"features": federation.schema.features, "classes": federation.schema.classes},
        "channels": {row["name"]: row for row in bound.describe()},
    }
