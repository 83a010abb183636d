"""Every way in which noise, clips, sensitivities and accounts were got wrong before, each caught by name.

``../shared/threats.md`` 5.4 lists them; :data:`MUTANTS` seeds each into the code as it is and names the audit
that has to complain. :mod:`test_mechanism_audits` has more of a kind. What no audit tries has its own tests:
occurrences (``tests/graph/sample``), losses over a batch (``tests/models/test_per_record.py``), accountants
and holders (``tests/core``).
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph import client as clients
from secure_fedgraph.algorithm import ITEMS
from secure_fedgraph.algorithms.glasu import checks as glasu_checks
from secure_fedgraph.audits.conformance import checks, twins
from secure_fedgraph.audits.conformance import steps as conformance_steps
from secure_fedgraph.audits.conformance.dependence import randomised_data
from secure_fedgraph.audits.conformance.rehearsal import Rehearsal
from secure_fedgraph.audits.empirical_dp.empirical import (
    audit_features,
    audit_labels,
    audit_links,
    audit_steps,
)
from secure_fedgraph.audits.empirical_dp.mechanisms import audit
from secure_fedgraph.audits.empirical_dp.worst_cases import Neighbours, client_rows, pooled_parts
from secure_fedgraph.audits.record import Finding
from secure_fedgraph.core.accounting.events import GaussianRelease
from secure_fedgraph.core.carriers.secagg import ring_words
from secure_fedgraph.core.channel import Channel, Reveal, UnitContribution
from secure_fedgraph.core.guarantee import Reader, Unit
from secure_fedgraph.core.protection import binding, contracts, pooling
from secure_fedgraph.core.protection import bound as bounds
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.contracts import Sensitivity
from secure_fedgraph.core.protection.gaussian import Clip, Gaussian
from secure_fedgraph.core.spending.ledger import Ledger
from secure_fedgraph.core.upload import ContributionSample
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.metrics.counting import FEW, Counting
from secure_fedgraph.models.per_record import multiplied_out
from secure_fedgraph.privacy import dp_sgd
from secure_fedgraph.privacy.dp_sgd import PrivateSteps
from secure_fedgraph.privacy.input_dp import features, labels
from secure_fedgraph.privacy.input_dp import randomizer as drawings
from secure_fedgraph.privacy.input_dp.features import MultiBitFeatures
from secure_fedgraph.privacy.input_dp.labels import RandomisedLabels
from secure_fedgraph.privacy.input_dp.links import DividedLinks, RandomisedLinks
from secure_fedgraph.privacy.input_dp.randomizer import flip_threshold
from secure_fedgraph.protocol.transcript import everything

Patch = pytest.MonkeyPatch
NORM, MULTIPLIER = 1.5, 2.0
NAMES = tuple(f"owner-{i}" for i in range(4))
UPDATE = Channel("update", Reveal.SUM)
SUMS = Channel("prototypes", Reveal.SUM, unit=Unit.GRAPH, unit_contribution=UnitContribution(3, 0.7))
P = sfg.policies


def fitted(policy: Any, channel: Channel = UPDATE) -> Bound:
    return policy.bind((channel,), NAMES)[channel.name]


# --- the audits, each a name and the names of what it finds


@cache
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=4, nodes=100, features=64, seed=0)


def sage(crowd: int = 60) -> sfg.Algorithm:
    return sfg.FedSage(hidden=(4,), fanout=(2,), crowd=crowd)


STEPPED = PrivateSteps(4.0, rate=0.3, steps=2)
Found = set[str]


def names(findings: list[Finding]) -> Found:
    return {finding.check for finding in findings}


def trained(policy: Any, rounds: int = 2) -> sfg.Run:
    return sfg.train(sage(), federation(), policy, rounds=rounds, keep=everything)


def a_run(policy: Callable[[], Any]) -> Callable[[], Found]:
    return lambda: names(checks.check(trained(policy())))


def an_upload(multiplier: float = MULTIPLIER, channel: Channel = UPDATE, trials: int = 800) -> Found:
    bound = fitted(P.local_dp(NORM, multiplier), channel)
    neighbours = (
        pooled_parts(bound, 500) if channel.unit_contribution else client_rows(bound, NORM, tensors=16)
    )
    return {"mechanism"} if audit(bound, neighbours, "server", trials=trials).broken else set()


def two_copies(policy: Any, network: Callable[[], sfg.Algorithm] = sage) -> Found:
    """What two copies of this process share of what must be random."""
    run = sfg.train(network(), federation(), policy, rounds=1)
    return names(twins.predictable(run))


def same_seed() -> Found:
    return two_copies(P.local_dp(NORM, 2.0)) | two_copies(P.central_dp(NORM, 2.0))


def own_links() -> Found:
    policy = replace(P.plaintext(), randomizers=(RandomisedLinks(1.0),))
    return names(randomised_data(Rehearsal(sage(), federation(), policy)))


def input_seeds(randomizer: Any) -> Found:
    return two_copies(replace(P.plaintext(), randomizers=(randomizer,)))


def link_answers() -> Found:
    return {"links"} if audit_links(RandomisedLinks(2.0), 10_000).refutes(2.0) else set()


def divided_answers() -> Found:
    return {"links"} if audit_links(DividedLinks(1.0, 3), 10_000).refutes(1.0) else set()


def label_answers() -> Found:
    return {"labels"} if audit_labels(RandomisedLabels(2.0)).refutes(2.0) else set()


def feature_answers() -> Found:
    one, two = audit_features(MultiBitFeatures(2.0), 4), audit_features(MultiBitFeatures(4.5), 2)
    return {"features"} if one.refutes(2.0) or two.refutes(4.5) else set()


def watched_steps() -> Found:
    return names(conformance_steps.steps_of(PrivateSteps(2.0, rate=0.2), {"weights": (64,)}))


def step_seeds() -> Found:
    return two_copies(replace(P.masked(), steps=STEPPED))


def stepped(occurrences: int = 3, **more: Any) -> Found:
    how = PrivateSteps(3.0, rate=0.5, steps=4)
    return {"steps"} if audit_steps(how, occurrences, trials=3_000, **more).broken else set()


def stepped_run() -> Found:
    return names(checks.check(trained(replace(P.plaintext(), steps=STEPPED), 1)))


def a_step() -> sfg.Run:
    """Steps under shared noise, of units that coins take."""
    algorithm = sfg.algorithms.FedSgd(hidden=16, rate=0.3)
    return sfg.train(
        algorithm, federation(), P.distributed_dp(9.0, MULTIPLIER, quorum=3), rounds=2, keep=everything
    )


def shared_steps() -> Found:
    return names(checks.check(a_step()))


def scored_run() -> Found:
    """What is wrong with what was counted, twice: each item is a part of it."""
    policy = replace(P.masked(), steps=STEPPED, scores_noise=3.0)
    run = sfg.train(
        sage(), federation(), policy, rounds=3, keep=everything, evaluation="in_band", evaluate_every=2
    )
    return names([one for one in checks.check(run) if one.where == sfg.FedAvg.SCORES.name])


def items(bound: Bound, schema: Schema) -> Neighbours:
    """The worst item beside others, as the channel's answer counts it, and the same without it."""
    y = torch.arange(40) % schema.classes
    scores = torch.nn.functional.one_hot(y, schema.classes) * 2.0
    scores[0] = math.nan
    parts = {"test": Counting(schema, FEW).parts(scores, y) / ITEMS}
    present = {name: ContributionSample(parts, torch.arange(len(y))) for name in bound.bind_context.clients}
    target = next(iter(present))
    return Neighbours(target, present, {**present, target: present[target].of(torch.arange(1, len(y)))})


