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

import numpy as np
import torch

from secure_fedgraph.audits.empirical_dp.epsilon import Audit, Lower, two_worlds
from secure_fedgraph.audits.empirical_dp.mechanisms import CONFIDENCE, audit, claims, view
from secure_fedgraph.audits.empirical_dp.whole_runs import audit_run, by_trade_off, fits
from secure_fedgraph.audits.empirical_dp.worst_cases import (
    Neighbours,
    Records,
    client_rows,
    sums_apart,
    surely_taken,
    unit_in_records,
)
from secure_fedgraph.audits.record import noise_of, norm_of
from secure_fedgraph.core.accounting.epsilon import epsilon
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.gaussian import Gaussian
from secure_fedgraph.core.spending.ledger import events_of
from secure_fedgraph.privacy.dp_sgd import PrivateSteps, Training
from secure_fedgraph.privacy.input_dp.features import MultiBitFeatures
from secure_fedgraph.privacy.input_dp.labels import RandomisedLabels
from secure_fedgraph.privacy.input_dp.links import DividedLinks, RandomisedLinks
from secure_fedgraph.privacy.input_dp.randomizer import InputRandomizer
from secure_fedgraph.protocol.transcript import REFEREE, SERVER
from secure_fedgraph.running.run import Run

# Audits of labels and features that a client randomises, by what it reports of one node in two worlds.


def audit_labels(
    labels: RandomisedLabels, classes: int = 7, trials: int = 20_000, confidence: float = CONFIDENCE
) -> Lower:
    """A lower bound on the epsilon of labels: nodes of one class against nodes of another.

    The best test of one answer is whether it is the first class. The test for the second class has the same
    ratio with the errors exchanged. The test whose errors are rare in both worlds is used.

    Args:
        labels: under audit.
        classes: how many there are.
        trials: nodes in each world.
        confidence: that right labels are not accused.
    """
    worlds = (torch.full((trials,), label, dtype=torch.long) for label in (0, 1))
    scores = [(labels.randomized(world, classes) == 0).double().numpy() for world in worlds]
    return two_worlds(scores[0], scores[1], 0.0, confidence, threshold=0.5)


def audit_features(
    features: MultiBitFeatures, columns: int, trials: int = 20_000, confidence: float = CONFIDENCE
) -> Lower:
    """A lower bound on the epsilon of features: nodes at the top of the range against nodes at the bottom.

    The best test is whether every reported column says the top.

    Args:
        features: under audit.
        columns: of each node; all of them are reported where they are few.
        trials: nodes in each world.
        confidence: that right features are not accused.
    """
    middle = (features.low + features.high) / 2
    worlds = (torch.full((trials, columns), value) for value in (features.high, features.low))
    scores = [(features.randomized(world) >= middle).all(1).numpy().astype(np.float64) for world in worlds]
    return two_worlds(scores[0], scores[1], 0.0, confidence, threshold=0.5)


def scores(private_steps: PrivateSteps, records: Records, present: bool, trials: int) -> np.ndarray:
    """Scores of single steps, one a trial: touched records that were drawn, plus the steps' noise."""
    expected = max(private_steps.rate * records.number, 1.0)
    parts = []
    for _ in range(math.ceil(trials / records.blocks)):
        parameters = {
            name: torch.nn.Parameter(torch.zeros(records.blocks, dtype=torch.float64))
            for name in records.names
        }
        training = Training(replace(private_steps, steps=1), "zero-out")
        training.run(
            torch.optim.SGD(parameters.values(), lr=1.0),
            parameters,
            records.number,
            records.gradients(present),
            records.touched,
        )
        moved = torch.stack([p.detach() for p in parameters.values()]).sum(0)
        parts.append((-moved * expected / private_steps.clip / math.sqrt(records.tensors)).numpy())
    return np.concatenate(parts)


def audit_steps(
    private_steps: PrivateSteps,
    occurrences: int = 1,
    *,
    trials: int = 10_000,
    blocks: int = 500,
    delta: float = 1e-5,
    confidence: float = CONFIDENCE,
    touched: int = 0,
) -> Audit:
    """Compares the charge of noisy steps with what worst-case records show of a single one.

    Args:
        private_steps: the steps; its number of steps is what the claim is for.
        occurrences: records of a unit, as they are charged.
        trials: of each world.
        blocks: trials in one call.
        delta: the claim's.
        confidence: that right steps are not accused; either bound has half of what is left.
        touched: how many records the unit really is in; by default as charged.
    """
    records = unit_in_records(private_steps, touched or occurrences, blocks)
    ins, outs = (scores(private_steps, records, present, trials) for present in (True, False))
    one = replace(private_steps, steps=1).events(occurrences, "zero-out", 1)
    charged = private_steps.events(occurrences, "zero-out", records.blocks * records.tensors)
    return by_trade_off(
        ins,
        outs,
        0.5 if records.vanishing else 0.0,  # where a step is as likely in either world
        Counter(one),
        Counter(charged),
        delta=delta,
        confidence=confidence,
        missed=(1 - private_steps.rate) ** occurrences,
    )


def audit_links(
    links: RandomisedLinks, trials: int = 10_000, confidence: float = CONFIDENCE, cliques: int = 40
) -> Lower:
    """A lower bound on the epsilon of randomised links, by pairs whose reported link is always kept.

    Nodes are in cliques of eight with equal features, so a reported link within one is among the most similar
    pairs; half of these pairs, drawn by coins, are linked. As many links between cliques make sure that
    enough are kept. Each pair within a clique is a trial.

    Args:
        links: under audit.
        trials: pairs of each kind, about.
        confidence: that right links are not accused.
        cliques: how many at a time.
    """
    size, rng = 8, np.random.default_rng()
    base = np.arange(cliques)[:, None] * size
    ends = np.array([(a, b) for a in range(size) for b in range(a + 1, size)])
    first, second = ((base + ends[:, i]).reshape(-1) for i in (0, 1))
    nodes = cliques * size
    x = torch.eye(cliques).repeat_interleave(size, dim=0)
    far = np.stack([np.arange(nodes), (np.arange(nodes) + size) % nodes])
    more = np.concatenate([far, np.stack([far[0], (far[0] + 2 * size) % nodes])], axis=1)
    seen: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    while sum(map(len, seen[0])) < trials:
        linked = rng.random(len(first)) < 0.5
        own = np.concatenate([np.stack([first[linked], second[linked]]), more], axis=1)
        drawn = _of_all_clients(links, torch.from_numpy(own), x).numpy()
        reported = np.isin(first * nodes + second, drawn[0] * nodes + drawn[1]).astype(float)
        seen[0].append(reported[linked])
        seen[1].append(reported[~linked])
    return two_worlds(np.concatenate(seen[0]), np.concatenate(seen[1]), 0.0, confidence, threshold=0.5)


def _of_all_clients(links: RandomisedLinks, own: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """What all clients that hold the same links answer together; one client's answers where each pays."""
    if not isinstance(links, DividedLinks):
        return links.randomized(own, x)
    parts = [links.at(place, links.clients) for place in range(links.clients)]
    return torch.cat([part.randomized(own, x) for part in parts], dim=1)


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
