"""Every check as a row of an audit: of a run's own record, and of its code, called again on little data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from secure_fedgraph.audits.conformance.added_noise import (
    CLIENTS,
    UNITS,
    Noise,
    beyond,
    likenesses,
    noises,
    rounds_for,
    widths,
)
from secure_fedgraph.audits.conformance.calls import records, written_ahead
from secure_fedgraph.audits.conformance.checks import CHECKS, LEVEL, Finding, Record
from secure_fedgraph.audits.conformance.dependence import (
    linkless_channels,
    randomised_data,
    trained_channels,
)
from secure_fedgraph.audits.conformance.door import Script, answer_alone, any_answer, behaviour, scripted
from secure_fedgraph.audits.conformance.rehearsal import Answer, Rehearsal
from secure_fedgraph.audits.conformance.steps import SMALL, Shapes, coins_of, steps_of
from secure_fedgraph.audits.conformance.twins import predictable
from secure_fedgraph.audits.record import noise_of
from secure_fedgraph.core.channel import Reveal
from secure_fedgraph.core.errors import SecureFedGraphError
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.experiment.schema import RunResult
from secure_fedgraph.protocol import Transcript
from secure_fedgraph.protocol.transcript import REFEREE, SERVER, Sent
from secure_fedgraph.running.run import Run

PASSED, FAILED, LEAK, NOTHING = "passed", "failed", "leak", "nothing to check"
MOST = 20_000_000
"""Bytes of each channel that are read; what a channel sends later is counted and not opened."""
SHOWN = 6
"""Findings that a row keeps; it counts them all."""
MOST_UNITS = 5_000
"""Units of a sum whose parts are looked at, at most."""
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
    "written ahead": "a charge is on disk before its upload is clipped, noised or sealed",
    "width": "every coordinate of every upload and step has its noise, in every round",
    "correlation": "no noise resembles that of another round, client, channel or coordinate",
    "clip": "what is sent is the clipped upload and noise, however long it is and of however many units",
    "predictable": "noise, coins and randomised data differ between two copies of one process",
    "coins": "coins at the rate that is charged decide which units are part of an upload",
    "randomised data": "data are randomised once, as much as is charged, and own values are not used",
    "records": "a record's gradient depends on it alone, and a unit is in no more records than are charged",
    "steps": "a step moves by clipped records and noise, on coins at the rate that is charged",
    "answer alone": "what is sent depends on the answer, not on the client's data or its earlier answers",
    "any answer": "whatever a client answers is sent, and in the same form",
    "behaviour": "data decide neither whether nor when nor how much a client sends",
    "trained": "channels that are charged as noisy steps carry nothing else of the data",
    "no links": "what is declared to read no link is the same over other links",
}
"""Check -> what it holds where it passes."""
OF_CHARGES = ("ledger", "composed", "scale")
"""Checks that read what was charged."""


def conformance_rows(
    run: Run, most: int = MOST, unseen: Mapping[str, str] | None = None, result: RunResult | None = None
) -> list[dict[str, Any]]:
    """Every check of ``audits/conformance/checks.py`` on what a run kept, and whether its noise has a seed.

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
    drawn = _row("predictable", lambda: predictable(run)) if _draws(run) else row("predictable", NOTHING, [])
    return [*rows, drawn]


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


def _draws(run: Run) -> bool:
    """Whether anything in a run is to be drawn from the operating system's randomness."""
    noised = any(noise_of(bound) for bound in run.policy.bounds.values())
    return noised or run.policy.steps is not None or bool(run.policy.randomizers)


def probe_rows(run: Run, only: Collection[str] = ()) -> list[dict[str, Any]]:
    """Rows like those of ``conformance_rows``, of the probes that a run needs.

    The algorithm and the protections of the run are called again on a small federation: some ten seconds. The
    outcome of a probe that could not run is "nothing to check", with a ``reason``.

    Args:
        run: under audit; its data are used only where no synthetic data fit its algorithm and they are small.
        only: these probes, by name; all by default.
    """
    bounds = {n: b for n, b in run.policy.bounds.items() if b.channel.to != REFEREE}
    sent = [b for b in bounds.values() if b.channel.reveal is not Reveal.NOTHING]
    noised = any(noise_of(b) for b in sent)
    hidden = noised or any(not b.carrier.gives.readable for b in sent)
    stepped, randomizers = run.policy.steps is not None, run.policy.randomizers
    wanted: dict[str, bool] = {
        "written ahead": bool(sent),
        "width": noised,
        "correlation": noised,
        "clip": noised,
        "coins": any(b.samples for b in sent),
        "answer alone": hidden,
        "any answer": hidden,
        "behaviour": hidden,
        "randomised data": bool(randomizers),
        "records": stepped,
        "steps": stepped,
        "trained": stepped,
        "no links": any(not b.channel.links for b in sent),
    }
    names = [name for name, on in wanted.items() if on and (not only or name in only)]
    if not names:
        return []
    try:
        probes = Probes(run, Rehearsal.of(run))
    except Exception as error:
        return [_missing(name, f"it cannot run on little data: {_said(error)}") for name in names]
    return [_row(name, lambda name=name: list(PROBES[name](probes))) for name in names]  # type: ignore[misc]


