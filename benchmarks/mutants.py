"""Privacy bugs that are put into the code on purpose, and the check of ``audit`` that catches each.

    python benchmarks/mutants.py [--json] [--only NAME ...]

One row a mutant: what it breaks, and every check that complains when the mutated code is audited. An audit
here is what ``secure-fedgraph audit`` does to one run besides attacking it: the checks of its record, the
probes of its algorithm and protections, and the noise measured against worst-case neighbours. Every scene is
audited without a mutant first, and has to pass. About five minutes on one core. The status is 1 where a
mutant escapes its check, or a scene without one is accused.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import torch
from written_pages import options, show

import secure_fedgraph as sfg
from secure_fedgraph.audits.conformance.rows import FAILED, conformance_rows, probe_rows
from secure_fedgraph.audits.empirical_dp.empirical import BROKEN, empirical_or_why_not
from secure_fedgraph.client import Client
from secure_fedgraph.core.channel import Channel, Reveal, UnitContribution
from secure_fedgraph.core.errors import Refused
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection import pooling
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.gaussian import Gaussian
from secure_fedgraph.core.upload import ContributionRows, Upload
from secure_fedgraph.models.per_record import multiplied_out
from secure_fedgraph.privacy import dp_sgd
from secure_fedgraph.privacy.dp_sgd import PrivateSteps, Training
from secure_fedgraph.privacy.input_dp.labels import RandomisedLabels
from secure_fedgraph.protocol.transcript import everything
from secure_fedgraph.seams import ClientContext, RoundApi

P = sfg.policies
DELTA = 1e-5
EVEN = 2

# --- scenes: small runs, each with what a mutant needs


class TwoChannels(sfg.FedSage):
    """FedSage with class means on a channel of their own."""

    name = "two-channels"
    MEANS = Channel("means", Reveal.SUM)

    def round(self, round: RoundApi, state: Any) -> Any:
        """As FedSage, and the means."""
        round.reduce(self.MEANS)
        return super().round(round, state)

    @MEANS.answer
    def means(self, client: ClientContext, given: Any) -> Upload:
        """The mean of each class's features."""
        return Upload({"means": _means(client)})


class RawMeans(TwoChannels):
    """FedSage with a second channel that says that noisy steps made it."""

    name = "raw-means"
    MEANS = Channel("means", Reveal.SUM, trained=True)

    @MEANS.answer
    def means(self, client: ClientContext, given: Any) -> Upload:
        """Nothing that a step made: the mean of the client's features."""
        return Upload({"mean": self.mean(client)})

    def mean(self, client: ClientContext) -> torch.Tensor:
        """What is right: nothing of the data."""
        return torch.zeros(client.schema.features)


class EachMeans(sfg.FedSage):
    """Class means that the server reads client by client."""

    name = "each-means"
    MEANS = Channel("means", Reveal.EACH)

    def round(self, round: RoundApi, state: Any) -> Any:
        """As FedSage, and the means."""
        round.gather(self.MEANS)
        return super().round(round, state)

    @MEANS.answer
    def means(self, client: ClientContext, given: Any) -> Upload:
        """One entry a class, whether the client has it or not."""
        return Upload({f"class {c}": mean for c, mean in enumerate(_means(client)) if self.sends(client, c)})

    def sends(self, client: ClientContext, label: int) -> bool:
        """What is right: every class."""
        return True


class NodeSums(sfg.FedSage):
    """Class sums of node features, each node's part clipped by the door."""

    name = "node-sums"
    SUMS = Channel("sums", Reveal.SUM, unit=Unit.NODE, unit_contribution=UnitContribution(1, 1.0))

    def round(self, round: RoundApi, state: Any) -> Any:
        """As FedSage, and the sums."""
        round.reduce(self.SUMS)
        return super().round(round, state)

    @SUMS.answer
    def sums(self, client: ClientContext, given: Any) -> ContributionRows:
        """Every node's features, in the row of its class."""
        graph = client.graph
        return ContributionRows(
            {"features": graph.x}, torch.nn.functional.one_hot(graph.y, client.schema.classes).bool()
        )


