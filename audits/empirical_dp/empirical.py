"""Empirical epsilon: each claim of a finished run, tested with worst-case neighbours, as rows of an audit.

Every noise that the run was charged for is called again by itself, with the run's own settings: each
upload's protection, the clients' noisy steps, and what they randomised. A row has the claim, a lower bound on
the true epsilon, the most that so many trials can show, and what such an audit cannot see.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from secure_fedgraph.audits.empirical_dp.epsilon import Lower
from secure_fedgraph.audits.empirical_dp.mechanisms import CONFIDENCE, audit, claims, view
from secure_fedgraph.audits.empirical_dp.step_audits import (
    audit_features,
    audit_labels,
    audit_links,
    audit_steps,
)
from secure_fedgraph.audits.empirical_dp.whole_runs import audit_run, fits
from secure_fedgraph.audits.empirical_dp.worst_cases import (
    Neighbours,
    client_rows,
    sums_apart,
    surely_taken,
)
from secure_fedgraph.audits.record import noise_of, norm_of
from secure_fedgraph.core.accounting.epsilon import epsilon
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.gaussian import Gaussian
from secure_fedgraph.core.spending.ledger import events_of
from secure_fedgraph.privacy.input_dp.features import MultiBitFeatures
from secure_fedgraph.privacy.input_dp.labels import RandomisedLabels
from secure_fedgraph.privacy.input_dp.links import DividedLinks, RandomisedLinks
from secure_fedgraph.privacy.input_dp.randomizer import InputRandomizer
from secure_fedgraph.protocol.transcript import REFEREE, SERVER
from secure_fedgraph.running.run import Run

HOLDS, BROKEN, WEAK, UNAUDITED = "holds", "broken", "too few trials", "not audited"
TRIALS = 10_000
"""Of each world; slow uploads get as many as :data:`SECONDS` allow."""
SECONDS, LEAST = 4.0, 400
DRAWS = 2_000_000
"""Of noise, for the trials of a whole run."""
UPLOAD = (
    "seeds that repeat, charges that are missing, and uploads that an algorithm declares wrongly; "
    "conformance checks the first two"
)
STEPS = "records that depend on each other, and batches that are shuffled; conformance checks the second"
DRAWN = "whether the client reads its own values again afterwards; conformance checks what it trains on"


def empirical_or_why_not(run: Run, delta: float) -> list[dict[str, Any]]:
    """The rows; or one row with the error, which must not lose the cells of the attacks."""
    try:
        return empirical_rows(run, delta)
    except Exception as error:
        return [not_audited(f"{type(error).__name__}: {error}")]


def not_audited(reason: str, row: dict[str, Any] | None = None) -> dict[str, Any]:
    """The row of noise that was not measured; by default of all of a run's."""
    return {**(row or about("all noise", "the run", "", "", "")), "outcome": UNAUDITED, "reason": reason}


def about(noise: str, of: str, unit: str, relation: str, unseen: str, reader: str = SERVER) -> dict[str, Any]:
    """A row before anything was measured.

    Args:
        noise, of: which noise, and how much of it.
        unseen: what such an audit cannot see.
    """
    row = {"noise": noise, "of": of, "unit": str(unit), "relation": relation, "reader": reader}
    return {**row, "unseen": unseen}


def empirical_rows(
    run: Run, delta: float, trials: int = TRIALS, confidence: float = CONFIDENCE
) -> list[dict[str, Any]]:
    """A row for every noise that a run was charged for.

    Args:
        delta: of the claims.
        trials: of each world.
        confidence: that a right mechanism is not accused, each row by itself.

    Returns:
        ``noise``, ``of`` (how much of it), ``unit``, ``relation``, ``reader``, ``claim``, ``delta``,
        ``lower``, ``ceiling``, ``trials``, ``method``, ``confidence``, ``outcome``, ``unseen``, ``reason``.
    """
    rows = [*_uploads(run, delta, trials, confidence), *_all_sums(run, delta, trials, confidence)]
    rows += _steps(run, delta, trials, confidence)
    return [*rows, *(_randomised(run, one, trials, confidence) for one in run.policy.randomizers)]


def measured(
    row: dict[str, Any], claim: float, lower: Lower, broken: bool, confidence: float
) -> dict[str, Any]:
    """A row with its lower bound."""
    outcome = BROKEN if broken else WEAK if lower.ceiling <= claim else HOLDS
    return {
        **row,
        "claim": claim,
        "delta": lower.delta,
        "lower": lower.epsilon,
        "ceiling": lower.ceiling,
        "trials": lower.scores_in,
        "method": lower.method,
        "confidence": confidence,
        "outcome": outcome,
        "reason": "",
    }


# --- uploads


def _uploads(run: Run, delta: float, trials: int, confidence: float) -> Iterator[dict[str, Any]]:
    for name, bound in run.policy.bounds.items():
        stage = noise_of(bound)
        if stage is None or bound.channel.to == REFEREE:
            continue
        reader = "outsider" if stage.by == "server" else "server"
        of = "one upload, the unit in it" if bound.samples else "one upload"
        row = about(f"channel {name}", of, bound.unit.value, bound.relation, UPLOAD, reader)
        if math.isinf(claims(bound, delta).get(reader, math.inf)):
            continue  # the noise protects nobody, and the ledger says so
        try:
            neighbours, colluders = worst_case(bound, stage)
            fits = _fitting(bound, neighbours, reader, colluders, trials)
            audited = audit(
                bound,
                neighbours,
                reader,
                trials=fits,
                delta=delta,
                confidence=confidence,
                colluders=colluders,
                claim=claims(surely_taken(bound), delta)[reader],
            )
        except BadInput as error:
            yield not_audited(str(error), row)
            continue
        yield measured(row, audited.claim, audited.best, audited.broken, confidence)


