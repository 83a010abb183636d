"""A6: whole graphs, atoms and links, from one gradient step of a graph isomorphism network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from secure_fedgraph.attacks.attack import Attack, Control, Guess, Knowledge
from secure_fedgraph.attacks.weights.assembled_graphs import assemble, atoms_of, counted
from secure_fedgraph.attacks.weights.gin_steps import GinStep, read_step
from secure_fedgraph.attacks.weights.pooled_sums import embeddings, graphs_in
from secure_fedgraph.attacks.weights.rooted_trees import Clock, grow
from secure_fedgraph.attacks.weights.updates import ALL, STOPS
from secure_fedgraph.graph.data.molecules import ATOMS
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import Seen

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


class GraphStructure(Attack):
    """A6: atoms and links of the graphs that a step of a GIN was taken on.

    The row space of each linear layer's step holds that layer's inputs. Atoms that the first layer's lacks
    are ruled out; so are neighbourhoods whose image inside the first convolution the next lacks, and their
    neighbours' neighbourhoods a layer further. The layer behind the sum over nodes gives each graph's
    embedding (:mod:`~secure_fedgraph.attacks.weights.pooled_sums`), and whole numbers that add neighbourhoods
    up to it say how often each occurs. A graph with these neighbourhoods is put together link by link.

    The network tells two graphs apart only where trees as deep as it has layers do, so no attack on its
    updates can do better: of several graphs that fit, the first connected one is taken.

    References:
        GRAIN: Drencheva, Petrov, Baader, Dimitrov, Vechev, GRAIN: Exact Graph Reconstruction from Gradients,
        ICLR 2025, for GCN and GAT; the sums' whole numbers and the embeddings of batches are this attack's.
    """

    id = "a6-graph-structure"
    title = "the graphs, atoms and links, that a step was taken on"
    subject = "graphs trained on"
    family = "weights"
    summary = "atoms and links of the graphs of a GIN's step"
    channel = "update"
    first_rounds = 1
    grants = (
        "a public list of the kinds of atoms: the feature rows that occur in the data set, and how many "
        "neighbours an atom of each has",
    )
    needs = (KINDS,)
    depends_on = ("training.batch", "training.local_steps", "training.optimizer", "training.hidden")
    cost = "seconds to a minute of search for each update"
    searches = True
    stops = STOPS
    controls = (_batch(1), _batch(1, width=256), _batch(2), _batch(4), _batch(8))

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """The graphs of each owner's first update, as :func:`encoded` has them."""
        uploads = self.single_uploads(view)
        first = min(seen.round for seen in uploads)
        used = [seen for seen in uploads if seen.round == first]
        return self._guess(view, knowledge, {seen.clients[0]: seen for seen in used})

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The graphs of all owners, from the first opened sum, though not whose each is."""
        return self._guess(view, knowledge, {ALL: min(self.opened_sums(view), key=lambda s: s.round)})

    def _guess(self, view: View, knowledge: Knowledge, updates: Mapping[str, Seen]) -> Guess:
        kinds = np.asarray(knowledge.facts[KINDS], dtype=np.float64)
        values, targets, stopped = {}, {}, {}
        for target, seen in updates.items():
            before = next((a.values for a in view.asked(self.channel) if a.round == seen.round), None)
            step = read_step(self.id, before, seen.values, view.public["settings"], ATOMS, len(seen.clients))
            clock = Clock(self.effort or SECONDS)
            graphs = recover(step, kinds[:, :-1], kinds[:, -1].astype(int), clock)
            values[target] = encoded(graphs, kinds.shape[1] - 1)
            targets[target] = seen.clients
            if clock.stopped and not all(graphs):
                stopped[target] = round(clock.spent, 1)
        return Guess(TRAINED_GRAPHS, values, targets, len(updates), stopped)


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
                made[number] = Molecule(atoms[atoms_of(levels, built.nodes)], built.links)
    return [*made.values(), *[None] * (graphs - len(made))]


def encoded(graphs: list[Molecule | None], columns: int) -> np.ndarray:
    """``[rows, 1 + columns + most nodes]``: graphs as one array.

    A node is a row: the number of its graph, its features, and 1 for each node of the graph that it is linked
    to. A graph that was not recovered is one row of NaN behind its number.
    """
    most = max((len(graph.atoms) for graph in graphs if graph is not None), default=0)
    parts = []
    for number, graph in enumerate(graphs):
        nodes = 1 if graph is None else len(graph.atoms)
        rows = np.zeros((nodes, 1 + columns + most))
        rows[:, 0] = number
        if graph is None:
            rows[:, 1:] = np.nan
        else:
            rows[:, 1 : 1 + columns] = graph.atoms
            ends, others = np.concatenate([graph.links, graph.links[::-1]], axis=1)
            rows[ends, 1 + columns + others] = 1
        parts.append(rows)
    return np.concatenate(parts) if parts else np.zeros((0, 1 + columns))


def decoded(values: np.ndarray, columns: int) -> list[Molecule | None]:
    """The graphs that :func:`encoded` wrote."""
    graphs: list[Molecule | None] = []
    for number in np.unique(values[:, 0]):
        rows = values[values[:, 0] == number]
        if np.isnan(rows).any():
            graphs.append(None)
            continue
        links = np.argwhere(np.triu(rows[:, 1 + columns : 1 + columns + len(rows)]) > 0).T
        graphs.append(Molecule(rows[:, 1 : 1 + columns], links))
    return graphs