def one_item(classes: int = 3) -> Found:
    """Its own epsilon, where it is counted among others."""
    schema = Schema(3, classes)
    bound = fitted(P.local_dp(NORM, MULTIPLIER), sfg.FedAvg().scores_channel(schema, by_item=True))
    return {"mechanism"} if audit(bound, items(bound, schema), "server", trials=4_000).broken else set()


def class_sums() -> Found:
    algorithm = sfg.algorithms.FedRidge(second_moments="own", records=128)
    policy = P.distributed_dp(9.0, MULTIPLIER, quorum=3)
    return names(checks.check(sfg.train(algorithm, federation(), policy, rounds=1, keep=everything)))


local = a_run(lambda: P.local_dp(NORM, MULTIPLIER))
central = a_run(lambda: P.central_dp(NORM, MULTIPLIER))
shared = a_run(lambda: P.distributed_dp(NORM, MULTIPLIER, quorum=3))
masks = a_run(P.masked)
sums = lambda: an_upload(channel=SUMS, trials=3_000)  # noqa: E731

PROBES: dict[str, Callable[[], Found]] = {
    "local": local,
    "central": central,
    "shared": shared,
    "masks": masks,
    "sums": sums,
    "steps in a run": stepped_run,
    "shared steps": shared_steps,
    "coins of a step": lambda: names(twins.predictable(a_step())),
    "class sums": class_sums,
    "scores in a run": scored_run,
    "one item": one_item,
    "upload": an_upload,
    "same seed": same_seed,
    "own links": own_links,
    "divided links": divided_answers,
    "link seeds": lambda: input_seeds(RandomisedLinks(1.0)),
    "link answers": link_answers,
    "label seeds": lambda: input_seeds(RandomisedLabels(1.0)),
    "label answers": label_answers,
    "feature answers": feature_answers,
    "watched steps": watched_steps,
    "step seeds": step_seeds,
    "steps": stepped,
}


