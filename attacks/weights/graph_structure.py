"""A6: whole graphs, atoms and links, from one gradient step of a graph isomorphism network."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement, islice, product
from math import comb, prod

import numpy as np
from scipy.optimize import nnls

from secure_fedgraph.attacks.attack import Control, Knowledge, OfFirstUpdate, Stopped
from secure_fedgraph.attacks.weights.gin_steps import GinStep, embeddings, graphs_in, read_step
from secure_fedgraph.graph.data.molecules import ATOMS
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import Seen

# Trees around nodes that a graph isomorphism network's step admits, and graphs whose nodes have them.

CHUNK = 50_000
MOST_OF_A_CENTRE = 50_000
"""Trees of one centre that are tried at a deeper level."""
LAST = 0.02
"""Share of its length that a tree of the last layer may be off."""
MOST_TREES = 3_000
"""A level with more trees than this cannot be put together, and ends the search."""


FITS = 3e-4
"""Counts explain an embedding where they are off by this share of its length at most."""
NEARLY = 0.02
"""A count this far from a whole number is taken for it."""
ROUNDS = 30
STEPS = 20_000
"""Links that are tried for one graph."""


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
        candidates = _first(levels[0], links, clock) if layer == 0 else _deeper(levels, clock)
        may_be_off = loose if layer else 0.0
        levels.append(_supported(_admitted_of(step, layer, may_be_off, levels[-1], candidates, clock)))
    return levels


Candidates = tuple[np.ndarray, Sequence[tuple[int, ...]], np.ndarray]
"""Trees that are tried together: their parents, the trees around these, and the sums over both."""


def _first(atoms: Level, links: np.ndarray, clock: Clock) -> Iterator[Candidates]:
    """Every kind of atom with every set of as many neighbours as it has."""
    order = np.argsort([comb(len(atoms) + int(d) - 1, int(d)) for d in links], kind="stable")
    for degree in dict.fromkeys(links[order].tolist()):
        centres = np.flatnonzero(links == degree)
        sets = combinations_with_replacement(range(len(atoms)), degree)
        while chunk := list(islice(sets, max(1, CHUNK // len(centres)))):
            if clock.over():
                break
            chosen = np.array(chunk, dtype=int).reshape(len(chunk), degree)
            added = atoms.made[centres][:, None] + atoms.made[chosen].sum(1)[None]
            yield np.repeat(centres, len(chunk)), chunk * len(centres), added.reshape(-1, added.shape[-1])


def _deeper(levels: Sequence[Level], clock: Clock) -> Iterator[Candidates]:
    """Every tree of the level before, with every fitting tree in each neighbour's place."""
    last = levels[-1]
    options = _options(last)
    for centre in range(len(last)):
        if clock.over():
            break
        places = Counter(last.around[centre]).items()
        choices = [options[(place, int(last.parents[centre]))] for place, _ in places]
        many = [comb(len(c) + n - 1, n) for c, (_, n) in zip(choices, places, strict=True)]
        if not prod(many):
            continue
        sets = product(
            *(combinations_with_replacement(c, n) for c, (_, n) in zip(choices, places, strict=True))
        )
        tried = [
            tuple(sorted(one for part in parts for one in part)) for parts in islice(sets, MOST_OF_A_CENTRE)
        ]
        clock.stopped = clock.stopped or prod(many) > MOST_OF_A_CENTRE
        chosen = np.array(tried, dtype=int).reshape(len(tried), len(last.around[centre]))
        yield np.full(len(tried), centre), tried, last.made[centre] + last.made[chosen].sum(1)


def _admitted_of(
    step: GinStep, layer: int, loose: float, last: Level, candidates: Iterable[Candidates], clock: Clock
) -> Level:
    """The trees that the step admits; none where they are too many to be put together."""
    parents: list[int] = []
    around: list[tuple[int, ...]] = []
    made = [np.zeros((0, last.made.shape[1]))]
    for centres, sets, added in candidates:
        inside, holds = _admitted(step, layer, loose, added)
        numbers = np.flatnonzero(holds).tolist()
        parents += centres[numbers].tolist()
        around += [sets[i] for i in numbers]
        made.append(step.linear(layer, 2, inside[holds]))
        if len(parents) > MOST_TREES:
            clock.stopped = True
            return Level(np.zeros(0, dtype=int), [], made[0])
    return Level(np.array(parents, dtype=int), around, np.concatenate(made))


