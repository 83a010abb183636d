"""Labels that a client randomises once, in place of its own: randomised response over the classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from secure_fedgraph.core.accounting.events import Event, OneHolderRelease
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.privacy.input_dp import randomizer
from secure_fedgraph.privacy.input_dp.randomizer import InputRandomizer, flip_threshold

if TYPE_CHECKING:
    from torch_geometric.data import Data

HOME = "home"
"""The entry of an owner's graph that says which of its nodes it counts for all that hold them."""


@dataclass(frozen=True)
class RandomisedLabels(InputRandomizer):
    """Each node keeps its class with probability ``e^epsilon / (e^epsilon + K - 1)``, else gets any other.

    All labels that the client holds are randomised, of training nodes or not, and all that it computes uses
    these. Local training of node classifiers corrects its loss for the noise, whose size is public
    (:func:`~secure_fedgraph.algorithms.training.local_training.cross_entropy`).

    Guarantees:
        - one node's label, set to any other class, changes the probability of any result by at most
          ``e^epsilon``; its features and links are not covered, nor is which nodes have a label.

    Args:
        epsilon: of one label.

    Raises:
        BadInput: for an epsilon that is not positive and finite.

    References:
        Warner 1965; Kairouz et al., JMLR 2016 (k-ary randomised response); Ghazi et al., NeurIPS 2021
        (label differential privacy).

    >>> RandomisedLabels(50.0).randomized(torch.tensor([0, 2, -1, 1]), classes=3).tolist()
    [0, 2, -1, 1]
    """

    kind: ClassVar[str] = "labels"
    unit: ClassVar[str] = "label"
    place: ClassVar[str] = "y"

    def randomize(self, graph: Data, classes: int) -> Tensor:
        """Labels ``[nodes]``."""
        y = graph.y
        assert isinstance(y, Tensor)
        return self.randomized(y, classes)

    def truth(self, classes: int) -> float:
        """The probability that a label is true.

        >>> round(RandomisedLabels(1.0).truth(7), 4)
        0.3118
        """
        return 1.0 if classes < 2 else 1.0 - flip_threshold(self.epsilon, classes - 1) / 2.0**64

    def randomized(self, y: Tensor, classes: int) -> Tensor:
        """Labels ``[nodes]`` in place of a client's own; those below 0, of nodes without one, stay.

        Args:
            y: its own.
            classes: how many there are.
        """
        if classes < 2:  # all alike: nothing to protect
            return y.clone()
        lie, which = randomizer.coins(2 * len(y)).reshape(2, -1)
        others = np.uint64(classes - 1)
        shift = np.where(lie < np.uint64(flip_threshold(self.epsilon, classes - 1)), 1 + which % others, 0)
        randomised = (y + torch.from_numpy(shift.astype(np.int64))) % classes
        return torch.where(y >= 0, randomised, y)


@dataclass(frozen=True)
class DividedLabels(RandomisedLabels):
    """The same where several clients hold the same nodes: a node's label is its home's alone to tell.

    The client where a node has its home (``home [nodes]`` of its graph) randomises the label; every other
    holder takes any class, evenly and without a look at it.

    Guarantees:
        - a label of any number of holders is one client's answer: one epsilon in all.

    Needs:
        graphs that say which nodes have their home there, each at one client.

    Args:
        epsilon: of one label, all its holders together.
        homes: True; what tells its settings from those of the labels that each holder randomises.
    """

    homes: bool = True

    def randomize(self, graph: Data, classes: int) -> Tensor:
        """Labels ``[nodes]``; anything of nodes that have their home elsewhere.

        Raises:
            BadInput: for a graph that does not say which have it here.
        """
        if HOME not in graph:
            raise BadInput("labels are told by a node's home, and the graph has no home: give each node one")
        told = super().randomize(graph, classes)
        elsewhere = ~graph[HOME].bool() & (told >= 0)
        count = int(elsewhere.sum())
        drawn = torch.from_numpy((randomizer.coins(count) % np.uint64(classes)).astype(np.int64))
        return told.masked_scatter(elsewhere, drawn)

    def costs(self) -> dict[str, tuple[Event, ...]]:
        """The cost by unit: whoever else holds a node releases nothing about its label."""
        return {**super().costs(), self.unit: (OneHolderRelease(self.epsilon),)}