@pytest.mark.parametrize("name", PROBES)
def test_the_code_as_it_is_passes(name):
    assert PROBES[name]() == set()


# --- the mutants


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    Args:
        wrong: seeds it.
        probe: what is run on it.
        audit: the name of the audit or check that must complain.
        slow: caught in the fast suite by another audit already.
    """

    wrong: Callable[[Patch], None]
    probe: str
    audit: str
    slow: bool = False


CHARGE, DRAWN = Ledger.charge, RandomisedLinks.randomized
DRAW, SEAL, BIND = Gaussian._draw, Bound.seal, Clip.bind
COINS, WHOLE_STEPS, ASSIGN, EVENTS = (
    dp_sgd.secret_coins,
    dp_sgd._whole_steps,
    dp_sgd._assign,
    PrivateSteps.events,
)


def short_batch(patch: Patch) -> None:
    clipped = pooling.clipped
    patch.setattr(pooling, "clipped", lambda matrix, norm: 4 * clipped(matrix, norm))


def sign_flip(patch: Patch) -> None:
    def flipped(self: Gaussian, matrix: np.ndarray, scope: Any) -> np.ndarray:
        keep = np.frombuffer(os.urandom(2 * matrix.size), np.uint16).reshape(matrix.shape) < 0.9 * 2**16
        return np.where(keep, matrix, -matrix)

    patch.setattr(Gaussian, "apply", flipped)


def knob(patch: Patch) -> None:
    def bind(self: Clip, sensitivity: Sensitivity, context: Any) -> Any:
        made, found = BIND(self, sensitivity, context)
        return made, replace(found, l2=0.3)

    patch.setattr(Clip, "bind", bind)


def floats(patch: Patch) -> None:
    rng = np.random.default_rng()
    patch.setattr(Gaussian, "_draw", lambda self, shape, keys=(): self.sigma * rng.standard_normal(shape))


def float_steps(patch: Patch) -> None:
    rng = np.random.default_rng()
    patch.setattr(
        dp_sgd, "_assign", lambda p, flat: ASSIGN(p, flat * (1 + 1e-3 * rng.standard_normal(len(flat))))
    )


def fixed_seed(patch: Patch) -> None:
    patch.setattr(
        Gaussian,
        "_draw",
        lambda self, shape, keys=(): np.rint(self.sigma * np.random.default_rng(0).standard_normal(shape)),
    )


def global_seed(patch: Patch) -> None:
    patch.setattr(
        Gaussian, "_draw", lambda self, shape, keys=(): torch.round(self.sigma * torch.randn(shape)).numpy()
    )
    patch.setattr(Gaussian, "take_off", lambda self, matrix, keys: matrix)  # nothing was drawn under a key


def not_added(patch: Patch) -> None:
    def apply(self: Gaussian, matrix: np.ndarray, scope: Any) -> np.ndarray:
        DRAW(self, matrix.shape)  # drawn, and let go
        return np.trunc(matrix.astype(np.float64) / self.step) * self.step

    patch.setattr(Gaussian, "apply", apply)


def kept_draw(patch: Patch) -> None:
    memory: dict[Any, np.ndarray] = {}

    def draw(self: Gaussian, shape: Any, keys: Any = ()) -> np.ndarray:
        return memory.setdefault((self, shape), DRAW(self, shape, keys))

    patch.setattr(Gaussian, "_draw", draw)


def companion(patch: Patch) -> None:
    def seal(self: Bound, upload: Any, scope: Any, party: Any) -> Any:
        return {**SEAL(self, upload, scope, party), "counts": np.array([3, 1, 4])}

    patch.setattr(Bound, "seal", seal)


def counts_as_noised(patch: Patch) -> None:
    patch.setattr(Bound, "releases", lambda self, width=1: dict.fromkeys(Reader, (GaussianRelease(2.0),)))


def paid_once(patch: Patch) -> None:
    def charge(self: Ledger, one: Any, *rest: Any) -> None:
        if not any((c.client, c.channel) == (one.client, one.channel) for c in self.charges):
            CHARGE(self, one, *rest)

    patch.setattr(Ledger, "charge", charge)


def against_the_server(patch: Patch) -> None:
    patch.setattr(
        Gaussian,
        "noise",
        lambda self: contracts.Noise(self.release, frozenset(Reader)),
    )


def no_masks(patch: Patch) -> None:
    patch.setattr(
        ring_words,
        "accumulate",
        lambda total, arrays=(), plus=(), minus=(): [np.add(total, array, out=total) for array in arrays],
    )


# of counted scores


def of_another_unit(patch: Patch) -> None:
    # what one item moves in the mean over a client's items
    patch.setattr(binding, "l2_sensitivity", lambda contribution, relation: contribution.norm / 8)


def unclipped_items(patch: Patch) -> None:
    counted = Counting.parts
    patch.setattr(pooling, "_factors", lambda matrix, norm: None)
    patch.setattr(Counting, "parts", lambda self, scores, y: 8 * counted(self, scores, y))


# of steps


def unclipped(patch: Patch) -> None:
    patch.setattr(dp_sgd, "factors", lambda norms, clip: np.ones_like(norms))


def clipped_by_layer(patch: Patch) -> None:
    def steps(gradients: Any, parameters: Any, clip: float, grid: float) -> np.ndarray:
        parts = [
            WHOLE_STEPS({name: gradients[name]}, {name: parameters[name]}, clip, grid) for name in parameters
        ]
        return np.concatenate(parts)

    patch.setattr(dp_sgd, "_whole_steps", steps)


def clipped_mean(patch: Patch) -> None:
    def steps(gradients: Any, parameters: Any, clip: float, grid: float) -> np.ndarray:
        whole = {name: multiplied_out(g) for name, g in gradients.items()}
        count = len(next(iter(whole.values())))
        mean = {name: g.mean(0, keepdim=True) for name, g in whole.items()}
        return count * WHOLE_STEPS(mean, parameters, clip, grid)

    patch.setattr(dp_sgd, "_whole_steps", steps)


def noise_of_the_mean(patch: Patch) -> None:
    sampler = dp_sgd.rounded_gaussian

    class Less:
        total_variation = 0.0

        def draw(self, size: int) -> np.ndarray:
            return sampler(dp_sgd.SIGMA).draw(size) // 8

    patch.setattr(dp_sgd, "rounded_gaussian", lambda sigma: Less())


def by_the_number_drawn(patch: Patch) -> None:
    drawn = [1.0, 1.0]

    def coins(records: int, rate: float) -> torch.Tensor:
        chosen = COINS(records, rate)
        drawn[:] = max(rate * records, 1.0), max(len(chosen), 1)
        return chosen

    patch.setattr(dp_sgd, "secret_coins", coins)
    patch.setattr(dp_sgd, "_assign", lambda p, flat: ASSIGN(p, flat * (drawn[0] / drawn[1])))


def lower_rate(patch: Patch) -> None:
    def events(self: PrivateSteps, occurrences: int, relation: str, width: int) -> Any:
        return EVENTS(replace(self, rate=self.rate / 4), occurrences, relation, width)

    patch.setattr(PrivateSteps, "events", events)


def fewer_steps(patch: Patch) -> None:
    def events(self: PrivateSteps, occurrences: int, relation: str, width: int) -> Any:
        return EVENTS(replace(self, steps=1), occurrences, relation, width)

    patch.setattr(PrivateSteps, "events", events)


def everybody(patch: Patch) -> None:
    patch.setattr(dp_sgd, "secret_coins", lambda records, rate: torch.arange(records))


def shuffled(patch: Patch) -> None:
    waiting: list[int] = []

    def coins(records: int, rate: float) -> torch.Tensor:
        size = round(records * rate)
        if len(waiting) < size:
            waiting[:] = torch.randperm(records).tolist()
        batch, waiting[:] = waiting[:size], waiting[size:]
        return torch.tensor(sorted(batch))

    patch.setattr(dp_sgd, "secret_coins", coins)


def unshuffled(patch: Patch) -> None:
    turns = itertools.count()

    def coins(records: int, rate: float) -> torch.Tensor:
        parts = round(1 / rate)
        return torch.arange(records)[next(turns) % parts :: parts]

    patch.setattr(dp_sgd, "secret_coins", coins)


def public_coins(patch: Patch) -> None:
    patch.setattr(
        dp_sgd, "secret_coins", lambda records, rate: (torch.rand(records) < rate).nonzero().flatten()
    )


def public_coins_of_sums(patch: Patch) -> None:
    patch.setattr(bounds, "secret_coins", lambda units, rate: (torch.rand(units) < rate).nonzero().flatten())


def silent_shares(patch: Patch) -> None:
    """Every second upload carries no share of the noise."""
    asked = itertools.count()

    def draw(self: Gaussian, shape: tuple[int, ...], keys: Any = ()) -> np.ndarray:
        drawn = DRAW(self, shape, keys)
        return drawn if next(asked) % 2 else 0 * drawn

    patch.setattr(Gaussian, "_draw", draw)


def own_statistics(patch: Patch) -> None:
    """What stays with an owner that solves with its own second moments travels beside the class sums."""

    def seal(self: Bound, upload: Any, *rest: Any) -> Any:
        tree = SEAL(self, upload, *rest)
        stays = self.channel.unit_contribution is not None
        return {**tree, "own": (upload.records.T @ upload.records).numpy()} if stays else tree

    patch.setattr(Bound, "seal", seal)


def seeded_steps(patch: Patch) -> None:
    class Seeded:
        total_variation = 0.0

        def draw(self, size: int) -> np.ndarray:
            return torch.round(dp_sgd.SIGMA * torch.randn(size)).numpy()

    patch.setattr(dp_sgd, "rounded_gaussian", lambda sigma: Seeded())


# of links


def rare_lies(patch: Patch) -> None:
    lie = RandomisedLinks._lie.fget
    patch.setattr(RandomisedLinks, "_lie", property(lambda self: lie(self) // 3))


def link_seed(patch: Patch) -> None:
    def coins(count: int) -> np.ndarray:
        return np.random.default_rng(0).integers(0, 2**64, count, dtype=np.uint64)

    patch.setattr(drawings, "coins", coins)


def own_beside(patch: Patch) -> None:
    patch.setattr(
        RandomisedLinks,
        "randomized",
        lambda self, edges, x: torch.cat([edges, edges.flip(0), DRAWN(self, edges, x)], dim=1),
    )


def undivided(patch: Patch) -> None:
    patch.setattr(DividedLinks, "_answered", RandomisedLinks._answered)
    patch.setattr(glasu_checks, "pairs", lambda name, value, *about: value.long())  # peers would refuse them


def never_taken(patch: Patch) -> None:
    patch.setattr(clients, "_with", lambda graph, one, drawn: graph)


# of labels and features


def rare_label_lies(patch: Patch) -> None:
    patch.setattr(labels, "flip_threshold", lambda *about: flip_threshold(*about) // 3)


def other_truths(patch: Patch) -> None:
    """One other class in place of all the others: a lie is then as many times too rare."""
    patch.setattr(labels, "flip_threshold", lambda epsilon, others: flip_threshold(epsilon))


def rare_feature_lies(patch: Patch) -> None:
    patch.setattr(features, "flip_threshold", lambda *about: flip_threshold(*about) // 3)


def whole_bits(patch: Patch) -> None:
    """Each of m bits has all of the epsilon."""
    patch.setattr(features, "flip_threshold", lambda epsilon: flip_threshold(2 * epsilon))


# of accountants


MUTANTS: dict[str, Mutant] = {
    "a short last batch is divided by its own size": Mutant(short_batch, "sums", "mechanism"),
    "a step is divided by how many records were drawn": Mutant(
        by_the_number_drawn, "watched steps", "denominator"
    ),
    "a step clips the mean of its gradients": Mutant(clipped_mean, "watched steps", "pull"),
    "a step clips layer by layer": Mutant(clipped_by_layer, "steps", "steps"),
    "a step does not clip": Mutant(unclipped, "steps", "steps"),
    "a step's sum gets the noise of a mean": Mutant(noise_of_the_mean, "steps", "steps", slow=True),
    "a step's sum gets the noise of a mean, as it looks": Mutant(noise_of_the_mean, "watched steps", "width"),
    "steps take shuffled batches": Mutant(shuffled, "watched steps", "coins"),
    "steps take the same batches in turn": Mutant(unshuffled, "watched steps", "coins"),
    "coins follow a public seed": Mutant(public_coins, "step seeds", "predictable"),
    "every record is in every step": Mutant(everybody, "watched steps", "rate"),
    "every record is in every step, as it tells": Mutant(everybody, "steps", "steps", slow=True),
    "the rate in the charge is lower": Mutant(lower_rate, "watched steps", "rate"),
    "the rate in the charge is lower, as it tells": Mutant(lower_rate, "steps", "steps", slow=True),
    "the rate in the charge is lower, in a run": Mutant(lower_rate, "steps in a run", "events"),
    "an upload's noise has a seed of its own": Mutant(fixed_seed, "same seed", "predictable"),
    "an upload's noise follows the global seed": Mutant(global_seed, "same seed", "predictable"),
    "a step's noise follows the global seed": Mutant(seeded_steps, "step seeds", "predictable"),
    "links follow a seed": Mutant(link_seed, "link seeds", "predictable"),
    "noise is drawn once and kept": Mutant(kept_draw, "local", "repeated"),
    "noise is drawn and not added": Mutant(not_added, "local", "noise"),
    "noise is drawn and not added, as it tells": Mutant(not_added, "upload", "mechanism", slow=True),
    "the sensitivity is a knob of its own, as it tells": Mutant(knob, "upload", "mechanism"),
    "the server's noise is claimed against the server": Mutant(against_the_server, "central", "events"),
    "values are kept or negated": Mutant(sign_flip, "upload", "mechanism"),
    "counts travel beside the noise": Mutant(companion, "local", "domains"),
    "a channel without noise is charged as if": Mutant(counts_as_noised, "masks", "events"),
    "only the first upload is charged": Mutant(paid_once, "local", "ledger"),
    "only one of a round's steps is charged": Mutant(fewer_steps, "steps in a run", "events"),
    "an upload's noise is of floating point": Mutant(floats, "local", "grid"),
    "a step's noise is of floating point": Mutant(float_steps, "watched steps", "grid"),
    "a link's coin lies too rarely": Mutant(rare_lies, "link answers", "links"),
    "labels follow a seed": Mutant(link_seed, "label seeds", "predictable"),
    "a label's coin lies too rarely": Mutant(rare_label_lies, "label answers", "labels"),
    "a label's coin knows of two classes": Mutant(other_truths, "label answers", "labels"),
    "a feature's bit lies too rarely": Mutant(rare_feature_lies, "feature answers", "features"),
    "every bit of a node's features has the whole epsilon": Mutant(whole_bits, "feature answers", "features"),
    "own links are kept beside drawn ones": Mutant(own_beside, "link answers", "links"),
    "every holder answers about a link that one pays for": Mutant(undivided, "divided links", "links"),
    "drawn links are paid for and not used": Mutant(never_taken, "own links", "randomised data"),
    "coins of a sampled sum follow a public seed": Mutant(
        public_coins_of_sums, "coins of a step", "predictable"
    ),
    "shares of a step's noise are not shared by all": Mutant(silent_shares, "shared steps", "noise"),
    "own statistics are sent beside class sums": Mutant(own_statistics, "class sums", "domains"),
    "counted scores have the noise of another unit, as it tells": Mutant(
        of_another_unit, "one item", "mechanism"
    ),
    "an item's part in the counts is not clipped": Mutant(unclipped_items, "one item", "mechanism"),
    "scores are counted twice under one noise": Mutant(kept_draw, "scores in a run", "repeated"),
    "masks are left out": Mutant(no_masks, "masks", "uniform"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if m.slow else n for n, m in MUTANTS.items()]
)
def test_mutants_are_caught_by_name(name, monkeypatch):
    mutant = MUTANTS[name]
    mutant.wrong(monkeypatch)
    assert mutant.audit in PROBES[mutant.probe]()
