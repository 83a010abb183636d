"""Every way in which noise, clips, sensitivities and accounts were got wrong before, each caught by name.

``../shared/threats.md`` 5.4 lists them; :data:`MUTANTS` seeds each into the code as it is and names the audit
that has to complain. ``docs/audits.md`` has the same table; :mod:`test_mechanism_audits` has more of a kind.
"""

from __future__ import annotations

import itertools
import math
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seeded_twice import two_runs
from test_mechanism_audits import MUTANTS as OF_UPLOADS
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph import client as clients
from secure_fedgraph.algorithm import ITEMS
from secure_fedgraph.algorithms.glasu import checks as glasu_checks
from secure_fedgraph.algorithms.training import private_training
from secure_fedgraph.audits.conformance import calls, checks, twins
from secure_fedgraph.audits.conformance import steps as conformance_steps
from secure_fedgraph.audits.conformance.dependence import randomised_data
from secure_fedgraph.audits.conformance.door import answer_alone
from secure_fedgraph.audits.conformance.rehearsal import Rehearsal
from secure_fedgraph.audits.empirical_dp.floors import accountants
from secure_fedgraph.audits.empirical_dp.mechanisms import audit
from secure_fedgraph.audits.empirical_dp.randomized_inputs import audit_features, audit_labels
from secure_fedgraph.audits.empirical_dp.step_audits import audit_links, audit_steps
from secure_fedgraph.audits.empirical_dp.worst_cases import Neighbours, client_rows, held_by, pooled_parts
from secure_fedgraph.core.accounting import epsilon as accounting
from secure_fedgraph.core.accounting.epsilon import Spent
from secure_fedgraph.core.accounting.events import DiscreteRelease, GaussianRelease, OccurringGaussian
from secure_fedgraph.core.carriers.secagg import ring_words
from secure_fedgraph.core.channel import Channel, Reveal, UnitContribution
from secure_fedgraph.core.crypto import KEY_BYTES
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Reader, Unit
from secure_fedgraph.core.protection import binding, contracts, pooling
from secure_fedgraph.core.protection import bound as bounds
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.clip import Clip
from secure_fedgraph.core.protection.contracts import BindContext, Sensitivity
from secure_fedgraph.core.protection.gaussian import Gaussian
from secure_fedgraph.core.spending import ledger
from secure_fedgraph.core.spending.ledger import Cost, Ledger, composed
from secure_fedgraph.core.upload import ContributionSample
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.metrics.counting import FEW, Counting
from secure_fedgraph.privacy import dp_sgd
from secure_fedgraph.privacy.dp_sgd import PrivateSteps
from secure_fedgraph.privacy.input_dp import features, labels
from secure_fedgraph.privacy.input_dp import randomizer as drawings
from secure_fedgraph.privacy.input_dp.features import MultiBitFeatures
from secure_fedgraph.privacy.input_dp.labels import RandomisedLabels
from secure_fedgraph.privacy.input_dp.links import DividedLinks, RandomisedLinks
from secure_fedgraph.privacy.input_dp.randomizer import flip_threshold
from secure_fedgraph.protocol.transcript import everything

ROOT = Path(__file__).resolve().parents[3]
Patch = pytest.MonkeyPatch
NORM, MULTIPLIER, DELTA = 1.5, 2.0, 1e-5
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


