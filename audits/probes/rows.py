"""Probes of a run's algorithm and protections, as rows beside those of ``audits/conformance/rows.py``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

from secure_fedgraph.audits.conformance.calls import own_links, records, written_ahead
from secure_fedgraph.audits.conformance.rows import FAILED, NOTHING, PASSED, row
from secure_fedgraph.audits.conformance.steps import coins_of
from secure_fedgraph.audits.conformance.steps import steps as steps_at_rest
from secure_fedgraph.audits.probes.dependence import (
    linkless_channels,
    randomised_data,
    trained_channels,
)
from secure_fedgraph.audits.probes.door import Script, answer_alone, any_answer, behaviour, scripted
from secure_fedgraph.audits.probes.noise import (
    CLIENTS,
    UNITS,
    Noise,
    beyond,
    likenesses,
    noises,
    rounds_for,
    widths,
)
from secure_fedgraph.audits.probes.stepping import Shapes, steps_of, taken
from secure_fedgraph.audits.probes.twins import Sample, same_in_two_copies
from secure_fedgraph.audits.record import LEVEL, Finding, noise_of
from secure_fedgraph.audits.rehearsal import Answer, Rehearsal
from secure_fedgraph.audits.rng_state import frozen_state
from secure_fedgraph.core.channel import Reveal
from secure_fedgraph.core.errors import SecureFedGraphError
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.protocol.transcript import REFEREE
from secure_fedgraph.running.run import Run

SAYS = {
    "written ahead": "a charge is on disk before its upload is clipped, noised or sealed",
    "width": "every coordinate of every upload and step has its noise, in every round",
    "correlation": "no noise resembles that of another round, client, channel or coordinate",
    "clip": "what is sent is the clipped upload and noise, however long it is and of however many units",
    "predictable": "noise, coins and randomised data differ between two copies of one process",
    "coins": "coins at the rate that is charged decide which units are part of an upload",
    "randomised data": "data are randomised once, and the owner's own values are not used",
    "own links": "clients train on as few of their own links as randomised response leaves",
    "records": "a record's gradient depends on it alone, and a unit is in no more records than are charged",
    "steps": "a step moves by clipped records and noise, on coins at the rate that is charged",
    "answer alone": "what is sent depends on the answer, not on the client's data or its earlier answers",
    "any answer": "whatever a client answers is sent, and in the same form",
    "behaviour": "data decide neither whether nor when nor how much a client sends",
    "trained": "channels that are charged as noisy steps carry nothing else of the data",
    "no links": "what is declared to read no link is the same over other links",
}
"""Check -> what it holds where it passes."""
SMALL_SAMPLE = 64
MOST_UNITS = 5_000
SAMPLED = 12
"""Rounds whose noise two copies of a process draw."""


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
        "predictable": noised or stepped or bool(randomizers),
        "coins": any(b.samples for b in sent),
        "answer alone": hidden,
        "any answer": hidden,
        "behaviour": hidden,
        "randomised data": bool(randomizers),
        "own links": any(one.kind == "links" for one in randomizers),
        "records": stepped,
        "steps": stepped,
        "trained": stepped,
        "no links": any(not b.channel.links for b in sent),
    }
    names = [name for name, on in wanted.items() if on and (not only or name in only)]
    if not names:
        return []
    try:
        probes = _Probes(run, Rehearsal.of(run))
    except Exception as error:
        return [_missing(name, f"it cannot run on little data: {_said(error)}") for name in names]
    return [_row(name, getattr(probes, name.replace(" ", "_"))) for name in names]


def _row(name: str, probe: Callable[[], list[Finding]]) -> dict[str, Any]:
    try:
        findings = probe()
    except Exception as error:  # a probe that cannot run must not lose the cells of the attacks
        return _missing(name, _said(error))
    return row(name, FAILED if findings else PASSED, findings, SAYS)


def _missing(name: str, reason: str = "") -> dict[str, Any]:
    return {**row(name, NOTHING, [], SAYS), "reason": reason}


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, SecureFedGraphError) else f"{type(error).__name__}: {error}"


class _Probes:
    """The probes of one run; what several need is made once."""

    def __init__(self, run: Run, rehearsal: Rehearsal) -> None:
        self._run, self._rehearsal = run, rehearsal
        self._noise: list[Noise] | None = None
        self._trained: tuple[list[Finding], Shapes] | None = None

    def written_ahead(self) -> list[Finding]:
        one = self._rehearsal
        answering = scripted(one.algorithm, Script(one.unchanged_round().answers))  # only sealing is watched
        return written_ahead(answering, one.federation, one.policy)

    def width(self) -> list[Finding]:
        findings = [
            finding for noise in self._noises() for finding in widths(noise, LEVEL / len(self._noises()))
        ]
        return findings

    def correlation(self) -> list[Finding]:
        return likenesses(self._noises())

    def clip(self) -> list[Finding]:
        return [finding for noise in self._noises() for finding in beyond(noise, LEVEL / len(self._noises()))]

    def predictable(self) -> list[Finding]:
        return same_in_two_copies(self._sample())

    def coins(self) -> list[Finding]:
        return [
            finding for bound in self._bounds().values() for finding in coins_of(bound, LEVEL / SMALL_SAMPLE)
        ]

    def randomised_data(self) -> list[Finding]:
        return randomised_data(self._rehearsal.fresh())

    def own_links(self) -> list[Finding]:
        one = self._rehearsal
        return own_links(one.algorithm, one.federation, one.policy)

    def records(self) -> list[Finding]:
        one = self._rehearsal
        return records(one.algorithm, one.federation, one.policy)

    def steps(self) -> list[Finding]:
        how = self._rehearsal.policy.steps
        assert how is not None
        return steps_at_rest(how, frozen_state()) + steps_of(how, self._shapes())

    def trained(self) -> list[Finding]:
        return self._of_training()[0]

    def no_links(self) -> list[Finding]:
        return linkless_channels(self._rehearsal.fresh())

    def answer_alone(self) -> list[Finding]:
        return answer_alone(self._rehearsal.fresh())

    def any_answer(self) -> list[Finding]:
        return any_answer(self._rehearsal.fresh())

    def behaviour(self) -> list[Finding]:
        return behaviour(self._rehearsal.fresh())

    def _of_training(self) -> tuple[list[Finding], Shapes]:
        if self._trained is None:
            self._trained = trained_channels(self._rehearsal.fresh())
        return self._trained

    def _shapes(self) -> Shapes:
        return self._of_training()[1] or {"weights": (64,)}

    def _noises(self) -> list[Noise]:
        if self._noise is None:
            self._noise = list(self._noises_of_channels())
        return self._noise

    def _noises_of_channels(self) -> Iterator[Noise]:
        examples = self._examples()
        for name, by_client in examples.items():
            bound = self._bounds()[name]
            width = next(iter(by_client.values())).size
            units = max(UNITS, *(int(graph.num_nodes or 0) for graph in self._run.federation.owners.values()))
            yield from noises(bound, by_client, rounds_for(width * len(by_client)), min(units, MOST_UNITS))

    def _bounds(self) -> Mapping[str, Bound]:
        return self._rehearsal.bound().bounds

    def _examples(self) -> dict[str, dict[str, Answer]]:
        """Channel with noise -> what some clients sent on it."""
        noised = {n for n, b in self._bounds().items() if noise_of(b) and b.channel.to != REFEREE}
        examples: dict[str, dict[str, Answer]] = {}
        for (channel, client), answers in self._rehearsal.unchanged_round().answers.items():
            mine = examples.setdefault(channel, {}) if channel in noised and answers[0].size else {}
            if len(mine) < CLIENTS:
                mine[client] = answers[0]
        return examples

    def _sample(self) -> Sample:
        """What must be random, as a copy of this process makes it."""
        examples, bounds = self._examples(), self._bounds()
        how, randomizers = self._rehearsal.policy.steps, self._rehearsal.policy.randomizers
        graph = max(self._rehearsal.federation.owners.values(), key=lambda one: int(one.num_nodes or 0))
        classes, clients = self._rehearsal.federation.schema.classes, len(self._rehearsal.federation.owners)

        def sample() -> dict[str, np.ndarray]:
            made: dict[str, np.ndarray] = {}
            for name, by_client in examples.items():
                for noise in noises(bounds[name], by_client, SAMPLED):
                    made[f"noise of {noise.party} on channel {name!r}"] = np.rint(noise.values * 4096)
            if how is not None:
                watched = taken(how, {"weights": (SMALL_SAMPLE,)})
                made["noise of steps"] = np.rint(watched.noise.values * 4096)
                if how.rate < 1:
                    made["coins of steps"] = watched.asked
            for name, bound in bounds.items():
                taken_units = bound.coins(SMALL_SAMPLE**2).numpy()
                if len(taken_units) < SMALL_SAMPLE**2:
                    made[f"coins of channel {name!r}"] = taken_units
            for one in randomizers:
                often = type(one)(**{**vars(one), "epsilon": 1.0})  # so that coins change many values
                value = often.at(0, clients).randomize(graph, classes)
                made[f"coins of {one.kind}"] = value.numpy().astype(np.float64)
            return made

        return sample
