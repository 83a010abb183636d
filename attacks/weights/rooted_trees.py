"""Trees around nodes that a graph isomorphism network's step admits, one link deeper a layer.

Whoever sent the weights can compute what any neighbourhood would look like inside the network. The step of a
linear layer is a sum of outer products with its inputs, so an input that the step's row space lacks did not
occur. Kinds of atoms are tried first, then each with every set of neighbours, then with the neighbours'
neighbours: as many links as the network has layers.

References:
    GRAIN: Drencheva et al., ICLR 2025, for spans that filter growing pieces of a graph.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement, islice, product
from math import comb, prod

import numpy as np

from secure_fedgraph.attacks.weights.gin_steps import GinStep

CHUNK = 50_000
MOST_OF_A_CENTRE = 50_000
"""Trees of one centre that are tried at a deeper level."""
LAST = 0.02
"""Share of its length that a tree of the last layer may be off."""
MOST_TREES = 3_000
"""A level with more trees than this cannot be put together, and ends the search."""


@dataclass(frozen=True)
class Level:
    """The trees of one depth that the step admits.

    Attributes:
        parents: ``[trees]`` which tree of the level before the same node has; of atoms their own number.
        around: for each tree the numbers, in the level before, of its neighbours' trees, sorted.
        made: ``[trees, width]`` what the network makes of the node.
    """

    parents: np.ndarray
    around: Sequence[tuple[int, ...]]
    made: np.ndarray = field(repr=False)

    def __len__(self) -> int:
        return len(self.parents)

    def only(self, kept: np.ndarray) -> Level:
        """Some of the trees."""
        numbers = np.flatnonzero(kept).tolist()
        return Level(self.parents[kept], [self.around[i] for i in numbers], self.made[kept])


@dataclass
class Clock:
    """How much processor time a search may take, and whether it ran out."""

    seconds: float
    start: float = field(default_factory=time.thread_time)
    stopped: bool = False

    @property
    def spent(self) -> float:
        """Processor seconds since it started."""
        return time.thread_time() - self.start

    def over(self) -> bool:
        """Whether the time is up; a search that asks this and stops has been cut short."""
        late = self.spent > self.seconds
        self.stopped = self.stopped or late
        return late


def grow(
    step: GinStep,
    atoms: np.ndarray,
    links: np.ndarray,
    clock: Clock,
    *,
    by_span: bool = True,
    loose: float = 0.0,
) -> list[Level]:
    """The levels of trees, atoms first; fewer than the network has layers where none is left.

    In the last layer all nodes of a graph have one gradient wherever the same units are active, so its step
    merges nodes. There a tree is only left out where it is far off (:data:`LAST`), and the graph's embedding
    decides.

    Args:
        step: of the network.
        atoms: ``[kinds, columns]`` kinds of atoms that there may be.
        links: ``[kinds]`` how many neighbours each has.
        clock: of the search.
        by_span: whether the first layer's row space decides which atoms there are, or values alone.
        loose: share of its length that a tree of a layer in between may be off.
    """
    possible = step.kinds(atoms, by_span)
    atoms, links = atoms[possible], links[possible]
    levels = [Level(np.flatnonzero(possible), [()] * len(atoms), step.entered(atoms))]
    for layer in range(step.layers):
        if not len(levels[-1]):
            break
        grown = (
            _first(step, levels[0], links, clock)
            if layer == 0
            else _deeper(step, layer, levels, clock, loose)
        )
        levels.append(_supported(grown))
    return levels


def _first(step: GinStep, atoms: Level, links: np.ndarray, clock: Clock) -> Level:
    """Every kind of atom with every set of as many neighbours as it has."""
    parents: list[int] = []
    around: list[tuple[int, ...]] = []
    made = [np.zeros((0, atoms.made.shape[1]))]
    order = np.argsort([comb(len(atoms) + int(d) - 1, int(d)) for d in links], kind="stable")
    for degree in dict.fromkeys(links[order].tolist()):
        centres = np.flatnonzero(links == degree)
        sets = combinations_with_replacement(range(len(atoms)), degree)
        while chunk := list(islice(sets, max(1, CHUNK // len(centres)))):
            if clock.over():
                break
            chosen = np.array(chunk, dtype=int).reshape(len(chunk), degree)
            added = atoms.made[centres][:, None] + atoms.made[chosen].sum(1)[None]
            inside, holds = _admitted(step, 0, 0.0, added.reshape(-1, added.shape[-1]))
            numbers = np.flatnonzero(holds)
            parents += centres[numbers // len(chosen)].tolist()
            around += [chunk[i] for i in numbers % len(chosen)]
            made.append(step.after(0, inside[holds]))
            if len(parents) > MOST_TREES:
                clock.stopped = True
                return Level(np.zeros(0, dtype=int), [], made[0])
    return Level(np.array(parents, dtype=int), around, np.concatenate(made))


def _deeper(step: GinStep, layer: int, levels: Sequence[Level], clock: Clock, loose: float) -> Level:
    """Every tree of the level before, with every fitting tree in each neighbour's place."""
    last = levels[-1]
    options = _options(last)
    parents: list[int] = []
    around: list[tuple[int, ...]] = []
    made = [np.zeros((0, last.made.shape[1]))]
    for centre in range(len(last)):
        if clock.over():
            break
        places = Counter(last.around[centre]).items()
        choices = [options[(place, int(last.parents[centre]))] for place, _ in places]
        sizes = [comb(len(c) + many - 1, many) for c, (_, many) in zip(choices, places, strict=True)]
        if not prod(sizes):
            continue
        sets = product(
            *(combinations_with_replacement(c, n) for c, (_, n) in zip(choices, places, strict=True))
        )
        tried = [
            tuple(sorted(one for part in parts for one in part)) for parts in islice(sets, MOST_OF_A_CENTRE)
        ]
        clock.stopped = clock.stopped or prod(sizes) > MOST_OF_A_CENTRE
        chosen = np.array(tried, dtype=int).reshape(len(tried), len(last.around[centre]))
        inside, holds = _admitted(step, layer, loose, last.made[centre] + last.made[chosen].sum(1))
        parents += [centre] * int(holds.sum())
        around += [tried[i] for i in np.flatnonzero(holds)]
        made.append(step.after(layer, inside[holds]))
        if len(parents) > MOST_TREES:
            clock.stopped = True
            return Level(np.zeros(0, dtype=int), [], made[0])
    return Level(np.array(parents, dtype=int), around, np.concatenate(made))


