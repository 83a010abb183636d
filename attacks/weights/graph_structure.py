"""A6: whole graphs, atoms and links, from one gradient step of a graph isomorphism network."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from secure_fedgraph.attacks.attack import Control, Knowledge, OfFirstUpdate, Stopped
from secure_fedgraph.attacks.weights.gin_steps import GinStep, embeddings, graphs_in, read_step
from secure_fedgraph.attacks.weights.trees import Clock, assemble, atoms_of, counted, grow
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
