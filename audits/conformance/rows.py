"""Conformance of each run of a grid, as rows of a table: passed, failed, or a leak left open."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from secure_fedgraph.audits.conformance.calls import noise_of_a_seed
from secure_fedgraph.audits.conformance.checks import CHECKS, LEVEL, Finding, Record
from secure_fedgraph.audits.empirical_dp.worst_cases import client_rows, sums_apart
from secure_fedgraph.audits.record import noise_of
from secure_fedgraph.audits.rng_state import frozen_state
from secure_fedgraph.core.errors import SecureFedGraphError
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.clip import Clip
from secure_fedgraph.experiment.schema import RunResult
from secure_fedgraph.protocol import Transcript
from secure_fedgraph.protocol.transcript import SERVER, Sent
from secure_fedgraph.running.run import Run

PASSED, FAILED, LEAK, NOTHING = "passed", "failed", "leak", "nothing to check"
MOST = 20_000_000
"""Bytes of each channel that are read; what a channel sends later is counted and not opened."""
SHOWN = 6
"""Findings that a row keeps; it counts them all."""
WIDTH = 64
"""Values of a probe's upload."""
SAYS = {
    "domains": "messages have the number format that was bound, and nothing else",
    "uniform": "bytes under masks and seals are uniform",
    "data": "no row, label list or link list of a client is in a message",
    "bytes": "bytes reported are bytes sent",
    "excess": "a reader who can read more than a channel declares is listed as excess",
    "secrets": "no key, party or client can be reached from the server",
    "noise": "noise is on its grid, as wide as claimed, never twice the same",
    "scale": "the width of the noise in messages is the one that was charged",
    "ledger": "each upload that was sent has one charge",
    "composed": "epsilons are no less than the charges composed again",
    "seeded noise": "no seed reproduces noise",
}
"""Check -> what it holds where it passes."""
OF_CHARGES = ("ledger", "composed", "scale")
"""Checks that read what was charged."""


def conformance_rows(
    run: Run, most: int = MOST, unseen: Mapping[str, str] | None = None, result: RunResult | None = None
) -> list[dict[str, Any]]:
    """Every check of ``audits/conformance/checks.py`` on what a run kept, and a probe of its noise.

    A client's data in a message is a leak, but no broken claim, where the policy sends that channel in the
    clear, or where the server forwards what it opened: nobody claimed that they are hidden.

    Args:
        run: with some messages kept in full.
        most: bytes of each channel that are read.
        unseen: checks of what this run does not hold, and why: their outcome is "nothing to check", and the
            row has the reason.
        result: of a run that was read from disk, as its file has it.

    Returns:
        for each check ``check``, ``says``, ``outcome``, ``count`` and ``findings``; ``reason`` where it was
        not made.
    """
    read = replace(run, transcript=_first(run.transcript, most))
    if run.transcript.sent and not any(sent.kept for sent in read.transcript.sent):
        return [row(name, NOTHING, []) for name in CHECKS]
    record, rows = Record(read, LEVEL, result), []
    for name, one in CHECKS.items():
        if unseen and name in unseen:
            rows.append({**row(name, NOTHING, []), "reason": unseen[name]})
            continue
        findings = list(one(record))
        leaks = name == "data" and bool(findings) and all(_left_open(run, finding) for finding in findings)
        rows.append(row(name, LEAK if leaks else FAILED if findings else PASSED, findings))
    return [*rows, _seeded(run)]


def row(name: str, outcome: str, findings: list[Finding], says: Mapping[str, str] = SAYS) -> dict[str, Any]:
    """One row: what a check holds, its outcome, and its findings, the most frequent first."""
    counted = Counter(
        f"{f.where}: {re.sub(r'^message [0-9]+ holds', 'a message holds', f.what)}" for f in findings
    )
    shown = [f"{what} ({times} times)" if times > 1 else what for what, times in counted.most_common(SHOWN)]
    return {"check": name, "says": says[name], "outcome": outcome, "count": len(findings), "findings": shown}


def _left_open(run: Run, finding: Finding) -> bool:
    """Whether the policy promises nothing that a client's data in this message breaks."""
    bound = run.policy.bounds.get(finding.where)
    number = re.match(r"message (\d+) ", finding.what)
    by = {sent.number: sent.sender for sent in run.transcript.sent}
    clear = bound is not None and bound.carrier.gives.readable and noise_of(bound) is None
    return clear or (number is not None and by.get(int(number[1])) == SERVER)


def _first(transcript: Transcript, most: int) -> Transcript:
    """The same record, of which only each channel's first bytes count as kept."""
    left: Counter[str] = Counter()

    def within(sent: Sent) -> Sent:
        if not sent.kept:
            return sent
        left[sent.channel] += sent.bytes
        return (
            sent
            if left[sent.channel] <= most or left[sent.channel] == sent.bytes
            else replace(sent, kept=False)
        )

    shortened = Transcript(None, public=transcript.public)
    shortened.body = transcript.body  # type: ignore[method-assign]
    shortened.sent = [within(sent) for sent in transcript.sent]
    shortened.opened, shortened.made = transcript.opened, transcript.made
    shortened.left_out, shortened.cut = transcript.left_out, transcript.cut
    shortened.stopped = transcript.stopped
    return shortened


def _seeded(run: Run) -> dict[str, Any]:
    """Each noised channel's protection, called twice from the same state of every global generator."""
    findings: list[Finding] = []
    probed, same_state = 0, frozen_state()
    for bound in run.policy.bounds.values():
        stage = noise_of(bound)
        if stage is None:
            continue
        reader = "server" if stage.by != "server" else "outsider"
        try:
            neighbours = (
                client_rows(bound, _norm(bound), 1, WIDTH)
                if bound.channel.unit is Unit.CLIENT
                else sums_apart(bound, WIDTH)
            )
            findings += noise_of_a_seed(bound, neighbours, reader, same_state)
            probed += 1
        except SecureFedGraphError:
            continue  # no worst case is known for this kind of channel
    return row("seeded noise", FAILED if findings else PASSED if probed else NOTHING, findings)


def _norm(bound: Bound) -> float:
    return next((float(stage.norm) for stage in bound.stages if isinstance(stage, Clip)), 1.0)