def _admitted(step: GinStep, layer: int, loose: float, added: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What stands inside a convolution for given sums, and whether the step has it among its inputs."""
    inside = step.inside(layer, added)
    name = f"convolutions.{layer}.nn"
    if layer == step.layers - 1:
        return inside, step.span(f"{name}.0.weight").holds(added, LAST)
    holds = np.ones(len(added), dtype=bool)
    for which, vectors in (("2", inside), ("0", added)):
        span = step.span(f"{name}.{which}.weight")
        holds[holds] = span.holds(vectors[holds], loose)
    return inside, holds


def _options(level: Level) -> dict[tuple[int, int], list[int]]:
    """(tree of a node in the level before, tree of its neighbour there) -> trees of the level that fit."""
    fitting: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, (parent, around) in enumerate(zip(level.parents.tolist(), level.around, strict=True)):
        for neighbour in set(around):
            fitting[(parent, neighbour)].append(number)
    return fitting


def _supported(level: Level) -> Level:
    """The trees whose neighbours can have trees that see them too; what falls out may take others along."""
    while len(level):
        options = _options(level)
        kept = np.array(
            [
                all(options.get((place, int(parent))) for place in around)
                for parent, around in zip(level.parents, level.around, strict=True)
            ],
            dtype=bool,
        )
        if kept.all():
            break
        level = level.only(kept)
    return level