def _means(client: ClientContext) -> torch.Tensor:
    member = torch.nn.functional.one_hot(client.graph.y, client.schema.classes).float()
    return (member.T @ client.graph.x) / member.sum(0).clamp(min=1)[:, None]


@cache
def _federation(nodes: int) -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, nodes=nodes, features=24, seed=0)


@dataclass(frozen=True)
class Scene:
    """A run to audit.

    Args:
        algorithm: its class.
        policy: makes its policy.
        rounds, nodes: how many.
        settings: of the algorithm.
    """

    algorithm: type[sfg.Algorithm]
    policy: Callable[[], Any]
    rounds: int = 4
    nodes: int = 90
    settings: Mapping[str, Any] = field(default_factory=lambda: {"hidden": (8, 8), "fanout": (2, 2)})

    def run(self) -> sfg.Run:
        """The run, with every message kept."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made, federation = self.algorithm(**self.settings), _federation(self.nodes)
            return sfg.train(made, federation, self.policy(), rounds=self.rounds, keep=everything)


STEPS = PrivateSteps(4.0, rate=0.3, steps=3)
SCENES: dict[str, Scene] = {
    "noised updates": Scene(sfg.FedSage, lambda: P.local_dp(1.0, 2.0)),
    "updates within a wide clip": Scene(sfg.FedSage, lambda: P.local_dp(50.0, 2.0)),
    "two noised channels": Scene(TwoChannels, lambda: P.local_dp(1.0, 2.0)),
    "single class means": Scene(EachMeans, lambda: P.local_dp(1.0, 2.0)),
    "sums over nodes": Scene(NodeSums, lambda: P.local_dp(1.0, 2.0), nodes=1_200),
    "noisy steps": Scene(sfg.FedSage, lambda: replace(P.masked(), steps=STEPS)),
    "noisy steps and means": Scene(RawMeans, lambda: replace(P.masked(), steps=STEPS)),
    "randomised labels": Scene(
        sfg.FedSage, lambda: replace(P.plaintext(), randomizers=(RandomisedLabels(1.0),))
    ),
}


def complaints(scene: str) -> list[str]:
    """The names of the checks of an audit that the code, as it is now, fails in a scene."""
    try:
        run = SCENES[scene].run()
    except Refused as refusal:
        return [f"the run ends: {refusal}"]
    found = [row["check"] for row in (*conformance_rows(run), *probe_rows(run)) if row["outcome"] == FAILED]
    measured = [row for row in empirical_or_why_not(run, DELTA) if row["outcome"] == BROKEN]
    return [*found, *(f"epsilon of {row['noise']}" for row in measured)]


# --- mutants

Set = Callable[[Any, str, Any], None]
DRAW, APPLY, SEAL, CLIPPED = Gaussian._draw, Gaussian.apply, Bound.seal, pooling.clipped
RUN, COINS, NOISE_OF_STEPS = Training.run, dp_sgd.secret_coins, dp_sgd.rounded_gaussian
DOOR_DRAWS, UPLOAD = Client._draw_inputs, Client._upload


def with_scopes(set_: Set, change: Callable[[Gaussian, np.ndarray, np.ndarray, Any], np.ndarray]) -> None:
    """Noise that knows its round and its upload: ``change(stage, noise, upload, scope)`` is drawn instead."""
    now: list[Any] = []

    def apply(self: Gaussian, matrix: np.ndarray, scope: Any) -> np.ndarray:
        now[:] = matrix, scope
        return APPLY(self, matrix, scope)

    set_(Gaussian, "apply", apply)
    set_(Gaussian, "_draw", lambda self, shape, keys=(): change(self, DRAW(self, shape, keys), *now))


@dataclass(frozen=True)
class Mutant:
    """One bug.

    Args:
        breaks: what is wrong, in a line.
        wrong: puts it into the code.
        scene: whose audit has to complain.
        check: by this name.
    """

    breaks: str
    wrong: Callable[[Set], None]
    scene: str
    check: str = ""


MUTANTS: dict[str, Mutant] = {}
"""First eight that an independent check put in, and no audit saw; then ten written down before any audit."""


def mutant(scene: str, check: str) -> Callable[[Callable[[Set], None]], Callable[[Set], None]]:
    """Puts a bug into the table under its function's name, which its docstring describes."""

    def put(wrong: Callable[[Set], None]) -> Callable[[Set], None]:
        name = wrong.__name__.replace("_", " ")
        MUTANTS[name] = Mutant(wrong.__doc__ or "", wrong, scene, check)
        return wrong

    return put