@cache
def hubs() -> sfg.Federation:
    """Two stars, each with a hub that is everybody's neighbour and has one crowded neighbour at most."""
    ends = torch.arange(80)
    links = torch.stack([ends // 40 * 40, ends])[:, ends % 40 > 0]
    x = torch.rand(80, 8, generator=torch.Generator().manual_seed(0))
    graph = Data(x=x, edge_index=torch.cat([links, links.flip(0)], 1), y=ends % 2)
    return sfg.federate(graph, clients=2, seed=0)


@cache
def graphs() -> sfg.Federation:
    return sfg.federate("synthetic-molecules", clients=2, partition="random", graphs=30)


@cache
def vertical() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, nodes=60, features=16, partition="vertical")


def sage(crowd: int = 60) -> sfg.Algorithm:
    return sfg.FedSage(hidden=(4,), fanout=(2,), crowd=crowd)


def gin() -> sfg.Algorithm:
    return sfg.FedAvg(network="gin", hidden=(8, 8), fanout=(1, 1))


STEPPED = PrivateSteps(4.0, rate=0.3, steps=2)
Found = set[str]


@contextmanager
def same_seeds() -> Iterator[None]:
    """Every global generator at the same point, and back as it was."""
    kept = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        yield
    finally:
        torch.set_rng_state(kept[0])
        np.random.set_state(kept[1])  # noqa: NPY002
        random.setstate(kept[2])


def names(findings: list[checks.Finding]) -> Found:
    return {finding.check for finding in findings}


def trained(policy: Any, rounds: int = 2) -> sfg.Run:
    return sfg.train(sage(), federation(), policy, rounds=rounds, keep=everything)


def a_run(policy: Callable[[], Any]) -> Callable[[], Found]:
    return lambda: names(checks.check(trained(policy())))


def a_vertical_run() -> Found:
    policy = replace(P.plaintext(), randomizers=(RandomisedLinks(3.0),))
    glasu = sfg.Glasu(hidden=4, steps=2, sampler="public", public_nodes=20)
    return names(checks.check(sfg.train(glasu, vertical(), policy, rounds=1, keep=everything)))


def an_upload(multiplier: float = MULTIPLIER, channel: Channel = UPDATE, trials: int = 800) -> Found:
    bound = fitted(P.local_dp(NORM, multiplier), channel)
    neighbours = (
        pooled_parts(bound, 500) if channel.unit_contribution else client_rows(bound, NORM, tensors=16)
    )
    return {"mechanism"} if audit(bound, neighbours, "server", trials=trials).broken else set()


def a_held_upload(holders: int = 3) -> Found:
    """A node that three clients hold, against whoever sees the sum, at the node's own epsilon."""
    bound = fitted(P.central_dp(NORM, 4.0))
    cost = Cost("client", "zero-out", frozenset(bound.releases(2).items()), frozenset())
    claim = composed({cost: 1}, "node", "outsider", holders, DELTA).epsilon
    found = audit(bound, held_by(bound, NORM, holders), "outsider", trials=600, claim=claim)
    return {"mechanism"} if found.broken else set()


def two_copies(policy: Any, network: Callable[[], sfg.Algorithm] = sage) -> Found:
    """What two copies of this process share of what must be random."""
    run = sfg.train(network(), federation(), policy, rounds=1)
    return names(twins.predictable(run))


def same_seed() -> Found:
    return two_copies(P.local_dp(NORM, 2.0)) | two_copies(P.central_dp(NORM, 2.0))


def same_runs() -> Found:
    policy = P.local_dp(NORM, 2.0)
    return names(two_runs(lambda: trained(policy, 1), policy, same_seeds))


def same_masked_runs() -> Found:
    policy = P.distributed_dp(NORM, MULTIPLIER, quorum=3)
    return names(two_runs(lambda: trained(policy, 1), policy, same_seeds))


def same_stepped_runs() -> Found:
    policy = replace(P.masked(), steps=STEPPED)
    return names(two_runs(lambda: trained(policy, 1), policy, same_seeds))


def ahead() -> Found:
    return names(calls.written_ahead(sage(), federation(), P.local_dp(NORM, 2.0)))


def own_links() -> Found:
    policy = replace(P.plaintext(), randomizers=(RandomisedLinks(1.0),))
    return names(randomised_data(Rehearsal(sage(), federation(), policy)))


def divided_links() -> Found:
    owners = sfg.federate("synthetic-citation", clients=3, nodes=60, features=16, partition="vertical")
    policy = replace(P.plaintext(), randomizers=(DividedLinks(1.0, 3),))
    divides = sfg.Glasu(hidden=8, sampler="public", public_nodes=20, steps=1, links="divided")
    return names(randomised_data(Rehearsal(divides, owners, policy)))


def input_seeds(randomizer: Any) -> Found:
    return two_copies(replace(P.plaintext(), randomizers=(randomizer,)))


def link_answers() -> Found:
    return {"links"} if audit_links(RandomisedLinks(2.0), 10_000).refutes(2.0) else set()


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


def among_others() -> Found:
    """One block, so that the unit's record meets others in its batch."""
    how = PrivateSteps(2.0, rate=0.9, steps=4, unit="graph")
    return {"steps"} if audit_steps(how, 1, trials=500, blocks=1, others=15).broken else set()


def node_records() -> Found:
    return names(calls.records(sage(crowd=1), hubs(), replace(P.plaintext(), steps=STEPPED)))


def graph_records() -> Found:
    steps = replace(STEPPED, unit="graph")
    return names(calls.records(gin(), graphs(), replace(P.plaintext(), steps=steps)))


def epsilons(about: str = "") -> Found:
    return names(accountants(about))


def faint() -> Found:
    """Little noise, where the classical formula says too little."""
    return an_upload(0.25, SUMS, trials=10_000)


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


def coins_of_a_step() -> Found:
    """That they take units at the rate that is charged, and follow no seed."""
    run = a_step()
    (bound,) = (b for b in run.policy.bounds.values() if b.samples)
    return names([*conformance_steps.coins_of(bound, 1e-4), *twins.predictable(run)])


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


def items_twice() -> Found:
    """Whatever an answer hands in, each item is one part."""
    policy = replace(P.masked(), steps=STEPPED, scores_noise=3.0)
    counted = sage().scores_channel(federation().schema, by_item=True)
    return names(answer_alone(Rehearsal(sage(), federation(), policy, "in_band", (counted,))))


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
    "links of several holders": a_vertical_run,
    "shared steps": shared_steps,
    "coins of a step": coins_of_a_step,
    "class sums": class_sums,
    "scores in a run": scored_run,
    "one item": one_item,
    "items twice": items_twice,
    "upload": an_upload,
    "faint noise": faint,
    "held upload": a_held_upload,
    "same seed": same_seed,
    "same runs": same_runs,
    "same masked runs": same_masked_runs,
    "same runs by steps": same_stepped_runs,
    "ahead": ahead,
    "own links": own_links,
    "divided links": divided_links,
    "link seeds": lambda: input_seeds(RandomisedLinks(1.0)),
    "link answers": link_answers,
    "label seeds": lambda: input_seeds(RandomisedLabels(1.0)),
    "label answers": label_answers,
    "feature answers": feature_answers,
    "watched steps": watched_steps,
    "step seeds": step_seeds,
    "steps": stepped,
    "steps among others": among_others,
    "node records": node_records,
    "graph records": graph_records,
    "epsilons": epsilons,
    "epsilons of Gaussians": lambda: epsilons("Gaussian"),
    "epsilons of discrete noise": lambda: epsilons("discrete"),
    "epsilons of sampled steps": lambda: epsilons("sampled"),
    "epsilons of several records": lambda: epsilons("several"),
}