def worst_case(bound: Bound, stage: Gaussian) -> tuple[Neighbours, tuple[str, ...]]:
    """The two worlds whose uploads are furthest apart, and the clients who collude with the reader.

    Where clients add shares of the noise, only a quorum answers, and those clients collude whose noise is not
    counted on.

    Raises:
        BadInput: where no such worlds are known for a channel.
    """
    answering = bound.bind_context.quorum if stage.by == "shares" else 0
    colluders = bound.bind_context.clients[stage.honest : answering] if answering else ()
    if bound.channel.unit_contribution is not None:
        return sums_apart(bound, answering=answering), colluders
    if bound.channel.unit is not Unit.CLIENT:
        raise BadInput(f"channel {bound.channel.name!r} has rows of {bound.channel.unit.value}s, not sums")
    norm = norm_of(bound)
    return client_rows(bound, norm, answering=answering), colluders


def _fitting(
    bound: Bound, neighbours: Neighbours, reader: str, colluders: tuple[str, ...], trials: int
) -> int:
    """As many trials as there is time for."""
    see, started, calls = view(bound, neighbours, reader, colluders), time.perf_counter(), 5
    for _ in range(calls):
        see(neighbours.present)
    each = (time.perf_counter() - started) / calls / neighbours.trials
    return min(trials, max(LEAST, int(SECONDS / 2 / each)))


def _all_sums(run: Run, delta: float, trials: int, confidence: float) -> Iterator[dict[str, Any]]:
    """The sums of a whole run together, where these are all that has noise and more than one."""
    sent = {n: b for n, b in run.policy.bounds.items() if noise_of(b) and b.channel.to != REFEREE}
    uses = Counter(one.channel for one in run.charges if one.client == run.federation.names[0])
    units, many = {one.unit.value for one in sent.values()}, sum(uses[name] for name in sent)
    if many < 2 or len(units) > 1 or not all(map(fits, sent.values())):
        return
    (unit,) = units
    costs = Counter(one.cost for one in run.charges if one.client == run.federation.names[0])
    events = events_of(costs, unit, SERVER, run.federation.holders)
    if events is None:  # something is sent without noise
        return
    row = about("all sums", f"all {many} sums of the run", unit, run.policy.policy.relation, UPLOAD)
    used = {name: uses[name] for name in sent if uses[name]}
    fitting = min(trials, max(LEAST, DRAWS // (many * len(run.federation.names))))
    audited = audit_run(
        {name: sent[name] for name in used}, used, events,
        trials=fitting, delta=delta, confidence=confidence,
    )  # fmt: skip
    if math.isfinite(audited.claim):
        yield measured(row, audited.claim, audited.best, audited.broken, confidence)


# --- noisy steps


def _steps(run: Run, delta: float, trials: int, confidence: float) -> Iterator[dict[str, Any]]:
    how, steps, times = run.policy.steps, Counter[str](), 1
    for charge in run.charges:
        for event in (e for events in charge.steps.values() for e in events if hasattr(e, "steps")):
            steps[charge.client] += event.steps
            times = max(times, getattr(event, "occurrences", 1))
    if how is None or not steps:
        return
    most = max(steps.values())
    of = f"all {most} steps" + (f", {times} records a {how.unit}" if times > 1 else "")
    row = about("noisy steps", of, how.unit, run.policy.policy.relation, STEPS)
    if run.policy.policy.relation != "zero-out":
        yield not_audited(f"no worst case of steps is known under {run.policy.policy.relation}", row)
        return
    all_steps = replace(how, steps=most)
    if math.isinf(epsilon(all_steps.events(times, "zero-out", 1), delta).epsilon):
        return  # the noise protects nobody, and the ledger says so
    audited = audit_steps(
        all_steps,
        times,
        trials=trials,
        blocks=max(20, min(500, 20_000 // times)),
        delta=delta,
        confidence=confidence,
    )
    if audited.one_step is not None and audited.any_noise_breaks:
        yield measured({**row, "of": "one step"}, audited.one_step, audited.any_noise, True, confidence)
    else:
        yield measured(row, audited.claim, audited.lower, audited.broken, confidence)


# --- what is randomised


def _randomised(run: Run, randomizer: InputRandomizer, trials: int, confidence: float) -> dict[str, Any]:
    schema = run.federation.schema
    audits: dict[type[InputRandomizer], Callable[[Any], Lower]] = {
        DividedLinks: lambda links: audit_links(links, trials, confidence),
        RandomisedLinks: lambda links: audit_links(links, trials, confidence),
        RandomisedLabels: lambda labels: audit_labels(labels, schema.classes, trials, confidence),
        MultiBitFeatures: lambda features: audit_features(features, schema.features, trials, confidence),
    }
    relation = run.policy.policy.relation
    row = about(f"{randomizer.kind} randomised", "the one drawing", randomizer.unit, relation, DRAWN)
    if type(randomizer) not in audits:
        return not_audited(f"no worst case is known for {type(randomizer).__name__}", row)
    lower = audits[type(randomizer)](randomizer)
    return measured(row, randomizer.epsilon, lower, lower.refutes(randomizer.epsilon), confidence)
