"""Two copies of one process: values that are equal in both are not the operating system's randomness.

A copy shares everything with its original but fresh randomness: the state of every generator, global or of a
module, every counter, every seed. So coins and noise that any of these decide are the same in both copies.
"""

from __future__ import annotations

import multiprocessing
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import numpy as np
import torch
from scipy.stats import binom

from secure_fedgraph.audits.conformance.added_noise import noises
from secure_fedgraph.audits.conformance.steps import SMALL, taken
from secure_fedgraph.audits.empirical_dp.empirical import worst_case
from secure_fedgraph.audits.empirical_dp.mechanisms import view
from secure_fedgraph.audits.record import LEVEL, Finding, noise_of
from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import BadInput, HostileMessage, SecureFedGraphError
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.running.run import Run

CHANCE = 0.005
"""Above the chance that two noise values are equal, on the coarsest grid, of 64 steps a deviation."""
SECONDS = 60.0
Sample = Callable[[], Mapping[str, np.ndarray]]
"""Gives values by name; a copy calls it."""


EXCHANGES, UNITS = 16, 4_096
"""How often an upload is noised, and how many units' coins are tossed."""


class NoTwins(SecureFedGraphError):
    """This system makes no copies of a process, or one did not answer."""


def same_in_two_copies(sample: Sample, check: str = "predictable") -> list[Finding]:
    """That what must be random differs between two copies of this process.

    Args:
        sample: values by what they are, of at least some 32 values each; ``"coins ..."`` are compared whole.
        check: the finding's name.

    Raises:
        NoTwins: where no copy can be made.
    """
    one, other = copies([sample, sample])
    findings = []
    for what in one:
        a, b = one[what], other.get(what)
        same = b is not None and a.shape == b.shape and a.size > 0
        if not same or b is None:
            continue
        alike = int(np.count_nonzero(a == b))
        if alike == a.size if what.startswith("coins") else binom.sf(alike - 1, a.size, CHANCE) < LEVEL / 100:
            findings.append(Finding(check, what, "comes out the same in two copies of one process"))
    return findings


def predictable(run: Run) -> list[Finding]:
    """That noise, coins and randomised data of a run's protections differ between two copies of this process.

    Raises:
        NoTwins: where no copy can be made.
    """
    policy, owners = run.policy, run.federation.owners
    graph = min(owners.values(), key=lambda one: int(one.num_nodes or 0))

    def sample() -> dict[str, np.ndarray]:
        made: dict[str, np.ndarray] = {}
        for name, bound in policy.bounds.items():
            if (drawn := _noise(bound)) is not None:
                made[f"noise on channel {name!r}"] = drawn
            units = bound.coins(UNITS).numpy()
            if len(units) < UNITS:
                made[f"coins of channel {name!r}"] = units
        if policy.steps is not None:
            watched = taken(policy.steps, SMALL)
            made["noise of steps"] = np.rint(watched.noise.values * 4096)
            if policy.steps.rate < 1:
                made["coins of steps"] = watched.asked
        for one in policy.randomizers:
            often = type(one)(**{**vars(one), "epsilon": 1.0})  # so that coins change many values
            value = often.at(0, len(owners)).randomize(graph, run.federation.schema.classes)
            made[f"coins of {one.kind}"] = value.numpy().astype(np.float64)
        return made

    return same_in_two_copies(sample)


def _noise(bound: Bound) -> np.ndarray | None:
    """What the first reader of a protection's noise sees of an upload, again and again; None without any."""
    stage = noise_of(bound)
    if stage is None:
        return None
    try:
        neighbours, _ = worst_case(bound, stage)
    except BadInput:  # rows of which no sum is made
        one = {bound.bind_context.clients[0]: Upload({"rows": torch.zeros(8, 8)})}
        return np.concatenate([np.rint(noise.values * 4096) for noise in noises(bound, one, EXCHANGES)])
    see = view(bound, neighbours, "server" if stage.by != "server" else "outsider")
    return np.concatenate([see(neighbours.absent).reshape(-1) for _ in range(EXCHANGES)])


def copies(samples: Sequence[Sample]) -> list[dict[str, np.ndarray]]:
    """What copies of this process make, each of one sample.

    Raises:
        NoTwins: where no copy can be made, or one does not answer.
    """
    return [_copy(sample) for sample in samples]


def _copy(sample: Sample) -> dict[str, np.ndarray]:
    """The values of a sample in a forked copy of this process."""
    if "fork" not in multiprocessing.get_all_start_methods():
        raise NoTwins("this system makes no copies of a process")
    context, state = multiprocessing.get_context("fork"), random.getstate()
    reader, writer = context.Pipe(duplex=False)

    def answer() -> None:
        random.setstate(state)  # which Python seeds anew in a copy
        torch.set_num_threads(1)  # a fork has no pool of threads
        with suppress(Exception):  # no answer says that it failed
            writer.send_bytes(wire.encode({n: np.ascontiguousarray(v) for n, v in sample().items()}))

    copy = context.Process(target=answer, daemon=True)
    with warnings.catch_warnings(), reader:
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of this process: the copy starts none
        copy.start()
        writer.close()
        try:
            tree = wire.decode(reader.recv_bytes()) if reader.poll(SECONDS) else {}
        except (EOFError, HostileMessage):
            tree = {}
        finally:
            copy.kill()
            copy.join()
    if not tree:
        raise NoTwins("a copy of this process did not answer")
    return {name: np.asarray(value) for name, value in tree.items()}