@pytest.fixture(autouse=True)
def _no_epsilon_is_remembered() -> Iterator[None]:
    accounting._of_ideal.cache_clear()
    yield
    accounting._of_ideal.cache_clear()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow) if n == "faint noise" else n
        for n in PROBES
        if not n.startswith("epsilons of")
    ],
)
def test_the_code_as_it_is_passes(name):
    assert PROBES[name]() == set()


def test_a_policy_that_cannot_be_watched_is_not_passed():
    with pytest.raises(BadInput, match="does not bind by its recipe"):
        calls.written_ahead(sage(), federation(), P.strictest())


# --- the mutants


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    Args:
        threat: as ``threats.md`` 5.4 names it.
        wrong: seeds it.
        probe: what is run on it.
        audit: the name of the audit or check that must complain.
        slow: caught in the fast suite by another audit already.
    """

    threat: str
    wrong: Callable[[Patch], None]
    probe: str
    audit: str
    slow: bool = False


DRAW, APPLY, SEAL, BIND = Gaussian._draw, Gaussian.apply, Bound.seal, Clip.bind
COINS, WHOLE_STEPS, ASSIGN, EVENTS = (
    dp_sgd.secret_coins,
    dp_sgd._whole_steps,
    dp_sgd._assign,
    PrivateSteps.events,
)
CHARGE, COUNTED, DRAWN = Ledger.charge, accounting.counted, RandomisedLinks.randomized


def short_batch(patch: Patch) -> None:
    clipped = pooling.clipped
    patch.setattr(pooling, "clipped", lambda matrix, norm: 4 * clipped(matrix, norm))


def classical(patch: Patch) -> None:
    patch.setattr(accounting, "exact_gaussian", lambda mu, delta: mu * math.sqrt(2 * math.log(1.25 / delta)))


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


def paid_late(patch: Patch) -> None:
    upload = clients.Client._upload

    def late(self: Any, bound: Any, given: Any, scope: Any) -> Any:
        owed: list[Any] = []
        patch.setattr(Ledger, "charge", lambda *asked: owed.append(asked))
        reply = upload(self, bound, given, scope)
        for asked in owed:
            CHARGE(*asked)
        return reply

    patch.setattr(clients.Client, "_upload", late)


def one_holder(patch: Patch) -> None:
    at = Cost.at
    patch.setattr(Cost, "at", lambda self, unit, reader, holders: at(self, unit, reader, 1))


def of_the_cohort(patch: Patch) -> None:
    def everybody(self: Gaussian, context: BindContext) -> int:
        return len(context.clients) if self.by == "shares" else 1

    patch.setattr(Gaussian, "_honest", everybody)


def of_the_quorum(patch: Patch) -> None:
    patch.setattr(Gaussian, "_honest", lambda self, context: context.quorum if self.by == "shares" else 1)


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
    patch.setattr(pooling, "clipped", lambda matrix, norm: matrix)
    patch.setattr(Counting, "parts", lambda self, scores, y: 8 * counted(self, scores, y))


def several_parts(patch: Patch) -> None:
    patch.setattr(ContributionSample, "of", lambda self, units: self)


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
        whole = {name: dp_sgd.multiplied_out(g) for name, g in gradients.items()}
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


def more_coins(patch: Patch) -> None:
    patch.setattr(bounds, "secret_coins", lambda units, rate: COINS(units, min(1.5 * rate, 1.0)))


def unsampled_charge(patch: Patch) -> None:
    """The noise is charged as if the unit were in half as many steps."""
    sampled = Gaussian._sampled

    def wrong(self: Gaussian, one: Any) -> Any:
        return sampled(replace(self, rate=self.rate / 2), one)

    patch.setattr(Gaussian, "_sampled", wrong)


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


def seeded_training(patch: Patch) -> None:
    seeded_steps(patch)
    public_coins(patch)
    patch.setattr(clients, "fresh_key", lambda: torch.zeros(KEY_BYTES, dtype=torch.uint8))


def once(patch: Patch) -> None:
    patch.setattr(private_training, "occurrences", lambda places, depth, crowd: 1)


def capped_one_way(patch: Patch) -> None:
    def table(edge_index: torch.Tensor, nodes: int, most: int, *rest: Any) -> torch.Tensor:
        found = torch.full((nodes, most), -1)
        for v in range(nodes):
            near = edge_index[0][edge_index[1] == v].unique()[:most]
            found[v, : len(near)] = near
        return found

    patch.setattr(private_training, "capped_neighbours", table)


def permuted_links(patch: Patch) -> None:
    real = private_training.capped_neighbours

    def table(edge_index: torch.Tensor, nodes: int, most: int, priorities: Any, *rest: Any) -> torch.Tensor:
        def order(links: torch.Tensor) -> torch.Tensor:
            return torch.randperm(links.shape[1], generator=torch.Generator().manual_seed(0))

        return real(edge_index, nodes, most, order, *rest)

    patch.setattr(private_training, "capped_neighbours", table)


def first_records(patch: Patch) -> None:
    gradients = private_training.tree_factors
    whole: dict[int, Any] = {}

    def wrong(model: Any, x: Any, trees: Any, answers: Any, *rest: Any) -> Any:
        if len(trees) > len(whole.get(id(model), ((), ()))[0]):
            whole[id(model)] = trees, answers
        rows, labels = whole[id(model)]
        return gradients(model, x, rows[: len(trees)], labels[: len(trees)], *rest)

    patch.setattr(private_training, "tree_factors", wrong)


def coupled(patch: Patch) -> None:
    gradients = private_training.graph_gradients

    def batchwise(model: Any, packed: Any, *rest: Any) -> Any:
        found = gradients(model, packed, *rest)
        return {name: g - g.mean(0, keepdim=True) / 2 for name, g in found.items()}

    patch.setattr(private_training, "graph_gradients", batchwise)


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
    patch.setattr(clients.Client, "_use_randomized", lambda self, one: None)


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


def with_events(change: Callable[[Any], Any]) -> Callable[[Patch], None]:
    def wrong(patch: Patch) -> None:
        patch.setattr(
            accounting, "counted", lambda events: {change(e): n for e, n in COUNTED(events).items()}
        )

    return wrong


def continuous(event: Any) -> Any:
    return GaussianRelease(event.noise_multiplier) if isinstance(event, DiscreteRelease) else event


def one_record(event: Any) -> Any:
    return replace(event, occurrences=1) if isinstance(event, OccurringGaussian) else event


def central_limit(patch: Patch) -> None:
    of_ideal = accounting._of_ideal

    def limit(counts: Any, delta: float) -> Spent:
        (event, times), *more = counts
        if more or not isinstance(event, accounting.SampledGaussian):
            return of_ideal(counts, delta)
        mu = event.rate * math.sqrt(times * (math.exp(event.noise_multiplier**-2) - 1))
        return Spent(accounting.exact_gaussian(mu, delta), "central limit")

    limit.cache_clear = of_ideal.cache_clear  # type: ignore[attr-defined]
    patch.setattr(accounting, "_of_ideal", limit)


def not_composed(patch: Patch) -> None:
    of = ledger.events_of

    def first(costs: Any, *more: Any) -> Any:
        return of(dict.fromkeys(costs, 1), *more)

    patch.setattr(ledger, "events_of", first)


BATCHES = "batch-mean sensitivity with wrong n"
PARTIAL = "last partial batch"
COUNTS = "denominators = actual count"
MEAN = "clipping the mean not the rows"
LAYERS = "per-layer clip counted once"
SUM_OR_MEAN = "noise std on sum vs mean"
SHUFFLED = "shuffled batches accounted as Poisson"
UNSHUFFLED = "no shuffle at all"
BROADCAST = "sampling claimed secret but broadcast"
SEED = "fixed noise seed"
NOT_ADDED = "noise drawn but not added"
CLASSICAL = "classical Gaussian formula at eps>1"
KNOB = "sensitivity knob not tied to the clip and server-side noise"
SIGN = "sign-flip sold as local DP"
COMPANION = "unnoised companion"
DROPOUTS = "distributed noise with dropouts or colluders"
RECURRENCE = "recurrence ignored"
COUPLED = "BatchNorm / batch-level losses"
FLOAT = "float32 Gaussian"
SELECTION = "hyper-parameter selection on private data"
BEYOND = "found since"
"""Not in 5.4: what our own noised paths could get wrong."""

MUTANTS: dict[str, Mutant] = {
    "a short last batch is divided by its own size": Mutant(PARTIAL, short_batch, "sums", "mechanism"),
    "a step is divided by how many records were drawn": Mutant(
        COUNTS, by_the_number_drawn, "watched steps", "denominator"
    ),
    "a step clips the mean of its gradients": Mutant(MEAN, clipped_mean, "steps among others", "steps"),
    "a step clips layer by layer": Mutant(LAYERS, clipped_by_layer, "steps", "steps"),
    "a step does not clip": Mutant(BEYOND, unclipped, "steps", "steps"),
    "a step's sum gets the noise of a mean": Mutant(
        SUM_OR_MEAN, noise_of_the_mean, "steps", "steps", slow=True
    ),
    "a step's sum gets the noise of a mean, as it looks": Mutant(
        SUM_OR_MEAN, noise_of_the_mean, "watched steps", "width"
    ),
    "steps take shuffled batches": Mutant(SHUFFLED, shuffled, "watched steps", "coins"),
    "steps take the same batches in turn": Mutant(UNSHUFFLED, unshuffled, "watched steps", "coins"),
    "coins follow a public seed": Mutant(BROADCAST, public_coins, "step seeds", "predictable"),
    "every record is in every step": Mutant(BROADCAST, everybody, "watched steps", "rate"),
    "every record is in every step, as it tells": Mutant(BROADCAST, everybody, "steps", "steps", slow=True),
    "the rate in the charge is lower": Mutant(BROADCAST, lower_rate, "watched steps", "rate"),
    "the rate in the charge is lower, as it tells": Mutant(
        BROADCAST, lower_rate, "steps", "steps", slow=True
    ),
    "the rate in the charge is lower, in a run": Mutant(BROADCAST, lower_rate, "steps in a run", "events"),
    "an upload's noise has a seed of its own": Mutant(SEED, fixed_seed, "same seed", "predictable"),
    "an upload's noise follows the global seed": Mutant(SEED, global_seed, "same seed", "predictable"),
    "two runs with one seed have one noise": Mutant(SEED, global_seed, "same runs", "predictable"),
    "two masked runs with one seed have one noise": Mutant(
        SEED, global_seed, "same masked runs", "predictable"
    ),
    "two runs with one seed take the same steps": Mutant(
        SEED, seeded_training, "same runs by steps", "predictable"
    ),
    "a step's noise follows the global seed": Mutant(SEED, seeded_steps, "step seeds", "predictable"),
    "links follow a seed": Mutant(SEED, link_seed, "link seeds", "predictable"),
    "noise is drawn once and kept": Mutant(SEED, kept_draw, "local", "repeated"),
    "noise is drawn and not added": Mutant(NOT_ADDED, not_added, "local", "noise"),
    "noise is drawn and not added, as it tells": Mutant(
        NOT_ADDED, not_added, "upload", "mechanism", slow=True
    ),
    "the classical formula": Mutant(CLASSICAL, classical, "epsilons of Gaussians", "accountants"),
    "the classical formula, as it tells": Mutant(CLASSICAL, classical, "faint noise", "mechanism", slow=True),
    "the sensitivity is a knob of its own": Mutant(KNOB, knob, "local", "scale"),
    "the sensitivity is a knob of its own, as it tells": Mutant(KNOB, knob, "upload", "mechanism", slow=True),
    "the server's noise is claimed against the server": Mutant(KNOB, against_the_server, "central", "events"),
    "values are kept or negated": Mutant(SIGN, sign_flip, "upload", "mechanism"),
    "counts travel beside the noise": Mutant(COMPANION, companion, "local", "domains"),
    "a channel without noise is charged as if": Mutant(COMPANION, counts_as_noised, "masks", "events"),
    "shares are sized by the cohort": Mutant(DROPOUTS, of_the_cohort, "shared", "scale"),
    "shares are sized by the quorum, colluders and all": Mutant(DROPOUTS, of_the_quorum, "shared", "scale"),
    "only the first upload is charged": Mutant(RECURRENCE, paid_once, "local", "ledger"),
    "uploads do not compose": Mutant(RECURRENCE, not_composed, "local", "composed"),
    "only one of a round's steps is charged": Mutant(RECURRENCE, fewer_steps, "steps in a run", "events"),
    "a node counts as one record": Mutant(RECURRENCE, once, "node records", "occurrences"),
    "a node's places are capped one way only": Mutant(
        RECURRENCE, capped_one_way, "node records", "occurrences"
    ),
    "links are ranked by an order of the whole list": Mutant(
        RECURRENCE, permuted_links, "node records", "occurrences"
    ),
    "several records are accounted as one": Mutant(
        RECURRENCE, with_events(one_record), "epsilons of several records", "accountants"
    ),
    "graphs of a batch share a loss": Mutant(COUPLED, coupled, "graph records", "own gradients"),
    "gradients are of the batch's first records": Mutant(
        BEYOND, first_records, "node records", "own gradients"
    ),
    "an upload's noise is of floating point": Mutant(FLOAT, floats, "local", "grid"),
    "a step's noise is of floating point": Mutant(FLOAT, float_steps, "watched steps", "grid"),
    "a link's coin lies too rarely": Mutant(BEYOND, rare_lies, "link answers", "links"),
    "labels follow a seed": Mutant(SEED, link_seed, "label seeds", "predictable"),
    "a label's coin lies too rarely": Mutant(BEYOND, rare_label_lies, "label answers", "labels"),
    "a label's coin knows of two classes": Mutant(BEYOND, other_truths, "label answers", "labels"),
    "a feature's bit lies too rarely": Mutant(BEYOND, rare_feature_lies, "feature answers", "features"),
    "every bit of a node's features has the whole epsilon": Mutant(
        BEYOND, whole_bits, "feature answers", "features"
    ),
    "own links are kept beside drawn ones": Mutant(BEYOND, own_beside, "own links", "randomised data"),
    "every holder answers about a link that one pays for": Mutant(
        BEYOND, undivided, "divided links", "randomised data"
    ),
    "drawn links are paid for and not used": Mutant(BEYOND, never_taken, "own links", "randomised data"),
    "charges follow the upload": Mutant(BEYOND, paid_late, "ahead", "written ahead"),
    "holders are not counted": Mutant(BEYOND, one_holder, "links of several holders", "composed"),
    "holders are not counted, as it tells": Mutant(BEYOND, one_holder, "held upload", "mechanism"),
    "discrete noise is accounted as continuous": Mutant(
        BEYOND, with_events(continuous), "epsilons of discrete noise", "accountants"
    ),
    "the central limit is taken for a bound": Mutant(
        BEYOND, central_limit, "epsilons of sampled steps", "accountants"
    ),
    "coins of a sampled sum follow a public seed": Mutant(
        BROADCAST, public_coins_of_sums, "coins of a step", "predictable"
    ),
    "a sampled sum takes more units than are charged": Mutant(
        BROADCAST, more_coins, "coins of a step", "rate"
    ),
    "a sampled sum is charged at a lower rate": Mutant(
        BROADCAST, unsampled_charge, "coins of a step", "rate"
    ),
    "shares of a step's noise are not shared by all": Mutant(
        DROPOUTS, silent_shares, "shared steps", "noise"
    ),
    "own statistics are sent beside class sums": Mutant(COMPANION, own_statistics, "class sums", "domains"),
    "counted scores have the noise of another unit": Mutant(
        BEYOND, of_another_unit, "scores in a run", "scale"
    ),
    "counted scores have the noise of another unit, as it tells": Mutant(
        BEYOND, of_another_unit, "one item", "mechanism"
    ),
    "an item's part in the counts is not clipped": Mutant(BEYOND, unclipped_items, "one item", "mechanism"),
    "an item is in several parts of the counts": Mutant(BEYOND, several_parts, "items twice", "answer alone"),
    "scores are counted twice under one noise": Mutant(SEED, kept_draw, "scores in a run", "repeated"),
    "masks are left out": Mutant(BEYOND, no_masks, "masks", "uniform"),
}

DOCUMENTED: dict[str, tuple[str, str]] = {
    # what no audit here can see -> where it is said
    SELECTION: ("docs/guarantees.md", "Choosing hyper-parameters, stopping early"),
    "more colluders than were tolerated": ("docs/guarantees.md", "A reader with more colluders"),
    "timing, traffic, memory": ("docs/guarantees.md", "Timing, traffic, memory"),
}

THREATS = {
    # all of 5.4, by what catches it
    BATCHES: "the sum gets the mean's noise",  # in test_mechanism_audits
    **{m.threat: name for name, m in MUTANTS.items() if m.threat != BEYOND},
    SELECTION: SELECTION,
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if m.slow else n for n, m in MUTANTS.items()]
)
def test_mutants_are_caught_by_name(name, monkeypatch):
    mutant = MUTANTS[name]
    mutant.wrong(monkeypatch)
    assert mutant.audit in PROBES[mutant.probe]()


def test_every_threat_has_an_audit_or_a_page():
    listed = Path(ROOT.parent / "shared" / "threats.md")
    assert len(THREATS) == 20
    assert all(name in {**MUTANTS, **OF_UPLOADS, **DOCUMENTED} for name in THREATS.values())
    if listed.is_file():
        text = " ".join(listed.read_text().split())
        section = text[text.index("### 5.4") : text.index("## 6.")]
        assert [threat for threat in THREATS if threat not in section] == []


@pytest.mark.parametrize("what", DOCUMENTED)
def test_what_no_audit_sees_is_in_the_docs(what):
    page, words = DOCUMENTED[what]
    assert words in (ROOT / page).read_text()


def table() -> str:
    """The table of docs/audits.md: one row a threat."""
    caught: dict[str, list[str]] = {}
    for mutant in MUTANTS.values():
        caught.setdefault(mutant.threat, []).append(mutant.audit)
    for name in OF_UPLOADS:
        caught.setdefault(BATCHES if name == THREATS[BATCHES] else BEYOND, []).append("mechanism")
    rows = ["| what goes wrong | mutants | caught by |", "|---|---|---|"]
    for threat, audits in caught.items():
        names = ", ".join(f"`{audit}`" for audit in dict.fromkeys(audits))
        rows.append(f"| {threat} | {len(audits)} | {names} |")
    return "\n".join(rows)


def test_the_docs_have_this_table():
    assert table() in (ROOT / "docs" / "audits.md").read_text()


if __name__ == "__main__":
    print(table())