@mutant("noisy steps", "steps")
def bias_without_noise(set_: Set) -> None:
    """In noisy steps, parameters named *bias get no noise."""
    quiet: list[np.ndarray] = []

    def run(self: Training, optimizer: Any, parameters: Any, *more: Any, **named: Any) -> None:
        whole = [np.full(p.numel(), name.endswith("bias")) for name, p in parameters.items()]
        quiet[:] = [np.concatenate(whole)]
        RUN(self, optimizer, parameters, *more, **named)

    class Sampler:
        def __init__(self, sigma: int) -> None:
            self.real = NOISE_OF_STEPS(sigma)
            self.total_variation = self.real.total_variation

        def draw(self, size: int) -> np.ndarray:
            return np.where(quiet[0], 0, self.real.draw(size))

    set_(Training, "run", run)
    set_(dp_sgd, "rounded_gaussian", Sampler)


@mutant("noised updates", "width")
def last_three_without_noise(set_: Set) -> None:
    """The last 3 of more than 50 coordinates of an upload get no noise."""

    def draw(self: Gaussian, shape: Any, keys: Any = ()) -> np.ndarray:
        noise = DRAW(self, shape, keys)
        if noise.size > 50:
            noise.reshape(-1)[-3:] = 0
        return noise

    set_(Gaussian, "_draw", draw)


@mutant("noised updates", "correlation")
def noise_taken_back(set_: Set) -> None:
    """The noise of an even round is minus that of the round before."""
    before: dict[Any, list[np.ndarray]] = {}

    def change(stage: Gaussian, noise: np.ndarray, upload: np.ndarray, scope: Any) -> np.ndarray:
        waiting = before.setdefault((scope.channel, noise.shape), [])
        if scope.round % EVEN or not waiting:
            waiting.append(noise)
            return noise
        return -waiting.pop(0)

    with_scopes(set_, change)


@mutant("noisy steps", "predictable")
def counted_coins(set_: Set) -> None:
    """Sampling coins come from a public generator whose seed is a counter."""
    counter = itertools.count()

    def coins(records: int, rate: float) -> torch.Tensor:
        heads = np.random.default_rng(next(counter)).random(records) < rate
        return torch.from_numpy(np.flatnonzero(heads))

    set_(dp_sgd, "secret_coins", coins)


@mutant("randomised labels", "randomised data")
def true_labels(set_: Set) -> None:
    """Randomised response is charged and the true labels are used."""
    set_(RandomisedLabels, "randomize", lambda self, graph, classes: graph.y.clone())


@mutant("randomised labels", "randomised data")
def labels_drawn_again(set_: Set) -> None:
    """Labels are drawn again before every upload and charged once."""

    def draw(self: Client, *given: Any) -> None:
        DOOR_DRAWS(self, *given)
        for one in self._policy.randomizers:
            self.graph = self.graph.clone()
            setattr(self.graph, one.place, one.randomize(self._own, self.schema.classes))

    set_(Client, "_draw_inputs", draw)


