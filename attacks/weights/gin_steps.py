"""One gradient step of a graph isomorphism network, as whoever sent the weights reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from secure_fedgraph.attacks.attack import Blind
from secure_fedgraph.attacks.weights.spans import Span, span_of

TABLE, MATRIX, MATRIX_BIAS = "reduce.table", "reduce.weight", "reduce.bias"
BETWEEN, HEAD = "between", "head"


@dataclass(frozen=True)
class GinStep:
    """The weights that were sent, and how far a step moved them.

    Attributes:
        before: name -> the weight that was sent, float64.
        step: name -> how far it moved, weight decay taken off.
        sizes: how many values each column of an atom can take; empty where the network reads numbers.
        seen: whether errors are estimated from the step itself, as :func:`spans.span_of`.
    """

    before: Mapping[str, np.ndarray] = field(repr=False)
    step: Mapping[str, np.ndarray] = field(repr=False)
    sizes: tuple[int, ...]
    seen: bool = False
    spans: dict[str, Span] = field(default_factory=dict, repr=False)

    @property
    def layers(self) -> int:
        """How many convolutions."""
        return sum(name.endswith("nn.0.weight") for name in self.before)

    def span(self, name: str) -> Span:
        """The row space of a layer's step: what its inputs were combinations of."""
        if name not in self.spans:
            self.spans[name] = span_of(self.step[name], self.before[name], seen=self.seen)
        return self.spans[name]

    def kinds(self, atoms: np.ndarray, by_span: bool = True) -> np.ndarray:
        """Which rows ``[n, columns]`` of atoms can have been among the inputs of the first layer.

        A row space says more than which values occurred. It lacks some inputs where the atoms' gradients
        depend on each other: behind a sum over a node and its neighbours they do in every graph whose
        adjacency with loops is singular, such as a pair of atoms.

        Args:
            by_span: by the row space; else by the values that occurred alone.
        """
        if TABLE not in self.before:
            everything: np.ndarray = np.ones(len(atoms), dtype=bool)
            return self.span(MATRIX).holds(atoms) if by_span else everything
        entries = self.entries(atoms)
        if by_span:
            return span_of(self.step[TABLE].T, self.before[TABLE].T, seen=self.seen).holds(entries)
        moved = np.abs(self.step[TABLE]).max(1)
        occurred: np.ndarray = np.logical_not((entries[:, moved <= 1e-4 * moved.max()] > 0).any(1))
        return occurred

    def entries(self, atoms: np.ndarray) -> np.ndarray:
        """One column for each value of each column: 1 where an atom has it."""
        starts = np.cumsum([0, *self.sizes[:-1]])
        one_hot = np.zeros((len(atoms), sum(self.sizes)))
        np.put_along_axis(one_hot, atoms.astype(int) + starts, 1.0, axis=1)
        return one_hot

    def entered(self, atoms: np.ndarray) -> np.ndarray:
        """What the first layer makes of atoms, ``[n, width]``."""
        if TABLE in self.before:
            made: np.ndarray = self.entries(atoms) @ self.before[TABLE]
            return made
        made = atoms @ self.before[MATRIX].T + self.before[MATRIX_BIAS]
        return made

    def inside(self, layer: int, added: np.ndarray) -> np.ndarray:
        """What stands between the two linear layers of a convolution, for sums ``[n, width]``."""
        name = f"convolutions.{layer}.nn.0"
        made: np.ndarray = np.maximum(
            added @ self.before[f"{name}.weight"].T + self.before[f"{name}.bias"], 0
        )
        return made

    def after(self, layer: int, inside: np.ndarray) -> np.ndarray:
        """What leaves a convolution, ``[n, width]``."""
        name = f"convolutions.{layer}.nn.2"
        made: np.ndarray = np.maximum(
            inside @ self.before[f"{name}.weight"].T + self.before[f"{name}.bias"], 0
        )
        return made


def read_step(
    attack: str,
    before: Mapping[str, Any] | None,
    update: Mapping[str, np.ndarray],
    settings: Mapping[str, Any],
    sizes: tuple[int, ...],
    contributors: int,
) -> GinStep:
    """A step, with the known weight decay taken off.

    Args:
        attack: who asks, for the reason why it is blind.
        before: what the clients were sent.
        update: what came back: of one, or the sum of several.
        settings: the algorithm's public settings.
        sizes: of the columns of atoms.
        contributors: how many updates it is the sum of.

    Raises:
        Blind: for the update of another network.
    """
    if before is None:
        raise Blind(f"{attack}: the view lacks the weights that were sent")
    names = [name for name in before if name in update]
    layers = sum(name.endswith("nn.0.weight") for name in names)
    needed = {
        f"convolutions.{i}.nn.{j}.{p}" for i in range(layers) for j in (0, 2) for p in ("weight", "bias")
    }
    needed |= {f"{one}.{p}" for one in (BETWEEN, HEAD) for p in ("weight", "bias")}
    first = {TABLE} if TABLE in names else {MATRIX, MATRIX_BIAS}
    if not layers or not (needed | first) <= set(names):
        raise Blind(f"{attack}: the update is of no graph isomorphism network with sums as its readout")
    start = {name: np.asarray(before[name], dtype=np.float64) for name in names}
    rate, decay = (float(settings.get(key) or 0.0) for key in ("learning_rate", "weight_decay"))
    known = contributors * rate * decay if settings.get("optimizer", "sgd") == "sgd" else 0.0
    step = {name: np.asarray(update[name], dtype=np.float64) + known * start[name] for name in names}
    if TABLE in start and len(start[TABLE]) != sum(sizes):
        raise Blind(f"{attack}: the first layer has {len(start[TABLE])} values, and atoms {sum(sizes)}")
    return GinStep(start, step, sizes if TABLE in start else ())
