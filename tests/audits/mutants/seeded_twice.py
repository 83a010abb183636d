"""What two runs with the same seeds may not share: noise of uploads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from secure_fedgraph.audits.record import Finding
from secure_fedgraph.core.channel import Reveal
from secure_fedgraph.core.message import ANSWER, Message
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.gaussian import Gaussian
from secure_fedgraph.privacy.policy import Policy
from secure_fedgraph.protocol.transcript import SERVER

SameSeeds = Callable[[], AbstractContextManager[None]]
"""Sets every global generator (torch, numpy, random) to the same state."""


def two_runs(make: Callable[[], Any], policy: Policy, same_seeds: SameSeeds) -> list[Finding]:
    """That two runs with the same seeds, global ones too, send different noised uploads.

    Where masks or encryption make all uploads different, the opened values are compared.

    Args:
        make: a run with ``keep=everything``, the same each time.
        policy: what it runs under.
        same_seeds: sets the global generators.
    """
    runs, findings = [], []
    make()  # what a process does once, such as the first build of a model, may use global generators
    for _ in range(2):
        with same_seeds():
            runs.append(make())
    for channel, bound in runs[0].policy.bounds.items():
        noisy = any(stage.noise() for stage in bound.stages) or (policy.steps and bound.channel.trained)
        if not noisy or bound.channel.reveal is Reveal.NOTHING:
            continue
        if bound.carrier.gives.readable and not any(s.by == "server" for s in _gaussians(bound)):
            values: list[list[Any]] = [
                [body for s, body in _bodies(run) if s.channel == channel] for run in runs
            ]
        else:
            values = [[o.digest for o in run.transcript.opened if o.channel == channel] for run in runs]
        if any(a == b for a, b in zip(*values, strict=False)):
            findings.append(Finding("predictable", channel, "two runs with the same seeds sent the same"))
    return findings


def _gaussians(bound: Bound) -> list[Gaussian]:
    return [stage for stage in bound.stages if isinstance(stage, Gaussian)]


def _bodies(run: Any) -> Iterator[tuple[Any, bytes]]:
    """The bodies of uploads to the server, without the run's name."""
    for sent in run.transcript.sent:
        if sent.recipient == SERVER and sent.step == ANSWER:
            yield sent, bytes(Message.from_bytes(run.transcript.body(sent.number)).body)