@mutant("noisy steps", "steps")
def gradient_in_the_rate(set_: Set) -> None:
    """The learning rate is divided by the norm of the gradient before noise."""

    def run(
        self: Training,
        optimizer: Any,
        parameters: Any,
        records: int,
        gradients: Any,
        *more: Any,
        **named: Any,
    ) -> None:
        rate = optimizer.param_groups[0]["lr"]

        def pulled(chosen: torch.Tensor) -> Any:
            found = gradients(chosen)
            length = float(sum(multiplied_out(g).sum(0).square().sum() for g in found.values())) ** 0.5
            optimizer.param_groups[0]["lr"] = rate / max(length, 1e-3)
            return found

        RUN(self, optimizer, parameters, records, pulled, *more, **named)

    set_(Training, "run", run)


@mutant("noisy steps and means", "trained")
def raw_mean(set_: Set) -> None:
    """A channel that says trained=True carries a mean of raw features."""
    set_(RawMeans, "mean", lambda self, client: client.graph.x.mean(0))


@mutant("noised updates", "width")
def cut_noise(set_: Set) -> None:
    """Noise beyond two standard deviations is cut off."""

    def draw(self: Gaussian, shape: Any, keys: Any = ()) -> np.ndarray:
        return np.clip(DRAW(self, shape, keys), -2 * self.sigma, 2 * self.sigma)

    set_(Gaussian, "_draw", draw)


@mutant("noised updates", "width")
def noise_of_its_own_length(set_: Set) -> None:
    """Noise is scaled to the upload's own length where that is below the clip."""

    def change(stage: Gaussian, noise: np.ndarray, upload: np.ndarray, scope: Any) -> np.ndarray:
        share = min(1.0, float(np.linalg.norm(upload)) / stage.l2_sensitivity)
        return np.rint(noise * share).astype(noise.dtype)

    with_scopes(set_, change)


@mutant("noised updates", "width")
def later_rounds(set_: Set) -> None:
    """From round 3 on noise has half its width."""

    def change(stage: Gaussian, noise: np.ndarray, upload: np.ndarray, scope: Any) -> np.ndarray:
        return np.rint(noise / 2).astype(noise.dtype) if scope.round > 2 else noise

    with_scopes(set_, change)


@mutant("two noised channels", "correlation")
def shared_channels(set_: Set) -> None:
    """Two channels of one round get the same draw of noise."""
    drawn: dict[Any, dict[str, list[np.ndarray]]] = {}

    def change(stage: Gaussian, noise: np.ndarray, upload: np.ndarray, scope: Any) -> np.ndarray:
        by_channel = drawn.setdefault((scope.run, scope.round), {})
        mine = by_channel.setdefault(scope.channel, [])
        mine.append(noise)
        first = next(iter(by_channel.values()))
        return np.resize(first[(len(mine) - 1) % len(first)], noise.shape)

    with_scopes(set_, change)


@mutant("sums over nodes", "clip")
def first_chunk(set_: Set) -> None:
    """Only the first 256 units' parts of a sum are clipped."""

    def clipped(matrix: np.ndarray, norm: float) -> np.ndarray:
        return np.concatenate([CLIPPED(matrix[:256], norm), matrix[256:].astype(np.float32)])

    set_(pooling, "clipped", clipped)


@mutant("noised updates", "answer alone")
def previous_upload(set_: Set) -> None:
    """A tenth of the client's previous upload, before noise, is added after the noise."""
    before: dict[Any, np.ndarray] = {}
    whose: list[Any] = []

    def seal(self: Bound, upload: Any, scope: Any, party: Any) -> Any:
        whose[:] = [(scope.run, scope.channel, party.name)]
        return SEAL(self, upload, scope, party)

    def apply(self: Gaussian, matrix: np.ndarray, scope: Any) -> np.ndarray:
        key = (*whose[0], matrix.shape)
        earlier = before.get(key, np.zeros_like(matrix))
        before[key] = matrix
        return APPLY(self, matrix, scope) + np.rint(0.1 * earlier / self.step) * self.step

    set_(Bound, "seal", seal)
    set_(Gaussian, "apply", apply)


