"""Every check as a row of an audit: of a run's own record, and of its code, called again on little data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
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
from secure_fedgraph.audits.conformance.checks import CHECKS
from secure_fedgraph.audits.conformance.dependence import Shapes, randomised_data, trained_channels
from secure_fedgraph.audits.conformance.door import answer_alone, any_answer, behaviour
from secure_fedgraph.audits.conformance.rehearsal import Answer, Rehearsal
from secure_fedgraph.audits.conformance.steps import SMALL, steps_of
from secure_fedgraph.audits.conformance.twins import predictable
from secure_fedgraph.audits.record import LEVEL, MOST, Finding, Record, noise_of
from secure_fedgraph.core.channel import Reveal
from secure_fedgraph.core.errors import BadInput, SecureFedGraphError
from secure_fedgraph.core.upload import ContributionMoments
from secure_fedgraph.experiment.schema import RunResult
from secure_fedgraph.protocol.transcript import REFEREE
from secure_fedgraph.running.run import Run

UNKNOWN = "moments have no value that is known without their clip"
PASSED, FAILED, NOTHING = "passed", "failed", "nothing to check"
SHOWN = 6
"""Findings that a row keeps; it counts them all."""
MOST_UNITS = 5_000
"""Units of a sum whose parts are looked at, at most."""
SAYS = {
    "domains": "messages have the number format that was bound, and nothing else",
    "uniform": "bytes under masks and seals are uniform",
    "noise": "noise is on its grid, as wide as claimed, never twice the same",
    "ledger": "each upload that was sent has one charge",
    "composed": "no epsilon of the result is smaller than what the charges come to",
    "width": "every coordinate of every upload and step has its noise, in every round",
    "correlation": "no noise resembles that of another round, client, channel or coordinate",
    "clip": "what is sent is the clipped upload and noise, however long it is and of however many units",
    "predictable": "noise, coins and randomised data differ between two copies of one process",
    "randomised data": "data are randomised once, and the randomised copy is what is used",
    "steps": "a step moves by clipped records and noise, on coins at the rate that is charged",
    "answer alone": "what is sent depends on the answer, not on the client's data or its earlier answers",
    "any answer": "whatever a client answers is sent, and in the same form",
    "behaviour": "data decide neither whether nor when nor how much a client sends",
    "trained": "channels that are charged as noisy steps carry nothing else of the data",
}
"""Check -> what it holds where it passes."""
OF_CHARGES = ("ledger", "composed")
"""Checks that read what was charged."""


def conformance_rows(
    run: Run, most: int = MOST, unseen: Mapping[str, str] | None = None, result: RunResult | None = None
) -> list[dict[str, Any]]:
    """Every check of ``audits/conformance/checks.py`` on what a run kept, and whether its noise has a seed.

    Args:
        run: with some messages kept in full.
        most: bytes of each channel that are read.
        unseen: checks of what this run does not hold, and why: their outcome is "nothing to check", and the
            row has the reason.
        result: of the run; without it nobody says which epsilons it prints.

    Returns:
        for each check ``check``, ``says``, ``outcome``, ``count`` and ``findings``; ``reason`` where it was
        not made.
    """
    if run.transcript.sent and not any(sent.kept for sent in run.transcript.sent):
        return [row(name, NOTHING, []) for name in CHECKS]
    record, rows = Record(run, LEVEL, most, result), []
    missing = {} if result is not None else {"composed": "there is no result to compare with the charges"}
    missing |= unseen or {}
    for name, one in CHECKS.items():
        findings = [] if name in missing else list(one(record))
        outcome = FAILED if findings else PASSED
        rows.append(_missing(name, missing[name]) if name in missing else row(name, outcome, findings))
    noised = any(noise_of(bound) for bound in run.policy.bounds.values())
    drawn = noised or run.policy.steps is not None or run.policy.randomizers
    return [
        *rows,
        _row("predictable", lambda: predictable(run)) if drawn else row("predictable", NOTHING, []),
    ]


def row(name: str, outcome: str, findings: list[Finding], says: Mapping[str, str] = SAYS) -> dict[str, Any]:
    """One row: what a check holds, its outcome, and its findings, the most frequent first."""
    counted = Counter(f"{f.where}: {f.what}" for f in findings)
    shown = [f"{what} ({times} times)" if times > 1 else what for what, times in counted.most_common(SHOWN)]
    return {"check": name, "says": says[name], "outcome": outcome, "count": len(findings), "findings": shown}


def probe_rows(run: Run, only: Collection[str] = ()) -> list[dict[str, Any]]:
    """Rows like those of ``conformance_rows``, of the probes that a run needs.

    The algorithm and the protections of the run are called again on a small federation: some ten seconds. The
    outcome of a probe that could not run is "nothing to check", with a ``reason``.

    Args:
        run: under audit; its data are used only where no synthetic data fit its algorithm and they are small.
        only: these probes, by name; all by default.
    """
    bounds = [b for b in run.policy.bounds.values() if b.channel.to != REFEREE]
    sent = [b for b in bounds if b.channel.reveal is not Reveal.NOTHING]
    noised = any(noise_of(b) for b in sent)
    needs = {
        "noise": noised,
        "hidden": noised or any(not b.carrier.gives.readable for b in sent),
        "inputs": bool(run.policy.randomizers),
        "steps": run.policy.steps is not None,
    }
    names = [name for name, (what, _) in PROBES.items() if needs[what] and (not only or name in only)]
    if not names:
        return []
    try:
        probes = Probes(run, Rehearsal.of(run))
    except Exception as error:
        return [_missing(name, f"it cannot run on little data: {_said(error)}") for name in names]
    rows = [_row(name, lambda name=name: list(PROBES[name][1](probes))) for name in names]  # type: ignore[misc]
    for row in rows if probes.unknown else ():
        if PROBES[row["check"]][0] == "noise" and row["outcome"] != NOTHING:
            row["reason"] = f"not of {', '.join(sorted(probes.unknown))}: {UNKNOWN}"
    return rows


def _row(name: str, probe: Callable[[], list[Finding]]) -> dict[str, Any]:
    try:
        findings = probe()
    except Exception as error:  # a probe that cannot run must not lose the cells of the attacks
        return _missing(name, _said(error))
    return row(name, FAILED if findings else PASSED, findings)


def _missing(name: str, reason: str) -> dict[str, Any]:
    return {**row(name, NOTHING, []), "reason": reason}


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, SecureFedGraphError) else f"{type(error).__name__}: {error}"


class Probes:
    """What the probes of one run need; what several need is made once."""

    def __init__(self, run: Run, rehearsal: Rehearsal) -> None:
        self._run, self._rehearsal = run, rehearsal
        self.unknown: set[str] = set()
        """Channels with noise on values that nobody knows without their clip."""

    @property
    def fresh(self) -> Rehearsal:
        """The small run, with its whole time limit."""
        return self._rehearsal.fresh()

    def of_noise(self, check: Callable[[Noise, float], list[Finding]]) -> list[Finding]:
        """What a check finds in the noise of every party on every channel."""
        return [one for noise in self.noises for one in check(noise, LEVEL / len(self.noises))]

    def steps(self) -> list[Finding]:
        """Of noisy steps on the model's own parameters."""
        how = self._rehearsal.policy.steps
        assert how is not None
        return steps_of(how, self.trained[1] or SMALL)

    @cached_property
    def trained(self) -> tuple[list[Finding], Shapes]:
        """What is wrong with channels of noisy steps, and the parameters that were trained."""
        return trained_channels(self.fresh)

    @cached_property
    def noises(self) -> list[Noise]:
        """Of every channel with noise, as its protection adds it to what some clients answer."""
        bounds, examples = self._rehearsal.bound.bounds, dict[str, dict[str, Answer]]()
        for (channel, client), answers in self._rehearsal.answers.items():
            mine = examples.setdefault(channel, {})
            noised = noise_of(bounds[channel]) is not None
            if noised and isinstance(answers[0], ContributionMoments):
                self.unknown.add(channel)
            elif noised and answers[0].size and len(mine) < CLIENTS:
                mine[client] = answers[0]
        nodes = [int(graph.num_nodes or 0) for graph in self._run.federation.owners.values()]
        units = min(max(UNITS, *nodes), MOST_UNITS)
        made: list[Noise] = []
        for name, by_client in ((n, some) for n, some in examples.items() if some):
            width = next(iter(by_client.values())).size
            made += noises(bounds[name], by_client, rounds_for(width * len(by_client)), units)
        if not made:
            raise BadInput(f"no channel with noise is left: {UNKNOWN}")
        return made


PROBES: Mapping[str, tuple[str, Callable[[Probes], Iterable[Finding]]]] = {
    "width": ("noise", lambda probes: probes.of_noise(widths)),
    "correlation": ("noise", lambda probes: likenesses(probes.noises)),
    "clip": ("noise", lambda probes: probes.of_noise(beyond)),
    "answer alone": ("hidden", lambda probes: answer_alone(probes.fresh)),
    "any answer": ("hidden", lambda probes: any_answer(probes.fresh)),
    "behaviour": ("hidden", lambda probes: behaviour(probes.fresh)),
    "randomised data": ("inputs", lambda probes: randomised_data(probes.fresh)),
    "steps": ("steps", Probes.steps),
    "trained": ("steps", lambda probes: probes.trained[0]),
}
"""Probe -> what a run must have to need it, and the check on a small federation."""