def _row(name: str, probe: Callable[[], list[Finding]]) -> dict[str, Any]:
    try:
        findings = probe()
    except Exception as error:  # a probe that cannot run must not lose the cells of the attacks
        return _missing(name, _said(error))
    return row(name, FAILED if findings else PASSED, findings)


def _missing(name: str, reason: str = "") -> dict[str, Any]:
    return {**row(name, NOTHING, []), "reason": reason}


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, SecureFedGraphError) else f"{type(error).__name__}: {error}"


class Probes:
    """What the probes of one run need; what several need is made once."""

    def __init__(self, run: Run, rehearsal: Rehearsal) -> None:
        self._run, self.rehearsal = run, rehearsal

    @property
    def fresh(self) -> Rehearsal:
        """The small run, with its whole time limit."""
        return self.rehearsal.fresh()

    def written_ahead(self) -> list[Finding]:
        """As clients answer by a script: only sealing is watched."""
        one = self.rehearsal
        answering = scripted(one.algorithm, Script(one.unchanged_round().answers))
        return written_ahead(answering, one.federation, one.policy)

    def of_noise(self, check: Callable[[Noise, float], list[Finding]]) -> Iterator[Finding]:
        """What a check finds in the noise of every party on every channel."""
        for noise in self.noises:
            yield from check(noise, LEVEL / len(self.noises))

    def records(self) -> list[Finding]:
        """Of the algorithm's records."""
        return records(self.rehearsal.algorithm, self.rehearsal.federation, self.rehearsal.policy)

    def steps(self) -> list[Finding]:
        """Of noisy steps on the model's own parameters."""
        how = self.rehearsal.policy.steps
        assert how is not None
        return steps_of(how, self.trained[1] or SMALL)

    @cached_property
    def trained(self) -> tuple[list[Finding], Shapes]:
        """What is wrong with channels of noisy steps, and the parameters that were trained."""
        return trained_channels(self.fresh)

    @cached_property
    def bounds(self) -> Mapping[str, Bound]:
        """The protections."""
        return self.rehearsal.bound().bounds

    @cached_property
    def noises(self) -> list[Noise]:
        """Of every channel with noise."""
        return list(self._noises())

    def _noises(self) -> Iterator[Noise]:
        for name, by_client in self._examples().items():
            width = next(iter(by_client.values())).size
            units = max(UNITS, *(int(graph.num_nodes or 0) for graph in self._run.federation.owners.values()))
            rounds = rounds_for(width * len(by_client))
            yield from noises(self.bounds[name], by_client, rounds, min(units, MOST_UNITS))

    def _examples(self) -> dict[str, dict[str, Answer]]:
        """Channel with noise -> what some clients sent on it."""
        noised = {n for n, b in self.bounds.items() if noise_of(b) and b.channel.to != REFEREE}
        examples: dict[str, dict[str, Answer]] = {}
        for (channel, client), answers in self.rehearsal.unchanged_round().answers.items():
            mine = examples.setdefault(channel, {}) if channel in noised and answers[0].size else {}
            if len(mine) < CLIENTS:
                mine[client] = answers[0]
        return examples


PROBES: Mapping[str, Callable[[Probes], Iterable[Finding]]] = {
    "written ahead": Probes.written_ahead,
    "width": lambda probes: probes.of_noise(widths),
    "correlation": lambda probes: likenesses(probes.noises),
    "clip": lambda probes: probes.of_noise(beyond),
    "coins": lambda probes: [f for b in probes.bounds.values() for f in coins_of(b, LEVEL / 64)],
    "answer alone": lambda probes: answer_alone(probes.fresh),
    "any answer": lambda probes: any_answer(probes.fresh),
    "behaviour": lambda probes: behaviour(probes.fresh),
    "randomised data": lambda probes: randomised_data(probes.fresh),
    "records": Probes.records,
    "steps": Probes.steps,
    "trained": lambda probes: probes.trained[0],
    "no links": lambda probes: linkless_channels(probes.fresh),
}
"""Probe -> the check on a small federation."""