@mutant("noisy steps", "steps")
def last_step(set_: Set) -> None:
    """The last noisy step of a round takes every record and is charged as sampled."""
    step = [0, 0]

    def run(self: Training, *arguments: Any, **named: Any) -> None:
        step[:] = 0, self.how.steps
        RUN(self, *arguments, **named)

    def coins(records: int, rate: float) -> torch.Tensor:
        step[0] += 1
        return torch.arange(records) if step[0] == step[1] else COINS(records, rate)

    set_(Training, "run", run)
    set_(dp_sgd, "secret_coins", coins)


@mutant("noised updates", "answer alone")
def lowest_bits(set_: Set) -> None:
    """Training labels replace the lowest bits of the noised numbers."""
    labels: list[np.ndarray] = []

    def upload(self: Client, *arguments: Any) -> Any:
        labels[:] = [self.graph.y[self.graph.train_mask].numpy()]
        return UPLOAD(self, *arguments)

    def apply(self: Gaussian, matrix: np.ndarray, scope: Any) -> np.ndarray:
        made = APPLY(self, matrix, scope)
        steps = np.rint(made / self.step).astype(np.int64).reshape(-1)
        if labels and self.by == "client":
            bits = labels[0][: len(steps)] % 2
            steps[: len(bits)] += bits - steps[: len(bits)] % 2
        return steps.reshape(made.shape) * self.step

    set_(Client, "_upload", upload)
    set_(Gaussian, "apply", apply)


@mutant("single class means", "behaviour")
def length_by_data(set_: Set) -> None:
    """An upload holds only the entries of the classes that the client has."""
    set_(EachMeans, "sends", lambda self, client, label: bool((client.graph.y == label).any()))


@mutant("updates within a wide clip", "any answer")
def refusal_by_data(set_: Set) -> None:
    """After the charge, a client refuses to answer where its upload is longer than the clip."""

    def seal(self: Bound, upload: Any, scope: Any, party: Any) -> Any:
        norm = next((stage.norm for stage in self.stages if hasattr(stage, "norm")), None)
        length = float(sum(value.square().sum() for value in upload.values.values())) ** 0.5
        if norm is not None and length > norm:
            raise Refused(f"{party.name}'s upload is longer than {norm}")
        return SEAL(self, upload, scope, party)

    set_(Bound, "seal", seal)


@contextmanager
def in_the_code(wrong: Callable[[Set], None]) -> Iterator[None]:
    """The code with a mutant in it."""
    with ExitStack() as stack:
        wrong(lambda target, name, value: stack.enter_context(mock.patch.object(target, name, value)))
        yield


def rows(names: list[str]) -> list[dict[str, Any]]:
    """What the audits of the mutants say, and before them those of their scenes without any."""
    found: list[dict[str, Any]] = []
    scenes = dict.fromkeys(MUTANTS[name].scene for name in names)
    bare = {f"no mutant, {scene}": Mutant("", lambda set_: None, scene) for scene in scenes}
    for name, mutant in {**bare, **{name: MUTANTS[name] for name in names}}.items():
        with in_the_code(mutant.wrong):
            by = complaints(mutant.scene)
        caught = mutant.check in by if mutant.check else bool(by)
        found.append({"name": name, "mutant": mutant.breaks or name, "caught by": by, "caught": caught})
        print(f"{name}: {', '.join(by) or 'nothing'}", file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Prints the rows, or the table."""
    parser = options(__doc__)
    parser.add_argument("--only", nargs="+", choices=MUTANTS, default=list(MUTANTS), metavar="NAME")
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = rows(args.only)
    show(found, args.json, ("mutant", "caught by"))
    sys.exit(any(row["caught"] == (row["mutant"] == row["name"]) for row in found))


if __name__ == "__main__":
    main()