def _admitted(step: GinStep, layer: int, loose: float, added: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What stands inside a convolution for given sums, and whether the step has it among its inputs."""
    inside = step.linear(layer, 0, added)
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


def counted(level: Level, embedding: np.ndarray) -> np.ndarray | None:
    """``[trees]`` how many nodes have each tree, from the sum of what the network makes of the nodes.

    Links have two ends: as many nodes of one tree see another as the other way round. Where the least squares
    are not whole numbers everywhere, those that nearly are get fixed, and the rest is solved again.

    Args:
        level: the last one.
        embedding: ``[width]`` a graph's.

    Returns:
        None where no whole numbers fit.
    """
    size = float(np.linalg.norm(embedding))
    if not len(level) or not size:
        return None
    ends = _ends(level)
    system = np.concatenate([level.made.T, ends * size / 10])
    wanted = np.concatenate([embedding, np.zeros(len(ends))])
    counts, free = np.zeros(len(level)), np.ones(len(level), dtype=bool)
    for _ in range(ROUNDS):
        counts[free], _ = nnls(system[:, free], wanted - system[:, ~free] @ counts[~free], maxiter=10**4)
        whole = np.rint(counts)
        if np.linalg.norm(whole @ level.made - embedding) <= FITS * size and not np.any(ends @ whole):
            return whole.astype(int)
        near = free & (np.abs(counts - whole) <= max(NEARLY, float(np.abs(counts - whole)[free].min())))
        counts[near] = whole[near]
        free &= ~near
        if not free.any():
            break
    return None


def _ends(level: Level) -> np.ndarray:
    """``[pairs, trees]``: ends of a kind of link at a node, less those of the other direction."""
    pairs: dict[tuple[int, int], int] = {}
    entries: list[tuple[int, int, float]] = []
    for tree, (parent, around) in enumerate(zip(level.parents.tolist(), level.around, strict=True)):
        for other in around:
            if parent == other:
                continue
            key = (min(parent, other), max(parent, other))
            row = pairs.setdefault(key, len(pairs))
            entries.append((row, tree, 1.0 if parent < other else -1.0))
    matrix = np.zeros((len(pairs), len(level)))
    for row, tree, value in entries:
        matrix[row, tree] += value
    return matrix


def assemble(level: Level, counts: np.ndarray, clock: Clock) -> tuple[np.ndarray, np.ndarray] | None:
    """A graph of nodes with these trees, connected where there is one; depth first, from one node outwards.

    Args:
        level: the last one.
        counts: ``[trees]``.
        clock: of the search.

    Returns:
        ``[nodes]`` which tree of the last level each has, and ``[2, links]`` pairs of nodes, each once.
    """
    nodes = np.repeat(np.arange(len(level)), counts)
    if not len(nodes):
        return None
    built = _Building(level, nodes, clock)
    built.search()
    links = built.connected if built.connected is not None else built.other
    if links is None:
        return None
    return nodes, np.array(sorted(links), dtype=int).reshape(-1, 2).T


class _Building:
    """A graph being built; ``connected`` and ``other`` are the first whole ones of either kind."""

    def __init__(self, level: Level, nodes: np.ndarray, clock: Clock) -> None:
        self.parent = level.parents[nodes].tolist()
        self.tree = nodes.tolist()
        self.open = [Counter(level.around[tree]) for tree in self.tree]
        self.links: set[tuple[int, int]] = set()
        self.touched: list[int] = []
        self.connected: set[tuple[int, int]] | None = None
        self.other: set[tuple[int, int]] | None = None
        self.steps, self.clock = 0, clock
        self.pieces = 0

    def search(self) -> bool:
        """Whether a connected graph was completed."""
        node = next((n for n in self.touched if self.open[n]), None)
        if node is None:
            return self._next_piece()
        wanted = next(iter(self.open[node]))
        tried: set[tuple[int, bool, tuple[int, ...]]] = set()
        for other in self._partners(node, wanted):
            fresh = other not in self.touched
            key = (self.tree[other], fresh, tuple(sorted(self.open[other].elements())))
            # fresh nodes of one tree are alike; touched ones stand in different places
            if fresh and key in tried:
                continue
            tried.add(key)
            self.steps += 1
            if self.steps > STEPS or self.clock.over():
                return False
            self._join(node, other, fresh)
            if self.search():
                return True
            self._part(node, other, fresh)
        return False

    def _next_piece(self) -> bool:
        left = next((n for n in range(len(self.tree)) if n not in self.touched), None)
        if left is None:
            if self.pieces <= 1:
                self.connected = set(self.links)
                return True
            self.other = self.other or set(self.links)
            return False
        self.touched.append(left)
        self.pieces += 1
        done = self.search()
        self.pieces -= 1
        self.touched.pop()
        return done

    def _partners(self, node: int, wanted: int) -> list[int]:
        """Ring closures first: in a molecule a node that was reached already is likelier."""
        fits = [
            other
            for other in range(len(self.tree))
            if other != node
            and self.parent[other] == wanted
            and self.open[other][self.parent[node]] > 0
            and (min(node, other), max(node, other)) not in self.links
        ]
        return sorted(fits, key=lambda other: other not in self.touched)

    def _join(self, node: int, other: int, fresh: bool) -> None:
        self.links.add((min(node, other), max(node, other)))
        for one, another in ((node, other), (other, node)):
            self.open[one][self.parent[another]] -= 1
            if not self.open[one][self.parent[another]]:
                del self.open[one][self.parent[another]]
        if fresh:
            self.touched.append(other)

    def _part(self, node: int, other: int, fresh: bool) -> None:
        self.links.remove((min(node, other), max(node, other)))
        for one, another in ((node, other), (other, node)):
            self.open[one][self.parent[another]] += 1
        if fresh:
            self.touched.pop()


def atoms_of(levels: Sequence[Level], nodes: np.ndarray) -> np.ndarray:
    """Which kind of atom each node is, as a number in the list that the search started from."""
    for level in reversed(levels[1:]):
        nodes = level.parents[nodes]
    return np.asarray(levels[0].parents[nodes])


TRAINED_GRAPHS = "graphs trained on"
KINDS = "kinds of atoms"
SECONDS = 60.0
TRIES = (
    (True, False, 0.0),
    (True, True, 0.0),
    (False, False, 0.0),
    (False, True, 0.0),
    (False, False, 0.01),
    (False, True, 0.01),
)
"""By row space or by values, errors by rounding or as seen, how far off: the strictest first."""

_STEP = {"rounds": 1, "training.network": "gin", "training.local_steps": 1}


def _batch(graphs: int, width: int = 64) -> Control:
    name = f"{graphs} graph{'s' * (graphs > 1)} a step" + (f" at width {width}" if width != 64 else "")
    return Control(name, {**_STEP, "training.batch": graphs, "training.hidden": [width] * 3})


@dataclass(frozen=True)
class Molecule:
    """One graph that was recovered.

    Attributes:
        atoms: ``[nodes, columns]``.
        links: ``[2, links]`` pairs of nodes, each once.
    """

    atoms: np.ndarray = field(repr=False)
    links: np.ndarray = field(repr=False)


class GraphStructure(OfFirstUpdate):
    """A6: atoms and links of the graphs that a step of a GIN was taken on.

    The row space of each linear layer's step holds that layer's inputs. Atoms that the first layer's lacks
    are ruled out; so are neighbourhoods whose image inside the first convolution the next lacks, and their
    neighbours' neighbourhoods a layer further. The layer behind the sum over nodes gives each graph's
    embedding (:func:`~secure_fedgraph.attacks.weights.gin_steps.embeddings`), and whole numbers that add
    neighbourhoods up to it say how often each occurs. A graph with these neighbourhoods is put together link
    by link.

    The network tells two graphs apart only where trees as deep as it has layers do, so no attack on its
    updates can do better: of several graphs that fit, the first connected one is taken.

    References:
        GRAIN: Drencheva, Petrov, Baader, Dimitrov, Vechev, GRAIN: Exact Graph Reconstruction from Gradients,
        ICLR 2025, for GCN and GAT; the sums' whole numbers and the embeddings of batches are this attack's.
    """

    id = "a6-graph-structure"
    subject = "graphs trained on"
    summary = "atoms and links of the graphs of a GIN's step"
    about = TRAINED_GRAPHS
    grants = (
        "a public list of the kinds of atoms: the feature rows that occur in the data set, and how many "
        "neighbours an atom of each has",
    )
    needs = (KINDS,)
    depends_on = ("training.batch", "training.local_steps", "training.optimizer", "training.hidden")
    searches = True
    controls = (_batch(1), _batch(1, width=256), _batch(2), _batch(4), _batch(8))

    def read(self, view: View, knowledge: Knowledge, seen: Seen) -> np.ndarray | Stopped:
        """``[graphs]`` of :class:`Molecule`, None for each that was not recovered; of a sum nobody's own."""
        kinds = np.asarray(knowledge.facts[KINDS], dtype=np.float64)
        given, settings = self.broadcast(view, seen), view.public["settings"]
        step = read_step(self.id, given, seen.values, settings, ATOMS, len(seen.clients))
        clock = Clock(self.effort or SECONDS)
        graphs = recover(step, kinds[:, :-1], kinds[:, -1].astype(int), clock)
        values = np.empty(len(graphs), dtype=object)
        values[:] = graphs
        return Stopped(values, clock.spent) if clock.stopped and not all(graphs) else values


def recover(step: GinStep, atoms: np.ndarray, links: np.ndarray, clock: Clock) -> list[Molecule | None]:
    """The graphs that a step was taken on; None in place of each that was not recovered.

    Args:
        step: of the network.
        atoms: ``[kinds, columns]`` kinds of atoms that there may be.
        links: ``[kinds]`` how many neighbours each has.
        clock: of the search.
    """
    graphs, known = graphs_in(step), embeddings(step)
    made: dict[int, Molecule] = {}
    for by_span, seen, loose in TRIES:
        if clock.over() or len(made) >= min(graphs, len(known)):
            break
        tried = replace(step, seen=seen, spans={})
        levels = grow(tried, atoms, links, clock, by_span=by_span, loose=loose)
        if len(levels) <= step.layers or not len(levels[-1]):
            continue
        for number, embedding in enumerate(known):
            if number in made or len(made) >= graphs:
                continue
            counts = counted(levels[-1], embedding)
            built = None if counts is None else assemble(levels[-1], counts, clock)
            if built is not None:
                nodes, edges = built
                made[number] = Molecule(atoms[atoms_of(levels, nodes)], edges)
    return [*made.values(), *[None] * (graphs - len(made))]
